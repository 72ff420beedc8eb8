# make demo   the main job on photos that come with scikit-image, with a report to open
# make test   all tests
# make lint   ruff and mypy
# make docs   the documentation as a site, in site/
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.current

.PHONY: setup demo test lint docs clean

setup: $(STAMP)

# Made anew when the dependencies change; pip finds the rest of the work done.
$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "error: $(PYTHON) is older than Python 3.11; name another with PYTHON=..."; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -e '.[dev]'
	# The oracle of the patch tests; its opencv-python would overwrite opencv-contrib-python-headless.
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps extract-patches==0.2.0
	touch $@

demo: setup
	$(BIN)/python -m pipelines.demo --out demo

test: setup
	$(BIN)/python -m pytest

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs --quiet build --strict --clean

clean:
	rm -rf $(VENV) demo site .pytest_cache .mypy_cache .ruff_cache

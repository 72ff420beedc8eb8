"""The help of every stage on the base install: it needs none of the packages that the stages compute with."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys

import pytest

from xdesc_jax import cli
from xdesc_jax.command_line.signature import told_of

HEAVY = (
    "PIL", "apache_beam", "cv2", "flax", "jax", "jaxlib", "matplotlib", "onnx", "onnxruntime", "optax", "orbax",
    "platformdirs", "plotly", "pyarrow", "pycolmap", "scipy", "tensorboardX", "tensorflow", "tensorflow_datasets",
    "torch",
)  # fmt: skip
FILES = ("h5py", "safetensors")  # of the base install; they open files, and there are none to open yet
PROGRAM = """
import contextlib, io, json, sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {blocked}:
            raise ModuleNotFoundError(name + " is blocked", name=name)

sys.meta_path.insert(0, Blocked())
from xdesc_jax import cli

found = {{}}
for words in cli.STAGES:
    with contextlib.redirect_stdout(io.StringIO()) as shown, contextlib.redirect_stderr(shown):
        status = cli.main([*words, "--help"])
    found[" ".join(words)] = [status, shown.getvalue()]
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def helped() -> dict[str, list]:
    """Stage -> [status, text], of one process in which the packages cannot be imported."""
    program = PROGRAM.format(blocked=set(HEAVY + FILES))
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env={**os.environ, "COLUMNS": "160"}
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def stage(words: tuple[str, ...]):
    module, _, name = cli.STAGES[words].target.partition(":")
    return getattr(cli.importlib.import_module(module), name)


@pytest.mark.parametrize("words", cli.STAGES, ids=" ".join)
def test_help_needs_no_extra_and_tells_the_summary_and_every_option(words, helped):
    status, shown = helped[" ".join(words)]
    assert status == 0, shown
    assert f"Usage: xdesc {' '.join(words)}" in shown
    function = stage(words)
    summary = " ".join(inspect.getdoc(function).split("\n\n")[0].split())
    assert summary in " ".join(shown.split())
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is parameter.KEYWORD_ONLY and name not in ("settings", "warped", "places", "warp"):
            assert f"--{name.replace('_', '-')}" in shown, name


@pytest.mark.parametrize("words", cli.STAGES, ids=" ".join)
def test_every_argument_of_a_stage_is_told(words):
    described = told_of(stage(words))
    assert [name for name in inspect.signature(stage(words)).parameters if not described.get(name)] == []


def test_the_list_of_stages_imports_none_of_them():
    program = (
        "import sys; from xdesc_jax import cli; assert cli.main(['--help']) == 0\n"
        "found = {name.split('.')[1] for name in sys.modules if name.startswith('xdesc_jax.')}\n"
        "print(sorted(found), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not {"matching", "features", "train", "data", "evaluate", "mapping"} & set(eval(done.stderr))

#!/usr/bin/env bash
# Runs the tests under each Python version that the package supports, in an environment of its own, one after another.
# Run: benchmarks/python_versions.sh [3.11 3.12 3.13] [-- pytest arguments]
# Python 3.14 has no TensorFlow: there the package installs without it, and what reads npy records alone is tested.
set -euo pipefail
cd "$(dirname "$0")/.."
versions=()
while [ $# -gt 0 ] && [ "$1" != "--" ]; do versions+=("$1"); shift; done
[ "${1:-}" = "--" ] && shift
[ ${#versions[@]} -gt 0 ] || versions=(3.11 3.12 3.13)
WITHOUT_TENSORFLOW="tests/test_imports.py tests/networks tests/translation tests/matching tests/features/test_store.py
  tests/features/test_store_refused.py
  tests/data/test_columns.py tests/data/test_resident.py tests/train/translators/test_step.py"
failed=()
for version in "${versions[@]}"; do
  python="python$version"
  command -v "$python" >/dev/null || { echo "$version: no $python on the path"; failed+=("$version"); continue; }
  environment=".venv-$version"
  [ -x "$environment/bin/python" ] || "$python" -m venv "$environment"
  pip="$environment/bin/python -m pip install --quiet --disable-pip-version-check"
  if $pip -e '.[dev]' 2>"$environment/pip.log"; then
    tests=()
  else
    echo "$version: not everything installs; what is missing:"
    grep -iE "no matching distribution|could not find a version|requires-python|error:" "$environment/pip.log" | head -5
    $pip -e '.[jax]' orbax-checkpoint tensorboardX pytest pytest-xdist || { failed+=("$version"); continue; }
    # shellcheck disable=SC2206
    tests=($WITHOUT_TENSORFLOW)
  fi
  $pip --no-deps extract-patches==0.2.0
  echo "== Python $("$environment/bin/python" -V | cut -d' ' -f2) ${tests[*]:+(without TensorFlow)}"
  "$environment/bin/python" -m pytest "${tests[@]}" "$@" || failed+=("$version")
done
[ ${#failed[@]} -eq 0 ] && echo "passed: ${versions[*]}" || { echo "failed: ${failed[*]}"; exit 1; }

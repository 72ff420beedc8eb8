"""Four virtual CPU devices for every test, an empty data folder, and where the shared photos and references are."""

import atexit
import gc
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.support.bytecode import link_installed

# Where Python writes no bytecode beside the sources, every process that a test starts compiles all that it imports,
# which takes longer than its work. They share a folder instead; Python writes into it atomically.
if sys.dont_write_bytecode and "PYTHONPYCACHEPREFIX" not in os.environ:
    bytecode = tempfile.mkdtemp(prefix="xdesc-bytecode-")
    atexit.register(shutil.rmtree, bytecode, ignore_errors=True)
    link_installed(Path(bytecode))
    os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix = bytecode
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False

# Tests compile hundreds of small functions and run each once or twice: spend little on optimising them. Without XLA's
# newer emitters, a step compiles in a quarter of the time.
os.environ["XLA_FLAGS"] = (
    os.environ.get("XLA_FLAGS", "")
    + " --xla_force_host_platform_device_count=4"
    + " --xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
    + " --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
)

# Threads of BLAS spin while they wait for each other: two take ten times the time of one over products as small as the
# tests', and there are as many processes as cores already.
os.environ.update(OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")

# No test finds weights that the user has installed.
os.environ["XDESC_DATA"] = str(Path(__file__).with_name("no-installed-weights"))

import pytest

from tests.support.compiled import Compiled
from tests.support.network_calls import CALLS

# A collection when 700 objects are new, as by default, comes hundreds of times a second where modules are imported and
# functions traced, and finds next to nothing.
gc.set_threshold(50_000, 20, 50)

# Many tests compile the same functions, so they share what is compiled, and the processes that they start do, too.
compiled = Compiled.shared()
os.environ["JAX_COMPILATION_CACHE_DIR"] = str(compiled.own)
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"
os.environ["JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES"] = "none"  # whose folder would be a part of what files are known by


def pytest_runtest_setup() -> None:
    compiled.exchange()


@pytest.fixture(scope="module", autouse=True)
def settled() -> None:
    """What was imported and compiled so far stays: the garbage collector need not walk through millions of objects
    again and again to find that, a tenth of the time of tests that train."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def as_loud_as_before() -> Iterator[None]:
    """A command that a test calls with --quiet leaves other tests of the process their messages."""
    log = logging.getLogger("xdesc_jax")
    level = log.level
    yield
    log.setLevel(level)


# Tests that take long, and share what they compile, run first: short ones are left for the end, which the workers
# divide evenly, where a long one would keep one of them at work alone.
FIRST = ("test_pipelines.py", "train", "sweep", "networks", "export")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    folder = Path(__file__).parent
    rank = {name: i for i, name in enumerate(FIRST)}
    items.sort(key=lambda item: rank.get(item.path.relative_to(folder).parts[0], len(FIRST)))


@pytest.fixture
def calls(tmp_path, monkeypatch) -> Callable[[], list[str]]:
    """Lines that networks without torch write: one a photo, or a pair."""
    file = tmp_path / "calls"
    file.touch()
    monkeypatch.setenv(CALLS, str(file))
    return lambda: file.read_text().splitlines()


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of reference arrays and photos; tests that need it skip where it is absent."""
    folder = Path(os.environ.get("XDESC_SHARED", Path(__file__).parents[2] / "shared"))
    if not folder.is_dir():
        pytest.skip(f"reference data not found at {folder} (XDESC_SHARED)")
    return folder


@pytest.fixture(scope="session")
def pytorch_files(tmp_path_factory) -> Path:
    """Files that torch wrote, and what its modules compute: see pytorch_reference.py."""
    from xdesc_jax.files import pytorch

    if not pytorch.installed():
        pytest.skip("torch is not installed")
    folder = tmp_path_factory.mktemp("pytorch")
    script = Path(__file__).parent / "support" / "pytorch_reference.py"
    subprocess.run([sys.executable, script, "make", folder], check=True)
    return folder


@pytest.fixture(scope="session")
def place(tmp_path_factory):
    """A synthetic place to localise in."""
    from tests.support.place import make_place

    return make_place(tmp_path_factory.mktemp("place"))

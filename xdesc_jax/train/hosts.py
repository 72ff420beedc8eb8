"""Several hosts, one training: who is there, who answers, and when all stop.

In: a cluster that jax detects, or an address, a count and a number. Out: jax's processes joined, with a watch that
ends this one, with a message, when another fails or stops answering: collectives alone would wait for it for ever.
What the hosts tell each other goes through the board of host 0 (see `board`).
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import sys
import traceback
from collections.abc import Iterator

import jax

from xdesc_jax import console
from xdesc_jax.train.board import Board, joined_board
from xdesc_jax.train.watch import Watch, first_line, leave

_TOLD = (ValueError, OSError, KeyError, FloatingPointError)  # errors whose text is for the user
_DAY = 24 * 3600.0  # seconds; sooner, the watch ends what waits for a host that is not there
_places = itertools.count()


def several() -> bool:
    """Whether this training runs on several hosts."""
    return jax.process_count() > 1


def is_lead() -> bool:
    """Whether this host writes what one writes for all: settings, log, figures."""
    return jax.process_index() == 0


def who() -> str:
    """This host by its number."""
    return f"host {jax.process_index()} of {jax.process_count()}"


def wait_for_all(what: str) -> None:
    """Returns once all hosts are here; `what` names the place. Of one host, at once."""
    if several():  # not by a collective: those of a CPU give up while one host still measures or copies
        global _board
        if _board is None:  # of processes that were joined by other means
            _board, _ = joined_board(None)
        _board.meet(f"place {next(_places)}: {what}", jax.process_count(), _DAY)


@contextlib.contextmanager
def lead_first(what: str) -> Iterator[None]:
    """The body on host 0, then on the others, who find what it wrote."""
    if not is_lead():
        wait_for_all(what)
    yield
    if is_lead():
        wait_for_all(what)


def found_cluster() -> str | None:
    """The cluster of several processes that this one belongs to, by its environment: what jax can join unasked."""
    environment = os.environ
    if "JAX_COORDINATOR_ADDRESS" in environment:
        return "JAX_COORDINATOR_ADDRESS"
    if "SLURM_STEP_NODELIST" in environment and int(environment.get("SLURM_NTASKS", "1")) > 1:
        return "Slurm"
    if "OMPI_COMM_WORLD_SIZE" in environment and int(environment["OMPI_COMM_WORLD_SIZE"]) > 1:
        return "Open MPI"
    if "KUBERNETES_SERVICE_HOST" in environment and "JOB_COMPLETION_INDEX" in environment:
        return "Kubernetes"
    if "," in environment.get("TPU_WORKER_HOSTNAMES", "") or "MEGASCALE_NUM_SLICES" in environment:
        return "TPU"
    return None


@contextlib.contextmanager
def joined(
    coordinator: str | None = None, num_hosts: int | None = None, host_id: int | None = None, timeout: int = 100
) -> Iterator[None]:
    """Joins this process to the others for as long as the body runs; to be entered before jax is used.

    Args:
        coordinator: address of host 0 and a port that is free there; None: of the cluster found, if any.
        num_hosts: how many processes there are; 1: this one is alone, whatever cluster it runs in.
        host_id: this one's number, from 0.
        timeout: seconds after which a host that does not answer ends the run.

    Raises:
        ValueError: settings that do not say which host this is, or a cluster that jax cannot read.
        ConnectionError: the others are not to be reached.
    """
    given = (coordinator, num_hosts, host_id)
    if num_hosts == 1 or (given == (None, None, None) and found_cluster() is None):
        yield
        return
    _check(coordinator, num_hosts, host_id, timeout)
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    # Its notice of SIGTERM counts single steps, and orbax asks it, too; `stop_after` counts dispatches.
    jax.config.update("jax_enable_preemption_service", False)
    try:
        jax.distributed.initialize(
            coordinator, num_hosts, host_id,
            # Counted from a heartbeat that may be half of this old: the watch comes first, and says who it is.
            heartbeat_timeout_seconds=3 * timeout + 10,
            shutdown_timeout_seconds=timeout,
        )  # fmt: skip
    except ValueError as error:
        raise ValueError(
            f"{found_cluster()}: jax cannot tell the hosts of this job ({error}); "
            "pass --coordinator, --num-hosts and --host-id, or --num-hosts 1 for a run of its own"
        ) from error
    except RuntimeError as error:
        raise ConnectionError(f"the hosts did not find each other ({first_line(error)})") from error
    if not several():
        yield
        return
    if jax.device_count() != jax.local_device_count() * jax.process_count():
        raise ValueError(
            f"{who()} has {jax.local_device_count()} of {jax.device_count()} devices, expected as many on each"
        )
    print(f"{who()}: {len(jax.local_devices())} x {jax.local_devices()[0].device_kind}", file=sys.stderr, flush=True)
    if not is_lead():  # one tells for all
        console.out.quiet = True
        console.log.setLevel(logging.WARNING)
    global _board, _watch
    _board, keeper = joined_board(coordinator)
    _watch = Watch(_board, timeout)
    try:
        yield
        wait_for_all("the end")
    except SystemExit as end:
        if end.code:
            _fail(end)
        wait_for_all("the end")
        raise
    except BaseException as error:
        _fail(error)
    finally:
        _watch.end()
        _watch = _board = None
        jax.distributed.shutdown()  # once all are here
        if keeper is not None:
            keeper.close()


def _check(coordinator: str | None, num_hosts: int | None, host_id: int | None, timeout: int) -> None:
    given = {"--coordinator": coordinator, "--num-hosts": num_hosts, "--host-id": host_id}
    if lacking := [name for name, value in given.items() if value is None]:
        if len(lacking) < 3:
            raise ValueError(f"several hosts by hand need all of {', '.join(given)}; {', '.join(lacking)} is missing")
    elif not 0 <= host_id < num_hosts:  # type: ignore[operator]
        raise ValueError(f"--host-id is {host_id}, expected 0 to {num_hosts - 1} of --num-hosts {num_hosts}")  # type: ignore[operator]
    elif not (coordinator or "").rpartition(":")[2].isdigit():
        raise ValueError(f"--coordinator is {coordinator!r}, expected host:port")
    if timeout < 1:
        raise ValueError(f"--host-timeout is {timeout}, expected seconds, at least 1")


# --- Stopping --------------------------------------------------------------------------------------------


def can_agree() -> bool:
    """Whether the hosts can agree where to stop: not where jax's processes were joined by other means."""
    return _watch is not None


def ask_to_stop() -> None:
    """Tells all hosts to stop, from any of them; see `stop_after`."""
    if _watch is not None:
        _watch.asked = True


def stop_after(dispatches: int) -> bool:
    """Whether all hosts, once one was asked to stop, do so behind this dispatch; to be called behind each, from 1."""
    return _watch is not None and _watch.stops_after(dispatches)


_watch: Watch | None = None
_board: Board | None = None


def _fail(error: BaseException) -> None:
    """Ends this process, and with it the others: an exit in good order would wait for them, and they for this one."""
    if not isinstance(error, _TOLD) or os.environ.get("XDESC_DEBUG"):
        traceback.print_exception(error)
    text = str(error) if isinstance(error, _TOLD) else f"{type(error).__name__}: {first_line(error)}"
    if _watch is not None:
        _watch.tell_failure(error, text)
    leave(text)

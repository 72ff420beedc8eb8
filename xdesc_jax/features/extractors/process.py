"""The networks of learned descriptors, called from a process that has no torch.

In: descriptor names, weight files, a device; then photos, and positions in them. Out: keypoints, scores and rows in
the form that files keep. One process computes with torch, as long as the block lasts; it starts at the first photo.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from xdesc_jax.descriptors import canonical, get_entry, get_spec, stored
from xdesc_jax.features.extractors.protocol import FAILED, OK, SMALL, Network, PairRequest, Request, Start
from xdesc_jax.features.images import UnreadablePhoto

DEVICES = ("auto", "cpu", "cuda")
EXTRA = "pip install 'xdesc-jax[learned]'"
BORDER_PX = 2  # nearer to the border no network finds keypoints: the window of its maxima would leave the photo
_LEAST_KORNIA = (0, 9)
_ROOT = str(Path(__file__).parents[3])


class Found(NamedTuple):
    """Keypoints [N, 2] float32 in px (origin at the centre of the first pixel), scores [N], stored rows [N, D]."""

    xy: np.ndarray
    scores: np.ndarray
    rows: np.ndarray


def require_learned(name: str) -> None:
    """Raises ValueError where torch or kornia, with which `name` is computed, are missing or too old.

    What users register may need other packages; the process says so when it starts.
    """
    if str(get_entry(name).describe).startswith(__package__):
        require_kornia(f"descriptor {name!r}")


def require_kornia(what: str) -> None:
    """Raises ValueError where torch or kornia, with which `what` is computed, are missing or too old."""
    missing = [package for package in ("torch", "kornia") if not _installed(package)]
    if missing:
        raise ValueError(
            f"{what} is computed with torch and kornia, but {' and '.join(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} not installed; install what it needs with: {EXTRA}"
        )
    version = importlib.metadata.version("kornia")
    if tuple(int(part) for part in version.split(".")[:2]) < _LEAST_KORNIA:
        least = ".".join(map(str, _LEAST_KORNIA))
        raise ValueError(f"{what} needs kornia {least} or later, found {version}; install it with: {EXTRA}")


def _installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except (ImportError, ValueError):
        return False


class NetworkProcess:
    """Networks in a process of their own; use as a context manager, which ends it.

    Args:
        networks: by name.
        device: 'auto' (CUDA where there is some), 'cpu' or 'cuda'.
        threads: that torch computes with on a CPU; None for one a core.

    Attributes:
        seconds: that networks have computed, without start and transfers.
        found_device: 'cpu' or 'cuda' once the process has started, else None.
    """

    def __init__(self, networks: Mapping[str, Network], device: str, threads: int | None = None):
        self._start = Start(dict(networks), device, threads or len(os.sched_getaffinity(0)))
        self._process: subprocess.Popen | None = None
        self._connection: Connection | None = None
        self.seconds = 0.0
        self.found_device: str | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type | None, *_: object) -> None:
        if self._process is None or self._connection is None:
            return
        self._connection.close()  # upon which it ends, once it has computed what it is at
        if kind is not None:
            self._process.kill()
        self._process.wait()
        self._process = self._connection = None

    def start(self) -> None:
        """Starts the process, unless it runs or there is nothing to compute.

        Raises:
            ValueError: CUDA was demanded and is not there; weights of another network; kornia is too old.
            OSError: the process ended.
        """
        if self._process is not None or not self._start.networks:
            return
        ours, theirs = multiprocessing.Pipe()
        path = os.pathsep.join([_ROOT, *filter(None, sys.path)])  # what registered names point at is found there
        self._process = subprocess.Popen(
            [sys.executable, "-m", "xdesc_jax.features.extractors.serve", str(theirs.fileno())],
            env={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
        )
        theirs.close()
        self._connection = ours
        self.found_device = self._ask(self._start, f"starting {' '.join(self._start.networks)}")

    def compute(self, request: Request | PairRequest, what: str) -> Any:
        """What a network makes of a request; `what` says in errors what it was at.

        Raises:
            UnreadablePhoto: the photo is smaller than the network can take.
            ValueError, OSError: as `start`; the network failed.
        """
        self.start()
        seconds, found = self._ask(request, what)
        self.seconds += seconds
        return found

    def _ask(self, request: Start | Request | PairRequest, what: str) -> Any:
        assert self._connection is not None and self._process is not None
        try:
            self._connection.send(request)
            kind, content = self._connection.recv()
        except (EOFError, ConnectionError) as error:
            status = self._process.wait()
            raise OSError(
                f"{what}: the process of the networks ended with status {status}, perhaps for want of memory; what was "
                "finished is kept"
            ) from error
        if kind == OK:
            return content
        if kind == SMALL:
            raise UnreadablePhoto(content)
        if kind == FAILED:
            raise OSError(f"{what}: failed ({content})")
        raise ValueError(content)


class Extractors(NetworkProcess):
    """The networks of descriptors.

    Args:
        names: registered descriptors that networks compute.
        weights: the weight file of each.
        device, threads: as for `NetworkProcess`.
    """

    def __init__(self, names: Sequence[str], weights: Mapping[str, Path], device: str, threads: int | None = None):
        described = {name: get_entry(name).describe for name in names}
        networks = {
            name: Network(describe if isinstance(describe, str) else None, str(weights[name]))
            for name, describe in described.items()
        }
        super().__init__(networks, device, threads)

    def detect(self, name: str, photo: np.ndarray, where: Path | str) -> Found:
        """All keypoints that a network finds in a photo.

        Args:
            name: of the network's descriptor.
            photo: uint8 [H, W, 3].
            where: the photo, for error messages.

        Raises:
            UnreadablePhoto: the photo is smaller than the network can take.
            ValueError, OSError: as `start`; the network failed, or gave what does not fit the descriptor.
        """
        xy, scores, rows = self._compute(Request(name, photo, None), where)
        xy, scores = np.asarray(xy, np.float32), np.asarray(scores, np.float32)
        if xy.shape != (len(rows), 2) or scores.shape != (len(rows),) or not np.isfinite(xy).all():
            raise ValueError(
                f"{where}: {name!r} found {len(rows)} rows at positions {list(xy.shape)} with scores "
                f"{list(scores.shape)}, expected as many, and finite px"
            )
        return Found(xy, scores, _in_stored_form(name, rows, where))

    def describe(
        self, name: str, photo: np.ndarray, xy: np.ndarray, where: Path | str
    ) -> tuple[np.ndarray, np.ndarray]:
        """Rows of a network at given positions.

        Args:
            name, photo, where: as for `detect`.
            xy: [N, 2] float32 in px, origin at the centre of the first pixel.

        Returns:
            Stored rows [N, stored_width], zero where `valid` [N] is False: less than 2 px inside the photo.

        Raises:
            As `detect`.
        """
        height, width = photo.shape[:2]
        low, high = BORDER_PX, np.array([width, height]) - 1 - BORDER_PX
        valid = np.asarray(((xy >= low) & (xy <= high)).all(axis=1))
        spec = get_spec(name)
        rows = np.zeros((len(xy), spec.stored_width), spec.stored_dtype)
        if valid.any():
            found = self._compute(Request(name, photo, np.asarray(xy, np.float32)[valid]), where)
            rows[valid] = _in_stored_form(name, found, where, int(valid.sum()))
        return rows, valid

    def _compute(self, request: Request, where: Path | str) -> Any:
        height, width = request.photo.shape[:2]
        try:
            return self.compute(request, f"{where} ({width} x {height} px): {request.name!r}")
        except UnreadablePhoto as error:
            raise UnreadablePhoto(f"{where}: {error}") from error


def _in_stored_form(name: str, rows: Any, where: Path | str, count: int | None = None) -> np.ndarray:
    if count is not None and len(rows) != count:
        raise ValueError(f"{where}: {name!r} gave {len(rows)} rows for {count} keypoints")
    spec = get_spec(name)
    return stored(canonical(rows, spec, where=f"{where}: computing {name!r}"), spec)

"""The process in which networks run: `python -m xdesc_jax.features.extractors.serve FD`.

In: requests over a connection: first a `Start`, then photos, or pairs of them. Out: for each one a reply, ('ok', what
was computed) or the kind of the error and its text. torch and pycolmap, which have clashed in one process, so never
meet; `process` holds the other end. It ends when that end is closed.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from xdesc_jax.descriptors import get_entry, resolve
from xdesc_jax.features.extractors.protocol import FAILED, OK, REFUSED, SMALL, PairRequest, Request, Start
from xdesc_jax.files import pytorch


class Server:
    """The networks that a `Start` asks for; they need not be of torch, which is used where it is installed.

    Raises:
        ValueError: CUDA was demanded and is not there, weights that do not fit, or a package is missing.
    """

    def __init__(self, start: Start):
        torch = importlib.import_module("torch") if pytorch.installed() else None
        self.device = _device(start.device, torch)
        if torch is not None:
            torch.set_num_threads(start.threads)
        self._computing = torch.inference_mode if torch is not None else contextlib.nullcontext
        self._networks: dict[str, Any] = {}  # an `Extractor` or a `Matcher`, as the caller asks of it
        for name, network in start.networks.items():
            # What the caller registered is not known here, unless a plugin did.
            describe = network.describe or get_entry(name).describe
            if describe is None:
                raise ValueError(f"descriptor {name!r} is known to the caller alone; register it in a plugin")
            try:
                make = resolve(describe)
            except ImportError as error:
                raise ValueError(f"{name!r} cannot be computed: {error}") from error
            self._networks[name] = make(name, Path(network.weights), self.device)

    def answer(self, request: Request | PairRequest) -> tuple[str, Any]:
        """Kind of the reply, and its content: (seconds, keypoints, rows or matches)."""
        if isinstance(request, PairRequest):
            start = time.perf_counter()
            with self._computing():
                matches = self._networks[request.name].match(request.first, request.second)
            return OK, (time.perf_counter() - start, matches)
        extractor = self._networks[request.name]
        height, width = request.photo.shape[:2]
        if min(height, width) < extractor.least_px:
            wanted = f"{request.name!r} needs at least {extractor.least_px} px a side"
            return SMALL, f"the photo has {width} x {height} px, but {wanted}"
        start = time.perf_counter()
        found: Any
        with self._computing():
            if request.xy is None:
                found = tuple(extractor.detect(request.photo))
            else:
                found = extractor.describe(request.photo, request.xy)
        return OK, (time.perf_counter() - start, found)


def serve(connection: Connection) -> None:
    """Answers requests until the other end is closed."""
    server: Server | None = None
    while True:
        try:
            request = connection.recv()
        except EOFError:
            return
        try:
            if isinstance(request, Start):
                server = Server(request)
                reply: tuple[str, Any] = (OK, server.device)
            else:
                assert server is not None
                reply = server.answer(request)
        except (ValueError, OSError) as error:
            reply = (REFUSED, str(error))
        except Exception as error:  # torch raises anything; want of memory is a RuntimeError
            first = (str(error).strip().splitlines() or ["no message"])[0]
            reply = (FAILED, f"{type(error).__name__}: {first}")
        connection.send(reply)


def _device(asked: str, torch: Any) -> str:
    """'cpu' or 'cuda'; `torch` is the module, or None."""
    found = torch is not None and torch.cuda.is_available()
    if asked == "cuda" and not found:
        what = "torch is not installed" if torch is None else f"torch {torch.__version__} finds none"
        raise ValueError(
            f"device 'cuda' was demanded, but {what}; pass --device cpu, or install a build of torch for your GPU"
        )
    return "cuda" if asked == "cuda" or (asked == "auto" and found) else "cpu"


def main(words: list[str]) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):  # the other end is stopped too, and closes
        signal.signal(number, signal.SIG_IGN)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what libraries print is no result
    serve(Connection(int(words[0])))


if __name__ == "__main__":
    main(sys.argv[1:])

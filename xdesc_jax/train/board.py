"""What the hosts of a training tell each other: short texts by name, kept by host 0, which all others reach by TCP.

In: an address and a secret, which host 0 made up and jax's first collective handed to all. Out: texts set and read, and
places where all wait for each other. It must answer while a collective hangs, so it is none.
"""

from __future__ import annotations

import json
import secrets
import socket
import socketserver
import threading
import time
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

_SIZE = 1024  # bytes of an address as all get it
_CONNECTING = 30.0  # seconds


class NotTold(TimeoutError):
    """Some hosts did not tell in time, though host 0 answers."""


class Keeper:
    """Keeps the texts, in threads of its own, until `close`."""

    def __init__(self) -> None:
        self.secret = secrets.token_hex(16)
        texts: dict[str, str] = {}
        changed = threading.Condition()
        expected = self.secret

        class Answer(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                try:
                    asked = json.loads(self.rfile.readline())
                    if secrets.compare_digest(asked.pop("secret"), expected):
                        self.wfile.write(json.dumps(_answer(texts, changed, **asked)).encode() + b"\n")
                except (OSError, ValueError, KeyError, TypeError, AttributeError):
                    return  # of a host that is gone, or of somebody else

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = True
            request_queue_size = 1024

        self._server = Server(("", 0), Answer)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, name="board", daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def _answer(
    texts: dict[str, str], changed: threading.Condition, key: str, value: str | None = None, least: int = 0,
    seconds: float = 0.0,
) -> dict[str, str] | None:  # fmt: skip
    """Sets a text, or gives those whose names begin with `key` once there are at least so many; None: too late."""
    with changed:
        if value is not None:
            texts[key] = value
            changed.notify_all()
            return {}

        def found() -> dict[str, str]:
            return {name: text for name, text in texts.items() if name.startswith(key)}

        return found() if changed.wait_for(lambda: len(found()) >= least, seconds if least else None) else None


class Board:
    """A host's way to the texts.

    Args:
        addresses: names or numbers of host 0, of which one is enough.
        port, secret: of its `Keeper`.
        me: this host's number.

    Raises:
        ConnectionError: none answers.
    """

    def __init__(self, addresses: Sequence[str], port: int, secret: str, me: int):
        self._secret, self.me = secret, me
        until, problem = time.monotonic() + _CONNECTING, ""
        while time.monotonic() < until:
            for address in addresses:
                self._where = (address, port)
                try:
                    self.read("")
                    return
                except OSError as error:
                    problem = f"{address}:{port}: {error}"
            time.sleep(0.2)
        raise ConnectionError(f"host 0 is not to be reached ({problem}; also tried {', '.join(addresses)})")

    def put(self, what: str, value: str) -> None:
        """Sets this host's text of a kind. Raises OSError where host 0 is gone, as all here."""
        self._ask(key=f"{what}/{self.me}", value=value)

    def read(self, what: str) -> dict[str, str]:
        """Texts by '<kind>/<host>', those of a kind or of all ('')."""
        return self._ask(key=f"{what}/" if what else "")

    def read_all(self, what: str, count: int, seconds: float) -> list[str]:
        """A text of each of `count` hosts. Raises NotTold where one does not tell."""
        found = self._ask(key=f"{what}/", least=count, seconds=seconds)
        if found is None:
            raise NotTold(f"{what}: not told by all of {count} hosts within {seconds:g} seconds")
        return list(found.values())

    def meet(self, place: str, count: int, seconds: float) -> None:
        """Returns once `count` hosts are here."""
        self.put(place, "here")
        self.read_all(place, count, seconds)

    def _ask(self, **asked: Any) -> Any:
        # An answer that waits for others may take its time; whether host 0 is there at all, `watch` tells.
        with socket.create_connection(self._where, _CONNECTING) as connection:
            connection.settimeout(None)
            connection.sendall(json.dumps({"secret": self._secret, **asked}).encode() + b"\n")
            with connection.makefile("rb") as answer:
                line = answer.readline()
        if not line.endswith(b"\n"):
            raise ConnectionError(f"{self._where[0]}:{self._where[1]} ended the connection")
        return json.loads(line)


def joined_board(coordinator: str | None) -> tuple[Board, Keeper | None]:
    """The board of jax's joined processes, on all of them at once; host 0 also gets what to close at the end.

    Args:
        coordinator: host:port of host 0, where it was given; a name by which all reach it.
    """
    keeper = Keeper() if jax.process_index() == 0 else None
    told = np.zeros(_SIZE, np.uint8)
    if keeper is not None:
        text = json.dumps([_own_addresses(coordinator), keeper.port, keeper.secret]).encode()
        told[: len(text)] = np.frombuffer(text, np.uint8)
    told = np.asarray(multihost_utils.broadcast_one_to_all(told), np.uint8)
    addresses, port, secret = json.loads(told.tobytes().rstrip(b"\0"))
    return Board(addresses, port, secret, jax.process_index()), keeper


def _own_addresses(coordinator: str | None) -> list[str]:
    """Names and numbers under which others may reach this machine, the surest first."""
    found = [coordinator.rpartition(":")[0].strip("[]")] if coordinator else []
    name = socket.gethostname()
    found.append(name)
    try:
        found += [str(info[4][0]) for info in socket.getaddrinfo(name, None, socket.AF_INET, socket.SOCK_STREAM)]
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as outward:  # nothing is sent
            outward.connect(("192.0.2.1", 9))
            found.append(outward.getsockname()[0])
    except OSError:
        pass  # a machine without a name or a network: of several processes on it, loopback is enough
    return list(dict.fromkeys([*found, "127.0.0.1"]))[:8]

"""A Service for the scheduler: leads each new connection to the replica that is ready."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Self

_LOOK_SECONDS = 0.1
_PIECE_BYTES = 65536


class Service:
    """`with Service(backends) as service:` listens on `service.port` of 127.0.0.1.

    Args:
        backends: (port, whether it is ready) of each replica; readiness is asked all the time, as a kubelet does.
    """

    def __init__(self, backends: Sequence[tuple[int, Callable[[], bool]]]) -> None:
        self._backends = backends
        self._ready: dict[int, bool] = {}
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._closed = threading.Event()

    def __enter__(self) -> Self:
        for port, ready in self._backends:
            threading.Thread(target=self._probe, args=(port, ready), daemon=True).start()
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        with suppress(OSError):  # wakes the thread that accepts
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _probe(self, port: int, ready: Callable[[], bool]) -> None:
        while not self._closed.wait(_LOOK_SECONDS):
            self._ready[port] = ready()

    def _accept(self) -> None:
        while not self._closed.is_set():
            with suppress(OSError):  # no replica is ready, or the test is over: the client sees its connection end
                accepted, _ = self._listener.accept()
                self._lead(accepted)

    def _ready_port(self) -> int | None:
        return next((port for port, ready in self._ready.copy().items() if ready), None)

    def _lead(self, client: socket.socket) -> None:
        port = self._ready_port()
        for _ in range(5):  # in a hand-over, the replicas are not asked at the same moment
            if port is None and not self._closed.wait(_LOOK_SECONDS):
                port = self._ready_port()
        try:
            if port is None:
                raise ConnectionRefusedError
            server = socket.create_connection(("127.0.0.1", port), timeout=5)
        except OSError:
            client.close()
            return
        server.settimeout(None)
        for source, target in ((client, server), (server, client)):
            threading.Thread(target=_copy, args=(source, target), daemon=True).start()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):  # either side may go at any moment
        while piece := source.recv(_PIECE_BYTES):
            target.sendall(piece)
    for end in (source, target):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)

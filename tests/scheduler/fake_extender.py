"""An extender as small as can be, on a real socket: it answers what the test says, and remembers what it was asked."""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from threading import Event, Thread
from typing import Any, Self

from tests.http_server import HttpServer

Asked = dict[str, Any]
Answering = Callable[[Asked], object]


class FakeExtender:
    """`with FakeExtender(filter=...) as extender:` serves until the block ends.

    Args:
        verbs: what each verb answers: a function of the request, or always the same; bytes as they are.

    Attributes:
        asked: (verb, request), in order.
        status: of every answer.
        delay_seconds: before every answer.
        connections: how many were made.
    """

    def __init__(self, tls: ssl.SSLContext | None = None, **verbs: Answering | object) -> None:
        self.verbs = verbs
        self.asked: list[tuple[str, Asked]] = []
        self.status, self.delay_seconds, self.connections = 200, 0.0, 0
        self._asked = Event()
        self._scheme = "https" if tls else "http"
        self._server = HttpServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"extender": self}))
        if tls:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self._server.server_address[1]}/scheduler"

    def requests(self, verb: str) -> list[Asked]:
        return [request for asked, request in self.asked if asked == verb]

    def was_asked(self) -> bool:
        """Waits until it is asked for the first time; False if it is not within a minute."""
        return self._asked.wait(60)

    def answer(self, verb: str, request: Asked) -> bytes:
        self.asked.append((verb, request))
        self._asked.set()
        time.sleep(self.delay_seconds)
        answer = self.verbs[verb]
        answer = answer(request) if callable(answer) else answer
        return answer if isinstance(answer, bytes) else json.dumps(answer).encode()

    def __enter__(self) -> Self:
        Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    extender: FakeExtender

    def setup(self) -> None:
        self.extender.connections += 1
        super().setup()

    def do_POST(self) -> None:
        assert self.headers["Content-Type"] == "application/json"
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        body = self.extender.answer(self.path.removeprefix("/scheduler/"), request)
        self.send_response(self.extender.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the base class's name for it
        pass


def passing(*names: str, **failed: str) -> dict[str, Any]:
    """An answer to filter: these pass, those fail for a reason that evictions may change."""
    return {"NodeNames": list(names), "FailedNodes": failed}


def all_pass(request: Asked) -> dict[str, Any]:
    """An answer to filter."""
    if request["NodeNames"] is not None:
        return passing(*request["NodeNames"])
    return {"Nodes": request["Nodes"]}

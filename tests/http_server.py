"""An HTTP server for tests whose clients may hang up."""

from __future__ import annotations

import socket
import sys
from http.server import ThreadingHTTPServer
from typing import Any


class HttpServer(ThreadingHTTPServer):
    """Says nothing if a client hangs up; otherwise the traceback could land in the output of a later test."""

    def get_request(self) -> tuple[socket.socket, Any]:
        """Sends the body at once: its handler writes it after the headers, whose ACK a client delays by 40 ms."""
        request, address = super().get_request()
        request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return request, address

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

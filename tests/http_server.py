"""An HTTP server for tests whose clients may hang up."""

from __future__ import annotations

import sys
from http.server import ThreadingHTTPServer
from typing import Any


class HttpServer(ThreadingHTTPServer):
    """Says nothing if a client hangs up; otherwise the traceback could land in the output of a later test."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

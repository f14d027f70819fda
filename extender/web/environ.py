"""Adapts to WSGI (PEP 3333): turns requests of our gunicorn worker into WSGI calls of Flask.

Also sets the signal handlers of the application in gunicorn's own workers.
"""

from __future__ import annotations

import atexit
import os
import signal
import socket
import ssl
import sys
import threading
from io import BytesIO
from types import FrameType
from typing import Any

from extender.web.access import Certificate, SocketConnection
from extender.web.worker.application import Lifecycle
from extender.web.worker.request_parser import Head

Environ = dict[str, Any]
ADMITTED = "extender.admitted"
"""The key that is set if `Routes.admit` has checked the request. A client cannot set it: its keys begin with HTTP_."""


def environ_of(head: Head, connected: socket.socket, body: bytes) -> Environ:
    """Returns the WSGI environment of a request that was read from `connected`."""
    client, server = _host_port(connected.getpeername()), _host_port(connected.getsockname())
    environ: Environ = {
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "https" if isinstance(connected, ssl.SSLSocket) else "http",
        "wsgi.input": BytesIO(body),
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
        "wsgi.input_terminated": True,
        ADMITTED: True,
        "REQUEST_METHOD": head.method,
        "SCRIPT_NAME": "",
        "PATH_INFO": head.path,
        "QUERY_STRING": head.query,
        "SERVER_PROTOCOL": "HTTP/" + head.version,
        "SERVER_NAME": server[0],
        "SERVER_PORT": server[1],
        "REMOTE_ADDR": client[0],
        "REMOTE_PORT": client[1],
    }
    for name, value in head.fields.items():
        # WSGI cannot tell `a_b` from `a-b`, and a body that was read completely is no longer chunked.
        if b"_" not in name and name != b"transfer-encoding":
            key = name.decode("latin-1").upper().replace("-", "_")
            environ[key if key in ("CONTENT_TYPE", "CONTENT_LENGTH") else "HTTP_" + key] = value.decode("latin-1")
    if body or "CONTENT_LENGTH" in environ:
        environ["CONTENT_LENGTH"] = str(len(body))
    return environ


class WsgiConnection:
    """The connection of a request that a WSGI server has read.

    gunicorn passes the socket in the environment. Other servers do not, so the local address is unknown. A loopback
    address is then assumed, so that `AccessRules` checks the Host header.
    """

    def __init__(self, environ: Environ) -> None:
        self._environ = environ
        accepted = environ.get("gunicorn.socket")
        self._accepted = SocketConnection(accepted) if accepted is not None else None

    def peer_address(self) -> str:
        return str(self._environ.get("REMOTE_ADDR", ""))

    def local_address(self) -> str:
        return self._accepted.local_address() if self._accepted else "127.0.0.1"

    def certificate(self) -> Certificate | None:
        return self._accepted.certificate() if self._accepted else None


def _host_port(address: object) -> tuple[str, str]:
    if isinstance(address, tuple):
        return str(address[0]), str(address[1])
    return "localhost", ""


def take_signals(lifecycle: Lifecycle) -> None:
    """Sets signal handlers for gunicorn's own workers, which do not call `lifecycle` themselves.

    SIGTERM makes the process unready before the worker stops. SIGUSR2 compares the cache with the API server. At exit
    the application is stopped.

    This works because such a worker sets its own handlers before it loads the application. With --preload the
    application is loaded first, so the handlers set here are lost. `worker.ThreadPerConnection` replaces them too, but
    it calls `lifecycle` itself.
    """
    stop_worker = signal.getsignal(signal.SIGTERM)
    if not callable(stop_worker) or threading.current_thread() is not threading.main_thread():
        return

    def on_sigterm(number: int, frame: FrameType | None) -> None:
        if lifecycle.draining:
            stop_worker(number, frame)
            return
        lifecycle.drain()
        # The first signal only starts the drain. A second one ends the worker after the drain.
        again = threading.Timer(lifecycle.drain_seconds, os.kill, (os.getpid(), signal.SIGTERM))
        again.daemon = True
        again.start()

    signal.signal(signal.SIGTERM, on_sigterm)
    signal.siginterrupt(signal.SIGTERM, False)
    signal.signal(signal.SIGUSR2, lambda *_: lifecycle.compare())
    atexit.register(lifecycle.stop)

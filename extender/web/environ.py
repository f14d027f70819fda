"""A request that the worker has read, as WSGI has it (PEP 3333)."""

from __future__ import annotations

import socket
import ssl
import sys
from io import BytesIO
from typing import Any

from extender.web.worker.http1 import Head

Environ = dict[str, Any]
ADMITTED = "extender.admitted"
"""Set where `Routes.admit` has let the request in; no client can set a name without HTTP_."""


def environ_of(head: Head, connected: socket.socket, body: bytes) -> Environ:
    """Returns the environ of a request from the other end of `connected`."""
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
        # A name with an underscore could pose as another with a hyphen; the body is no longer chunked.
        if b"_" not in name and name != b"transfer-encoding":
            key = name.decode("latin-1").upper().replace("-", "_")
            environ[key if key in ("CONTENT_TYPE", "CONTENT_LENGTH") else "HTTP_" + key] = value.decode("latin-1")
    if body or "CONTENT_LENGTH" in environ:
        environ["CONTENT_LENGTH"] = str(len(body))
    return environ


def _host_port(address: object) -> tuple[str, str]:
    if isinstance(address, tuple):
        return str(address[0]), str(address[1])
    return "localhost", ""

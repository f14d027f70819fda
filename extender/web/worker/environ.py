"""A request as WSGI wants it (PEP 3333)."""

from __future__ import annotations

import socket
import ssl
import sys
from functools import lru_cache
from io import BytesIO
from typing import Any
from urllib.parse import unquote_to_bytes

import httptools

from extender.web.worker.http1 import Head, Request

Environ = dict[str, Any]


def peer_environ(connected: socket.socket) -> Environ:
    """What is the same for all requests of a connection."""
    client, server = _host_port(connected.getpeername()), _host_port(connected.getsockname())
    return {
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "https" if isinstance(connected, ssl.SSLSocket) else "http",
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
        "wsgi.input_terminated": True,
        "gunicorn.socket": connected,
        "SCRIPT_NAME": "",
        "SERVER_NAME": server[0],
        "SERVER_PORT": server[1],
        "REMOTE_ADDR": client[0],
        "REMOTE_PORT": client[1],
    }


def request_environ(request: Request, peer: Environ) -> Environ:
    """The environ of one request on the connection that `peer` describes."""
    environ = {**peer, **_head_environ(request.head), "wsgi.input": BytesIO(request.body)}
    if request.head.chunked and request.body:
        environ["CONTENT_LENGTH"] = str(len(request.body))
    return environ


@lru_cache(maxsize=256)
def _head_environ(head: Head) -> Environ:
    path, query = _path_and_query(head.target)
    environ = {
        "REQUEST_METHOD": head.method,
        "PATH_INFO": path,
        "QUERY_STRING": query,
        "SERVER_PROTOCOL": "HTTP/" + head.version,
    }
    for name, value in head.headers:
        key = _key(name)
        if key:
            text = value.decode("latin-1").strip(" \t")
            environ[key] = f"{environ[key]},{text}" if key in environ else text
    if "CONTENT_LENGTH" in environ:
        environ["CONTENT_LENGTH"] = str(head.content_length)
    return environ


def _key(name: bytes) -> str:
    # A name with an underscore could pose as another with a hyphen; the body is no longer chunked.
    if b"_" in name or name == b"transfer-encoding":
        return ""
    key = name.decode("latin-1").upper().replace("-", "_")
    return key if key in ("CONTENT_TYPE", "CONTENT_LENGTH") else "HTTP_" + key


def _path_and_query(target: bytes) -> tuple[str, str]:
    if not target.startswith(b"/"):
        url = httptools.parse_url(target)
        path, query = url.path or b"/", url.query or b""
    else:
        path, _, query = target.partition(b"?")
    return unquote_to_bytes(path).decode("latin-1"), query.decode("latin-1")


def _host_port(address: object) -> tuple[str, str]:
    if isinstance(address, tuple):
        return str(address[0]), str(address[1])
    return "localhost", ""

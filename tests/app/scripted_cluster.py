"""A server whose answers are a table, by method and path; as API server and as extender of the doctor's tests."""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import trustme
import yaml

from extender.model.kinds import KINDS
from tests.http_server import HttpServer

Table = dict[str, Any]
"""`GET /path` -> the document of a 200, or (status, document, header, ...); or a function of the request's document.

A document that begins with `<` is a page.
"""


@contextmanager
def scripted(table: Table, *, clock_seconds: float = 0.0, tls: ssl.SSLContext | None = None) -> Iterator[int]:
    """Serves the table; yields the port. `clock_seconds`: how far ahead its Date is."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            found = table.get(f"{self.command} {self.path.partition('?')[0]}", (404, {"message": "not found"}))
            if callable(found):
                found = found(json.loads(body))
            status, document, *headers = found if isinstance(found, tuple) else (200, found)
            data = document.encode() if isinstance(document, str) else json.dumps(document).encode()
            self.send_response_only(status)
            self.send_header("Date", formatdate(time.time() + clock_seconds, usegmt=True))
            self.send_header("Content-Type", "text/html; charset=utf-8" if data[:1] == b"<" else "application/json")
            self.send_header("Content-Length", str(len(data)))
            for name, value in headers:
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = _answer  # noqa: N815  names of http.server

        def log_message(self, *_: object) -> None:
            pass

    server = HttpServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def healthy_cluster() -> Table:
    """An API server of a version that works, where everything is allowed and there is one node."""
    table: Table = {
        "GET /version": {"gitVersion": "v1.37.1", "minor": "37"},
        "GET /apis/apps/v1/namespaces/extender-system/deployments": {"items": []},
        "GET /api/v1/nodes": {"metadata": {"resourceVersion": "1"}, "items": [{"metadata": {"name": "n1"}}]},
        "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews": allowing(lambda _: True),
        "POST /apis/authorization.k8s.io/v1/subjectaccessreviews": allowing(is_needed),
    }
    for kind in KINDS.values():
        path = f"GET /{'apis' if '/' in kind.api_version else 'api'}/{kind.api_version}"
        table.setdefault(path, {"resources": []})["resources"].append({"name": kind.plural})
    return table


def is_needed(attributes: dict[str, str]) -> bool:
    return (attributes["verb"] not in ("escalate", "delete") and attributes["resource"] not in ("secrets", "pods")) or (
        attributes["verb"] in ("list", "watch") or bool(attributes.get("subresource"))
    )


def allowing(rule: Any) -> Any:
    return lambda review: {"status": {"allowed": rule(review["spec"]["resourceAttributes"])}}


def healthy_extender() -> Table:
    return {
        "GET /readyz": "ok",
        "POST /scheduler/filter": {"NodeNames": [], "Error": ""},
        "POST /scheduler/prioritize": [],
        "POST /scheduler/preempt": {"NodeNameToMetaVictims": {}},
        "POST /scheduler/bind": (400, {"Error": "expected an object"}),
    }


def kubeconfig(folder: Path, port: int) -> Path:
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {}}],
    }
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(document))
    return path


def server_context(ca: trustme.CA, name: str, not_after: Any = None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert(name, not_after=not_after).configure_cert(context)
    return context

"""An API server in this process on 127.0.0.1: lists in pages, watches, bindings, leases, and faults on request."""

from __future__ import annotations

import base64
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

import trustme

from tests.cluster.fake_port_forward import bridge
from tests.http_server import HttpServer

Object = dict[str, Any]
Fault = Callable[["Call"], object]
"""Answers in its own way; or changes the call, and returns True so that it goes on."""

NODES, PODS = "/api/v1/nodes", "/api/v1/pods"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
_POLL_SECONDS = 0.005


class FakeApiServer:
    """State and faults; `with FakeApiServer() as api:` serves it.

    Attributes:
        collections: what is served: objects by key, by path. Any other path is 404.
        calls: every request so far, "GET /api/v1/nodes?limit=500".
        token: what clients must send, if anything.
    """

    def __init__(self, authority: trustme.CA | None = None) -> None:
        """With `authority`, which signs its certificate, it speaks HTTPS."""
        self._authority = authority
        self.collections: dict[str, dict[str, Object]] = {NODES: {}, PODS: {}, LEASES: {}, EVENTS: {}}
        self.calls: list[str] = []
        self.token: str | None = None
        self.frozen: set[tuple[str, int]] = set()
        self.closed = threading.Event()
        self.forgotten = 0  # versions up to this one are too old to watch from
        self._version = 100
        self._log: list[tuple[int, str, str, Object]] = []
        self._faults: list[tuple[str, Fault]] = []
        self._watches_end = 0
        self.lock = threading.RLock()
        self._server = self._listen(0)

    # ---- what happens in the cluster

    def put(self, path: str, obj: Object, *, unnoticed: bool = False) -> Object:
        """Adds or changes an object; `unnoticed`: no watch delivers it."""
        with self.lock:
            key = _key(obj)
            event = "MODIFIED" if key in self.collections[path] else "ADDED"
            self.collections[path][key] = self._note(path, event, obj)
            if unnoticed:
                self._log.pop()
            return self.collections[path][key]

    def remove(self, path: str, key: str, *, unnoticed: bool = False) -> None:
        """Deletes an object; `unnoticed`: no watch delivers it."""
        with self.lock:
            gone = self.collections[path].pop(key)
            if not unnoticed:
                self._note(path, "DELETED", gone)

    def bookmark(self, path: str) -> None:
        with self.lock:
            self._note(path, "BOOKMARK", {"metadata": {}})

    def _note(self, path: str, event: str, obj: Object) -> Object:
        self._version += 1
        obj = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self._version)}}
        self._log.append((self._version, path, event, obj))
        return obj

    # ---- what goes wrong

    def fail(self, path: str, *faults: Fault, watch: bool = False) -> None:
        """The next calls of `path` (its watches, or all else) meet these faults, in order."""
        with self.lock:
            self._faults += [(f"{path}?watch" if watch else path, fault) for fault in faults]

    def take_fault(self, path: str, *, watch: bool) -> Fault | None:
        with self.lock:
            wanted = f"{path}?watch" if watch else path
            found = next((entry for entry in self._faults if entry[0] == wanted), None)
            if found:
                self._faults.remove(found)
            return found[1] if found else None

    def forget_since(self, version: int) -> None:
        """The server is restored from a copy of that version: what has happened since never did."""
        with self.lock:
            self._version = version
            self._log = [entry for entry in self._log if entry[0] <= version]
            for path, objects in self.collections.items():
                kept = {key: obj for key, obj in objects.items() if int(obj["metadata"]["resourceVersion"]) <= version}
                self.collections[path] = kept

    def heal(self) -> None:
        """No more faults."""
        with self.lock:
            self._faults.clear()

    @property
    def faults_left(self) -> int:
        return len(self._faults)

    def freeze(self) -> None:
        """No connection that is open now answers any more, and none ends."""
        self.frozen = self._server.peers()

    def end_watches(self) -> None:
        """Every open watch ends as it does after its timeout."""
        self._watches_end += 1

    def restart(self) -> None:
        """Every connection dies; the port answers again at once."""
        port = self.port
        self.__exit__()
        self._server = self._listen(port)
        self.__enter__()

    # ---- for handlers

    def page(self, path: str, limit: int, start: str) -> Object:
        with self.lock:
            keys = sorted(self.collections[path])
            begin = int(start or 0)
            end = begin + limit if limit else len(keys)
            metadata = {"resourceVersion": str(self._version)} | ({"continue": str(end)} if end < len(keys) else {})
            items = [self.collections[path][key] for key in keys[begin:end]]
            return {"metadata": metadata, "items": items or None}  # Go writes null for an empty slice

    @property
    def watches_ended(self) -> int:
        """The number of times that every open watch was ended."""
        return self._watches_end

    def events(self, path: str, version: int, mark: int) -> Iterator[tuple[str, Object] | None]:
        """What a watch delivers that was asked for when watches had ended `mark` times; None while there is nothing."""
        position = 0
        while self._watches_end == mark:
            with self.lock:
                fresh, position = self._log[position:], len(self._log)
            for at, where, event, obj in fresh:
                if where == path and at > version:
                    yield event, obj
            yield None

    # ---- serving

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def _listen(self, port: int) -> _Server:
        api = self

        class Handler(Call):
            server_state = api

        server = _Server(("127.0.0.1", port), Handler)
        if self._authority is not None:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            self._authority.issue_cert("127.0.0.1").configure_cert(context)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        return server

    def __enter__(self) -> Self:
        self.closed.clear()
        threading.Thread(target=self._server.serve_forever, args=(_POLL_SECONDS,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closed.set()
        self._server.shutdown()
        self._server.server_close()
        self._server.hang_up()

    def kubeconfig(self, directory: Path, **user: Any) -> Path:
        """A kubeconfig that leads here."""
        path = directory / "kubeconfig"
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "fake", "cluster": self.address()}],
            "users": [{"name": "me", "user": user}],
            "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "me"}}],
            "current-context": "fake",
        }
        path.write_text(json.dumps(document))
        return path

    def change_authority(self, authority: trustme.CA) -> None:
        """Another authority signs the server's certificate; every connection dies."""
        self._authority = authority
        self.restart()

    def address(self) -> dict[str, str]:
        if self._authority is None:
            return {"server": f"http://127.0.0.1:{self.port}"}
        authority = base64.b64encode(self._authority.cert_pem.bytes()).decode()
        return {"server": f"https://127.0.0.1:{self.port}", "certificate-authority-data": authority}


class _Server(HttpServer):
    """One that can end its connections, as a process does that dies."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(address, handler)
        self._connections: list[socket.socket] = []
        self.gone = False

    def process_request(self, request: Any, client_address: Any) -> None:
        self._connections.append(request)
        super().process_request(request, client_address)

    def hang_up(self) -> None:
        self.gone = True
        for connection in self._connections:
            with suppress(OSError):  # most have ended before
                connection.shutdown(socket.SHUT_RDWR)

    def peers(self) -> set[tuple[str, int]]:
        return {each.getpeername() for each in self._connections if each.fileno() >= 0}

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is part of the tests."""


class Call(BaseHTTPRequestHandler):
    """One request, and how to answer it."""

    protocol_version = "HTTP/1.1"
    server: _Server
    server_state: FakeApiServer
    path_only: str
    query: dict[str, str]
    mark: int

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the base class's name
        """Telemetry."""

    def do_GET(self) -> None:
        self._begin()
        api, watch = self.server_state, "watch" in self.query
        if self._rejected() or self._faulty(watch=watch):
            return
        if self.path_only.endswith("/portforward"):
            self.close_connection = True
            bridge(self.connection, self.headers, int(self.query["ports"]))
            return
        if found := self._named():
            self.json(200, found)
        elif self.path_only not in api.collections:
            self.status(404, "the server could not find the requested resource")
        elif not watch:
            self.json(200, api.page(self.path_only, int(self.query.get("limit", 0)), self.query.get("continue", "")))
        elif int(self.query["resourceVersion"]) < api.forgotten:
            self.status(410, "too old resource version")
        else:
            self._watch()

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self._begin()
        if self._rejected() or self._faulty(watch=False):
            return
        if self.path_only == LEASES:
            self.write(body, None)
        elif self.path_only == EVENTS:
            self.json(201, self.server_state.put(EVENTS, body))
        else:
            self.bind(body)

    def do_PUT(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self._begin()
        if not (self._rejected() or self._faulty(watch=False)):
            self.write(body, body["metadata"]["resourceVersion"])

    def write(self, obj: Object, version: str | None) -> None:
        """Creates where there is no version, else updates; refused where another has written before."""
        with self.server_state.lock:
            known = self.server_state.collections[LEASES].get(_key(obj))
            if (known and known["metadata"]["resourceVersion"]) != version:
                self.status(409, "the object has been modified")
            else:
                self.json(200, self.server_state.put(LEASES, obj))

    def bind(self, binding: Object) -> None:
        """As the real one: the UID is checked first."""
        *_, namespace, _, name, _ = self.path_only.split("/")
        with self.server_state.lock:
            pod = self.server_state.collections[PODS].get(f"{namespace}/{name}")
            code, message = _refusal(name, pod, binding["metadata"].get("uid"))
            if pod and code == 201:
                spec = {**pod["spec"], "nodeName": binding["target"]["name"]}
                self.server_state.put(PODS, {**pod, "spec": spec})
        self.status(code, message)

    def _named(self) -> Object | None:
        """The object of a namespace at this path, such as a lease."""
        collection, _, name = self.path_only.rpartition("/")
        namespace = collection.rpartition("/namespaces/")[2].partition("/")[0]
        return self.server_state.collections.get(collection, {}).get(f"{namespace}/{name}")

    def _begin(self) -> None:
        if self.client_address in self.server_state.frozen:
            self.server_state.closed.wait(60)
            self.close_connection = True
        url = urlsplit(self.path)
        self.path_only, self.query = url.path, {key: values[0] for key, values in parse_qs(url.query).items()}
        self.mark = self.server_state.watches_ended
        self.server_state.calls.append(f"{self.command} {self.path}")

    def _faulty(self, *, watch: bool) -> bool:
        fault = self.server_state.take_fault(self.path_only, watch=watch)
        return fault is not None and fault(self) is not True

    def _rejected(self) -> bool:
        token = self.server_state.token
        if token is None or self.headers["Authorization"] == f"Bearer {token}":
            return False
        self.status(401, "Unauthorized")
        return True

    def _watch(self) -> None:
        self.start_stream()
        for event in self.server_state.events(self.path_only, int(self.query["resourceVersion"]), self.mark):
            if self.server.gone:
                return
            if event is None:
                time.sleep(_POLL_SECONDS)
            else:
                self.line({"type": event[0], "object": event[1]})
        self.end_stream()

    # ---- answers

    def json(self, status: int, body: Object, **headers: str) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", "Content-Length": str(len(data)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def status(self, code: int, message: str, **headers: str) -> None:
        self.json(code, {"kind": "Status", "status": "Failure", "message": message, "code": code}, **headers)

    def start_stream(self) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def line(self, event: Object) -> None:
        self.chunk(json.dumps(event).encode() + b"\n")

    def chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def end_stream(self) -> None:
        self.wfile.write(b"0\r\n\r\n")


# ---- faults


def answer(code: int, message: str = "as the test wants it", **headers: str) -> Fault:
    return lambda call: call.status(code, message, **headers)


def hang_up(call: Call) -> None:
    """The connection ends without an answer."""
    call.close_connection = True


def accept_and_hang_up(call: Call) -> bool:
    """The request is carried out, and the connection ends before the answer."""
    call.json = lambda *_: None  # type: ignore[method-assign]  # this one answer is lost on its way
    call.close_connection = True
    return True


def stream(*chunks: bytes, end: bool = True) -> Fault:
    """A watch that delivers these bytes; without an end the connection dies in the midst of it."""

    def fault(call: Call) -> None:
        call.start_stream()
        for chunk in chunks:
            call.chunk(chunk)
        if end:
            call.end_stream()
        else:
            call.close_connection = True

    return fault


def hang(release: threading.Event) -> Fault:
    """Nothing comes until the event is set."""

    def fault(call: Call) -> None:
        call.start_stream()
        release.wait(60)
        call.close_connection = True

    return fault


def _refusal(name: str, pod: Object | None, uid: str | None) -> tuple[int, str]:
    if pod is None:
        return 404, f'pods "{name}" not found'
    actual, node = pod["metadata"]["uid"], pod["spec"].get("nodeName")
    if uid and uid != actual:
        return 409, f"Precondition failed: UID in precondition: {uid}, UID in object meta: {actual}"
    return (409, f'pod {name} is already assigned to node "{node}"') if node else (201, "")


def _key(obj: Object) -> str:
    metadata = obj["metadata"]
    return f"{metadata['namespace']}/{metadata['name']}" if "namespace" in metadata else str(metadata["name"])


@contextmanager
def fake_api(*nodes: Object, authority: trustme.CA | None = None) -> Iterator[FakeApiServer]:
    """A served API server that holds these nodes."""
    with FakeApiServer(authority) as api:
        for node in nodes:
            api.put(NODES, node)
        yield api

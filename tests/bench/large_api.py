"""An API server of very many objects: lists and watches of nodes and pods made of bytes, and bindings. Nothing else.

The objects are encoded once; a page joins them. So it serves 200,000 pods in seconds, and takes little of the machine
from the process that is measured.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

from tests.builders import Object

NODES, PODS = "/api/v1/nodes", "/api/v1/pods"
_VERSION = b'"resourceVersion": ""'
_EXPIRED = b'{"type":"ERROR","object":{"kind":"Status","code":410,"message":"too old resource version"}}\n'
_WATCH_POLL_SECONDS = 1.0


class LargeApi:
    """Holds the objects by path and name, and serves them on a port of its own until the block ends.

    Attributes:
        clock: what `bound_at` is in.
        bound_at: when each binding came.
    """

    def __init__(self, nodes: Iterable[Object], pods: Iterable[Object]) -> None:
        self._version, self._lock = 1, threading.Lock()
        self.clock: Callable[[], float] = time.monotonic
        self.bound_at: list[float] = []
        self._items: dict[str, dict[str, bytes]] = {NODES: {}, PODS: {}}
        self._versions: dict[str, dict[str, int]] = {NODES: {}, PODS: {}}
        self._expired_at = {NODES: 0, PODS: 0}
        self._watches: dict[str, list[SimpleQueue[bytes]]] = {NODES: [], PODS: []}
        for path, objects in ((NODES, nodes), (PODS, pods)):
            for obj in objects:
                self._store(path, obj["metadata"]["name"], encoded(obj))
        api = self

        class Handler(_Call):
            api_server = api

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def kubeconfig(self, directory: Path) -> Path:
        """Writes a kubeconfig that leads here."""
        path = directory / "kubeconfig"
        context = {"name": "large", "context": {"cluster": "large", "user": "large"}}
        server = {"server": f"http://127.0.0.1:{self._server.server_address[1]}"}
        clusters, users = [{"name": "large", "cluster": server}], [{"name": "large", "user": {}}]
        config = {"apiVersion": "v1", "kind": "Config", "clusters": clusters, "users": users}
        path.write_text(json.dumps({**config, "contexts": [context], "current-context": "large"}))
        return path

    # ---- what happens in the cluster

    def names(self, path: str) -> list[str]:
        """Returns the names of all objects of a kind."""
        return list(self._items[path])

    def add(self, path: str, obj: Object) -> None:
        """Creates an object."""
        self._tell(path, obj["metadata"]["name"], encoded(obj), b"ADDED")

    def modify(self, path: str, name: str, old: bytes = b"", new: bytes = b"") -> None:
        """Gives an object its next version; `old` in its JSON becomes `new`."""
        self._tell(path, name, self._items[path][name].replace(old, new, 1), b"MODIFIED")

    def expire(self, path: str) -> None:
        """Gives every object of a kind its next version, and has its watches list again: none gets them."""
        with self._lock:
            self._expired_at[path] = self._version
            self._version += len(self._items[path])
            for watch in self._watches[path]:
                watch.put(_EXPIRED)

    def bind(self, name: str, node: str) -> None:
        """Binds a pod."""
        self.bound_at.append(self.clock())
        self.modify(PODS, name, b'"spec": {', b'"spec": {"nodeName": "%s", ' % node.encode())

    def _tell(self, path: str, name: str, item: bytes, event: bytes) -> None:
        with self._lock:
            version = self._store(path, name, item)
            line = b'{"type":"%s","object":%s}\n' % (event, _at(item, version))
            for watch in self._watches[path]:
                watch.put(line)

    def _store(self, path: str, name: str, item: bytes) -> int:
        self._version += 1
        self._items[path][name], self._versions[path][name] = item, self._version
        return self._version

    # ---- what is asked

    def page(self, path: str, start: int, limit: int, *, metadata_only: bool) -> bytes:
        """Returns a page of the list; other kinds have no objects."""
        with self._lock:
            names = list(self._items.get(path, ()))
            end = min(start + limit, len(names)) if limit else len(names)
            items, versions = self._items.get(path, {}), self._versions.get(path, {})
            oldest = self._expired_at.get(path, 0) + start
            named = enumerate(names[start:end], start=oldest)
            found = [(items[name], max(versions[name], at)) for at, name in named]
            more = b',"continue":"%d"' % end if end < len(names) else b""
            head = b'{"metadata":{"resourceVersion":"%d"%s},"items":[' % (self._version, more)
        return head + b",".join(_at(_metadata(item) if metadata_only else item, at) for item, at in found) + b"]}"

    def watch(self, path: str) -> SimpleQueue[bytes]:
        """Returns the events from now on: nothing happens between a list and its watch but by the measurement."""
        events: SimpleQueue[bytes] = SimpleQueue()
        with self._lock:
            self._watches.setdefault(path, []).append(events)
            events.put(b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"%d"}}}\n' % self._version)
        return events

    def unwatch(self, path: str, events: SimpleQueue[bytes]) -> None:
        """Ends what `watch` began."""
        with self._lock:
            self._watches[path].remove(events)


def encoded(obj: Object) -> bytes:
    """Returns the JSON of an object, with an empty place for its version."""
    return json.dumps({**obj, "metadata": {"resourceVersion": "", **obj["metadata"]}}).encode()


def _at(item: bytes, version: int) -> bytes:
    return item.replace(_VERSION, b'"resourceVersion": "%d"' % version, 1)


def _metadata(item: bytes) -> bytes:
    uid = json.loads(item)["metadata"].get("uid", "")
    return b'{"metadata":{"resourceVersion": "","uid":"%s"}}' % uid.encode()


class _Call(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    api_server: LargeApi

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the base class's name
        """Says nothing."""

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        if "watch" in query:
            self._watch(url.path)
        else:
            start, limit = int(query.get("continue", 0)), int(query.get("limit", 0))
            partial = "PartialObjectMetadata" in self.headers.get("Accept", "")
            self._answer(200, self.api_server.page(url.path, start, limit, metadata_only=partial))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        parts: Sequence[str] = urlsplit(self.path).path.split("/")
        if parts[-1] == "binding":
            self.api_server.bind(parts[-2], body["target"]["name"])
        self._answer(201, b'{"kind":"Status","status":"Success","code":201}')

    def do_PATCH(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(200, b"{}")

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _watch(self, path: str) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        events = self.api_server.watch(path)
        try:
            while True:
                try:
                    line = events.get(timeout=_WATCH_POLL_SECONDS)
                except Empty:
                    continue
                if line is _EXPIRED:
                    self.wfile.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(line), line))
                    return
                self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
        except OSError:
            return  # the process that is measured has ended
        finally:
            self.api_server.unwatch(path, events)

"""The API server as a plain model: objects with versions, watches, Bindings, Leases; every call is one step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol
from urllib.parse import parse_qsl, urlsplit

import msgspec

from extender.model.kinds import KINDS
from tests.simulation.merge import merged_claim, merged_status
from tests.simulation.tasks import Process, Simulation

Json = dict[str, Any]
PODS, NODES = KINDS["Pod"].path, KINDS["Node"].path
VOLUMES, CLAIMS = KINDS["PersistentVolume"].path, KINDS["PersistentVolumeClaim"].path
CLASSES = KINDS["StorageClass"].path
DEVICE_CLASSES, SLICES = KINDS["DeviceClass"].path, KINDS["ResourceSlice"].path
DEVICE_CLAIMS = KINDS["ResourceClaim"].path
LEASES = "/apis/coordination.k8s.io/v1/leases"
DELETED_AT = "2026-11-21T09:00:00Z"
LONGEST_GRACE_SECONDS = 6.0
FINISHED = ("Succeeded", "Failed")
_BOOKMARK_SECONDS = 30.0
_encode = msgspec.json.encode


class Reply(NamedTuple):
    """An answer of the API server."""

    status: int
    body: bytes


class Event(NamedTuple):
    """A line of a watch. `before` is None where the object is new."""

    version: int
    path: str
    type: str
    obj: Json
    before: Json | None


class Watcher(Protocol):
    """A watcher of a collection."""

    path: str

    def send(self, line: bytes) -> None:
        """The next line of the stream."""

    def end(self) -> None:
        """The stream is over."""


class Judge(Protocol):
    """An observer of what is done."""

    def binding(self, caller: Process, pod: Json, node: str) -> None:
        """The pod is being bound, by the server's leave."""

    def changed(self, event: Event) -> None:
        """Something has changed."""

    def writing(self, caller: Process, call: str, holder: str) -> None:
        """A write has arrived, while `holder` has the lease."""

    def status(self, caller: Process, pod: Json, patch: Json) -> None:
        """The pod's status is being patched."""

    def claiming(self, caller: Process, claim: Json) -> None:
        """A device claim is being written so."""

    def lost(self, follower: Process, path: str, line: bytes) -> None:
        """A line of a watch is not delivered."""


class ApiServer:
    """All objects, by the path of their collection and by key.

    Attributes:
        forgotten: watches from versions before this one are refused.
        down: no request is answered.
    """

    def __init__(self, simulation: Simulation, judge: Judge, paths: list[str]) -> None:
        self._simulation, self.judge = simulation, judge
        self.collections: dict[str, dict[str, Json]] = {path: {} for path in (*paths, LEASES)}
        self.watchers: list[Watcher] = []
        self._since: dict[Watcher, int] = {}
        self.version, self.forgotten, self.down = 100, 0, False
        self._log: list[Event] = []

    # ---- what happens in the cluster

    def pods(self) -> list[Json]:
        return list(self.collections[PODS].values())

    def put(self, path: str, obj: Json) -> Json:
        """Adds an object, or changes it."""
        before = self.collections[path].get(key_of(obj))
        self.version += 1
        obj = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self.version)}}
        self.collections[path][key_of(obj)] = obj
        self._note(Event(self.version, path, "MODIFIED" if before else "ADDED", obj, before))
        return obj

    def remove(self, path: str, key: str) -> None:
        gone = self.collections[path].pop(key)
        self.version += 1
        gone = {**gone, "metadata": {**gone["metadata"], "resourceVersion": str(self.version)}}
        self._note(Event(self.version, path, "DELETED", gone, gone))

    def delete_pod(self, key: str) -> None:
        """As the real one: what runs is given time to end, what waits is gone at once."""
        pod = self.collections[PODS][key]
        if not pod["spec"].get("nodeName") or pod.get("status", {}).get("phase") in FINISHED:
            self.remove(PODS, key)
        elif "deletionTimestamp" not in pod["metadata"]:
            self._terminate(self.put(PODS, {**pod, "metadata": {**pod["metadata"], "deletionTimestamp": DELETED_AT}}))

    def compact(self) -> None:
        """Forgets what has happened so far."""
        self.forgotten, self._log = self.version + 1, []

    def snapshot(self) -> tuple[int, dict[str, dict[str, Json]]]:
        """A copy of everything, for `restore`."""
        return self.version, {path: dict(objects) for path, objects in self.collections.items()}

    def restore(self, copy: tuple[int, dict[str, dict[str, Json]]]) -> None:
        """Everything is as it was then, versions too; what has happened since never did."""
        self.version, self.collections = copy
        self.forgotten = min(self.forgotten, self.version + 1)
        self._log = [event for event in self._log if event.version <= self.version]
        for pod in [each for each in self.pods() if "deletionTimestamp" in each["metadata"]]:
            self._terminate(pod)  # as a kubelet would

    def _terminate(self, pod: Json) -> None:
        grace = self._simulation.random.uniform(0, LONGEST_GRACE_SECONDS)
        self._simulation.after(grace, lambda: self._end(key_of(pod), pod["metadata"]["uid"]))

    def _end(self, key: str, uid: str) -> None:
        if self.collections[PODS].get(key, {"metadata": {"uid": ""}})["metadata"]["uid"] == uid:
            self.remove(PODS, key)

    def _note(self, event: Event) -> None:
        self._log.append(event)
        self.judge.changed(event)
        for watcher in tuple(self.watchers):
            if watcher.path == event.path and event.version > self._since[watcher] and (line := _line(event)):
                watcher.send(line)

    # ---- calls

    def handle(self, caller: Process, method: str, target: str, body: bytes) -> Reply:
        """Answers a call that is no watch."""
        url = urlsplit(target)
        *root, last = url.path.rpartition("/")
        sent = msgspec.json.decode(body) if body else {}
        if method == "GET" and url.path in self.collections:
            return self._list(url.path)
        if "/leases" in url.path:
            return self._lease(method, url.path, sent)
        is_lease_event = (
            sent.get("regarding", {}).get("kind") == "Lease"
        )  # a candidate may write that it stopped leading
        if method != "GET" and not is_lease_event:
            self.judge.writing(caller, f"{method} {url.path}", self._holder())
        if "/events" in url.path:
            return Reply(201, b"{}")
        if "/resourceclaims/" in url.path:
            return self._device_claim(caller, method, url.path, sent)
        if last in ("binding", "status"):
            return self._on_pod(_key(root[0]), last, caller, sent)
        if method == "DELETE":
            return self._on_pod(_key(url.path), "delete", caller, sent)
        if "/persistentvolume" in url.path:
            return self._patch(VOLUMES if url.path.startswith(VOLUMES) else CLAIMS, url.path, sent)
        if method == "GET" and "/pods/" in url.path and (pod := self.collections[PODS].get(_key(url.path))) is not None:
            return Reply(200, _encode(pod))
        return refusal(404, f"the server could not find {target}")

    def watch(self, target: str, watcher: Watcher) -> Reply | None:
        """Has the watcher follow; the refusal, if it cannot."""
        query = dict(parse_qsl(urlsplit(target).query))
        since = int(query["resourceVersion"])
        if since < self.forgotten - 1:
            return refusal(410, "too old resource version")
        for event in self._log:
            if event.path == watcher.path and event.version > since and (line := _line(event)):
                watcher.send(line)
        self.watchers.append(watcher)
        self._since[watcher] = since
        self._simulation.after(float(query["timeoutSeconds"]), watcher.end)
        self._simulation.after(_BOOKMARK_SECONDS, lambda: self._bookmark(watcher))
        return None

    def _bookmark(self, watcher: Watcher) -> None:
        if watcher in self.watchers:
            if self.version >= self._since[watcher]:  # nothing of a version from the future is ever delivered
                bookmark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(self.version)}}}
                watcher.send(_encode(bookmark))
            self._simulation.after(_BOOKMARK_SECONDS, lambda: self._bookmark(watcher))

    def _list(self, path: str) -> Reply:
        items = [obj for obj in self.collections[path].values() if shown(path, obj)]
        return Reply(200, _encode({"metadata": {"resourceVersion": str(self.version)}, "items": items}))

    def _lease(self, method: str, path: str, sent: Json) -> Reply:
        leases = self.collections[LEASES]
        if method == "GET":
            found = leases.get(_key(path))
            return Reply(200, _encode(found)) if found else refusal(404, "no such lease")
        known = leases.get(key_of(sent))
        version = sent["metadata"].get("resourceVersion") if method == "PUT" else None
        if (known and known["metadata"]["resourceVersion"]) != version:
            return refusal(409, "the object has been modified")
        return Reply(200, _encode(self.put(LEASES, sent)))

    def _patch(self, path: str, target: str, sent: Json) -> Reply:
        """A merge patch of a volume or claim, with its UID and version as preconditions."""
        key = target.rpartition("/")[2] if path == VOLUMES else _key(target)
        known = self.collections[path].get(key)
        if known is None:
            return refusal(404, f"{target} not found")
        if any(known["metadata"].get(name) != sent["metadata"][name] for name in ("uid", "resourceVersion")):
            return refusal(409, "the object has been modified")
        annotations = {**known["metadata"].get("annotations", {}), **sent["metadata"].get("annotations", {})}
        metadata, spec = {**known["metadata"], "annotations": annotations}, {**known["spec"], **sent.get("spec", {})}
        return Reply(200, _encode(self.put(path, {**known, "metadata": metadata, "spec": spec})))

    def _device_claim(self, caller: Process, method: str, target: str, sent: Json) -> Reply:
        """A claim is read, or patched with its UID and version as preconditions."""
        status = target.endswith("/status")
        key = _key(target.removesuffix("/status"))
        known = self.collections[DEVICE_CLAIMS].get(key)
        if known is None:
            return refusal(404, f"{target} not found")
        if method == "GET":
            return Reply(200, _encode(known))
        if any(known["metadata"].get(name) != sent["metadata"][name] for name in ("uid", "resourceVersion")):
            return refusal(409, "the object has been modified")
        claim = merged_claim(known, sent, status=status)
        self.judge.claiming(caller, claim)
        return Reply(200, _encode(self.put(DEVICE_CLAIMS, claim)))

    def _holder(self) -> str:
        return next((lease["spec"].get("holderIdentity", "") for lease in self.collections[LEASES].values()), "")

    def _on_pod(self, key: str, what: str, caller: Process, sent: Json) -> Reply:
        pod = self.collections[PODS].get(key)
        if pod is None:
            return refusal(404, f'pods "{key}" not found')
        wanted = (sent.get("preconditions") or sent.get("metadata") or {}).get("uid")
        if wanted and wanted != pod["metadata"]["uid"]:
            return refusal(409, f"Precondition failed: UID in precondition: {wanted}, not the pod's uid")
        version = sent.get("metadata", {}).get("resourceVersion", "")
        if version and version != pod["metadata"]["resourceVersion"]:
            return refusal(409, "the object has been modified")
        if what == "binding":
            return self._bind(caller, pod, sent["target"]["name"])
        if what == "delete":
            self.delete_pod(key)
            return Reply(200, b"{}")
        self.judge.status(caller, pod, sent["status"])
        self.put(PODS, {**pod, "status": merged_status(pod.get("status", {}), sent["status"])})
        return Reply(200, b"{}")

    def _bind(self, caller: Process, pod: Json, node: str) -> Reply:
        name = pod["metadata"]["name"]
        if "deletionTimestamp" in pod["metadata"]:
            return refusal(409, f"pod {name} is being deleted, cannot be assigned to a host")
        if bound := pod["spec"].get("nodeName"):
            return refusal(409, f'pod {name} is already assigned to node "{bound}"')
        self.judge.binding(caller, pod, node)
        self.put(PODS, {**pod, "spec": {**pod["spec"], "nodeName": node}})
        return Reply(201, b"{}")


def refusal(status: int, message: str) -> Reply:
    return Reply(status, _encode({"kind": "Status", "message": message, "code": status}))


def key_of(obj: Mapping[str, Any]) -> str:
    metadata = obj["metadata"]
    return f"{metadata['namespace']}/{metadata['name']}" if "namespace" in metadata else str(metadata["name"])


def shown(path: str, obj: Json) -> bool:
    """Returns whether lists and watches show the object: finished pods are selected away."""
    return path != PODS or obj.get("status", {}).get("phase") not in FINISHED


def _key(path: str) -> str:
    *_, namespace, _, name = path.split("/")
    return f"{namespace}/{name}"


def _line(event: Event) -> bytes:
    """Returns what the watchers of the collection see of it."""
    was_shown = event.before is not None and shown(event.path, event.before)
    is_shown = event.type != "DELETED" and shown(event.path, event.obj)
    if not (was_shown or is_shown):
        return b""
    kind = "DELETED" if not is_shown else "MODIFIED" if was_shown else "ADDED"
    return _encode({"type": kind, "object": event.obj})

"""Replaces the API server by a cluster in memory, which binds pods and delivers its objects as watches would."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence

from extender.errors import Conflict, NotFound
from extender.model.kinds import KINDS
from extender.model.meta import Object
from extender.model.pod import Pod
from extender.runtime.ports import Binding, Check, Sink, always

_NOT_FOUND, _CONFLICT = 404, 409


class InMemoryCluster:
    """A ports.Binder and ports.Lister in memory.

    Args:
        sink: receives the objects, such as a cache. It receives each bound pod at once.
    """

    def __init__(self, objects: Iterable[Object], sink: Sink[Object]) -> None:
        self._objects: dict[str, list[Object]] = {name: [] for name in KINDS}
        for obj in objects:
            self._objects.setdefault(type(obj).__name__, []).append(obj)
        self._pods = {obj.key: obj for obj in self._objects[Pod.__name__] if isinstance(obj, Pod)}
        self._sink = sink
        self._lock = threading.Lock()

    def start(self) -> None:
        """Delivers all objects to the sink."""
        for kind, objects in self._objects.items():
            self._sink.replaced(kind, objects)

    def kinds(self) -> Sequence[str]:
        return list(self._objects)

    def list(self, kind: str) -> tuple[str, Sequence[Object]]:
        """Returns ("", objects of the kind), see ports.Lister; there is no resource version in this cluster."""
        with self._lock:
            return "", list(self._pods.values() if kind == Pod.__name__ else self._objects[kind])

    def relist(self, kind: str, why: str) -> None:
        """Does nothing (see ports.Lister), because every change has reached the sink."""

    def has_delivered(self, kind: str, version: str) -> bool:  # noqa: ARG002  every version of every kind
        return True

    def bind(self, binding: Binding, check: Check = always) -> None:
        """Binds the pod (see ports.Binder). It raises the errors that the API server would, with the same messages."""
        check()
        with self._lock:
            pod = self._bindable(binding)
            if pod is None:
                return
            bound = pod.placed_on(binding.node)
            if binding.annotations:
                bound = bound.annotated(binding.annotations)
            self._pods[bound.key] = bound
            self._sink.changed(Pod.__name__, bound)

    def _bindable(self, binding: Binding) -> Pod | None:
        key, uid, node = binding.key, binding.uid, binding.node
        pod = self._pods.get(key)
        if pod is None:
            raise NotFound(f'pods "{key}" not found', _NOT_FOUND)
        if pod.uid != uid:
            raise Conflict(f"Precondition failed: UID in precondition: {uid}, UID in object meta: {pod.uid}", _CONFLICT)
        if pod.node_name == node:
            return None
        if pod.node_name:
            raise Conflict(f'pod {pod.name} is already assigned to node "{pod.node_name}"', _CONFLICT)
        if pod.terminating:
            raise Conflict(f"pod {pod.name} is being deleted, cannot be assigned to a host", _CONFLICT)
        if pod.spec.scheduling_gates:
            raise Conflict(f"pod {pod.name} has non-empty .spec.schedulingGates", _CONFLICT)
        return pod

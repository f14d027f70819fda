"""Takes snapshots of all pods in the loop (after upstream's early SimpleModeler)."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from extender.cache.cache import Cache
from extender.queue.entries import QueuedPod
from extender.queue.priority_queue import PriorityQueue
from extender.runtime.clock import Clock
from extender.table import PodInfo

_SECTIONS = ("active", "backoff", "unschedulable", "gated", "in_flight", "assumed", "arriving")


class PodView(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One pod in a snapshot of the loop.

    Attributes:
        refused_by: the plugins that rejected the pod in its last attempt, or that keep it from being tried.
        waits_for: why a gated pod is not tried; "" for all other pods.
        since_seconds: the seconds since the pod entered the queue or was put back; None if it is not in the queue.
        node: the node where the pod is assumed; "" if it is not assumed.
    """

    namespace: str
    name: str
    uid: str
    scheduler_name: str
    priority: int
    labels: Mapping[str, str] = {}
    attempts: int = 0
    refused_by: list[str] = []
    waits_for: str = ""
    since_seconds: float | None = None
    node: str = ""
    nominated_node: str = ""


class QueueStatus(msgspec.Struct, frozen=True, rename="camel"):
    """A snapshot of all pods in the loop. Each pod that is not bound yet is in one of the lists.

    Attributes:
        arriving: the pods that the cache has and the queue is about to receive.
        scheduled: the number of pods that the watch shows as bound.
        leading: True if this process schedules; if it does not, another replica may.
    """

    active: list[PodView]
    backoff: list[PodView]
    unschedulable: list[PodView]
    gated: list[PodView]
    in_flight: list[PodView]
    assumed: list[PodView]
    arriving: list[PodView]
    scheduled: int
    leading: bool


class Modeler:
    """Takes snapshots of the queue and the cache, for the pods with these schedulerNames."""

    def __init__(self, cache: Cache, queue: PriorityQueue, clock: Clock, scheduler_names: Collection[str]) -> None:
        self._cache = cache
        self._queue = queue
        self._clock = clock
        self._scheduler_names = frozenset(scheduler_names)

    def status(self, *, leading: bool) -> QueueStatus:
        """Returns all pods at this moment. Takes the queue's lock before the cache's, as PreEnqueue rules do."""
        with self._queue.lock:
            now = self._clock.monotonic()
            overview = self._cache.overview()
            nominations = {info.uid: info.pod.status.nominated_node_name for info in overview.unplaced}
            views = {
                pod.uid: (tier.value if tier else "in_flight", _queued(pod, now, nominations))
                for tier, pod in self._queue.queued()
            }
        for info in overview.unplaced:
            if info.uid not in views and info.pod.spec.scheduler_name in self._scheduler_names:
                views[info.uid] = ("arriving", _view(info, nominations))
        for placement in overview.assumed:  # an assumed pod may still be in the queue, or be back in it
            queued = views.get(placement.info.uid)
            view = queued[1] if queued else _view(placement.info, nominations)
            views[placement.info.uid] = ("assumed", msgspec.structs.replace(view, node=placement.node_name))
        rows: dict[str, list[PodView]] = {name: [] for name in _SECTIONS}
        for section, view in views.values():
            rows[section].append(view)
        return QueueStatus(**rows, scheduled=overview.scheduled, leading=leading)


def _queued(pod: QueuedPod, now: float, nominations: Mapping[str, str]) -> PodView:
    return msgspec.structs.replace(
        _view(pod.info, nominations),
        attempts=pod.attempts,
        refused_by=sorted(pod.rejection.rules),
        waits_for=", ".join(pod.gate.reasons) if pod.gate else "",
        since_seconds=round(max(now - pod.timestamp, 0.0), 3),
    )


def _view(info: PodInfo, nominations: Mapping[str, str]) -> PodView:
    pod = info.pod
    return PodView(
        namespace=pod.namespace,
        name=pod.name,
        uid=pod.uid,
        scheduler_name=pod.spec.scheduler_name,
        priority=info.priority,
        labels=pod.labels,
        nominated_node=nominations.get(info.uid, ""),
    )

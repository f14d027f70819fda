"""Pods that wait for an event, no two alike: CPU time of what else happens, beside few of them and beside many.

The cache, the queue and the interests of all plugins are real; there are few nodes, so that the pods that wait are what
costs. Each event helps none of them or a handful, as by far most do.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from time import process_time
from typing import Any

import msgspec

from extender.cache.cache import Cache
from extender.framework.status import Rejection
from extender.model.kinds import KINDS
from extender.model.pod import Pod
from extender.plugins.registry import INTERESTS
from extender.queue.entries import QueuedPod
from extender.queue.priority_queue import PriorityQueue
from extender.runtime.clock import ManualClock
from extender.runtime.ports import Telemetry
from extender.scheduler.event_router import EventRouter
from extender.table import PodInfo
from tests.builders import (
    Builder,
    NodeBuilder,
    PodBuilder,
    make_node,
    make_pod,
    make_pvc,
    make_resource_claim,
)
from tests.queue.queueing import QueueRecorder
from tests.scheduler.world import NAME

WAITING = (1000, 100_000)
NODES = 100
_TIMES = 50
_WARM_UP = 5

KINDS_OF_PODS: dict[str, Callable[[PodBuilder, str], PodBuilder]] = {
    "NodeResourcesFit": lambda pod, _: pod,
    "NodeAffinity": lambda pod, own: pod.node_selector(own=own),
    "InterPodAffinity": lambda pod, own: pod.affinity("rack", labels={"own": own}),
    "PodTopologySpread": lambda pod, own: pod.spread("rack", labels={"own": own}),
    "TaintToleration": lambda pod, own: pod.toleration("own", own),
    "NodeVolumeLimits": lambda pod, own: pod.pvc(f"claim-{own}"),
}
"""By the plugin that refuses such a pod."""


@dataclass(frozen=True)
class Cost:
    """The CPU time of one event beside so many waiting pods, and how many of those it wakes."""

    event: str
    waiting: int
    cpu_us: float
    woken: float


class WaitingCluster:
    """Nodes with one pod each, and pods that were refused."""

    def __init__(self, waiting: int) -> None:
        self.cache = Cache(ManualClock(), Telemetry())
        self.queue = PriorityQueue(QueueRecorder(), ManualClock(), INTERESTS)
        self._version = count(1)
        for number in range(NODES):
            self.tell(small_node(f"node-{number}").label(own="none"))
            self.tell(standing_pod(number))
        for number in range(waiting):
            self._refuse(number)
        self.cache.listen(EventRouter(self.cache, self.queue, (NAME,)))

    def tell(self, built: Builder | dict[str, Any]) -> None:
        """Has the cache hear of the object in its next version."""
        obj = built.obj() if isinstance(built, Builder) else built
        obj["metadata"]["resourceVersion"] = str(next(self._version))
        self.cache.changed(obj["kind"], msgspec.convert(obj, KINDS[obj["kind"]].type))

    def delete(self, built: Builder) -> None:
        obj = built.obj()
        self.cache.deleted(obj["kind"], msgspec.convert(obj, KINDS[obj["kind"]].type))

    def waiting(self) -> int:
        return self.queue.pending()["unschedulable"]

    def _refuse(self, number: int) -> None:
        rule, pod = waiting_pod(number)
        info = PodInfo(msgspec.convert(pod.obj(), Pod))
        self.cache.changed("Pod", info.pod)
        self.queue.add(info)
        popped = self.queue.pop(0)
        assert isinstance(popped, QueuedPod)
        self.queue.add_unschedulable(popped, Rejection(frozenset((rule,))))


def waiting_pod(number: int) -> tuple[str, PodBuilder]:
    """Returns a pod with requests and labels of its own, and the plugin that refuses it."""
    rule = list(KINDS_OF_PODS)[number % len(KINDS_OF_PODS)]
    pod = make_pod(f"waiting-{number}").scheduler(NAME).label(own=f"{number}")
    pod.req(cpu=f"{4000 + number}m", memory=f"{20_000 + number}Ki")
    return rule, KINDS_OF_PODS[rule](pod, f"{number}")


def small_node(name: str) -> NodeBuilder:
    return make_node(name).zone("a").capacity(cpu="4", memory="16Gi", pods="10").taint("own", "none")


def standing_pod(number: int) -> PodBuilder:
    pod = make_pod(f"standing-{number}").label(own="none").req(cpu="100m", memory="100Mi")
    return pod.node(f"node-{number % NODES}").phase("Running")


EVENTS: dict[str, Callable[[WaitingCluster, int], object]] = {
    "a node comes": lambda cluster, i: cluster.tell(small_node(f"new-{i}").label(own=f"{6 * i + 1}")),
    "a node's heartbeat": lambda cluster, i: cluster.tell(
        small_node(f"node-{i}").label(own="none").condition("Ready", f"{i}")
    ),
    "a node gets another label": lambda cluster, i: cluster.tell(small_node(f"node-{i}").label(own=f"{6 * i + 1}")),
    "a node grows": lambda cluster, i: cluster.tell(
        small_node(f"node-{i}").label(own=f"{6 * i + 1}").capacity(cpu=f"{4000 + i}m")
    ),
    "a node's taint goes": lambda cluster, i: cluster.tell(
        small_node(f"new-{i}").label(own=f"{6 * i + 1}").taint("own", f"{6 * i + 4}")
    ),
    "a pod is bound": lambda cluster, i: cluster.tell(standing_pod(NODES + i).label(own=f"{6 * i + 2}")),
    "a bound pod's status": lambda cluster, i: cluster.tell(standing_pod(i).start_time("2026-10-01T00:00:00Z")),
    "a bound pod goes": lambda cluster, i: cluster.delete(standing_pod(i)),
    "a waiting pod's status": lambda cluster, i: cluster.tell(waiting_pod(6 * i)[1].start_time("2026-10-01T00:00:00Z")),
    "a waiting pod goes": lambda cluster, i: cluster.delete(waiting_pod(6 * i)[1]),
    "a claim comes": lambda cluster, i: cluster.tell(make_pvc(f"claim-{6 * i + 5}")),
    "a claim of a device comes": lambda cluster, i: cluster.tell(make_resource_claim(f"claim-{i}", "gpu")),
    "backoffs end": lambda cluster, _: cluster.queue.flush_backoff(),
    "pods that wait too long are retried": lambda cluster, _: cluster.queue.flush_unschedulable(),
    "metrics are read": lambda cluster, _: read_metrics(cluster.queue),
}


def read_metrics(queue: PriorityQueue) -> None:
    """Reads what a scrape of the metrics reads."""
    queue.pending()
    queue.entities()
    queue.rejections()


def measured(waiting: int) -> Iterator[Cost]:
    """Yields the cost of each event."""
    cluster = WaitingCluster(waiting)
    gc.collect()
    gc.freeze()  # as the process does once it has listed everything
    for event, happens in EVENTS.items():
        for number in range(_WARM_UP):
            happens(cluster, number)
        before, begin = cluster.waiting(), process_time()
        for number in range(_WARM_UP, _WARM_UP + _TIMES):
            happens(cluster, number)
        seconds = process_time() - begin
        yield Cost(event, waiting, seconds / _TIMES * 1e6, (before - cluster.waiting()) / _TIMES)

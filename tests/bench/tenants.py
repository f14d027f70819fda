"""What the largest pods cost that a tenant may create: pods of one MiB, each made of as many of one thing as fit.

Pods of one kind come, are decided on, are bound, and are deleted, one kind after another. Their cost must be linear in
their bytes, a decision about another pod must not take longer because of them, and their memory must be given back.
All times are CPU time.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from time import process_time
from typing import Any, TypeVar

import msgspec

from extender.cache.cache import Cache
from extender.engine.decide import SchedulingCycle
from extender.errors import DeadlineExceeded
from extender.model.node import Node
from extender.model.pod import Pod
from extender.plugins.registry import default_profile
from extender.runtime.clock import SystemClock, TimeLimit
from extender.runtime.ports import Telemetry
from extender.runtime.process import GC_THRESHOLDS, give_back, limit
from extender.table import PodInfo
from tests.bench.workloads import VARIED, large_cluster, node_name, pods_to_decide
from tests.builders import HOSTNAME

PODS, BYTES = 100, 1024 * 1024
DECISION_SECONDS = 4.0  # as the setting decisionSeconds has it
_ANNOTATION_BYTES = 256 * 1024  # the API server's limit for all of them together
_WARM_UP = 100
_FIRST_NUMBER = 100_000  # numbers of six digits, so that items are of one size

Fields = dict[str, Any]
T = TypeVar("T")


def _term(topology_key: str, **selector: Any) -> Fields:
    return {"topologyKey": topology_key, "labelSelector": selector, "namespaceSelector": {}}


def _required_terms(kind: str, terms: list[Fields]) -> Fields:
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}


def _preferred_terms(kind: str, terms: list[Fields]) -> Fields:
    weighted = [{"weight": 1, "podAffinityTerm": term} for term in terms]
    return {"affinity": {kind: {"preferredDuringSchedulingIgnoredDuringExecution": weighted}}}


def _container(**fields: Any) -> Fields:
    return {"containers": [{"name": "c", "image": "i", **fields}]}


def _expressions(names: list[str]) -> Fields:
    expressions = [{"key": name, "operator": "NotIn", "values": ["x"]} for name in names]
    return {"nodeSelectorTerms": [{"matchExpressions": expressions}]}


KINDS: dict[str, Callable[[list[str]], Fields]] = {
    "resource names": lambda names: _container(
        resources={"requests": (amounts := {f"x.io/{name}": "1" for name in names}), "limits": amounts}
    ),
    "labels": lambda names: {"metadata": {"labels": dict.fromkeys(names, "v")}},
    "annotations": lambda names: {"metadata": {"annotations": dict.fromkeys(names, "v")}},
    "owners": lambda names: {
        "metadata": {
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": name, "uid": name} for name in names]
        }
    },
    "required anti-affinity, topology keys": lambda names: _required_terms(
        "podAntiAffinity", [_term(name) for name in names]
    ),
    "required anti-affinity, selectors": lambda names: _required_terms(
        "podAntiAffinity", [_term(HOSTNAME, matchLabels={"app": name}) for name in names]
    ),
    "required affinity, selectors": lambda names: _required_terms(
        "podAffinity", [_term(HOSTNAME, matchLabels={name: "v"}) for name in names]
    ),
    "preferred affinity, selectors": lambda names: _preferred_terms(
        "podAffinity", [_term(HOSTNAME, matchExpressions=[{"key": name, "operator": "Exists"}]) for name in names]
    ),
    "preferred anti-affinity of everything": lambda names: _preferred_terms(
        "podAntiAffinity",
        [_term(HOSTNAME, matchExpressions=[{"key": name, "operator": "DoesNotExist"}]) for name in names],
    ),
    "values of a selector": lambda names: _required_terms(
        "podAntiAffinity", [_term(HOSTNAME, matchExpressions=[{"key": "app", "operator": "In", "values": names}])]
    ),
    "namespaces of a term": lambda names: _required_terms(
        "podAntiAffinity", [{"topologyKey": HOSTNAME, "labelSelector": {}, "namespaces": names}]
    ),
    "spread constraints": lambda names: {
        "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": name, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {}}
            for name in names
        ]
    },
    "node selector": lambda names: {"nodeSelector": dict.fromkeys(names, "v")},
    "required node affinity": lambda names: {
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": _expressions(names)}}
    },
    "preferred node affinity": lambda names: {
        "affinity": {
            "nodeAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 1, "preference": _expressions([name])["nodeSelectorTerms"][0]} for name in names
                ]
            }
        }
    },
    "tolerations": lambda names: {"tolerations": [{"key": name, "operator": "Exists"} for name in names]},
    "host ports": lambda names: _container(
        ports=[
            {"containerPort": 1, "hostPort": 1 + number % 65000, "hostIP": f"10.0.0.{number % 250}"}
            for number in range(len(names))
        ]
    ),
    "containers": lambda names: {"containers": [{"name": name, "image": name} for name in names]},
    "environment": lambda names: _container(env=[{"name": name, "value": "v"} for name in names]),
    "volume claims": lambda names: {
        "volumes": [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in names]
    },
    "inline volumes": lambda names: {"volumes": [{"name": name, "csi": {"driver": name}} for name in names]},
    "disks": lambda names: {"volumes": [{"name": name, "gcePersistentDisk": {"pdName": name}} for name in names]},
    "device claims": lambda names: {"resourceClaims": [{"name": name, "resourceClaimName": name} for name in names]},
    "scheduling gates": lambda names: {"schedulingGates": [{"name": name} for name in names]},
}
"""By what a pod has many of: the fields of its spec, or `metadata`, with one item for each of these names."""


@dataclass(frozen=True)
class Cost:
    """The costs of one kind of pod, in a cluster of so many nodes.

    Attributes:
        take_in_ms: the longest time that one event takes, in the cache and in a table.
        growth: of that time, when the pod is twice as large.
        decide_ms: the longest decision.
        beside_ms: the longest decision about another pod, while all these pods are there.
        memory_ratio: the bytes that a byte of JSON takes.
        left_percent: the memory that is left when all are gone, in percent of what the process had before.
    """

    kind: str
    nodes: int
    pods: int
    take_in_ms: float
    growth: float
    decide_ms: float
    beside_ms: float
    memory_ratio: float
    left_percent: float


def measured(nodes: int, pods: int = PODS, size: int = BYTES, kinds: list[str] | None = None) -> Iterator[Cost]:
    """Yields the costs of each kind."""
    limit(nodes)
    gc.set_threshold(*GC_THRESHOLDS)  # as the processes do
    cluster = _Cluster(nodes)
    for kind in kinds or KINDS:
        yield cluster.measure(kind, pods, size)


class _Cluster:
    """A cache that holds a large cluster, and a cycle that decides by it."""

    def __init__(self, nodes: int) -> None:
        self._nodes = nodes
        self._cache = Cache(SystemClock(), Telemetry())
        cluster = large_cluster(nodes)
        self._cache.replaced("Node", [msgspec.convert(obj, Node) for obj in cluster.nodes])
        self._cache.replaced("Pod", [msgspec.convert(obj, Pod) for obj in cluster.pods])
        self._cycle = SchedulingCycle(default_profile(), Random(1))
        self._others = [msgspec.convert(pod.obj(), Pod) for pod in pods_to_decide(VARIED, _WARM_UP + PODS)]
        self._limit = TimeLimit(SystemClock(), DECISION_SECONDS)
        for pod in self._others[:_WARM_UP]:
            self._decide(pod)

    def measure(self, kind: str, pods: int, size: int) -> Cost:
        half = pod_of(kind, 0, size // 2)
        half_seconds = _seconds(self._take_in, half)
        self._delete(half)
        waiting = [pod_of(kind, number, size) for number in range(pods)]
        bound = [pod_of(kind, number, size, node_name(number % self._nodes)) for number in range(pods)]
        before = _resident_bytes()
        first_seconds = _seconds(self._take_in, waiting[0])
        take_in = [first_seconds, *(_seconds(self._take_in, data) for data in waiting[1:])]
        decide = [_seconds(self._decide, _DECODE(data)) for data in waiting]
        take_in += [_seconds(self._take_in, data) for data in bound]
        others = [self._others[_WARM_UP + number % (len(self._others) - _WARM_UP)] for number in range(pods)]
        beside = [_seconds(self._decide, pod) for pod in others]
        full = _resident_bytes()
        take_in += [_seconds(self._delete, data) for data in bound]
        return Cost(
            kind=kind,
            nodes=self._nodes,
            pods=pods,
            take_in_ms=1000 * max(take_in),
            growth=first_seconds / half_seconds,
            decide_ms=1000 * max(decide),
            beside_ms=1000 * max(beside),
            memory_ratio=(full - before) / sum(map(len, bound)),
            left_percent=100 * (_resident_bytes() - before) / before,
        )

    def _take_in(self, data: bytes) -> None:
        self._cache.changed("Pod", _DECODE(data))
        with self._cache.snapshot("bench"):
            pass

    def _delete(self, data: bytes) -> None:
        self._cache.deleted("Pod", _DECODE(data))
        with self._cache.snapshot("bench"):
            pass

    def _decide(self, pod: Pod) -> None:
        with suppress(DeadlineExceeded), self._cache.snapshot("bench", self._limit.begin()) as table:
            self._cycle.schedule_pod(PodInfo(pod), table)


_DECODE = msgspec.json.Decoder(Pod).decode


def pod_of(kind: str, number: int, size: int, on: str = "") -> bytes:
    """Returns the JSON of a pod of about that size with as many items as fit; no other pod has the same names."""
    if kind == "annotations":
        size = min(size, _ANNOTATION_BYTES)
    few = len(_encoded(kind, number, 100, on))
    one = (few - len(_encoded(kind, number, 0, on))) / 100
    return _encoded(kind, number, int(size / one), on)


def _encoded(kind: str, number: int, items: int, on: str) -> bytes:
    first = _FIRST_NUMBER * (1 + number)
    fields = KINDS[kind]([f"n{first + item}" for item in range(items)])
    name = f"{kind.replace(' ', '-').replace(',', '')}-{number}"
    metadata = {"name": name, "namespace": "default", "uid": name, **fields.pop("metadata", {})}
    spec = {"schedulerName": "default-scheduler", **_container(), **fields, **({"nodeName": on} if on else {})}
    return msgspec.json.encode({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})


def _seconds(act: Callable[[T], object], argument: T) -> float:
    begin = process_time()
    act(argument)
    return process_time() - begin


def _resident_bytes() -> int:
    gc.collect()
    give_back()
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmRSS"))

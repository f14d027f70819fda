"""A cache with a few nodes, and requests as a scheduler writes them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from extender.cache.cache import Cache
from extender.errors import ExtenderError
from extender.framework.profile import Profiles
from extender.model.kinds import KINDS
from extender.plugins.registry import default_profile
from extender.runtime.clock import Clock, ManualClock
from extender.runtime.ports import Binding, Check, Telemetry, always
from extender.table import PodInfo, Table
from extender.table.features import VERSIONS, FeatureGates
from extender.table.labels import Rows
from extender.verbs.bind import Bind
from tests.builders import Object

PROFILES = Profiles([default_profile()], VERSIONS["1.37"].features)
TREES = FeatureGates(generic_workload=True, topology_aware_workload_scheduling=True, composite_pod_group=True)
"""Groups may have parents."""


def cache_of(
    *objects: Object,
    clock: Clock | None = None,
    ttl_seconds: float = 30.0,
    features: FeatureGates = VERSIONS["1.37"].features,
) -> Cache:
    """A cache to which a watch has delivered these objects."""
    cache = Cache(clock or ManualClock(), Telemetry(), ttl_seconds, features)
    tell(cache, objects)
    return cache


def tell(cache: Cache, objects: Iterable[Object]) -> None:
    """Lets the watch see these objects."""
    for obj in objects:
        cache.changed(obj["kind"], msgspec.convert(obj, KINDS[obj["kind"]].type))


def args(pod: Object, *, names: Sequence[str] | None = None, nodes: list[Object] | None = None) -> bytes:
    """A filter or prioritize request as Go writes it."""
    listed = None if nodes is None else {"metadata": {}, "items": nodes}
    return json.dumps({"Pod": pod, "Nodes": listed, "NodeNames": names}).encode()


def preemption_args(pod: Object, victims: Mapping[str, Sequence[str]]) -> bytes:
    """A preempt request with UIDs by node, as Go writes it."""
    meta = {node: {"Pods": [{"UID": uid} for uid in uids], "NumPDBViolations": 0} for node, uids in victims.items()}
    return json.dumps({"Pod": pod, "NodeNameToVictims": None, "NodeNameToMetaVictims": meta}).encode()


def binding(pod: Object, node: str, *, uid: str | None = None) -> bytes:
    """A bind request as Go writes it."""
    meta = pod["metadata"]
    fields = {"PodName": meta["name"], "PodNamespace": meta["namespace"], "PodUID": uid or meta["uid"], "Node": node}
    return json.dumps(fields).encode()


@dataclass
class SlowRule:
    """A predicate and a priority that takes so many seconds for a pod, and calls `during` in this time."""

    clock: ManualClock
    seconds: float
    name: str = "Slow"
    during: Callable[[], object] = lambda: None

    def prepare(self, pod: PodInfo, table: Table, rows: Rows | None = None) -> None:
        self.clock.advance(self.seconds)
        self.during()


class FakeBinder:
    """A ports.Binder that remembers (uid, node) of each bind; `errors` are raised first, one a call.

    Attributes:
        during: called once, by the next bind, before it is answered.
    """

    def __init__(self, *errors: ExtenderError) -> None:
        self.bound: list[tuple[str, str]] = []
        self.errors = list(errors)
        self.during: Callable[[], object] = lambda: None

    def bind(self, binding: Binding, check: Check = always) -> None:
        during, self.during = self.during, lambda: None
        during()
        check()
        if self.errors:
            raise self.errors.pop(0)
        self.bound.append((binding.uid, binding.node))


class CountedResults(Telemetry):
    """Remembers as what each call of bind was counted; raises the errors first, one a call."""

    def __init__(self, *errors: Exception) -> None:
        self.results: list[str] = []
        self.errors = list(errors)

    def bound(self, result: str) -> None:
        if self.errors:
            raise self.errors.pop(0)
        self.results.append(result)


def callers_that_share(verb: Bind, uid: str) -> int:
    """The number of calls that wait for another call's bind of the pod."""
    shared = verb._in_progress[uid].result
    return len(shared._condition._waiters) if shared else 0  # type: ignore[attr-defined]  # of a Condition


def answer(verb: Any, body: bytes) -> Any:
    """The verb's answer to the body, decoded again from its bytes."""
    request = verb.decode(body)
    return json.loads(verb.encode(request, verb.decide(request)))

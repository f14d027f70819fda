"""How long a normal pod waits while a tenant's attempts are expensive: the loop with a fake API server.

A normal pod arrives every 50 ms, also in the middle of an attempt, in a namespace of its own. Its latency is counted in
CPU seconds of this process, from its arrival until it is bound. So the figures hold on a busy machine, and they include
the work of the thread that lets pods arrive.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import msgspec

from extender.model.kinds import KINDS
from extender.runtime.clock import ManualClock, TimeLimit
from extender.runtime.ports import Binding, Check, always
from extender.table.features import FeatureGates
from tests.builders import (
    HOSTNAME,
    Builder,
    Object,
    make_claim,
    make_device,
    make_device_class,
    make_node,
    make_pod,
    make_pod_group,
    make_request,
    make_resource_slice,
)
from tests.scheduler.world import NAME, World

DECISION_SECONDS = 4.0  # as the setting decisionSeconds has it
DRIVER = "gpu.example.com"
GATES = FeatureGates(generic_workload=True, topology_aware_workload_scheduling=True)
_PAUSE_SECONDS = 0.05
_CALM_PODS = 20


class CpuClock(ManualClock):
    """The CPU seconds of this process, plus the seconds that it was idle."""

    def now(self) -> float:
        return self.monotonic()

    def monotonic(self) -> float:
        return super().monotonic() + time.process_time()


@dataclass(frozen=True)
class Latency:
    """The latency of normal pods, in ms, without and with the tenant.

    Attributes:
        tenants_bound: how many of the tenant's pods were bound.
    """

    tenant: str
    before_ms: float
    worst_ms: float
    arrived: int
    unbound: int
    tenants_bound: int


@dataclass
class Arrivals:
    """Lets a normal pod arrive every 50 ms, and notes when each was bound."""

    world: _World
    at: dict[str, float] = field(default_factory=dict)
    waited: dict[str, float] = field(default_factory=dict)
    tenants_bound: int = 0

    def add(self) -> None:
        name = f"normal-{len(self.at)}"
        self.at[name] = self.world.clock.monotonic()
        self.world.arrive(make_pod(name, "shop").uid(name).scheduler(NAME).req(cpu="1m"))

    def bound(self, binding: Binding) -> None:
        if binding.name in self.at:
            self.waited[binding.name] = self.world.clock.monotonic() - self.at[binding.name]
        else:
            self.tenants_bound += 1

    def worst(self) -> float:
        """The longest wait in seconds; a pod that still waits counts, too."""
        now = self.world.clock.monotonic()
        return max(self.waited.get(name, now - at) for name, at in self.at.items())


class _World(World):
    def __init__(self, *built: Builder | Object) -> None:
        clock = CpuClock()
        super().__init__(*built, clock=clock, limit=TimeLimit(clock, DECISION_SECONDS), features=GATES)
        self.arrivals = Arrivals(self)
        self._lock = threading.Lock()

    def bind(self, binding: Binding, check: Check = always) -> None:
        with self._lock:
            super().bind(binding, check)
        self.arrivals.bound(binding)

    def arrive(self, built: Builder | Object) -> None:
        """Creates an object, which the cache sees at once, in any thread."""
        obj = built.obj() if isinstance(built, Builder) else built
        with self._lock:
            self._version += 1
            obj["metadata"]["resourceVersion"] = str(self._version)
            converted = msgspec.convert(obj, KINDS[obj["kind"]].type)
            self.objects[obj["kind"], converted.key] = converted
        self.cache.changed(obj["kind"], converted)

    def run(self, until: Callable[[], bool]) -> None:
        """Does what the process does, until `until` returns True."""
        flushed_at = self.clock.monotonic()
        while not until():
            self.watch()
            self.waiting.poll()
            self.binders.work()
            self.preemptors.work()
            if self.clock.monotonic() - flushed_at >= 1:
                flushed_at = self.clock.monotonic()
                self.queue.flush_backoff()
            if not self.scheduler.schedule_one(0):
                time.sleep(0.001)
                self.clock.advance(0.001)


def measured(tenant: str, nodes: int, seconds: float, devices_per_node: int = 8, share: float = 1.0) -> Latency:
    """Measures one row; the tenant creates `share` of its pods, and normal pods arrive for so many CPU seconds."""
    world = _World(*_cluster(nodes, devices_per_node if "CEL" in tenant else 0))
    arrivals = world.arrivals
    for number in range(_CALM_PODS):
        arrivals.add()
        world.run(lambda number=number: len(arrivals.waited) > number)  # type: ignore[misc]  # called at once
    before = max(list(arrivals.waited.values())[_CALM_PODS // 2 :])
    for built in TENANTS[tenant](share):
        world.arrive(built)
    began_at = world.clock.monotonic()
    over = threading.Event()

    def let_pods_arrive() -> None:
        while not over.wait(_PAUSE_SECONDS):
            arrivals.add()

    thread = threading.Thread(target=let_pods_arrive, daemon=True)
    thread.start()
    try:
        world.run(lambda: world.clock.monotonic() - began_at > seconds)
    finally:
        over.set()
        thread.join()
    unbound = len(arrivals.at) - len(arrivals.waited)
    return Latency(tenant, 1e3 * before, 1e3 * arrivals.worst(), len(arrivals.at), unbound, arrivals.tenants_bound)


def _cluster(nodes: int, devices: int) -> Iterator[Builder | Object]:
    yield make_device_class("gpu")
    numbers = count()
    for number in range(nodes):
        name = f"n{number}"
        resources = {"cpu": "64", "memory": "256Gi", "pods": "110"}
        yield make_node(name).label({HOSTNAME: name}).capacity(**resources).allocatable(**resources)
        if devices:
            offered = [make_device(f"d{index}", {"id": next(numbers)}) for index in range(devices)]
            yield make_resource_slice(name, DRIVER, *offered)


def _claims(share: float) -> Iterator[Builder | Object]:
    """Pods with claims whose CEL is near the cost limit, and that no device satisfies."""
    numbers = list(range(60))
    for number in range(int(40 * share)):
        inner = f"{numbers}.all(y, {numbers}.all(z, x + y + z >= 0))"
        cel = f'{list(range(8))}.all(x, {inner}) && device.attributes["{DRIVER}"].id == {-1 - number}'
        yield make_claim(f"c{number}", make_request("device", "gpu", cel), namespace="tenant")
        yield _pod(f"cel-{number}").resource_claim(f"c{number}")


def _terms(share: float) -> Iterator[Builder | Object]:
    """Pods with 4,000 terms of anti-affinity each."""
    for number in range(int(15 * share)):
        terms = [
            {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": {"app": f"a{number}-{index}"}}}
            for index in range(4_000)
        ]
        pod = _pod(f"terms-{number}").obj()
        pod["spec"]["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
        yield pod


def _gangs(gangs: int, members: int) -> Callable[[float], Iterator[Builder | Object]]:
    """Gangs of which all members must run on one node, which is too small."""

    def create(share: float) -> Iterator[Builder | Object]:
        topology: Any = {"topology": [{"key": HOSTNAME}]}
        for gang in range(gangs):
            name = f"g{gang}"
            size = int(members * share)
            yield make_pod_group(name, size, namespace="tenant", schedulingConstraints=topology)
            for number in range(size):
                yield _pod(f"{name}-{number}").group(name).req(cpu="1")

    return create


def _pod(name: str) -> Any:
    return make_pod(name, "tenant").uid(name).scheduler(NAME)


TENANTS: dict[str, Callable[[float], Iterator[Builder | Object]]] = {
    "40 pods with claims whose CEL is near the cost limit": _claims,
    "15 pods with 4,000 anti-affinity terms each": _terms,
    "one gang of 200 with topology kubernetes.io/hostname": _gangs(1, 200),
    "five gangs of 150 with topology kubernetes.io/hostname": _gangs(5, 150),
}

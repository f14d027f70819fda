"""A loop in which one part raises at every call about one object: the poisoned pod, node, group or claim.

`run` takes a process through a script with such objects and with healthy ones, and returns what is wrong afterwards.
The process must live, the healthy pods must be bound, and nothing is listed again and again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from extender.app.upkeep import let_expire, relist_interrupted
from extender.model.meta import Object
from extender.model.pod import Pod
from extender.runtime.threads import TaskFailures
from extender.table import PodInfo
from extender.table.features import FeatureGates
from tests.builders import (
    make_claim,
    make_composite_pod_group,
    make_device_class,
    make_pod_group,
    make_request,
    make_resource_slice,
)
from tests.scheduler.injected_errors import GPU, Calls, node, pod
from tests.scheduler.world import Telemetry, World

POISON = "poison"
"""Part of the name of each poisoned object; the UIDs of pods equal their names."""
MOST_LISTS = 12  # one for each kind, and one for each object that arrives later
FEATURES = FeatureGates(generic_workload=True, topology_aware_workload_scheduling=True, composite_pod_group=True)


def mentions_poison(value: object, depth: int = 3) -> bool:
    """Returns True if a call with this argument is about a poisoned object."""
    if isinstance(value, str):
        return POISON in value
    if isinstance(value, PodInfo):
        return POISON in value.pod.metadata.name
    if isinstance(value, Object):
        return POISON in value.metadata.name
    if not depth or isinstance(value, (int, float, bytes, type(None))):
        return False
    for name in ("info", "pod", "group", "root", "key", "uid", "entity", "claim", "reference"):
        part = getattr(value, name, None)
        if part is not None and not callable(part) and mentions_poison(part, depth - 1):
            return True
    return isinstance(value, tuple) and any(mentions_poison(part, depth - 1) for part in value[:8])


class PoisonedCalls(Calls):
    """Raises at each call of one function about a poisoned object. See `Calls`."""

    def __init__(self) -> None:
        super().__init__()
        self.poisoned: str | None = None

    def observe(self, name: str, work: Callable[[], Any], arguments: Sequence[object]) -> Any:
        if (self.poisoned is None or name == self.poisoned) and any(map(mentions_poison, arguments)):
            self.counts[name] += 1
            if self.poisoned is not None:
                raise PoisonError(f"poisoned: {name}")
        return work()


class PoisonError(Exception):
    """What a bug would raise about the poisoned object."""


class Noting(Telemetry):
    """Notes what was set aside, and how often a kind was listed again."""

    def __init__(self) -> None:
        super().__init__()
        self.lists = 0


class PoisonedProcess(World):
    """One process of the loop, with its tickers and reflectors as `extender schedule` runs them."""

    def __init__(self) -> None:
        self.noting = Noting()
        super().__init__(telemetry=self.noting, features=FEATURES)
        self.failures = TaskFailures(self.noting.set_aside)
        for workers in (self.binders, self.preemptors):
            workers.submit = partial(self._submit, workers.submit)  # type: ignore[method-assign]

    def _submit(self, submit: Callable[[Callable[[], object]], None], task: Callable[[], object]) -> None:
        submit(partial(self.tick, "worker", task))

    def tick(self, name: str, action: Callable[[], object]) -> None:
        """Calls the action as a Ticker or a worker does."""
        try:
            action()
        except Exception as error:
            self.failures.report(name, error)
        self.failures.check()

    def watch(self) -> None:
        """Delivers what has happened; lists a kind again if the cache raises, as a reflector does."""
        while self.untold:
            event = self.untold.pop(0)
            try:
                event()
            except Exception:
                self.relist(event.args[0], "")

    def relist(self, kind: str, _why: str) -> None:
        """A list in this process fails and is repeated, at longer and longer intervals."""
        self.noting.lists += 1
        self.clock.advance(1)
        self.untold = [event for event in self.untold if event.args[0] != kind]
        listed = [obj for (of_kind, _), obj in self.objects.items() if of_kind == kind]
        try:
            self.cache.replaced(kind, listed, self.clock.monotonic())
        except Exception as error:
            self.noting.set_aside("list", kind, error)

    def kinds(self) -> Sequence[str]:
        return sorted({kind for kind, _ in self.objects})

    def attempt(self) -> bool:
        attempted = False

        def attempt() -> None:
            nonlocal attempted
            attempted = self.scheduler.schedule_one(0)

        self.tick("scheduling", attempt)
        return attempted

    def settle(self) -> None:
        for _ in range(100):
            self.watch()
            self.tick("waiting", self.waiting.poll)
            self.binders.work()
            self.preemptors.work()
            if not (self.untold or self.attempt()):
                return

    def pass_time(self, seconds: float) -> None:
        for second in range(int(seconds)):
            self.clock.advance(1)
            self.tick("expiry", lambda: let_expire(self.expiry, ""))
            self.tick("backoff", self.queue.flush_backoff)
            self.tick("unschedulable", self.queue.flush_unschedulable)
            self.tick("claims", self.device_claims.resolve)
            self.tick("binds", self.settle_binds)
            if second % 30 == 29:
                self.tick("leaked claims", self.leftovers.release_leaked)
                self.tick("queue sweep", self.sweep.run)
                self.tick("repair", lambda: relist_interrupted(self.cache, self))  # type: ignore[arg-type]
                self.tick("refresh", lambda: self.cache.refresh(2))
            self.settle()


def begin(world: PoisonedProcess) -> None:
    """Poisoned objects of each kind, between healthy ones that arrive before and after them."""
    world.put(node("a", "4"))
    world.put(node("b", "4"))
    world.put(node(f"{POISON}-node").taint("example.com/bug"))
    world.put(make_device_class("gpu"))
    world.put(make_resource_slice("b", GPU, "gpu-0", "gpu-1"))
    for name in (POISON, "healthy"):
        world.put(make_claim(f"{name}-claim", make_request("device", "gpu")))
        world.put(make_composite_pod_group(f"{name}-tree", min_groups=1))
        world.put(make_pod_group(f"{name}-group", 2, parentCompositePodGroupName=f"{name}-tree"))
        world.put(pod(f"{name}-plain", "100m"))
        world.put(pod(f"{name}-device", "100m").resource_claim(f"{name}-claim"))
        for number in range(2):
            world.put(pod(f"{name}-member-{number}", "100m").group(f"{name}-group"))
    world.settle()


def refusals(world: PoisonedProcess) -> None:
    """Pods that wait: for room, for their gate, for more members."""
    for name in (POISON, "healthy"):
        world.put(pod(f"{name}-large", "6"))
        world.put(pod(f"{name}-gated", "100m").gate("example.com/wait"))
        world.put(make_pod_group(f"{name}-later", 2))
        world.put(pod(f"{name}-late-0", "100m").group(f"{name}-later"))
    world.settle()
    world.pass_time(3)


def preemption(world: PoisonedProcess) -> None:
    """Important pods take the places of others."""
    for name in (POISON, "healthy"):
        world.put(pod(f"{name}-victim", "3").priority(-1))
    world.settle()
    for name in (POISON, "healthy"):
        world.put(pod(f"{name}-high", "3").priority(10))
    world.settle()
    world.pass_time(3)
    bury(world)
    world.pass_time(12)


def room(world: PoisonedProcess) -> None:
    """Everything that waits fits."""
    for name in (POISON, "healthy"):
        world.put(node(f"{name}-new", "64") if name != POISON else node("poison-new").taint("example.com/bug"))
        world.put(pod(f"{name}-gated", "100m"))
        world.put(pod(f"{name}-late-1", "100m").group(f"{name}-later"))
    world.settle()
    for _ in range(8):
        world.pass_time(30)
        bury(world)
    world.put(pod("healthy-last", "100m"))
    world.pass_time(90)


def bury(world: PoisonedProcess) -> None:
    """The kubelet ends the victims."""
    for obj in [obj for obj in world.objects.values() if isinstance(obj, Pod) and obj.terminating]:
        world.delete("Pod", obj.key)


SCRIPT = (begin, refusals, preemption, room)


def run(calls: PoisonedCalls, poisoned: str | None) -> list[str]:
    """Runs the script while each call of `poisoned` about a poisoned object raises; returns what is wrong."""
    calls.disarm()
    world = PoisonedProcess()
    calls.poisoned = poisoned
    calls.arm(None)
    try:
        for step in SCRIPT:
            step(world)
    except Exception as error:
        return [f"the process ended: {error!r}"]
    finally:
        calls.disarm()
    return list(faults(world, poisoned))


def faults(world: PoisonedProcess, poisoned: str | None) -> Iterator[str]:
    for obj in world.objects.values():
        if isinstance(obj, Pod) and not obj.node_name and (poisoned is None or POISON not in obj.name):
            yield f"{obj.name} is pending"
    if world.noting.lists > MOST_LISTS:
        yield f"{world.noting.lists} lists"
    if poisoned is None and world.noting.aside:
        yield f"set aside: {world.noting.aside}"

"""A loop in which one call of one of its parts raises MemoryError, before or after it has done its work.

`Calls` wraps every method and function of the parts. `run` takes a world through a script of everything that happens
to pods, with the error at one of those calls, and returns what is wrong afterwards. An error that reaches the top of a
thread of the loop ends the process: a new one goes on with the objects of the same API server. An error in a watch
event makes the reflector list the kind again.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import EnumMeta
from types import FunctionType, ModuleType
from typing import Any, TypeGuard

from extender.cache.debugger import differences
from extender.errors import Conflict, OutcomeUnknown, Refused
from extender.model.kinds import KINDS
from extender.model.pod import Pod
from tests.builders import (
    Builder,
    NodeBuilder,
    PodBuilder,
    make_claim,
    make_device_class,
    make_node,
    make_pod,
    make_pv,
    make_pvc,
    make_request,
    make_resource_slice,
    make_storage_class,
)
from tests.scheduler.world import NAME, World

PARTS = (
    "extender.cache",
    "extender.queue",
    "extender.scheduler",
    "extender.framework.permit",
    "extender.table.journal",
    "extender.table.table",
)
GPU = "gpu.example.com"
CALM_SECONDS = 400
HOUSEKEEPING_SECONDS = 30
_NEVER_WRAPPED = frozenset(("__repr__", "__class_getitem__", "__init_subclass__"))


@dataclass(frozen=True, slots=True)
class Injection:
    """The call that raises: the `number`th of this name, before or after its work."""

    name: str
    number: int
    after: bool

    def __str__(self) -> str:
        return f"{self.name} call {self.number} {'after' if self.after else 'before'} its work"


class Calls:
    """Every call of the parts.

    Attributes:
        counts: how often each was called since `arm`, by name.
        struck: the injected error was raised.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.struck = False
        self._injection: Injection | None = None
        self._is_counting = False

    def arm(self, injection: Injection | None) -> None:
        """Counts from now on, and raises at this call."""
        self.counts.clear()
        self._injection = injection
        self.struck = False
        self._is_counting = True

    def disarm(self) -> None:
        """Lets every call pass."""
        self._is_counting = False

    @contextmanager
    def wrapped(self) -> Iterator[None]:
        """Has the calls of all parts counted in the block."""
        originals: list[tuple[Any, str, FunctionType]] = []
        try:
            for function, owners in _functions():
                wrapper = self._wrapper(function)
                for owner, name in owners:
                    originals.append((owner, name, function))
                    setattr(owner, name, wrapper)
            yield
        finally:
            for owner, name, function in originals:
                setattr(owner, name, function)

    def _wrapper(self, function: FunctionType) -> Callable[..., Any]:
        name = f"{function.__module__.removeprefix('extender.')}.{function.__qualname__}"

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if not self._is_counting:
                return function(*args, **kwargs)
            return self.observe(name, lambda: function(*args, **kwargs), (*args, *kwargs.values()))

        return call

    def observe(self, name: str, work: Callable[[], Any], _arguments: Sequence[object]) -> Any:
        """Makes the call, and raises if it is the one to fail."""
        self.counts[name] += 1
        number = self.counts[name]
        self._strike(Injection(name, number, after=False))
        try:
            return work()
        finally:
            self._strike(Injection(name, number, after=True))

    def _strike(self, call: Injection) -> None:
        if call == self._injection and not self.struck:
            self.struck = True
            raise MemoryError(f"injected: {call}")


def _functions() -> Iterator[tuple[FunctionType, list[tuple[Any, str]]]]:
    """Yields every function and method of the parts, with the modules or the class that have it, and its name there."""
    names = {name: importlib.import_module(name) for part in PARTS for name in _modules(part)}
    users = [module for name, module in sys.modules.items() if name.startswith(("extender.", "tests.scheduler."))]
    for module in names.values():
        own = [value for value in vars(module).values() if getattr(value, "__module__", "") == module.__name__]
        for value in own:
            if _is_written(value, module):
                yield value, [(user, alias) for user in users for alias, held in vars(user).items() if held is value]
            elif isinstance(value, type) and not isinstance(value, EnumMeta):
                for name, method in list(vars(value).items()):
                    if _is_written(method, module) and name not in _NEVER_WRAPPED:
                        yield method, [(value, name)]


def _modules(part: str) -> list[str]:
    path = getattr(importlib.import_module(part), "__path__", None)
    return [part, *(each.name for each in pkgutil.walk_packages(path or (), f"{part}."))]


def _is_written(value: object, module: ModuleType) -> TypeGuard[FunctionType]:
    """Returns True for a function or method that is written in the module, unlike those that `dataclass` makes."""
    return isinstance(value, FunctionType) and value.__code__.co_filename == inspect.getsourcefile(module)


class Process(World):
    """One process of the loop, with the reflectors and tickers that heal it.

    Args:
        before: the process that ended; the API server's objects are the same.
    """

    def __init__(self, *built: Builder | dict[str, Any], before: World | None = None) -> None:
        super().__init__(*built)
        if before is not None:
            self.objects.update(before.objects)
            self._version = before._version
            self.clock.advance(1)
            for kind in KINDS:
                self._list(kind)
            self.leftovers.clean_up()

    def watch(self) -> None:
        """Delivers what has happened; lists a kind again if an event of it raises, as a reflector does."""
        while self.untold:
            event = self.untold.pop(0)
            try:
                event()
            except Exception:
                self.clock.advance(1)
                self._list(event.args[0])

    def housekeeping(self) -> None:
        """Does what the process does twice a minute."""
        self.leftovers.release_leaked()
        self.sweep.run()
        for kind in self.cache.interrupted_kinds():
            self._list(kind)

    def _list(self, kind: str) -> None:
        self.untold = [event for event in self.untold if event.args[0] != kind]
        listed = [obj for (of_kind, _), obj in self.objects.items() if of_kind == kind]
        self.cache.replaced(kind, listed, self.clock.monotonic())

    def pass_time(self, seconds: float) -> None:
        for second in range(int(seconds)):
            super().pass_time(1)
            if second % HOUSEKEEPING_SECONDS == HOUSEKEEPING_SECONDS - 1:
                self.housekeeping()


# ---- what happens


def node(name: str, cpu: str = "2") -> NodeBuilder:
    return make_node(name).capacity(cpu=cpu, memory="16Gi", pods="10").allocatable(cpu=cpu, memory="16Gi", pods="10")


def pod(name: str, cpu: str = "1") -> PodBuilder:
    return make_pod(name).uid(name).scheduler(NAME).req(cpu=cpu)


def begin(world: Process) -> None:
    """A cluster with volumes and devices, and pods of every sort."""
    world.put(node("a"))
    world.put(node("b"))
    world.put(make_device_class("gpu", extended_resource="example.com/gpu"))
    world.put(make_resource_slice("b", GPU, "gpu-0", "gpu-1"))
    world.put(make_storage_class("late"))
    world.put(make_pv("v", storage_class="late"))
    world.put(make_pvc("c", storage_class="late"))
    world.put(make_claim("d", make_request("device", "gpu")))
    world.put(pod("plain"))
    world.put(pod("volume", "500m").pvc("c"))
    world.put(pod("device", "500m").resource_claim("d"))
    world.put(pod("gated", "100m").gate("example.com/wait"))
    world.put(make_pod("theirs").uid("theirs").scheduler("another").node("a").req(cpu="500m"))
    world.settle()


def controllers(world: Process) -> None:
    """The volume is bound, and everything that waits for it goes on."""
    world.volumes.complete()
    world.pass_time(2)


def extended(world: Process) -> None:
    """A pod that asks for devices by an extended resource."""
    world.put(pod("extended", "100m").req({"cpu": "100m", "example.com/gpu": "1"}))
    world.settle()
    world.pass_time(1)


def refused(world: Process) -> None:
    """A bind that is refused, and one whose outcome is unknown."""
    world.put(node("c", "3"))
    world.faults[:] = [Conflict("no", 409), OutcomeUnknown("the connection was closed")]
    world.put(pod("refused", "100m"))
    world.put(pod("unknown", "100m"))
    world.settle()
    world.pass_time(40)


def claims(world: Process) -> None:
    """A claim that cannot be written, and is released later."""
    world.put(make_resource_slice("a", GPU, "gpu-2"))
    world.put(make_claim("e", make_request("device", "gpu")))
    world.claims.faults["bind"] = OutcomeUnknown("the connection was closed")
    world.claims.faults["release"] = Refused("later", 503)
    world.put(pod("claiming", "100m").resource_claim("e"))
    world.settle()
    world.pass_time(12)


def preemption(world: Process) -> None:
    """A full cluster, in which an important pod takes the place of another."""
    for name in ("low-0", "low-1"):
        world.put(pod(name, "1").priority(1))
    world.settle()
    world.put(pod("high", "2").priority(10))
    world.settle()
    world.pass_time(2)
    leaving = [obj for obj in world.objects.values() if isinstance(obj, Pod) and obj.terminating]
    for victim in leaving:
        world.delete("Pod", victim.key)
    world.settle()
    world.pass_time(12)


def changes(world: Process) -> None:
    """Nodes and pods change, a waiting pod and a bound one are deleted, and a list comes."""
    world.put(pod("large", "6"))
    world.settle()
    world.put(node("a").label(colour="blue").taint("dedicated"))
    world.put(pod("large", "6").label(colour="blue"))
    world.settle()
    world.put(node("a"))
    world.put(pod("brief", "9"))
    world.settle()
    world.delete("Pod", "default/brief")
    if ("Pod", "default/plain") in world.objects:  # else it was the victim
        world.delete("Pod", "default/plain")
    world.settle()
    world.clock.advance(1)
    world.watch()
    world._list("Pod")
    world.pass_time(2)


def room(world: Process) -> None:
    """Everything that waits fits."""
    world.put(pod("gated", "100m"))
    world.put(node("large", "64"))
    world.settle()
    world.pass_time(15)


SCRIPT: Sequence[Callable[[Process], None]] = (
    begin,
    controllers,
    extended,
    refused,
    claims,
    preemption,
    changes,
    room,
)


# ---- what has to be true afterwards


def run(calls: Calls, injection: Injection | None) -> list[str]:
    """Runs the script with the injected error; returns what is wrong afterwards."""
    calls.disarm()
    world = Process()
    calls.arm(injection)
    for step in SCRIPT:
        try:
            step(world)
        except MemoryError:
            calls.disarm()
            world = Process(before=world)
    calls.disarm()
    _finish(world)
    return list(faults(world))


def _finish(world: Process) -> None:
    """Lets everything happen that is still to come, with nothing in the way."""
    world.faults.clear()
    world.claims.faults.clear()
    world.settle()
    world.volumes.complete()
    for name in ("a", "b", "large"):
        world.put(node(name, "64"))
    gated = world.objects.get(("Pod", "default/gated"))
    if isinstance(gated, Pod) and not gated.node_name:
        world.put(pod("gated", "100m"))
    world.settle()
    for _ in range(CALM_SECONDS // HOUSEKEEPING_SECONDS):
        world.pass_time(HOUSEKEEPING_SECONDS)
        world.volumes.complete()
        for victim in [obj for obj in world.objects.values() if isinstance(obj, Pod) and obj.terminating]:
            world.delete("Pod", victim.key)


def faults(world: Process) -> Iterator[str]:
    """Yields what a healthy loop would not leave behind: every pod is bound, and the cache equals the API server."""
    pods = {obj.uid: obj for obj in world.objects.values() if isinstance(obj, Pod)}
    for pod in pods.values():
        if not pod.node_name:
            yield f"{pod.name} is pending"
    held = {uid: (each.node_name, each.pod) for uid, each in world.cache.pods().items()}
    expected = {uid: (pod.node_name, pod) for uid, pod in pods.items()}
    if held != expected:
        yield f"the cache has {held}, expected {expected}"
    if assumed := world.cache.overview().assumed:
        yield f"assumed: {assumed}"
    if queued := [info.pod.name for infos in world.queue.pods().values() for info in infos]:
        yield f"in the queue: {queued}"
    if in_flight := world.queue.pods_in_flight():
        yield f"in flight: {in_flight}"
    if waiting := world.waiting.uids():
        yield f"waiting: {waiting}"
    yield from _table_faults(world)


def _table_faults(world: Process) -> Iterator[str]:
    fresh = World(*()).cache
    for kind in KINDS:
        fresh.replaced(kind, [obj for (of_kind, _), obj in world.objects.items() if of_kind == kind])
    with world.cache.snapshot("test") as held, fresh.snapshot("test") as expected:
        for difference in differences(held, expected):
            if difference.what == "object" and difference.where.startswith("pod "):
                continue  # a PodInfo equals only itself, and pods are compared above
            yield f"{difference.what} of {difference.where} is {difference.actual}, expected {difference.expected}"

"""The queue compared with a plain model that looks at every pod at every event."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from extender.framework.cluster_events import (
    ASSIGNED_POD_DELETE,
    NODE_ADD,
    Action,
    Change,
    ClusterEvent,
    Resource,
)
from extender.framework.queueing_hints import Interest, Interests, Reads, reads_names
from extender.framework.status import Rejection
from extender.plugins.scheduling_gates import SchedulingGates
from extender.queue.entries import QueuedPod
from extender.queue.priority_queue import PriorityQueue
from extender.runtime.clock import ManualClock
from extender.table import PodInfo
from tests.builders import PodBuilder, make_pod
from tests.queue.queueing import QueueRecorder, info

GATE = "SchedulingGates"
GATES_GONE = ClusterEvent(Resource.TARGET_POD, Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED)
SILENT = ClusterEvent(Resource.ASSIGNED_POD, Action.UPDATE)
RULES = ("Colour", "Always", "Never", "Named", "Unknown")
COLOURS = ("red", "blue")


def colour_of(pod: PodInfo) -> str:
    return pod.pod.labels["colour"]


def same_colour(pod: PodInfo, change: Change) -> bool:
    return colour_of(pod) == colour_of(change.old)


def named_in(change: Change) -> tuple[str, ...]:
    return (change.old.pod.name,)


def is_named(pod: PodInfo, change: Change) -> bool:
    return bool(pod.pod.name == change.old.pod.name)


OWN_NAME = reads_names(lambda pod: (pod.pod.name,))
INTERESTS = {
    "Colour": Interests((Interest(Resource.ASSIGNED_POD, Action.DELETE, same_colour, Reads(colour_of)),)),
    "Always": Interests((Interest(Resource.NODE, Action.ADD),)),
    "Never": Interests((Interest(Resource.POD, Action.ALL, lambda pod, change: False),)),
    "Named": Interests((Interest(Resource.ASSIGNED_POD, Action.DELETE, is_named, OWN_NAME, named_in),)),
    GATE: Interests((Interest(Resource.TARGET_POD, Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED),)),
}


@dataclass(eq=False)
class Modelled:
    """A pod in the model. Its tier is "flight" after it was popped."""

    name: str
    priority: int
    colour: str
    gated: bool
    timestamp: float
    tier: str = "active"
    refusals: int = 0
    errors: int = 0
    rules: frozenset[str] = frozenset()
    pending: frozenset[str] = frozenset()
    unresolvable: frozenset[str] = frozenset()
    flushed_at: float = 0.0
    heard: list[Change] = field(default_factory=list)
    activated: bool = False
    gone: bool = False
    returned: bool = False

    def expiry(self) -> float:
        count = self.errors or self.refusals
        return math.floor(self.timestamp + min(10.0, 2.0 ** (count - 1))) if count else -math.inf

    def backs_off(self, now: float) -> bool:
        return self.expiry() >= math.floor(now)

    def helped_by(self, change: Change) -> set[str]:
        recorded = {"Unknown"}
        if change.event == NODE_ADD:
            recorded |= {"Always"}
        if change.event == ASSIGNED_POD_DELETE:
            recorded |= {"Colour"} if self.colour == colour_of(change.old) else set()
            recorded |= {"Named"} if self.name == change.old.pod.name else set()
            recorded -= self.unresolvable
        if change.event == GATES_GONE:
            recorded |= {GATE}
        return recorded & self.rules

    def go_back(self, helped: set[str], now: float) -> None:
        """Moves the pod to the tier where it belongs after an event that may help with the rules `helped`."""
        immediately = bool(helped & self.pending)
        if self.gated:
            self.tier, self.rules = "gated", self.rules | {GATE}
            return
        self.tier = "active" if immediately or not self.backs_off(now) else "backoff"


def built(name: str, priority: int, colour: str, gated: bool) -> PodBuilder:
    pod = make_pod(name).priority(priority).label(colour=colour)
    return pod.gate("g") if gated else pod


class QueueMachine(RuleBasedStateMachine):
    rule_sets = st.frozensets(st.sampled_from(RULES), max_size=3)

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.queue = PriorityQueue(QueueRecorder(), self.clock, INTERESTS, (SchedulingGates(),))
        self.pods: dict[str, Modelled] = {}
        self.made = 0
        self.popped: dict[str, QueuedPod] = {}

    @property
    def now(self) -> float:
        return self.clock.monotonic()

    def pass_time(self, seconds: float = 0.001) -> None:
        self.clock.advance(seconds)

    def waiting(self, *tiers: str) -> list[Modelled]:
        return [pod for pod in self.pods.values() if pod.tier in tiers]

    def uid(self, pod: Modelled) -> str:
        return info(pod.name).uid

    @initialize()
    def some_pods_wait_for_events(self) -> None:
        for colour in COLOURS:
            self.add(1, colour, False)
            self.pop()
            self.refuse(f"p{self.made}", frozenset(("Colour", "Named")), frozenset(), frozenset())

    @rule(priority=st.integers(0, 2), colour=st.sampled_from(COLOURS), gated=st.booleans())
    def add(self, priority: int, colour: str, gated: bool) -> None:
        self.pass_time()
        self.made += 1
        self.enter(f"p{self.made}", priority, colour, gated)
        self.queue.add(info(built(f"p{self.made}", priority, colour, gated)))

    def enter(self, name: str, priority: int, colour: str, gated: bool) -> None:
        pod = self.pods[name] = Modelled(name, priority, colour, gated, self.now)
        if gated:
            pod.tier, pod.rules = "gated", frozenset((GATE,))

    @rule()
    def pop(self) -> None:
        first = min(self.waiting("active"), key=lambda pod: (-pod.priority, pod.timestamp), default=None)
        if first is None:
            refused = [pod for pod in self.waiting("backoff") if pod.rules]
            first = min(refused, key=lambda pod: (pod.expiry(), -pod.priority, pod.timestamp), default=None)
        pod = self.queue.pop(0)
        assert (pod.info.pod.name if pod else None) == (first.name if first else None)
        if isinstance(pod, QueuedPod) and first:
            first.tier, first.heard, first.activated, first.returned = "flight", [], False, False
            self.popped[first.name] = pod

    @precondition(lambda self: self.popped)
    @rule(data=st.data(), rules=rule_sets, pending=rule_sets, for_good=st.booleans())
    def fail(self, data: st.DataObject, rules: frozenset[str], pending: frozenset[str], for_good: bool) -> None:
        unresolvable = rules if for_good else frozenset[str]()
        self.refuse(data.draw(st.sampled_from(sorted(self.popped))), rules, pending, unresolvable)

    def refuse(self, name: str, rules: frozenset[str], pending: frozenset[str], unresolvable: frozenset[str]) -> None:
        self.pass_time()
        pod, model = self.popped.pop(name), self.pods[name]
        model.timestamp, model.flushed_at = self.now, 0.0
        model.rules, model.pending, model.unresolvable = rules | pending, pending, unresolvable
        model.errors = 0 if model.rules else model.errors + 1
        model.refusals += bool(model.rules)
        if model.gone:
            del self.pods[model.name]
        else:
            helped = set().union(*(model.helped_by(change) for change in model.heard))
            if helped or model.activated or not model.rules:
                model.go_back(helped, self.now)
            else:
                model.tier = "unschedulable"
        self.queue.add_unschedulable(pod, Rejection(rules, pending, unresolvable))

    @precondition(lambda self: self.popped)
    @rule(data=st.data())
    def done(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.popped)))
        self.pass_time()
        model = self.pods.pop(name)
        if model.returned:
            self.enter(name, model.priority, model.colour, model.gated)
        self.queue.done(self.popped.pop(name).uid)

    @rule(
        event=st.sampled_from((NODE_ADD, ASSIGNED_POD_DELETE, SILENT)),
        about=st.integers(1, 3),
        colour=st.sampled_from(COLOURS),
        up_to=st.sampled_from((None, 0, 1)),
    )
    def event(self, event: ClusterEvent, about: int, colour: str, up_to: int | None) -> None:
        self.pass_time()
        change = Change(event, info(built(f"p{about}", 0, colour, False)))
        moved = 0
        for pod in self.waiting("flight"):
            pod.heard.append(change)
        for pod in self.waiting("unschedulable", "gated"):
            # The only gate has not registered for such events.
            if pod.tier == "unschedulable" and (up_to is None or pod.priority <= up_to):
                helped = pod.helped_by(change)
                if helped:
                    pod.go_back(helped, self.now)
                    moved += 1
        assert self.queue.move(change, up_to_priority=up_to) == moved

    @precondition(lambda self: self.pods)
    @rule(data=st.data(), colour=st.sampled_from(COLOURS), gated=st.booleans())
    def update(self, data: st.DataObject, colour: str, gated: bool) -> None:
        self.pass_time()
        pod = data.draw(st.sampled_from(sorted(self.pods.values(), key=lambda pod: pod.name)))
        pod.gone, pod.returned = False, pod.returned or pod.gone
        relabelled, opened = pod.colour != colour, pod.gated and not gated
        pod.colour, pod.gated = colour, gated and pod.gated
        events = [ClusterEvent(Resource.TARGET_POD, Action.UPDATE_POD_LABEL)] * relabelled + [GATES_GONE] * opened
        changes = [Change(event) for event in events or [ClusterEvent(Resource.TARGET_POD, Action.UPDATE)]]
        if pod.tier == "flight":
            pod.heard += changes
        for change in changes:
            if pod.tier in ("unschedulable", "gated") and (helped := pod.helped_by(change)):
                pod.go_back(helped, self.now)
        self.queue.add(info(built(pod.name, pod.priority, pod.colour, pod.gated)))

    @precondition(lambda self: self.pods)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        pod = data.draw(st.sampled_from(sorted(self.pods.values(), key=lambda pod: pod.name)))
        if pod.tier == "flight":
            pod.gone, pod.returned = True, False
        else:
            del self.pods[pod.name]
        self.queue.delete(self.uid(pod))

    @precondition(lambda self: self.pods)
    @rule(data=st.data())
    def activate(self, data: st.DataObject) -> None:
        self.pass_time()
        pod = data.draw(st.sampled_from(sorted(self.pods.values(), key=lambda pod: pod.name)))
        if pod.tier == "flight":
            pod.activated = True
        elif pod.tier == "backoff":
            pod.tier = "active"  # its gates were asked when its backoff began
        elif pod.tier != "active":
            pod.go_back(set(), pod.timestamp + 100.0)  # as if its backoff had ended
        self.queue.activate([self.uid(pod)])

    @rule(seconds=st.sampled_from((0.3, 1.0, 4.0, 400.0)))
    def time_passes(self, seconds: float) -> None:
        self.pass_time(seconds)
        for pod in self.waiting("backoff"):
            if not pod.backs_off(self.now):
                pod.tier = "active"
        self.queue.flush_backoff()

    @rule()
    def long_waits(self) -> None:
        left = 0
        for pod in self.waiting("unschedulable", "gated"):
            if self.now - max(pod.timestamp, pod.flushed_at) > 300.0:
                pod.flushed_at = self.now
                pod.go_back(set(), self.now)
                left += 1
        assert self.queue.flush_unschedulable() == left

    @invariant()
    def every_pod_is_where_the_model_has_it(self) -> None:
        seen = {pod.pod.name: tier.value for tier, pods in self.queue.pods().items() for pod in pods}
        seen |= {pod.pod.name: "flight" for pod in self.queue.pods_in_flight()}
        assert seen == {pod.name: pod.tier for pod in self.pods.values()}

    @invariant()
    def the_counts_agree(self) -> None:
        pods = self.queue.pods()
        assert self.queue.pending() == {tier.value: len(pods[tier]) for tier in pods}


TestQueue = QueueMachine.TestCase
TestQueue.settings = settings(stateful_step_count=60)

"""Pod groups in the queue, compared with a plain model that keeps one record for each group and each pod."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from extender.framework.cluster_events import NODE_ADD, Action, Change, Resource
from extender.framework.queueing_hints import Interest, Interests
from extender.framework.status import Refusal, unresolvable
from extender.queue.entries import GroupOutcome, QueuedGroup, QueuedPod, Tier
from extender.queue.priority_queue import PriorityQueue
from extender.runtime.clock import ManualClock
from extender.table import PodInfo
from tests.builders import make_pod
from tests.queue.queueing import QueueRecorder, info, refused, without_trees

FIT, FULL, GANG = "Fit", "Full", "GangScheduling"
MINIMUM = {"basic": 1, "pair": 2, "gang": 3}
INTERESTS = {
    FIT: Interests((Interest(Resource.NODE, Action.ADD),)),
    FULL: Interests(),
    GANG: Interests(),
}
NEW_NODE = Change(NODE_ADD)
RESULTS = ("placed", FIT, FULL, "error")


@dataclass(eq=False)
class Pod:
    """A pod in the model. `at` is "queue", "cycle" (its group is being tried) or "binding"."""

    name: str
    group: str
    at: str = "queue"
    refusals: int = 0
    errors: int = 0
    rules: frozenset[str] = frozenset()
    is_notified: bool = False
    gone: bool = False


@dataclass(eq=False)
class Group:
    """A waiting group in the model."""

    timestamp: float
    members: list[Pod]
    tier: str = ""
    refusals: int = 0
    errors: int = 0
    size: int = 1
    rejected: bool = False

    def expiry(self) -> float:
        count = self.errors or self.refusals
        return math.floor(self.timestamp + min(10.0 * self.size**0.5, 2.0 ** (count - 1))) if count else -math.inf


@dataclass(eq=False)
class Cycle:
    """The group that is being tried, and its members that will wait again."""

    key: str
    group: Group
    popped: QueuedGroup
    returned: list[Pod] = field(default_factory=list)
    helped: bool = False


class GroupMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.queue = PriorityQueue(QueueRecorder(), self.clock, INTERESTS, (self,), root_of=without_trees)
        self.pods: dict[str, Pod] = {}
        self.groups: dict[str, Group] = {}
        self.cycle: Cycle | None = None
        self.binding: dict[str, QueuedPod] = {}
        self.made = 0

    def refuse(self, pod: PodInfo) -> Refusal | None:
        """The PreEnqueue rule: a group waits until enough of its pods exist."""
        key = (pod.pod.group_key or "").rpartition("/")[2]
        return None if self.admits(key) else unresolvable(GANG, "too few")

    def admits(self, key: str) -> bool:
        return sum(pod.group == key and not pod.gone for pod in self.pods.values()) >= MINIMUM[key]

    @property
    def now(self) -> float:
        return self.clock.monotonic()

    # ---- what the model does

    def requeue(self, key: str, *, helped: bool = True) -> None:
        group = self.groups[key]
        if not helped:
            group.tier = "unschedulable"
        elif not self.admits(key):
            group.tier = "gated"
        else:
            group.tier = "backoff" if group.expiry() >= math.floor(self.now) else "active"

    def join(self, pod: Pod) -> None:
        pod.at = "queue"
        group = self.groups[pod.group]
        group.members.append(pod)
        if group.tier in ("unschedulable", "gated"):
            self.requeue(pod.group)
        elif not self.admits(pod.group):
            group.tier = "gated"

    def comes_back(self, pod: Pod, *, helped: bool) -> None:
        """A pod without a node, new or failed, waits again."""
        if self.cycle is not None and self.cycle.key == pod.group:
            pod.at = "cycle"
            self.cycle.returned.append(pod)
            self.cycle.helped = self.cycle.helped or helped
        elif pod.group in self.groups:
            self.join(pod)
        else:
            pod.at = "queue"
            group = self.groups[pod.group] = Group(self.now, [pod], refusals=pod.refusals, errors=pod.errors)
            group.rejected = bool(pod.rules)
            self.requeue(pod.group, helped=helped)

    def fail(self, pod: Pod, queued: QueuedPod, result: str) -> None:
        rules = frozenset[str]() if result == "error" else frozenset((result,))
        helped = not rules or (pod.is_notified and FIT in rules)
        pod.errors = pod.errors + 1 if not rules else 0
        pod.refusals += bool(rules)
        pod.rules = rules
        if pod.gone:
            del self.pods[pod.name]
        else:
            self.comes_back(pod, helped=helped)
        self.queue.add_unschedulable(queued, refused(*rules))

    # ---- steps

    @rule(key=st.sampled_from(sorted(MINIMUM)))
    def add(self, key: str) -> None:
        self.clock.advance(0.001)
        self.made += 1
        pod = self.pods[f"p{self.made}"] = Pod(f"p{self.made}", key)
        self.comes_back(pod, helped=True)
        self.queue.add(info(make_pod(pod.name).group(key)))

    @precondition(lambda self: self.cycle is None)
    @rule()
    def pop(self) -> None:
        ready = [key for key, group in self.groups.items() if group.tier == "active"]
        first = min(ready, key=lambda key: self.groups[key].timestamp, default=None)
        if first is None:
            backing_off = [key for key, group in self.groups.items() if group.tier == "backoff" and group.rejected]
            first = min(backing_off, key=lambda k: (self.groups[k].expiry(), self.groups[k].timestamp), default=None)
        popped = self.queue.pop(0)
        if first is None:
            assert popped is None
            return
        assert isinstance(popped, QueuedGroup)
        group = self.groups.pop(first)
        assert {pod.info.pod.name for pod in popped.pods} == {pod.name for pod in group.members}
        for pod in group.members:
            pod.at, pod.is_notified = "cycle", False
        self.cycle = Cycle(first, group, popped)

    @precondition(lambda self: self.cycle is not None)
    @rule(data=st.data(), outcome=st.sampled_from(GroupOutcome))
    def finish(self, data: st.DataObject, outcome: GroupOutcome) -> None:
        cycle = self.cycle
        assert cycle is not None
        self.clock.advance(0.001)
        results = RESULTS if outcome is GroupOutcome.SUCCESS else RESULTS[1:]
        tried = list(cycle.group.members)
        for pod in tried:
            queued = cycle.popped.members[info(pod.name).uid]
            result = data.draw(st.sampled_from(results))
            if result == "placed":
                pod.at = "binding"
                self.binding[pod.name] = queued
            else:
                self.fail(pod, queued, result)
        self.cycle = None
        if cycle.returned:
            self.wait_again(cycle, tried, outcome)
        self.queue.finish_group(cycle.popped, outcome)

    def wait_again(self, cycle: Cycle, tried: list[Pod], outcome: GroupOutcome) -> None:
        group = self.groups[cycle.key] = cycle.group
        group.members = cycle.returned
        group.size = len(group.members)
        group.rejected = outcome is GroupOutcome.REJECTED and any(pod.rules for pod in group.members)
        for pod in group.members:
            pod.at = "queue"
        if outcome is not GroupOutcome.SUCCESS or not set(tried) & set(group.members):
            group.timestamp = self.now
        match outcome:
            case GroupOutcome.SUCCESS:
                group.refusals = group.errors = 0
            case GroupOutcome.REJECTED:
                group.refusals, group.errors = group.refusals + 1, 0
            case GroupOutcome.ERROR:
                group.errors += 1
        self.requeue(cycle.key, helped=outcome is not GroupOutcome.REJECTED or cycle.helped)

    @precondition(lambda self: self.binding)
    @rule(data=st.data(), succeeds=st.booleans())
    def end_binding(self, data: st.DataObject, succeeds: bool) -> None:
        self.clock.advance(0.001)
        name = data.draw(st.sampled_from(sorted(self.binding)))
        queued, pod = self.binding.pop(name), self.pods[name]
        if succeeds:
            pod.at = "bound"
            self.queue.done(queued.uid)
        else:
            self.fail(pod, queued, "error")

    @precondition(lambda self: self.pods)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        pod = self.pods[data.draw(st.sampled_from(sorted(self.pods)))]
        in_flight = pod.at == "binding" or (
            self.cycle is not None and pod.at == "cycle" and pod not in self.cycle.returned
        )
        pod.gone = True
        if not in_flight:
            del self.pods[pod.name]
        if self.cycle is not None and pod in self.cycle.returned:
            self.cycle.returned.remove(pod)
        elif pod.at == "queue":
            group = self.groups[pod.group]
            group.members.remove(pod)
            if not group.members:
                del self.groups[pod.group]
            elif group.tier == "gated":
                self.requeue(pod.group)
        self.queue.delete(info(pod.name).uid)

    @rule()
    def a_node_comes(self) -> None:
        self.clock.advance(0.001)
        for pod in self.pods.values():
            pod.is_notified = pod.is_notified or pod.at in ("cycle", "binding")
        for key, group in self.groups.items():
            if group.tier == "unschedulable" and any(FIT in pod.rules for pod in group.members):
                self.requeue(key)
        self.queue.move(NEW_NODE)

    @rule(seconds=st.sampled_from((0.3, 1.0, 4.0, 30.0)))
    def time_passes(self, seconds: float) -> None:
        self.clock.advance(seconds)
        for group in self.groups.values():
            if group.tier == "backoff" and group.expiry() < math.floor(self.now):
                group.tier = "active"
        self.queue.flush_backoff()

    # ---- what always holds

    @invariant()
    def every_pod_is_where_the_model_has_it(self) -> None:
        seen = {pod.pod.name: tier.value for tier, pods in self.queue.pods().items() for pod in pods}
        seen |= {pod.pod.name: "flight" for pod in self.queue.pods_in_flight()}
        waiting = {pod.name: group.tier for group in self.groups.values() for pod in group.members}
        in_flight = {pod.name: "flight" for pod in self.pods.values() if pod.at in ("cycle", "binding")}
        assert seen == {**waiting, **in_flight}

    @invariant()
    def the_counts_agree(self) -> None:
        pods = self.queue.pods()
        assert self.queue.pending() == {tier.value: len(pods[tier]) for tier in pods}
        groups = Counter(group.tier for group in self.groups.values() if group.members)
        entities = {(tier, "podgroup"): number for tier, number in groups.items()}
        assert self.queue.entities() == {**{(tier.value, "pod"): 0 for tier in Tier}, **entities}


TestGroups = GroupMachine.TestCase
TestGroups.settings = settings(stateful_step_count=50)

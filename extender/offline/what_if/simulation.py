"""Pods scheduled on a copy of a cluster by the production queue, cycle and preemption, one after another."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random

from msgspec.structs import replace

from extender.framework.events.cluster_events import ASSIGNED_POD_ADD, ASSIGNED_POD_DELETE, Change
from extender.framework.topology import ZONE
from extender.model.pod import Pod, PodStatus
from extender.offline.claims.making import missing_templates, with_claims
from extender.offline.claims.using import release, reserve
from extender.offline.state import ClusterState, naming, rule_errors
from extender.offline.what_if import budgets
from extender.plugins.registry import INTERESTS
from extender.plugins.scheduling_gates import SchedulingGates
from extender.queue.backoff import Backoff
from extender.queue.priority_queue import PriorityQueue
from extender.queue.queued_pod import QueuedPod
from extender.runtime.clock import ManualClock
from extender.runtime.ports import Telemetry
from extender.scheduler.event_router import free_on
from extender.scheduler.scheduling_cycle import Chosen, SchedulingCycle, Unfit
from extender.table import PodInfo
from extender.table.podinfo import Group
from extender.table.pods.templates import twin

REGION = "topology.kubernetes.io/region"
PREEMPTION = "preemption"
GATED = "it is gated: no scheduler tries it until its scheduling gates are removed"
LEAVING = "it is being deleted: no scheduler tries it any more"
_MOST_ATTEMPTS_EACH = 50
_ARRIVAL_SECONDS = 1e-6

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Placement:
    """A pod that came to stand on `node`; `previous`: where it stood before, empty: nowhere."""

    pod: str
    node: str
    previous: str = ""


@dataclass(frozen=True, slots=True)
class Eviction:
    """A pod that had to leave `node`; `cause`: "drain", or "preemption by NAMESPACE/NAME".

    `comes_back`: its controller makes it anew, so that it waits again. Others are lost.
    """

    pod: str
    node: str
    cause: str
    comes_back: bool


@dataclass(slots=True)
class Log:
    """The events so far, in order. `kept`: pods that no budget lets leave a drained node -> the node."""

    placements: dict[str, Placement] = field(default_factory=dict)
    evictions: list[Eviction] = field(default_factory=list)
    reasons: dict[str, str] = field(default_factory=dict)
    kept: dict[str, str] = field(default_factory=dict)
    attempts: int = 0


class Simulation:
    """A cluster of its own in which time passes only as pods are tried.

    Args:
        state: is changed; give it a copy.
        seed: chooses between nodes of the same score.
        progress: is told how many pods are placed, and how many there are to place.
    """

    def __init__(self, state: ClusterState, seed: int = 0, progress: Progress | None = None) -> None:
        self.state, self.log = state, Log()
        self._random, self._progress = Random(seed), progress  # noqa: S311  ties between nodes
        self._cycles: dict[str, SchedulingCycle] = {}
        self._clock = ManualClock()
        self._queue = PriorityQueue(Telemetry(), self._clock, INTERESTS, (SchedulingGates(),), Backoff(max_seconds=0.0))
        self._came_from: dict[str, str] = {}
        self._labelled: dict[tuple[Group, tuple[tuple[str, str], ...]], tuple[dict[str, str], Group]] = {}
        self._made_anew = self._expected = 0

    def add(self, infos: Iterable[PodInfo]) -> None:
        """Has pods wait to be placed, in this order; among those of one priority the first goes first."""
        for given in infos:
            info = self._with_claims(given)
            self.state.add_info(info)
            self._expected += 1
            if info.pod.terminating:
                self.log.reasons[info.pod.key] = LEAVING
                continue
            if info.pod.spec.scheduling_gates:
                self.log.reasons[info.pod.key] = GATED
            self._clock.advance(_ARRIVAL_SECONDS)
            self._queue.add(info)

    def run(self) -> None:
        """Tries pods until nothing moves.

        Raises:
            RuleFailed: a rule of the user's raised.
            MalformedCluster: a pod states a quantity that is none.
        """
        most = self.log.attempts + _MOST_ATTEMPTS_EACH * (self._expected + 10)
        while self.log.attempts < most and (queued := self._queue.pop(0)) is not None:
            self.log.attempts += 1
            decided = self._decide(queued.info)
            if isinstance(decided, Chosen):
                self._place(queued.info, decided)
            else:
                self._refuse(queued, decided)

    def evict(self, info: PodInfo, cause: str) -> None:
        """Takes a pod off its node; where it has a controller it waits again, as a new pod of the same name."""
        pod, owner = info.pod, info.pod.controller
        comes_back = owner is not None and owner.kind != "Node"
        self.log.evictions.append(Eviction(pod.key, pod.node_name, cause, comes_back))
        budgets.count(info, -1, self.state.table)
        self._take_away(info)
        self.log.placements.pop(pod.key, None)
        if comes_back:
            self._came_from.setdefault(pod.key, pod.node_name)
            self.add([PodInfo(self._anew(pod))])

    def remove(self, info: PodInfo) -> None:
        """Takes a pod out of the cluster for good, whether it stands or waits."""
        self._queue.delete(info.uid)
        self._take_away(info)
        self.log.reasons.pop(info.pod.key, None)

    def _with_claims(self, info: PodInfo) -> PodInfo:
        """The pod with the claims that controllers make for it."""
        pod = info.pod if info.pod.terminating else with_claims(self.state, info.pod)
        return info if pod is info.pod else twin(info, pod)

    def _take_away(self, info: PodInfo) -> None:
        """Takes the pod off its node, and what goes with it; pods wait again for what that leaves."""
        pod = self.state.infos.get(info.pod.key, info).pod
        self.state.remove_pod(info)
        changes = release(self.state, pod)
        if pod.node_name:
            changes.append(Change(ASSIGNED_POD_DELETE, info, room=partial(free_on, self.state.table, pod.node_name)))
        for change in changes:
            self._queue.move(change)

    def _decide(self, info: PodInfo) -> Chosen | Unfit:
        try:
            with self.state.limit.begin(self.state.table):
                return self._cycle(info.pod).schedule_pod(info, self.state.table)
        except Exception:
            with naming(info.pod), rule_errors():
                raise

    def _cycle(self, pod: Pod) -> SchedulingCycle:
        profile = self.state.profile(pod)
        if profile.name not in self._cycles:
            self._cycles[profile.name] = SchedulingCycle(profile, self._random)
        return self._cycles[profile.name]

    def _place(self, info: PodInfo, chosen: Chosen) -> None:
        reserve(self.state, info.pod, chosen)
        standing = self._standing(info, chosen.node_name)
        self.state.add_info(standing)
        key = info.pod.key
        self.log.placements[key] = Placement(key, chosen.node_name, self._came_from.get(key, ""))
        self.log.reasons.pop(key, None)
        self._queue.done(info.uid)
        self._queue.move(Change(ASSIGNED_POD_ADD, None, standing))
        if key in self._came_from:
            budgets.count(standing, +1, self.state.table)
        if self._progress:
            self._progress(len(self.log.placements), self._expected)

    def _refuse(self, queued: QueuedPod, unfit: Unfit) -> None:
        pod, plan = queued.info.pod, unfit.preemption
        missing = missing_templates(pod, self.state.table.objects)
        self.log.reasons[pod.key] = unfit.message + (f" ({'; '.join(missing)})" if missing else "")
        if not unfit.rejection.rules:  # an error: it would be the same again
            self._queue.done(pod.uid)
            return
        if unfit.nominated_node is not None and unfit.nominated_node != pod.status.nominated_node_name:
            info = PodInfo(pod.nominated_to(unfit.nominated_node))
            self.state.add_info(info)
            self._queue.add(info)
        self._queue.add_unschedulable(queued, unfit.rejection)
        for outranked in plan.outranked if plan else ():
            self.state.add_info(PodInfo(outranked.pod.nominated_to("")))
            self._queue.add(self.state.infos[outranked.pod.key])
        for victim in plan.victims if plan else ():
            self.evict(victim, f"{PREEMPTION} by {pod.key}")

    def _standing(self, info: PodInfo, node_name: str) -> PodInfo:
        """The pod on the node, with the labels of its zone and region (upstream PodTopologyLabelsAdmission)."""
        pod = info.pod.placed_on(node_name)
        if pod.status.nominated_node_name:
            pod = pod.nominated_to("")
        labels = self.state.node(node_name).labels
        topology = tuple([(key, labels[key]) for key in (ZONE, REGION) if key in labels])
        if not topology:
            return twin(info, pod)
        if (info.group, topology) not in self._labelled:
            labelled = {**pod.labels, **dict(topology)}
            self._labelled[info.group, topology] = labelled, Group(pod.namespace, frozenset(labelled.items()))
        labelled, group = self._labelled[info.group, topology]
        standing = twin(info, replace(pod, metadata=replace(pod.metadata, labels=labelled)))
        standing.group = group
        return standing

    def _anew(self, pod: Pod) -> Pod:
        """The pod as its controller makes it again."""
        self._made_anew += 1
        labels = {key: value for key, value in pod.labels.items() if key not in (ZONE, REGION)}
        metadata = replace(
            pod.metadata, uid=f"{pod.uid}~{self._made_anew}", labels=labels or None, deletion_timestamp=None
        )
        return replace(pod.placed_on(""), metadata=metadata, status=PodStatus())


def in_order(infos: Iterable[PodInfo]) -> Sequence[PodInfo]:
    """The pods as they came, the oldest first."""

    def came(info: PodInfo) -> tuple[float, str]:
        created = info.pod.metadata.creation_timestamp
        return created.timestamp() if created else 0.0, info.pod.key

    return sorted(infos, key=came)

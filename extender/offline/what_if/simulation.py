"""Schedules pods one by one on a copy of a cluster, with the scheduler's own queue, cycle and preemption."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from random import Random
from typing import NamedTuple

from msgspec.structs import replace

from extender.engine import Engine
from extender.engine.decision import Chosen, Failure
from extender.framework.cluster_events import ASSIGNED_POD_ADD, ASSIGNED_POD_DELETE, Change, node_events
from extender.framework.profile import PreEnqueueRules
from extender.framework.topology import ZONE
from extender.model.meta import Condition
from extender.model.node import Node
from extender.model.pod import Pod
from extender.model.workloads import PodDisruptionBudget
from extender.offline import remarks
from extender.offline.answers import Documented
from extender.offline.claims import missing_templates, release, reserve, with_claims
from extender.offline.groups import group_placement, root_name
from extender.offline.nodes import chosen_devices
from extender.offline.replicas import is_node_lost, is_of_running_job, is_ready, recreates, was_disrupted
from extender.offline.state import ClusterState
from extender.offline.what_if import budgets
from extender.offline.workloads import as_created, in_order
from extender.plugins.registry import INTERESTS, users_rules
from extender.queue.entries import QueuedGroup, QueuedPod
from extender.queue.heaps import Backoff
from extender.queue.priority_queue import PriorityQueue
from extender.runtime.clock import ManualClock, known_so_far
from extender.runtime.ports import Nominating, Telemetry
from extender.runtime.text import counted
from extender.scheduler.event_router import free_on
from extender.table import PodInfo
from extender.table.podinfo import Group, of_one_template, twin

REGION = "topology.kubernetes.io/region"
PREEMPTION = "preemption"
GATED = "it is gated: no scheduler tries it until its scheduling gates are removed"
TERMINATING = "it is being deleted: no scheduler tries it again"
_PENDING, _RUNNING, _READY = "Pending", "Running", "Ready"
_MOST_ATTEMPTS_PER_POD = 50
_ARRIVAL_SECONDS = 1e-6

Progress = Callable[[int, int], None]
"""A function that is called with the number of pods handled so far and the total."""


class Placement(Documented, frozen=True):
    """A pod that was placed.

    Attributes:
        pod: the pod, as `namespace/name`.
        node: the node on which it was placed.
        previous: the node from which the pod was evicted before; None if the pod was not evicted.
        devices: the devices that its claims got, as `driver/pool/device`.
    """

    pod: str
    node: str
    previous: str | None = None
    devices: Sequence[str] = ()


class Eviction(Documented, frozen=True):
    """A pod that was evicted.

    Attributes:
        pod: the pod, as `namespace/name`.
        node: the node from which it was evicted.
        cause: "drain", "node NAME removed", "preemption by NAMESPACE/NAME" or "Job NAME failed".
        comes_back: True if a controller recreates the pod, so that it is scheduled again. Other pods are lost.
    """

    pod: str
    node: str
    cause: str
    comes_back: bool


class _Refused(NamedTuple):
    """The last pod that was refused, why, and the position of the table's journal. Nothing changes until that moves."""

    info: PodInfo
    failure: Failure
    position: int


@dataclass(slots=True)
class Log:
    """The log of a simulation: its placements, evictions and refusals so far.

    Attributes:
        placements: the pod's key -> its placement, in the order in which pods were placed.
        evictions: the evictions in their order.
        reasons: the pod's key -> why it is pending.
        lost_members: PodGroup -> the number of its members that were evicted and are not recreated.
        kept: the pod's key -> the drained node on which it stays, because no budget allows its eviction.
        attempts: the number of scheduling attempts.
    """

    placements: dict[str, Placement] = field(default_factory=dict)
    evictions: list[Eviction] = field(default_factory=list)
    reasons: dict[str, str] = field(default_factory=dict)
    lost_members: Counter[str] = field(default_factory=Counter)
    kept: dict[str, str] = field(default_factory=dict)
    attempts: int = 0


class Simulation:
    """A simulation of the scheduler on a cluster in memory; its clock advances only when pods are added.

    Args:
        state: the cluster. The simulation changes it, so pass a copy.
        seed: the seed of the random choice between nodes with the same score.
        progress: called with the number of placed pods and the number to place.
        now: the time at which controllers delete surplus pods; by default the current time.

    Attributes:
        tried: the pods that were put into the queue, including gated pods, by `namespace/name`.
    """

    def __init__(
        self, state: ClusterState, seed: int = 0, progress: Progress | None = None, now: datetime | None = None
    ) -> None:
        self.state = state
        self.now = now or datetime.now(UTC)
        self.log = Log()
        self.tried: dict[str, Pod] = {}
        random = Random(seed)  # noqa: S311  breaks ties between nodes
        self._engine = Engine(state.table, state.profiles, state.engine.limit, random)
        self._progress = progress
        self._clock = ManualClock()
        admission = PreEnqueueRules(state.profiles.of, state.table)
        self._queue = PriorityQueue(
            Telemetry(),
            self._clock,
            INTERESTS,
            (admission,),
            Backoff(max_seconds=0.0),
            root_of=partial(root_name, state.objects),
        )
        self._previous_nodes: dict[str, str] = {}
        self._labelled: dict[tuple[Group, tuple[tuple[str, str], ...]], tuple[dict[str, str], Group]] = {}
        self._recreated = 0
        self._to_place = 0
        self._last_refused: _Refused | None = None

    def add(self, infos: Iterable[PodInfo]) -> None:
        """Adds pods to the queue. Pods of equal priority are tried in the order in which they were added."""
        for info in infos:
            pod = info.pod if info.pod.terminating else with_claims(self.state, info.pod)
            info = info if pod is info.pod else twin(info, pod)
            self._to_place += 1
            if info.pod.node_name:
                self._bind_directly(info)
                continue
            self.state.add_info(info)
            if info.pod.terminating:
                self.log.reasons[info.pod.key] = TERMINATING
                continue
            if info.pod.spec.scheduling_gates:
                self.log.reasons[info.pod.key] = GATED
            self.tried[info.pod.key] = info.pod
            self._clock.advance(_ARRIVAL_SECONDS)
            self._queue.add(info)

    def _bind_directly(self, info: PodInfo) -> None:
        """Places a pod on the node that its manifest names, without a scheduler.

        If the pod cannot run on that node, it stays pending, and the log gets the reason.
        """
        pod, node_name = info.pod, info.pod.node_name
        objection = remarks.kubelet_objection(pod, self.state)
        if objection is None:
            self.state.add_info(twin(info, _starting_on(node_name, pod)))
            self.log.placements[pod.key] = Placement(pod.key, node_name)
        else:
            self.state.add_info(PodInfo(pod.placed_on("")))
            self.log.reasons[pod.key] = f"spec.nodeName binds it to {node_name}, but {objection}"

    def run(self) -> None:
        """Tries to place the queued pods until nothing changes.

        Raises:
            RuleFailed: a user's rule raised.
            MalformedCluster: a pod has a malformed quantity.
        """
        most = self.log.attempts + _MOST_ATTEMPTS_PER_POD * (self._to_place + 10)
        with known_so_far(lambda: f"{len(self.log.placements)} of {counted(self._to_place, 'pod')} are placed"):
            while self.log.attempts < most and (queued := self._queue.pop(0)) is not None:
                self.log.attempts += 1
                if isinstance(queued, QueuedGroup):
                    self._try_group(queued)
                    continue
                outcome = self._decide(queued.info)
                if isinstance(outcome, Chosen):
                    self._place(queued.info, outcome)
                else:
                    self._refuse(queued, outcome)

    def settle(self) -> None:
        """Runs the scheduler, and lets kubelets end and start pods in the meantime, until nothing changes.

        A pod that is being deleted leaves its node, unless no kubelet answers there; pods that wait for its room are
        tried again. A pod on a node becomes ready, so budgets count it as healthy.
        """
        self.run()
        while self._end_pods():
            self.run()
        self._start_pods()

    def _end_pods(self) -> bool:
        """Removes the pods that are being deleted; returns True if there were any."""
        leaving = [info for info in self.state.infos.values() if info.pod.terminating and self._is_served(info.pod)]
        for info in in_order(leaving):
            had_job = is_of_running_job(info.pod, self.state)
            comes_back = recreates(info.pod, self.state, is_disrupted=was_disrupted(info.pod))
            self._take_off(info)
            self._replace(info.pod, comes_back=comes_back, had_job=had_job)
        return bool(leaving)

    def _start_pods(self) -> None:
        """Makes the pods on nodes ready that are not running yet."""
        if not self.state.objects.all(PodDisruptionBudget):
            return  # nothing else depends on it
        on_nodes = [info for info in self.state.infos.values() if info.pod.node_name]
        for info in on_nodes:
            pod = info.pod
            if pod.status.phase == _PENDING and not pod.terminating and self._is_served(pod):
                status = replace(pod.status, phase=_RUNNING, conditions=[Condition(type=_READY, status="True")])
                self.state.add_info(PodInfo(replace(pod, status=status)))
                budgets.count_healthy(pod, +1, self.state)

    def _is_served(self, pod: Pod) -> bool:
        """Returns True if a kubelet starts and ends the pod. If its node is gone, the pod is deleted (PodGC)."""
        name = pod.node_name
        return bool(name) and not (self.state.has_node(name) and is_node_lost(self.state.node(name)))

    def update_node(self, node: Node) -> None:
        """Replaces a node by a new version of it, and moves the pods that may now fit to the active queue."""
        old = self.state.node(node.name)
        self.state.add(node)
        for event in node_events(old, node):
            self._queue.move(Change(event, old, node))

    def evict(self, info: PodInfo, cause: str, *, recreated_by_user: bool = False) -> None:
        """Removes a pod from its node. If a controller would recreate it, a new pod of the same name is queued.

        If the pod's Job fails because of it, the Job's other pods are removed, too. A pod that has been removed in this
        way is not evicted again.
        """
        pod = info.pod
        if (current := self.state.infos.get(pod.key)) is None or current.uid != info.uid:
            return
        had_job = is_of_running_job(pod, self.state)
        comes_back = recreates(pod, self.state) or recreated_by_user
        self._take_away(info, cause, comes_back=comes_back)
        if comes_back:
            self._previous_nodes.setdefault(pod.key, pod.node_name)
        self._replace(pod, comes_back=comes_back, had_job=had_job)

    def _replace(self, pod: Pod, *, comes_back: bool, had_job: bool) -> None:
        """Queues the pod that a controller creates instead of this one; removes all pods of a Job that has failed."""
        if comes_back:
            self.add([PodInfo(self._as_recreated(pod))])
        elif had_job and not is_of_running_job(pod, self.state):
            assert pod.controller is not None
            siblings = (each for each in self.state.infos.values() if each.pod.namespace == pod.namespace)
            for other in [each for each in siblings if each.pod.controller == pod.controller]:
                if not other.pod.terminating:
                    self._take_away(other, f"Job {pod.controller.name} failed", comes_back=False)

    def _take_away(self, info: PodInfo, cause: str, *, comes_back: bool) -> None:
        """Removes a pod that a controller, a node's end or a scheduler deletes, and logs the eviction."""
        pod = info.pod
        self.log.evictions.append(Eviction(pod.key, pod.node_name, cause, comes_back))
        if not comes_back and pod.group_key is not None:
            self.log.lost_members[pod.group_key] += 1
        self.remove(info)
        self.log.placements.pop(pod.key, None)

    def remove(self, info: PodInfo) -> None:
        """Deletes a pod, whether it is on a node or pending; no controller recreates it."""
        self._queue.delete(info.uid)
        self._take_off(info)
        self.log.reasons.pop(info.pod.key, None)

    def _take_off(self, info: PodInfo) -> None:
        """Removes the pod and its claims, and moves the pods that may now fit to the active queue."""
        pod = self.state.infos.get(info.pod.key, info).pod
        if is_ready(pod) and not pod.terminating:
            budgets.count_healthy(pod, -1, self.state)
        self.state.remove_pod(info)
        changes = release(self.state, pod)
        if pod.node_name:
            changes.append(Change(ASSIGNED_POD_DELETE, info, room=partial(free_on, self.state.table, pod.node_name)))
        for change in changes:
            self._queue.move(change)

    def _decide(self, info: PodInfo) -> Chosen | Failure:
        """Returns the decision about the pod. The replicas of a refused pod share its failure while nothing changes.

        A manifest may ask for 100,000 replicas, of which a few fit.
        """
        journal, last, profile = self.state.table.journal, self._last_refused, self.state.profiles.of(info.pod)
        if last is not None and last.position == journal.now and _are_replicas(last.info, info):
            return last.failure
        decided = self._engine.attempt(info)
        has_own_rules = users_rules(profile) or profile.post_filter
        if isinstance(decided, Failure) and not (decided.preemption or decided.node_to_nominate or has_own_rules):
            self._last_refused = _Refused(info, decided, journal.now)
        return decided

    def _try_group(self, queued: QueuedGroup) -> None:
        """Places the waiting members of a root group together; places none if too few of them fit."""
        waiting = queued.in_order()
        outcome = group_placement(self.state, queued.root, [pod.info for pod in waiting], self._engine)
        for pod in waiting:
            chosen = outcome.placed.get(pod.uid)
            if chosen is not None:
                self._place(pod.info, chosen)
        for pod in waiting:
            if pod.uid not in outcome.placed:
                self._refuse(pod, outcome.failures[pod.uid])
        self._queue.finish_group(queued, outcome.result)
        # The group is back in the queue, so these evictions cause another attempt.
        self._preempt(outcome.victims, f"{queued.root.kind} {queued.root.key}")

    def _place(self, info: PodInfo, chosen: Chosen) -> None:
        reserve(self.state, info.pod, chosen)
        placed = self._placed(info.annotated(chosen.annotations), chosen.node_name)
        self.state.add_info(placed)
        key = info.pod.key
        self.log.placements[key] = Placement(
            key, chosen.node_name, self._previous_nodes.get(key), chosen_devices(chosen)
        )
        self.log.reasons.pop(key, None)
        self._queue.done(info.uid)
        self._queue.move(Change(ASSIGNED_POD_ADD, None, placed))
        if self._progress:
            self._progress(len(self.log.placements), self._to_place)

    def _refuse(self, queued: QueuedPod, unfit: Failure) -> None:
        pod, plan = queued.info.pod, unfit.preemption
        missing = missing_templates(pod, self.state.objects)
        self.log.reasons[pod.key] = unfit.message + (f" ({'; '.join(missing)})" if missing else "")
        if not unfit.rejection.rules:  # the attempt ended in an error, which would occur again
            self._queue.done(pod.uid)
            return
        node_name = unfit.node_to_nominate
        if unfit.nominated_node is not Nominating.KEEP and node_name != pod.status.nominated_node_name:
            info = PodInfo(pod.nominated_to(node_name))
            self.state.add_info(info)
            self._queue.add(info)
        self._queue.add_unschedulable(queued, unfit.rejection)
        for outranked in plan.outranked if plan else ():
            self.state.add_info(PodInfo(outranked.pod.nominated_to("")))
            self._queue.add(self.state.infos[outranked.pod.key])
        self._preempt(plan.victims if plan else (), pod.key)

    def _preempt(self, victims: Iterable[PodInfo], preemptor: str) -> None:
        """Evicts the victims, except those that are being deleted already: `settle` ends them."""
        for victim in victims:
            if not victim.pod.terminating:
                self.evict(victim, f"{PREEMPTION} by {preemptor}")

    def _placed(self, info: PodInfo, node_name: str) -> PodInfo:
        """Returns the pod placed on the node, with its zone and region labels (upstream PodTopologyLabelsAdmission)."""
        pod = _starting_on(node_name, info.pod)
        labels = self.state.node(node_name).labels
        topology = tuple([(key, labels[key]) for key in (ZONE, REGION) if key in labels])
        if not topology:
            return twin(info, pod)
        if (info.group, topology) not in self._labelled:
            labelled = {**pod.labels, **dict(topology)}
            self._labelled[info.group, topology] = labelled, Group.of(pod.namespace, labelled)
        labelled, group = self._labelled[info.group, topology]
        placed = twin(info, replace(pod, metadata=replace(pod.metadata, labels=labelled)))
        placed.group = group
        return placed

    def _as_recreated(self, pod: Pod) -> Pod:
        """Returns the pod that the controller creates for an evicted pod: without a node, a status or the old UID."""
        self._recreated += 1
        labels = {key: value for key, value in pod.labels.items() if key not in (ZONE, REGION)}
        created = as_created(pod)
        metadata = replace(created.metadata, uid=f"{pod.uid}~{self._recreated}", labels=labels or None)
        return replace(created, metadata=metadata)


def _are_replicas(one: PodInfo, other: PodInfo) -> bool:
    """Returns True if the same decision is made about both pods, as about two replicas of a workload without claims."""
    return (
        one.group == other.group
        and one.priority == other.priority
        and one.pod.spec.preemption_policy == other.pod.spec.preemption_policy
        and one.pod.status.nominated_node_name == other.pod.status.nominated_node_name
        and not (one.volumes or other.volumes or one.pod.spec.resource_claims)
        and of_one_template(one.pod, other.pod)
    )


def _starting_on(node_name: str, pod: Pod) -> Pod:
    """Returns the pod on a node whose kubelet has not started it yet."""
    status = replace(pod.status, phase=_PENDING, conditions=None, nominated_node_name="")
    return replace(pod.placed_on(node_name), status=status)

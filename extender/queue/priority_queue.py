"""Implements the scheduling queue: which pod is tried next, and when a rejected pod is tried again.

                                       no event may help
    add --> ACTIVE                  .--------------------> UNSCHEDULABLE --.
              |                     |                                      | an event may help,
              |-- pop --> in flight -- rejected --.                        | or it waited too long
              |                 |                 v                        v
              |                 '--> done       BACKOFF, or ACTIVE if it need not back off
              |                                   |
              '--------- the backoff ends --------'

The names in capitals are the tiers in which pods wait. A pod that would enter BACKOFF or ACTIVE goes to GATED instead
if a PreEnqueue rule does not admit it. Each pod is either in one tier or in flight (being scheduled or bound). Source:
upstream backend/queue/scheduling_queue.go (PriorityQueue).

The waiting members of a pod group move through the tiers together, and are popped together. While the group is being
tried (from `pop` until `finish_group`), members that fail and members that arrive are kept aside. They return to the
queue together when the attempt ends. One difference from upstream: there a rejected group is tried again after its
backoff, here it waits like a single pod for an event that may help one of its members.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from extender.errors import IllegalTransition
from extender.framework.cluster_events import (
    ASSIGNED_POD_DELETE,
    EVENTS_MISSED,
    FORCE_ACTIVATE,
    POLICY_RELOAD,
    RULE_WAKE,
    SCHEDULE_ATTEMPT_FAILURE,
    UNSCHEDULED_POD_ADD,
    Change,
    pod_events,
)
from extender.framework.queueing_hints import Interests, QueueingHints
from extender.framework.rules import PreEnqueue
from extender.framework.status import NO_REJECTION, Rejection
from extender.model.meta import NO_LABELS
from extender.model.pod_groups import GroupName
from extender.queue.entries import (
    Entity,
    Flight,
    GroupOutcome,
    InFlight,
    QueuedGroup,
    QueuedPod,
    RootOf,
    Tier,
    entity_type,
)
from extender.queue.heaps import CHEAP_SECONDS, Backoff, Order, priority_sort, tenant_of
from extender.queue.sub_queues import Helped, Place, Strategy, SubQueues, strategy_of
from extender.runtime.clock import Clock
from extender.runtime.ports import Telemetry
from extender.table import PodInfo

MAX_UNSCHEDULABLE_SECONDS = 300.0  # a pod that has waited longer for an event is tried again without one
BACKLOG = 50  # with more ready pods than this, trying all of them takes a noticeable time
PART = 500  # how many pods are moved before the lock is released for a moment
YIELD_SECONDS = 0.0002


@dataclass(slots=True)
class GroupCycle:
    """The attempt of a group, from `pop` until `finish_group`.

    Attributes:
        returned: UID -> member, for the members that will wait again when the attempt ends.
        strategy: how the group is requeued if it is rejected; decided by the events since `pop`.
    """

    group: QueuedGroup
    returned: dict[str, QueuedPod] = field(default_factory=dict)
    strategy: Strategy = Strategy.SKIP

    def add(self, pod: QueuedPod, strategy: Strategy) -> None:
        self.returned[pod.uid] = pod
        self.strategy = max(self.strategy, strategy)


class PriorityQueue:
    """All pods that wait to be scheduled or are being scheduled. Thread-safe.

    The owner calls `flush_backoff` every second (heaps.WINDOW_SECONDS) and `flush_unschedulable` every 30 seconds.

    Args:
        interests: rule -> the events that may help the pods that the rule rejected.
        pre_enqueue: the rules that must admit a pod before it is tried.
        order: the sort key of ready pods. It may change with the rules, and all pods are then sorted again.
        root_of: returns the root group of a member's PodGroup; None if every pod is tried alone (without
            GenericWorkload).

    Attributes:
        lock: held while the queue changes. A caller that reads the queue in several steps may hold the lock, too.
    """

    def __init__(
        self,
        telemetry: Telemetry,
        clock: Clock,
        interests: Mapping[str, Interests],
        pre_enqueue: Sequence[PreEnqueue] = (),
        backoff: Backoff = Backoff(),  # noqa: B008  frozen
        order: Order = priority_sort,
        *,
        root_of: RootOf | None = None,
    ) -> None:
        self._clock = clock
        self._root_of = root_of
        self._cycle: GroupCycle | None = None
        self.lock = threading.Condition()
        self._closed = threading.Event()
        self._hints = QueueingHints(interests, telemetry.rule_failed)
        self._tiers = SubQueues(self._hints, pre_enqueue, backoff, telemetry, self.lock.notify, order)
        self._in_flight = InFlight()

    # ---- waiting pods, as the watch shows them

    def add(self, info: PodInfo) -> None:
        """Adds a waiting pod, or updates the pod if it is in the queue; the update may make it schedulable."""
        with self.lock:
            if flight := self._in_flight.get(info.uid):
                flight.update(info)
            elif self._cycle is not None and info.uid in self._cycle.returned:
                self._cycle.returned[info.uid].info = info
            elif (place := self._tiers.find(info.uid)) is not None:
                self._update(place, info, self._clock.monotonic())
            else:
                self._add(info)

    def delete(self, uid: str) -> None:
        """Removes a pod that was deleted or bound."""
        with self.lock:
            if flight := self._in_flight.get(uid):
                flight.gone = True
                flight.returned = False
            elif self._cycle is not None and uid in self._cycle.returned:
                del self._cycle.returned[uid]
            elif (place := self._tiers.find(uid)) is not None:
                self._tiers.leave(place, self._clock.monotonic())

    # ---- calls of the scheduling loop

    def pop(self, timeout_seconds: float | None = None) -> Entity | None:
        """Waits for a pod or group and returns it; its pods are in flight until `done` or `add_unschedulable`.

        For a group, the caller must call `finish_group` before it calls `pop` again. Returns None if the queue is
        closed, or if nothing is ready within `timeout_seconds`.
        """
        with self.lock:
            self.lock.wait_for(lambda: self._closed.is_set() or self._tiers.ready, timeout_seconds)
            entity = None if self._closed.is_set() else self._tiers.pop(self._clock.monotonic())
            if entity is None:
                return None
            for pod in entity.pods:
                pod.attempts += 1
                self._in_flight.start(pod)
            if isinstance(entity, QueuedGroup):
                entity.attempts += 1
                self._cycle = GroupCycle(entity)
            return entity

    def slice_seconds(self, entity: Entity) -> float:
        """Returns how long the attempt of a popped entity may take before it gives way to others; see `heaps`."""
        return self._tiers.costs.slice_seconds(entity, self._clock.monotonic())

    def others_wait(self, entity: Entity) -> bool:
        """Returns True if an attempt of this entity, whose slice of time is over, should give way to others."""
        with self.lock:
            return self._tiers.active.others_wait(entity, self._clock.monotonic())

    def spent(self, entity: Entity, seconds: float, *, gave_way: bool = False) -> None:
        """Records how long the deciding thread worked for a popped entity. Called before its attempt ends."""
        with self.lock:
            self._tiers.costs.record(tenant_of(entity), seconds, self._clock.monotonic(), gave_way=gave_way)
            for each in (entity, *entity.pods):
                each.cost_seconds = seconds if seconds >= CHEAP_SECONDS else 0.0
                each.times_given_way = each.times_given_way + 1 if gave_way else 0

    def finish_group(self, group: QueuedGroup, outcome: GroupOutcome) -> None:
        """Ends a group's attempt, and requeues the members that failed in it or arrived during it.

        If the outcome is SUCCESS, these members are tried at once. If it is REJECTED, they wait for an event that may
        help; if such an event arrived during the attempt, they wait at most until their backoff ends. If it is ERROR,
        they wait until their backoff ends.
        """
        with self.lock:
            cycle = self._cycle
            if cycle is None or cycle.group is not group:
                raise IllegalTransition(f"pod group {group.root.key} is not being tried: its attempt cannot end")
            self._cycle = None
            now = self._clock.monotonic()
            self._requeue_moved_members(cycle, now)
            if not cycle.returned:
                return
            group.ended(outcome, cycle.returned.values(), now)
            if outcome is GroupOutcome.SUCCESS:
                self._tiers.activate(group, SCHEDULE_ATTEMPT_FAILURE, now, admitted=False)
            else:
                strategy = cycle.strategy if outcome is GroupOutcome.REJECTED else Strategy.AFTER_BACKOFF
                self._tiers.requeue(group, strategy, SCHEDULE_ATTEMPT_FAILURE, now)

    def stop_recording_events(self, uid: str) -> None:
        """Stops recording events for this pod's attempt. Call this when later events can no longer help the pod."""
        with self.lock:
            self._in_flight.stop_recording_events(uid)

    def record_events_again(self, uid: str) -> None:
        """Records events again for this pod's attempt. Call this before a rule that may reject the pod."""
        with self.lock:
            self._in_flight.record_events_again(uid)

    def done(self, uid: str) -> None:
        """Ends a pod's attempt; the pod leaves the queue.

        If the pod was deleted and then appeared again during the attempt, it is put back into the queue.
        """
        with self.lock:
            flight = self._in_flight.end(uid)
            if flight is not None and flight.returned:
                self._add(flight.latest)

    def add_unschedulable(self, pod: QueuedPod, rejection: Rejection) -> Tier | None:
        """Ends the attempt of a pod that was not scheduled, and puts the pod back into the queue.

        The pod waits for an event that may help it. After an error, or if such an event arrived during the attempt, the
        pod waits at most for its backoff.

        Returns:
            The tier where the pod waits now; None if the pod was deleted or bound during the attempt. A member of a
            group that is still being tried counts as UNSCHEDULABLE, and moves with its group when the group's attempt
            ends.

        Raises:
            IllegalTransition: the pod is not in flight.
        """
        with self.lock:
            flight = self._in_flight.get(pod.uid)
            if flight is None or flight.pod is not pod:
                raise IllegalTransition(f"pod {pod.info.pod.key} is not in flight: it cannot return to the queue")
            now = self._clock.monotonic()
            pod.failed(flight.latest, rejection, now)
            strategy = self._strategy_after(flight)
            self._in_flight.end(pod.uid)
            return None if flight.gone else self._requeue_failed(pod, strategy, now)

    def activate(self, uids: Iterable[str]) -> None:
        """Makes these pods ready to be tried. A pod in flight does not wait for an event if its attempt fails."""
        with self.lock:
            now = self._clock.monotonic()
            for uid in uids:
                if flight := self._in_flight.get(uid):
                    flight.activated = True
                elif self._cycle is not None and uid in self._cycle.returned:
                    self._cycle.strategy = Strategy.AFTER_BACKOFF
                elif (place := self._tiers.find(uid)) is not None and place.tier is not Tier.ACTIVE:
                    admitted = place.tier is Tier.BACKOFF
                    self._tiers.activate(place.entity, FORCE_ACTIVATE, now, admitted=admitted)

    def back_off(self, uid: str) -> None:
        """Moves a pod that waits for an event to the backoff queue, as if its attempt had ended in an error."""
        with self.lock:
            if flight := self._in_flight.get(uid):
                flight.activated = True
            elif self._cycle is not None and uid in self._cycle.returned:
                self._cycle.strategy = Strategy.AFTER_BACKOFF
            elif (place := self._tiers.find(uid)) is not None and place.tier in (Tier.UNSCHEDULABLE, Tier.GATED):
                entity, now = place.entity, self._clock.monotonic()
                entity.rejection = NO_REJECTION
                entity.timestamp = now
                self._tiers.requeue(entity, Strategy.AFTER_BACKOFF, SCHEDULE_ATTEMPT_FAILURE, now)

    def close(self) -> None:
        """Closes the queue: every current and later `pop` returns None."""
        with self.lock:
            self._closed.set()
            self.lock.notify_all()

    # ---- reactions to events and to the passing of time

    def move(self, change: Change, *, up_to_priority: int | None = None) -> int:
        """Requeues the waiting pods that the change may help, and returns their number.

        Args:
            up_to_priority: only pods with at most this priority are requeued; None means all.
        """
        with self.lock:
            self._in_flight.record(change)
            helped = self._tiers.helped_by(change, up_to_priority)
        return self._requeue(helped, change.event.label) if helped else 0

    def wake(self, rule: str, namespace: str | None = None, labels: Mapping[str, str] = NO_LABELS) -> None:
        """Requeues the pods that the rule rejected, because something changed that no cluster event reports.

        Args:
            namespace: only pods of this namespace; None means any namespace.
            labels: only pods that have these labels.

        A pod in flight that the rule rejects is tried again, whatever its namespace and labels are.
        """
        with self.lock:
            self._in_flight.wake(rule)
            rejected = [
                helped
                for helped in self._tiers.rejected(rule)
                if namespace in (None, helped.entity.info.pod.namespace)
                and any(labels.items() <= pod.info.pod.labels.items() for pod in helped.entity.pods)
            ]
        self._requeue(rejected, RULE_WAKE)

    def rules_changed(self, interests: Mapping[str, Interests]) -> None:
        """Replaces `interests` after the rules have changed, and requeues all rejected pods."""
        with self.lock:
            self._hints.replace(interests)
            self._tiers.sort_again()
        self._retry_all(POLICY_RELOAD)

    def events_missed(self) -> None:
        """Requeues every rejected pod, because an event that helps it may have been lost."""
        self._retry_all(EVENTS_MISSED)

    def _retry_all(self, event: str) -> None:
        with self.lock:
            self._in_flight.wake_all()
            rejected = self._tiers.rejected()
        self._requeue(rejected, event)

    def groups_changed(self, roots: Iterable[GroupName], event: str, now_below: GroupName | None = None) -> None:
        """Moves waiting members to the trees to which they belong now, and tries the trees in `roots` again.

        Args:
            roots: the root of the changed group before the change, and its root after the change.
            now_below: the latter, whose waiting members stay where they are; None if the group was deleted.
        """
        with self.lock:
            now = self._clock.monotonic()
            for root in roots:
                if self._cycle is not None and self._cycle.group.root == root:
                    self._cycle.strategy = max(self._cycle.strategy, Strategy.AFTER_BACKOFF)
                elif (found := self._tiers.group(root)) is not None:
                    if root != now_below:
                        self._move_members(found[1], event, now)
                    found = self._tiers.group(root)
                    if found is not None and found[0] in (Tier.UNSCHEDULABLE, Tier.GATED):
                        self._tiers.retry(found[1], Strategy.AFTER_BACKOFF, event, now)

    def admit_again(self, root: GroupName, event: str) -> None:
        """Asks the PreEnqueue rules again about a gated group, because one of its members was assigned to a node."""
        with self.lock:
            found = self._tiers.group(root)
            if found is not None and found[0] is Tier.GATED:
                self._tiers.retry(found[1], Strategy.AFTER_BACKOFF, event, self._clock.monotonic())

    def nomination_ended(self, info: PodInfo) -> None:
        """Requeues pods that could not use a node because this pod was nominated to it."""
        if info.pod.status.nominated_node_name:
            self.move(Change(ASSIGNED_POD_DELETE, info), up_to_priority=info.priority)

    def flush_backoff(self) -> None:
        """Moves every pod whose backoff has ended to the active queue."""
        self._in_parts(lambda now: self._tiers.end_backoffs(now, PART))

    def flush_unschedulable(self) -> int:
        """Requeues the pods that have waited too long, in case a queueing hint was wrong; returns how many."""
        return self._in_parts(lambda now: self._tiers.retry_overdue(now, MAX_UNSCHEDULABLE_SECONDS, PART))

    # ---- reads, for metrics, status pages and consistency checks

    def pods(self) -> dict[Tier, list[PodInfo]]:
        """Returns the waiting pods in each part of the queue (`Tier`)."""
        with self.lock:
            return {tier: [pod.info for pod in self._tiers.pods(tier)] for tier in Tier}

    def pods_in_flight(self) -> list[PodInfo]:
        """Returns the pods that are being scheduled or bound."""
        with self.lock:
            return [pod.info for pod in self._being_tried()]

    def queued(self) -> Iterator[tuple[Tier | None, QueuedPod]]:
        """Yields (tier, pod) for every pod; tier None means in flight. The caller holds `lock`."""
        for tier in Tier:
            yield from ((tier, pod) for pod in self._tiers.pods(tier))
        yield from ((None, pod) for pod in self._being_tried())

    def has_backlog(self) -> bool:
        """Returns True if more than BACKLOG pods are ready."""
        return len(self._tiers.active) > BACKLOG

    def pending(self) -> dict[str, int]:
        """Returns the number of waiting pods by tier (scheduler_pending_pods)."""
        with self.lock:
            groups = self._tiers.groups()
            more = {tier: sum(len(group.members) - 1 for group in groups[tier]) for tier in Tier}
            return {tier.value: len(self._tiers[tier]) + more[tier] for tier in Tier}

    def entities(self) -> dict[tuple[str, ...], int]:
        """Returns the number of pods and groups in each tier, by (tier, kind of entity) (queued_entities)."""
        with self.lock:
            entities = Counter[tuple[str, ...]]()
            for tier, groups in self._tiers.groups().items():
                entities[tier.value, "pod"] = len(self._tiers[tier]) - len(groups)
                entities.update((tier.value, entity_type(group)) for group in groups)
            return entities

    def rejections(self) -> Mapping[tuple[str, ...], int]:
        """Returns (rule, schedulerName) -> the number of pods that the rule rejected (scheduler_unschedulable_pods)."""
        with self.lock:
            return self._tiers.rejections.copy()

    # ---- long work, done in parts

    def _requeue(self, helped: Iterable[Helped], event: str) -> int:
        """Requeues the pods and groups in `helped`, and returns how many `helped` contains."""
        remaining = iter(helped)
        return self._in_parts(lambda now: self._tiers.requeue_helped(islice(remaining, PART), event, now))

    def _in_parts(self, step: Callable[[float], int]) -> int:
        """Calls `step`, with the lock held, until a call handles fewer than PART entries. Returns the total."""
        total = 0
        while True:
            with self.lock:
                handled = step(self._clock.monotonic())
            total += handled
            if handled < PART:
                return total
            self._closed.wait(YIELD_SECONDS)  # another thread can take the lock now

    # ---- helpers, called with the lock held

    def _being_tried(self) -> Iterator[QueuedPod]:
        """Yields the pods in flight, and the members kept aside until the attempt of their group ends."""
        yield from self._in_flight
        if self._cycle is not None:
            yield from self._cycle.returned.values()

    def _add(self, info: PodInfo) -> None:
        now = self._clock.monotonic()
        pod = QueuedPod(info, timestamp=now)
        if (root := self._root(info)) is None:
            self._tiers.activate(pod, UNSCHEDULED_POD_ADD.label, now, admitted=False)
        else:
            self._add_member(pod, root, UNSCHEDULED_POD_ADD.label, now)

    def _add_member(self, pod: QueuedPod, root: GroupName, event: str, now: float) -> None:
        if self._cycle is not None and self._cycle.group.root == root:
            self._cycle.add(pod, Strategy.AFTER_BACKOFF)  # more members may make the group schedulable
        elif (found := self._tiers.group(root)) is not None:
            self._tiers.join(found[1], found[0], pod, event, now)
        else:
            group = QueuedGroup(root, {pod.uid: pod}, timestamp=pod.timestamp)
            self._tiers.activate(group, event, now, admitted=False)

    def _requeue_failed(self, pod: QueuedPod, strategy: Strategy, now: float) -> Tier:
        """Puts a pod whose attempt failed back into the queue; a member joins the waiting members of its group."""
        if (root := self._root(pod.info)) is None:
            return self._tiers.requeue(pod, strategy, SCHEDULE_ATTEMPT_FAILURE, now)
        if self._cycle is not None and self._cycle.group.root == root:
            self._cycle.add(pod, strategy)
            return Tier.UNSCHEDULABLE
        if (found := self._tiers.group(root)) is not None:
            return self._tiers.join(found[1], found[0], pod, SCHEDULE_ATTEMPT_FAILURE, now)
        group = QueuedGroup(root, {pod.uid: pod}, timestamp=now, rejection=pod.rejection)
        group.unschedulable_count = pod.unschedulable_count
        group.consecutive_errors = pod.consecutive_errors
        return self._tiers.requeue(group, strategy, SCHEDULE_ATTEMPT_FAILURE, now)

    def _root(self, info: PodInfo) -> GroupName | None:
        """Returns the root of the pod's tree of groups; None if the pod is tried alone."""
        key = info.pod.group_key
        return None if key is None or self._root_of is None else self._root_of(key)

    def _move_members(self, group: QueuedGroup, event: str, now: float) -> None:
        """Moves the members that no longer belong to the tree of `group`."""
        roots = [(pod, self._root(pod.info)) for pod in group.pods]
        for pod, root in roots:
            if root is not None and root != group.root:
                if (place := self._tiers.find(pod.uid)) is not None:
                    self._tiers.leave(place, now)
                self._add_member(pod, root, event, now)

    def _requeue_moved_members(self, cycle: GroupCycle, now: float) -> None:
        """Requeues the returned members that no longer belong to the tree of `cycle.group`."""
        for pod in [pod for pod in cycle.returned.values() if self._root(pod.info) != cycle.group.root]:
            del cycle.returned[pod.uid]
            self._requeue_failed(pod, Strategy.AFTER_BACKOFF, now)

    def _update(self, place: Place, info: PodInfo, now: float) -> None:
        tier, entity, pod = place
        before = pod.info
        pod.info = info
        self._tiers.refile(place)
        if tier not in (Tier.UNSCHEDULABLE, Tier.GATED):
            return
        for event in pod_events(before, info, target=True):
            strategy = self._strategy_for(pod, Change(event, before, info))
            if strategy is not Strategy.SKIP:
                tier = self._tiers.requeue(entity, strategy, event.label, now)
                if tier in (Tier.ACTIVE, Tier.BACKOFF):
                    return

    def _strategy_after(self, flight: Flight) -> Strategy:
        pod = flight.pod
        if not pod.rejection.rules:
            return Strategy.AFTER_BACKOFF
        woken = flight.activated or not flight.woken_by.isdisjoint(pod.rejection.rules)
        best = Strategy.AFTER_BACKOFF if woken else Strategy.SKIP
        enough = Strategy.AT_ONCE if pod.rejection.pending else Strategy.AFTER_BACKOFF
        for change in self._in_flight.changes_during(flight):
            if best >= enough:
                break
            best = max(best, self._strategy_for(pod, change))
        return best

    def _strategy_for(self, pod: QueuedPod, change: Change) -> Strategy:
        unaffected = pod.rejection.unresolvable if change.event.frees_room else frozenset()
        rules = (rule for rule in pod.rejection.rules - unaffected if self._hints.help_from(rule, pod.info, change))
        return strategy_of(pod, frozenset(rules))

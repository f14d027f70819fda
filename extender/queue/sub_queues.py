"""Holds the waiting pods in four tiers, and moves them between the tiers.

Sources: upstream scheduling_queue.go, moveToActiveQ, moveToBackoffQ, requeueEntityWithQueueingStrategy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from enum import IntEnum
from itertools import islice
from typing import NamedTuple

from extender.framework.cluster_events import (
    BACKOFF_COMPLETE,
    POP_FROM_BACKOFF_Q,
    SCHEDULE_ATTEMPT_FAILURE,
    UNSCHEDULABLE_TIMEOUT,
    Change,
)
from extender.framework.queueing_hints import QueueingHints
from extender.framework.rules import PreEnqueue
from extender.framework.status import Rejection
from extender.model.pod_groups import GroupName
from extender.queue.entries import Entity, QueuedGroup, QueuedPod, Tier, entity_type, group_uid
from extender.queue.heaps import ActiveQueue, Backoff, BackoffQueue, Costs, Heap, Order, priority_sort
from extender.queue.waiting_index import UnschedulablePods
from extender.runtime.ports import Telemetry


class Strategy(IntEnum):
    """The effect of an event on a waiting pod (upstream queueingStrategy). Of several effects, the highest counts."""

    SKIP = 0
    """The pod keeps waiting for an event."""
    AFTER_BACKOFF = 1
    AT_ONCE = 2


def strategy_of(pod: QueuedPod, accepting_rules: frozenset[str]) -> Strategy:
    """Returns how to requeue a rejected pod.

    Args:
        accepting_rules: those rules in `pod.rejection` that may accept the pod now.
    """
    if not accepting_rules:
        return Strategy.SKIP
    return Strategy.AFTER_BACKOFF if accepting_rules.isdisjoint(pod.rejection.pending) else Strategy.AT_ONCE


class Helped(NamedTuple):
    """A pod or group that an event may help.

    Attributes:
        rejection: the rejection that the event may overcome. After a newer rejection, the entity is not requeued.
    """

    entity: Entity
    rejection: Rejection
    strategy: Strategy


class Place(NamedTuple):
    """Says where a pod waits: in which tier, and as which entry (its group, or the pod if it has no group)."""

    tier: Tier
    entity: Entity
    pod: QueuedPod


class SubQueues:
    """All waiting pods and groups. Each is in exactly one tier, and a member is in the tier of its group.

    Args:
        on_ready: called when a pod may have become ready to pop.
        order: the sort key of the pods that are ready.

    Attributes:
        rejections: (rule, schedulerName) -> the number of waiting pods that the rule rejected.
        costs: what the attempts of each tenant cost.
    """

    def __init__(
        self,
        hints: QueueingHints,
        pre_enqueue: Sequence[PreEnqueue],
        backoff: Backoff,
        telemetry: Telemetry,
        on_ready: Callable[[], object],
        order: Order = priority_sort,
    ) -> None:
        self._pre_enqueue = pre_enqueue
        self._hints = hints
        self._backoff = backoff
        self._telemetry = telemetry
        self._on_ready = on_ready
        self.rejections: Counter[tuple[str, ...]] = Counter()
        self._counted: dict[str, tuple[QueuedPod, Rejection]] = {}
        self._group_of: dict[str, QueuedGroup] = {}  # UID of a pod -> its group in the queue
        self.costs = Costs()
        self.active = ActiveQueue(order, self.costs)
        self.backoff = BackoffQueue(backoff, order)
        self.unschedulable = UnschedulablePods(hints)
        self.gated = UnschedulablePods(hints)
        self._by_tier: Mapping[Tier, Heap | ActiveQueue | BackoffQueue] = {
            Tier.ACTIVE: self.active,
            Tier.BACKOFF: self.backoff,
            Tier.UNSCHEDULABLE: self.unschedulable,
            Tier.GATED: self.gated,
        }

    def __getitem__(self, tier: Tier) -> Heap | ActiveQueue | BackoffQueue:
        return self._by_tier[tier]

    def pods(self, tier: Tier) -> Iterator[QueuedPod]:
        """Yields all pods in the tier, including the members of groups."""
        return (pod for entity in self._by_tier[tier] for pod in entity.pods)

    def groups(self) -> dict[Tier, list[QueuedGroup]]:
        """Returns the waiting groups in each tier. The cost does not depend on how many pods without a group wait."""
        by_tier: dict[Tier, list[QueuedGroup]] = {tier: [] for tier in Tier}
        for group in set(self._group_of.values()):
            if place := self._entity(group.uid):
                by_tier[place[0]].append(group)
        return by_tier

    def find(self, uid: str) -> Place | None:
        """Returns where in the queue the pod with this UID is; None if it is not in the queue."""
        group = self._group_of.get(uid)
        found = self._entity(group.uid if group else uid)
        if found is None:
            return None
        tier, entity = found
        return Place(tier, entity, group.members[uid] if group else next(iter(entity.pods)))

    def group(self, root: GroupName) -> tuple[Tier, QueuedGroup] | None:
        """Returns the waiting group with this root, and its tier; None if no member of it waits."""
        found = self._entity(group_uid(root))
        if found is None:
            return None
        tier, entity = found
        assert isinstance(entity, QueuedGroup)
        return tier, entity

    def _entity(self, uid: str) -> tuple[Tier, Entity] | None:
        for tier, entities in self._by_tier.items():
            if (entity := entities.get(uid)) is not None:
                return tier, entity
        return None

    def remove(self, entity: Entity) -> Tier | None:
        """Removes the pod or group; returns the tier it was in, or None if it was in no tier."""
        self._forget(entity)
        uid = entity.uid
        for tier, entities in self._by_tier.items():
            if entities.remove(uid) is not None:
                return tier
        return None

    def _forget(self, entity: Entity) -> None:
        """Removes the entity's pods from the counts of rejections and from the map of group members."""
        for pod in entity.pods:
            self._uncount(pod.uid)
            self._group_of.pop(pod.uid, None)

    # ---- members of groups

    def join(self, group: QueuedGroup, tier: Tier, pod: QueuedPod, event: str, now: float) -> Tier:
        """Adds a pod to a waiting group, and returns the group's tier afterwards.

        A group that waits for an event is requeued, because one more member may make it schedulable.
        """
        group.members[pod.uid] = pod
        self._group_of[pod.uid] = group
        self._count(pod)
        self._telemetry.incoming(tier.queue, event)
        self._telemetry.moved(pod.info.pod.key, "", tier.value, event)
        if tier in (Tier.UNSCHEDULABLE, Tier.GATED):
            self.refile(Place(tier, group, pod))
            return self.retry(group, Strategy.AFTER_BACKOFF, event, now)
        return tier if self._admits_pod(group, pod) else self._put(group, Tier.GATED, event)

    def leave(self, place: Place, now: float) -> None:
        """Removes a pod from the queue. Removes the pod's group too if no other member of the group waits."""
        tier, entity, pod = place
        if not isinstance(entity, QueuedGroup) or len(entity.members) == 1:
            self.remove(entity)
            return
        if tier in (Tier.UNSCHEDULABLE, Tier.GATED):
            self._waiting(tier).unfile(pod.uid)
        del entity.members[pod.uid]
        del self._group_of[pod.uid]
        self._uncount(pod.uid)
        if tier is Tier.GATED:  # the pod that left may be the one that gated the group
            self.retry(entity, Strategy.AFTER_BACKOFF, SCHEDULE_ATTEMPT_FAILURE, now)

    def refile(self, place: Place) -> None:
        """Updates how the tier sorts or indexes the pod, after the pod or its rejection has changed."""
        if place.tier in (Tier.UNSCHEDULABLE, Tier.GATED):
            self._waiting(place.tier).file(place.pod)
        else:
            self._by_tier[place.tier].add(place.entity)

    def _waiting(self, tier: Tier) -> UnschedulablePods:
        return self.gated if tier is Tier.GATED else self.unschedulable

    # ---- the choice of the next pod

    @property
    def ready(self) -> bool:
        """True if a pod can be popped."""
        return bool(self.active) or self.backoff.can_pop

    def pop(self, now: float) -> Entity | None:
        """Removes and returns the next pod or group: an active one, or else a rejected one that backs off."""
        entity = self.active.pop(now)
        if entity is None and (entity := self.backoff.pop()) is not None:
            self._arrived(entity, Tier.BACKOFF, Tier.ACTIVE, POP_FROM_BACKOFF_Q)
        if entity is not None:
            self._forget(entity)
        return entity

    # ---- reactions to events and to the passing of time

    def helped_by(self, change: Change, up_to_priority: int | None) -> list[Helped]:
        """Returns the pods and groups that the change may help and whose priority is at most `up_to_priority`.

        A change helps a group if it helps one of its members. A gated pod or group is included only if the PreEnqueue
        rule that gates it has registered for the event.
        """
        helped: dict[str, Helped] = {}
        for entities in (self.unschedulable, self.gated):
            for pod, rules in entities.helped_by(change):
                entity = self._group_of.get(pod.uid, pod)
                if up_to_priority is not None and entity.priority > up_to_priority:
                    continue
                if entity.gate is not None and not self._hints.interests(entity.gate.plugin, change.event):
                    continue
                strategy = strategy_of(pod, rules)
                known = helped.get(entity.uid)
                if known is None or known.strategy < strategy:
                    helped[entity.uid] = Helped(entity, entity.rejection, strategy)
        return list(helped.values())

    def rejected(self, rule: str | None = None) -> list[Helped]:
        """Returns the pods and groups that `rule` rejected. None means any rule.

        The caller passes them to `requeue_helped`, which requeues them after their backoff.
        """
        tiers = (self.unschedulable, self.gated)
        if rule is None:
            entities: Iterable[Entity] = (entity for tier in tiers for entity in tier)
        else:
            pods = (pod for tier in tiers for pod in tier.rejected_by(rule))
            entities = {entity.uid: entity for entity in (self._group_of.get(pod.uid, pod) for pod in pods)}.values()
        return [Helped(entity, entity.rejection, Strategy.AFTER_BACKOFF) for entity in entities]

    def requeue_helped(self, helped: Iterable[Helped], event: str, now: float) -> int:
        """Requeues the pods and groups in `helped`, and returns how many `helped` contains.

        A pod or group stays where it is if it no longer waits for an event, or was rejected again since it was listed.
        """
        number = 0
        for entity, rejection, strategy in helped:
            waiting = self.unschedulable.get(entity.uid) or self.gated.get(entity.uid)
            if waiting is entity and entity.rejection is rejection:
                with self._moving(entity):
                    self.retry(entity, strategy, event, now)
            number += 1
        return number

    def retry(self, entity: Entity, strategy: Strategy, event: str, now: float) -> Tier:
        """Requeues a waiting entity, unless it is gated and a PreEnqueue rule still refuses it; returns its tier.

        A refused group is not moved, because that would be slow: 1 ms for 100 pods, once for each event. While a group
        preempts 1,000 pods, there are 1,000 such events.
        """
        is_gated = self.gated.get(entity.uid) is entity
        if is_gated and not self._admits(entity):
            return Tier.GATED
        return self.requeue(entity, strategy, event, now, admitted=is_gated)

    def end_backoffs(self, now: float, most: int) -> int:
        """Moves up to `most` entries from the backoff queue to the active queue, because their backoff has ended.

        Returns how many entries were moved.
        """
        completed = list(islice(self.backoff.pop_completed(now), most))
        for entity in completed:
            with self._moving(entity):
                self.activate(entity, BACKOFF_COMPLETE, now, admitted=True)
        return len(completed)

    def retry_overdue(self, now: float, max_seconds: float, most: int) -> int:
        """Requeues up to `most` pods and groups that have waited for more than `max_seconds`; returns how many."""
        number = 0
        for entities in (self.unschedulable, self.gated):
            while number < most and (entity := entities.peek()) and now - entity.waits_since > max_seconds:
                entity.flushed_at = now
                with self._moving(entity):
                    self.requeue(entity, Strategy.AFTER_BACKOFF, UNSCHEDULABLE_TIMEOUT, now)
                number += 1
        return number

    def requeue(self, entity: Entity, strategy: Strategy, event: str, now: float, *, admitted: bool = False) -> Tier:
        """Moves the pod or group to the tier that follows from `strategy`, and returns that tier.

        If the backoff is over already, AFTER_BACKOFF means ACTIVE. A PreEnqueue rule that refuses changes it to GATED.

        Args:
            admitted: True if the PreEnqueue rules have already admitted the pod or group. They are then not called.
        """
        if strategy is Strategy.SKIP:
            return self._put(entity, Tier.UNSCHEDULABLE, event)
        if strategy is Strategy.AFTER_BACKOFF and not self._backoff.is_over(entity, now):
            return self._put(entity, Tier.BACKOFF if admitted or self._admits(entity) else Tier.GATED, event)
        return self.activate(entity, event, now, admitted=admitted)

    def activate(self, entity: Entity, event: str, now: float, *, admitted: bool) -> Tier:
        """Moves the pod or group to ACTIVE, or to GATED if a PreEnqueue rule refuses it; returns the tier.

        Args:
            admitted: True if the PreEnqueue rules have already admitted the pod or group. They are then not called.
        """
        if not (admitted or self._admits(entity)):
            return self._put(entity, Tier.GATED, event)
        for first in (entity, *entity.pods):
            if first.first_attempt_at is None:
                first.first_attempt_at = now
        return self._put(entity, Tier.ACTIVE, event)

    @contextmanager
    def _moving(self, entity: Entity) -> Iterator[None]:
        """Removes the entity if moving it raises an error. `QueueSweep` adds its pods again, once a minute."""
        try:
            yield
        except MemoryError:
            raise
        except Exception as error:  # the other pods must not wait for this one
            self._telemetry.set_aside("queue", entity.info.pod.key, error)
            self.remove(entity)

    def sort_again(self) -> None:
        """Sorts the active and the backoff queue again, because the sort key has changed."""
        for entities in (self.active, self.backoff):
            for entity in list(entities):
                entities.add(entity)

    def _admits(self, entity: Entity) -> bool:
        """Returns True if every PreEnqueue rule admits the pod, or each member of the group."""
        entity.gate = None
        return all(self._admits_pod(entity, pod) for pod in entity.pods)

    def _admits_pod(self, entity: Entity, pod: QueuedPod) -> bool:
        """Returns True if every PreEnqueue rule admits the pod; otherwise records the refusal as `entity.gate`."""
        for rule in self._pre_enqueue:
            if (gate := rule.refuse(pod.info)) is not None:
                entity.gate = gate
                self._add_rejecting_rule(entity, pod, gate.plugin)
                return False
        return True

    def _add_rejecting_rule(self, entity: Entity, pod: QueuedPod, rule: str) -> None:
        """Adds `rule` to the rules that rejected the pod."""
        if rule not in pod.rejection.unschedulable:
            pod.rejection = replace(pod.rejection, unschedulable=pod.rejection.unschedulable | {rule})
            if self.gated.get(entity.uid) is entity:
                self.gated.file(pod)
                self._count(pod)

    def _put(self, entity: Entity, tier: Tier, event: str) -> Tier:
        origin = self.remove(entity)
        self._by_tier[tier].add(entity)
        for pod in entity.pods:
            self._count(pod)
            if isinstance(entity, QueuedGroup):
                self._group_of[pod.uid] = entity
        if origin is not tier:
            self._arrived(entity, origin, tier, event)
        if tier in (Tier.ACTIVE, Tier.BACKOFF):
            self._on_ready()
        return tier

    def _arrived(self, entity: Entity, origin: Tier | None, tier: Tier, event: str) -> None:
        is_incoming = origin is None or origin.queue != tier.queue
        if is_incoming:
            self._telemetry.entity_incoming(tier.queue, event, entity_type(entity))
        for pod in entity.pods:
            if is_incoming:
                self._telemetry.incoming(tier.queue, event)
            self._telemetry.moved(pod.info.pod.key, origin.value if origin else "", tier.value, event)

    def _count(self, pod: QueuedPod) -> None:
        self._uncount(pod.uid)
        if pod.rejection.rules:
            self._counted[pod.uid] = pod, pod.rejection
            self.rejections.update((rule, pod.info.pod.spec.scheduler_name) for rule in pod.rejection.rules)

    def _uncount(self, uid: str) -> None:
        if uid in self._counted:
            pod, rejection = self._counted.pop(uid)
            for rule in rejection.rules:
                key = rule, pod.info.pod.spec.scheduler_name
                self.rejections[key] -= 1
                if not self.rejections[key]:
                    del self.rejections[key]

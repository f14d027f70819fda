"""Holds the waiting pods in four tiers, and moves them between the tiers.

Sources: upstream scheduling_queue.go, moveToActiveQ, moveToBackoffQ, requeueEntityWithQueueingStrategy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from enum import IntEnum
from itertools import islice
from typing import NamedTuple, Protocol

from extender.framework.events.cluster_events import BACKOFF_COMPLETE, POP_FROM_BACKOFF_Q, UNSCHEDULABLE_TIMEOUT, Change
from extender.framework.events.queueing_hints import QueueingHints
from extender.framework.rules import PreEnqueue
from extender.queue.backoff import Backoff, BackoffQueue, Heap, Order, priority_sort
from extender.queue.queued_pod import QueuedPod, Rejection, Tier
from extender.queue.unschedulable import UnschedulablePods


class QueueTelemetry(Protocol):
    def incoming(self, queue: str, event: str) -> None:
        """Counts a pod that entered `queue` because of `event` (scheduler_queue_incoming_pods_total)."""

    def rule_failed(self, rule: str) -> None:
        """Counts a hint of `rule` that raised an error."""


class Strategy(IntEnum):
    """The effect of an event on a waiting pod; the highest of several applies (upstream queueingStrategy)."""

    SKIP = 0
    """The pod keeps waiting for an event."""
    AFTER_BACKOFF = 1
    AT_ONCE = 2


def strategy_of(pod: QueuedPod, accepting_rules: frozenset[str]) -> Strategy:
    """Returns how to requeue a pod, given those of its rejecting rules that may accept it now."""
    if not accepting_rules:
        return Strategy.SKIP
    return Strategy.AFTER_BACKOFF if accepting_rules.isdisjoint(pod.rejection.pending) else Strategy.AT_ONCE


class HelpedPod(NamedTuple):
    """A pod that an event may help; it is requeued only if `rejection` is still its latest one."""

    pod: QueuedPod
    rejection: Rejection
    strategy: Strategy


class SubQueues:
    """All waiting pods, each in exactly one tier.

    Args:
        on_ready: called when a pod may have become ready to pop.
        order: the sort key of the pods that are ready.

    Attributes:
        rejections: (rule, schedulerName) -> the number of waiting pods that the rule rejected.
    """

    def __init__(
        self,
        hints: QueueingHints,
        pre_enqueue: Sequence[PreEnqueue],
        backoff: Backoff,
        telemetry: QueueTelemetry,
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
        self.active = Heap(order)
        self.backoff = BackoffQueue(backoff, order)
        self.unschedulable = UnschedulablePods(hints)
        self.gated = UnschedulablePods(hints)
        self._by_tier: Mapping[Tier, Heap | BackoffQueue] = {
            Tier.ACTIVE: self.active,
            Tier.BACKOFF: self.backoff,
            Tier.UNSCHEDULABLE: self.unschedulable,
            Tier.GATED: self.gated,
        }

    def __getitem__(self, tier: Tier) -> Heap | BackoffQueue:
        return self._by_tier[tier]

    def find(self, uid: str) -> tuple[Tier, QueuedPod] | None:
        for tier, pods in self._by_tier.items():
            if pod := pods.get(uid):
                return tier, pod
        return None

    def remove(self, uid: str) -> Tier | None:
        """Removes the pod; returns the tier it was in, None if it was in none."""
        self._uncount(uid)
        return next((tier for tier, pods in self._by_tier.items() if pods.remove(uid)), None)

    @property
    def ready(self) -> bool:
        """True if a pod can be popped."""
        return bool(self.active) or self.backoff.can_pop

    def pop(self) -> QueuedPod | None:
        """Removes and returns the next pod: an active one, or else a rejected one that backs off."""
        pod = self.active.pop()
        if pod is None and (pod := self.backoff.pop()):
            self._telemetry.incoming(Tier.ACTIVE.queue, POP_FROM_BACKOFF_Q)
        if pod is not None:
            self._uncount(pod.uid)
        return pod

    def helped_by(self, change: Change, up_to_priority: int | None) -> list[HelpedPod]:
        """Returns the pods of at most this priority that the change may help.

        A gated pod is included only if the PreEnqueue rule that gates it has registered for the event.
        """
        return [
            HelpedPod(pod, pod.rejection, strategy_of(pod, rules))
            for pods in (self.unschedulable, self.gated)
            for pod, rules in pods.helped_by(change)
            if (up_to_priority is None or pod.info.priority <= up_to_priority)
            and (pod.gate is None or self._hints.interests(pod.gate.plugin, change.event))
        ]

    def rejected(self, rule: str | None = None) -> list[HelpedPod]:
        """Returns the pods that the rule (None means any rule) rejected, to be retried after their backoff."""
        tiers = (self.unschedulable, self.gated)
        pods = (pod for tier in tiers for pod in (tier if rule is None else tier.rejected_by(rule)))
        return [HelpedPod(pod, pod.rejection, Strategy.AFTER_BACKOFF) for pod in pods]

    def requeue_helped(self, helped: Iterable[HelpedPod], event: str, now: float) -> int:
        """Requeues those of the given pods that still wait for an event; returns the number of pods given."""
        number = 0
        for pod, rejection, strategy in helped:
            waiting_pod = self.unschedulable.get(pod.uid) or self.gated.get(pod.uid)
            if waiting_pod is pod and pod.rejection is rejection:
                self.requeue(pod, strategy, event, now)
            number += 1
        return number

    def end_backoffs(self, now: float, most: int) -> int:
        """Makes up to `most` pods whose backoff has ended ready to be tried; returns their number."""
        completed = list(islice(self.backoff.pop_completed(now), most))
        for pod in completed:
            self.activate(pod, BACKOFF_COMPLETE, now, admitted=True)
        return len(completed)

    def retry_overdue(self, now: float, max_seconds: float, most: int) -> int:
        """Requeues up to `most` pods that have waited for over `max_seconds`; returns their number."""
        number = 0
        for pods in (self.unschedulable, self.gated):
            while number < most and (pod := pods.peek()) and now - pod.waits_since > max_seconds:
                pod.flushed_at = now
                self.requeue(pod, Strategy.AFTER_BACKOFF, UNSCHEDULABLE_TIMEOUT, now)
                number += 1
        return number

    def requeue(self, pod: QueuedPod, strategy: Strategy, event: str, now: float) -> Tier:
        """Moves the pod to the tier where it belongs after `event`; returns that tier."""
        if strategy is Strategy.SKIP:
            return self._put(pod, Tier.UNSCHEDULABLE, event)
        if strategy is Strategy.AFTER_BACKOFF and not self._backoff.is_over(pod, now):
            return self._put(pod, Tier.BACKOFF if self._admits(pod) else Tier.GATED, event)
        return self.activate(pod, event, now, admitted=False)

    def activate(self, pod: QueuedPod, event: str, now: float, *, admitted: bool) -> Tier:
        """Makes the pod ready to be tried, unless a PreEnqueue rule does not admit it; returns its tier.

        Args:
            admitted: True if the PreEnqueue rules admitted the pod when its backoff began; they are not called again.
        """
        if not (admitted or self._admits(pod)):
            return self._put(pod, Tier.GATED, event)
        if pod.first_attempt_at is None:
            pod.first_attempt_at = now
        return self._put(pod, Tier.ACTIVE, event)

    def _admits(self, pod: QueuedPod) -> bool:
        """Returns True if every PreEnqueue rule admits the pod."""
        refusals = (rule.refuse(pod.info) for rule in self._pre_enqueue)
        pod.gate = next((refusal for refusal in refusals if refusal is not None), None)
        if pod.gate is not None:
            pod.rejection = replace(pod.rejection, unschedulable=pod.rejection.unschedulable | {pod.gate.plugin})
        return pod.gate is None

    def sort_again(self) -> None:
        """Sorts the ready pods and those that back off again, after the order has changed."""
        for pods in (self.active, self.backoff):
            for pod in list(pods):
                pods.add(pod)

    def _put(self, pod: QueuedPod, tier: Tier, event: str) -> Tier:
        origin = self.remove(pod.uid)
        self._by_tier[tier].add(pod)
        self._count(pod)
        if origin is None or origin.queue != tier.queue:
            self._telemetry.incoming(tier.queue, event)
        if tier in (Tier.ACTIVE, Tier.BACKOFF):
            self._on_ready()
        return tier

    def _count(self, pod: QueuedPod) -> None:
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

"""The scheduling queue without locks and clocks: methods are given the time, in monotonic seconds.

                                      no event may help
    add --> ACTIVE                 .--------------------> UNSCHEDULABLE --.
              |                    |                                      | an event may help,
              |-- pop --> in flight -- refused --.                        | or it waited for too long
              |                 |                v                        v
              |                 '--> done       BACKOFF, or ACTIVE where it need not back off
              |                                  |
              '------------- the wait is over ---'

Whatever is on its way into BACKOFF or ACTIVE goes to GATED instead where a PreEnqueue rule does not admit it. A pod is
in one tier, or in flight. Source: upstream backend/queue/scheduling_queue.go (PriorityQueue) with its default feature
gates: pods go one by one, for pod groups (GenericWorkload) are off.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from extender.errors import IllegalTransition
from extender.framework.events.cluster_events import (
    BACKOFF_COMPLETE,
    FORCE_ACTIVATE,
    SCHEDULE_ATTEMPT_FAILURE,
    UNSCHEDULABLE_TIMEOUT,
    UNSCHEDULED_POD_ADD,
    Change,
)
from extender.framework.events.property_changes import pod_events
from extender.plugins.hints import INTERESTS, Interests, QueueingHints
from extender.queue.backoff import Backoff
from extender.queue.in_flight import Flight, InFlight
from extender.queue.nominator import Nominator
from extender.queue.pre_enqueue import PreEnqueue, SchedulingGates
from extender.queue.queued_pod import QueuedPod, Rejection, Tier
from extender.queue.sub_queues import QueueTelemetry, Strategy, SubQueues
from extender.table import PodInfo

MAX_UNSCHEDULABLE_SECONDS = 300.0


class PriorityQueue:
    """All pods that wait to be scheduled, those that are being scheduled, and the nominations of both.

    Args:
        interests: rule -> the events that may help the pods it refused.
        pre_enqueue: the rules that a pod must pass before it is tried.
        max_unschedulable_seconds: a pod that has waited longer for an event is tried anyway.
    """

    def __init__(
        self,
        telemetry: QueueTelemetry,
        interests: Mapping[str, Interests] = INTERESTS,
        pre_enqueue: Sequence[PreEnqueue] = (SchedulingGates(),),
        backoff: Backoff = Backoff(),  # noqa: B008  frozen
        max_unschedulable_seconds: float = MAX_UNSCHEDULABLE_SECONDS,
    ) -> None:
        self._hints = QueueingHints(interests, telemetry.rule_failed)
        self._tiers = SubQueues(self._hints, pre_enqueue, backoff, telemetry)
        self._in_flight = InFlight()
        self._max_unschedulable_seconds = max_unschedulable_seconds
        self.nominator = Nominator()
        self.scheduling_cycle = 0

    # ---- what the watch tells of waiting pods

    def add(self, info: PodInfo, now: float) -> None:
        """A pod that waits was seen; one that is known already is updated."""
        if self._in_flight.get(info.uid) or self._tiers.find(info.uid):
            self.update(info, now)
            return
        self.nominator.nominate(info, info.pod.status.nominated_node_name)
        self._tiers.activate(QueuedPod(info, now), UNSCHEDULED_POD_ADD.label, now, admitted=False)

    def update(self, info: PodInfo, now: float) -> None:
        """A waiting pod was modified, which may make it schedulable; one that is not known is added."""
        if flight := self._in_flight.get(info.uid):
            flight.update(info)
            return
        found = self._tiers.find(info.uid)
        if found is None:
            self.add(info, now)
            return
        tier, pod = found
        old, pod.info = pod.info, info
        self.nominator.update(old, info)
        self._tiers[tier].add(pod)
        if tier in (Tier.UNSCHEDULABLE, Tier.GATED):
            self._requeue_updated(pod, old, now)

    def delete(self, uid: str) -> None:
        """The pod is gone, or bound."""
        self.nominator.withdraw(uid)
        self._tiers.remove(uid)
        if flight := self._in_flight.get(uid):
            flight.gone = True

    # ---- what the scheduling loop does

    @property
    def ready(self) -> bool:
        """Whether `pop` has a pod to give."""
        return self._tiers.ready

    def pop(self) -> QueuedPod | None:
        """The pod to try next, which is in flight until `done` or `add_unschedulable`; None: there is none."""
        pod = self._tiers.pop()
        if pod is not None:
            pod.attempts += 1
            self.scheduling_cycle += 1
            self._in_flight.start(pod)
        return pod

    def stop_recording_events(self, uid: str) -> None:
        """The attempt may take long, and no event matters to it any more: it ends well, or in an error."""
        self._in_flight.stop_recording_events(uid)

    def done(self, uid: str) -> None:
        """The attempt is over, and the pod is not to come back."""
        self._in_flight.end(uid)

    def add_unschedulable(self, pod: QueuedPod, rejection: Rejection, now: float) -> Tier | None:
        """The attempt failed: the pod waits for an event, unless one that may help has come since it was popped.

        Returns:
            Where the pod waits now, as the watch last described it; None: it is gone, or bound.

        Raises:
            IllegalTransition: the pod is not in flight.
        """
        flight = self._in_flight.get(pod.uid)
        if flight is None or flight.pod is not pod:
            raise IllegalTransition(f"pod {pod.info.pod.key} is not in flight: it cannot be given back")
        pod.failed(flight.latest, rejection, now)
        strategy = self._strategy_after(flight)
        self._in_flight.end(pod.uid)
        return None if flight.gone else self._tiers.requeue(pod, strategy, SCHEDULE_ATTEMPT_FAILURE, now)

    def nominate(self, info: PodInfo, node_name: str) -> None:
        """The pod is to run on `node_name` (empty: nowhere in particular), unless it is gone or bound meanwhile."""
        flight = self._in_flight.get(info.uid)
        if not node_name or (flight and not flight.gone) or self._tiers.find(info.uid):
            self.nominator.nominate(info, node_name)

    def activate(self, uids: Iterable[str], now: float) -> None:
        """Makes pods ready to be tried at once; those in flight come back without waiting for an event."""
        for uid in uids:
            if flight := self._in_flight.get(uid):
                flight.activated = True
            elif (found := self._tiers.find(uid)) and found[0] is not Tier.ACTIVE:
                self._tiers.activate(found[1], FORCE_ACTIVATE, now, admitted=found[0] is Tier.BACKOFF)

    # ---- what happens elsewhere, and time

    def move(self, change: Change, now: float, *, up_to_priority: int | None = None) -> int:
        """Something happened in the cluster: the pods it may help are tried again; returns how many.

        Args:
            up_to_priority: only pods of this priority or a lower one can profit, as from a nomination that ends.
        """
        self._in_flight.tell(change)
        moved = 0
        for pods in (self._tiers.unschedulable, self._tiers.gated):
            for pod, rules in pods.helped_by(change):
                if up_to_priority is not None and pod.info.priority > up_to_priority:
                    continue
                if pod.gated_by and not self._hints.interests(pod.gated_by, change.event):
                    continue
                self._tiers.requeue(pod, _strategy(pod, rules), change.event.label, now)
                moved += 1
        return moved

    def flush_backoff(self, now: float) -> None:
        """Makes the pods ready whose wait is over; to be called every second (backoff.WINDOW_SECONDS)."""
        for pod in self._tiers.backoff.pop_completed(now):
            self._tiers.activate(pod, BACKOFF_COMPLETE, now, admitted=True)

    def flush_leftovers(self, now: float) -> int:
        """Tries the pods again that have waited too long for an event, in case a hint was wrong; returns how many."""
        left = [
            pod
            for pods in (self._tiers.unschedulable, self._tiers.gated)
            for pod in pods
            if now - max(pod.timestamp, pod.flushed_at or 0.0) > self._max_unschedulable_seconds
        ]
        for pod in left:
            pod.flushed_at = now
            self._tiers.requeue(pod, Strategy.AFTER_BACKOFF, UNSCHEDULABLE_TIMEOUT, now)
        return len(left)

    # ---- what can be seen

    def pods(self) -> dict[Tier, list[PodInfo]]:
        """The waiting pods, by tier."""
        return {tier: [pod.info for pod in self._tiers[tier]] for tier in Tier}

    def queued(self) -> Iterator[tuple[Tier | None, QueuedPod]]:
        """Every pod and the tier that it waits in; None: it is being scheduled or bound."""
        for tier in Tier:
            yield from ((tier, pod) for pod in self._tiers[tier])
        yield from ((None, pod) for pod in self._in_flight)

    def pods_in_flight(self) -> list[PodInfo]:
        """The pods that are being scheduled or bound."""
        return [pod.info for pod in self._in_flight]

    def pending(self) -> dict[str, int]:
        """How many pods wait (scheduler_pending_pods), by queue."""
        return {tier.value: len(self._tiers[tier]) for tier in Tier}

    # ---- the decisions

    def _requeue_updated(self, pod: QueuedPod, old: PodInfo, now: float) -> None:
        for event in pod_events(old, pod.info, target=True):
            strategy = self._strategy_for(pod, Change(event, old, pod.info))
            if strategy is not Strategy.SKIP:
                tier = self._tiers.requeue(pod, strategy, event.label, now)
                if tier in (Tier.ACTIVE, Tier.BACKOFF):
                    return

    def _strategy_after(self, flight: Flight) -> Strategy:
        pod = flight.pod
        if not pod.rejection.rules:
            return Strategy.AFTER_BACKOFF
        best = Strategy.AFTER_BACKOFF if flight.activated else Strategy.SKIP
        enough = Strategy.AT_ONCE if pod.rejection.pending else Strategy.AFTER_BACKOFF
        for change in self._in_flight.changes_during(flight):
            if best >= enough:
                break
            best = max(best, self._strategy_for(pod, change))
        return best

    def _strategy_for(self, pod: QueuedPod, change: Change) -> Strategy:
        deaf = pod.rejection.unresolvable if change.event.frees_room else frozenset()
        rules = (rule for rule in pod.rejection.rules - deaf if self._hints.help_from(rule, pod.info, change))
        return _strategy(pod, frozenset(rules))


def _strategy(pod: QueuedPod, helped: frozenset[str]) -> Strategy:
    """What to do with a pod that the rules `helped` may let pass now."""
    if not helped:
        return Strategy.SKIP
    return Strategy.AFTER_BACKOFF if helped.isdisjoint(pod.rejection.pending) else Strategy.AT_ONCE

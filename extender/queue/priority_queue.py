"""The scheduling queue: which pod is tried next, and what brings back the pods that could not be placed.

                                      no event may help
    add --> ACTIVE                 .--------------------> UNSCHEDULABLE --.
              |                    |                                      | an event may help,
              |-- pop --> in flight -- refused --.                        | or it waited for too long
              |                 |                v                        v
              |                 '--> done       BACKOFF, or ACTIVE where it need not back off
              |                                  |
              '------------- the wait is over ---'

A pod on its way into BACKOFF or ACTIVE goes to GATED instead where a PreEnqueue rule does not admit it. A pod is in one
tier, or in flight. Source: upstream backend/queue/scheduling_queue.go (PriorityQueue) with its default feature gates:
pods go one by one, for pod groups (GenericWorkload) are off.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice

from extender.errors import IllegalTransition
from extender.framework.events.cluster_events import (
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
from extender.framework.events.queueing_hints import Interests, QueueingHints
from extender.queue.backoff import Backoff
from extender.queue.in_flight import Flight, InFlight
from extender.queue.queued_pod import ERROR, QueuedPod, Rejection, Tier
from extender.queue.sub_queues import Helped, PreEnqueue, QueueTelemetry, Strategy, SubQueues, strategy_of
from extender.runtime.clock import Clock
from extender.table import PodInfo

MAX_UNSCHEDULABLE_SECONDS = 300.0
BACKLOG = 50
PART, LET_IN_SECONDS = 500, 0.0002


class PriorityQueue:
    """All pods that wait to be scheduled and those that are being scheduled; safe for any number of threads.

    Its owner calls `flush_backoff` every second (backoff.WINDOW_SECONDS) and `flush_unschedulable` every 30.

    Args:
        interests: rule -> the events that may help the pods it refused.
        pre_enqueue: the rules that a pod must pass before it is tried.
        max_unschedulable_seconds: a pod that has waited longer for an event is tried anyway.

    Attributes:
        lock: held by every method; whoever holds it sees the queue and the cache at one moment.
    """

    def __init__(
        self,
        telemetry: QueueTelemetry,
        clock: Clock,
        interests: Mapping[str, Interests],
        pre_enqueue: Sequence[PreEnqueue] = (),
        backoff: Backoff = Backoff(),  # noqa: B008  frozen
        max_unschedulable_seconds: float = MAX_UNSCHEDULABLE_SECONDS,
    ) -> None:
        self._clock, self._max_unschedulable_seconds = clock, max_unschedulable_seconds
        self.lock = threading.Condition()
        self._closed = threading.Event()
        self._hints = QueueingHints(interests, telemetry.rule_failed)
        self._tiers = SubQueues(self._hints, pre_enqueue, backoff, telemetry, self.lock.notify)
        self._in_flight = InFlight()

    # ---- waiting pods, as the watch describes them

    def add(self, info: PodInfo) -> None:
        """Adds a waiting pod, or updates one that is known, which may make it schedulable."""
        with self.lock:
            if flight := self._in_flight.get(info.uid):
                flight.update(info)
            elif found := self._tiers.find(info.uid):
                self._update(*found, info, self._clock.monotonic())
            else:
                self._add(info)

    def delete(self, uid: str) -> None:
        """Removes a pod that is gone, or bound."""
        with self.lock:
            self._tiers.remove(uid)
            if flight := self._in_flight.get(uid):
                flight.gone, flight.returned = True, False

    # ---- the scheduling loop

    def pop(self, timeout_seconds: float | None = None) -> QueuedPod | None:
        """Returns the pod to try next, once there is one; it is in flight until `done` or `add_unschedulable`.

        None: the queue was closed, or the time is over.
        """
        with self.lock:
            self.lock.wait_for(lambda: self._closed.is_set() or self._tiers.ready, timeout_seconds)
            pod = None if self._closed.is_set() else self._tiers.pop()
            if pod is not None:
                pod.attempts += 1
                self._in_flight.start(pod)
            return pod

    def stop_recording_events(self, uid: str) -> None:
        """Ends the recording of events for an attempt that may take long, and ends well or in an error."""
        with self.lock:
            self._in_flight.stop_recording_events(uid)

    def done(self, uid: str) -> None:
        """Ends the attempt of a pod that is not to come back, unless it was gone and waits again."""
        with self.lock:
            flight = self._in_flight.end(uid)
            if flight is not None and flight.returned:
                self._add(flight.latest)

    def add_unschedulable(self, pod: QueuedPod, rejection: Rejection) -> Tier | None:
        """Gives back a pod in flight: it waits for an event, unless one that may help has come since it was popped.

        Returns:
            Where the pod waits now, as the watch last described it; None: it is gone, or bound.

        Raises:
            IllegalTransition: the pod is not in flight.
        """
        with self.lock:
            flight = self._in_flight.get(pod.uid)
            if flight is None or flight.pod is not pod:
                raise IllegalTransition(f"pod {pod.info.pod.key} is not in flight: it cannot be given back")
            now = self._clock.monotonic()
            pod.failed(flight.latest, rejection, now)
            strategy = self._strategy_after(flight)
            self._in_flight.end(pod.uid)
            return None if flight.gone else self._tiers.requeue(pod, strategy, SCHEDULE_ATTEMPT_FAILURE, now)

    def activate(self, uids: Iterable[str]) -> None:
        """Makes pods ready to be tried at once; those in flight come back without waiting for an event."""
        with self.lock:
            now = self._clock.monotonic()
            for uid in uids:
                if flight := self._in_flight.get(uid):
                    flight.activated = True
                elif (found := self._tiers.find(uid)) and found[0] is not Tier.ACTIVE:
                    self._tiers.activate(found[1], FORCE_ACTIVATE, now, admitted=found[0] is Tier.BACKOFF)

    def back_off(self, uid: str) -> None:
        """Has a pod tried again after its backoff, as after an error: no event helps it sooner."""
        with self.lock:
            if flight := self._in_flight.get(uid):
                flight.activated = True
            elif (found := self._tiers.find(uid)) and found[0] in (Tier.UNSCHEDULABLE, Tier.GATED):
                now, pod = self._clock.monotonic(), found[1]
                pod.rejection, pod.timestamp = ERROR, now
                self._tiers.requeue(pod, Strategy.AFTER_BACKOFF, SCHEDULE_ATTEMPT_FAILURE, now)

    def close(self) -> None:
        """Ends every `pop`, for good."""
        with self.lock:
            self._closed.set()
            self.lock.notify_all()

    # ---- events and time

    def move(self, change: Change, *, up_to_priority: int | None = None) -> int:
        """Has the pods tried again that the change may help; returns how many.

        Args:
            up_to_priority: only pods of this priority or a lower one can profit, as from a nomination that ends.
        """
        with self.lock:
            self._in_flight.record(change)
            helped = self._tiers.helped_by(change, up_to_priority)
        return self._requeue(helped, change.event.label)

    def wake(self, rule: str) -> None:
        """Has the pods tried again that the rule refused: something that no event tells of may help them."""
        with self.lock:
            self._in_flight.wake(rule)
            refused = self._tiers.refused(rule)
        self._requeue(refused, RULE_WAKE)

    def rules_changed(self, interests: Mapping[str, Interests]) -> None:
        """Goes by other rules' interests from now on, and has every pod tried again that the rules before refused."""
        with self.lock:
            self._hints.replace(interests)
        self._retry_all(POLICY_RELOAD)

    def events_missed(self) -> None:
        """Tries every rejected pod again, because an event that may help it was perhaps lost."""
        self._retry_all(EVENTS_MISSED)

    def _retry_all(self, event: str) -> None:
        with self.lock:
            self._in_flight.wake_all()
            refused = self._tiers.refused()
        self._requeue(refused, event)

    def nomination_ended(self, info: PodInfo) -> None:
        """Has the pods of the same or a lower priority tried again from which room was kept for the nominated pod."""
        if info.pod.status.nominated_node_name:
            self.move(Change(ASSIGNED_POD_DELETE, info), up_to_priority=info.priority)

    def flush_backoff(self) -> None:
        """Makes the pods ready whose backoff is over."""
        self._in_parts(lambda now: self._tiers.end_backoffs(now, PART))

    def flush_unschedulable(self) -> int:
        """Tries the pods again that have waited too long for an event, in case a hint was wrong; returns how many."""
        return self._in_parts(lambda now: self._tiers.retry_overdue(now, self._max_unschedulable_seconds, PART))

    # ---- what can be seen

    def pods(self) -> dict[Tier, list[PodInfo]]:
        with self.lock:
            return {tier: [pod.info for pod in self._tiers[tier]] for tier in Tier}

    def pods_in_flight(self) -> list[PodInfo]:
        """Returns the pods that are being scheduled or bound."""
        with self.lock:
            return [pod.info for pod in self._in_flight]

    def queued(self) -> Iterator[tuple[Tier | None, QueuedPod]]:
        """Yields every pod and the tier that it waits in, None while it is in flight; the caller holds `lock`."""
        for tier in Tier:
            yield from ((tier, pod) for pod in self._tiers[tier])
        yield from ((None, pod) for pod in self._in_flight)

    def has_backlog(self) -> bool:
        """Returns whether more pods could be tried at once than are tried in an instant."""
        return len(self._tiers.active) > BACKLOG

    def pending(self) -> dict[str, int]:
        """Returns how many pods wait (scheduler_pending_pods), by queue."""
        with self.lock:
            return {tier.value: len(self._tiers[tier]) for tier in Tier}

    def refused(self) -> Mapping[tuple[str, ...], int]:
        """Returns how many pods wait (scheduler_unschedulable_pods), by rule and schedulerName."""
        with self.lock:
            return self._tiers.refusals.copy()

    # ---- parts of long work

    def _requeue(self, helped: Iterable[Helped], event: str) -> int:
        """Moves those that still wait for an event to where they belong now; returns how many were given."""
        left = iter(helped)
        return self._in_parts(lambda now: self._tiers.requeue_helped(islice(left, PART), event, now))

    def _in_parts(self, step: Callable[[float], int]) -> int:
        """Repeats a step, with the lock held and for up to PART pods each, until there are fewer; returns how many."""
        total = 0
        while True:
            with self.lock:
                done = step(self._clock.monotonic())
            total += done
            if done < PART:
                return total
            self._closed.wait(LET_IN_SECONDS)  # or this thread would have the lock again before another wakes up

    # ---- with the lock held

    def _add(self, info: PodInfo) -> None:
        now = self._clock.monotonic()
        self._tiers.activate(QueuedPod(info, now), UNSCHEDULED_POD_ADD.label, now, admitted=False)

    def _update(self, tier: Tier, pod: QueuedPod, info: PodInfo, now: float) -> None:
        old, pod.info = pod.info, info
        self._tiers[tier].add(pod)
        if tier not in (Tier.UNSCHEDULABLE, Tier.GATED):
            return
        for event in pod_events(old, info, target=True):
            strategy = self._strategy_for(pod, Change(event, old, info))
            if strategy is not Strategy.SKIP:
                tier = self._tiers.requeue(pod, strategy, event.label, now)
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
        not_helped = pod.rejection.unresolvable if change.event.frees_room else frozenset()
        rules = (rule for rule in pod.rejection.rules - not_helped if self._hints.help_from(rule, pod.info, change))
        return strategy_of(pod, frozenset(rules))

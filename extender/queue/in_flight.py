"""Tracks the pods that are being scheduled or bound, and the events that arrive in the meantime.

An event that arrives during a pod's attempt may free resources that the attempt does not see. If the attempt then
rejects the pod, the recorded event makes the queue try the pod again. Source: upstream active_queue.go (inFlightPods,
inFlightEvents).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, islice

from extender.framework.cluster_events import Change, pod_events
from extender.queue.entries import QueuedPod
from extender.table import PodInfo


@dataclass(slots=True)
class Flight:
    """One attempt to schedule a pod, from `pop` until `done` or `add_unschedulable`.

    Attributes:
        started: the position of the attempt's first change among all changes ever recorded.
        latest: the pod as the watch last showed it.
        own: the changes of the pod itself. When recording stops, all changes recorded until then are added.
        activated: True if a failed attempt is followed by another one without waiting for an event.
        gone: True if the pod was deleted, or bound by another scheduler.
        woken_by: the rules that called `handle.wake` during the attempt. If one of them rejects the pod, the pod is
            tried again.
        returned: True if the pod was gone and then appeared again, for example because the API server was restored from
            a backup. The pod is then added to the queue again when the attempt ends.
    """

    pod: QueuedPod
    started: int
    latest: PodInfo
    own: list[Change] = field(default_factory=list)
    activated: bool = False
    gone: bool = False
    woken_by: set[str] = field(default_factory=set)
    returned: bool = False

    def update(self, info: PodInfo) -> None:
        """Records that the pod was modified during its attempt."""
        self.own += [Change(event, self.latest, info) for event in pod_events(self.latest, info, target=True)]
        self.latest = info
        self.returned = self.returned or self.gone
        self.gone = False


class InFlight:
    """The attempts in progress, the oldest first, and the changes recorded since the oldest attempt began."""

    def __init__(self) -> None:
        self._flights: dict[str, Flight] = {}
        self._not_recording: dict[str, Flight] = {}
        self._changes: deque[Change] = deque()
        self._dropped = 0

    def __len__(self) -> int:
        return len(self._flights) + len(self._not_recording)

    def __iter__(self) -> Iterator[QueuedPod]:
        return (flight.pod for flight in chain(self._flights.values(), self._not_recording.values()))

    @property
    def recorded(self) -> int:
        """The number of recorded changes of the cluster that an attempt in flight may still need."""
        return len(self._changes)

    def get(self, uid: str) -> Flight | None:
        return self._flights.get(uid) or self._not_recording.get(uid)

    def start(self, pod: QueuedPod) -> None:
        """Starts the attempt of a pod that was just popped."""
        self._flights[pod.uid] = Flight(pod, self._dropped + len(self._changes), pod.info)

    def record(self, change: Change) -> None:
        """Records a change of the cluster for every attempt in flight.

        Attempts for which `stop_recording_events` was called do not see it.
        """
        if self._flights:
            self._changes.append(change)

    def wake(self, rule: str) -> None:
        """Records that `rule` may accept more pods now. A pod in flight that `rule` rejects is tried again."""
        for flight in self._flights.values():
            flight.woken_by.add(rule)

    def wake_all(self) -> None:
        """Makes every pod in flight skip the wait for an event if its attempt fails.

        This includes the attempts for which `stop_recording_events` was called.
        """
        for flight in chain(self._flights.values(), self._not_recording.values()):
            flight.activated = True

    def changes_during(self, flight: Flight) -> Iterator[Change]:
        """Yields the changes that were recorded for this attempt."""
        if flight.pod.uid in self._not_recording:
            return iter(flight.own)
        return chain(flight.own, islice(self._changes, flight.started - self._dropped, None))

    def stop_recording_events(self, uid: str) -> None:
        """Stops recording changes for this pod's attempt, because later changes cannot help the pod."""
        flight = self._flights.get(uid)
        if flight is not None:
            flight.own = list(self.changes_during(flight))
            self._not_recording[uid] = flight
            self._end_recording(uid)

    def record_events_again(self, uid: str) -> None:
        """Records changes for this pod's attempt from now on, after a call of `stop_recording_events`."""
        flight = self._not_recording.pop(uid, None)
        if flight is not None:
            flight.started = self._dropped + len(self._changes)
            self._flights[uid] = flight

    def end(self, uid: str) -> Flight | None:
        """Ends and returns the attempt of this pod; None if the pod is not in flight."""
        return self._not_recording.pop(uid, None) or self._end_recording(uid)

    def _end_recording(self, uid: str) -> Flight | None:
        """Removes and returns the pod's attempt, and drops the changes that only this attempt needed."""
        flight = self._flights.pop(uid, None)
        oldest = next(iter(self._flights.values()), None)
        needed_from = oldest.started if oldest else self._dropped + len(self._changes)
        while self._dropped < needed_from:
            self._changes.popleft()
            self._dropped += 1
        return flight

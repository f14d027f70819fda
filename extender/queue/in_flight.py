"""The pods that are being scheduled or bound, and the events since each of them was popped.

Without them an event that comes while a pod is being refused would be lost on it. Source: upstream active_queue.go
(inFlightPods, inFlightEvents).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, islice

from extender.framework.events.cluster_events import Change, pod_events
from extender.queue.queued_pod import QueuedPod
from extender.table import PodInfo


@dataclass(slots=True)
class Flight:
    """One pod's attempt.

    Attributes:
        started: the number of changes that had been recorded when it was popped.
        latest: the pod as the watch last described it.
        own: the changes of this pod alone.
        activated: it is to be tried again at once.
        gone: it was deleted, or bound by somebody.
        woken_by: the rules that have since said that pods which they refused may fit now.
        returned: it was gone and waits again, as after a restoration of the API server: the attempt does not end it.
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
        """Records that the pod was modified while it is being scheduled."""
        self.own += [Change(event, self.latest, info) for event in pod_events(self.latest, info, target=True)]
        self.latest = info
        self.returned, self.gone = self.returned or self.gone, False


class InFlight:
    """The attempts under way in the order of their start, and the changes since the first of them."""

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
        """The number of changes that are kept."""
        return len(self._changes)

    def get(self, uid: str) -> Flight | None:
        return self._flights.get(uid) or self._not_recording.get(uid)

    def start(self, pod: QueuedPod) -> None:
        """Begins the attempt of a pod that was popped."""
        self._flights[pod.uid] = Flight(pod, self._dropped + len(self._changes), pod.info)

    def record(self, change: Change) -> None:
        """Keeps a change for every attempt that records them."""
        if self._flights:
            self._changes.append(change)

    def wake(self, rule: str) -> None:
        """Notes for every attempt that the rule may let pass now what it has just refused."""
        for flight in self._flights.values():
            flight.woken_by.add(rule)

    def wake_all(self) -> None:
        """Has every pod that is given back tried again, also one that a rule of Permit is rejecting."""
        for flight in chain(self._flights.values(), self._not_recording.values()):
            flight.activated = True

    def changes_during(self, flight: Flight) -> Iterator[Change]:
        """Yields the changes since this attempt began, until its recording was stopped."""
        if flight.pod.uid in self._not_recording:
            return iter(flight.own)
        return chain(flight.own, islice(self._changes, flight.started - self._dropped, None))

    def stop_recording_events(self, uid: str) -> None:
        """Ends the recording for an attempt that may take long: later changes do not matter to it."""
        flight = self._flights.get(uid)
        if flight is not None:
            flight.own = list(self.changes_during(flight))
            self._not_recording[uid] = flight
            self._leave(uid)

    def end(self, uid: str) -> Flight | None:
        """Ends the attempt, and drops the changes that no other needs."""
        return self._not_recording.pop(uid, None) or self._leave(uid)

    def _leave(self, uid: str) -> Flight | None:
        flight = self._flights.pop(uid, None)
        oldest = next(iter(self._flights.values()), None)
        needed_from = oldest.started if oldest else self._dropped + len(self._changes)
        while self._dropped < needed_from:
            self._changes.popleft()
            self._dropped += 1
        return flight

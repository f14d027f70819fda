"""The pods that are being scheduled or bound, and what has happened since each of them was popped.

Without it an event that comes while a pod is being refused would be lost on it. Source: upstream active_queue.go
(inFlightPods, inFlightEvents); it has taken the place of comparing the move-request cycle with the scheduling cycle.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, islice

from extender.framework.events.cluster_events import Change
from extender.framework.events.property_changes import pod_events
from extender.queue.queued_pod import QueuedPod
from extender.table import PodInfo


@dataclass(slots=True)
class Flight:
    """One pod's attempt.

    Attributes:
        started: how many changes had been told when it was popped.
        latest: the pod as the watch last described it.
        own: changes that are about this pod alone.
        activated: it was asked to be tried again at once.
        gone: it was deleted, or bound by somebody.
    """

    pod: QueuedPod
    started: int
    latest: PodInfo
    own: list[Change] = field(default_factory=list)
    activated: bool = False
    gone: bool = False

    def update(self, info: PodInfo) -> None:
        """The pod was modified while it is being scheduled."""
        self.own += [Change(event, self.latest, info) for event in pod_events(self.latest, info, target=True)]
        self.latest = info
        self.gone = False


class InFlight:
    """The attempts under way in the order of their start, and the changes since the first of them."""

    def __init__(self) -> None:
        self._flights: dict[str, Flight] = {}
        self._deaf: dict[str, Flight] = {}
        self._changes: deque[Change] = deque()
        self._forgotten = 0

    def __len__(self) -> int:
        return len(self._flights) + len(self._deaf)

    def __iter__(self) -> Iterator[QueuedPod]:
        return (flight.pod for flight in chain(self._flights.values(), self._deaf.values()))

    @property
    def remembered(self) -> int:
        """How many changes are kept."""
        return len(self._changes)

    def get(self, uid: str) -> Flight | None:
        return self._flights.get(uid) or self._deaf.get(uid)

    def start(self, pod: QueuedPod) -> None:
        """The pod was popped."""
        self._flights[pod.uid] = Flight(pod, self._forgotten + len(self._changes), pod.info)

    def tell(self, change: Change) -> None:
        """Something happened."""
        if self._flights:
            self._changes.append(change)

    def changes_during(self, flight: Flight) -> Iterator[Change]:
        """What has happened since this attempt began, up to when it was deafened."""
        if flight.pod.uid in self._deaf:
            return iter(flight.own)
        return chain(flight.own, islice(self._changes, flight.started - self._forgotten, None))

    def stop_recording_events(self, uid: str) -> None:
        """What happens from now on does not matter to the attempt, however it ends: it may take long."""
        flight = self._flights.get(uid)
        if flight is not None:
            flight.own = list(self.changes_during(flight))
            self._deaf[uid] = flight
            self._leave(uid)

    def end(self, uid: str) -> Flight | None:
        """The attempt is over, whatever came of it; changes that nobody needs any more are let go."""
        return self._deaf.pop(uid, None) or self._leave(uid)

    def _leave(self, uid: str) -> Flight | None:
        flight = self._flights.pop(uid, None)
        oldest = next(iter(self._flights.values()), None)
        needed_from = oldest.started if oldest else self._forgotten + len(self._changes)
        while self._forgotten < needed_from:
            self._changes.popleft()
            self._forgotten += 1
        return flight

"""A scheduling cycle and events that others hear of: the recorder, and the memory of the last decisions."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Protocol

from extender.framework.profile import Profile
from extender.model.pod import Pod
from extender.scheduler.extenders import Extenders
from extender.scheduler.ports import Events, EventType
from extender.scheduler.scheduling_cycle import Chosen, SchedulingCycle, Unfit
from extender.table import PodInfo, Table


class AttemptObserver(Protocol):
    """Hears of every attempt and every event of the loop; must be quick, and not raise."""

    def attempted(self, info: PodInfo, table: Table, decided: Chosen | Unfit) -> None:
        """The cycle has decided about the pod, on this table, in the loop's thread."""

    def told(self, pod: Pod, kind: EventType, reason: str, note: str) -> None:
        """An event about the pod is written; in any thread."""


class ObservedCycle(SchedulingCycle):
    """A scheduling cycle that tells what it decides."""

    def __init__(
        self, profile: Profile, random: Random, extenders: Extenders, observers: Sequence[AttemptObserver]
    ) -> None:
        super().__init__(profile, random, extenders)
        self._observers = observers

    def schedule_pod(self, pod: PodInfo, table: Table) -> Chosen | Unfit:
        decided = super().schedule_pod(pod, table)
        for observer in self._observers:
            observer.attempted(pod, table, decided)
        return decided


class ObservedEvents:
    """Events that are told of as well as written."""

    def __init__(self, events: Events, observers: Sequence[AttemptObserver]) -> None:
        self._events, self._observers = events, observers

    def record(
        self, pod: Pod, kind: EventType, reason: str, action: str, note: str, related: Pod | None = None
    ) -> None:
        """See Events."""
        for observer in self._observers:
            observer.told(pod, kind, reason, note)
        self._events.record(pod, kind, reason, action, note, related)

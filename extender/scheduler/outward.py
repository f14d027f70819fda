"""What the loop needs of the world outside, as protocols: tests drive it without an API server and without threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol

from extender.model.pod import Pod
from extender.state.tiers import QueueTelemetry

EventType = Literal["Normal", "Warning"]


class Statuses(Protocol):
    """Writes pods' statuses, later and in a thread of its own: no method waits, none raises."""

    def failed(self, pod: Pod, reason: str, message: str, nominated_node: str | None) -> None:
        """PodScheduled becomes False; `nominated_node` None leaves the nomination as it is, "" ends it."""

    def nominate(self, pod: Pod, nominated_node: str) -> None:
        """Only the nomination; "" ends it."""


class Events(Protocol):
    """Writes events, later and in a thread of its own: `record` does not wait, and does not raise."""

    def record(
        self, pod: Pod, kind: EventType, reason: str, action: str, note: str, related: Pod | None = None
    ) -> None:
        """Something that people should be able to read about the pod."""


class Victims(Protocol):
    """Takes pods off their nodes."""

    def evict(self, victim: Pod, message: str) -> bool:
        """Marks the pod as the target of a disruption and deletes it; False: it was gone already.

        Raises:
            ClusterError: it may still be there.
        """


class Workers(Protocol):
    """Threads that do what the loop must not wait for."""

    def submit(self, task: Callable[[], object]) -> None:
        """Has `task` done soon; waits while too many wait already."""


class SchedulerTelemetry(QueueTelemetry, Protocol):
    """What the loop tells about itself."""

    def attempted(self, result: str, profile: str, seconds: float) -> None:
        """An attempt to schedule a pod ended: scheduled, unschedulable, error."""

    def decided(self, seconds: float) -> None:
        """The algorithm found a node, or that there is none."""

    def scheduled(self, attempts: int, seconds: float) -> None:
        """A pod was bound, so many seconds after it could first be tried."""

    def preempted(self, victims: int) -> None:
        """A pod made room for itself."""

    def bound(self, result: str) -> None:
        """See ports.Telemetry."""

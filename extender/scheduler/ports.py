"""The protocols between the loop and the world outside: tests run it without an API server and without threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from extender.model.devices.claims import AllocationResult, RequestMapping, ResourceClaim
from extender.model.pod import Pod
from extender.model.volumes.storage import PersistentVolume, PersistentVolumeClaim
from extender.queue.sub_queues import QueueTelemetry
from extender.scheduler.timing import PluginTelemetry

EventType = Literal["Normal", "Warning"]
SCHEDULED, UNSCHEDULABLE, ERROR = "scheduled", "unschedulable", "error"
"""The results of an attempt (scheduler_schedule_attempts_total)."""


class Statuses(Protocol):
    """Writes pods' statuses, later and in a thread of its own; no method raises, only `withdraw` waits."""

    def failed(self, pod: Pod, reason: str, message: str, nominated_node: str | None) -> None:
        """Sets PodScheduled to False; `nominated_node` "" ends the nomination, None leaves it as it is."""

    def nominate(self, pod: Pod, nominated_node: str) -> None:
        """Sets only the nomination; "" ends it."""

    def withdraw(self, pod: Pod) -> None:
        """Takes back what is yet to be written about the pod, and waits for what is being written."""


class Events(Protocol):
    """Writes events, later and in a thread of its own: `record` does not wait, and does not raise."""

    def record(
        self, pod: Pod, kind: EventType, reason: str, action: str, note: str, related: Pod | None = None
    ) -> None:
        """Records an event about the pod."""


class Evictor(Protocol):
    """Takes pods off their nodes."""

    def evict(self, victim: Pod, message: str) -> bool:
        """Marks the pod as the target of a disruption and deletes it; returns False where it was gone already.

        Raises:
            ClusterError: it may still be there.
        """


class VolumeWriter(Protocol):
    """Writes decisions about volumes; each object must still have the version that it was decided on.

    All methods return the object as it is written, and raise ClusterError: Conflict where it has changed.
    """

    def bind(self, volume: PersistentVolume, claim: PersistentVolumeClaim) -> PersistentVolume:
        """Reserves the volume for the claim; the controller of volumes does the rest."""

    def select_node(self, claim: PersistentVolumeClaim, node_name: str) -> PersistentVolumeClaim:
        """Has a volume made for the claim, within reach of the node."""


class ClaimWriter(Protocol):
    """Writes decisions about claims of devices. All methods raise ClusterError."""

    def create(self, claim: ResourceClaim, pod: Pod) -> ResourceClaim:
        """Creates the claim for the pod's extended resources, under a name that the API server makes up."""

    def bind(self, claim: ResourceClaim, pod: Pod, allocation: AllocationResult | None) -> ResourceClaim:
        """Reserves the claim for the pod, and with it allocates the devices, if there are any.

        Returns the claim as it is written. Raises Refused where it was allocated, or deallocated, elsewhere meanwhile.
        """

    def release(self, claim: ResourceClaim, pod: Pod, *, deallocate: bool) -> ResourceClaim | None:
        """Takes the pod's reservation back, and with the last one its devices if they are to be deallocated.

        Returns the claim as it is then; None: it is gone.
        """

    def deallocate(self, claim: ResourceClaim) -> ResourceClaim:
        """Takes devices and reservations away from the claim, unless it has changed (Conflict)."""

    def delete(self, claim: ResourceClaim) -> None:
        """Deletes the claim, allocated or not; that it is gone already is no error."""

    def describe(self, pod: Pod, claim: ResourceClaim, mappings: Sequence[RequestMapping]) -> None:
        """Writes into the pod's status which requests of the claim serve its extended resources."""


class Workers(Protocol):
    """Threads, or fibers of one, for what the loop must not wait for."""

    def submit(self, task: Callable[[], object]) -> None:
        """Has `task` done soon; waits while too many wait already."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt to schedule a pod that ended.

    Attributes:
        result: scheduled, unschedulable, error.
        seconds: from its being taken from the queue.
        number: 1 for the pod's first attempt.
        node_name: the node that it was to be bound to, "" if there was none.
        message: the reason why it was not bound.
    """

    pod: Pod
    result: str
    seconds: float
    number: int
    node_name: str = ""
    message: str = ""


class SchedulerTelemetry(QueueTelemetry, PluginTelemetry, Protocol):
    """The metrics of the loop."""

    def attempted(self, attempt: Attempt) -> None:
        """Counts an attempt, and has it logged."""

    def decided(self, seconds: float) -> None:
        """Observes the time until the algorithm found a node, or that there is none."""

    def scheduled(self, attempts: int, seconds: float) -> None:
        """Observes a pod that was bound, so many seconds after it could first be tried."""

    def preempted(self, victims: int) -> None:
        """Counts a pod that made room for itself."""

    def bound(self, result: str) -> None:
        """See ports.Telemetry."""

"""Defines the protocols between the scheduling loop and the API server, its workers and its metrics.

Tests implement them without an API server and without threads.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, Protocol

from extender.engine.decide import DecisionObserver
from extender.model.devices import AllocationResult, ConsumerReference, RequestMapping, ResourceClaim
from extender.model.pod import Pod
from extender.model.pod_groups import SchedulingGroup
from extender.model.storage import PersistentVolume, PersistentVolumeClaim
from extender.runtime.ports import NominatedNode, Telemetry
from extender.scheduler.timing import PluginTelemetry

EventType = Literal["Normal", "Warning"]


class AttemptResult(StrEnum):
    """The result of an attempt (scheduler_schedule_attempts_total)."""

    SCHEDULED = "scheduled"
    UNSCHEDULABLE = "unschedulable"
    ERROR = "error"


class Statuses(Protocol):
    """Writes pods' statuses in the background. No method raises, and only `withdraw` waits."""

    def failed(self, pod: Pod, reason: str, message: str, nominated_node: NominatedNode) -> None:
        """Sets the condition PodScheduled to False, and changes the nomination."""

    def failed_unless_bound(self, pod: Pod, reason: str, message: str) -> None:
        """Sets the condition PodScheduled to False, unless the API server shows the pod on a node by then."""

    def nominate(self, pod: Pod, nominated_node: str) -> None:
        """Sets only the nominated node in the pod's status; "" clears it."""

    def withdraw(self, pod: Pod) -> None:
        """Drops the pod's writes that have not started, and waits until a write in progress ends."""


class GroupStatuses(Protocol):
    """Writes the condition of groups that says if they are scheduled, in the background. No method waits or raises."""

    def scheduled(self, group: SchedulingGroup) -> None:
        """Sets the group's condition to True. Once it is True, it never changes."""

    def unscheduled(self, group: SchedulingGroup, reason: str, message: str) -> None:
        """Sets the group's condition to False. `reason` and `message` say why the group was not scheduled."""


class Events(Protocol):
    """Writes events in the background. `record` neither waits nor raises."""

    def record(
        self, pod: Pod, kind: EventType, reason: str, action: str, note: str, related: Pod | None = None
    ) -> None:
        """Writes an event about the pod. `note` is the message for users; `related` is another pod that it involves."""


class Evictor(Protocol):
    """Evicts the victims of preemption through the API server."""

    def mark_victim(self, victim: Pod, message: str) -> bool:
        """Sets the pod's condition DisruptionTarget; returns False if the pod was deleted already.

        Raises ClusterError.
        """

    def delete_victim(self, victim: Pod) -> bool:
        """Deletes the pod; returns False if it was deleted already.

        Raises:
            ClusterError: the pod may still exist.
        """


class WaitingForBind(Protocol):
    """The pods that wait between their decision and their bind, for example at Permit."""

    def uids(self) -> Collection[str]:
        """Returns the UIDs of the pods that wait."""

    def preempt(self, uid: str, preemptor: str, /) -> bool:
        """Makes the pod fail instead of being bound; returns False if the pod does not wait for its bind.

        `preemptor` is the pod that needs the room, `namespace/name`.
        """


class VolumeWriter(Protocol):
    """Writes decisions about volumes. Each write is refused if the object was changed since the decision.

    All methods return the written object. They raise ClusterError, which is a Conflict if the object was changed.
    """

    def bind(self, volume: PersistentVolume, claim: PersistentVolumeClaim) -> PersistentVolume:
        """Reserves the volume for the claim; the PV controller then binds them."""

    def select_node(self, claim: PersistentVolumeClaim, node_name: str) -> PersistentVolumeClaim:
        """Asks the provisioner to create a volume for the claim. The volume must be usable on this node."""


class ClaimWriter(Protocol):
    """Writes decisions about device claims. All methods raise ClusterError."""

    def create(self, claim: ResourceClaim, pod: Pod) -> ResourceClaim:
        """Creates the claim for the pod's extended resources. The API server generates its name."""

    def bind(
        self, claim: ResourceClaim, consumer: ConsumerReference, allocation: AllocationResult | None
    ) -> ResourceClaim:
        """Reserves the claim for the consumer. If `allocation` is given, also allocates its devices.

        It is no error if the same devices are allocated already, because another member of the pod's group may have
        been faster. Returns the written claim. Raises Refused if the claim was allocated differently, or deallocated,
        in the meantime.
        """

    def release(self, claim: ResourceClaim, uid: str, *, deallocate: bool) -> ResourceClaim | None:
        """Removes the reservation of the pod or PodGroup with this UID.

        If that was the last reservation and `deallocate` is True, releases the devices too. Returns the claim as
        written; None if it was deleted.
        """

    def deallocate(self, claim: ResourceClaim) -> ResourceClaim:
        """Removes the claim's devices and reservations. Raises Conflict if it has changed."""

    def delete(self, claim: ResourceClaim) -> None:
        """Deletes the claim, allocated or not. Does nothing if it was deleted already."""

    def describe(self, pod: Pod, claim: ResourceClaim, mappings: Sequence[RequestMapping]) -> None:
        """Writes into the pod's status which requests of the claim provide the pod's extended resources."""


class Workers(Protocol):
    """Runs tasks beside the loop, in threads or in fibers of one thread."""

    def submit(self, task: Callable[[], object]) -> None:
        """Runs `task` as soon as a thread or fiber is free. Never waits, so that decisions go on."""


class Preemptors(Workers, Protocol):
    """Workers that carry out preemptions. A task can run its evictions side by side, with `run_all`."""

    def run_all(self, calls: Sequence[Callable[[], object]]) -> None:
        """Runs the calls side by side, and returns when all have ended.

        If a call fails, skips the calls that have not begun, and raises the error.
        """


@dataclass(frozen=True, slots=True)
class Attempt:
    """A finished attempt to schedule a pod.

    Attributes:
        seconds: how long the attempt took since the pod was taken from the queue.
        number: 1 for the pod's first attempt.
        message: why the pod was not bound; "" if it was bound.
        node_name: the node that was chosen; "" if there was none.
    """

    pod: Pod
    result: AttemptResult
    seconds: float
    number: int
    message: str
    node_name: str = ""


class GroupResult(StrEnum):
    """The result of a pod group's attempt (scheduler_podgroup_schedule_attempts_total)."""

    SCHEDULED = "scheduled"
    UNSCHEDULABLE = "unschedulable"
    WAITING_ON_PREEMPTION = "waiting_on_preemption"
    ERROR = "error"


class AttemptObserver(DecisionObserver, Protocol):
    """Observes every decision and every event of the loop."""

    def event_recorded(self, pod: Pod, kind: EventType, reason: str, note: str) -> None:
        """Observes an event about a pod. Called in any thread."""


class SchedulerTelemetry(Telemetry, PluginTelemetry):
    """Observes what the loop does, and ignores it. A subclass in `web.metrics` counts it in metrics."""

    def attempted(self, attempt: Attempt) -> None:
        """Counts and logs an attempt to schedule a pod."""

    def decided(self, seconds: float) -> None:
        """Observes how long it took to choose a node, or to find that none fits."""

    def spent(self, cost: str, seconds: float) -> None:
        """Adds the time of an attempt on the deciding thread. `cost` is cheap, costly or "gave way"."""

    def scheduled(self, attempts: int, seconds: float) -> None:
        """Observes a bound pod: the number of attempts, and the seconds since the pod was first ready to be tried."""

    def scheduled_after_flush(self) -> None:
        """Counts a bound pod whose last attempt began because the pod had waited too long for an event."""

    def waited_at_permit(self, status: str, seconds: float) -> None:
        """Observes how long a pod waited at Permit, and with which status the wait ended."""

    def preemption_tried(self, status: str, seconds: float) -> None:
        """Counts and times a search for victims of a pod. `status` is a Code of kube-scheduler."""

    def preempted(self, preemptor: str, victims: int, pdb_violations: int, disruptions: Mapping[str, int]) -> None:
        """Observes how many pods are evicted for a preemptor.

        Args:
            preemptor: the kind of preemptor: pod, podgroup or compositepodgroup.
            victims: the number of pods that are evicted.
            pdb_violations: how many of them violate a PodDisruptionBudget.
            disruptions: kind of victim -> the number of victims; pods that are evicted together count once. Empty if
                the preemptor is a single pod.
        """

    def evictions_ended(self, preemptor: str, result: str, seconds: float) -> None:
        """Observes how long the evictions for a preemptor took, and their result: success or error."""

    # `entity` is the kind of a group: podgroup or compositepodgroup.

    def group_decided(self, profile: str, entity: str, seconds: float) -> None:
        """Observes how long it took to decide about all members of a root group."""

    def group_attempted(self, result: GroupResult, profile: str, entity: str, seconds: float) -> None:
        """Counts an attempt of a root group that ended with a decision."""

    def group_preemption_tried(self, entity: str, status: str, seconds: float | None) -> None:
        """Counts a group's preemption by its status. `seconds` is how long the search took; None means no search."""

    def placements_generated(self, profile: str, entity: str, count: int) -> None:
        """Counts the topology placements on which a group is tried."""

    def placement_evaluated(self, result: str, profile: str, entity: str, seconds: float) -> None:
        """Observes how long a group was tried on one placement, by its result: feasible or infeasible."""

"""A pod on its way through the queue (upstream framework.QueuedPodInfo)."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from extender.table import PodInfo

_NONE: frozenset[str] = frozenset()


class Tier(Enum):
    """A part of the queue in which pods wait. The value is its label in `scheduler_pending_pods`."""

    ACTIVE = "active"
    BACKOFF = "backoff"
    UNSCHEDULABLE = "unschedulable"
    GATED = "gated"

    @property
    def queue(self) -> str:
        """The label in `scheduler_queue_incoming_pods_total`, which counts gated pods as unschedulable."""
        return Tier.UNSCHEDULABLE.value if self is Tier.GATED else self.value


@dataclass(frozen=True, slots=True)
class Rejection:
    """The rules that rejected a pod in its last attempt; no rules if the attempt ended in an error.

    Attributes:
        unschedulable: the rules that refused nodes or the pod itself (upstream UnschedulablePlugins).
        pending: the rules that wait for something to happen, after which the pod does not back off (PendingPlugins).
        unresolvable: those of `unschedulable` that always refused as UnschedulableAndUnresolvable. No pod that leaves
            a node can change that.
    """

    unschedulable: frozenset[str] = _NONE
    pending: frozenset[str] = _NONE
    unresolvable: frozenset[str] = _NONE

    @property
    def rules(self) -> frozenset[str]:
        return self.unschedulable | self.pending


NO_REJECTION = Rejection()


@dataclass(slots=True, eq=False)
class QueuedPod:
    """A pod and its history in the queue. Times are in monotonic seconds.

    The queue owns it; after `pop` the caller does.

    Attributes:
        timestamp: when it was added, or last given back after an attempt.
        first_attempt_at: when it could first be popped.
        attempts: how often it was popped.
        unschedulable_count: the number of attempts in which rules rejected it.
        consecutive_errors: the number of attempts since then that ended in an error.
        gated_by: the PreEnqueue rule that does not admit it; "" if all do.
        flushed_at: when it was last tried because it had waited too long for an event.
    """

    info: PodInfo
    timestamp: float
    first_attempt_at: float | None = None
    attempts: int = 0
    unschedulable_count: int = 0
    consecutive_errors: int = 0
    rejection: Rejection = field(default=NO_REJECTION)
    gated_by: str = ""
    flushed_at: float | None = None

    def __repr__(self) -> str:
        return f"QueuedPod({self.info.pod.key})"

    @property
    def uid(self) -> str:
        return self.info.uid

    def failed(self, info: PodInfo, rejection: Rejection, now: float) -> None:
        """Records a failed attempt; `info` is the pod as the watch shows it now."""
        self.info = info
        self.rejection = rejection
        self.timestamp = now
        self.flushed_at = None
        if rejection.rules:
            self.unschedulable_count += 1
            self.consecutive_errors = 0
        else:
            self.consecutive_errors += 1

    @property
    def waits_since(self) -> float:
        """The start of its wait for an event, which starts again when a pod is tried for its long wait."""
        return max(self.timestamp, self.flushed_at or 0.0)

    @property
    def order(self) -> tuple[float, ...]:
        """The sort key: the higher priority goes first, then the longer wait (upstream PrioritySort)."""
        return (-self.info.priority, self.timestamp)

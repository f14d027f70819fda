"""A pod on its way through the queue (upstream framework.QueuedPodInfo)."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from extender.table import PodInfo

_NONE: frozenset[str] = frozenset()


class Tier(Enum):
    """A place where pods wait; the value is the label of `scheduler_pending_pods`."""

    ACTIVE = "active"
    BACKOFF = "backoff"
    UNSCHEDULABLE = "unschedulable"
    GATED = "gated"

    @property
    def queue(self) -> str:
        """The label of `scheduler_queue_incoming_pods_total`, which counts gated pods as unschedulable."""
        return Tier.UNSCHEDULABLE.value if self is Tier.GATED else self.value


@dataclass(frozen=True, slots=True)
class Rejection:
    """The rules that kept the pod from being scheduled; none where the attempt ended in an error.

    Attributes:
        unschedulable: rules that refused it (upstream UnschedulablePlugins).
        pending: rules that wait for something to be done for it, after which it does not back off (PendingPlugins).
        unresolvable: those of `unschedulable` that refused it as UnschedulableAndUnresolvable wherever they refused
            it. Pods that leave change nothing for them.
    """

    unschedulable: frozenset[str] = _NONE
    pending: frozenset[str] = _NONE
    unresolvable: frozenset[str] = _NONE

    @property
    def rules(self) -> frozenset[str]:
        return self.unschedulable | self.pending


ERROR = Rejection()


@dataclass(slots=True, eq=False)
class QueuedPod:
    """A pod and its history in the queue, owned by whoever popped it. Times are in monotonic seconds.

    Attributes:
        timestamp: the time at which it was added or last given back.
        first_attempt_at: the time from which it could first be popped.
        attempts: the number of times it was popped.
        unschedulable_count: the number of attempts in which rules refused it.
        consecutive_errors: the number of attempts since then that ended in an error.
        gated_by: the PreEnqueue rule that does not admit it; empty: none.
        flushed_at: the time at which it was last taken out because it had waited for too long.
    """

    info: PodInfo
    timestamp: float
    first_attempt_at: float | None = None
    attempts: int = 0
    unschedulable_count: int = 0
    consecutive_errors: int = 0
    rejection: Rejection = field(default=ERROR)
    gated_by: str = ""
    flushed_at: float | None = None

    def __repr__(self) -> str:
        return f"QueuedPod({self.info.pod.key})"

    @property
    def uid(self) -> str:
        return self.info.uid

    def failed(self, info: PodInfo, rejection: Rejection, now: float) -> None:
        """Notes a failed attempt; `info` is the pod as it is now."""
        self.info, self.rejection, self.timestamp, self.flushed_at = info, rejection, now, None
        if rejection.rules:
            self.unschedulable_count += 1
            self.consecutive_errors = 0
        else:
            self.consecutive_errors += 1

    @property
    def waits_since(self) -> float:
        """The time from which its wait for an event is counted: a pod that was tried for its long wait waits anew."""
        return max(self.timestamp, self.flushed_at or 0.0)

    @property
    def order(self) -> tuple[float, ...]:
        """The sort key, smaller first: the higher priority, then the longer wait (upstream PrioritySort)."""
        return (-self.info.priority, self.timestamp)

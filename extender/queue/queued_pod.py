"""A pod on its way through the queue (upstream framework.QueuedPodInfo)."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from extender.table import PodInfo

_NONE: frozenset[str] = frozenset()


class Tier(Enum):
    """Where a pod waits; the value is the label of `scheduler_pending_pods`."""

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
    """Which rules kept the pod from being scheduled; none: the attempt ended in an error.

    Attributes:
        unschedulable: rules that refused it.
        pending: rules that wait for something to be done for it: once it is, the pod does not back off.
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
    """A pod and what the queue remembers of it. Who popped it owns it until it is given back.

    Attributes:
        timestamp: when it was added or last given back, in monotonic seconds.
        first_attempt_at: when it could first be popped.
        attempts: how often it was popped.
        unschedulable_count: how often rules refused it.
        consecutive_errors: how many attempts have ended in an error since.
        gated_by: the PreEnqueue rule that does not admit it; empty: none.
        flushed_at: when it was last taken out because it had waited for too long.
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
        """An attempt to schedule the pod, which is now as `info` describes it, has failed."""
        self.info, self.rejection, self.timestamp, self.flushed_at = info, rejection, now, None
        if rejection.rules:
            self.unschedulable_count += 1
            self.consecutive_errors = 0
        else:
            self.consecutive_errors += 1

    @property
    def order(self) -> tuple[float, ...]:
        """Smaller goes first: the higher priority, then who has waited longer (upstream PrioritySort)."""
        return (-self.info.priority, self.timestamp)

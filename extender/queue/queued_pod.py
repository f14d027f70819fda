"""Describes a pod in the queue, and the history of its attempts (upstream framework.QueuedPodInfo)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from enum import Enum

from extender.framework.status import NO_REJECTION, Refusal, Rejection
from extender.table import PodInfo


class Tier(Enum):
    """A part of the queue in which pods wait. The value is its label in `scheduler_pending_pods`."""

    ACTIVE = "active"
    BACKOFF = "backoff"
    UNSCHEDULABLE = "unschedulable"
    GATED = "gated"

    @property
    def queue(self) -> str:
        """The tier's label in `scheduler_queue_incoming_pods_total`, which counts gated pods as unschedulable."""
        return Tier.UNSCHEDULABLE.value if self is Tier.GATED else self.value


@dataclass(slots=True, eq=False, kw_only=True)
class AttemptHistory:
    """The history of a pod or of a whole group in the queue. Times are in monotonic seconds.

    Attributes:
        timestamp: when the pod or group last entered the queue, as a new entry or after an attempt.
        first_attempt_at: when the pod or group could be popped for the first time.
        attempts: how often the pod or group was popped.
        unschedulable_count: the number of attempts that ended in a rejection by rules.
        consecutive_errors: the number of attempts that ended in an error since the last rejection.
        rejection: the rules that rejected the pod, or any member of the group, in the last attempt.
        gate: the refusal of a PreEnqueue rule, with its reason; None if all PreEnqueue rules admit the pod or group.
        flushed_at: when the pod or group was last requeued because it had waited too long for an event.
        cost_seconds: the time that the last attempt took on the deciding thread; 0 if that was little (see `costs`).
        times_given_way: the number of attempts, since one ended otherwise, that ended because others waited.
    """

    timestamp: float
    first_attempt_at: float | None = None
    attempts: int = 0
    unschedulable_count: int = 0
    consecutive_errors: int = 0
    rejection: Rejection = field(default=NO_REJECTION)
    gate: Refusal | None = None
    flushed_at: float | None = None
    cost_seconds: float = 0.0
    times_given_way: int = 0

    @property
    def waits_since(self) -> float:
        """When the current wait for an event began. Requeueing a pod that waited too long begins a new wait."""
        return max(self.timestamp, self.flushed_at or 0.0)

    def count_failure(self, *, rejected: bool) -> None:
        """Counts a failed attempt: a rejection by rules if `rejected`, otherwise an error."""
        if rejected:
            self.unschedulable_count += 1
            self.consecutive_errors = 0
        else:
            self.consecutive_errors += 1


@dataclass(slots=True, eq=False)
class QueuedPod(AttemptHistory):
    """A pod and its history in the queue.

    The queue owns the object; from `pop` on, the caller owns it.
    """

    info: PodInfo

    def __repr__(self) -> str:
        return f"QueuedPod({self.info.pod.key})"

    @property
    def uid(self) -> str:
        return self.info.uid

    @property
    def pods(self) -> Collection[QueuedPod]:
        """Only this pod, because a pod without a group is tried alone."""
        return (self,)

    @property
    def priority(self) -> int:
        return self.info.priority

    @property
    def backoff_size(self) -> int:
        """The number of pods that back off together (see Backoff)."""
        return 1

    def failed(self, info: PodInfo, rejection: Rejection, now: float) -> None:
        """Records a failed attempt; `info` is the current version of the pod."""
        self.info = info
        self.rejection = rejection
        self.timestamp = now
        self.flushed_at = None
        self.count_failure(rejected=bool(rejection.rules))

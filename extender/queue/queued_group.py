"""Describes a pod group in the queue: its waiting members, and their common history (upstream QueuedPodGroupInfo)."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from enum import Enum, auto

from extender.framework.status import Refusal
from extender.queue.queued_pod import NO_REJECTION, QueuedPod, Rejection
from extender.table import PodInfo


class GroupOutcome(Enum):
    """The result of a group's attempt."""

    SUCCESS = auto()
    """The group was scheduled, perhaps without some of its members."""
    REJECTED = auto()
    ERROR = auto()


@dataclass(slots=True, eq=False)
class QueuedGroup:
    """The waiting members of a pod group, which are tried together. Times are in monotonic seconds.

    The queue owns the object; from `pop` until `finish_group`, the caller owns it.

    Attributes:
        key: `namespace/name` of the PodGroup.
        members: the waiting members by UID; never empty while the group is in the queue.
        timestamp, first_attempt_at, attempts, unschedulable_count, consecutive_errors, gate, flushed_at: as QueuedPod
            has them, for the whole group.
        rejection: the rules that rejected any member in the last attempt.
        backoff_size: the number of members when the last attempt ended.
    """

    key: str
    timestamp: float
    members: dict[str, QueuedPod]
    first_attempt_at: float | None = None
    attempts: int = 0
    unschedulable_count: int = 0
    consecutive_errors: int = 0
    rejection: Rejection = field(default=NO_REJECTION)
    gate: Refusal | None = None
    flushed_at: float | None = None
    backoff_size: int = 1

    def __repr__(self) -> str:
        return f"QueuedGroup({self.key}, {len(self.members)} members)"

    @property
    def uid(self) -> str:
        """The key among the entities of the queue."""
        return group_uid(self.key)

    @property
    def pods(self) -> Collection[QueuedPod]:
        return self.members.values()

    @property
    def info(self) -> PodInfo:
        """One of the members; all have the group's priority."""
        return next(iter(self.members.values())).info

    @property
    def priority(self) -> int:
        return self.info.priority

    @property
    def waits_since(self) -> float:
        """When the group's wait for an event began; a requeue because of a long wait starts it again."""
        return max(self.timestamp, self.flushed_at or 0.0)

    def in_order(self) -> list[QueuedPod]:
        """Returns the members in the order in which they are tried (upstream PodGroupMemberPodsOrderingFunc)."""
        return sorted(
            self.members.values(),
            key=lambda pod: (-pod.priority, -pod.attempts, pod.timestamp, pod.info.pod.name),
        )

    def ended(self, outcome: GroupOutcome, returned: Iterable[QueuedPod], now: float) -> None:
        """Records the end of an attempt after which the `returned` pods wait.

        After a success the timestamp stays if one of these pods took part, so that they are tried again at once: that
        attempt places nothing, and may then preempt.
        """
        tried = self.members
        self.members = {pod.uid: pod for pod in returned}
        rejections = [pod.rejection for pod in self.pods]
        unschedulable = frozenset[str]().union(*(rejection.unschedulable for rejection in rejections))
        self.rejection = Rejection(unschedulable) if outcome is GroupOutcome.REJECTED else NO_REJECTION
        self.backoff_size = len(self.members)
        self.flushed_at = None
        if outcome is not GroupOutcome.SUCCESS or tried.keys().isdisjoint(self.members):
            self.timestamp = now
        match outcome:
            case GroupOutcome.SUCCESS:
                self.unschedulable_count = self.consecutive_errors = 0
            case GroupOutcome.REJECTED:
                self.unschedulable_count += 1
                self.consecutive_errors = 0
            case GroupOutcome.ERROR:
                self.consecutive_errors += 1


def group_uid(key: str) -> str:
    """Returns what identifies a group among the entities of the queue; no pod has such a UID."""
    return f"podgroup/{key}"


Entity = QueuedPod | QueuedGroup
"""What is queued and popped as one: a pod without a group, or a group."""

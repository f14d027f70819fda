"""Describes a group in the queue: its waiting members, and their common history (upstream QueuedPodGroupInfo).

A tree of groups is one entity of the queue, named by its root.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from enum import Enum, auto

from extender.model.scheduling.pod_groups import GroupName
from extender.queue.queued_pod import NO_REJECTION, AttemptHistory, QueuedPod, Rejection
from extender.table import PodInfo


class GroupOutcome(Enum):
    """The result of a group's attempt."""

    SUCCESS = auto()
    """The group was scheduled, perhaps without some of its members."""
    REJECTED = auto()
    ERROR = auto()


@dataclass(slots=True, eq=False)
class QueuedGroup(AttemptHistory):
    """The waiting members of a root group and of all groups below it, which are tried together, and their history.

    The queue owns the object; from `pop` until `finish_group`, the caller owns it.

    Attributes:
        root: the group that belongs to no other one, or the first one above the members that does not exist.
        members: the waiting members by UID; never empty while the group is in the queue.
        backoff_size: the number of members when the last attempt ended.
    """

    root: GroupName
    members: dict[str, QueuedPod]
    backoff_size: int = 1

    def __repr__(self) -> str:
        return f"QueuedGroup({self.root.key}, {len(self.members)} members)"

    @property
    def uid(self) -> str:
        """The key among the entities of the queue."""
        return group_uid(self.root)

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

    def in_order(self) -> list[QueuedPod]:
        """Returns the members in the order in which they are tried (upstream PodGroupMemberPodsOrderingFunc)."""
        return sorted(
            self.members.values(),
            key=lambda pod: (-pod.priority, -pod.attempts, pod.timestamp, pod.info.pod.name),
        )

    def ended(self, outcome: GroupOutcome, returned: Iterable[QueuedPod], now: float) -> None:
        """Records that an attempt has ended, and that the `returned` pods wait again.

        The group keeps its timestamp if the attempt placed some of its members and returned others, so that it is
        tried again at once. The next attempt places none of those that are left, and may therefore preempt for them.
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
        if outcome is GroupOutcome.SUCCESS:
            self.unschedulable_count = self.consecutive_errors = 0
        else:
            self.count_failure(rejected=outcome is GroupOutcome.REJECTED)


def group_uid(root: GroupName) -> str:
    """Returns what identifies a group among the entities of the queue; no pod has such a UID."""
    return "/".join(root)


RootOf = Callable[[str], GroupName]
"""Returns the root of the tree that the PodGroup with this `namespace/name` is in."""


Entity = QueuedPod | QueuedGroup
"""What is queued and popped as one: a pod without a group, or a group."""


def entity_type(entity: Entity) -> str:
    """Returns the label `type` of the metrics about what waits as one (upstream EntityToLabel)."""
    return "podgroup" if isinstance(entity, QueuedGroup) else "pod"

"""Describes a group in the queue: its waiting members, and the history of its attempts.

A whole tree of groups is one entry of the queue, under the name of its root group. Source: upstream QueuedPodGroupInfo.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from enum import Enum, auto

from extender.framework.status import NO_REJECTION, Rejection
from extender.model.pod_groups import GroupName
from extender.queue.queued_pod import AttemptHistory, QueuedPod
from extender.table import PodInfo


class GroupOutcome(Enum):
    SUCCESS = auto()
    """The group was scheduled, perhaps without some of its members."""
    REJECTED = auto()
    ERROR = auto()


@dataclass(slots=True, eq=False)
class QueuedGroup(AttemptHistory):
    """The waiting members of a root group and of all groups below it, which are tried together.

    The queue owns the object; from `pop` until `finish_group`, the caller owns it.

    Attributes:
        root: the name of the topmost group. If that group names a parent that does not exist, the name of the parent.
        members: UID -> waiting member; never empty while the group is in the queue.
        backoff_size: the number of members when the last attempt ended.
    """

    root: GroupName
    members: dict[str, QueuedPod]
    backoff_size: int = 1

    def __repr__(self) -> str:
        return f"QueuedGroup({self.root.key}, {len(self.members)} members)"

    @property
    def uid(self) -> str:
        """The key of the group in the queue."""
        return group_uid(self.root)

    @property
    def pods(self) -> Collection[QueuedPod]:
        return self.members.values()

    @property
    def info(self) -> PodInfo:
        """The first member. Used for values that are the same in all members, such as the priority."""
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
        """Records that an attempt has ended, and that the members in `returned` wait again.

        The group gets a new timestamp, so entries that have waited longer are tried before it. There is one exception:
        if the attempt placed only some of its members, the group keeps its timestamp and is tried again soon. The
        next attempt may then evict pods for the other members. An attempt that places a member evicts no pods.
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
    """Returns the key of a group in the queue; it cannot equal the UID of a pod."""
    return "/".join(root)


RootOf = Callable[[str], GroupName]
"""Takes the `namespace/name` of a PodGroup, and returns the root of its tree."""


Entity = QueuedPod | QueuedGroup
"""An entry of the queue, which is popped as a whole: a pod without a group, or a group."""


def entity_type(entity: Entity) -> str:
    """Returns the value of the metrics' label `type` for a pod or a group (upstream EntityToLabel)."""
    return "podgroup" if isinstance(entity, QueuedGroup) else "pod"

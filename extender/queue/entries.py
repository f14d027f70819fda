"""Describes what is in the queue, a pod or a group, and the history of its attempts.

A whole tree of groups is one entry of the queue, under the name of its root group. Source: upstream
framework.QueuedPodInfo, QueuedPodGroupInfo.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from enum import Enum, auto

from extender.framework.status import NO_REJECTION, Refusal, Rejection
from extender.model.pod_groups import GroupName
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
    """Returns pod, podgroup or compositepodgroup, as metrics name it (upstream EntityTypeToLabel)."""
    return entity.root.entity if isinstance(entity, QueuedGroup) else "pod"

"""Describes what is in the queue, a pod or a group, the history of its attempts, and the attempts that are in flight.

A whole tree of groups is one entry of the queue, under the name of its root group. Source: upstream
framework.QueuedPodInfo, QueuedPodGroupInfo.

An event that arrives during a pod's attempt may free resources that the attempt does not see. If the attempt then
rejects the pod, the recorded event makes the queue try the pod again. Source: upstream active_queue.go (inFlightPods,
inFlightEvents).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum, StrEnum, auto
from itertools import chain, islice

from extender.framework.cluster_events import Change, pod_events
from extender.framework.status import NO_REJECTION, Refusal, Rejection
from extender.model.pod_groups import GroupName
from extender.table import PodInfo


class Tier(StrEnum):
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
        cost_seconds: the time that the last attempt took on the deciding thread; 0 if that was little (see `heaps`).
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
    uid: str = field(init=False)

    def __post_init__(self) -> None:
        self.uid = self.info.uid

    def __repr__(self) -> str:
        return f"QueuedPod({self.info.pod.key})"

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


@dataclass(slots=True)
class Flight:
    """One attempt to schedule a pod, from `pop` until `done` or `add_unschedulable`.

    Attributes:
        started: the position of the attempt's first change among all changes ever recorded.
        latest: the pod as the watch last showed it.
        own: the changes of the pod itself. When recording stops, all changes recorded until then are added.
        activated: True if a failed attempt is followed by another one without waiting for an event.
        gone: True if the pod was deleted, or bound by another scheduler.
        woken_by: the rules that called `handle.wake` during the attempt. If one of them rejects the pod, the pod is
            tried again.
        returned: True if the pod was gone and then appeared again, for example because the API server was restored from
            a backup. The pod is then added to the queue again when the attempt ends.
    """

    pod: QueuedPod
    started: int
    latest: PodInfo
    own: list[Change] = field(default_factory=list)
    activated: bool = False
    gone: bool = False
    woken_by: set[str] = field(default_factory=set)
    returned: bool = False

    def update(self, info: PodInfo) -> None:
        """Records that the pod was modified during its attempt."""
        self.own += [Change(event, self.latest, info) for event in pod_events(self.latest, info, target=True)]
        self.latest = info
        self.returned = self.returned or self.gone
        self.gone = False


class InFlight:
    """The attempts in progress, the oldest first, and the changes recorded since the oldest attempt began."""

    def __init__(self) -> None:
        self._flights: dict[str, Flight] = {}
        self._not_recording: dict[str, Flight] = {}
        self._changes: deque[Change] = deque()
        self._dropped = 0

    def __len__(self) -> int:
        return len(self._flights) + len(self._not_recording)

    def __iter__(self) -> Iterator[QueuedPod]:
        return (flight.pod for flight in chain(self._flights.values(), self._not_recording.values()))

    @property
    def recorded(self) -> int:
        """The number of recorded changes of the cluster that an attempt in flight may still need."""
        return len(self._changes)

    def get(self, uid: str) -> Flight | None:
        return self._flights.get(uid) or self._not_recording.get(uid)

    def start(self, pod: QueuedPod) -> None:
        """Starts the attempt of a pod that was just popped."""
        self._flights[pod.uid] = Flight(pod, self._dropped + len(self._changes), pod.info)

    def record(self, change: Change) -> None:
        """Records a change of the cluster for every attempt in flight.

        Attempts for which `stop_recording_events` was called do not see it.
        """
        if self._flights:
            self._changes.append(change)

    def wake(self, rule: str) -> None:
        """Records that `rule` may accept more pods now. A pod in flight that `rule` rejects is tried again."""
        for flight in self._flights.values():
            flight.woken_by.add(rule)

    def wake_all(self) -> None:
        """Makes every pod in flight skip the wait for an event if its attempt fails.

        This includes the attempts for which `stop_recording_events` was called.
        """
        for flight in chain(self._flights.values(), self._not_recording.values()):
            flight.activated = True

    def changes_during(self, flight: Flight) -> Iterator[Change]:
        """Yields the changes that were recorded for this attempt."""
        if flight.pod.uid in self._not_recording:
            return iter(flight.own)
        return chain(flight.own, islice(self._changes, flight.started - self._dropped, None))

    def stop_recording_events(self, uid: str) -> None:
        """Stops recording changes for this pod's attempt, because later changes cannot help the pod."""
        flight = self._flights.get(uid)
        if flight is not None:
            flight.own = list(self.changes_during(flight))
            self._not_recording[uid] = flight
            self._end_recording(uid)

    def record_events_again(self, uid: str) -> None:
        """Records changes for this pod's attempt from now on, after a call of `stop_recording_events`."""
        flight = self._not_recording.pop(uid, None)
        if flight is not None:
            flight.started = self._dropped + len(self._changes)
            self._flights[uid] = flight

    def end(self, uid: str) -> Flight | None:
        """Ends and returns the attempt of this pod; None if the pod is not in flight."""
        return self._not_recording.pop(uid, None) or self._end_recording(uid)

    def _end_recording(self, uid: str) -> Flight | None:
        """Removes and returns the pod's attempt, and drops the changes that only this attempt needed."""
        flight = self._flights.pop(uid, None)
        oldest = next(iter(self._flights.values()), None)
        needed_from = oldest.started if oldest else self._dropped + len(self._changes)
        while self._dropped < needed_from:
            self._changes.popleft()
            self._dropped += 1
        return flight

"""GangScheduling: the members of a pod group wait until their PodGroup exists. Source: upstream gangscheduling."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from extender.framework.cluster_events import Action, Change, Resource
from extender.framework.plugin import Arguments, Plugin
from extender.framework.queueing_hints import Interest, Interests, reads_names
from extender.framework.status import Refusal, unresolvable
from extender.table import PodInfo

NAME = "GangScheduling"


class GroupComplete:
    """Keeps a group's pods out of the active queue until the group's parents, and enough of its members, exist.

    Args:
        shortage: returns the reason why the pod's group cannot be tried yet; None if it can.
    """

    def __init__(self, shortage: Callable[[PodInfo, str], str | None]) -> None:
        self._shortage = shortage

    def refuse(self, pod: PodInfo) -> Refusal | None:
        key = pod.pod.group_key
        reason = None if key is None else self._shortage(pod, key)
        return None if reason is None else unresolvable(NAME, reason)


def _group_of(pod: PodInfo) -> Iterator[str]:
    if (key := pod.pod.group_key) is not None:
        yield key


def _group_of_changed(change: Change) -> tuple[str, ...]:
    key = change.new.pod.group_key
    return () if key is None else (key,)


def _same_group(pod: PodInfo, change: Change) -> bool:
    return pod.pod.group_key in _group_of_changed(change)


_OF_GROUP = reads_names(_group_of)
PLUGIN = Plugin(
    NAME,
    Arguments,
    points=frozenset(("preEnqueue", "permit", "placementFeasible")),
    default=False,
    # The queue itself wakes a group when another member starts to wait or a parent group changes.
    interests=Interests(
        (Interest(Resource.ASSIGNED_POD, Action.ADD, _same_group, _OF_GROUP, _group_of_changed),),
    ),
)

"""GangScheduling: members of a pod group wait until their PodGroup is known. Source: upstream gangscheduling."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from extender.framework.events.cluster_events import Action, Change, Resource
from extender.framework.events.queueing_hints import Interest, Interests, reads_names
from extender.framework.plugin import Arguments, Plugin
from extender.framework.status import Refusal, unresolvable
from extender.model.scheduling.pod_groups import PodGroup
from extender.table import PodInfo

NAME = "GangScheduling"


class GroupComplete:
    """Keeps members of a pod group out of the active queue until enough of them are known (PreEnqueue).

    Args:
        find_group: returns the PodGroup with this key; None if it is not known.
        count: returns how many members of a group are known, with and without a node.
    """

    def __init__(self, find_group: Callable[[str], PodGroup | None], count: Callable[[str], int]) -> None:
        self._find_group = find_group
        self._count = count

    def refuse(self, pod: PodInfo) -> Refusal | None:
        key = pod.pod.group_key
        if key is None:
            return None
        group = self._find_group(key)
        if group is None:
            return unresolvable(NAME, f"waiting for PodGroup {key} to appear")
        if group.is_gang and (known := self._count(key)) < group.min_count:
            return unresolvable(NAME, f"waiting for pods of PodGroup {key}: {known} of {group.min_count} exist")
        return None


def unsupported(group: PodGroup, *, by_placements: bool) -> str | None:
    """Returns why no member of the group is placed; None if the group can be scheduled.

    Args:
        by_placements: True if topology constraints are supported.
    """
    fields = {
        "schedulingConstraints.topology": not by_placements and group.topology_key,
        "resourceClaims": group.spec.resource_claims,
        "parentCompositePodGroupName": group.parent_key,
    }
    present = [f"spec.{field}" for field, value in fields.items() if value]
    if not present:
        return None
    return f"PodGroup {group.key} uses {', '.join(present)}, which is not supported, so no member of it is placed"


def _group_of(pod: PodInfo) -> Iterator[str]:
    if (key := pod.pod.group_key) is not None:
        yield key


def _changed_group(change: Change) -> tuple[str, ...]:
    """Returns the key of the changed PodGroup, or of the group of the changed pod."""
    key = change.new.pod.group_key if isinstance(change.new, PodInfo) else change.new.key
    return () if key is None else (key,)


def _same_group(pod: PodInfo, change: Change) -> bool:
    return pod.pod.group_key in _changed_group(change)


_OF_GROUP = reads_names(_group_of)
PLUGIN = Plugin(
    NAME,
    Arguments,
    points=frozenset(("preEnqueue", "permit")),
    default=False,
    # The queue itself wakes a group when another of its members comes to wait.
    interests=Interests(
        (
            Interest(Resource.POD_GROUP, Action.ADD | Action.UPDATE, _same_group, _OF_GROUP, _changed_group),
            Interest(Resource.ASSIGNED_POD, Action.ADD, _same_group, _OF_GROUP, _changed_group),
        )
    ),
)

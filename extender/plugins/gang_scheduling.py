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


class GroupKnown:
    """Keeps members of a pod group out of the active queue until their PodGroup is known (PreEnqueue).

    Args:
        find_group: returns the PodGroup with this key; None if it is not known.
    """

    def __init__(self, find_group: Callable[[str], PodGroup | None]) -> None:
        self._find_group = find_group

    def refuse(self, pod: PodInfo) -> Refusal | None:
        key = pod.pod.group_key
        if key is None or self._find_group(key) is not None:
            return None
        return unresolvable(NAME, f"waiting for PodGroup {key} to appear")


def unsupported(group: PodGroup) -> str | None:
    """Returns why no member of the group is placed; None if its members are placed one by one."""
    spec = group.spec
    fields = {
        "schedulingPolicy.gang": spec.scheduling_policy.gang,
        "schedulingConstraints.topology": group.topology_key,
        "resourceClaims": spec.resource_claims,
        "parentCompositePodGroupName": group.parent_key,
    }
    present = [f"spec.{field}" for field, value in fields.items() if value]
    if not present:
        return None
    return f"PodGroup {group.key} uses {', '.join(present)}, which is not supported, so no member of it is placed"


def _group_of(pod: PodInfo) -> Iterator[str]:
    if (key := pod.pod.group_key) is not None:
        yield key


def _same_group(pod: PodInfo, change: Change) -> bool:
    return bool(pod.pod.group_key == change.new.key)


def _changed_group(change: Change) -> tuple[str, ...]:
    return (change.new.key,)


PLUGIN = Plugin(
    NAME,
    Arguments,
    points=frozenset(("preEnqueue", "permit")),
    default=False,
    interests=Interests(
        (Interest(Resource.POD_GROUP, Action.ADD | Action.UPDATE, _same_group, reads_names(_group_of), _changed_group),)
    ),
)

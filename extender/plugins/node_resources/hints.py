"""The events that may help pods that NodeResourcesFit refused (upstream noderesources/fit.go, EventsToRegister)."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from extender.framework.events.cluster_events import Action, Change, Resource
from extender.framework.events.queueing_hints import Interest, Interests, has_place
from extender.model.quantity import amounts
from extender.model.requests import is_counted, is_extended
from extender.table import PodInfo

PODS = "pods"


def node_has_room(pod: PodInfo, change: Change) -> bool:
    """Returns True if the node, were it empty, would hold the pod, and offers more of what counts than before."""
    wanted, offered = _wanted(pod), amounts(change.new.allocatable)
    if not offered.get(PODS) or not _holds(offered, wanted):
        return False
    if change.old is None:
        return True
    before = amounts(change.old.allocatable)
    return any(
        offered.get(name, 0) > before.get(name, 0) or _may_be_a_device(name, offered) for name in (PODS, *wanted)
    )


def room_is_enough(pod: PodInfo, change: Change) -> bool:
    """Returns True if a pod left a node that has enough free now, pods of lower priority aside.

    Where it is not known what the node has free, the pod may be helped.
    """
    if not has_place(change.old):
        return False
    if change.room is None:
        return True
    free = change.room(pod.priority)
    return free is None or (free.get(PODS, 1) > 0 and _holds(free, _wanted(pod)))


def other_pod_shrinks(pod: PodInfo, change: Change) -> bool:
    """Returns True if a placed pod asks for less than before of something that the pod asks for too."""
    before, after = dict(change.old.footprint.requests), dict(change.new.footprint.requests)
    if not any(before.get(name, 0) > after.get(name, 0) for name in _wanted(pod)):
        return False
    return room_is_enough(pod, change)


def class_offers_resource(pod: PodInfo, _change: Change) -> bool:
    """Returns True if the pod asks for extended resources, which a device class may stand behind (KEP-5004)."""
    return any(map(is_extended, _wanted(pod)))


def _wanted(pod: PodInfo) -> Mapping[str, int]:
    return {name: amount for name, amount in pod.requests.items() if amount and is_counted(name)}


def _holds(offered: Mapping[str, int], wanted: Mapping[str, int]) -> bool:
    return all(amount <= offered.get(name, 0) or _may_be_a_device(name, offered) for name, amount in wanted.items())


def _may_be_a_device(resource: str, offered: Mapping[str, int]) -> bool:
    return is_extended(resource) and resource not in offered


def _requests_and_priority(pod: PodInfo) -> Hashable:
    return tuple(sorted(pod.requests.items())), pod.priority


INTERESTS = Interests(
    (
        Interest(Resource.ASSIGNED_POD, Action.DELETE, room_is_enough),
        Interest(Resource.ASSIGNED_POD, Action.UPDATE_POD_SCALE_DOWN, other_pod_shrinks),
        Interest(Resource.TARGET_POD, Action.UPDATE_POD_SCALE_DOWN),
        Interest(Resource.NODE, Action.ADD | Action.UPDATE_NODE_ALLOCATABLE, node_has_room),
        Interest(Resource.DEVICE_CLASS, Action.ADD | Action.UPDATE, class_offers_resource),
    ),
    _requests_and_priority,
)

"""Events and hints of the rules that look at the node alone, and of NodeResourcesFit.

Sources: upstream plugins nodeaffinity, nodename, nodeunschedulable, tainttoleration, nodedeclaredfeatures,
noderesources/fit.go: EventsToRegister and the isSchedulableAfter... functions.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from extender.framework.events.cluster_events import Action, Change, Resource
from extender.framework.events.queueing_hints import Interest, Interests, encoded
from extender.model.meta import NodeSelectorTerm
from extender.model.node import Node
from extender.model.pod import Pod
from extender.model.quantity import amounts
from extender.model.requests import is_counted, is_extended
from extender.model.selectors import compile_requirement
from extender.model.tolerations import NO_EXECUTE, NO_SCHEDULE, UNSCHEDULABLE_TAINT, tolerates, untolerated
from extender.table import PodInfo

_FIELD_LABELS = "metadata.name"
PODS = "pods"


# ---- NodeAffinity


def node_starts_to_match(pod: PodInfo, change: Change) -> bool:
    """The node has what the pod requires, and had not before."""
    if not _matches(pod.pod, change.new):
        return False
    return change.old is None or not _matches(pod.pod, change.old)


def _matches(pod: Pod, node: Node) -> bool:
    wanted = pod.spec.node_selector or {}
    if any(node.labels.get(key) != value for key, value in wanted.items()):
        return False
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    if affinity is None or affinity.required is None:
        return True
    return any(_satisfies(node, term) for term in affinity.required.node_selector_terms or ())


def _satisfies(node: Node, term: NodeSelectorTerm) -> bool:
    if not term.match_expressions and not term.match_fields:
        return False
    fields = {_FIELD_LABELS: node.name}
    return all(compile_requirement(each).matches(node.labels) for each in term.match_expressions or ()) and all(
        compile_requirement(each).matches(fields) for each in term.match_fields or ()
    )


def _read_by_node_affinity(pod: PodInfo) -> Hashable:
    affinity = pod.pod.spec.affinity
    return encoded(pod.pod.spec.node_selector, affinity.node_affinity if affinity else None)


NODE_AFFINITY = Interests(
    (Interest(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL, node_starts_to_match),), _read_by_node_affinity
)

NODE_NAME = Interests((Interest(Resource.NODE, Action.ADD),))


# ---- NodeUnschedulable, TaintToleration


def node_opens(_pod: PodInfo, change: Change) -> bool:
    """The node takes pods, and did not before."""
    return not change.new.spec.unschedulable and (change.old is None or bool(change.old.spec.unschedulable))


def pod_tolerates_unschedulable(_pod: PodInfo, change: Change) -> bool:
    """The pod's new tolerations cover the taint of nodes that are cordoned."""
    return any(tolerates(each, UNSCHEDULABLE_TAINT) for each in change.new.pod.spec.tolerations or ())


def taints_become_tolerated(pod: PodInfo, change: Change) -> bool:
    """The pod tolerates the node's taints, and had not before."""
    return not _repels(change.new, pod) and (change.old is None or _repels(change.old, pod))


def _repels(node: Node, pod: PodInfo) -> bool:
    return bool(untolerated(node.taints, pod.pod.spec.tolerations or (), (NO_SCHEDULE, NO_EXECUTE)))


def _tolerations(pod: PodInfo) -> Hashable:
    return encoded(pod.pod.spec.tolerations)


NODE_UNSCHEDULABLE = Interests(
    (
        Interest(Resource.NODE, Action.ADD | Action.UPDATE_NODE_TAINT, node_opens),
        Interest(Resource.TARGET_POD, Action.UPDATE_POD_TOLERATION, pod_tolerates_unschedulable),
    )
)

TAINT_TOLERATION = Interests(
    (
        Interest(Resource.NODE, Action.ADD | Action.UPDATE_NODE_TAINT, taints_become_tolerated),
        Interest(Resource.TARGET_POD, Action.UPDATE_POD_TOLERATION),
    ),
    _tolerations,
)


# ---- NodeDeclaredFeatures


def features_change(_pod: PodInfo, change: Change) -> bool:
    """A node came, or declares other features than before."""
    return change.old is None or _features(change.old) != _features(change.new)


def _features(node: Node) -> list[str]:
    return node.status.declared_features or []


NODE_DECLARED_FEATURES = Interests(
    (
        Interest(Resource.NODE, Action.ADD | Action.UPDATE_NODE_DECLARED_FEATURE, features_change),
        Interest(Resource.TARGET_POD, Action.UPDATE),
    )
)


# ---- NodeResourcesFit


def node_has_room(pod: PodInfo, change: Change) -> bool:
    """The node, were it empty, would hold the pod, and offers more of something that counts than before."""
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
    """A pod left a place, and what its node has free now, lower priorities aside, holds the pod; unknown: it may."""
    left = change.old.pod
    if not left.node_name and not left.status.nominated_node_name:
        return False
    if change.room is None:
        return True
    free = change.room(pod.priority)
    return free.get(PODS, 1) > 0 and _holds(free, _wanted(pod))


def other_pod_shrinks(pod: PodInfo, change: Change) -> bool:
    """A placed pod asks for less than before of something that the pod wants too."""
    before, after = dict(change.old.footprint.requests), dict(change.new.footprint.requests)
    if not any(before.get(name, 0) > after.get(name, 0) for name in _wanted(pod)):
        return False
    return room_is_enough(pod, change)


def class_offers_resource(pod: PodInfo, _change: Change) -> bool:
    """The pod wants resources of somebody's own, which a device class may stand for (KEP-5004)."""
    return any(map(is_extended, _wanted(pod)))


def _wanted(pod: PodInfo) -> Mapping[str, int]:
    return {name: amount for name, amount in pod.requests.items() if amount and is_counted(name)}


def _holds(offered: Mapping[str, int], wanted: Mapping[str, int]) -> bool:
    return all(amount <= offered.get(name, 0) or _may_be_a_device(name, offered) for name, amount in wanted.items())


def _may_be_a_device(resource: str, offered: Mapping[str, int]) -> bool:
    return is_extended(resource) and resource not in offered


def _requests_and_priority(pod: PodInfo) -> Hashable:
    return tuple(sorted(pod.requests.items())), pod.priority


NODE_RESOURCES_FIT = Interests(
    (
        Interest(Resource.ASSIGNED_POD, Action.DELETE, room_is_enough),
        Interest(Resource.ASSIGNED_POD, Action.UPDATE_POD_SCALE_DOWN, other_pod_shrinks),
        Interest(Resource.TARGET_POD, Action.UPDATE_POD_SCALE_DOWN),
        Interest(Resource.NODE, Action.ADD | Action.UPDATE_NODE_ALLOCATABLE, node_has_room),
        Interest(Resource.DEVICE_CLASS, Action.ADD | Action.UPDATE, class_offers_resource),
    ),
    _requests_and_priority,
)

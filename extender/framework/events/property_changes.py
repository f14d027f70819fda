"""Updates of pods and nodes as cluster events.

Source: upstream framework.PodSchedulingPropertiesChange, NodeSchedulingPropertiesChange.
"""

from __future__ import annotations

from collections.abc import Iterator

from extender.framework.events.cluster_events import Action, ClusterEvent, Resource
from extender.model.node import Node
from extender.table import PodInfo


def pod_events(old: PodInfo, new: PodInfo, *, target: bool) -> list[ClusterEvent]:
    """Returns the events of a pod's update; one general Update where nothing special changed.

    Args:
        target: the events are for the pod itself, which waits.
    """
    resource = Resource.TARGET_POD if target else Resource.UNSCHEDULED_POD
    if new.pod.node_name:
        resource = Resource.ASSIGNED_POD
    return [ClusterEvent(resource, action) for action in _pod_actions(old, new)] or [
        ClusterEvent(resource, Action.UPDATE)
    ]


def node_events(old: Node, new: Node) -> list[ClusterEvent]:
    """Returns the events of a node's update; none where nothing changed that the scheduler looks at."""
    return [ClusterEvent(Resource.NODE, action) for action in dict.fromkeys(_node_actions(old, new))]


def _pod_actions(old: PodInfo, new: PodInfo) -> Iterator[Action]:
    if old.pod.labels != new.pod.labels:
        yield Action.UPDATE_POD_LABEL
    yield from _scale_actions(old, new)
    before, after = old.pod.spec, new.pod.spec
    if before.scheduling_gates and not after.scheduling_gates:
        yield Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED
    if len(before.tolerations or ()) != len(after.tolerations or ()):  # the API lets them only be added
        yield Action.UPDATE_POD_TOLERATION
    if _generated_claims(old) != _generated_claims(new):
        yield Action.UPDATE_POD_GENERATED_RESOURCE_CLAIM


def _scale_actions(old: PodInfo, new: PodInfo) -> Iterator[Action]:
    before, after = dict(old.footprint.requests), dict(new.footprint.requests)
    if any(amount > after.get(name, 0) for name, amount in before.items()):
        yield Action.UPDATE_POD_SCALE_DOWN
    if any(amount > before.get(name, 0) for name, amount in after.items()):
        yield Action.UPDATE_POD_SCALE_UP


def _generated_claims(info: PodInfo) -> object:
    status = info.pod.status
    return status.resource_claim_statuses or [], status.extended_resource_claim_status


def _node_actions(old: Node, new: Node) -> Iterator[Action]:
    if old.spec.unschedulable and not new.spec.unschedulable:
        yield Action.UPDATE_NODE_TAINT
    if old.allocatable != new.allocatable:
        yield Action.UPDATE_NODE_ALLOCATABLE
    if old.labels != new.labels:
        yield Action.UPDATE_NODE_LABEL
    if list(old.taints) != list(new.taints):
        yield Action.UPDATE_NODE_TAINT
    if _conditions(old) != _conditions(new):
        yield Action.UPDATE_NODE_CONDITION
    if old.annotations != new.annotations:
        yield Action.UPDATE_NODE_ANNOTATION
    if (old.status.declared_features or []) != (new.status.declared_features or []):
        yield Action.UPDATE_NODE_DECLARED_FEATURE


def _conditions(node: Node) -> dict[str, str]:
    return {condition.type: condition.status for condition in node.status.conditions or ()}

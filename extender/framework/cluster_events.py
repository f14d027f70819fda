"""Defines cluster events: changes of objects that may help an unschedulable pod.

Source: upstream kube-scheduler/framework/types.go (ClusterEvent, ActionType, EventResource), MatchClusterEvents,
PodSchedulingPropertiesChange, NodeSchedulingPropertiesChange.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import Flag, StrEnum, auto
from functools import reduce
from operator import or_
from typing import Any, NamedTuple

from extender.model.node import Node
from extender.table import PodInfo


class Action(Flag):
    """The kind of a change. It is a flag, because a rule may register for several kinds at once."""

    ADD = auto()
    DELETE = auto()
    UPDATE_NODE_ALLOCATABLE = auto()
    UPDATE_NODE_LABEL = auto()
    UPDATE_NODE_TAINT = auto()
    """The node's taints or its spec.unschedulable changed."""
    UPDATE_NODE_CONDITION = auto()
    UPDATE_NODE_ANNOTATION = auto()
    UPDATE_NODE_DECLARED_FEATURE = auto()
    UPDATE_POD_LABEL = auto()
    UPDATE_POD_SCALE_DOWN = auto()
    """A request became smaller."""
    UPDATE_POD_SCALE_UP = auto()
    UPDATE_POD_TOLERATION = auto()
    UPDATE_POD_SCHEDULING_GATES_ELIMINATED = auto()
    UPDATE_POD_GENERATED_RESOURCE_CLAIM = auto()
    """The names of generated claims in the pod's status changed."""
    UPDATE = reduce(or_, [action for name, action in vars().items() if name.startswith("UPDATE_")])
    """Any update. An event has this action only if no more specific action describes the update."""
    ALL = ADD | DELETE | UPDATE


class Resource(StrEnum):
    """The kind of the changed object. Some kinds are only for users' rules; no plugin registers for them."""

    ASSIGNED_POD = "AssignedPod"
    UNSCHEDULED_POD = "UnscheduledPod"
    TARGET_POD = "TargetPod"
    """The pod that is waiting."""
    POD = "Pod"
    """Any pod. Rules may register for this; an event always has one of the three kinds of pods above."""
    NODE = "Node"
    PERSISTENT_VOLUME = "PersistentVolume"
    PERSISTENT_VOLUME_CLAIM = "PersistentVolumeClaim"
    STORAGE_CLASS = "storage.k8s.io/StorageClass"
    CSI_NODE = "storage.k8s.io/CSINode"
    CSI_DRIVER = "storage.k8s.io/CSIDriver"
    CSI_STORAGE_CAPACITY = "storage.k8s.io/CSIStorageCapacity"
    VOLUME_ATTACHMENT = "storage.k8s.io/VolumeAttachment"
    RESOURCE_CLAIM = "resource.k8s.io/ResourceClaim"
    RESOURCE_SLICE = "resource.k8s.io/ResourceSlice"
    DEVICE_CLASS = "resource.k8s.io/DeviceClass"
    DEVICE_TAINT_RULE = "resource.k8s.io/DeviceTaintRule"
    """Upstream reports a change of a taint rule as changes of the ResourceSlices that the rule selects."""
    RESOURCE_CLAIM_TEMPLATE = "resource.k8s.io/ResourceClaimTemplate"
    NAMESPACE = "Namespace"
    SERVICE = "Service"
    REPLICATION_CONTROLLER = "ReplicationController"
    REPLICA_SET = "apps/ReplicaSet"
    STATEFUL_SET = "apps/StatefulSet"
    POD_DISRUPTION_BUDGET = "policy/PodDisruptionBudget"
    PRIORITY_CLASS = "scheduling.k8s.io/PriorityClass"
    POD_GROUP = "scheduling.k8s.io/PodGroup"
    COMPOSITE_POD_GROUP = "scheduling.k8s.io/CompositePodGroup"
    CUSTOM_OBJECT = "CustomObject"
    """An object of any kind that the policy watches for users' rules."""
    WILDCARD = "*"


_PODS = frozenset((Resource.ASSIGNED_POD, Resource.UNSCHEDULED_POD, Resource.TARGET_POD))
_WORDS = {action: "".join(word.title() for word in str(action.name).split("_")) for action in (*Action, Action.UPDATE)}


class ClusterEvent(NamedTuple):
    """A kind of event. `custom_label` replaces the label made from resource and action."""

    resource: Resource
    action: Action
    custom_label: str = ""

    @property
    def label(self) -> str:
        """The name in metrics, like `AssignedPodDelete` or `NodeUpdateNodeTaint`."""
        return self.custom_label or f"{self.resource.value}{_WORDS[self.action]}"

    @property
    def frees_room(self) -> bool:
        """True if the only effect of the event is to free resources of a node, as preemption does."""
        return self.resource is Resource.ASSIGNED_POD and self.action in (Action.DELETE | Action.UPDATE_POD_SCALE_DOWN)

    def is_met_by(self, event: ClusterEvent) -> bool:
        """Returns True if `event` is this event or a special case of it.

        A rule that has registered for this event receives `event`, too.
        """
        return self._covers(event.resource) and event.action in self.action

    def _covers(self, resource: Resource) -> bool:
        return self.resource in (Resource.WILDCARD, resource) or (self.resource is Resource.POD and resource in _PODS)


UNSCHEDULED_POD_ADD = ClusterEvent(Resource.UNSCHEDULED_POD, Action.ADD)
ASSIGNED_POD_ADD = ClusterEvent(Resource.ASSIGNED_POD, Action.ADD)
ASSIGNED_POD_DELETE = ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE)
NODE_ADD = ClusterEvent(Resource.NODE, Action.ADD)

# Other reasons to move a pod in the queue, by their names in metrics.
SCHEDULE_ATTEMPT_FAILURE = "ScheduleAttemptFailure"
BACKOFF_COMPLETE = "BackoffComplete"
POP_FROM_BACKOFF_Q = "PopFromBackoffQ"
FORCE_ACTIVATE = "ForceActivate"
UNSCHEDULABLE_TIMEOUT = "UnschedulableTimeout"
RULE_WAKE = "RuleWake"
POLICY_RELOAD = "PolicyReload"
EVENTS_MISSED = "EventsMissed"

Room = Callable[[int], Mapping[str, int] | None]
"""A function that takes a priority and returns what a node has free if all pods of lower priority leave.

The amount of cpu is in millicores. A resource that devices may provide is absent if the node does not have it.

The function returns None while pods are nominated to the node, because nominated pods reserve resources. The queue then
tries the waiting pods without comparing amounts.
"""


class Change(NamedTuple):
    """The object before and after an event. `old` is None if it was added, `new` is None if it was deleted.

    A pod is passed as a PodInfo. If a pod was deleted or scaled down, `room` may return the free resources of its node.
    The queue then wakes only pods that fit into these resources.
    """

    event: ClusterEvent
    old: Any = None
    new: Any = None
    room: Room | None = None


def pod_events(old: PodInfo, new: PodInfo, *, target: bool) -> list[ClusterEvent]:
    """Returns an event for each changed property, such as labels; a general Update if no such property changed.

    Args:
        target: True if the events may help the updated pod itself, which waits; False if they may help other pods.
    """
    resource = Resource.TARGET_POD if target else Resource.UNSCHEDULED_POD
    if new.pod.node_name:
        resource = Resource.ASSIGNED_POD
    return [ClusterEvent(resource, action) for action in _pod_actions(old, new)] or [
        ClusterEvent(resource, Action.UPDATE)
    ]


def node_events(old: Node, new: Node) -> list[ClusterEvent]:
    """Returns the events of a node's update; no events if nothing changed that scheduling depends on."""
    return [ClusterEvent(Resource.NODE, action) for action in dict.fromkeys(_node_actions(old, new))]


def _pod_actions(old: PodInfo, new: PodInfo) -> Iterator[Action]:
    if old.pod.labels != new.pod.labels:
        yield Action.UPDATE_POD_LABEL
    yield from _scale_actions(old, new)
    before, after = old.pod.spec, new.pod.spec
    if before.scheduling_gates and not after.scheduling_gates:
        yield Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED
    # The API only allows adding tolerations, so a change shows in their number.
    if len(before.tolerations or ()) != len(after.tolerations or ()):
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

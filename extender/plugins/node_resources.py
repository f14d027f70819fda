"""NodeResourcesFit and NodeResourcesBalancedAllocation: compare the requests of pods with what nodes offer.

This module has the arguments and queueing hints; `node_resources_fit` has the predicate, and `node_resources_scores`
the priorities. Source: upstream plugin noderesources.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from math import inf
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, model_validator

from extender.devices.pod_claims import IMPLICIT_PREFIX, may_be_backed
from extender.framework.cluster_events import Action, Change, Resource
from extender.framework.plugin import FILTER, PRE_FILTER, PRE_SCORE, Arguments, Plugin
from extender.framework.policy_fields import LabelKey, ResourceSpec, Shape, Strict, points
from extender.framework.queueing_hints import AmountLimits, Interest, Interests, Reads, has_place, reads_names
from extender.model.quantity import amounts
from extender.model.requests import is_counted
from extender.plugins.node_resources_fit import NAME, NodeResourcesFitFilter
from extender.plugins.node_resources_scores import BALANCED_ALLOCATION as BALANCED_ALLOCATION_NAME
from extender.plugins.node_resources_scores import (
    CPU_AND_MEMORY,
    NodeResourcesBalancedAllocation,
    NodeResourcesFitScore,
    RequestedToCapacityRatio,
    ResourceWeight,
    ResourceWeights,
    Strategy,
    least_allocated,
    most_allocated,
)
from extender.table import PodInfo


class RequestedToCapacityRatioParam(Strict):
    shape: Shape
    """The points of a line that maps the used share of a resource to a score."""


class ScoringStrategy(Strict):
    type: Literal["LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"]
    """LeastAllocated, MostAllocated or RequestedToCapacityRatio."""
    resources: tuple[ResourceSpec, ...] = ()
    """The resources that count; by default cpu and memory."""
    requested_to_capacity_ratio: RequestedToCapacityRatioParam | None = None
    """The scores by utilization, for type RequestedToCapacityRatio."""

    @model_validator(mode="after")
    def _ratio_for_its_type_only(self) -> Self:
        needs_ratio = self.type == "RequestedToCapacityRatio"
        if needs_ratio and self.requested_to_capacity_ratio is None:
            raise ValueError("type RequestedToCapacityRatio needs requestedToCapacityRatio")
        if not needs_ratio and self.requested_to_capacity_ratio is not None:
            raise ValueError(f"type {self.type} takes no requestedToCapacityRatio")
        return self

    @property
    def strategy(self) -> Strategy:
        if self.requested_to_capacity_ratio is not None:
            return RequestedToCapacityRatio(points(self.requested_to_capacity_ratio.shape))
        return most_allocated if self.type == "MostAllocated" else least_allocated


def _group(value: str) -> str:
    if "/" in value:
        raise ValueError("expected a group of resources, like example.com, without a slash")
    return value


class NodeResourcesFitArgs(Arguments):
    kind: Literal["NodeResourcesFitArgs"] = "NodeResourcesFitArgs"
    ignored_resources: tuple[LabelKey, ...] = ()
    """Extended resources to ignore."""
    ignored_resource_groups: tuple[Annotated[LabelKey, AfterValidator(_group)], ...] = ()
    """Groups of extended resources to ignore. A group is the part of a name before the slash."""
    scoring_strategy: ScoringStrategy = ScoringStrategy(type="LeastAllocated")
    """The way in which the share of resources in use becomes a score."""


def _weight_one_each(resources: tuple[ResourceSpec, ...]) -> tuple[ResourceSpec, ...]:
    names = [resource.name for resource in resources]
    if len(set(names)) < len(names):
        raise ValueError("expected every resource once")
    if any(resource.weight > 1 for resource in resources):
        raise ValueError("expected resources of weight 1")
    return resources


class NodeResourcesBalancedAllocationArgs(Arguments):
    kind: Literal["NodeResourcesBalancedAllocationArgs"] = "NodeResourcesBalancedAllocationArgs"
    resources: Annotated[tuple[ResourceSpec, ...], AfterValidator(_weight_one_each)] = ()
    """The resources to use up evenly; by default cpu and memory."""


def weights(resources: Sequence[ResourceSpec]) -> ResourceWeights:
    """Converts configured resources to the weights that the priorities use; by default, cpu and memory."""
    return tuple(ResourceWeight(spec.name, spec.weight or 1) for spec in resources) or CPU_AND_MEMORY


PODS = "pods"
BUILT_IN_RESOURCES = ("cpu", "memory", "ephemeral-storage")


def room_of_empty_node(change: Change, _priority: int) -> AmountLimits | None:
    """Returns how much a waiting pod may request to fit on a new or changed node without pods.

    If the node changed, a pod must also request a resource of which the node now offers more. None means that the node
    takes no pods.
    """
    offered = amounts(change.new.allocatable)
    if not offered.get(PODS):
        return None
    before = amounts(change.old.allocatable) if change.old else {}

    def grows(resource: str) -> bool:
        return offered.get(resource, 0) > before.get(resource, 0) or _may_be_a_device(resource, offered)

    return AmountLimits(_at_most(offered), None if change.old is None or grows(PODS) else grows)


def room_after_pod(change: Change, priority: int) -> AmountLimits | None:
    """Returns how much a waiting pod may request to fit on a node that another pod has left.

    The limit is what would be free on the node without its pods of lower priority. If the free amounts are unknown,
    there is no limit. None means that the change helps no pod of this priority.
    """
    if not has_place(change.old):
        return None
    free = change.room(priority) if change.room else None
    if free is None:
        return AmountLimits()
    return AmountLimits(_at_most(free)) if free.get(PODS, 1) > 0 else None


def room_beside_smaller_pod(change: Change, priority: int) -> AmountLimits | None:
    """Returns how much a waiting pod may request to fit on a node where a placed pod now requests less.

    The limits of `room_after_pod` apply. A pod must also request a resource of which the placed pod now requests less.
    """
    before, after = dict(change.old.footprint.requests), dict(change.new.footprint.requests)
    freed = {name for name, amount in before.items() if amount > after.get(name, 0)}
    limits = room_after_pod(change, priority)
    return None if limits is None else limits._replace(any_of=freed.__contains__)


def nominated_node_shrinks(pod: PodInfo, change: Change) -> bool:
    """Returns True if the pod is nominated to the node, which has become too small for it even without other pods.

    The next attempt may evict pods elsewhere. Members of groups are left out, because the group decides for them.
    """
    if change.new.name != pod.pod.status.nominated_node_name or pod.pod.spec.scheduling_group is not None:
        return False
    before, after = amounts(change.old.allocatable), amounts(change.new.allocatable)
    return any(after.get(name, 0) < pod.requests.get(name, 0) <= before.get(name, 0) for name in BUILT_IN_RESOURCES)


def _nominated(pod: PodInfo) -> list[str]:
    return [pod.pod.status.nominated_node_name] if pod.pod.status.nominated_node_name else []


def _nominated_and_requests(pod: PodInfo) -> Hashable:
    is_member = pod.pod.spec.scheduling_group is not None
    return *_nominated(pod), is_member, *(pod.requests.get(name, 0) for name in BUILT_IN_RESOURCES)


SHRUNK_NOMINATION = Interest(
    Resource.NODE,
    Action.UPDATE_NODE_ALLOCATABLE,
    nominated_node_shrinks,
    Reads(_nominated_and_requests, _nominated),
    lambda change: (change.new.name,),
)
"""Only since Kubernetes 1.38 (`Behaviours.shrunk_nomination_wakes`)."""


def class_offers_resource(pod: PodInfo, change: Change) -> bool:
    """Returns True if a device class now provides a resource that the pod requests (KEP-5004)."""
    return not _counted_requests(pod).keys().isdisjoint(resources_of_class(change))


def resources_of_class(change: Change) -> list[str]:
    """Returns the resources that the device class provides and did not provide before."""
    old, new = change.old, change.new
    if old is not None and old.spec.extended_resource_name == new.spec.extended_resource_name:
        return []
    explicit = new.spec.extended_resource_name
    implicit = f"{IMPLICIT_PREFIX}{new.name}" if old is None else None
    return [name for name in (explicit, implicit) if name]


def _counted_requests(pod: PodInfo) -> Mapping[str, int]:
    return {name: amount for name, amount in pod.requests.items() if amount and is_counted(name)}


def _at_most(offered: Mapping[str, int]) -> Callable[[str], float]:
    return lambda resource: inf if _may_be_a_device(resource, offered) else offered.get(resource, 0)


def _may_be_a_device(resource: str, offered: Mapping[str, int]) -> bool:
    return may_be_backed(resource) and not offered.get(resource)


def _requests_and_priority(pod: PodInfo) -> Hashable:
    return tuple(sorted(_counted_requests(pod).items())), pod.priority


_REQUESTS = Reads(_requests_and_priority, amounts=_counted_requests)


def _room_interest(
    resource: Resource, actions: Action, limits: Callable[[Change, int], AmountLimits | None]
) -> Interest:
    def is_enough(pod: PodInfo, change: Change) -> bool:
        room = limits(change, pod.priority)
        return room is not None and room.admit(_counted_requests(pod))

    return Interest(resource, actions, is_enough, _REQUESTS, limits=limits)


INTERESTS = Interests(
    (
        _room_interest(Resource.ASSIGNED_POD, Action.DELETE, room_after_pod),
        _room_interest(Resource.ASSIGNED_POD, Action.UPDATE_POD_SCALE_DOWN, room_beside_smaller_pod),
        Interest(Resource.TARGET_POD, Action.UPDATE_POD_SCALE_DOWN),
        _room_interest(Resource.NODE, Action.ADD | Action.UPDATE_NODE_ALLOCATABLE, room_of_empty_node),
        Interest(
            Resource.DEVICE_CLASS,
            Action.ADD | Action.UPDATE,
            class_offers_resource,
            reads_names(_counted_requests),
            resources_of_class,
        ),
    )
)


FIT = Plugin(
    NAME,
    NodeResourcesFitArgs,
    lambda args: NodeResourcesFitFilter(frozenset(args.ignored_resources), frozenset(args.ignored_resource_groups)),
    lambda args: NodeResourcesFitScore(args.scoring_strategy.strategy, weights(args.scoring_strategy.resources)),
    points=frozenset((PRE_SCORE, "placementScore")),
    needs=((FILTER, PRE_FILTER),),
    interests=INTERESTS,
)
BALANCED_ALLOCATION = Plugin(
    BALANCED_ALLOCATION_NAME,
    NodeResourcesBalancedAllocationArgs,
    priority=lambda args: NodeResourcesBalancedAllocation(weights(args.resources)),
    points=frozenset((PRE_SCORE,)),
)

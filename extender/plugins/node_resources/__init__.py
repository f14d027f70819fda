"""NodeResourcesFit and NodeResourcesBalancedAllocation: what pods request, against what nodes offer.

Source: upstream plugin noderesources.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from math import inf
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, model_validator

from extender.devices.extended_resources import IMPLICIT_PREFIX, may_be_backed
from extender.framework.events.cluster_events import Action, Change, Resource
from extender.framework.events.queueing_hints import AmountLimits, Interest, Interests, Reads, has_place, reads_names
from extender.framework.plugin import FILTER, PRE_FILTER, PRE_SCORE, Arguments, Plugin
from extender.framework.schema import LabelKey, ResourceSpec, Shape, Strict, points
from extender.model.quantity import amounts
from extender.model.requests import is_counted
from extender.plugins.node_resources.allocation import CPU_AND_MEMORY, ResourceWeight, ResourceWeights
from extender.plugins.node_resources.fit import NAME, NodeResourcesFitFilter
from extender.plugins.node_resources.priorities import (
    BALANCED_ALLOCATION as BALANCED_ALLOCATION_NAME,
)
from extender.plugins.node_resources.priorities import (
    NodeResourcesBalancedAllocation,
    NodeResourcesFitScore,
    RequestedToCapacityRatio,
    Strategy,
    least_allocated,
    most_allocated,
)
from extender.table import PodInfo


class RequestedToCapacityRatioParam(Strict):
    shape: Shape
    """Points of the line from the share that is taken to the score."""


class ScoringStrategy(Strict):
    type: Literal["LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"]
    """LeastAllocated, MostAllocated or RequestedToCapacityRatio."""
    resources: tuple[ResourceSpec, ...] = ()
    """The resources that count; cpu and memory if none are given."""
    requested_to_capacity_ratio: RequestedToCapacityRatioParam | None = None
    """The line of RequestedToCapacityRatio."""

    @model_validator(mode="after")
    def _ratio_where_it_belongs(self) -> Self:
        wanted = self.type == "RequestedToCapacityRatio"
        if wanted and self.requested_to_capacity_ratio is None:
            raise ValueError("type RequestedToCapacityRatio needs requestedToCapacityRatio")
        if not wanted and self.requested_to_capacity_ratio is not None:
            raise ValueError(f"type {self.type} takes no requestedToCapacityRatio")
        return self

    @property
    def strategy(self) -> Strategy:
        if self.requested_to_capacity_ratio is not None:
            return RequestedToCapacityRatio(points(self.requested_to_capacity_ratio.shape))
        return most_allocated if self.type == "MostAllocated" else least_allocated


def _group(value: str) -> str:
    if "/" in value:
        raise ValueError("want a group of resources, like example.com, without a slash")
    return value


class NodeResourcesFitArgs(Arguments):
    kind: Literal["NodeResourcesFitArgs"] = "NodeResourcesFitArgs"
    ignored_resources: tuple[LabelKey, ...] = ()
    """Extended resources to be overlooked."""
    ignored_resource_groups: tuple[Annotated[LabelKey, AfterValidator(_group)], ...] = ()
    """Groups of extended resources to be overlooked, the part before the slash."""
    scoring_strategy: ScoringStrategy = ScoringStrategy(type="LeastAllocated")
    """Makes a score of the share of the resources that is taken."""


def _weight_one_each(resources: tuple[ResourceSpec, ...]) -> tuple[ResourceSpec, ...]:
    names = [resource.name for resource in resources]
    if len(set(names)) < len(names):
        raise ValueError("want every resource once")
    if any(resource.weight > 1 for resource in resources):
        raise ValueError("want resources of weight 1")
    return resources


class NodeResourcesBalancedAllocationArgs(Arguments):
    kind: Literal["NodeResourcesBalancedAllocationArgs"] = "NodeResourcesBalancedAllocationArgs"
    resources: Annotated[tuple[ResourceSpec, ...], AfterValidator(_weight_one_each)] = ()
    """The resources that are to be used up evenly; cpu and memory if none are given."""


def weights(resources: Sequence[ResourceSpec]) -> ResourceWeights:
    """Returns the resources as the priorities take them; cpu and memory if there are none."""
    return tuple(ResourceWeight(each.name, each.weight or 1) for each in resources) or CPU_AND_MEMORY


PODS = "pods"


def room_of_empty_node(change: Change, _priority: int) -> AmountLimits | None:
    """Returns what the node would hold, were it empty; only of help to who asks for what it has more of than before."""
    offered = amounts(change.new.allocatable)
    if not offered.get(PODS):
        return None
    before = amounts(change.old.allocatable) if change.old else {}

    def grows(resource: str) -> bool:
        return offered.get(resource, 0) > before.get(resource, 0) or _may_be_a_device(resource, offered)

    return AmountLimits(_at_most(offered), None if change.old is None or grows(PODS) else grows)


def room_after_pod(change: Change, priority: int) -> AmountLimits | None:
    """Returns what is free on the node that a pod left, pods of lower priority aside; any amount if that is unknown."""
    if not has_place(change.old):
        return None
    free = change.room(priority) if change.room else None
    if free is None:
        return AmountLimits()
    return AmountLimits(_at_most(free)) if free.get(PODS, 1) > 0 else None


def room_beside_smaller_pod(change: Change, priority: int) -> AmountLimits | None:
    """Returns what is free on the node of a pod that asks for less; only of help to who asks for the same resource."""
    before, after = dict(change.old.footprint.requests), dict(change.new.footprint.requests)
    freed = {name for name, amount in before.items() if amount > after.get(name, 0)}
    limits = room_after_pod(change, priority) if freed else None
    return limits and limits._replace(any_of=freed.__contains__)


def class_offers_resource(pod: PodInfo, change: Change) -> bool:
    """Returns True if a device class came to stand behind a resource that the pod asks for (KEP-5004)."""
    return not _wanted(pod).keys().isdisjoint(resources_of_class(change))


def resources_of_class(change: Change) -> list[str]:
    """Returns the resources that the device class stands behind and did not before."""
    old, new = change.old, change.new
    if old is not None and old.spec.extended_resource_name == new.spec.extended_resource_name:
        return []
    named, implicit = new.spec.extended_resource_name, f"{IMPLICIT_PREFIX}{new.name}"
    return [name for name in (named, implicit if old is None else None) if name]


def _wanted(pod: PodInfo) -> Mapping[str, int]:
    return {name: amount for name, amount in pod.requests.items() if amount and is_counted(name)}


def _at_most(offered: Mapping[str, int]) -> Callable[[str], float]:
    return lambda resource: inf if _may_be_a_device(resource, offered) else offered.get(resource, 0)


def _may_be_a_device(resource: str, offered: Mapping[str, int]) -> bool:
    return may_be_backed(resource) and not offered.get(resource)


def _wanted_and_priority(pod: PodInfo) -> Hashable:
    return tuple(sorted(_wanted(pod).items())), pod.priority


_REQUESTS = Reads(_wanted_and_priority, amounts=_wanted)


def _of_room(resource: Resource, actions: Action, limits: Callable[[Change, int], AmountLimits | None]) -> Interest:
    def is_enough(pod: PodInfo, change: Change) -> bool:
        found = limits(change, pod.priority)
        return found is not None and found.admit(_wanted(pod))

    return Interest(resource, actions, is_enough, _REQUESTS, limits=limits)


INTERESTS = Interests(
    (
        _of_room(Resource.ASSIGNED_POD, Action.DELETE, room_after_pod),
        _of_room(Resource.ASSIGNED_POD, Action.UPDATE_POD_SCALE_DOWN, room_beside_smaller_pod),
        Interest(Resource.TARGET_POD, Action.UPDATE_POD_SCALE_DOWN),
        _of_room(Resource.NODE, Action.ADD | Action.UPDATE_NODE_ALLOCATABLE, room_of_empty_node),
        Interest(
            Resource.DEVICE_CLASS,
            Action.ADD | Action.UPDATE,
            class_offers_resource,
            reads_names(_wanted),
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

"""NodeResourcesFitArgs and NodeResourcesBalancedAllocationArgs, with upstream's defaults and validation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, model_validator

from extender.framework.plugin import Arguments
from extender.framework.schema import LabelKey, ResourceSpec, Shape, Strict, points
from extender.plugins.node_resources.allocation import CPU_AND_MEMORY, ResourceWeight, ResourceWeights
from extender.plugins.node_resources.fit_score import (
    RequestedToCapacityRatio,
    Strategy,
    least_allocated,
    most_allocated,
)


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
        """Returns the function that scores."""
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

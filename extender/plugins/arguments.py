"""The arguments of in-tree plugins (pluginConfig), with upstream's defaults and validation.

Source: upstream apis/config/v1/defaults.go, apis/config/validation/validation_pluginargs.go.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Annotated, Literal, Self, TypeVar

import msgspec
from pydantic import AfterValidator, model_validator

from extender.framework.candidate_limits import CandidateLimits
from extender.framework.schema import (
    LabelKey,
    NodeAffinity,
    NonNegative,
    OptionalShape,
    Percentage,
    ResourceSpec,
    Shape,
    Strict,
    TopologySpreadConstraint,
    UtilizationShapePoint,
)
from extender.framework.shape import ShapePoint
from extender.model import pod as model
from extender.plugins.node_resources.allocation import CPU_AND_MEMORY, ResourceWeight
from extender.plugins.node_resources.scoring_strategies import (
    RequestedToCapacityRatio,
    Strategy,
    least_allocated,
    most_allocated,
)
from extender.plugins.pod_topology_spread.constraints import SYSTEM_DEFAULTS

T = TypeVar("T")

_DURATION = re.compile(r"\+?(\d+(\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)")


class Arguments(Strict):
    """Base of all: the header that arguments may have. A plugin without arguments takes just that."""

    api_version: Literal["kubescheduler.config.k8s.io/v1"] = "kubescheduler.config.k8s.io/v1"
    kind: str = ""


class DefaultPreemptionArgs(Arguments):
    kind: Literal["DefaultPreemptionArgs"] = "DefaultPreemptionArgs"
    min_candidate_nodes_percentage: Percentage = 10
    """The share of the nodes that preemption looks for candidates on, at the least."""
    min_candidate_nodes_absolute: NonNegative = 100
    """How many nodes these are at the least."""

    @model_validator(mode="after")
    def _some(self) -> Self:
        if not self.min_candidate_nodes_percentage and not self.min_candidate_nodes_absolute:
            raise ValueError("minCandidateNodesPercentage and minCandidateNodesAbsolute cannot both be 0")
        return self

    @property
    def limits(self) -> CandidateLimits:
        return CandidateLimits(self.min_candidate_nodes_percentage, self.min_candidate_nodes_absolute)


class InterPodAffinityArgs(Arguments):
    kind: Literal["InterPodAffinityArgs"] = "InterPodAffinityArgs"
    hard_pod_affinity_weight: Percentage = 1
    """What required affinity of other pods' counts when nodes are scored."""
    ignore_preferred_terms_of_existing_pods: bool = False
    """Whether what placed pods prefer counts only for pods that prefer something themselves."""


class NodeAffinityArgs(Arguments):
    kind: Literal["NodeAffinityArgs"] = "NodeAffinityArgs"
    added_affinity: NodeAffinity = NodeAffinity()
    """Node affinity that every pod of the profile has beside its own."""

    @property
    def added(self) -> model.NodeAffinity:
        return _as_model(self.added_affinity, model.NodeAffinity)


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
    """How the share of the resources that is taken becomes a score."""

    @property
    def resources(self) -> tuple[ResourceWeight, ...]:
        return weights(self.scoring_strategy.resources)


def _no_resource_twice(resources: tuple[ResourceSpec, ...]) -> tuple[ResourceSpec, ...]:
    names = [resource.name for resource in resources]
    if len(set(names)) < len(names):
        raise ValueError("want every resource once")
    if any(resource.weight > 1 for resource in resources):
        raise ValueError("want resources of weight 1")
    return resources


class NodeResourcesBalancedAllocationArgs(Arguments):
    kind: Literal["NodeResourcesBalancedAllocationArgs"] = "NodeResourcesBalancedAllocationArgs"
    resources: Annotated[tuple[ResourceSpec, ...], AfterValidator(_no_resource_twice)] = ()
    """The resources that are to be used up evenly; cpu and memory if none are given."""

    @property
    def weights(self) -> tuple[ResourceWeight, ...]:
        return weights(self.resources)


def _no_constraint_twice(constraints: tuple[TopologySpreadConstraint, ...]) -> tuple[TopologySpreadConstraint, ...]:
    if len({(each.topology_key, each.when_unsatisfiable) for each in constraints}) < len(constraints):
        raise ValueError("want every pair of topologyKey and whenUnsatisfiable once")
    return constraints


class PodTopologySpreadArgs(Arguments):
    kind: Literal["PodTopologySpreadArgs"] = "PodTopologySpreadArgs"
    default_constraints: Annotated[tuple[TopologySpreadConstraint, ...], AfterValidator(_no_constraint_twice)] = ()
    """What pods without constraints of their own are spread by, with defaultingType List."""
    defaulting_type: Literal["System", "List"] = "System"
    """System: by hostname and zone, softly; List: by defaultConstraints."""

    @model_validator(mode="after")
    def _list_for_constraints(self) -> Self:
        if self.defaulting_type == "System" and self.default_constraints:
            raise ValueError("defaultConstraints need defaultingType List")
        return self

    @property
    def defaults(self) -> Sequence[model.TopologySpreadConstraint]:
        if self.defaulting_type == "System":
            return SYSTEM_DEFAULTS
        return tuple(_as_model(each, model.TopologySpreadConstraint) for each in self.default_constraints)


class VolumeBindingArgs(Arguments):
    kind: Literal["VolumeBindingArgs"] = "VolumeBindingArgs"
    bind_timeout_seconds: NonNegative = 600
    """How long extender schedule waits for volumes to be bound."""
    shape: OptionalShape = ()
    """Points of the line from the share of a volume that is asked for to the score; none: volumes are not scored."""


def duration(least_seconds: float) -> Callable[[str], str]:
    """A validator of durations as Go writes them."""

    def check(value: str) -> str:
        if not re.fullmatch(rf"({_DURATION.pattern})+|0", value) or duration_seconds(value) < least_seconds:
            raise ValueError(f"want a duration of at least {least_seconds:g}s, like 10s or 5m")
        return value

    return check


def duration_seconds(text: str) -> float:
    """A duration as Go writes it ("1m30s") in seconds."""
    units = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
    return sum(float(amount) * units[unit] for amount, _, unit in _DURATION.findall(text))


class DynamicResourcesArgs(Arguments):
    kind: Literal["DynamicResourcesArgs"] = "DynamicResourcesArgs"
    filter_timeout: Annotated[str, AfterValidator(duration(0))] = "10s"
    """Read, and of no effect: all nodes are looked at together."""
    binding_timeout: Annotated[str, AfterValidator(duration(1))] = "10m"
    """How long extender schedule waits for binding conditions of devices."""


def points(shape: Sequence[UtilizationShapePoint]) -> tuple[ShapePoint, ...]:
    """A shape as the engine takes it."""
    return tuple(ShapePoint(point.utilization, point.score) for point in shape)


def weights(resources: Sequence[ResourceSpec]) -> tuple[ResourceWeight, ...]:
    """Resources as the engine takes them; none stand for cpu and memory."""
    return tuple(ResourceWeight(each.name, each.weight or 1) for each in resources) or CPU_AND_MEMORY


def _as_model(value: Strict, kind: type[T]) -> T:
    return msgspec.convert(value.model_dump(by_alias=True, exclude_none=True), kind)

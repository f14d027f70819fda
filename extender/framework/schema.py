"""What the models of policy files are made of. Types are strict, names are the API's, unknown names are faults."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

_QUALIFIED_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_DNS_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


class Strict(BaseModel):
    """Base of every part of a policy file."""

    model_config = ConfigDict(
        frozen=True, strict=True, extra="forbid", alias_generator=to_camel, use_attribute_docstrings=True
    )


class Ignored(BaseModel):
    """A part that concerns kube-scheduler alone: read by nobody here, so by nobody checked."""

    model_config = ConfigDict(frozen=True, extra="allow")


def _label_key(value: str) -> str:
    prefix, separator, name = value.rpartition("/")
    well_formed = _QUALIFIED_NAME.fullmatch(name) and (not separator or _is_dns_subdomain(prefix))
    if not well_formed:
        raise ValueError("want a label key, like example.com/rack")
    return value


def _is_dns_subdomain(text: str) -> bool:
    return len(text) <= 253 and _DNS_SUBDOMAIN.fullmatch(text) is not None


LabelKey = Annotated[str, AfterValidator(_label_key)]
Percentage = Annotated[int, Field(ge=0, le=100)]
NonNegative = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(gt=0)]


class UtilizationShapePoint(Strict):
    """A point of a scoring line."""

    utilization: Percentage = 0
    """The share that is taken, in percent."""
    score: Annotated[int, Field(ge=0, le=10)] = 0
    """The score there, of 10."""


def _ascending(shape: tuple[UtilizationShapePoint, ...]) -> tuple[UtilizationShapePoint, ...]:
    utilizations = [point.utilization for point in shape]
    if utilizations != sorted(set(utilizations)):
        raise ValueError("want points in increasing order of utilization")
    return shape


# No points at all: the default shape, where there is one.
OptionalShape = Annotated[tuple[UtilizationShapePoint, ...], AfterValidator(_ascending)]
Shape = Annotated[OptionalShape, Field(min_length=1)]


class ResourceSpec(Strict):
    """A resource that a priority looks at; a weight of 0 is the default, 1."""

    name: Annotated[str, Field(min_length=1)]
    """The resource."""
    weight: Annotated[int, Field(ge=0, le=100)] = 0
    """How much it counts; 0: 1."""


class NodeSelectorRequirement(Strict):
    key: str
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    values: tuple[str, ...] = ()


def _values_fit(requirement: NodeSelectorRequirement) -> NodeSelectorRequirement:
    match requirement.operator:
        case "In" | "NotIn" if not requirement.values:
            raise ValueError(f"operator {requirement.operator} needs values")
        case "Exists" | "DoesNotExist" if requirement.values:
            raise ValueError(f"operator {requirement.operator} takes no values")
        case "Gt" | "Lt" if not (len(requirement.values) == 1 and re.fullmatch(r"[+-]?\d+", requirement.values[0])):
            raise ValueError(f"operator {requirement.operator} needs exactly one whole number")
    return requirement


def _expression(requirement: NodeSelectorRequirement) -> NodeSelectorRequirement:
    _label_key(requirement.key)
    return _values_fit(requirement)


def _field(requirement: NodeSelectorRequirement) -> NodeSelectorRequirement:
    if requirement.key != "metadata.name":
        raise ValueError("the one field to select by is metadata.name")
    if requirement.operator not in ("In", "NotIn") or len(requirement.values) != 1:
        raise ValueError("a field is selected by operator In or NotIn and exactly one value")
    return requirement


class NodeSelectorTerm(Strict):
    match_expressions: tuple[Annotated[NodeSelectorRequirement, AfterValidator(_expression)], ...] = ()
    match_fields: tuple[Annotated[NodeSelectorRequirement, AfterValidator(_field)], ...] = ()


class NodeSelector(Strict):
    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class PreferredSchedulingTerm(Strict):
    weight: int = 0
    preference: NodeSelectorTerm = NodeSelectorTerm()


class NodeAffinity(Strict):
    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    preferred_during_scheduling_ignored_during_execution: tuple[PreferredSchedulingTerm, ...] = ()


class TopologySpreadConstraint(Strict):
    max_skew: Positive
    topology_key: LabelKey
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"]
    min_domains: Positive | None = None
    node_affinity_policy: Literal["Honor", "Ignore"] | None = None
    node_taints_policy: Literal["Honor", "Ignore"] | None = None
    match_label_keys: tuple[str, ...] | None = None

"""PodTopologySpreadArgs: the constraints of pods that have none of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, Self

import msgspec
from pydantic import AfterValidator, model_validator

from extender.framework.plugin import Arguments
from extender.framework.schema import LabelKey, Positive, Strict
from extender.model.pod import TopologySpreadConstraint
from extender.plugins.pod_topology_spread.constraints import SYSTEM_DEFAULTS


class TopologySpreadConstraintSpec(Strict):
    max_skew: Positive
    topology_key: LabelKey
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"]
    min_domains: Positive | None = None
    node_affinity_policy: Literal["Honor", "Ignore"] | None = None
    node_taints_policy: Literal["Honor", "Ignore"] | None = None
    match_label_keys: tuple[str, ...] | None = None


Constraints = tuple[TopologySpreadConstraintSpec, ...]


def _each_once(constraints: Constraints) -> Constraints:
    if len({(each.topology_key, each.when_unsatisfiable) for each in constraints}) < len(constraints):
        raise ValueError("want every pair of topologyKey and whenUnsatisfiable once")
    return constraints


class PodTopologySpreadArgs(Arguments):
    kind: Literal["PodTopologySpreadArgs"] = "PodTopologySpreadArgs"
    default_constraints: Annotated[Constraints, AfterValidator(_each_once)] = ()
    """The constraints of pods that have none of their own, with defaultingType List."""
    defaulting_type: Literal["System", "List"] = "System"
    """System: by hostname and zone, softly; List: by defaultConstraints."""

    @model_validator(mode="after")
    def _list_for_constraints(self) -> Self:
        if self.defaulting_type == "System" and self.default_constraints:
            raise ValueError("defaultConstraints need defaultingType List")
        return self

    @property
    def defaults(self) -> Sequence[TopologySpreadConstraint]:
        """Returns the default constraints as the model has them."""
        if self.defaulting_type == "System":
            return SYSTEM_DEFAULTS
        given = [each.model_dump(by_alias=True, exclude_none=True) for each in self.default_constraints]
        return tuple(msgspec.convert(each, TopologySpreadConstraint) for each in given)

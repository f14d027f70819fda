"""NodeAffinityArgs: node affinity that a profile adds to that of every pod."""

from __future__ import annotations

import re
from typing import Annotated, Literal

import msgspec
from pydantic import AfterValidator

from extender.framework.plugin import Arguments
from extender.framework.schema import Strict, label_key
from extender.model import pod as model


class NodeSelectorRequirementSpec(Strict):
    key: str
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    values: tuple[str, ...] = ()


def _expression(requirement: NodeSelectorRequirementSpec) -> NodeSelectorRequirementSpec:
    label_key(requirement.key)
    match requirement.operator:
        case "In" | "NotIn" if not requirement.values:
            raise ValueError(f"operator {requirement.operator} needs values")
        case "Exists" | "DoesNotExist" if requirement.values:
            raise ValueError(f"operator {requirement.operator} takes no values")
        case "Gt" | "Lt" if not (len(requirement.values) == 1 and re.fullmatch(r"[+-]?\d+", requirement.values[0])):
            raise ValueError(f"operator {requirement.operator} needs exactly one whole number")
    return requirement


def _field(requirement: NodeSelectorRequirementSpec) -> NodeSelectorRequirementSpec:
    if requirement.key != "metadata.name":
        raise ValueError("the one field to select by is metadata.name")
    if requirement.operator not in ("In", "NotIn") or len(requirement.values) != 1:
        raise ValueError("a field is selected by operator In or NotIn and exactly one value")
    return requirement


class NodeSelectorTermSpec(Strict):
    match_expressions: tuple[Annotated[NodeSelectorRequirementSpec, AfterValidator(_expression)], ...] = ()
    match_fields: tuple[Annotated[NodeSelectorRequirementSpec, AfterValidator(_field)], ...] = ()


class NodeSelectorSpec(Strict):
    node_selector_terms: tuple[NodeSelectorTermSpec, ...] = ()


class PreferredSchedulingTermSpec(Strict):
    weight: int = 0
    preference: NodeSelectorTermSpec = NodeSelectorTermSpec()


class NodeAffinitySpec(Strict):
    required_during_scheduling_ignored_during_execution: NodeSelectorSpec | None = None
    preferred_during_scheduling_ignored_during_execution: tuple[PreferredSchedulingTermSpec, ...] = ()


class NodeAffinityArgs(Arguments):
    kind: Literal["NodeAffinityArgs"] = "NodeAffinityArgs"
    added_affinity: NodeAffinitySpec = NodeAffinitySpec()
    """Node affinity that every pod of the profile has beside its own."""

    @property
    def added(self) -> model.NodeAffinity:
        """Returns addedAffinity as the model has it."""
        given = self.added_affinity.model_dump(by_alias=True, exclude_none=True)
        return msgspec.convert(given, model.NodeAffinity)

"""NodeAffinity: nodes must match a pod's nodeSelector and node affinity, and the affinity that its profile adds.

Source: upstream plugin nodeaffinity.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal

import msgspec
import numpy as np
from pydantic import AfterValidator, Field

from extender.errors import RuleFailed
from extender.framework.cluster_events import Action, Change, Resource
from extender.framework.node_selectors import (
    NODE_NAME_FIELD,
    is_required_node,
    is_selected,
    is_well_formed,
    nodes_in_selector,
    nodes_in_term,
    nodes_required_by,
    required_node_selector,
    selects_nodes,
)
from extender.framework.plugin import PRE_SCORE, Arguments, Plugin
from extender.framework.policy_fields import Strict, label_key
from extender.framework.queueing_hints import (
    Interest,
    Interests,
    Reads,
    encoded,
    names_of_labels,
    names_of_requirement,
    names_of_requirements,
)
from extender.framework.rules import Check, PerNode, RowCheck, RowScorer, Scorer, Scores, Verdict, normalised
from extender.framework.status import Refusal, unresolvable
from extender.model import pod as model
from extender.model.meta import NodeSelector, NodeSelectorTerm
from extender.model.pod import Pod, PreferredSchedulingTerm
from extender.model.selectors import Requirement, compile_requirement
from extender.table import PodInfo, Table
from extender.table.labels import Rows

NAME = "NodeAffinity"
REFUSAL = unresolvable(NAME, "node(s) didn't match Pod's node affinity/selector")
ENFORCED = unresolvable(NAME, "node(s) didn't match scheduler-enforced node affinity")
CONFLICT = unresolvable(NAME, "pod affinity terms conflict")


class NodeSelectorRequirementSpec(Strict):
    key: str
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    values: tuple[str, ...] = ()


def _expression(requirement: NodeSelectorRequirementSpec) -> NodeSelectorRequirementSpec:
    label_key(requirement.key)
    parsed = Requirement(requirement.key, requirement.operator, frozenset(requirement.values))
    match requirement.operator:
        case "In" | "NotIn" if not requirement.values:
            raise ValueError(f"operator {requirement.operator} needs values")
        case "Exists" | "DoesNotExist" if requirement.values:
            raise ValueError(f"operator {requirement.operator} takes no values")
        case "Gt" | "Lt" if parsed.bound() is None:
            raise ValueError(f"operator {requirement.operator} needs exactly one whole number")
    if not parsed.well_formed():
        raise ValueError("expected values that a label can have")
    return requirement


def _field(requirement: NodeSelectorRequirementSpec) -> NodeSelectorRequirementSpec:
    if requirement.key != "metadata.name":
        raise ValueError("the only field to select by is metadata.name")
    if requirement.operator not in ("In", "NotIn") or len(requirement.values) != 1:
        raise ValueError("a field needs operator In or NotIn and exactly one value")
    return requirement


class NodeSelectorTermSpec(Strict):
    match_expressions: tuple[Annotated[NodeSelectorRequirementSpec, AfterValidator(_expression)], ...] = ()
    match_fields: tuple[Annotated[NodeSelectorRequirementSpec, AfterValidator(_field)], ...] = ()


class NodeSelectorSpec(Strict):
    node_selector_terms: tuple[NodeSelectorTermSpec, ...] = ()


class PreferredSchedulingTermSpec(Strict):
    weight: Annotated[int, Field(ge=-(2**31), le=2**31 - 1)] = 0
    preference: NodeSelectorTermSpec = NodeSelectorTermSpec()


class NodeAffinitySpec(Strict):
    required_during_scheduling_ignored_during_execution: NodeSelectorSpec | None = None
    preferred_during_scheduling_ignored_during_execution: tuple[PreferredSchedulingTermSpec, ...] = ()


class NodeAffinityArgs(Arguments):
    kind: Literal["NodeAffinityArgs"] = "NodeAffinityArgs"
    added_affinity: NodeAffinitySpec = NodeAffinitySpec()
    """Node affinity that applies to every pod of the profile in addition to its own."""

    @property
    def added(self) -> model.NodeAffinity:
        """The argument addedAffinity, converted to a struct of the model."""
        affinity = self.added_affinity.model_dump(by_alias=True, exclude_none=True)
        return msgspec.convert(affinity, model.NodeAffinity)


def node_starts_to_match(pod: PodInfo, change: Change) -> bool:
    """Returns True if the node now matches the pod's required affinity and nodeSelector, and did not before."""
    return is_required_node(pod.pod, change.new) and (change.old is None or not is_required_node(pod.pod, change.old))


def _added_starts_to_match(added: NodeSelector, pod: PodInfo, change: Change) -> bool:
    """Returns True if the node matches `added` now but did not before, and matches the pod's own affinity.

    `added` is the affinity that the profile adds to every pod (addedAffinity).
    """
    starts_to_match = is_selected(change.new, added) and not is_selected(change.old, added)
    return starts_to_match and is_required_node(pod.pod, change.new)


def labels_of_node(change: Change) -> list[str]:
    """Returns the name and labels of the new node. The queue looks up the waiting pods that require any of them."""
    return [*names_of_labels(change.new.labels), *names_of_labels({NODE_NAME_FIELD: change.new.name})]


def labels_that_changed(change: Change) -> Iterator[str]:
    """Yields the labels that changed on the node. The queue looks up the waiting pods that require any of them."""
    old, new = change.old.labels, change.new.labels
    for key in old.keys() | new.keys():
        if old.get(key) != new.get(key):
            yield from names_of_labels({key: new.get(key, "")})


def _required(pod: PodInfo) -> Hashable:
    affinity = pod.pod.spec.affinity
    return encoded(pod.pod.spec.node_selector, affinity.node_affinity if affinity else None)


def _one_requirement_of_each_term(pod: PodInfo) -> Iterator[str]:
    return (name for requirements in _alternatives(pod.pod) for name in names_of_requirements(requirements))


def _every_requirement(pod: PodInfo) -> Iterator[str]:
    for alternative in _alternatives(pod.pod):
        for requirement in alternative:
            yield from names_of_requirement(requirement)


def _alternatives(pod: Pod) -> list[list[Requirement]]:
    """Returns lists of requirements. The pod accepts a node that satisfies all requirements of at least one list."""
    labels = [Requirement(key, "In", frozenset((value,))) for key, value in (pod.spec.node_selector or {}).items()]
    required = required_node_selector(pod)
    if required is None:
        return [labels]
    terms = [
        (*(term.match_expressions or ()), *(term.match_fields or ())) for term in required.node_selector_terms or ()
    ]
    return [[*labels, *map(compile_requirement, term)] for term in terms]


INTERESTS = Interests(
    (
        Interest(
            Resource.NODE,
            Action.ADD,
            node_starts_to_match,
            Reads(_required, _one_requirement_of_each_term),
            labels_of_node,
        ),
        Interest(
            Resource.NODE,
            Action.UPDATE_NODE_LABEL,
            node_starts_to_match,
            Reads(_required, _every_requirement),
            labels_that_changed,
        ),
    )
)


@dataclass(frozen=True, slots=True)
class NodeAffinityFilter(PerNode):
    """Refuses nodes that the pod's nodeSelector and required affinity do not match.

    `added`: the required affinity that the profile adds to the pod's own (addedAffinity).
    """

    added: NodeSelector | None = None
    name: str = NAME

    @property
    def added_interests(self) -> Sequence[Interest]:
        """The event that may help pods refused by addedAffinity: a node was relabelled and matches now.

        Upstream does not wake the pod for this event.
        """
        if self.added is None:
            return ()
        hint = partial(_added_starts_to_match, self.added)
        return (Interest(Resource.NODE, Action.UPDATE_NODE_LABEL, hint, Reads(_required)),)

    def prepare(self, pod: PodInfo, table: Table) -> Check | Refusal | None:
        required = required_node_selector(pod.pod)
        if self.added is None and not selects_nodes(pod.pod):
            return None
        only = _named_nodes(required.node_selector_terms or ()) if required else None
        if only is not None and not only:
            return CONFLICT

        def refuse(rows: Rows) -> Verdict:
            unmatched = ~nodes_required_by(pod.pod, table, rows)
            if self.added is None:
                return [(unmatched, REFUSAL)]
            not_enforced = ~nodes_in_selector(self.added, table, rows)
            return [(not_enforced, ENFORCED), (unmatched & ~not_enforced, REFUSAL)]

        return RowCheck(refuse, only)


def _named_nodes(terms: Sequence[NodeSelectorTerm]) -> frozenset[str] | None:
    """Returns the names of the nodes that can match, if every term names nodes; otherwise None."""
    names: set[str] = set()
    for term in terms:
        fields = [f for f in term.match_fields or () if f.key == NODE_NAME_FIELD and f.operator == "In"]
        if not fields:
            return None
        names |= set.intersection(*(set(f.values or ()) for f in fields))
    return frozenset(names) if terms else None


@dataclass(frozen=True, slots=True)
class NodeAffinityScore(PerNode):
    """Prefers nodes that match preferred terms: each matching term adds its weight.

    `added`: the preferred terms that the profile adds to the pod's own terms (addedAffinity).
    """

    added: tuple[PreferredSchedulingTerm, ...] = ()
    name: str = NAME

    def prepare(self, pod: PodInfo, table: Table, rows: Rows) -> Scorer | None:
        affinity = pod.pod.spec.affinity.node_affinity if pod.pod.spec.affinity else None
        own = affinity.preferred if affinity else None
        if own:
            _raise_if_malformed(own)
        terms = [term for term in (*self.added, *(own or ())) if term.weight]

        def score(rows: Rows) -> Scores:
            total = np.zeros(len(rows), np.int64)
            for term in terms:
                total += term.weight * nodes_in_term(term.preference, table, rows)
            return total

        return RowScorer(score, normalised) if own or self.added else None


def _raise_if_malformed(terms: Sequence[PreferredSchedulingTerm]) -> None:
    """Raises RuleFailed if a term is malformed, because upstream's PreScore then rejects the pod."""
    for index, term in enumerate(terms):
        if term.weight and not is_well_formed(term.preference):
            raise RuleFailed(f'running PreScore plugin "{NAME}": preferred term [{index}] is malformed', NAME)


PLUGIN = Plugin(
    NAME,
    NodeAffinityArgs,
    lambda args: NodeAffinityFilter(args.added.required),
    lambda args: NodeAffinityScore(tuple(args.added.preferred or ())),
    weight=2,
    points=frozenset((PRE_SCORE,)),
    interests=INTERESTS,
)

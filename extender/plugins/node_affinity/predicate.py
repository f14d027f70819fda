"""NodeAffinity: the pod's nodeSelector and required node affinity, and what the policy adds to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from extender.framework.node_affinity import (
    NODE_NAME_FIELD,
    nodes_in_selector,
    nodes_required_by,
    required_node_selector,
    selects_nodes,
)
from extender.framework.rules import Check, PerNode, RowCheck, Verdict
from extender.framework.status import Refusal, unresolvable
from extender.model.meta import NodeSelector, NodeSelectorTerm
from extender.table import PodInfo, Table
from extender.table.labels import Rows

NAME = "NodeAffinity"
REFUSAL = unresolvable(NAME, "node(s) didn't match Pod's node affinity/selector")
ENFORCED = unresolvable(NAME, "node(s) didn't match scheduler-enforced node affinity")
CONFLICT = unresolvable(NAME, "pod affinity terms conflict")


@dataclass(frozen=True, slots=True)
class NodeAffinityFilter(PerNode):
    """Upstream nodeaffinity.NodeAffinity, Filter. `added`: the required part of the argument addedAffinity."""

    added: NodeSelector | None = None
    name: str = NAME

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
    """The nodes that the terms name, if every term names some: no other can match."""
    names: set[str] = set()
    for term in terms:
        fields = [f for f in term.match_fields or () if f.key == NODE_NAME_FIELD and f.operator == "In"]
        if not fields:
            return None
        names |= set.intersection(*(set(f.values or ()) for f in fields))
    return frozenset(names) if terms else None

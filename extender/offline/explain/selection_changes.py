"""Fewer demands on a node: labels of nodeSelector and expressions of required node affinity to drop."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from extender.framework.node_affinity import nodes_in_term, nodes_with_labels, required_node_selector
from extender.model.meta import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from extender.model.pod import Pod
from extender.offline.explain.details import requirement_text
from extender.offline.explain.step import Fits, Step, with_spec
from extender.offline.state import ClusterState
from extender.table.labels import BoolColumn, Rows


class NodeSelection:
    """Drops labels of nodeSelector, and expressions of required node affinity."""

    kind = "node-selection"

    def lifted(self, pod: Pod) -> Pod | None:
        if not pod.spec.node_selector and required_node_selector(pod) is None:
            return None
        return _selecting(pod, {}, None)

    def steps(self, pod: Pod, state: ClusterState, fits: Fits) -> Iterator[Step]:
        lifted = self.lifted(pod)
        if pod.spec.topology_spread_constraints:
            rows = state.table.nodes.rows  # a demand that stays may leave out the domain that makes the skew too large
        else:
            rows = fits(lifted) if lifted else np.zeros(0, np.intp)
        drops = {drop for missing, _ in missing_demands(pod, state, rows) for drop in missing if drop.demands}
        for drop in sorted(drops, key=lambda each: (len(each.demands), each.term, sorted(each.demands))):
            text = "drop " + " and ".join(sorted(drop.demands))
            yield Step(text, len(drop.demands), partial(_without_demands, drop=drop))


class Missing(NamedTuple):
    """The demands of nodeSelector and of the affinity term at this position (-1: there is none) that a node fails."""

    term: int
    demands: frozenset[str]


def missing_demands(pod: Pod, state: ClusterState, rows: Rows) -> list[tuple[list[Missing], Rows]]:
    """The ways in which rows fail, with the rows that fail so: what is lacking by each term of required affinity."""
    table = state.table
    labels = [
        (f"nodeSelector {key}={value}", nodes_with_labels({key: value}, table, rows))
        for key, value in (pod.spec.node_selector or {}).items()
    ]
    required = required_node_selector(pod)
    terms = list(enumerate((required.node_selector_terms or ()) if required else ())) or [(-1, NodeSelectorTerm())]
    met: list[tuple[int, str, BoolColumn]] = []
    for position, term in terms:
        alone = [
            *((each, NodeSelectorTerm(match_expressions=[each])) for each in term.match_expressions or ()),
            *((each, NodeSelectorTerm(match_fields=[each])) for each in term.match_fields or ()),
        ]
        met += [(position, name, fulfilled) for name, fulfilled in labels]
        met += [(position, _requirement_key(each), nodes_in_term(single, table, rows)) for each, single in alone]
    if not len(rows) or not met:
        return [([Missing(position, frozenset()) for position, _ in terms], rows)]
    ways, way_of = np.unique(np.array([fulfilled for *_, fulfilled in met]), axis=1, return_inverse=True)
    return [
        (
            [
                Missing(
                    position,
                    frozenset(
                        name
                        for (at, name, _), holds in zip(met, ways[:, way], strict=True)
                        if at == position and not holds
                    ),
                )
                for position, _ in terms
            ],
            rows[way_of.ravel() == way],
        )
        for way in range(ways.shape[1])
    ]


def _requirement_key(each: NodeSelectorRequirement) -> str:
    return f"affinity {requirement_text(each)}"


def _without_demands(pod: Pod, drop: Missing) -> Pod:
    selector = {
        key: value
        for key, value in (pod.spec.node_selector or {}).items()
        if f"nodeSelector {key}={value}" not in drop.demands
    }
    required = required_node_selector(pod)
    if required is None or drop.term < 0:
        return _selecting(pod, selector, required)
    terms = list(required.node_selector_terms or ())
    term = terms[drop.term]
    left = NodeSelectorTerm(
        match_expressions=[e for e in term.match_expressions or () if _requirement_key(e) not in drop.demands],
        match_fields=[e for e in term.match_fields or () if _requirement_key(e) not in drop.demands],
    )
    terms[drop.term] = left
    # A term without conditions selects nothing; a pod that is to have none has no required affinity.
    empty = not left.match_expressions and not left.match_fields
    return _selecting(pod, selector, None if empty else replace(required, node_selector_terms=terms))


def _selecting(pod: Pod, selector: dict[str, str], required: NodeSelector | None) -> Pod:
    affinity = pod.spec.affinity
    if affinity and affinity.node_affinity:
        affinity = replace(affinity, node_affinity=replace(affinity.node_affinity, required=required))
    return with_spec(pod, node_selector=selector or None, affinity=affinity)

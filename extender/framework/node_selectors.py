"""Evaluates node selectors for many nodes at once or for a single node.

Source: k8s.io/component-helpers/scheduling/corev1/nodeaffinity.
"""

from __future__ import annotations

import numpy as np

from extender.model.meta import NodeSelector, NodeSelectorTerm
from extender.model.node import Node
from extender.model.pod import Pod
from extender.model.selectors import Requirement, compile_requirement
from extender.table import Table
from extender.table.labels import BoolColumn, Rows

NODE_NAME_FIELD = "metadata.name"


def nodes_in_selector(selector: NodeSelector, table: Table, rows: Rows) -> BoolColumn:
    """Returns bool[len(rows)]: True if any term of the selector matches; False for a selector without terms."""
    matched = np.zeros(len(rows), np.bool_)
    for term in selector.node_selector_terms or ():
        matched |= nodes_in_term(term, table, rows)
    return matched


def nodes_in_term(term: NodeSelectorTerm, table: Table, rows: Rows) -> BoolColumn:
    """Returns bool[len(rows)]: True if all requirements of the term match.

    A term matches nothing if it is empty or has a malformed requirement.
    """
    expressions = [compile_requirement(expression) for expression in term.match_expressions or ()]
    if not (expressions or term.match_fields) or not all(requirement.well_formed() for requirement in expressions):
        return np.zeros(len(rows), np.bool_)
    matched = np.ones(len(rows), np.bool_)
    for requirement in expressions:
        table.deadline.check("matching node labels")
        matched &= table.nodes.labels.satisfying(requirement, rows)
    for field in term.match_fields or ():
        table.deadline.check("matching node names")
        matched &= _nodes_with_field(compile_requirement(field), table, rows)
    return matched


def is_well_formed(term: NodeSelectorTerm) -> bool:
    """Returns True if the term is well-formed (upstream newNodeSelectorTerm returns no errors)."""
    fields = [compile_requirement(field) for field in term.match_fields or ()]
    return all(compile_requirement(expression).well_formed() for expression in term.match_expressions or ()) and all(
        field.operator in ("In", "NotIn") and len(field.values) == 1 for field in fields
    )


def nodes_with_labels(labels: dict[str, str], table: Table, rows: Rows) -> BoolColumn:
    """Returns bool[len(rows)]: True if the node has all of the labels (a pod's nodeSelector)."""
    matched = np.ones(len(rows), np.bool_)
    for key, value in labels.items():
        table.deadline.check("matching the pod's nodeSelector")
        matched &= table.nodes.labels.satisfying(Requirement(key, "In", frozenset((value,))), rows)
    return matched


def nodes_required_by(pod: Pod, table: Table, rows: Rows) -> BoolColumn:
    """Returns bool[len(rows)]: True if the pod's nodeSelector and required affinity match (GetRequiredNodeAffinity)."""
    labels, required = pod.spec.node_selector or {}, required_node_selector(pod)
    if required is None:
        return nodes_with_labels(labels, table, rows)
    matched = nodes_in_selector(required, table, rows)
    return matched & nodes_with_labels(labels, table, rows) if labels else matched


def is_required_node(pod: Pod, node: Node) -> bool:
    """Returns True if `nodes_required_by` would accept this node."""
    labels = pod.spec.node_selector or {}
    if any(node.labels.get(key) != value for key, value in labels.items()):
        return False
    required = required_node_selector(pod)
    return required is None or is_selected(node, required)


def is_selected(node: Node, selector: NodeSelector) -> bool:
    """Returns True if `nodes_in_selector` would accept this node."""
    return any(_is_in_term(node, term) for term in selector.node_selector_terms or ())


def _is_in_term(node: Node, term: NodeSelectorTerm) -> bool:
    if not term.match_expressions and not term.match_fields:
        return False
    fields = {NODE_NAME_FIELD: node.name}
    expressions = [compile_requirement(expression) for expression in term.match_expressions or ()]
    names = [compile_requirement(field) for field in term.match_fields or ()]
    return all(e.matches(node.labels) for e in expressions) and all(name.matches(fields) for name in names)


def selects_nodes(pod: Pod) -> bool:
    """Returns True if the pod has a nodeSelector or required node affinity."""
    return required_node_selector(pod) is not None or pod.spec.node_selector is not None


def required_node_selector(pod: Pod) -> NodeSelector | None:
    """Returns the pod's required node affinity, or None if it has none."""
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    return affinity.required if affinity else None


def _nodes_with_field(requirement: Requirement, table: Table, rows: Rows) -> BoolColumn:
    # The API allows only the field metadata.name here, with a single value.
    is_allowed = requirement.operator in ("In", "NotIn") and len(requirement.values) == 1
    if requirement.key != NODE_NAME_FIELD or not is_allowed:
        return np.zeros(len(rows), np.bool_)
    named = np.isin(rows, [table.nodes.row_of.get(name, -1) for name in requirement.values])
    return named if requirement.operator == "In" else ~named

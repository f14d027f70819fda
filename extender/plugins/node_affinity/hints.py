"""The events that may help pods that NodeAffinity refused (upstream nodeaffinity, EventsToRegister)."""

from __future__ import annotations

from collections.abc import Hashable

from extender.framework.events.cluster_events import Action, Change, Resource
from extender.framework.events.queueing_hints import Interest, Interests, encoded
from extender.framework.node_affinity import NODE_NAME_FIELD, required_node_selector
from extender.model.meta import NodeSelectorTerm
from extender.model.node import Node
from extender.model.pod import Pod
from extender.model.selectors import compile_requirement
from extender.table import PodInfo


def node_starts_to_match(pod: PodInfo, change: Change) -> bool:
    """Returns True if the node has what the pod requires and had not before."""
    return _matches(pod.pod, change.new) and (change.old is None or not _matches(pod.pod, change.old))


def _matches(pod: Pod, node: Node) -> bool:
    wanted = pod.spec.node_selector or {}
    if any(node.labels.get(key) != value for key, value in wanted.items()):
        return False
    required = required_node_selector(pod)
    return required is None or any(_satisfies(node, term) for term in required.node_selector_terms or ())


def _satisfies(node: Node, term: NodeSelectorTerm) -> bool:
    if not term.match_expressions and not term.match_fields:
        return False
    fields = {NODE_NAME_FIELD: node.name}
    return all(compile_requirement(each).matches(node.labels) for each in term.match_expressions or ()) and all(
        compile_requirement(each).matches(fields) for each in term.match_fields or ()
    )


def _read_of_pod(pod: PodInfo) -> Hashable:
    affinity = pod.pod.spec.affinity
    return encoded(pod.pod.spec.node_selector, affinity.node_affinity if affinity else None)


INTERESTS = Interests(
    (Interest(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL, node_starts_to_match),), _read_of_pod
)

"""The events that may help pods that NodeAffinity refused (upstream nodeaffinity, EventsToRegister)."""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from extender.framework.events.cluster_events import Action, Change, Resource
from extender.framework.events.label_names import names_of_labels, names_of_requirement, names_of_requirements
from extender.framework.events.queueing_hints import Interest, Interests, Reads, encoded
from extender.framework.node_affinity import NODE_NAME_FIELD, required_node_selector
from extender.model.meta import NodeSelectorTerm
from extender.model.node import Node
from extender.model.pod import Pod
from extender.model.selectors import Requirement, compile_requirement
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


def labels_of_node(change: Change) -> list[str]:
    """Returns the names of the requirements that a new node may satisfy."""
    return [*names_of_labels(change.new.labels), *names_of_labels({NODE_NAME_FIELD: change.new.name})]


def labels_that_changed(change: Change) -> Iterator[str]:
    """Yields the names of the requirements that a node may satisfy which it did not satisfy before."""
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
    return (
        name for alternative in _alternatives(pod.pod) for each in alternative for name in names_of_requirement(each)
    )


def _alternatives(pod: Pod) -> list[list[Requirement]]:
    """Returns sets of requirements; a node must satisfy one set to match."""
    wanted = [Requirement(key, "In", frozenset((value,))) for key, value in (pod.spec.node_selector or {}).items()]
    required = required_node_selector(pod)
    if required is None:
        return [wanted]
    terms = [
        (*(term.match_expressions or ()), *(term.match_fields or ())) for term in required.node_selector_terms or ()
    ]
    return [[*wanted, *map(compile_requirement, term)] for term in terms]


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

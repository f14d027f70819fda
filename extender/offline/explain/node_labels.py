"""Suggests changes about node labels: the pod asks for fewer labels, or a node gets the labels that it lacks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

from msgspec.structs import replace

from extender.framework.node_selectors import required_node_selector
from extender.model.meta import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from extender.model.pod import Affinity, NodeAffinity, Pod
from extender.model.selectors import Requirement, compile_requirement, requirement_text
from extender.offline.explain.pod_terms import unspread
from extender.offline.explain.suggestion import PodChange, PodStep, SuggestedChange, subsets
from extender.offline.replicas import is_pinned
from extender.offline.state import ClusterState

_FILTER = "NodeAffinity"
_PLATFORM_DOMAINS = ("kubernetes.io", "k8s.io")
_MOST_NODES_TRIED = 16
_MOST_OTHER_NODES = 64


class Unmet(NamedTuple):
    """The demands of the pod that a node does not meet, for one term of required node affinity.

    A demand is one label of nodeSelector or one requirement of the term, as text. `term` is the index of the term; -1
    if the pod has no required node affinity.
    """

    term: int
    demands: frozenset[str]


def _without_selection(pod: Pod) -> Pod | None:
    required = _daemon_set_fields(pod)
    if not pod.spec.node_selector and required_node_selector(pod) == required:
        return None
    return _selecting(pod, {}, required)


def _selection_steps(pod: Pod, state: ClusterState) -> Iterator[PodStep]:
    drops = {drop for unmet, _ in unmet_demands(pod, state, _open_nodes(pod, state)) for drop in unmet}
    if pod.spec.topology_spread_constraints:  # a node selector also limits the domains that count for the skew
        drops |= {
            Unmet(drop.term, frozenset(chosen))
            for drop in _all_demands(pod)
            for chosen in subsets(sorted(drop.demands))
        }
    own = _field_demands(_daemon_set_fields(pod))
    for drop in sorted(drops, key=lambda drop: (len(drop.demands), drop.term, sorted(drop.demands))):
        if drop.demands and not drop.demands & own:
            yield PodStep(_drop_text(pod, drop), len(drop.demands), partial(_without_demands, drop=drop))


NODE_SELECTION = PodChange("node-selection", _without_selection, _selection_steps)
"""Drops labels of nodeSelector and expressions of required node affinity."""


def _daemon_set_fields(pod: Pod) -> NodeSelector | None:
    """Returns the match fields of the required node affinity, in which a DaemonSet's pod names its node.

    None if this is not a DaemonSet's pod.
    """
    required = required_node_selector(pod)
    if required is None or not is_pinned(pod):
        return None
    terms = [NodeSelectorTerm(match_fields=term.match_fields) for term in required.node_selector_terms or ()]
    return replace(required, node_selector_terms=terms) if all(term.match_fields for term in terms) else None


def _field_demands(required: NodeSelector | None) -> frozenset[str]:
    terms = (required.node_selector_terms or ()) if required else ()
    return frozenset(_affinity_demand(each) for term in terms for each in term.match_fields or ())


def _all_demands(pod: Pod) -> list[Unmet]:
    """Returns the `Unmet` of a node that meets no demand, for each term of required node affinity.

    Such an `Unmet` has all labels of nodeSelector and all requirements of the term.
    """
    selector = [_label_demand(key, value) for key, value in (pod.spec.node_selector or {}).items()]
    return [Unmet(position, frozenset((*selector, *_single_requirements(term)))) for position, term in _terms(pod)]


def _terms(pod: Pod) -> list[tuple[int, NodeSelectorTerm]]:
    """Returns the terms of the pod's required affinity with their positions; (-1, an empty term) if it has none."""
    required = required_node_selector(pod)
    return list(enumerate((required.node_selector_terms or ()) if required else ())) or [(-1, NodeSelectorTerm())]


def _drop_text(pod: Pod, drop: Unmet) -> str:
    """Returns the text of the change that drops these demands, such as `drop nodeSelector disk=ssd`.

    The terms of required node affinity are alternatives. If one term loses all its requirements, the pod needs no other
    term either. The other terms are then dropped too, and the text says so.
    """
    text = "drop " + " and ".join(sorted(drop.demands))
    terms = _terms(pod)
    is_whole = len(terms) > 1 and set(_single_requirements(terms[drop.term][1])) <= drop.demands
    return f"{text} and the other terms of required node affinity" if is_whole else text


def labelled_node(state: ClusterState, pod: Pod) -> SuggestedChange | None:
    """Suggests the fewest labels to set on one node so that it can take the pod; None if labels do not help.

    Nodes that refuse the pod only because of the labels it asks for are tried first. Then other nodes are tried,
    because the profile's own affinity (addedAffinity) may ask for labels too.
    """
    open_nodes = _open_nodes(pod, state)
    return _labelled(state, pod, open_nodes) or _labelled(state, pod, state.node_names()[:_MOST_OTHER_NODES])


def _labelled(state: ClusterState, pod: Pod, nodes: Sequence[str]) -> SuggestedChange | None:
    candidates = sorted(
        (len(labels), name, tuple(sorted(labels.items())))
        for unmet, names in unmet_demands(pod, state, nodes)
        for labels in (_labels_for(pod, each) for each in unmet)
        if labels
        for name in names
    )
    for size, name, labels in candidates[:_MOST_NODES_TRIED]:
        node = state.node(name)
        changed = replace(node, metadata=replace(node.metadata, labels={**node.labels, **dict(labels)}))
        with state.engine.suppose(objects=[changed]):
            if name in state.engine.feasible(pod):
                text = f"label node {name} " + " ".join(f"{key}={value}" for key, value in labels)
                return SuggestedChange("label-node", text, size, [name], set_objects=(changed,))
    return None


def unmet_demands(pod: Pod, state: ClusterState, nodes: Sequence[str]) -> list[tuple[list[Unmet], list[str]]]:
    """Groups the nodes by the demands that they do not meet; returns [(unmet demands, node names), ...].

    A group has one `Unmet` for each term of required node affinity, because a node needs to match only one term. To
    find the unmet demands, the NodeAffinity filter is run for copies of the pod that have a single demand.
    """
    labels = (pod.spec.node_selector or {}).items()
    probes = {_label_demand(key, value): _selecting(pod, {key: value}, None) for key, value in labels}
    terms = _terms(pod)
    demands_of = {position: [*probes, *_single_requirements(term)] for position, term in terms}
    for _, term in terms:
        for demand, single in _single_requirements(term).items():
            probes[demand] = _selecting(pod, {}, NodeSelector(node_selector_terms=[single]))
    refusing = {demand: state.engine.filter_by(_FILTER, probe, nodes) for demand, probe in probes.items()}
    groups: dict[tuple[frozenset[str], ...], list[str]] = {}
    for name in nodes:
        unmet = tuple(
            frozenset(demand for demand in demands_of[position] if name in refusing[demand]) for position, _ in terms
        )
        groups.setdefault(unmet, []).append(name)
    return [
        ([Unmet(position, demands) for (position, _), demands in zip(terms, unmet, strict=True)], names)
        for unmet, names in groups.items()
    ]


def _open_nodes(pod: Pod, state: ClusterState) -> list[str]:
    """Returns the nodes that could take the pod if it had no nodeSelector and no required node affinity."""
    bare = _without_selection(pod)
    return state.engine.feasible(unspread(bare), despite_errors=True) if bare else []


def _single_requirements(term: NodeSelectorTerm) -> dict[str, NodeSelectorTerm]:
    """Splits the term into terms with one requirement each; the key is the text of the requirement."""
    expressions, fields = term.match_expressions or (), term.match_fields or ()
    return {
        **{_affinity_demand(each): NodeSelectorTerm(match_expressions=[each]) for each in expressions},
        **{_affinity_demand(each): NodeSelectorTerm(match_fields=[each]) for each in fields},
    }


def _label_demand(key: str, value: str) -> str:
    return f"nodeSelector {key}={value}"


def _affinity_demand(requirement: NodeSelectorRequirement) -> str:
    return f"affinity {requirement_text(requirement)}"


def _labels_for(pod: Pod, unmet: Unmet) -> dict[str, str] | None:
    """Returns labels that meet all the demands; None if no labels can, or if Kubernetes sets these labels itself."""
    requirements = _label_requirements(pod, unmet.term)
    if not unmet.demands <= requirements.keys():  # labels cannot satisfy a requirement on a field
        return None
    labels: dict[str, str] = {}
    for key in dict.fromkeys(each.key for demand, each in requirements.items() if demand in unmet.demands):
        value = _value_for([each for each in requirements.values() if each.key == key])
        if value is None or key.rpartition("/")[0].endswith(_PLATFORM_DOMAINS):
            return None
        labels[key] = value
    return labels or None


def _label_requirements(pod: Pod, term: int) -> dict[str, NodeSelectorRequirement]:
    """Returns {text: requirement} for the labels of nodeSelector and of one term of required node affinity."""
    requirements = {
        _label_demand(key, value): NodeSelectorRequirement(key=key, operator="In", values=[value])
        for key, value in (pod.spec.node_selector or {}).items()
    }
    for each in dict(_terms(pod))[term].match_expressions or ():
        requirements[_affinity_demand(each)] = each
    return requirements


def _value_for(requirements: Sequence[NodeSelectorRequirement]) -> str | None:
    """Returns a label value that satisfies all these requirements; None if the search finds no such value."""
    compiled = list(map(compile_requirement, requirements))
    for value in (value for each in requirements for value in _values_meeting(each)):
        is_valid = Requirement("key", "In", frozenset((value,))).well_formed()
        if is_valid and all(each.matches({each.key: value}) for each in compiled):
            return value
    return None


def _values_meeting(requirement: NodeSelectorRequirement) -> Sequence[str]:
    """Returns values that may satisfy a requirement: its values for In, "" for Exists, a number for Gt or Lt."""
    bound = compile_requirement(requirement).bound()
    match requirement.operator:
        case "In":
            return requirement.values or ()
        case "Exists":
            return ("",)
        case "Gt" if bound is not None:
            return (str(bound + 1),)
        case "Lt" if bound is not None:
            return (str(bound - 1),)
        case _:
            return ()


def _without_demands(pod: Pod, drop: Unmet) -> Pod:
    selector = {
        key: value
        for key, value in (pod.spec.node_selector or {}).items()
        if _label_demand(key, value) not in drop.demands
    }
    required = required_node_selector(pod)
    if required is None or drop.term < 0:
        return _selecting(pod, selector, required)
    terms = list(required.node_selector_terms or ())
    term = terms[drop.term]
    expressions = [each for each in term.match_expressions or () if _affinity_demand(each) not in drop.demands]
    fields = [each for each in term.match_fields or () if _affinity_demand(each) not in drop.demands]
    if not expressions and not fields:
        return _selecting(pod, selector, None)  # a term without conditions would match no node
    terms[drop.term] = NodeSelectorTerm(match_expressions=expressions, match_fields=fields)
    return _selecting(pod, selector, replace(required, node_selector_terms=terms))


def _selecting(pod: Pod, selector: dict[str, str], required: NodeSelector | None) -> Pod:
    """Returns the pod with this nodeSelector and this required node affinity instead of its own."""
    affinity = pod.spec.affinity
    if required is not None or (affinity and affinity.node_affinity):
        affinity = affinity or Affinity()
        affinity = replace(affinity, node_affinity=replace(affinity.node_affinity or NodeAffinity(), required=required))
    return pod.with_spec(node_selector=selector or None, affinity=affinity)

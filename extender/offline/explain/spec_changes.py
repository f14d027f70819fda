"""Kinds of changes to a pod, their steps from small to large: smaller requests, fewer demands on the labels of nodes.

A kind can be lifted altogether (`lifted`), which shows whether it stands in the way; its `steps` are then tried in
order. A step that is named first is the smallest of its kind: whatever is less does not do on any node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import combinations
from typing import Any, NamedTuple, Protocol

import numpy as np
from msgspec.structs import replace

from extender.framework.find_fit import awaited_pods
from extender.framework.node_affinity import nodes_in_term, nodes_with_labels, required_node_selector
from extender.model.meta import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from extender.model.pod import Container, Pod, ResourceRequirements
from extender.model.quantity import amounts
from extender.model.requests import pod_requests
from extender.offline.explain.details import requirement_text
from extender.offline.state import ClusterState
from extender.offline.text import quantity
from extender.table import PodInfo
from extender.table.labels import BoolColumn, IntColumn, Rows
from extender.table.pods.nominated import AwaitedPods

Apply = Callable[[Pod], Pod]

_MOST_ELEMENTS = 6


class Step(NamedTuple):
    """A change to the pod. `size`: how many terms it touches; of requests, which part of them it gives up."""

    text: str
    size: float
    apply: Apply


class PodChange(Protocol):
    """A kind of change to a pod."""

    kind: str

    def lifted(self, pod: Pod) -> Pod | None:
        """The pod without all of the kind's demands; None: it has none."""
        ...

    def steps(self, pod: Pod, state: ClusterState) -> Iterator[Step]:
        """Steps in ascending size."""
        ...


def subsets(elements: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """Every choice of the elements but the empty one, small ones first; of very many, single ones and all of them."""
    if len(elements) > _MOST_ELEMENTS:
        yield from ([each] for each in elements)
        yield elements
        return
    for size in range(1, len(elements) + 1):
        yield from (list(chosen) for chosen in combinations(elements, size))


class Requests:
    """Asks for less of what is short."""

    kind = "requests"

    def lifted(self, pod: Pod) -> Pod | None:
        asked = {name: 0 for name, amount in pod_requests(pod).items() if amount}
        return lowered(pod, asked) if asked else None

    def steps(self, pod: Pod, state: ClusterState) -> Iterator[Step]:
        lifted = self.lifted(pod)
        requests = {name: amount for name, amount in pod_requests(pod).items() if amount}
        rows = state.fit(lifted).feasible if lifted else np.zeros(0, np.intp)
        if not len(rows):
            return
        awaited = awaited_pods(state.profile(pod), PodInfo(pod), state.table)
        left = {name: np.maximum(_left(name, state, awaited, rows), 0) for name in requests}
        short = np.array([left[name] < amount for name, amount in requests.items()])
        given_up = np.array([np.maximum(1 - left[name] / amount, 0) for name, amount in requests.items()]).sum(axis=0)
        best: dict[tuple[bool, ...], int] = {}
        for at in np.argsort(given_up, kind="stable").tolist():
            best.setdefault(tuple(short[:, at].tolist()), at)
        for lacking, at in sorted(best.items(), key=lambda each: (sum(each[0]), given_up[each[1]])):
            targets = {name: int(left[name][at]) for name, is_short in zip(requests, lacking, strict=True) if is_short}
            if targets:
                yield Step(_lowering_text(targets, requests), float(given_up[at]), partial(lowered, targets=targets))


def _left(resource: str, state: ClusterState, awaited: AwaitedPods, rows: Rows) -> IntColumn:
    """Returns what is free without the room that is kept for nominated pods: int64[len(rows)]."""
    nodes = state.table.nodes
    index = nodes.resources.get(resource)
    if index is None:
        return np.zeros(len(rows), np.int64)
    free: IntColumn = nodes.allocatable[index] - nodes.requested[index] - awaited.taken(index, nodes.capacity)
    return free[rows]


def lowered(pod: Pod, targets: dict[str, int]) -> Pod:
    """The pod asking for no more than this of each resource: cpu in milli, all else in units.

    The container that asks for the most gives first.
    """
    for resource, target in targets.items():
        overhead = amounts(pod.spec.overhead).get(resource, 0)
        if pod.spec.resources and resource in (pod.spec.resources.requests or {}):
            asked = _asking(pod.spec.resources, resource, max(target - overhead, 0))
            pod = pod.with_spec(resources=asked)
            continue
        # Each round lowers one container, so this ends.
        while (excess := pod_requests(pod, pod_level=False).get(resource, 0) - target) > 0:
            smaller = _with_less(pod, resource, excess)
            if smaller is None:
                break
            pod = smaller
    return pod


def _with_less(pod: Pod, resource: str, excess: int) -> Pod | None:
    """The pod, its most demanding container asking for up to `excess` less; None where that changes nothing."""
    before = pod_requests(pod, pod_level=False).get(resource, 0)
    lists = {"containers": list(pod.containers), "init_containers": list(pod.init_containers)}
    each = [(_asked(one, resource), name, at) for name, found in lists.items() for at, one in enumerate(found)]
    for amount, name, at in sorted(each, key=lambda one: -one[0]):
        container = lists[name][at]
        resources = container.resources or ResourceRequirements()
        changed = [*lists[name]]
        changed[at] = replace(container, resources=_asking(resources, resource, max(amount - excess, 0)))
        smaller = pod.with_spec(**{name: changed})
        if amount and (pod_requests(smaller, pod_level=False).get(resource, 0) < before or len(each) > 1):
            return smaller
    return None


def _asked(container: Container, resource: str) -> int:
    return amounts(container.resources.requests).get(resource, 0) if container.resources else 0


def _asking(resources: ResourceRequirements, resource: str, amount: int) -> ResourceRequirements:
    return replace(resources, requests={**(resources.requests or {}), resource: quantity(resource, amount)})


def _lowering_text(targets: dict[str, int], requests: dict[str, int]) -> str:
    return "request " + " and ".join(
        f"{quantity(name, amount)} {name} instead of {quantity(name, requests[name])}" if amount else f"no {name}"
        for name, amount in targets.items()
    )


class NodeSelection:
    """Drops labels of nodeSelector, and expressions of required node affinity."""

    kind = "node-selection"

    def lifted(self, pod: Pod) -> Pod | None:
        if not pod.spec.node_selector and required_node_selector(pod) is None:
            return None
        return _selecting(pod, {}, None)

    def steps(self, pod: Pod, state: ClusterState) -> Iterator[Step]:
        lifted = self.lifted(pod)
        if pod.spec.topology_spread_constraints:
            rows = state.table.nodes.rows  # a demand that stays may leave out the domain that makes the skew too large
        else:
            rows = state.fit(lifted).feasible if lifted else np.zeros(0, np.intp)
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
    return pod.with_spec(node_selector=selector or None, affinity=affinity)

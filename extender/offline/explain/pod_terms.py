"""Suggests changes to a pod's own rules: topology spread, pod affinity, host ports, nodeName and tolerations.

In place of a toleration, a cordoned node can also be uncordoned.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from functools import partial
from typing import NamedTuple

from msgspec.structs import replace

from extender.model.node import NO_EXECUTE, NO_SCHEDULE, UNSCHEDULABLE_TAINT, Node, Taint, untolerated
from extender.model.pod import (
    Affinity,
    Container,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    Toleration,
    TopologySpreadConstraint,
)
from extender.model.selectors import term_text
from extender.offline.explain.suggestion import PodStep, SuggestedChange, subsets
from extender.offline.state import ClusterState
from extender.table import PodInfo

_DO_NOT_SCHEDULE = "DoNotSchedule"
_SCHEDULE_ANYWAY = "ScheduleAnyway"
_LARGEST_SKEW = 2**20

# Position of a spread constraint in the pod -> its new maxSkew, or None to make it a preference.
Skews = dict[int, int | None]
# A taint with this prefix marks an unhealthy node. A pod that tolerates it would start there and fail.
_CONDITION_TAINTS = "node.kubernetes.io/"


class Spread:
    """A change that raises the maxSkew of topology spread constraints, or turns them into preferences."""

    kind = "spread"

    def without(self, pod: Pod) -> Pod | None:
        required = _required_constraints(pod)
        return _relaxed(pod, dict.fromkeys(required)) if required else None

    def steps(self, pod: Pod, state: ClusterState) -> Iterator[PodStep]:
        constraints = pod.spec.topology_spread_constraints or []
        for chosen in subsets(_required_constraints(pod)):
            skews: Skews = dict.fromkeys(chosen)
            if not state.engine.feasible(_relaxed(pod, skews)):
                continue
            if len(chosen) == 1:
                skews[chosen[0]] = _smallest_skew(pod, chosen[0], state)
            text = " and ".join(_relaxation_text(constraints[position], skew) for position, skew in skews.items())
            yield PodStep(text, len(chosen), partial(_relaxed, skews=skews))


def unspread(pod: Pod) -> Pod:
    """Returns the pod with every spread constraint turned into a preference.

    A search uses it to list the nodes that the pod could gain without its nodeSelector or with more tolerations. A
    spread constraint would hide some of these nodes: such a change also adds topology domains, and if a new domain has
    few pods, the skew of the old domains becomes too large.
    """
    return _relaxed(pod, dict.fromkeys(_required_constraints(pod)))


def _required_constraints(pod: Pod) -> list[int]:
    """Returns the indices of the pod's spread constraints with DoNotSchedule."""
    constraints = pod.spec.topology_spread_constraints or ()
    return [i for i, constraint in enumerate(constraints) if constraint.when_unsatisfiable == _DO_NOT_SCHEDULE]


def _smallest_skew(pod: Pod, position: int, state: ClusterState) -> int | None:
    """Returns the smallest maxSkew with which the pod fits, found by bisection; None if no maxSkew is enough."""

    def fits(skew: int) -> bool:
        return bool(state.engine.feasible(_relaxed(pod, {position: skew})))

    low = (pod.spec.topology_spread_constraints or [])[position].max_skew
    high = low + 1
    while not fits(high):
        if high > _LARGEST_SKEW:
            return None
        low, high = high, high * 2
    between = range(low + 1, high)
    return low + 1 + bisect_left(between, True, key=fits)


def _relaxed(pod: Pod, skews: Skews) -> Pod:
    constraints = list(pod.spec.topology_spread_constraints or ())
    for position, skew in skews.items():
        if skew is None:
            constraints[position] = replace(
                constraints[position], when_unsatisfiable=_SCHEDULE_ANYWAY, min_domains=None
            )
        else:
            constraints[position] = replace(constraints[position], max_skew=skew)
    return pod.with_spec(topology_spread_constraints=constraints)


def _relaxation_text(constraint: TopologySpreadConstraint, skew: int | None) -> str:
    name = f"the spread constraint over {constraint.topology_key}"
    if skew is None:
        return f"make {name} a preference ({_SCHEDULE_ANYWAY})"
    return f"allow maxSkew {skew} instead of {constraint.max_skew} in {name}"


class RequiredTerm(NamedTuple):
    """A required term of pod affinity or anti-affinity; `position` is its index in the list `field` of the pod."""

    field: str
    position: int
    term: PodAffinityTerm


class PodAffinityChange:
    """A change that drops required terms of pod affinity and anti-affinity."""

    kind = "pod-affinity"

    def without(self, pod: Pod) -> Pod | None:
        terms = _required_terms(pod)
        return _without_terms(pod, terms) if terms else None

    def steps(self, pod: Pod, state: ClusterState) -> Iterator[PodStep]:  # noqa: ARG002  the protocol's signature
        for chosen in subsets(_required_terms(pod)):
            text = "drop " + " and ".join(f"{term.field} to {term_text(term.term)}" for term in chosen)
            yield PodStep(text, len(chosen), partial(_without_terms, dropped=chosen))


def _required_terms(pod: Pod) -> list[RequiredTerm]:
    affinity = pod.spec.affinity or Affinity()
    fields = (("podAffinity", affinity.pod_affinity), ("podAntiAffinity", affinity.pod_anti_affinity))
    return [
        RequiredTerm(field, position, term)
        for field, terms in fields
        if terms
        for position, term in enumerate(terms.required or ())
    ]


def _without_terms(pod: Pod, dropped: Iterable[RequiredTerm]) -> Pod:
    affinity = pod.spec.affinity or Affinity()
    positions = {(term.field, term.position) for term in dropped}

    def remaining(field: str, terms: PodAffinity | None) -> PodAffinity | None:
        if terms is None:
            return None
        required = [term for i, term in enumerate(terms.required or ()) if (field, i) not in positions]
        return replace(terms, required=required or None)

    return pod.with_spec(
        affinity=replace(
            affinity,
            pod_affinity=remaining("podAffinity", affinity.pod_affinity),
            pod_anti_affinity=remaining("podAntiAffinity", affinity.pod_anti_affinity),
        ),
    )


class HostPorts:
    """A change that drops host ports of the pod's containers."""

    kind = "host-ports"

    def without(self, pod: Pod) -> Pod | None:
        ports = _host_ports(pod)
        return _without_ports(pod, ports) if ports else None

    def steps(self, pod: Pod, state: ClusterState) -> Iterator[PodStep]:  # noqa: ARG002  the protocol's signature
        for chosen in subsets(_host_ports(pod)):
            text = "give up host port " + " and ".join(f"{port}/{protocol}" for protocol, port in chosen)
            if pod.spec.host_network:
                text += " and hostNetwork, which takes every port of the containers on the node"
            yield PodStep(text, len(chosen), partial(_without_ports, dropped=chosen))


def _host_ports(pod: Pod) -> list[tuple[str, int]]:
    return list(dict.fromkeys((port.protocol, port.port) for port in PodInfo(pod).host_ports))


def _without_ports(pod: Pod, dropped: Iterable[tuple[str, int]]) -> Pod:
    given_up = set(dropped)

    def changed(container: Container) -> Container:
        ports = [
            replace(port, host_port=0) if (port.protocol or "TCP", port.host_port) in given_up else port
            for port in container.ports or ()
        ]
        return replace(container, ports=ports or None)

    return pod.with_spec(
        host_network=None,
        containers=[changed(container) for container in pod.spec.containers or ()],
        init_containers=[changed(container) for container in pod.spec.init_containers or ()],
    )


class NodeNameChange:
    """A change that removes nodeName from the pod, so that a scheduler chooses the node."""

    kind = "node-name"

    def without(self, pod: Pod) -> Pod | None:
        return pod.placed_on("") if pod.node_name else None

    def steps(self, pod: Pod, state: ClusterState) -> Iterator[PodStep]:  # noqa: ARG002  the protocol's signature
        yield PodStep(f"leave out nodeName {pod.node_name}", 1, lambda pod: pod.placed_on(""))


class Tolerations:
    """A change that adds tolerations for the taints of a node."""

    kind = "tolerations"

    def without(self, pod: Pod) -> Pod:
        return _tolerating(pod, [Toleration(operator="Exists")])

    def steps(self, pod: Pod, state: ClusterState) -> Iterator[PodStep]:
        missing: dict[tuple[Taint, ...], None] = {}
        for name in state.engine.feasible(unspread(self.without(pod)), despite_errors=True):
            node = state.node(name)
            taints = [*node.taints, *([UNSCHEDULABLE_TAINT] if node.spec.unschedulable else ())]
            lacking = tuple(dict.fromkeys(untolerated(taints, pod.spec.tolerations or (), (NO_SCHEDULE, NO_EXECUTE))))
            if lacking and not any(taint.key.startswith(_CONDITION_TAINTS) for taint in lacking):
                missing[lacking] = None
        for lacking in sorted(missing, key=len):
            text = "tolerate " + " and ".join(map(_taint_text, lacking))
            added = [_toleration(taint) for taint in lacking]
            yield PodStep(text, len(added), partial(_tolerating, added=added))


def uncordoned_node(state: ClusterState, pod: Pod) -> SuggestedChange | None:
    """Suggests uncordoning a node that could then take the pod; None if there is no such node."""
    opened = [with_cordon(node, unschedulable=False) for node in state.nodes() if node.spec.unschedulable]
    if not opened:
        return None
    with state.engine.suppose(objects=opened):
        names = sorted(state.engine.feasible(unspread(pod), [node.name for node in opened], despite_errors=True))
    for node in opened:
        if node.name in names and _fits_after(state, pod, node):
            others = f" (or another of {len(names)})" if len(names) > 1 else ""
            return SuggestedChange("uncordon", f"uncordon {node.name}{others}", 1, [node.name], set_objects=(node,))
    return None


def with_cordon(node: Node, *, unschedulable: bool) -> Node:
    """Returns the node cordoned (`unschedulable`) or uncordoned; its taint is added or removed with it."""
    taints = [taint for taint in node.taints if taint.key != UNSCHEDULABLE_TAINT.key]
    taints += [UNSCHEDULABLE_TAINT] if unschedulable else []
    return replace(node, spec=replace(node.spec, unschedulable=unschedulable or None, taints=taints or None))


def _fits_after(state: ClusterState, pod: Pod, node: Node) -> bool:
    """Returns True if the pod fits on `node` when this node alone is uncordoned."""
    with state.engine.suppose(objects=[node]):
        return node.name in state.engine.feasible(pod)


def _taint_text(taint: Taint) -> str:
    return f"{taint.key}{f'={taint.value}' if taint.value else ''}:{taint.effect}"


def _toleration(taint: Taint) -> Toleration:
    operator = "Equal" if taint.value else "Exists"
    return Toleration(key=taint.key, operator=operator, value=taint.value, effect=taint.effect)


def _tolerating(pod: Pod, added: list[Toleration]) -> Pod:
    return pod.with_spec(tolerations=[*(pod.spec.tolerations or ()), *added])

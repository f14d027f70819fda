"""Suggests changes to a pod: to its own rules, or smaller requests, down to what some node has free.

The rules are topology spread, pod affinity, host ports, nodeName and tolerations. In place of a toleration, a cordoned
node can also be uncordoned.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from extender.model.node import NO_EXECUTE, NO_SCHEDULE, UNSCHEDULABLE_TAINT, Node, Taint, untolerated
from extender.model.pod import (
    Affinity,
    Container,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    ResourceRequirements,
    Toleration,
    TopologySpreadConstraint,
)
from extender.model.quantity import amounts
from extender.model.requests import is_extended, pod_requests
from extender.model.selectors import term_text
from extender.offline.explain.suggestion import PodChange, PodStep, SuggestedChange, is_accepted, limits_of, subsets
from extender.offline.state import ClusterState
from extender.runtime.text import quantity
from extender.table import PodInfo

_DO_NOT_SCHEDULE = "DoNotSchedule"
_SCHEDULE_ANYWAY = "ScheduleAnyway"
_LARGEST_SKEW = 2**20

# Position of a spread constraint in the pod -> its new maxSkew, or None to make it a preference.
Skews = dict[int, int | None]
# A taint with this prefix marks an unhealthy node. A pod that tolerates it would start there and fail.
_CONDITION_TAINTS = "node.kubernetes.io/"


def _without_spread(pod: Pod) -> Pod | None:
    return unspread(pod) if _required_constraints(pod) else None


def _spread_steps(pod: Pod, state: ClusterState) -> Iterator[PodStep]:
    constraints = pod.spec.topology_spread_constraints or []
    for chosen in subsets(_required_constraints(pod)):
        skews: Skews = dict.fromkeys(chosen)
        if not state.engine.feasible(_relaxed(pod, skews)):
            continue
        if len(chosen) == 1:
            skews[chosen[0]] = _smallest_skew(pod, chosen[0], state)
        text = " and ".join(_relaxation_text(constraints[position], skew) for position, skew in skews.items())
        yield PodStep(text, len(chosen), partial(_relaxed, skews=skews))


SPREAD = PodChange("spread", _without_spread, _spread_steps)
"""Raises the maxSkew of topology spread constraints, or turns them into preferences."""


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


def _without_pod_affinity(pod: Pod) -> Pod | None:
    terms = _required_terms(pod)
    return _without_terms(pod, terms) if terms else None


def _pod_affinity_steps(pod: Pod, _state: ClusterState) -> Iterator[PodStep]:
    for chosen in subsets(_required_terms(pod)):
        text = "drop " + " and ".join(f"{term.field} to {term_text(term.term)}" for term in chosen)
        yield PodStep(text, len(chosen), partial(_without_terms, dropped=chosen))


POD_AFFINITY = PodChange("pod-affinity", _without_pod_affinity, _pod_affinity_steps)
"""Drops required terms of pod affinity and anti-affinity."""


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


def _without_host_ports(pod: Pod) -> Pod | None:
    ports = _host_ports(pod)
    return _without_ports(pod, ports) if ports else None


def _host_port_steps(pod: Pod, _state: ClusterState) -> Iterator[PodStep]:
    for chosen in subsets(_host_ports(pod)):
        text = "give up host port " + " and ".join(f"{port}/{protocol}" for protocol, port in chosen)
        if pod.spec.host_network:
            text += " and hostNetwork, which takes every port of the containers on the node"
        yield PodStep(text, len(chosen), partial(_without_ports, dropped=chosen))


HOST_PORTS = PodChange("host-ports", _without_host_ports, _host_port_steps)
"""Drops host ports of the pod's containers."""


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


def _without_node_name(pod: Pod) -> Pod | None:
    return pod.placed_on("") if pod.node_name else None


def _node_name_steps(pod: Pod, _state: ClusterState) -> Iterator[PodStep]:
    yield PodStep(f"leave out nodeName {pod.node_name}", 1, lambda pod: pod.placed_on(""))


NODE_NAME = PodChange("node-name", _without_node_name, _node_name_steps)
"""Removes nodeName from the pod, so that a scheduler chooses the node."""


def _tolerating_all(pod: Pod) -> Pod:
    return _tolerating(pod, [Toleration(operator="Exists")])


def _toleration_steps(pod: Pod, state: ClusterState) -> Iterator[PodStep]:
    missing: dict[tuple[Taint, ...], None] = {}
    for name in state.engine.feasible(unspread(_tolerating_all(pod)), despite_errors=True):
        node = state.node(name)
        taints = [*node.taints, *([UNSCHEDULABLE_TAINT] if node.spec.unschedulable else ())]
        lacking = tuple(dict.fromkeys(untolerated(taints, pod.spec.tolerations or (), (NO_SCHEDULE, NO_EXECUTE))))
        if lacking and not any(taint.key.startswith(_CONDITION_TAINTS) for taint in lacking):
            missing[lacking] = None
    for lacking in sorted(missing, key=len):
        text = "tolerate " + " and ".join(map(_taint_text, lacking))
        added = [_toleration(taint) for taint in lacking]
        yield PodStep(text, len(added), partial(_tolerating, added=added))


TOLERATIONS = PodChange("tolerations", _tolerating_all, _toleration_steps)
"""Adds tolerations for the taints of a node."""


def uncordoned_node(state: ClusterState, pod: Pod) -> SuggestedChange | None:
    """Suggests uncordoning a node that could then take the pod; None if there is no such node."""
    opened = [with_cordon(node, unschedulable=False) for node in state.nodes() if node.spec.unschedulable]
    if not opened:
        return None
    with state.engine.suppose(objects=opened):
        names = sorted(state.engine.feasible(unspread(pod), [node.name for node in opened], despite_errors=True))
    for node in (each for each in opened if each.name in names):
        with state.engine.suppose(objects=[node]):
            fits = node.name in state.engine.feasible(pod)
        if fits:
            others = f" (or another of {len(names)})" if len(names) > 1 else ""
            return SuggestedChange("uncordon", f"uncordon {node.name}{others}", 1, [node.name], set_objects=(node,))
    return None


def with_cordon(node: Node, *, unschedulable: bool) -> Node:
    """Returns the node cordoned (`unschedulable`) or uncordoned; its taint is added or removed with it."""
    taints = [taint for taint in node.taints if taint.key != UNSCHEDULABLE_TAINT.key]
    taints += [UNSCHEDULABLE_TAINT] if unschedulable else []
    return replace(node, spec=replace(node.spec, unschedulable=unschedulable or None, taints=taints or None))


def _taint_text(taint: Taint) -> str:
    return f"{taint.key}{f'={taint.value}' if taint.value else ''}:{taint.effect}"


def _toleration(taint: Taint) -> Toleration:
    operator = "Equal" if taint.value else "Exists"
    return Toleration(key=taint.key, operator=operator, value=taint.value, effect=taint.effect)


def _tolerating(pod: Pod, added: list[Toleration]) -> Pod:
    return pod.with_spec(tolerations=[*(pod.spec.tolerations or ()), *added])


Amounts = Mapping[str, int]
"""Amounts by resource: cpu in millicores, memory in bytes, everything else in whole units."""

_NO_FLOORS: Amounts = {}
_MOST_REDUCTIONS = 64


def _without_requests(pod: Pod) -> Pod | None:
    requested = own_requests(pod)
    return lowered(pod, dict.fromkeys(requested, 0)) if requested else None


def _request_steps(pod: Pod, state: ClusterState) -> Iterator[PodStep]:
    """Yields a step for each combination of resources that some node is short of, the smallest step first.

    A step lowers the requests for these resources no further than needed, and never below what LimitRanges allow.
    """
    requests = own_requests(pod)
    limits = limits_of(state, pod) if requests else []
    items = [item for each in limits for item in each.spec.limits or ()]
    floors = _floors([amounts(item.min) for item in items if item.type == "Container"])
    least = {name: _least(pod, name, amount, state, floors) if limits else 0 for name, amount in requests.items()}
    reductions = _reductions(pod, state, requests, least)
    lower = (_needed_reductions(pod, targets, requests, state, floors) for targets in reductions)
    steps = {_text(targets, requests): targets for targets in lower if targets}
    for text, targets in sorted(steps.items(), key=lambda step: _share_given_up(step[1], requests)):
        change = partial(lowered, targets=targets, floors=floors)
        yield PodStep(text, _share_given_up(targets, requests), change)


REQUESTS = PodChange("requests", _without_requests, _request_steps)
"""Lowers the pod's requests for resources of which no node has enough free."""


def _least(pod: Pod, name: str, requested: int, state: ClusterState, floors: Amounts) -> int:
    """Returns the lowest request for the resource that the LimitRanges allow.

    The search is a bisection. It relies on the LimitRanges allowing the present request.
    """

    def is_allowed(amount: int) -> bool:
        smaller = lowered(pod, {name: amount}, floors)
        return own_requests(smaller).get(name, 0) <= amount and is_accepted(state, smaller)

    return bisect_left(range(requested), True, key=is_allowed)


def _reductions(pod: Pod, state: ClusterState, requests: Amounts, least: Amounts) -> Iterable[dict[str, int]]:
    """Returns reduced requests, each as {resource: amount}; the smallest reduction comes first.

    There is one for each combination of resources that some node is short of; its amounts are what such a node offers.
    A node that offers less than `least` is left out, because the API server would refuse so small a request.
    """
    bare = lowered(pod, dict.fromkeys(requests, 0))
    nodes = state.engine.feasible(bare, despite_errors=True) if requests else []
    free = {name: _free(pod, name, requests, nodes, state) for name in requests}
    given_up = {name: np.maximum(1 - free[name] / amount, 0) for name, amount in requests.items()}
    found: dict[object, dict[str, int]] = {}
    for position in np.argsort(sum(given_up.values(), np.zeros(len(nodes))), kind="stable").tolist():
        offered = {name: int(free[name][position]) for name in requests}
        short = {name: offered[name] for name, amount in requests.items() if offered[name] < amount}
        if all(amount >= least[name] for name, amount in short.items()):
            found.setdefault(tuple(short), short)
    return islice(found.values(), _MOST_REDUCTIONS)


def _floors(minima: Sequence[Amounts]) -> Amounts:
    """Returns, for each resource, the largest of the amounts in `minima`."""
    names = {name for each in minima for name in each}
    return {name: max(each.get(name, 0) for each in minima) for name in names}


def own_requests(pod: Pod) -> dict[str, int]:
    """Returns what the pod requests, without its RuntimeClass's overhead, which the pod cannot lower."""
    return {name: amount for name, amount in pod_requests(pod.with_spec(overhead=None)).items() if amount}


def _free(pod: Pod, name: str, requests: Amounts, nodes: Sequence[str], state: ClusterState) -> NDArray[np.int64]:
    """Returns how much of the resource each node offers the pod: int64[len(nodes)].

    If a node accepts the whole request although less is free, it offers the amount requested: the profile may ignore
    the resource, or devices may provide it.
    """
    overhead = amounts(pod.spec.overhead).get(name, 0)
    free = np.maximum(state.engine.free_for(pod, name, nodes) - overhead, 0)
    if (free >= requests[name]).all():
        return free
    alone = lowered(pod, {other: 0 for other in requests if other != name})
    accepts = np.isin(nodes, state.engine.feasible(alone, despite_errors=True))
    return np.where(accepts, np.maximum(free, requests[name]), free)


def _needed_reductions(
    pod: Pod, targets: dict[str, int], requests: Amounts, state: ClusterState, floors: Amounts
) -> dict[str, int]:
    """Returns the part of `targets` that is needed for the pod to fit; {} if even all `targets` are not enough.

    A request need not be lowered if, for example, the profile ignores its resource. A request for an extended resource
    is lowered only as far as needed, because devices may provide it and `Engine.free_for` does not count devices.
    """

    def fits(tried: Amounts) -> bool:
        return bool(state.engine.feasible(lowered(pod, tried, floors)))

    if not targets or not fits(targets):
        return {}
    for name in list(targets):
        rest = {other: amount for other, amount in targets.items() if other != name}
        if rest and fits(rest):
            targets = rest
        elif is_extended(name):
            low, high = targets[name], requests[name]
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if fits({**targets, name: middle}) else (low, middle)
            targets = {**targets, name: low}
    return targets


def _share_given_up(targets: Amounts, requests: Amounts) -> float:
    return sum(1 - amount / requests[name] for name, amount in targets.items())


def lowered(pod: Pod, targets: Amounts, floors: Amounts = _NO_FLOORS) -> Pod:
    """Returns the pod with its requests lowered to at most `targets`, not counting the overhead.

    The container with the largest request is lowered first. The request of the whole pod (spec.resources) is lowered
    together with the containers' requests, because the API server refuses a pod that requests less than its containers.

    Args:
        floors: the least that each container must request, which may keep the sum above `targets`.
    """
    for resource, target in targets.items():
        # Each round lowers the request of one container, so the loop ends.
        while (excess := _of_containers(pod, resource) - target) > 0:
            smaller = _with_less(pod, resource, excess, floors.get(resource, 0))
            if smaller is None:
                break
            pod = smaller
        own = pod.spec.resources
        if own and amounts(own.requests).get(resource, 0) > target:
            pod = pod.with_spec(resources=_requesting(own, resource, target))
    return pod


def _of_containers(pod: Pod, resource: str) -> int:
    return pod_requests(pod.with_spec(overhead=None), pod_level=False).get(resource, 0)


def _with_less(pod: Pod, resource: str, excess: int, floor: int) -> Pod | None:
    """Returns the pod with the request of one container lowered by up to `excess`, but not below `floor`.

    The containers with the largest requests are tried first. None if no container can be lowered.
    """
    before = _of_containers(pod, resource)
    containers = {"containers": list(pod.containers), "init_containers": list(pod.init_containers)}
    places = [
        (_requested(container, resource), field, position)
        for field, list_ in containers.items()
        for position, container in enumerate(list_)
    ]
    for amount, field, position in sorted(places, key=lambda place: -place[0]):
        container = containers[field][position]
        resources = container.resources or ResourceRequirements()
        changed = [*containers[field]]
        changed[position] = replace(container, resources=_requesting(resources, resource, max(amount - excess, floor)))
        smaller = pod.with_spec(**{field: changed})
        if amount > floor and (_of_containers(smaller, resource) < before or len(places) > 1):
            return smaller
    return None


def _requested(container: Container, resource: str) -> int:
    return amounts(container.resources.requests).get(resource, 0) if container.resources else 0


def _requesting(resources: ResourceRequirements, resource: str, amount: int) -> ResourceRequirements:
    """Returns `resources` with this request; also with an equal limit if the resource cannot be overcommitted."""
    text = quantity(resource, amount)
    changed = replace(resources, requests={**(resources.requests or {}), resource: text})
    if not is_extended(resource) and not resource.startswith("hugepages-"):  # upstream IsOvercommitAllowed
        return changed
    return replace(changed, limits={**(resources.limits or {}), resource: text})


def _text(targets: Amounts, requests: Amounts) -> str:
    changes = " and ".join(
        f"{quantity(name, amount)} {name} instead of {quantity(name, requests[name])}" if amount else f"no {name}"
        for name, amount in targets.items()
    )
    return f"request {changes}"

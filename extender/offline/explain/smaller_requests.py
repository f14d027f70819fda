"""Suggests smaller requests for a pod, down to what some node has free."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from extender.model.pod import Container, Pod, ResourceRequirements
from extender.model.quantity import amounts
from extender.model.requests import is_extended, pod_requests
from extender.model.workloads import LimitRange
from extender.offline.explain.suggestion import PodStep, is_accepted, limits_of
from extender.offline.state import ClusterState
from extender.runtime.text import quantity

Amounts = Mapping[str, int]
"""Amounts by resource: cpu in millicores, memory in bytes, everything else in whole units."""

_NO_FLOORS: Amounts = {}
_MOST_REDUCTIONS = 64


class Requests:
    """A change that lowers the pod's requests for resources of which no node has enough free."""

    kind = "requests"

    def without(self, pod: Pod) -> Pod | None:
        requested = own_requests(pod)
        return lowered(pod, dict.fromkeys(requested, 0)) if requested else None

    def steps(self, pod: Pod, state: ClusterState) -> Iterator[PodStep]:
        """Yields a step for each combination of resources that some node is short of, the smallest step first.

        A step lowers the requests for these resources no further than needed, and never below what LimitRanges allow.
        """
        requests = own_requests(pod)
        limits = limits_of(state, pod) if requests else []
        floors = _floors([_minima(each) for each in limits])
        least = {name: _least(pod, name, amount, state, floors) if limits else 0 for name, amount in requests.items()}
        reductions = _reductions(pod, state, requests, least)
        lower = (_needed_reductions(pod, targets, requests, state, floors) for targets in reductions)
        steps = {_text(targets, requests): targets for targets in lower if targets}
        for text, targets in sorted(steps.items(), key=lambda step: _share_given_up(step[1], requests)):
            change = partial(lowered, targets=targets, floors=floors)
            yield PodStep(text, _share_given_up(targets, requests), change)


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


def _minima(limits: LimitRange) -> Amounts:
    """Returns the least that each container must request, by resource."""
    return _floors([amounts(item.min) for item in limits.spec.limits or () if item.type == "Container"])


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

"""Suggests smaller requests for a pod, down to what some node has free."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
from msgspec.structs import replace

from extender.model.pod import Container, Pod, ResourceRequirements
from extender.model.quantity import amounts
from extender.model.requests import pod_requests
from extender.offline.explain.changes.suggestion import PodStep
from extender.offline.state import ClusterState
from extender.runtime.text import quantity


class Requests:
    """A change that lowers the pod's requests for resources of which no node has enough free."""

    kind = "requests"

    def without(self, pod: Pod) -> Pod | None:
        requested = {name: 0 for name, amount in pod_requests(pod).items() if amount}
        return lowered(pod, requested) if requested else None

    def steps(self, pod: Pod, state: ClusterState) -> Iterator[PodStep]:
        """Yields the smallest reduction of requests for each set of resources that some node is short of."""
        bare = self.without(pod)
        nodes = state.engine.feasible(bare) if bare else []
        if not nodes:
            return
        requests = {name: amount for name, amount in pod_requests(pod).items() if amount}
        free = {name: np.maximum(state.engine.free_for(pod, name, nodes), 0) for name in requests}
        short = np.array([free[name] < amount for name, amount in requests.items()])
        given_up = np.array([np.maximum(1 - free[name] / amount, 0) for name, amount in requests.items()]).sum(axis=0)
        best_position: dict[tuple[bool, ...], int] = {}
        for position in np.argsort(given_up, kind="stable").tolist():
            best_position.setdefault(tuple(short[:, position].tolist()), position)
        for lacking, position in sorted(best_position.items(), key=lambda item: (sum(item[0]), given_up[item[1]])):
            targets = {
                name: int(free[name][position]) for name, is_short in zip(requests, lacking, strict=True) if is_short
            }
            if targets:
                apply = partial(lowered, targets=targets)
                yield PodStep(_text(targets, requests), float(given_up[position]), apply)


def lowered(pod: Pod, targets: dict[str, int]) -> Pod:
    """Returns the pod with its requests lowered to at most `targets`: cpu in milli, all else in units.

    The container with the largest request is lowered first.
    """
    for resource, target in targets.items():
        overhead = amounts(pod.spec.overhead).get(resource, 0)
        if pod.spec.resources and resource in (pod.spec.resources.requests or {}):
            pod = pod.with_spec(resources=_requesting(pod.spec.resources, resource, max(target - overhead, 0)))
            continue
        # Each round lowers one container, so this ends.
        while (excess := pod_requests(pod, pod_level=False).get(resource, 0) - target) > 0:
            smaller = _with_less(pod, resource, excess)
            if smaller is None:
                break
            pod = smaller
    return pod


def _with_less(pod: Pod, resource: str, excess: int) -> Pod | None:
    """Returns the pod with one container's request lowered by up to `excess`; None if that changes nothing.

    It takes the container with the largest request whose reduction counts.
    """
    before = pod_requests(pod, pod_level=False).get(resource, 0)
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
        changed[position] = replace(container, resources=_requesting(resources, resource, max(amount - excess, 0)))
        smaller = pod.with_spec(**{field: changed})
        if amount and (pod_requests(smaller, pod_level=False).get(resource, 0) < before or len(places) > 1):
            return smaller
    return None


def _requested(container: Container, resource: str) -> int:
    return amounts(container.resources.requests).get(resource, 0) if container.resources else 0


def _requesting(resources: ResourceRequirements, resource: str, amount: int) -> ResourceRequirements:
    return replace(resources, requests={**(resources.requests or {}), resource: quantity(resource, amount)})


def _text(targets: dict[str, int], requests: dict[str, int]) -> str:
    return "request " + " and ".join(
        f"{quantity(name, amount)} {name} instead of {quantity(name, requests[name])}" if amount else f"no {name}"
        for name, amount in targets.items()
    )

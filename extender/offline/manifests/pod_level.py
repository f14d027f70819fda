"""Fills in a pod's pod-level requests and limits from those of its containers.

Source: upstream pkg/api/pod/util.go DefaultPodLevelResources.
"""

from __future__ import annotations

from msgspec.structs import replace

from extender.model.pod import Pod, ResourceRequirements
from extender.model.quantity import NANO, ResourceList, nano
from extender.model.requests import container_totals, is_pod_level
from extender.offline.manifests.validation.formats import HUGE_PAGES


def with_defaults(pod: Pod, notes: list[str]) -> Pod:
    """Returns the pod with its pod-level resources completed, if it has any."""
    whole = pod.spec.resources
    if whole is None or not (whole.requests or whole.limits):
        return pod
    limits = {**_huge_pages(pod, whole), **(whole.limits or {})}
    missing = _requests(pod, limits, whole.requests or {})
    if missing:
        notes.append(f"the pod requests {', '.join(f'{name}={amount}' for name, amount in missing.items())} as a whole")
    requests = {**(whole.requests or {}), **missing}
    limits = {**_limits(pod, requests, limits), **limits}
    return pod.with_spec(resources=replace(whole, requests=requests or None, limits=limits or None))


def _huge_pages(pod: Pod, whole: ResourceRequirements) -> ResourceList:
    """Returns the sum of the containers' limits, for each size of huge pages that the pod does not request itself."""
    totals = container_totals(pod, limits=True)
    return {
        name: _quantity(nanos)
        for name, nanos in totals.items()
        if name.startswith(HUGE_PAGES) and name not in (whole.requests or {})
    }


def _requests(pod: Pod, limits: ResourceList, own: ResourceList) -> ResourceList:
    """Returns the missing pod-level requests: the sum over the containers; without a sum, the pod-level limit."""
    totals = {
        name: _quantity(nanos)
        for name, nanos in container_totals(pod).items()
        if is_pod_level(name) and not name.startswith(HUGE_PAGES)
    }
    from_limits = {name: amount for name, amount in limits.items() if is_pod_level(name)}
    return {name: amount for name, amount in {**from_limits, **totals}.items() if name not in own}


def _limits(pod: Pod, requests: ResourceList, own: ResourceList) -> ResourceList:
    """Returns pod-level limits for the resources that every container limits: the sum, but at least the request."""
    totals = container_totals(pod, limits=True)
    containers = (*pod.init_containers, *pod.containers)
    candidates = [name for name in requests if is_pod_level(name) and name not in own]
    limited = [
        name
        for name in candidates
        if all(name in ((each.resources.limits if each.resources else None) or {}) for each in containers)
    ]
    return {name: _quantity(max(totals[name], nano(requests[name]))) for name in limited}


def _quantity(nanos: int) -> str:
    """Converts an amount in billionths to a quantity, such as `2` or `1500000000n`."""
    return str(nanos // NANO) if nanos % NANO == 0 else f"{nanos}n"

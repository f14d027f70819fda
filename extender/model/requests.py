"""Computes the requests of a pod from its containers, init containers, sidecars, overhead and pod-level resources.

All amounts are summed in billionths and rounded once at the end, as Kubernetes does.
Source: k8s.io/component-helpers/resource PodRequests (KEPs 753, 1287, 2837).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache

from extender.model.pod import Container, ContainerStatus, Pod
from extender.model.quantity import NANO, Quantity, amount_from_nano, nano

Nanos = dict[str, int]

# The amounts that scoring assumes for a container without requests (DefaultMilliCPURequest, DefaultMemoryRequest).
NONZERO_DEFAULTS: Mapping[str, int] = {"cpu": 100 * NANO // 1000, "memory": 200 * 1024 * 1024 * NANO}
_NO_DEFAULTS: Mapping[str, int] = {}
RESOURCE_NAMES = 1024
"""More resources than a cluster usually has; for what is remembered about their names."""

Quantities = Mapping[str, Quantity] | None
Resources = Callable[[Container, ContainerStatus | None, bool], Quantities]


def pod_requests(
    pod: Pod, defaults: Mapping[str, int] = _NO_DEFAULTS, *, placed: bool = False, pod_level: bool = True
) -> dict[str, int]:
    """Returns the pod's requests by resource: cpu in milli, all others in units.

    Args:
        defaults: resource -> the request to assume for a container without one, in billionths.
        placed: True for a placed pod. While it is being resized, the largest of three requests counts: the one in the
            spec, the one that the kubelet has allocated, and the one that is in force (KEP-1287).
        pod_level: True if the requests in spec.resources replace the sum over the containers (KEP-2837).
    """
    total = _container_requests(pod, defaults, placed)
    if pod_level:
        total.update(_pod_level_requests(pod, placed))
    _add(total, _nanos(pod.spec.overhead))
    return {name: amount_from_nano(name, nanos) for name, nanos in total.items()}


def nonzero_requests(pod: Pod, requests: Mapping[str, int]) -> tuple[int, int]:
    """Returns the requests that scoring assumes for a placed pod: (thousandths of a cpu, bytes of memory).

    If a container has no cpu or no memory request, a default is assumed for the missing one.

    Source: upstream PodInfo.CalculateResource, getNonMissingContainerRequests.
    """
    if not lacks_cpu_or_memory(pod):
        return requests.get("cpu", 0), requests.get("memory", 0)
    defaults = NONZERO_DEFAULTS
    if has_pod_level_requests(pod):
        defaults = {name: nanos for name, nanos in defaults.items() if name not in requests}
    with_defaults = pod_requests(pod, defaults, placed=True) if defaults else requests
    return with_defaults.get("cpu", 0), with_defaults.get("memory", 0)


def lacks_cpu_or_memory(pod: Pod) -> bool:
    """Returns True if the spec or the status of any container lacks a request for cpu or for memory.

    Also returns True if the kubelet cannot resize the pod, because a container without a status then requests nothing.
    """
    if is_resize_infeasible(pod):
        return True
    containers = (*pod.init_containers, *pod.containers)
    lists = [(container.resources.requests if container.resources else None) or {} for container in containers]
    for status in (*(pod.status.init_container_statuses or ()), *(pod.status.container_statuses or ())):
        requests = status.resources.requests if status.resources else None
        lists += [resources for resources in (status.allocated_resources, requests) if resources is not None]
    return any("cpu" not in resources or "memory" not in resources for resources in lists)


def is_pod_level(resource: str) -> bool:
    """Returns True if `resource` may be requested for the pod as a whole (KEP-2837)."""
    return resource in ("cpu", "memory") or resource.startswith("hugepages-")


def has_pod_level_requests(pod: Pod) -> bool:
    """Returns True if the spec has requests for the pod as a whole (spec.resources)."""
    resources = pod.spec.resources
    return resources is not None and any(map(is_pod_level, resources.requests or ()))


@lru_cache(RESOURCE_NAMES)
def is_counted(resource: str) -> bool:
    """Returns True if the scheduler adds up the requests of this resource instead of ignoring them."""
    return resource in ("cpu", "memory", "ephemeral-storage") or is_scalar(resource)


def is_scalar(resource: str) -> bool:
    """Returns True for hugepages, attachable volumes, names with kubernetes.io/, and extended resources.

    Source: upstream IsScalarResourceName.
    """
    if resource.startswith(("hugepages-", "attachable-volumes-")) or "kubernetes.io/" in resource:
        return True
    return is_extended(resource)


@lru_cache(RESOURCE_NAMES)
def is_extended(resource: str) -> bool:
    """Returns True for extended resources, like example.com/gpu (IsExtendedResourceName)."""
    return "/" in resource and "kubernetes.io/" not in resource and not resource.startswith("requests.")


def container_totals(pod: Pod, *, limits: bool = False) -> dict[str, int]:
    """Returns the total requests (or limits) of all containers by resource, in billionths."""
    return _aggregate(pod, _limits_from_spec if limits else _from_spec, _NO_DEFAULTS, False)


def _container_requests(pod: Pod, defaults: Mapping[str, int], placed: bool) -> Nanos:
    if not placed or not was_resized(pod):
        return _aggregate(pod, _from_spec, defaults, False)
    infeasible = is_resize_infeasible(pod)
    candidates = [] if infeasible else [_aggregate(pod, _from_spec, defaults, infeasible)]
    status = pod.status
    requests = status.resources.requests if status.resources is not None else None
    if status.allocated_resources is not None and requests is not None:
        candidates += [_nanos(status.allocated_resources), _nanos(requests)]
    else:
        candidates += [_aggregate(pod, source, defaults, infeasible) for source in (_from_allocation, _from_cgroups)]
    return _largest(*candidates)


def _aggregate(pod: Pod, source: Resources, defaults: Mapping[str, int], infeasible: bool) -> Nanos:
    statuses = {
        status.name: status
        for status in (*(pod.status.init_container_statuses or ()), *(pod.status.container_statuses or ()))
    }

    def requests_of(container: Container) -> Nanos:
        own = _nanos(source(container, statuses.get(container.name), infeasible))
        return {**defaults, **own} if defaults else own

    running: Nanos = {}
    for container in pod.containers:
        _add(running, requests_of(container))
    sidecars: Nanos = {}
    starting: Nanos = {}
    for container in pod.init_containers:
        own = requests_of(container)
        is_sidecar = container.restart_policy == "Always"
        if is_sidecar:
            _add(running, own)
            _add(sidecars, own)
        # A resource that only sidecars use needs no check here, because `running` includes all sidecars.
        for name, nanos in own.items():
            needed = sidecars[name] if is_sidecar else nanos + sidecars.get(name, 0)
            starting[name] = max(starting.get(name, needed), needed)
    return _largest(running, starting)


def _from_spec(container: Container, _status: ContainerStatus | None, _infeasible: bool) -> Quantities:
    return container.resources.requests if container.resources else None


def _limits_from_spec(container: Container, _status: ContainerStatus | None, _infeasible: bool) -> Quantities:
    return container.resources.limits if container.resources else None


def _from_allocation(container: Container, status: ContainerStatus | None, infeasible: bool) -> Quantities:
    if status is not None and status.allocated_resources is not None:
        return status.allocated_resources
    return None if infeasible else _from_spec(container, status, infeasible)


def _from_cgroups(container: Container, status: ContainerStatus | None, infeasible: bool) -> Quantities:
    if status is not None and status.resources is not None and status.resources.requests is not None:
        return status.resources.requests
    return _from_allocation(container, status, infeasible)


def _pod_level_requests(pod: Pod, placed: bool) -> Nanos:
    if not has_pod_level_requests(pod) or pod.spec.resources is None:
        return {}
    requests = _nanos(pod.spec.resources.requests)
    if placed and pod.status.resources is not None:
        spec = {} if is_resize_infeasible(pod) else requests
        requests = _largest(spec, _nanos(pod.status.resources.requests), _nanos(pod.status.allocated_resources))
    return {name: nanos for name, nanos in requests.items() if is_pod_level(name)}


def was_resized(pod: Pod) -> bool:
    """Returns True if the pod may have been resized: its status has requests, which may differ from the spec."""
    status = pod.status
    has_requests = status.container_statuses or status.init_container_statuses or status.resources
    return bool(has_requests) or is_resize_infeasible(pod)


def is_resize_infeasible(pod: Pod) -> bool:
    """Returns True if the kubelet reports that it cannot resize the pod to the requests in its spec (KEP-1287)."""
    for condition in pod.status.conditions or ():
        if condition.type == "PodResizePending":
            return condition.reason == "Infeasible"
    return False


def _nanos(resources: Quantities) -> Nanos:
    return {name: nano(quantity) for name, quantity in (resources or {}).items()}


def _add(total: Nanos, more: Mapping[str, int]) -> None:
    for name, nanos in more.items():
        total[name] = total.get(name, 0) + nanos


def _largest(*lists: Nanos) -> Nanos:
    largest: Nanos = {}
    for resources in lists:
        for name, nanos in resources.items():
            if name not in largest or nanos > largest[name]:
                largest[name] = nanos
    return largest

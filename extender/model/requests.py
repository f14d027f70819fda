"""A pod's requests: its containers, init containers, sidecars, overhead and pod-level resources as one sum.

Everything is summed in billionths and rounded once at the end, as the API's quantities are.
Source: k8s.io/component-helpers/resource PodRequests (KEPs 753, 1287, 2837).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from extender.model.pod import Container, ContainerStatus, Pod
from extender.model.quantity import NANO, Quantity, amount_from_nano, nano

Nanos = dict[str, int]

# What a container that asks for nothing counts as when nodes are scored
# (upstream util.DefaultMilliCPURequest, util.DefaultMemoryRequest).
NONZERO_DEFAULTS: Mapping[str, int] = {"cpu": 100 * NANO // 1000, "memory": 200 * 1024 * 1024 * NANO}
_NO_DEFAULTS: Mapping[str, int] = {}

Resources = Callable[[Container, ContainerStatus | None, bool], Mapping[str, Quantity] | None]


def pod_requests(
    pod: Pod, defaults: Mapping[str, int] = _NO_DEFAULTS, *, placed: bool = False, pod_level: bool = True
) -> dict[str, int]:
    """The pod's requests by resource: cpu in milli, all else in units.

    Args:
        defaults: what a container that names no request for a resource counts as, in billionths.
        placed: count what the kubelet has allocated or is using too, where that is more (KEP-1287).
        pod_level: let what is requested for the pod as a whole replace the sum over its containers (KEP-2837).
    """
    total = _container_requests(pod, defaults, placed)
    if pod_level:
        total.update(_pod_level_requests(pod, placed))
    _add(total, _nanos(pod.spec.overhead))
    return {name: amount_from_nano(name, nanos) for name, nanos in total.items()}


def nonzero_requests(pod: Pod, requests: Mapping[str, int]) -> tuple[int, int]:
    """(cpu in milli, bytes of memory) that a placed pod counts for in scores, defaults in place of what is missing.

    Source: upstream PodInfo.CalculateResource, getNonMissingContainerRequests.
    """
    if not leaves_out_defaulted(pod):
        return requests.get("cpu", 0), requests.get("memory", 0)
    defaults = NONZERO_DEFAULTS
    if has_pod_level_requests(pod):
        defaults = {name: nanos for name, nanos in defaults.items() if name not in requests}
    assumed = pod_requests(pod, defaults, placed=True) if defaults else requests
    return assumed.get("cpu", 0), assumed.get("memory", 0)


def leaves_out_defaulted(pod: Pod) -> bool:
    """Returns True if any list of the pod's leaves out a resource that has a default; most pods name them all.

    Where a resize is infeasible, a container without a status has no list at all.
    """
    if is_resize_infeasible(pod):
        return True
    specs = (c.resources.requests if c.resources else None for c in (*pod.init_containers, *pod.containers))
    statuses = (*(pod.status.init_container_statuses or ()), *(pod.status.container_statuses or ()))
    seen = (found for s in statuses for found in (s.allocated_resources, s.resources and s.resources.requests))
    lists = (*((spec or {}) for spec in specs), *(found for found in seen if found is not None))
    return any("cpu" not in found or "memory" not in found for found in lists)


def is_pod_level(resource: str) -> bool:
    """Returns True if `resource` may be requested for the pod as a whole (KEP-2837)."""
    return resource in ("cpu", "memory") or resource.startswith("hugepages-")


def has_pod_level_requests(pod: Pod) -> bool:
    """Returns True if the pod requests anything for itself as a whole."""
    resources = pod.spec.resources
    return resources is not None and any(map(is_pod_level, resources.requests or ()))


def is_counted(resource: str) -> bool:
    """Returns True if the scheduler counts this resource."""
    return resource in ("cpu", "memory", "ephemeral-storage") or is_scalar(resource)


def is_scalar(resource: str) -> bool:
    """Returns True if it counts and is not cpu, memory or ephemeral-storage (IsScalarResourceName)."""
    if resource.startswith(("hugepages-", "attachable-volumes-")) or "kubernetes.io/" in resource:
        return True
    return is_extended(resource)


def is_extended(resource: str) -> bool:
    """Returns True for extended resources, like example.com/gpu (IsExtendedResourceName)."""
    return "/" in resource and "kubernetes.io/" not in resource and not resource.startswith("requests.")


def _container_requests(pod: Pod, defaults: Mapping[str, int], placed: bool) -> Nanos:
    if not placed or not was_resized(pod):
        return _aggregate(pod, _from_spec, defaults, False)
    infeasible = is_resize_infeasible(pod)
    seen = [] if infeasible else [_aggregate(pod, _from_spec, defaults, infeasible)]
    status = pod.status
    if (
        status.allocated_resources is not None
        and status.resources is not None
        and status.resources.requests is not None
    ):
        seen += [_nanos(status.allocated_resources), _nanos(status.resources.requests)]
    else:
        seen += [_aggregate(pod, source, defaults, infeasible) for source in (_from_allocation, _from_cgroups)]
    return _largest(*seen)


def _aggregate(pod: Pod, source: Resources, defaults: Mapping[str, int], infeasible: bool) -> Nanos:
    statuses = {
        status.name: status
        for status in (*(pod.status.init_container_statuses or ()), *(pod.status.container_statuses or ()))
    }

    def asked(container: Container) -> Nanos:
        own = _nanos(source(container, statuses.get(container.name), infeasible))
        return {**defaults, **own} if defaults else own

    running: Nanos = {}
    for container in pod.containers:
        _add(running, asked(container))
    sidecars: Nanos = {}
    starting: Nanos = {}
    for container in pod.init_containers:
        own = asked(container)
        always = container.restart_policy == "Always"
        if always:
            _add(running, own)
            _add(sidecars, own)
        # Of what it does not ask for itself, there is no more yet than when all sidecars run.
        for name, nanos in own.items():
            wanted = sidecars[name] if always else nanos + sidecars.get(name, 0)
            starting[name] = max(starting.get(name, wanted), wanted)
    return _largest(running, starting)


def _from_spec(
    container: Container, _status: ContainerStatus | None, _infeasible: bool
) -> Mapping[str, Quantity] | None:
    return container.resources.requests if container.resources else None


def _from_allocation(
    container: Container, status: ContainerStatus | None, infeasible: bool
) -> Mapping[str, Quantity] | None:
    if status is not None and status.allocated_resources is not None:
        return status.allocated_resources
    return None if infeasible else _from_spec(container, status, infeasible)


def _from_cgroups(
    container: Container, status: ContainerStatus | None, infeasible: bool
) -> Mapping[str, Quantity] | None:
    if status is not None and status.resources is not None and status.resources.requests is not None:
        return status.resources.requests
    return _from_allocation(container, status, infeasible)


def _pod_level_requests(pod: Pod, placed: bool) -> Nanos:
    if not has_pod_level_requests(pod) or pod.spec.resources is None:
        return {}
    wanted = _nanos(pod.spec.resources.requests)
    if placed and pod.status.resources is not None:
        spec = {} if is_resize_infeasible(pod) else wanted
        wanted = _largest(spec, _nanos(pod.status.resources.requests), _nanos(pod.status.allocated_resources))
    return {name: nanos for name, nanos in wanted.items() if is_pod_level(name)}


def was_resized(pod: Pod) -> bool:
    """Returns True if the status tells of requests that may differ from the spec's."""
    status = pod.status
    told = status.container_statuses or status.init_container_statuses or status.resources
    return bool(told) or is_resize_infeasible(pod)


def is_resize_infeasible(pod: Pod) -> bool:
    """Returns True if the kubelet has said that it will never grant the requests of the spec (KEP-1287)."""
    pending = next((c for c in pod.status.conditions or () if c.type == "PodResizePending"), None)
    return pending is not None and pending.reason == "Infeasible"


def _nanos(resources: Mapping[str, Quantity] | None) -> Nanos:
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

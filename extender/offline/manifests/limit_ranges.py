"""Applies LimitRanges to a pod: fills in requests and limits, and checks minima and maxima.

Sources: upstream pkg/apis/core/v1/defaults.go SetDefaults_LimitRangeItem, plugin/pkg/admission/limitranger.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from extender.model.pod import Container, Pod, ResourceRequirements
from extender.model.quantity import INT64_MAX, NANO, Quantity, ResourceList, milli_from_nano, nano, units_from_nano
from extender.model.requests import container_totals
from extender.model.storage import PersistentVolumeClaim
from extender.model.workloads import LimitRange, LimitRangeItem
from extender.table.object_index import Objects

Amounts = Mapping[str, int]
_CONTAINER, _POD, _CLAIM = "Container", "Pod", "PersistentVolumeClaim"
_OVERRIDDEN = ("cpu", "memory")  # pod-level amounts of these resources replace the sum over the containers


def of_namespace(namespace: str, objects: Objects) -> list[LimitRange]:
    """Returns the LimitRanges of the namespace."""
    return [each for each in objects.all(LimitRange).values() if each.namespace == namespace]


def with_defaults(pod: Pod, limits: LimitRange, notes: list[str]) -> Pod:
    """Returns the pod with the requests and limits that the LimitRange gives to its containers."""
    defaults = [_defaults(item) for item in limits.spec.limits or () if item.type == _CONTAINER]

    def filled(container: Container) -> Container:
        for requests, its_limits in defaults:
            container = _filled(container, requests, its_limits, limits.name, notes)
        return container

    spec = pod.spec
    return pod.with_spec(
        containers=list(map(filled, spec.containers or ())) or spec.containers,
        init_containers=list(map(filled, spec.init_containers or ())) or spec.init_containers,
    )


def violations(pod: Pod, limits: LimitRange) -> Iterator[str]:
    """Yields the reasons why the LimitRange does not allow the pod."""
    for item in limits.spec.limits or ():
        if item.type == _CONTAINER:
            for container in (*pod.init_containers, *pod.containers):
                resources = container.resources or ResourceRequirements()
                where = f"container {container.name}"
                yield from _violations(item, _nanos(resources.requests), _nanos(resources.limits), where, limits.name)
        elif item.type == _POD:
            whole = pod.spec.resources or ResourceRequirements()
            requests = {**container_totals(pod), **_overriding(whole.requests)}
            its_limits = {**container_totals(pod, limits=True), **_overriding(whole.limits)}
            yield from _violations(item, requests, its_limits, "the pod", limits.name)


def claim_violations(claim: PersistentVolumeClaim, limits: LimitRange) -> Iterator[str]:
    """Yields the reasons why the LimitRange does not allow the claim."""
    requests = _nanos(claim.spec.resources.requests if claim.spec.resources else None)
    for item in limits.spec.limits or ():
        if item.type == _CLAIM:
            yield from _violations(LimitRangeItem(min=item.min), requests, {}, "the claim", limits.name)
            for resource, quantity in (item.max or {}).items():
                if resource not in requests or _is_less(nano(quantity), requests[resource]):
                    limit = f"the maximum of {quantity} in LimitRange {limits.name}"
                    yield f"the claim: its request of {resource} is missing, or more than {limit}"


def _defaults(item: LimitRangeItem) -> tuple[ResourceList, ResourceList]:
    """Returns an item's default requests and limits; a default that is missing follows from the item's min or max."""
    limits = {**(item.max or {}), **(item.default or {})}
    return {**(item.min or {}), **limits, **(item.default_request or {})}, limits


def _filled(
    container: Container, requests: ResourceList, limits: ResourceList, name: str, notes: list[str]
) -> Container:
    resources = container.resources or ResourceRequirements()
    new_requests, new_limits = _missing(requests, resources.requests), _missing(limits, resources.limits)
    for field, added in (("requests", new_requests), ("limits", new_limits)):
        if added:
            listed = ", ".join(f"{resource}={amount}" for resource, amount in added.items())
            notes.append(f"container {container.name}: {field} {listed}, from LimitRange {name}")
    if not (new_requests or new_limits):
        return container
    filled = ResourceRequirements(
        requests={**(resources.requests or {}), **new_requests}, limits={**(resources.limits or {}), **new_limits}
    )
    return replace(container, resources=filled)


def _missing(defaults: ResourceList, own: ResourceList | None) -> ResourceList:
    return {name: amount for name, amount in defaults.items() if name not in (own or {})}


def _violations(item: LimitRangeItem, requests: Amounts, limits: Amounts, where: str, name: str) -> Iterator[str]:
    both = (("request", requests), ("limit", limits))
    for resource, quantity in (item.min or {}).items():
        if resource not in requests:
            yield f"{where}: has no request of {resource}, for which LimitRange {name} has a minimum of {quantity}"
        for field, amounts in both:
            if _is_less(amounts.get(resource), nano(quantity)):
                yield f"{where}: its {field} of {resource} is less than the minimum of {quantity} in LimitRange {name}"
    for resource, quantity in (item.max or {}).items():
        if resource not in limits:
            yield f"{where}: has no limit of {resource}, for which LimitRange {name} has a maximum of {quantity}"
        for field, amounts in both:
            if _is_less(nano(quantity), amounts.get(resource)):
                yield f"{where}: its {field} of {resource} is more than the maximum of {quantity} in LimitRange {name}"
    yield from _too_far_apart(item, requests, limits, where, name)


def _too_far_apart(item: LimitRangeItem, requests: Amounts, limits: Amounts, where: str, name: str) -> Iterator[str]:
    for resource, quantity in (item.max_limit_request_ratio or {}).items():
        if not _is_within_ratio(requests.get(resource, 0), limits.get(resource, 0), quantity):
            yield f"{where}: its limit of {resource} must be at most {quantity} times its request, by LimitRange {name}"


def _is_less(first: int | None, second: int | None) -> bool:
    """Returns True if `first` is less than `second`; False if one of the two is None, which means not set.

    The amounts are in billionths. As upstream, they are rounded before they are compared: to thousandths, or to whole
    units if they are very large.
    """
    if first is None or second is None:
        return False
    if max(units_from_nano(first), units_from_nano(second)) > INT64_MAX // 1000:
        return units_from_nano(first) < units_from_nano(second)
    return milli_from_nano(first) < milli_from_nano(second)


def _is_within_ratio(request: int, limit: int, ratio: Quantity) -> bool:
    return request > 0 and limit > 0 and limit * NANO <= nano(ratio) * request


def _nanos(resources: ResourceList | None) -> Amounts:
    return {name: nano(quantity) for name, quantity in (resources or {}).items()}


def _overriding(whole: ResourceList | None) -> Amounts:
    return {name: nanos for name, nanos in _nanos(whole).items() if name in _OVERRIDDEN}

"""Checks requests and limits: the names of resources, their amounts, and whether requests exceed limits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from extender.model import formats
from extender.model.pod import Pod, ResourceRequirements
from extender.model.quantity import Quantity, milli_from_nano, nano, units_from_nano
from extender.model.requests import container_totals, is_extended
from extender.offline.manifests.validation.tree import Fields, fields, join, with_path

Amounts = Mapping[str, Quantity]
_NONE: Amounts = {}


def of_container(requirements: Fields, path: str) -> Iterator[str]:
    """Yields the unknown resources and impossible amounts in a container, before defaults are filled in."""
    for field in ("limits", "requests"):
        yield from _amounts(fields(requirements, field), join(path, field), formats.container_resource)


def of_pod_level(requirements: Fields, path: str) -> Iterator[str]:
    """Yields the unknown resources and impossible amounts in a pod's pod-level resources."""
    for field in ("limits", "requests"):
        yield from _amounts(fields(requirements, field), join(path, field), formats.pod_resource)


def overhead(amounts: Fields, path: str) -> Iterator[str]:
    yield from _amounts(amounts, path, formats.container_resource)


def disagreements(requests: Amounts, limits: Amounts, path: str) -> Iterator[str]:
    """Yields requests that exceed their limits, and huge pages without a request for cpu or memory."""
    for name, amount in requests.items():
        yield from with_path(f"{path}.requests.{name}", _against_limit(name, amount, limits))
    names = {*requests, *limits}
    if any(name.startswith(formats.HUGE_PAGES) for name in names) and not names & {"cpu", "memory"}:
        yield f"{path}: {formats.HUGE_PAGES}SIZE can only be requested together with cpu or memory"


def of_admitted(pod: Pod) -> Iterator[str]:
    """Yields the contradictions between a pod's requests and limits, after all defaults are filled in."""
    for field, containers in (("initContainers", pod.init_containers), ("containers", pod.containers)):
        for number, container in enumerate(containers):
            resources = container.resources or ResourceRequirements()
            path = f"spec.{field}[{number}].resources"
            yield from disagreements(resources.requests or _NONE, resources.limits or _NONE, path)
    if pod.spec.resources is not None:
        resources = pod.spec.resources
        yield from disagreements(resources.requests or _NONE, resources.limits or _NONE, "spec.resources")
        yield from _of_whole_and_parts(pod, resources)


def _of_whole_and_parts(pod: Pod, whole: ResourceRequirements) -> Iterator[str]:
    """Yields pod-level amounts that are too small for the containers, and containers' limits that are too large."""
    for name, nanos in container_totals(pod).items():
        if name in (whole.requests or _NONE) and nano((whole.requests or _NONE)[name]) < nanos:
            amount = (whole.requests or _NONE)[name]
            yield f"spec.resources.requests.{name}: {amount} is less than the containers request together"
    limits = whole.limits or _NONE
    for name, nanos in container_totals(pod, limits=True).items():
        if name.startswith(formats.HUGE_PAGES) and name in limits and nano(limits[name]) < nanos:
            yield f"spec.resources.limits.{name}: {limits[name]} is less than the containers' limits together"
    for number, container in enumerate(pod.containers):
        own = (container.resources.limits if container.resources else None) or _NONE
        for name in limits.keys() & own.keys():
            if nano(own[name]) > nano(limits[name]):
                path = f"spec.containers[{number}].resources.limits.{name}"
                yield f"{path}: {own[name]} is more than the pod's limit of {limits[name]}"


def _against_limit(name: str, amount: Quantity, limits: Amounts) -> str | None:
    is_exact = is_extended(name) or name.startswith(formats.HUGE_PAGES)  # cannot be overcommitted
    if name not in limits:
        return "has no limit; expected a limit of the same amount" if is_exact else None
    if is_exact and nano(amount) != nano(limits[name]):
        return f"{amount} is not equal to its limit of {limits[name]}"
    return f"{amount} is more than its limit of {limits[name]}" if nano(amount) > nano(limits[name]) else None


def _amounts(amounts: Amounts, path: str, fault_of_name: Callable[[str], str | None]) -> Iterator[str]:
    for name, amount in amounts.items():
        here = join(path, name)
        yield from with_path(here, fault_of_name(name))
        if is_extended(name) and milli_from_nano(nano(amount)) % 1000:
            yield f"{here}: {amount} is not a whole number"
        if name.startswith(formats.HUGE_PAGES) and not _is_of_pages(name, nano(amount)):
            yield f"{here}: {amount} is not a multiple of the size of a page"


def _is_of_pages(name: str, nanos: int) -> bool:
    size = formats.page_bytes(name)
    return size > 0 and units_from_nano(nanos) % size == 0

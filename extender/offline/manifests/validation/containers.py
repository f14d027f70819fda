"""Checks the containers of a pod: names, images, ports, mounts, claims."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from extender.offline.manifests.validation import formats, processes, resources
from extender.offline.manifests.validation.tree import Fields, fields, items, join, names, with_path

_GRACE_PERIOD = 30  # the number of seconds that the API server fills in
_RESTART_POLICIES = ("Always", "OnFailure", "Never")


def faults(spec: Fields, path: str, *, is_template: bool) -> Iterator[str]:
    """Yields the faults in the containers of a pod spec.

    Args:
        is_template: True for a pod template, for which the API server does fewer checks.
    """
    if not spec.get("containers"):
        yield f"{path}.containers: is empty; expected at least one container"
    volumes = {volume.get("name") or "": volume for _, volume in items(spec, "volumes", "")}
    claims = {claim.get("name") for _, claim in items(spec, "resourceClaims", "")}
    host_network = bool(spec.get("hostNetwork"))
    grace_period = _grace_period(spec, is_template=is_template)
    seen: set[str] = set()
    taken: set[tuple[object, ...]] = set()
    for field in ("containers", "initContainers"):
        yield from names(spec, field, path, formats.dns_label, seen)
        for here, container in items(spec, field, path):
            yield from _container(container, here, claims, is_template=is_template)
            may_have_probes = field == "containers" or container.get("restartPolicy") == "Always"
            yield from processes.faults(
                container, volumes, here, may_have_probes=may_have_probes, grace_period=grace_period
            )
            yield from _resize_policies(container, spec.get("restartPolicy"), here, is_init=not may_have_probes)
            if container.get("volumeDevices") and spec.get("hostUsers") is False:
                yield f"{here}.volumeDevices: cannot be set, because hostUsers is false"
            image = container.get("image") or ""
            if not is_template and image != image.strip():
                yield f"{here}.image: {image!r} begins or ends with a space"
            # Init containers run one after the other, so their ports may be the same.
            used = taken if field == "containers" else set()
            is_fixed = host_network and field == "containers"
            yield from _host_ports(container, used, here, is_fixed=is_fixed, is_filled=host_network and not is_template)
    if spec.get("ephemeralContainers"):
        yield f"{path}.ephemeralContainers: cannot be set when a pod is created"


def _container(container: Fields, path: str, claims: Collection[object], *, is_template: bool) -> Iterator[str]:
    if not container.get("image"):
        yield f"{path}.image: is missing"
    if container.get("restartPolicy") not in (None, *_RESTART_POLICIES):
        yield f"{path}.restartPolicy: {container['restartPolicy']!r} is not one of {', '.join(_RESTART_POLICIES)}"
    if container.get("restartPolicyRules") and container.get("restartPolicy") is None:
        yield f"{path}.restartPolicy: is missing; restartPolicyRules need it"
    requirements, here = fields(container, "resources"), join(path, "resources")
    yield from resources.of_container(requirements, here)
    if is_template:  # a pod's requests and limits are compared after admission has filled them in
        yield from resources.disagreements(fields(requirements, "requests"), fields(requirements, "limits"), here)
    yield from _claims(requirements, claims, here)
    yield from _ports(container, path)


def _grace_period(spec: Fields, *, is_template: bool) -> int:
    seconds = spec.get("terminationGracePeriodSeconds")
    if not isinstance(seconds, int):
        return _GRACE_PERIOD
    # the API server changes a negative value to 1, but in pods only
    return seconds if seconds >= 0 or is_template else 1


def _resize_policies(container: Fields, pod_restarts: object, path: str, *, is_init: bool) -> Iterator[str]:
    """Yields the faults of resizePolicy; `is_init` is True for an init container without restartPolicy Always."""
    seen: set[object] = set()
    for here, policy in items(container, "resizePolicy", path):
        name = policy.get("resourceName")
        if name in seen:
            yield f"{here}.resourceName: {name!r} is used twice"
        seen.add(name)
        if (pod_restarts == "Never" or is_init) and policy.get("restartPolicy") == "RestartContainer":
            yield f"{here}.restartPolicy: expected NotRequired, because the container does not restart"


def _claims(requirements: Fields, known: Collection[object], path: str) -> Iterator[str]:
    used: set[tuple[object, object]] = set()
    for here, claim in items(requirements, "claims", path):
        name, request = claim.get("name") or "", claim.get("request") or ""
        if name not in known:
            yield f"{here}: {name!r} is not the name of one of the pod's resourceClaims"
        if any(name == other and (request == part or not request or not part) for other, part in used):
            yield f"{here}: {name!r} is used twice by this container"
        used.add((name, request))
        if request:
            yield from with_path(join(here, "request"), formats.dns_label(request))


def _ports(container: Fields, path: str) -> Iterator[str]:
    seen: set[str] = set()
    for here, port in items(container, "ports", path):
        name = port.get("name") or ""
        if name:
            repeated = f"{name!r} is used twice" if name in seen else None
            yield from with_path(join(here, "name"), formats.port_name(name) or repeated)
            seen.add(name)
        yield from with_path(join(here, "containerPort"), formats.port_number(port.get("containerPort")))
        if port.get("hostPort"):
            yield from with_path(join(here, "hostPort"), formats.port_number(port["hostPort"]))


def _host_ports(
    container: Fields, taken: set[tuple[object, ...]], path: str, *, is_fixed: bool, is_filled: bool
) -> Iterator[str]:
    """Yields the faults of host ports.

    Args:
        taken: the host ports of the containers before this one.
        is_fixed: True if every hostPort has to be equal to the containerPort.
        is_filled: True if the API server fills in a missing hostPort with the containerPort.
    """
    for here, port in items(container, "ports", path):
        number = port.get("hostPort") or 0
        if is_fixed and number and number != port.get("containerPort"):
            yield f"{here}.hostPort: expected the containerPort, because hostNetwork is true"
        if is_filled:
            number = number or port.get("containerPort") or 0
        key = (port.get("protocol") or "TCP", port.get("hostIP") or "", number)
        if number and key in taken:
            yield f"{here}.hostPort: {number} is used by another port too"
        taken.add(key)

"""Checks a container's environment, probes and lifecycle hooks, and the places where its volumes are mounted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from extender.offline.manifests.validation import formats
from extender.offline.manifests.validation.sources import field_path
from extender.offline.manifests.validation.tree import Fields, fields, items, join, with_path

_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_FIELD_PATHS = (
    *("metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName"),
    *("status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs"),
)
_MOST_RULES, _MOST_CODES = 20, 255


def faults(
    container: Fields, volumes: Mapping[str, Fields], path: str, *, may_have_probes: bool, grace_period: int
) -> Iterator[str]:
    """Yields the faults of a container.

    Args:
        volumes: the pod's volumes by name.
        may_have_probes: False for an init container without restartPolicy Always.
        grace_period: the seconds that the pod has for its end.
    """
    for here, variable in items(container, "env", path):
        yield from _variable(variable, volumes, here)
    for field in (*_PROBES, "lifecycle"):
        if container.get(field) is not None and not may_have_probes:
            yield f"{path}.{field}: only an init container with restartPolicy Always can have it"
    for field in _PROBES:
        yield from _probe(field, fields(container, field), join(path, field))
    yield from _hooks(container, grace_period, path)
    yield from _restarts(container, path)
    yield from _mounts(container, volumes, path)
    yield from _devices(container, volumes, path)


def _variable(variable: Fields, volumes: Mapping[str, Fields], path: str) -> Iterator[str]:
    if variable.get("value") and variable.get("valueFrom") is not None:
        yield f"{path}.valueFrom: cannot be set together with value"
    yield from field_path(fields(variable, "valueFrom", "fieldRef"), _FIELD_PATHS, f"{path}.valueFrom.fieldRef")
    file = fields(variable, "valueFrom", "fileKeyRef").get("volumeName")
    if file and fields(volumes, file).get("emptyDir") is None:
        yield f"{path}.valueFrom.fileKeyRef.volumeName: {file!r} is not the name of one of the pod's emptyDir volumes"


def _probe(field: str, probe: Fields, path: str) -> Iterator[str]:
    if field != "readinessProbe" and (probe.get("successThreshold") or 1) != 1:
        yield f"{path}.successThreshold: expected 1"
    if field == "readinessProbe" and probe.get("terminationGracePeriodSeconds") is not None:
        yield f"{path}.terminationGracePeriodSeconds: cannot be set for a readinessProbe"
    yield from _ports(probe, path)


def _ports(probe: Fields, path: str) -> Iterator[str]:
    """Yields the faults of the port of a probe or a hook."""
    for handler in ("httpGet", "tcpSocket"):
        if probe.get(handler) is not None:
            port = probe[handler].get("port")
            fault = formats.port_name(port) if isinstance(port, str) else formats.port_number(port)
            yield from with_path(f"{path}.{handler}.port", fault)


def _hooks(container: Fields, grace_period: int, path: str) -> Iterator[str]:
    """Yields the faults of a container's lifecycle hooks: of their ports, and of sleeps that are too long."""
    for field in ("postStart", "preStop"):
        hook, here = fields(container, "lifecycle", field), f"{path}.lifecycle.{field}"
        yield from _ports(hook, here)
        seconds = fields(hook, "sleep").get("seconds") or 0
        if hook.get("sleep") is not None and not 0 <= seconds <= grace_period:
            yield (
                f"{here}.sleep.seconds: expected a number from 0 to {grace_period}, which is "
                f"terminationGracePeriodSeconds, got {seconds}"
            )


def _restarts(container: Fields, path: str) -> Iterator[str]:
    rules = container.get("restartPolicyRules") or ()
    if len(rules) > _MOST_RULES:
        yield f"{path}.restartPolicyRules: expected at most {_MOST_RULES}, got {len(rules)}"
    for here, rule in items(container, "restartPolicyRules", path):
        if len(fields(rule, "exitCodes").get("values") or ()) > _MOST_CODES:
            yield f"{here}.exitCodes.values: expected at most {_MOST_CODES}"


def _mounts(container: Fields, volumes: Mapping[str, Fields], path: str) -> Iterator[str]:
    paths: set[str] = set()
    is_privileged = bool(fields(container, "securityContext").get("privileged"))
    for here, mount in items(container, "volumeMounts", path):
        name, mount_path = mount.get("name") or "", mount.get("mountPath") or ""
        if name not in volumes:
            yield f"{here}.name: {name!r} is not the name of one of the pod's volumes"
        if not mount_path:
            yield f"{here}.mountPath: is missing"
        elif mount_path in paths:
            yield f"{here}.mountPath: {mount_path} is used twice by this container"
        paths.add(mount_path)
        if mount.get("subPath") and mount.get("subPathExpr"):
            yield f"{here}.subPathExpr: cannot be set together with subPath"
        if mount.get("mountPropagation") == "Bidirectional" and not is_privileged:
            yield f"{here}.mountPropagation: Bidirectional needs a privileged container"
        if mount.get("recursiveReadOnly") in ("IfPossible", "Enabled") and not mount.get("readOnly"):
            yield f"{here}.recursiveReadOnly: needs readOnly: true"


def _devices(container: Fields, volumes: Mapping[str, Fields], path: str) -> Iterator[str]:
    mounted = {mount.get("name") for _, mount in items(container, "volumeMounts", "")}
    mount_paths = {mount.get("mountPath") for _, mount in items(container, "volumeMounts", "")}
    used: set[tuple[str, str]] = set()
    for here, device in items(container, "volumeDevices", path):
        name = device.get("name") or ""
        if name not in volumes:
            yield f"{here}.name: {name!r} is not the name of one of the pod's volumes"
        elif not {"persistentVolumeClaim", "ephemeral"} & volumes[name].keys():
            yield f"{here}.name: {name!r} is not the volume of a claim, so it cannot be a device"
        if name in mounted:
            yield f"{here}.name: {name!r} is mounted by this container too"
        if device.get("devicePath") in mount_paths:
            yield f"{here}.devicePath: {device['devicePath']} is the path of a mounted volume too"
        for field in ("name", "devicePath"):
            if device.get(field) and (device[field], field) in used:
                yield f"{join(here, field)}: {device[field]} is used twice by this container"
            used.add((device.get(field) or "", field))

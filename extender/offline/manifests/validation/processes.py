"""Checks what a container runs: its environment, its probes, its hooks, and where its volumes are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from extender.offline.manifests.validation import formats
from extender.offline.manifests.validation.tree import Fields, at, fields, items, join

_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_FIELD_PATHS = (
    *("metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName"),
    *("status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs"),
)
_BY_KEY = ("metadata.labels['", "metadata.annotations['")


def faults(container: Fields, volumes: Mapping[str, Fields], path: str, *, may_have_probes: bool) -> Iterator[str]:
    """Yields the faults of a container.

    Args:
        volumes: the pod's volumes by name.
        may_have_probes: False for an init container that has to end.
    """
    for here, variable in items(container, "env", path):
        yield from _variable(variable, here)
    for field in (*_PROBES, "lifecycle"):
        if container.get(field) is not None and not may_have_probes:
            yield f"{path}.{field}: only an init container with restartPolicy Always can have it"
    for field in _PROBES:
        yield from _probe(field, fields(container, field), join(path, field))
    yield from _mounts(container, volumes, path)
    yield from _devices(container, volumes, path)


def _variable(variable: Fields, path: str) -> Iterator[str]:
    if variable.get("value") and variable.get("valueFrom") is not None:
        yield f"{path}.valueFrom: cannot be set together with value"
    field = fields(variable, "valueFrom", "fieldRef").get("fieldPath")
    if field and field not in _FIELD_PATHS and not field.startswith(_BY_KEY):
        yield f"{path}.valueFrom.fieldRef.fieldPath: {field!r} cannot be read; expected {', '.join(_FIELD_PATHS)}"


def _probe(field: str, probe: Fields, path: str) -> Iterator[str]:
    if field != "readinessProbe" and (probe.get("successThreshold") or 1) != 1:
        yield f"{path}.successThreshold: expected 1"
    for handler in ("httpGet", "tcpSocket"):
        if probe.get(handler) is not None:
            port = probe[handler].get("port")
            fault = formats.port_name(port) if isinstance(port, str) else formats.port_number(port)
            yield from at(f"{path}.{handler}.port", fault)


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
    for here, device in items(container, "volumeDevices", path):
        name = device.get("name") or ""
        if name not in volumes:
            yield f"{here}.name: {name!r} is not the name of one of the pod's volumes"
        elif not {"persistentVolumeClaim", "ephemeral"} & volumes[name].keys():
            yield f"{here}.name: {name!r} is not the volume of a claim, so it cannot be a device"
        if name in mounted:
            yield f"{here}.name: {name!r} is mounted by this container too"

"""Checks pods and objects with a pod template: labels, containers, selectors, counts, and all that placement reads."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import msgspec

from extender.model import formats
from extender.model.meta import LabelSelector
from extender.model.selectors import compile_selector
from extender.offline.manifests.validation import placement, resources, types, volumes
from extender.offline.manifests.validation.tree import Fields, fields, items, join, names, with_path

_SELECTING = ("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet")
_KNOWN = ("Pod", "ReplicationController", *_SELECTING, "Job", "CronJob")
_API_VERSIONS = {"Pod": "v1", "ReplicationController": "v1", "Job": "batch/v1", "CronJob": "batch/v1"}


def is_stored(pod: Fields) -> bool:
    """Returns True if the manifest was read from an API server, which has already admitted the pod."""
    metadata = fields(pod, "metadata")
    return bool(metadata.get("resourceVersion") or metadata.get("creationTimestamp"))


def faults(kind: str, item: Fields, template: Fields, path: str) -> Iterator[str]:
    """Yields the faults of an object of this kind; its pod template is at `path`.

    For a kind that is not known here, only the template is checked.
    """
    if kind in _KNOWN:
        yield from with_path("apiVersion", _version_fault(kind, item.get("apiVersion")))
        yield from metadata_faults(fields(item, "metadata"))
    if kind == "Pod":
        yield from _pod(item)
        return
    if kind in _KNOWN:
        yield from _workload(kind, fields(item, "spec"), template, path)
    yield from _template(template, path, _claim_names(item) if kind == "StatefulSet" else ())


def metadata_faults(metadata: Fields) -> Iterator[str]:
    if metadata.get("name"):
        yield from with_path("metadata.name", formats.dns_subdomain(metadata["name"]))
    if metadata.get("namespace"):
        yield from with_path("metadata.namespace", formats.dns_label(metadata["namespace"]))
    yield from placement.label_map(fields(metadata, "labels"), "metadata.labels")


def _version_fault(kind: str, version: str | None) -> str | None:
    expected = _API_VERSIONS.get(kind, "apps/v1")
    return f"expected {expected} for a {kind}, got {version!r}" if version not in (None, "", expected) else None


def _claim_names(item: Fields) -> list[str]:
    templates = items(fields(item, "spec"), "volumeClaimTemplates", "spec")
    return [fields(claim, "metadata").get("name") or "" for _, claim in templates]


def _workload(kind: str, spec: Fields, template: Fields, path: str) -> Iterator[str]:
    own = {key: value for key, value in spec.items() if key != "template"}  # `_template` checks it
    yield from types.faults(f"V1{kind}Spec", own, "spec")
    if kind in _SELECTING:
        yield from _selector(spec.get("selector"), template, path)
    if kind == "ReplicationController":
        yield from _plain_selector(fields(spec, "selector"), template, path)
    if kind == "StatefulSet":
        for here, claim in items(spec, "volumeClaimTemplates", "spec"):
            yield from volumes.claim_spec(fields(claim, "spec"), join(here, "spec"))


def _selector(selector: Fields | None, template: Fields, path: str) -> Iterator[str]:
    if not selector or not (selector.get("matchLabels") or selector.get("matchExpressions")):
        yield "spec.selector: is missing or empty; expected labels of the template"
        return
    found = list(placement.label_selector(selector, "spec.selector"))
    yield from found
    if not found and not _matches(selector, template):
        yield f"{path}.metadata.labels: spec.selector does not match them"


def _matches(selector: Fields, template: Fields) -> bool:
    compiled = compile_selector(msgspec.convert(selector, LabelSelector))
    return compiled is not None and compiled.matches(dict(fields(template, "metadata", "labels")))


def _plain_selector(selector: Fields, template: Fields, path: str) -> Iterator[str]:
    labels = fields(template, "metadata", "labels")
    if not selector and not labels:
        yield "spec.selector: is missing or empty; expected labels of the template"
    elif any(labels.get(key) != value for key, value in selector.items()):
        yield f"{path}.metadata.labels: spec.selector does not match them"


def _pod(pod: Fields) -> Iterator[str]:
    metadata, spec = fields(pod, "metadata"), fields(pod, "spec")
    # The API server has already copied the labels named by matchLabelKeys into a stored pod's selectors.
    labels = {} if is_stored(pod) else fields(metadata, "labels")
    yield from _pod_spec(spec, labels, metadata.get("name") or "", "spec", is_template=False)
    if spec.get("nodeName") and spec.get("schedulingGates"):
        yield "spec.nodeName: cannot be set together with schedulingGates"


def _template(template: Fields, path: str, claim_templates: Collection[str]) -> Iterator[str]:
    """Yields the faults of a pod template.

    Args:
        claim_templates: the names of a StatefulSet's volumeClaimTemplates, which replace volumes of the same name.
    """
    yield from placement.label_map(fields(template, "metadata", "labels"), f"{path}.metadata.labels")
    spec = fields(template, "spec")
    others = [volume for _, volume in items(spec, "volumes", "") if volume.get("name") not in claim_templates]
    claims = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in claim_templates]
    yield from _pod_spec({**spec, "volumes": [*others, *claims]}, {}, "", join(path, "spec"), is_template=True)


def _pod_spec(spec: Fields, labels: Fields, pod_name: str, path: str, *, is_template: bool) -> Iterator[str]:
    yield from types.faults("V1PodSpec", spec, path)
    yield from volumes.faults(spec, pod_name, path)
    yield from _containers(spec, path, is_template=is_template)
    yield from placement.faults(spec, labels, path)
    # A pod's RuntimeClass may add tolerations, so those are checked after `admission` has added them.
    if is_template or not spec.get("runtimeClassName"):
        yield from placement.tolerations(spec, path)
    yield from names(spec, "schedulingGates", path, formats.qualified_name)
    whole, here = fields(spec, "resources"), join(path, "resources")
    yield from resources.of_pod_level(whole, here)
    if is_template:
        yield from resources.disagreements(fields(whole, "requests"), fields(whole, "limits"), here)
    if whole.get("claims") is not None:
        yield f"{here}.claims: cannot be set for a whole pod; only containers have claims"
    yield from resources.overhead(fields(spec, "overhead"), join(path, "overhead"))


def _containers(spec: Fields, path: str, *, is_template: bool) -> Iterator[str]:
    """Yields the faults in the names, resources, claims and ports of a pod's containers.

    Args:
        is_template: True for a pod template, for which the API server does fewer checks.
    """
    if not spec.get("containers"):
        yield f"{path}.containers: is empty; expected at least one container"
    claims = {claim.get("name") for _, claim in items(spec, "resourceClaims", "")}
    host_network = bool(spec.get("hostNetwork"))
    seen: set[str] = set()
    taken: set[tuple[object, ...]] = set()
    for field in ("containers", "initContainers"):
        yield from names(spec, field, path, formats.dns_label, seen)
        for here, container in items(spec, field, path):
            requirements, where = fields(container, "resources"), join(here, "resources")
            yield from resources.of_container(requirements, where)
            if is_template:  # a pod's requests and limits are compared after admission has filled them in
                requests, limits = fields(requirements, "requests"), fields(requirements, "limits")
                yield from resources.disagreements(requests, limits, where)
            yield from _claims(requirements, claims, where)
            # Init containers run one after the other, so their ports may be the same.
            used = taken if field == "containers" else set()
            is_fixed = host_network and field == "containers"
            yield from _ports(container, used, here, is_fixed=is_fixed, is_filled=host_network and not is_template)


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


def _ports(
    container: Fields, taken: set[tuple[object, ...]], path: str, *, is_fixed: bool, is_filled: bool
) -> Iterator[str]:
    """Yields the faults of ports.

    Args:
        taken: the host ports of the containers before this one.
        is_fixed: True if every hostPort has to be equal to the containerPort.
        is_filled: True if the API server fills in a missing hostPort with the containerPort.
    """
    for here, port in items(container, "ports", path):
        yield from with_path(join(here, "containerPort"), formats.port_number(port.get("containerPort")))
        number = port.get("hostPort") or 0
        if number:
            yield from with_path(join(here, "hostPort"), formats.port_number(number))
        if is_fixed and number and number != port.get("containerPort"):
            yield f"{here}.hostPort: expected the containerPort, because hostNetwork is true"
        if is_filled:
            number = number or port.get("containerPort") or 0
        key = (port.get("protocol") or "TCP", port.get("hostIP") or "", number)
        if number and key in taken:
            yield f"{here}.hostPort: {number} is used by another port too"
        taken.add(key)

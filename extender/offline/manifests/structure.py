"""Checks what scheduling reads of a new pod, pod template, group or claim, as the API server does.

`schema` has already found unknown fields and wrong types; `admission` checks what depends on other objects. Fields that
no placement depends on, such as probes, are not checked: `kubectl apply --dry-run=server` does that. Every function
yields faults as text for people, "path: what is wrong". Start at `faults`, for pods and objects with a pod template,
and `companion_faults`, for groups and claims; `checks` has the parts that both share.

Upstream has a function for the fields of each type; `type_faults` has a line for each in a table. Sources: upstream
pkg/apis/{core,apps,batch,resource,scheduling}/validation, api/scheduling/v1beta1/types.go.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping

import msgspec

from extender.devices.cel.device_selectors import compilation_fault
from extender.errors import MalformedQuantity
from extender.model import formats
from extender.model.devices import DeviceClaim
from extender.model.meta import LabelSelector
from extender.model.quantity import nano
from extender.model.selectors import compile_selector
from extender.offline.manifests import checks, schema
from extender.offline.manifests.checks import (
    Fields,
    fields,
    items,
    join,
    label_map,
    label_selector,
    names,
    texts,
    with_path,
)

_SELECTING = ("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet")
_KNOWN = ("Pod", "ReplicationController", *_SELECTING, "Job", "CronJob")


def is_stored(pod: Fields) -> bool:
    """Returns True if the manifest was read from an API server, which has already admitted the pod."""
    metadata = fields(pod, "metadata")
    return bool(metadata.get("resourceVersion") or metadata.get("creationTimestamp"))


def faults(kind: str, item: Fields, template: Fields, path: str) -> Iterator[str]:
    """Yields the faults of an object of this kind; its pod template is at `path`.

    For a kind that is not known here, only the template is checked.
    """
    if kind in _KNOWN:
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
    yield from checks.label_map(fields(metadata, "labels"), "metadata.labels")


def _claim_names(item: Fields) -> list[str]:
    templates = items(fields(item, "spec"), "volumeClaimTemplates", "spec")
    return [fields(claim, "metadata").get("name") or "" for _, claim in templates]


def _workload(kind: str, spec: Fields, template: Fields, path: str) -> Iterator[str]:
    own = {key: value for key, value in spec.items() if key != "template"}  # `_template` checks it
    yield from type_faults(f"V1{kind}Spec", own, "spec")
    if kind in _SELECTING:
        yield from _selector(spec.get("selector"), template, path)
    if kind == "ReplicationController":
        yield from _plain_selector(fields(spec, "selector"), template, path)
    if kind == "StatefulSet":
        for here, claim in items(spec, "volumeClaimTemplates", "spec"):
            yield from claim_spec(fields(claim, "spec"), join(here, "spec"))


def _selector(selector: Fields | None, template: Fields, path: str) -> Iterator[str]:
    if not selector or not (selector.get("matchLabels") or selector.get("matchExpressions")):
        yield "spec.selector: is missing or empty; expected labels of the template"
        return
    found = list(checks.label_selector(selector, "spec.selector"))
    yield from found
    labels = dict(fields(template, "metadata", "labels"))
    if not found and not compile_selector(msgspec.convert(selector, LabelSelector)).matches(labels):
        yield f"{path}.metadata.labels: spec.selector does not match them"


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
    yield from checks.label_map(fields(template, "metadata", "labels"), f"{path}.metadata.labels")
    spec = fields(template, "spec")
    others = [volume for _, volume in items(spec, "volumes", "") if volume.get("name") not in claim_templates]
    claims = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in claim_templates]
    yield from _pod_spec({**spec, "volumes": [*others, *claims]}, {}, "", join(path, "spec"), is_template=True)


def _pod_spec(spec: Fields, labels: Fields, pod_name: str, path: str, *, is_template: bool) -> Iterator[str]:
    yield from type_faults("V1PodSpec", spec, path)
    yield from volume_faults(spec, pod_name, path)
    yield from _containers(spec, path, is_template=is_template)
    yield from checks.placement_faults(spec, labels, path)
    # A pod's RuntimeClass may add tolerations, so those are checked after `admission` has added them.
    if is_template or not spec.get("runtimeClassName"):
        yield from checks.tolerations(spec, path)
    yield from names(spec, "schedulingGates", path, formats.qualified_name)
    whole, here = fields(spec, "resources"), join(path, "resources")
    yield from checks.requirement_faults(whole, here, formats.pod_resource)
    if is_template:
        yield from checks.disagreements(fields(whole, "requests"), fields(whole, "limits"), here)
    if whole.get("claims") is not None:
        yield f"{here}.claims: cannot be set for a whole pod; only containers have claims"
    yield from checks.amount_faults(fields(spec, "overhead"), join(path, "overhead"), formats.container_resource)


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
            yield from checks.requirement_faults(requirements, where, formats.container_resource)
            if is_template:  # a pod's requests and limits are compared after admission has filled them in
                requests, limits = fields(requirements, "requests"), fields(requirements, "limits")
                yield from checks.disagreements(requests, limits, where)
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


_INT32_MAX = 2**31 - 1
_COUNT, _POSITIVE = (0, _INT32_MAX), (1, _INT32_MAX)
_GROUP_SPECS = ("V1beta1PodGroupSpec", "V1alpha3CompositePodGroupSpec")
_GROUP_VERSIONS = ("V1beta1", "V1alpha3")

# Type.field -> the values that the API server accepts; a field may be left out or empty.
_CHOICES: Mapping[str, tuple[str, ...]] = {
    "V1Container.restartPolicy": ("Always", "OnFailure", "Never"),
    **{f"{kind}.preemptionPolicy": ("Never", "PreemptLowerPriority") for kind in _GROUP_SPECS},
    **{f"V1{kind}.allocationMode": ("ExactCount", "All") for kind in ("ExactDeviceRequest", "DeviceSubRequest")},
    "V1DeviceToleration.operator": ("Exists", "Equal"),
    "V1DeviceToleration.effect": ("NoSchedule", "NoExecute", "None"),
}
_RANGES: Mapping[str, tuple[int, int]] = {
    **{
        f"V1{kind}Spec.replicas": _COUNT
        for kind in ("ReplicationController", "Deployment", "ReplicaSet", "StatefulSet")
    },
    **{f"V1{kind}.weight": (1, 100) for kind in ("WeightedPodAffinityTerm", "PreferredSchedulingTerm")},
    "V1JobSpec.parallelism": _COUNT,
    "V1JobSpec.completions": _COUNT,
    "V1StatefulSetOrdinals.start": _COUNT,
    "V1beta1GangSchedulingPolicy.minCount": _POSITIVE,
    "V1alpha3CompositeGangSchedulingPolicy.minGroupCount": _POSITIVE,
    **{f"{kind}.priority": (-(2**31), 10**9) for kind in _GROUP_SPECS},
}
# Type -> the fields that the API server requires.
_NEEDED: Mapping[str, tuple[str, ...]] = {
    "V1PersistentVolumeClaimVolumeSource": ("claimName",),
    "V1EphemeralVolumeSource": ("volumeClaimTemplate",),
    "V1beta1PodGroupSpec": ("schedulingPolicy",),
    "V1alpha3CompositePodGroupSpec": ("schedulingPolicy", "workloadRef"),
    "V1beta1GangSchedulingPolicy": ("minCount",),
    "V1alpha3CompositeGangSchedulingPolicy": ("minGroupCount",),
    "V1beta1PodGroupResourceClaim": ("name",),
    **{f"{version}TopologyConstraint": ("key",) for version in _GROUP_VERSIONS},
    **{f"{version}WorkloadReference": ("workloadName", "templateName") for version in _GROUP_VERSIONS},
    "V1DeviceRequest": ("name",),
    "V1ExactDeviceRequest": ("deviceClassName",),
    "V1DeviceSubRequest": ("name", "deviceClassName"),
    "V1DeviceSelector": ("cel",),
    "V1CELDeviceSelector": ("expression",),
}
# Type -> the fields of which exactly one must be set.
_ONE_OF: Mapping[str, tuple[str, ...]] = {
    "V1beta1PodGroupSchedulingPolicy": ("basic", "gang"),
    "V1alpha3CompositePodGroupSchedulingPolicy": ("basic", "gang"),
    "V1beta1DisruptionMode": ("single", "all"),
    "V1alpha3CompositeDisruptionMode": ("single", "all"),
    "V1beta1PodGroupResourceClaim": ("resourceClaimName", "resourceClaimTemplateName"),
    "V1DeviceRequest": ("exactly", "firstAvailable"),
}
# Type.field -> the function that checks the form of a text.
_FORMATS: Mapping[str, Callable[[str], str | None]] = {
    "V1PodSpec.nodeName": formats.dns_subdomain,
    "V1PersistentVolumeClaimSpec.storageClassName": formats.dns_subdomain,
    **{
        f"{kind}.{field}": formats.dns_subdomain
        for kind in _GROUP_SPECS
        for field in ("priorityClassName", "parentCompositePodGroupName")
    },
    "V1beta1PodGroupResourceClaim.name": formats.dns_label,
    "V1beta1PodGroupResourceClaim.resourceClaimName": formats.dns_subdomain,
    "V1beta1PodGroupResourceClaim.resourceClaimTemplateName": formats.dns_subdomain,
    **{f"{version}TopologyConstraint.key": formats.qualified_name for version in _GROUP_VERSIONS},
    **{f"{version}WorkloadReference.workloadName": formats.dns_subdomain for version in _GROUP_VERSIONS},
    **{f"{version}WorkloadReference.templateName": formats.dns_label for version in _GROUP_VERSIONS},
    "V1DeviceRequest.name": formats.dns_label,
    "V1DeviceSubRequest.name": formats.dns_label,
    "V1ExactDeviceRequest.deviceClassName": formats.dns_subdomain,
    "V1DeviceSubRequest.deviceClassName": formats.dns_subdomain,
    "V1DeviceToleration.key": formats.qualified_name,
}


def type_faults(name: str, value: object, path: str) -> Iterator[str]:
    """Yields the faults of a value of this type, such as V1PodSpec, and of all that it contains."""
    for inner_name, inner, here in schema.typed(name, value, path):
        yield from _of_type(inner_name, inner, here)


def _of_type(name: str, value: Fields, path: str) -> Iterator[str]:
    for field in _NEEDED.get(name, ()):
        if not value.get(field):
            yield f"{path}.{field}: is missing"
    options = _ONE_OF.get(name)
    if options and sum(value.get(field) not in (None, [], "") for field in options) != 1:
        yield f"{path}: expected exactly one of {', '.join(options)}"
    for field, inner in value.items():
        yield from _of_field(f"{name}.{field}", inner, join(path, field))


def _of_field(key: str, value: object, path: str) -> Iterator[str]:
    if value and key in _CHOICES and value not in _CHOICES[key]:
        yield f"{path}: {value!r} is not one of {', '.join(_CHOICES[key])}"
    if isinstance(value, int) and key in _RANGES:
        lowest, highest = _RANGES[key]
        if not lowest <= value <= highest:
            yield f"{path}: expected a number from {lowest} to {highest}, got {value}"
    if value and isinstance(value, str) and key in _FORMATS:
        yield from with_path(path, _FORMATS[key](value))


_ACCESS_MODES = ("ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod")
_VOLUME_MODES = ("Block", "Filesystem")


def volume_faults(spec: Fields, pod_name: str, path: str) -> Iterator[str]:
    """Yields the faults in the volumes of a pod spec; `pod_name` is empty for a template."""
    yield from names(spec, "volumes", path, formats.dns_label)
    ephemeral = [volume for _, volume in items(spec, "volumes", "") if volume.get("ephemeral") is not None]
    created = {f"{pod_name}-{volume.get('name')}" for volume in ephemeral}
    for here, volume in items(spec, "volumes", path):
        yield from _source(volume, here)
        claim = fields(volume, "persistentVolumeClaim").get("claimName")
        if pod_name and claim in created:
            yield f"{here}.persistentVolumeClaim.claimName: {claim} is created for an ephemeral volume of this pod"
    yield from _device_claims(spec, path)


def claim_spec(spec: Fields, path: str) -> Iterator[str]:
    """Yields the faults in the spec of a PersistentVolumeClaim."""
    modes = texts(spec, "accessModes")
    if not modes:
        yield f"{path}.accessModes: is empty; expected at least one"
    for mode in modes:
        if mode not in _ACCESS_MODES:
            yield f"{path}.accessModes: {mode!r} is not one of {', '.join(_ACCESS_MODES)}"
    if "ReadWriteOncePod" in modes and len(set(modes)) > 1:
        yield f"{path}.accessModes: ReadWriteOncePod cannot be used with others"
    if spec.get("volumeMode") not in (None, *_VOLUME_MODES):
        yield f"{path}.volumeMode: {spec['volumeMode']!r} is not one of {', '.join(_VOLUME_MODES)}"
    if not _is_positive(fields(spec, "resources", "requests").get("storage")):
        yield f"{path}.resources.requests.storage: expected more than 0"
    yield from label_selector(fields(spec, "selector"), join(path, "selector"))


def _is_positive(quantity: str | int | float | None) -> bool:
    try:
        return nano(quantity) > 0
    except MalformedQuantity:
        return False


def _source(volume: Fields, path: str) -> Iterator[str]:
    sources = [key for key, value in volume.items() if key != "name" and value is not None]
    if len(sources) > 1:
        yield f"{path}: expected one kind of volume, got {' and '.join(sources)}"
    template = fields(volume, "ephemeral", "volumeClaimTemplate")
    if template:
        here = f"{path}.ephemeral.volumeClaimTemplate"
        yield from label_map(fields(template, "metadata", "labels"), f"{here}.metadata.labels")
        yield from claim_spec(fields(template, "spec"), f"{here}.spec")


def _device_claims(spec: Fields, path: str) -> Iterator[str]:
    yield from names(spec, "resourceClaims", path, formats.dns_label)
    for here, claim in items(spec, "resourceClaims", path):
        sources = [key for key in ("resourceClaimName", "resourceClaimTemplateName") if claim.get(key) is not None]
        if len(sources) != 1:
            yield f"{here}: expected either resourceClaimName or resourceClaimTemplateName"
        for source in sources:
            yield from with_path(join(here, source), formats.dns_subdomain(claim[source]))


_SPECS = {
    "PodGroup": "V1beta1PodGroupSpec",
    "CompositePodGroup": "V1alpha3CompositePodGroupSpec",
    "PersistentVolumeClaim": "V1PersistentVolumeClaimSpec",
    "ResourceClaim": "V1ResourceClaimSpec",
    "ResourceClaimTemplate": "V1ResourceClaimTemplateSpec",
}
_MOST_GROUP_CLAIMS, _MOST, _MOST_ALTERNATIVES = 4, 32, 8
_LONGEST_SELECTOR = 10 * 1024
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,31}")


def companion_faults(kind: str, item: Fields) -> Iterator[str]:
    """Yields the faults for which the API server would refuse a pod group or a claim."""
    metadata = fields(item, "metadata")
    if not (metadata.get("name") or metadata.get("generateName")):
        yield "metadata.name: is missing"
    yield from metadata_faults(metadata)
    spec = item.get("spec") or {}
    yield from type_faults(_SPECS[kind], spec, "spec")
    if kind == "PersistentVolumeClaim":
        yield from claim_spec(spec, "spec")
    elif kind == "ResourceClaim":
        yield from _devices(fields(spec, "devices"), "spec.devices")
    elif kind == "ResourceClaimTemplate":
        yield from checks.label_map(fields(spec, "metadata", "labels"), "spec.metadata.labels")
        yield from _devices(fields(spec, "spec", "devices"), "spec.spec.devices")
    else:
        yield from _group(spec)


def _group(spec: Fields) -> Iterator[str]:
    for parent, field in (("schedulingPolicy", "basic"), ("disruptionMode", "single"), ("disruptionMode", "all")):
        value = fields(spec, parent).get(field)
        if value is not None and value != {}:
            yield f"spec.{parent}.{field}: expected {{}}, because it has no fields, got {value!r}"
    if len(fields(spec, "schedulingConstraints").get("topology") or ()) > 1:
        yield "spec.schedulingConstraints.topology: expected at most 1"
    if len(spec.get("resourceClaims") or ()) > _MOST_GROUP_CLAIMS:
        yield f"spec.resourceClaims: expected at most {_MOST_GROUP_CLAIMS}"
    yield from names(spec, "resourceClaims", "spec", lambda _: None)
    if spec.get("parentCompositePodGroupName") is not None and spec.get("workloadRef") is None:
        yield "spec.workloadRef: is missing; parentCompositePodGroupName needs it"


def _devices(devices: Fields, path: str) -> Iterator[str]:
    for field in ("requests", "constraints", "config"):
        yield from _many(devices, field, path, _MOST)
    yield from names(devices, "requests", path, lambda _: None)
    known = set(_request_names(devices))
    for here, request in items(devices, "requests", path):
        yield from _many(request, "firstAvailable", here, _MOST_ALTERNATIVES)
        yield from names(request, "firstAvailable", here, lambda _: None)
        for where, part in (
            (f"{here}.exactly", fields(request, "exactly")),
            *items(request, "firstAvailable", here),
        ):
            yield from _request(part, where)
    for field in ("constraints", "config"):
        for here, each in items(devices, field, path):
            yield from _references(each, known, here)
    for here, constraint in items(devices, "constraints", path):
        yield from _constraint(constraint, here)


def capacity_faults(devices: DeviceClaim, path: str) -> Iterator[str]:
    """Yields the faults in the capacities that requests ask for; before Kubernetes 1.38, none was checked."""
    for number, request in enumerate(devices.requests or ()):
        here = f"{path}.requests[{number}]"
        exactly = [(f"{here}.exactly", request.exactly)] if request.exactly else []
        alternatives = [(f"{here}.firstAvailable[{i}]", each) for i, each in enumerate(request.first_available or ())]
        for where, part in (*exactly, *alternatives):
            amounts = (part.capacity and part.capacity.requests) or {}
            where = f"{where}.capacity.requests"
            if len(amounts) > _MOST:
                yield f"{where}: expected at most {_MOST}, got {len(amounts)}"
                return
            for name, amount in amounts.items():
                domain, slash, identifier = name.rpartition("/")
                if (slash and formats.driver_name(domain)) or not _IDENTIFIER.fullmatch(identifier):
                    yield f"{where}: {name!r} is not a capacity: expected one like memory or example.com/memory"
                if nano(amount) < 0:
                    yield f"{where}[{name}]: expected at least 0, got {amount}"


def _many(parent: Fields, field: str, path: str, most: int) -> Iterator[str]:
    if len(parent.get(field) or ()) > most:
        yield f"{join(path, field)}: expected at most {most}, got {len(parent[field])}"


def _request_names(devices: Fields) -> Iterator[str]:
    for _, request in items(devices, "requests", ""):
        yield request.get("name") or ""
        for _, alternative in items(request, "firstAvailable", ""):
            yield f"{request.get('name') or ''}/{alternative.get('name') or ''}"


def _request(request: Fields, path: str) -> Iterator[str]:
    yield from _many(request, "selectors", path, _MOST)
    mode, count = request.get("allocationMode") or "ExactCount", request.get("count") or 0
    if mode == "All" and count:
        yield f"{path}.count: cannot be set together with allocationMode All"
    if mode == "ExactCount" and count < 0:
        yield f"{path}.count: expected a number of at least 1, got {count}"
    for here, selector in items(request, "selectors", path):
        yield from with_path(f"{here}.cel.expression", _selector_fault(fields(selector, "cel").get("expression")))
    for here, toleration in items(request, "tolerations", path):
        value = toleration.get("value") or ""
        if toleration.get("operator") == "Exists":
            yield from with_path(f"{here}.value", "must be empty for operator Exists" if value else None)
        else:
            yield from with_path(f"{here}.value", formats.label_value(value))


def _selector_fault(expression: str | None) -> str | None:
    if not expression:
        return None  # `types` reports the missing expression
    if len(expression) > _LONGEST_SELECTOR:
        return f"is longer than {_LONGEST_SELECTOR} characters"
    return compilation_fault(expression)


def _references(parent: Fields, known: set[str], path: str) -> Iterator[str]:
    """Yields the faults in the names of requests that a constraint or a configuration lists."""
    seen: set[str] = set()
    for number, name in enumerate(texts(parent, "requests")):
        if name not in known:
            yield f"{path}.requests[{number}]: {name!r} is not the name of a request in the claim"
        if name in seen:
            yield f"{path}.requests[{number}]: {name!r} is given twice"
        seen.add(name)


def _constraint(constraint: Fields, path: str) -> Iterator[str]:
    attributes = [field for field in ("matchAttribute", "distinctAttribute") if constraint.get(field) is not None]
    if not attributes:
        yield f"{path}: expected matchAttribute or distinctAttribute"
    for field in attributes:
        domain, slash, name = constraint[field].partition("/")
        if not slash or formats.driver_name(domain) or not _IDENTIFIER.fullmatch(name):
            yield f"{path}.{field}: {constraint[field]!r} is not an attribute: expected one like example.com/model"

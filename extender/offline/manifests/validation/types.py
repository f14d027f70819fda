"""Checks the fields of each API type: the values that they may have, and the fields that are required.

Upstream has a function for each type (pkg/apis/{core,apps,batch}/validation); here each type has a line in a table.
Only fields that placement reads are listed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from extender.model import formats
from extender.offline.manifests import schema
from extender.offline.manifests.validation.tree import Fields, join, with_path

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


def faults(name: str, value: object, path: str) -> Iterator[str]:
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

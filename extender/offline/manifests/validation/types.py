"""Checks the fields of each API type: the values that they may have, and the fields that are required.

Upstream has a function for each type (pkg/apis/{core,apps,batch}/validation); here each type has a line in a table.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterator, Mapping

from extender.offline.manifests import schema
from extender.offline.manifests.validation import formats, security, sources
from extender.offline.manifests.validation.tree import Fields, join, texts, with_path

_INT32_MAX = 2**31 - 1
_COUNT, _POSITIVE, _SEVERAL = (0, _INT32_MAX), (1, _INT32_MAX), (0, 255)
_MODE = (0, 0o777)
_ROLLING = ("RollingUpdate", "OnDelete")
_PROFILES = ("Localhost", "RuntimeDefault", "Unconfined")
_POLICIES = ("Always", "IfNotPresent", "Never")
_GROUP_VERSIONS = ("V1beta1", "V1alpha3")
_RETENTION = ("Retain", "Delete")
_AMOUNT = re.compile(r"(limits|requests)\.(cpu|memory|ephemeral-storage|hugepages-.*)")
_HEADER_NAME = re.compile(r"[-A-Za-z0-9]+")
_SYSCTL = re.compile(r"([a-z0-9]([-_a-z0-9]*[a-z0-9])?[./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?")

# Type.field -> the values that the API server accepts; a field may be left out or empty.
_CHOICES: Mapping[str, tuple[str, ...]] = {
    "V1DeploymentStrategy.type": ("RollingUpdate", "Recreate"),
    "V1DaemonSetUpdateStrategy.type": _ROLLING,
    "V1StatefulSetUpdateStrategy.type": _ROLLING,
    "V1StatefulSetSpec.podManagementPolicy": ("OrderedReady", "Parallel"),
    "V1StatefulSetPersistentVolumeClaimRetentionPolicy.whenDeleted": _RETENTION,
    "V1StatefulSetPersistentVolumeClaimRetentionPolicy.whenScaled": _RETENTION,
    "V1JobSpec.completionMode": ("NonIndexed", "Indexed"),
    "V1JobSpec.podReplacementPolicy": ("Failed", "TerminatingOrFailed"),
    "V1PodFailurePolicyRule.action": ("Count", "FailIndex", "FailJob", "Ignore"),
    "V1PodFailurePolicyOnExitCodesRequirement.operator": ("In", "NotIn"),
    "V1CronJobSpec.concurrencyPolicy": ("Allow", "Forbid", "Replace"),
    "V1PodSpec.restartPolicy": ("Always", "OnFailure", "Never"),
    "V1PodSpec.dnsPolicy": ("ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"),
    "V1Container.imagePullPolicy": _POLICIES,
    "V1Container.terminationMessagePolicy": ("File", "FallbackToLogsOnError"),
    "V1ContainerResizePolicy.resourceName": ("cpu", "memory"),
    "V1ContainerResizePolicy.restartPolicy": ("NotRequired", "RestartContainer"),
    "V1SecurityContext.procMount": ("Default", "Unmasked"),
    "V1PodSecurityContext.fsGroupChangePolicy": ("OnRootMismatch", "Always"),
    "V1SeccompProfile.type": _PROFILES,
    "V1AppArmorProfile.type": _PROFILES,
    "V1VolumeMount.mountPropagation": ("Bidirectional", "HostToContainer", "None"),
    "V1VolumeMount.recursiveReadOnly": ("Disabled", "IfPossible", "Enabled"),
    "V1HostPathVolumeSource.type": (
        *("BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"),
    ),
    "V1ImageVolumeSource.pullPolicy": _POLICIES,
    "V1PodSecurityContext.supplementalGroupsPolicy": ("Merge", "Strict"),
    "V1PodSecurityContext.seLinuxChangePolicy": ("Recursive", "MountOption"),
    "V1HTTPGetAction.scheme": ("HTTP", "HTTPS"),
    "V1ContainerRestartRule.action": ("Restart", "RestartAllContainers"),
    "V1ContainerRestartRuleOnExitCodes.operator": ("In", "NotIn"),
    "V1AzureDiskVolumeSource.cachingMode": ("None", "ReadOnly", "ReadWrite"),
    "V1AzureDiskVolumeSource.kind": ("Dedicated", "Managed", "Shared"),
    **{
        f"{kind}.preemptionPolicy": ("Never", "PreemptLowerPriority")
        for kind in ("V1beta1PodGroupSpec", "V1alpha3CompositePodGroupSpec")
    },
    **{f"V1{kind}.allocationMode": ("ExactCount", "All") for kind in ("ExactDeviceRequest", "DeviceSubRequest")},
    "V1DeviceToleration.operator": ("Exists", "Equal"),
    "V1DeviceToleration.effect": ("NoSchedule", "NoExecute", "None"),
    "V1PodCertificateProjection.keyType": (*("RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519"),),
}
# Fields of `_CHOICES` that may be left out, but must not be empty if they are given.
_NEVER_EMPTY = frozenset(
    f"V1{field}"
    for field in (
        *("SecurityContext.procMount", "PodSecurityContext.fsGroupChangePolicy", "VolumeMount.mountPropagation"),
        *("PodSecurityContext.supplementalGroupsPolicy", "PodSecurityContext.seLinuxChangePolicy"),
        *("AzureDiskVolumeSource.cachingMode", "AzureDiskVolumeSource.kind"),
    )
)
_RANGES: Mapping[str, tuple[int, int]] = {
    **{
        f"V1{kind}Spec.{field}": _COUNT
        for kind in ("ReplicationController", "Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job", "CronJob")
        for field in (
            *("replicas", "minReadySeconds", "revisionHistoryLimit", "parallelism", "completions", "backoffLimit"),
            *("activeDeadlineSeconds", "ttlSecondsAfterFinished", "backoffLimitPerIndex", "maxFailedIndexes"),
            *("startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit"),
        )
    },
    "V1StatefulSetOrdinals.start": _COUNT,
    "V1RollingUpdateStatefulSetStrategy.partition": _COUNT,
    "V1PodSpec.activeDeadlineSeconds": _POSITIVE,
    **{
        f"V1Probe.{field}": _COUNT
        for field in ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold")
    },
    "V1Probe.terminationGracePeriodSeconds": _POSITIVE,
    **{
        f"V1{kind}.{field}": _COUNT
        for kind in ("SecurityContext", "PodSecurityContext")
        for field in ("runAsUser", "runAsGroup", "fsGroup")
    },
    "V1PodSecurityContext.supplementalGroups": _COUNT,
    "V1GRPCAction.port": (1, 65535),
    "V1ISCSIVolumeSource.lun": _SEVERAL,
    "V1FCVolumeSource.lun": _SEVERAL,
    "V1GCEPersistentDiskVolumeSource.partition": _SEVERAL,
    "V1AWSElasticBlockStoreVolumeSource.partition": _SEVERAL,
    **{f"V1{kind}VolumeSource.defaultMode": _MODE for kind in ("ConfigMap", "Secret", "DownwardAPI", "Projected")},
    "V1KeyToPath.mode": _MODE,
    "V1DownwardAPIVolumeFile.mode": _MODE,
    "V1ServiceAccountTokenProjection.expirationSeconds": (600, 2**32),
    "V1beta1GangSchedulingPolicy.minCount": _POSITIVE,
    "V1alpha3CompositeGangSchedulingPolicy.minGroupCount": _POSITIVE,
    **{f"{kind}.priority": (-(2**31), 10**9) for kind in ("V1beta1PodGroupSpec", "V1alpha3CompositePodGroupSpec")},
}
# Type -> the fields that the API server requires.
_NEEDED: Mapping[str, tuple[str, ...]] = {
    "V1PersistentVolumeClaimVolumeSource": ("claimName",),
    "V1ConfigMapVolumeSource": ("name",),
    "V1SecretVolumeSource": ("secretName",),
    "V1HostPathVolumeSource": ("path",),
    "V1CSIVolumeSource": ("driver",),
    "V1EphemeralVolumeSource": ("volumeClaimTemplate",),
    "V1NFSVolumeSource": ("server", "path"),
    "V1RBDVolumeSource": ("monitors", "image"),
    "V1ISCSIVolumeSource": ("targetPortal", "iqn"),
    "V1GCEPersistentDiskVolumeSource": ("pdName",),
    "V1AWSElasticBlockStoreVolumeSource": ("volumeID",),
    "V1AzureDiskVolumeSource": ("diskName", "diskURI"),
    "V1AzureFileVolumeSource": ("secretName", "shareName"),
    "V1CephFSVolumeSource": ("monitors",),
    "V1CinderVolumeSource": ("volumeID",),
    "V1FlexVolumeSource": ("driver",),
    "V1GitRepoVolumeSource": ("repository",),
    "V1GlusterfsVolumeSource": ("endpoints", "path"),
    "V1ImageVolumeSource": ("reference",),
    "V1PhotonPersistentDiskVolumeSource": ("pdID",),
    "V1PortworxVolumeSource": ("volumeID",),
    "V1QuobyteVolumeSource": ("registry", "volume"),
    "V1ScaleIOVolumeSource": ("gateway", "system", "volumeName"),
    "V1StorageOSVolumeSource": ("volumeName",),
    "V1VsphereVirtualDiskVolumeSource": ("volumePath",),
    "V1ServiceAccountTokenProjection": ("path",),
    "V1ClusterTrustBundleProjection": ("path",),
    "V1PodCertificateProjection": ("signerName", "keyType"),
    "V1ConfigMapProjection": ("name",),
    "V1SecretProjection": ("name",),
    "V1KeyToPath": ("key", "path"),
    "V1DownwardAPIVolumeFile": ("path",),
    "V1EnvVar": ("name",),
    "V1ConfigMapEnvSource": ("name",),
    "V1SecretEnvSource": ("name",),
    "V1ConfigMapKeySelector": ("name", "key"),
    "V1SecretKeySelector": ("name", "key"),
    "V1ObjectFieldSelector": ("fieldPath",),
    "V1ResourceFieldSelector": ("resource",),
    "V1FileKeySelector": ("key", "volumeName", "path"),
    "V1HTTPHeader": ("name",),
    "V1ContainerResizePolicy": ("resourceName", "restartPolicy"),
    "V1ContainerRestartRule": ("action", "exitCodes"),
    "V1ContainerRestartRuleOnExitCodes": ("operator",),
    "V1Sysctl": ("name",),
    "V1ExecAction": ("command",),
    "V1SeccompProfile": ("type",),
    "V1AppArmorProfile": ("type",),
    "V1PodDNSConfigOption": ("name",),
    "V1PodReadinessGate": ("conditionType",),
    "V1HostAlias": ("ip",),
    "V1PodFailurePolicyRule": ("action",),
    "V1VolumeDevice": ("name", "devicePath"),
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
    "V1DeviceClaimConfiguration": ("opaque",),
    "V1OpaqueDeviceConfiguration": ("driver",),
}
# Type -> the fields of which exactly one must be set.
_ONE_OF: Mapping[str, tuple[str, ...]] = {
    "V1EnvVarSource": ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef"),
    "V1EnvFromSource": ("configMapRef", "secretRef"),
    "V1Probe": ("exec", "httpGet", "tcpSocket", "grpc"),
    "V1LifecycleHandler": ("exec", "httpGet", "tcpSocket", "sleep"),
    "V1DownwardAPIVolumeFile": ("fieldRef", "resourceFieldRef"),
    "V1PodFailurePolicyRule": ("onExitCodes", "onPodConditions"),
    "V1FCVolumeSource": ("targetWWNs", "wwids"),
    "V1FlockerVolumeSource": ("datasetName", "datasetUUID"),
    "V1beta1PodGroupSchedulingPolicy": ("basic", "gang"),
    "V1alpha3CompositePodGroupSchedulingPolicy": ("basic", "gang"),
    "V1beta1DisruptionMode": ("single", "all"),
    "V1alpha3CompositeDisruptionMode": ("single", "all"),
    "V1beta1PodGroupResourceClaim": ("resourceClaimName", "resourceClaimTemplateName"),
    "V1DeviceRequest": ("exactly", "firstAvailable"),
}
_ENVIRONMENT_NAME = re.compile(r"[ -<>-~]+")


def environment_name(text: str) -> str | None:
    return (
        None if _ENVIRONMENT_NAME.fullmatch(text) else f"{text!r} is not a name: expected printable ASCII without '='"
    )


def amount(text: str) -> str | None:
    return None if _AMOUNT.fullmatch(text) else f"{text!r} is not a resource field of a container, like limits.cpu"


def sysctl(text: str) -> str | None:
    return None if _SYSCTL.fullmatch(text) else f"{text!r} is not the name of a sysctl"


def header_name(text: str) -> str | None:
    return None if _HEADER_NAME.fullmatch(text) else f"{text!r} is not a header: expected letters, digits and -"


def ip_address(text: str) -> str | None:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return f"{text!r} is not an IP address"
    return None


# Type.field -> the function that checks the form of a text, or of each text in a list.
_FORMATS: Mapping[str, Callable[[str], str | None]] = {
    "V1PodSpec.nodeName": formats.dns_subdomain,
    "V1PodSpec.priorityClassName": formats.dns_subdomain,
    "V1PodSpec.serviceAccountName": formats.dns_subdomain,
    "V1PodSpec.hostname": formats.dns_label,
    "V1PodSpec.hostnameOverride": formats.dns_subdomain,
    "V1PodSpec.subdomain": formats.dns_label,
    "V1PodReadinessGate.conditionType": formats.qualified_name,
    "V1PodDNSConfig.nameservers": ip_address,
    "V1HostAlias.ip": ip_address,
    "V1HostAlias.hostnames": formats.dns_subdomain,
    "V1EnvVar.name": environment_name,
    "V1ResourceFieldSelector.resource": amount,
    "V1Sysctl.name": sysctl,
    "V1PersistentVolumeClaimSpec.storageClassName": formats.dns_subdomain,
    **{
        f"{kind}.{field}": formats.dns_subdomain
        for kind in ("V1beta1PodGroupSpec", "V1alpha3CompositePodGroupSpec")
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
    "V1OpaqueDeviceConfiguration.driver": formats.driver_name,
    "V1DeviceToleration.key": formats.qualified_name,
    "V1PersistentVolumeClaimSpec.volumeAttributesClassName": formats.dns_subdomain,
    "V1HostPathVolumeSource.path": formats.upward_path,
    "V1CSIVolumeSource.driver": formats.driver_name,
    "V1GitRepoVolumeSource.directory": formats.relative_path,
    "V1StorageOSVolumeSource.volumeName": formats.dns_label,
    "V1StorageOSVolumeSource.volumeNamespace": formats.dns_label,
    "V1ConfigMapKeySelector.key": formats.config_key,
    "V1ConfigMapKeySelector.name": formats.dns_subdomain,
    "V1SecretKeySelector.key": formats.config_key,
    "V1SecretKeySelector.name": formats.dns_subdomain,
    "V1FileKeySelector.key": environment_name,
    "V1FileKeySelector.volumeName": formats.dns_label,
    "V1FileKeySelector.path": formats.upward_path,
    "V1EnvFromSource.prefix": environment_name,
    "V1HTTPHeader.name": header_name,
    "V1VolumeDevice.devicePath": formats.upward_path,
    **{
        f"V1{kind}.{field}": formats.file_path
        for kind, fields in (
            ("KeyToPath", ("path",)),
            ("DownwardAPIVolumeFile", ("path",)),
            ("ServiceAccountTokenProjection", ("path",)),
            ("ClusterTrustBundleProjection", ("path",)),
            ("PodCertificateProjection", ("credentialBundlePath", "keyPath", "certificateChainPath")),
        )
        for field in fields
    },
    "V1VolumeMount.subPath": formats.relative_path,
    "V1VolumeMount.subPathExpr": formats.relative_path,
}


def _resource_field(reference: Fields, path: str) -> Iterator[str]:
    yield from with_path(f"{path}.divisor", formats.divisor(reference.get("resource") or "", reference.get("divisor")))


def _parameters(configuration: Fields, path: str) -> Iterator[str]:
    if not isinstance(configuration.get("parameters"), Mapping):
        yield f"{path}.parameters: expected a mapping"


# Type -> the function that checks whether the fields of an object agree.
_CHECKS: Mapping[str, Callable[[Fields, str], Iterator[str]]] = {
    "V1SeccompProfile": security.seccomp_profile,
    "V1AppArmorProfile": security.app_armor_profile,
    "V1WindowsSecurityContextOptions": security.windows_options,
    "V1ResourceFieldSelector": _resource_field,
    "V1OpaqueDeviceConfiguration": _parameters,
    **sources.CHECKS,
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
    if name in _CHECKS:
        yield from _CHECKS[name](value, path)
    for field in value:
        yield from _of_field(f"{name}.{field}", field, value, join(path, field))


def _of_field(key: str, field: str, parent: Fields, path: str) -> Iterator[str]:
    value = parent[field]
    if (value or key in _NEVER_EMPTY) and value not in _CHOICES.get(key, (value,)):
        yield f"{path}: {value!r} is not one of {', '.join(_CHOICES[key])}"
    if key in _RANGES:
        lowest, highest = _RANGES[key]
        for number in value if isinstance(value, list) else [value]:
            if not lowest <= number <= highest:
                yield f"{path}: expected a number from {lowest} to {highest}, got {number}"
    if value and key in _FORMATS:
        for text in texts(parent, field) if isinstance(value, list) else [value]:
            yield from with_path(path, _FORMATS[key](text))

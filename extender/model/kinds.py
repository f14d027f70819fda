"""Lists the kinds of objects that the extender uses, with their paths at the API server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

import msgspec

from extender.model import controllers, devices, node, pod, pod_groups, storage, workloads
from extender.model.meta import CustomObject, Object, custom_type

T = TypeVar("T", bound=CustomObject)


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of object: its type, its API group and version ("v1", "apps/v1"), and the plural name in its URL.

    Attributes:
        whole: True if each object keeps the JSON that it was read from, see whole_objects.WHOLE.
        optional: True if an API server serves the kind only when it is configured to. A missing kind then needs no
            warning.
        namespaced: False if the objects belong to the whole cluster.
        older: the API version of servers that do not serve `api_version` yet; "" if all servers do.
    """

    type: type[Object]
    api_version: str
    plural: str
    whole: bool = False
    optional: bool = False
    namespaced: bool = True
    older: str = ""

    @property
    def versions(self) -> list[Kind]:
        """The kind in each of its API versions, the newest first."""
        return [self, *([replace(self, api_version=self.older, older="")] if self.older else [])]

    @property
    def name(self) -> str:
        return self.type.__name__

    @property
    def path(self) -> str:
        """The URL path that lists the objects of all namespaces."""
        root = "/api" if "/" not in self.api_version else "/apis"
        return f"{root}/{self.api_version}/{self.plural}"

    def path_in(self, namespace: str) -> str:
        return f"{self.path.removesuffix(self.plural)}namespaces/{namespace}/{self.plural}"


_ALL = (
    Kind(node.Node, "v1", "nodes", namespaced=False),
    Kind(pod.Pod, "v1", "pods"),
    Kind(workloads.Namespace, "v1", "namespaces", namespaced=False),
    Kind(workloads.Service, "v1", "services"),
    Kind(workloads.ReplicationController, "v1", "replicationcontrollers"),
    Kind(workloads.ReplicaSet, "apps/v1", "replicasets"),
    Kind(workloads.StatefulSet, "apps/v1", "statefulsets"),
    Kind(workloads.PodDisruptionBudget, "policy/v1", "poddisruptionbudgets"),
    Kind(workloads.PriorityClass, "scheduling.k8s.io/v1", "priorityclasses", namespaced=False),
    Kind(pod_groups.PodGroup, "scheduling.k8s.io/v1beta1", "podgroups", optional=True),
    Kind(
        pod_groups.CompositePodGroup,
        "scheduling.k8s.io/v1beta1",
        "compositepodgroups",
        optional=True,
        older="scheduling.k8s.io/v1alpha3",
    ),
    Kind(storage.PersistentVolume, "v1", "persistentvolumes", namespaced=False),
    Kind(storage.PersistentVolumeClaim, "v1", "persistentvolumeclaims"),
    Kind(storage.StorageClass, "storage.k8s.io/v1", "storageclasses", namespaced=False),
    Kind(storage.CSINode, "storage.k8s.io/v1", "csinodes", namespaced=False),
    Kind(storage.CSIDriver, "storage.k8s.io/v1", "csidrivers", namespaced=False),
    Kind(storage.CSIStorageCapacity, "storage.k8s.io/v1", "csistoragecapacities"),
    Kind(storage.VolumeAttachment, "storage.k8s.io/v1", "volumeattachments", namespaced=False),
    Kind(devices.DeviceClass, "resource.k8s.io/v1", "deviceclasses", namespaced=False),
    Kind(devices.DeviceTaintRule, "resource.k8s.io/v1", "devicetaintrules", namespaced=False),
    Kind(devices.ResourceClaim, "resource.k8s.io/v1", "resourceclaims"),
    Kind(devices.ResourceClaimTemplate, "resource.k8s.io/v1", "resourceclaimtemplates"),
    Kind(devices.ResourceSlice, "resource.k8s.io/v1", "resourceslices", namespaced=False),
)


def _by_name(*kinds: Kind) -> Mapping[str, Kind]:
    return {kind.name: kind for kind in kinds}


KINDS = _by_name(*_ALL)

COSCHEDULING_POD_GROUPS = Kind(pod_groups.PodGroup, "scheduling.x-k8s.io/v1alpha1", "podgroups")
"""The PodGroups of the coscheduling plugin. A webhook may read these instead of Kubernetes' PodGroups."""

# Only offline commands about future pods read these kinds. They are not watched.
ADMISSION_KINDS = _by_name(
    Kind(workloads.LimitRange, "v1", "limitranges"),
    Kind(workloads.ResourceQuota, "v1", "resourcequotas"),
    Kind(workloads.RuntimeClass, "node.k8s.io/v1", "runtimeclasses", namespaced=False),
)

OFFLINE_KINDS: Mapping[str, Kind] = {
    **KINDS,
    **ADMISSION_KINDS,
    **_by_name(
        Kind(controllers.Pod, "v1", "pods"),
        Kind(controllers.ReplicationController, "v1", "replicationcontrollers"),
        Kind(controllers.Deployment, "apps/v1", "deployments"),
        Kind(controllers.ReplicaSet, "apps/v1", "replicasets"),
        Kind(controllers.StatefulSet, "apps/v1", "statefulsets"),
        Kind(controllers.DaemonSet, "apps/v1", "daemonsets"),
        Kind(controllers.Job, "batch/v1", "jobs"),
    ),
}
"""The kinds that offline commands read: with pod templates, and with the times of pods' conditions."""


def custom_kind(api_version: str, name: str, plural: str) -> Kind:
    """Returns a kind whose objects are CustomObjects, which only users' rules read."""
    kind = Kind(custom_type(name), api_version, plural)
    msgspec.json.Decoder(kind.type)  # prepares the type here, because msgspec crashes if two threads use a new type
    return kind


def read_custom(kind: type[T], data: bytes | msgspec.Raw) -> T:
    """Decodes a CustomObject together with its whole content. Raises msgspec's errors if the JSON is faulty."""
    obj = msgspec.json.decode(data, type=kind)
    msgspec.structs.force_setattr(obj, "content", msgspec.json.decode(data))
    return obj


# These decoders are built at import, because msgspec crashes if two threads use a type without a decoder.
# Some kinds have two types: one for watches, and one for offline commands.
DECODERS: Mapping[type[Object], msgspec.json.Decoder[Object]] = {
    kind.type: msgspec.json.Decoder(kind.type) for kind in (*KINDS.values(), *OFFLINE_KINDS.values())
}

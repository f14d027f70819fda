"""Lists the kinds of objects that the extender uses, with their paths at the API server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

import msgspec

from extender.model import controllers
from extender.model.devices import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceClaimTemplate, ResourceSlice
from extender.model.meta import CustomObject, Object, custom_type
from extender.model.node import Node
from extender.model.pod import Pod
from extender.model.pod_groups import CompositePodGroup, PodGroup
from extender.model.storage import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from extender.model.workloads import (
    LimitRange,
    Namespace,
    PodDisruptionBudget,
    PriorityClass,
    ReplicaSet,
    ReplicationController,
    ResourceQuota,
    RuntimeClass,
    Service,
    StatefulSet,
)

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
    Kind(Node, "v1", "nodes", namespaced=False),
    Kind(Pod, "v1", "pods"),
    Kind(Namespace, "v1", "namespaces", namespaced=False),
    Kind(Service, "v1", "services"),
    Kind(ReplicationController, "v1", "replicationcontrollers"),
    Kind(ReplicaSet, "apps/v1", "replicasets"),
    Kind(StatefulSet, "apps/v1", "statefulsets"),
    Kind(PodDisruptionBudget, "policy/v1", "poddisruptionbudgets"),
    Kind(PriorityClass, "scheduling.k8s.io/v1", "priorityclasses", namespaced=False),
    Kind(PodGroup, "scheduling.k8s.io/v1beta1", "podgroups", optional=True),
    Kind(
        CompositePodGroup,
        "scheduling.k8s.io/v1beta1",
        "compositepodgroups",
        optional=True,
        older="scheduling.k8s.io/v1alpha3",
    ),
    Kind(PersistentVolume, "v1", "persistentvolumes", namespaced=False),
    Kind(PersistentVolumeClaim, "v1", "persistentvolumeclaims"),
    Kind(StorageClass, "storage.k8s.io/v1", "storageclasses", namespaced=False),
    Kind(CSINode, "storage.k8s.io/v1", "csinodes", namespaced=False),
    Kind(CSIDriver, "storage.k8s.io/v1", "csidrivers", namespaced=False),
    Kind(CSIStorageCapacity, "storage.k8s.io/v1", "csistoragecapacities"),
    Kind(VolumeAttachment, "storage.k8s.io/v1", "volumeattachments", namespaced=False),
    Kind(DeviceClass, "resource.k8s.io/v1", "deviceclasses", namespaced=False),
    Kind(DeviceTaintRule, "resource.k8s.io/v1", "devicetaintrules", namespaced=False),
    Kind(ResourceClaim, "resource.k8s.io/v1", "resourceclaims"),
    Kind(ResourceClaimTemplate, "resource.k8s.io/v1", "resourceclaimtemplates"),
    Kind(ResourceSlice, "resource.k8s.io/v1", "resourceslices", namespaced=False),
)

KINDS: Mapping[str, Kind] = {kind.name: kind for kind in _ALL}

COSCHEDULING_POD_GROUPS = Kind(PodGroup, "scheduling.x-k8s.io/v1alpha1", "podgroups")
"""The PodGroups of the coscheduling plugin. A webhook may read these instead of Kubernetes' PodGroups."""

# Only offline commands about future pods read these kinds. They are not watched.
ADMISSION_KINDS: Mapping[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind(LimitRange, "v1", "limitranges"),
        Kind(ResourceQuota, "v1", "resourcequotas"),
        Kind(RuntimeClass, "node.k8s.io/v1", "runtimeclasses", namespaced=False),
    )
}

OFFLINE_KINDS: Mapping[str, Kind] = {
    **KINDS,
    **ADMISSION_KINDS,
    **{
        kind.name: kind
        for kind in (
            Kind(controllers.Pod, "v1", "pods"),
            Kind(controllers.ReplicationController, "v1", "replicationcontrollers"),
            Kind(controllers.Deployment, "apps/v1", "deployments"),
            Kind(controllers.ReplicaSet, "apps/v1", "replicasets"),
            Kind(controllers.StatefulSet, "apps/v1", "statefulsets"),
            Kind(controllers.DaemonSet, "apps/v1", "daemonsets"),
            Kind(controllers.Job, "batch/v1", "jobs"),
        )
    },
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

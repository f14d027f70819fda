"""Pod groups and claims that were written by hand, and what becomes of them: ours, and that of a real API server.

`companions.yaml` has one document a case: `title`, `kind`, and `spec` or other fields of the object.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import yaml

from extender.errors import MalformedCluster
from extender.model.meta import Object as Model
from extender.offline.claims import create_companions
from extender.offline.manifests.admission import companion
from extender.offline.manifests.templates import Workload
from extender.offline.state import ClusterState
from extender.snapshots.objects import to_object, to_objects
from tests.builders import Object, make_namespace
from tests.offline.admission import world
from tests.offline.admission.comparing import Outcome, created, plain
from tests.stock.api_client import RESOURCES, ApiClient, ApiError
from tests.stock.control_plane import ControlPlane
from tests.stock.waiting import wait_until

FILE = Path(__file__).parent / "companions.yaml"
ADMINS, SMALL = "admins", "small"
_GATES = (
    *("GenericWorkload", "TopologyAwareWorkloadScheduling", "CompositePodGroup", "PodGroupPreemptionPolicy"),
    "DRAWorkloadResourceClaims",
)


class GroupPlane(ControlPlane):
    """A control plane that serves pod groups with all their fields."""

    apiserver_flags = (
        *ControlPlane.apiserver_flags,
        f"--feature-gates={','.join(f'{gate}=true' for gate in _GATES)}",
        "--runtime-config=scheduling.k8s.io/v1beta1=true,scheduling.k8s.io/v1alpha3=true",
    )


def objects() -> list[Object]:
    default = {"storageclass.kubernetes.io/is-default-class": "true"}
    storage_class = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "standard", "annotations": default},
        "provisioner": "example.com/disk",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    limits = [{"type": "PersistentVolumeClaim", "min": {"storage": "1Gi"}, "max": {"storage": "10Gi"}}]
    limit_range = {"metadata": {"name": "claims", "namespace": SMALL}, "spec": {"limits": limits}}
    admins = make_namespace(ADMINS)
    admins["metadata"].setdefault("labels", {})["resource.kubernetes.io/admin-access"] = "true"
    return [
        *world.objects(),
        make_namespace(SMALL),
        admins,
        storage_class,
        {"apiVersion": "v1", "kind": "LimitRange", **limit_range},
    ]


def cases() -> Iterator[tuple[str, Object]]:
    """Yields the title and the object of each case."""
    for case in yaml.safe_load_all(FILE.read_text()):
        kind = case["kind"]
        obj = {"apiVersion": RESOURCES[kind].group_version, **case}
        del obj["title"]
        obj["metadata"] = {"name": "x", "namespace": world.PLAIN, **case.get("metadata", {})}
        yield case["title"], obj


def cluster() -> ClusterState:
    return ClusterState(to_objects(objects()))


def ours(obj: Object, state: ClusterState) -> Outcome:
    try:
        made = companion(obj, obj["kind"])
        assert made is not None
        after = state.copy()
        create_companions(after, Workload("", {}, companions=[made]))
        stored = after.objects.get(type(made), made.key)
        assert stored is not None
        return Outcome(None, comparable(stored))
    except MalformedCluster as error:
        return Outcome(str(error))


def theirs(obj: Object, client: ApiClient) -> Outcome:
    try:
        answer = to_object(created(obj, client, obj["apiVersion"]), "created")
    except ApiError as error:
        return Outcome(str(error.body.get("message", error)))
    assert answer is not None
    return Outcome(None, comparable(answer))


def comparable(obj: Model) -> Object:
    """Returns what scheduling reads of a group or a claim; equal where the difference means nothing."""
    spec = msgspec.to_builtins(obj).get("spec", {})
    for field in ("schedulingPolicy", "disruptionMode"):  # whose empty objects have a meaning
        if isinstance(spec.get(field), dict):
            spec[field] = {name: inner or "set" for name, inner in spec[field].items()}
    if spec.get("disruptionMode") == {"single": "set"}:
        del spec["disruptionMode"]
    if spec.get("volumeMode") == "Filesystem":
        del spec["volumeMode"]
    devices = spec.get("spec", spec).get("devices") or {}
    for request in devices.get("requests") or ():
        for part in (request.get("exactly") or {}, *(request.get("firstAvailable") or ())):
            _without_defaults(part)
    return {"namespace": obj.namespace, "labels": dict(obj.labels), "spec": plain(spec)}


def _without_defaults(part: dict[str, Any]) -> None:
    if part.get("allocationMode") == "ExactCount":
        del part["allocationMode"]
    if part.get("count") == 1:
        del part["count"]
    for toleration in part.get("tolerations") or ():
        if toleration.get("operator") == "Equal":
            del toleration["operator"]


def prepare(client: ApiClient) -> None:
    """Creates the cluster, and waits until the API server's admission plugins have seen all of it."""
    client.create(*objects())
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}
    small = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "x", "namespace": SMALL}}
    policy = {"schedulingPolicy": {"basic": {}}, "priorityClassName": "high"}
    place = {"name": "x", "namespace": world.PLAIN}
    group = {"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "metadata": place, "spec": policy}
    large = {**small, "metadata": place, "spec": spec}

    def are_seen() -> bool:
        refused, admitted, claim = (theirs(each, client) for each in ({**small, "spec": spec}, group, large))
        has_class = bool(claim.pod and claim.pod["spec"].get("storageClassName"))
        return refused.refusal is not None and admitted.refusal is None and has_class

    assert wait_until(are_seen)

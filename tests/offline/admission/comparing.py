"""What becomes of an object: refused, or a pod. Ours, and that of a real API server (create with dryRun=All)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import msgspec

from extender.errors import MalformedCluster
from extender.model.pod import Pod, Toleration
from extender.model.quantity import nano
from extender.offline.manifests.templates import required_workload
from extender.offline.state import ClusterState
from extender.snapshots.objects import to_objects, to_pod
from tests.builders import Object
from tests.offline.admission import world
from tests.stock.api_client import RESOURCES, ApiClient, ApiError
from tests.stock.waiting import wait_until

_CONNECTIONS = 8
_DRY_RUN = "dryRun=All&fieldValidation=Strict"
_QUANTITIES = ("requests", "limits", "overhead")
_SELECTORS = ("labelSelector", "namespaceSelector")  # an empty one selects all pods, and none selects none


@dataclass(frozen=True)
class Outcome:
    """An object's fate.

    Attributes:
        refusal: why it is refused; None if it is not.
        pod: the fields of its pod that scheduling reads, in a form that can be compared; None if it is refused.
    """

    refusal: str | None
    pod: Object | None = None


Judge = Callable[[Object, ApiClient], Outcome]


def cluster() -> ClusterState:
    return ClusterState(to_objects(world.objects()))


def ours(obj: Object, state: ClusterState) -> Outcome:
    try:
        workload = required_workload(obj)
        return Outcome(None, comparable(state.admit(workload.pod(workload.manifest["metadata"]["name"])).pod))
    except MalformedCluster as error:
        return Outcome(str(error))


def theirs(obj: Object, client: ApiClient) -> Outcome:
    """Asks the API server for the object, then for its pod."""
    try:
        answer = created(obj, client)
        if obj["kind"] == "Pod":
            return Outcome(None, comparable(to_pod(answer)))
        created(_pod_of(obj), client)  # whatever ours thinks of it
        manifest = dict(required_workload(obj).manifest)
        manifest["metadata"] = {**manifest["metadata"], "ownerReferences": []}  # its owner exists nowhere
        return Outcome(None, comparable(to_pod(created(manifest, client))))
    except ApiError as error:
        return Outcome(str(error.body.get("message", error)))
    except MalformedCluster:  # ours refuses what theirs does not
        return Outcome(None)


def created(obj: Object, client: ApiClient, version: str = "") -> Object:
    """Returns the object as the API server would store it. Raises ApiError if it refuses the object."""
    resource = RESOURCES[obj["kind"]]
    resource = resource._replace(group_version=version or resource.group_version)
    path = resource.path(obj["metadata"]["namespace"])
    answer: Object = client.request("POST", f"{path}?{_DRY_RUN}", obj)
    return answer


def _pod_of(obj: Object) -> Object:
    """Returns the pod of a workload, made without our code; names and owners are not those of the controller."""
    spec = obj["spec"].get("jobTemplate", obj)["spec"]
    template = spec["template"]
    names = [claim["metadata"]["name"] for claim in spec.get("volumeClaimTemplates", ())]
    claims = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in names]
    volumes = [*claims, *(each for each in template["spec"].get("volumes", ()) if each["name"] not in names)]
    metadata = {**template.get("metadata", {}), "name": "of-workload", "namespace": obj["metadata"]["namespace"]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {**template["spec"], "volumes": volumes}}


def comparable(pod: Pod) -> Object:
    """Returns what scheduling reads of a pod; equal where the difference means nothing."""
    pod = pod.with_spec(tolerations=list(_essential(pod.spec.tolerations or ())))
    spec: Object = plain(msgspec.to_builtins(pod.spec))
    for constraint in spec.get("topologySpreadConstraints", ()):
        constraint.setdefault("whenUnsatisfiable", "DoNotSchedule")
        if constraint.get("maxSkew") == 1:  # the default, which may be left out
            del constraint["maxSkew"]
    for volume in spec.get("volumes", ()):
        volume.get("ephemeral", {}).get("volumeClaimTemplate", {}).get("spec", {}).setdefault(
            "volumeMode", "Filesystem"
        )
        for field in ("cachingMode", "fsType", "kind", "readOnly"):  # no rule reads them
            volume.get("azureDisk", {}).pop(field, None)
    spec.pop("terminationGracePeriodSeconds", None)  # no rule reads it
    for container in (*spec.get("containers", ()), *spec.get("initContainers", ())):
        for port in container.get("ports", ()):
            port.setdefault("protocol", "TCP")
    return {"namespace": pod.namespace, "labels": dict(pod.labels), "spec": spec}


def _essential(tolerations: Iterable[Toleration]) -> Iterable[Toleration]:
    """Yields the tolerations that are not part of another one; the API server drops some of the others."""
    plain = [msgspec.structs.replace(each, operator=each.operator or "Equal") for each in tolerations]
    unique = list(dict.fromkeys(plain))
    return sorted(
        (each for each in unique if not any(_covers(other, each) for other in unique if other != each)), key=repr
    )


def _covers(one: Toleration, other: Toleration) -> bool:
    has_key = one.key == other.key or (not one.key and one.operator == "Exists")
    has_effect = one.effect in ("", other.effect)
    return has_key and has_effect and (one.operator == "Exists" or one.value == other.value)


def plain(value: Any, key: str = "") -> Any:
    """Returns the value without what is empty, with quantities as numbers."""
    if isinstance(value, dict):
        if key in _QUANTITIES:
            return {name: nano(quantity) for name, quantity in value.items()}
        inner = {name: plain(each, name) for name, each in value.items()}
        return {
            name: each
            for name, each in inner.items()
            if each not in (None, "", False, [], {}) or (name in _SELECTORS and each is not None)
        }
    return [plain(each) for each in value] if isinstance(value, list) else value


def prepare(client: ApiClient) -> None:
    """Creates the cluster, and waits until the API server's admission plugins have seen all of it."""
    client.create(*world.objects())
    spec = {
        "containers": [{"name": "c", "image": "i"}],
        "priorityClassName": world.PRIORITY_CLASSES[-1],
        "runtimeClassName": world.RUNTIME_CLASSES[-1],
    }
    metadata = {"name": "p", "namespace": world.TWO}
    limited = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}

    def is_seen() -> bool:
        try:
            answer = created(limited, client)
        except ApiError:
            return False
        limits: Object = answer["spec"]["containers"][0]["resources"].get("limits", {})
        return {"cpu", "ephemeral-storage"} <= limits.keys()

    assert wait_until(is_seen)


def all_of_theirs(objects: Sequence[Object], client: ApiClient, judge: Judge = theirs) -> list[Outcome]:
    with ThreadPoolExecutor(_CONNECTIONS) as threads:
        return list(threads.map(lambda obj: judge(obj, client), objects))


def difference(mine: Outcome, other: Outcome) -> str | None:
    """Returns how the two outcomes differ; None if both refuse or both make the same pod."""
    if (mine.refusal is None) != (other.refusal is None):
        return f"ours: {mine.refusal or 'admitted'}; API server: {other.refusal or 'admitted'}"
    if mine.pod == other.pod or mine.pod is None or other.pod is None:
        return None
    return f"ours: {mine.pod}; API server: {other.pod}"

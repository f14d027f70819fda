"""Reads a live cluster once: all objects that scheduling needs, and notes on what could not be read.

This is the only module of `offline` that calls an API server. It is used by the commands that answer questions about a
cluster, and by `Cluster.from_kubeconfig`.
"""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime
from urllib.parse import quote, urlencode

import msgspec

from extender.cluster.credentials import credentials_of, merged
from extender.cluster.kube_client import (
    FIRST_CALL_SECONDS,
    FORBIDDEN,
    NEEDED,
    ApiCall,
    KubeClient,
    connection_advice,
    reported_version,
)
from extender.cluster.watch.api_objects import decoders, list_all
from extender.config.cluster_access import ClusterAccess
from extender.errors import ClusterError, ConfigurationError
from extender.framework.profile import Profiles
from extender.model.kinds import KINDS, OFFLINE_KINDS, Kind
from extender.model.meta import Object
from extender.model.pod import Pod
from extender.offline.remarks import WrittenEvent
from extender.offline.state import ClusterState

_SUBJECTS = {
    "volumes": ("PersistentVolume", "PersistentVolumeClaim", "StorageClass"),
    "limits of attached volumes": ("CSINode", "CSIDriver", "VolumeAttachment"),
    "storage capacity": ("CSIStorageCapacity",),
    "devices": ("DeviceClass", "DeviceTaintRule", "ResourceClaim", "ResourceClaimTemplate", "ResourceSlice"),
    "pod affinity by namespace labels": ("Namespace",),
    "spreading by services": ("Service",),
    "spreading of replicas": ("ReplicationController", "ReplicaSet", "StatefulSet"),
    "templates of workloads": ("Deployment", "DaemonSet", "Job"),
    "PodDisruptionBudgets in preemption": ("PodDisruptionBudget",),
    "priorities of new pods": ("PriorityClass",),
    "pod groups": ("PodGroup", "CompositePodGroup"),
    "default requests of new pods": ("LimitRange",),
    "whether quotas limit new pods": ("ResourceQuota",),
    "overhead of new pods": ("RuntimeClass",),
}
"""The part that an answer leaves out if one of these kinds cannot be read."""
_LEFT_OUT = {kind: subject for subject, kinds in _SUBJECTS.items() for kind in kinds}
_USER = re.compile(r'User ("[^"]*") cannot list')
_CONCURRENT_LISTS = 8
_MOST_NAMES = 500

Listed = list[Object] | ClusterError


@dataclass(slots=True)
class _Unread:
    """Records what could not be read.

    Attributes:
        nodes: why the nodes could not be read; None if the nodes were read.
        pods: why some pods could not be read; None if all pods were read.
        notes: messages for the user.
    """

    nodes: str | None = None
    pods: str | None = None
    notes: list[str] = field(default_factory=list)


def read_state(
    access: ClusterAccess, namespace: str = "default", profiles: Profiles | None = None, *, needs_nodes: bool = True
) -> tuple[ClusterState, list[str]]:
    """Lists the objects of every kind that answers need; returns them, and notes on kinds that this user may not list.

    Args:
        namespace: the namespace whose pods to list if listing all pods is forbidden.
        profiles: the rules to decide by; the kinds that users' rules watch are listed, too.

    Raises:
        ConfigurationError: the kubeconfig cannot be used.
        ClusterError: the API server does not answer within FIRST_CALL_SECONDS, or fails to list nodes or pods; or this
            user may list neither nodes nor pods, or not the nodes although `needs_nodes` is True.
    """
    credentials = credentials_of(access)
    with connection_advice():
        credentials.load().endpoint.dial(FIRST_CALL_SECONDS).close()
    watch = profiles.watch if profiles else ()
    kinds = list({**OFFLINE_KINDS, **{kind.name: kind for kind in watch}}.values())
    with closing(KubeClient(credentials)) as client:
        version = _version_if_served(client)
        with ThreadPoolExecutor(_CONCURRENT_LISTS) as pool:
            lists = list(pool.map(lambda kind: _list(client, kind), kinds))
        results = dict(zip((kind.name for kind in kinds), lists, strict=True))
        unread = _nodes_and_pods(client, results, namespace)
    if unread.nodes and needs_nodes:
        raise ClusterError(f"{unread.nodes}: without them only `extender explain POD` has an answer")
    objects: list[Object] = []
    by_reason: dict[str, list[Kind]] = {}
    for kind in kinds:
        result = results[kind.name]
        if not isinstance(result, ClusterError):
            objects += result
        elif kind.name not in NEEDED:
            by_reason.setdefault(_reason(result), []).append(kind)
    for reason, unread_kinds in by_reason.items():
        plurals = ", ".join(kind.plural for kind in unread_kinds)
        subjects = ", ".join(dict.fromkeys(_LEFT_OUT.get(kind.name, "its rules") for kind in unread_kinds))
        unread.notes.append(f"{plurals} could not be read ({reason}), so the answer leaves out {subjects}")
    state = ClusterState(objects, profiles, kubernetes_version=version)
    state.nodes_unread = unread.nodes is not None
    state.pods_unread = unread.pods
    return state, unread.notes


class _EventSource(msgspec.Struct):
    component: str = ""


class _Event(msgspec.Struct, rename="camel"):
    type: str | None = None
    reason: str | None = None
    message: str | None = None
    event_time: datetime | None = None
    last_timestamp: datetime | None = None
    source: _EventSource | None = None
    reporting_component: str | None = None

    @property
    def shown(self) -> WrittenEvent:
        author = self.reporting_component or (self.source.component if self.source else "")
        at = self.last_timestamp or self.event_time
        return WrittenEvent(at, self.type or "", self.reason or "", author, self.message or "")


class _Events(msgspec.Struct):
    items: list[_Event] | None = None


_EVENTS = msgspec.json.Decoder(_Events)


def events_of(access: ClusterAccess, pod: Pod) -> list[WrittenEvent]:
    """Returns the events about the pod, the newest first; none if this user may not list them."""
    selector = urlencode({"fieldSelector": f"involvedObject.kind=Pod,involvedObject.name={pod.name}"})
    path = f"/api/v1/namespaces/{quote(pod.namespace, '')}/events?{selector}"
    with closing(KubeClient(credentials_of(access))) as client:
        try:
            found = client.call_for(_EVENTS.decode, ApiCall("GET", path)).items or ()
        except ClusterError:
            return []
    events = [each.shown for each in found]
    return sorted(events, key=lambda event: event.at.timestamp() if event.at else 0.0, reverse=True)


def _version_if_served(client: KubeClient) -> str:
    """Returns `reported_version`, or "" if the API server refuses to say it. Raises ClusterError without an answer."""
    try:
        return reported_version(client)
    except ClusterError as error:
        if getattr(error, "status", 0):
            return ""
        raise


def _reason(error: ClusterError) -> str:
    """Returns why a kind cannot be read, without the name of the kind, so that several kinds can share a note."""
    user = _USER.search(str(error))
    return f"{FORBIDDEN}: {user[1]} may not list them" if user else str(error)


def _nodes_and_pods(client: KubeClient, results: dict[str, Listed], namespace: str) -> _Unread:
    """Returns what could not be read of nodes and pods, with notes on it.

    If listing all pods is forbidden, lists the pods of `namespace`, and replaces the error in `results` by these pods.

    Raises:
        ClusterError: this user may list neither nodes nor pods, or the API server failed to list nodes or pods.
    """
    nodes, pods = (results[name] for name in NEEDED)
    for kind, result in ((KINDS[name], results[name]) for name in NEEDED):
        if isinstance(result, ClusterError) and getattr(result, "status", 0) != FORBIDDEN:
            raise ClusterError(f"{kind.plural} cannot be listed ({result}), and there is no answer without them")
    unread = _Unread()
    if isinstance(pods, ClusterError):
        of_namespace = _list(client, KINDS["Pod"], namespace)
        if not isinstance(of_namespace, ClusterError):
            results["Pod"] = of_namespace
            unread.pods = f"only pods in the namespace {namespace} could be read ({_reason(pods)})"
            unread.notes.append(
                f"{unread.pods}, so the answer lacks pods of other namespaces: less may be free, and "
                "spreading, pod affinity and preemption may differ"
            )
        elif isinstance(nodes, ClusterError):
            raise ClusterError(
                f"neither nodes nor pods can be read ({_reason(pods)}), and there is no answer without them"
            )
        else:
            unread.pods = f"pods could not be read ({_reason(pods)})"
            unread.notes.append(
                f"{unread.pods}, and every node counts as empty: the answer leaves out used resources, "
                "spreading, pod affinity and preemption"
            )
    if isinstance(nodes, ClusterError):
        unread.nodes = f"nodes could not be read ({_reason(nodes)})"
        unread.notes.insert(0, f"{unread.nodes}, so the verdict is the scheduler's own, from the pod's conditions")
    return unread


class _NamedList(msgspec.Struct):
    items: list[Object]


_NAMED_LIST = msgspec.json.Decoder(_NamedList)


def names_of(access: ClusterAccess, kind: str, namespace: str, limit_seconds: float) -> list[tuple[str, str]]:
    """Returns (namespace, name) of the first objects of a kind, for completion in a shell.

    Raises:
        ConfigurationError, ClusterError, msgspec.MsgspecError: the API server does not answer in time.
    """
    query = {"limit": str(_MOST_NAMES)}
    with (
        closing(KubeClient(credentials_of(access))) as client,
        client.get_all(KINDS[kind], query, limit_seconds, namespace=namespace) as response,
    ):
        found = _NAMED_LIST.decode(response.read())
    return [(each.namespace, each.name) for each in found.items]


def context_names(access: ClusterAccess) -> list[str]:
    """Returns the names of the contexts in the kubeconfig. Raises ConfigurationError if the file cannot be read."""
    return [str(entry["name"]) for entry in merged(access.kubeconfigs)["contexts"]]


def namespace_of(access: ClusterAccess) -> str:
    """Returns the namespace of the kubeconfig's context; "" if there is no namespace or the file cannot be read."""
    try:
        document = merged(access.kubeconfigs)
    except ConfigurationError:
        return ""
    name = access.context or document["current-context"]
    contexts = (entry["context"] for entry in document["contexts"] if entry["name"] == name)
    return next((str(context.get("namespace") or "") for context in contexts), "")


def _list(client: KubeClient, kind: Kind, namespace: str = "") -> Listed:
    try:
        return list_all(client, kind, decoders(kind)[0], namespace=namespace)[1]
    except ClusterError as error:
        # If the cluster does not serve the kind, it has no objects of it.
        return [] if getattr(error, "status", 0) == 404 and kind.name not in NEEDED else error

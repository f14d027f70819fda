"""Reads a live cluster once: all objects that scheduling needs, and notes on what could not be read.

`read_cluster` serves the commands that answer questions about a cluster (explain, simulate, ...), `readable` serves
`extender record`, `identify` and `announcement` log the start of a process.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

import msgspec

from extender.cluster.http.credentials import credentials_of
from extender.cluster.http.kube_client import KubeClient, error_of
from extender.cluster.http.kubeconfig_files import merged
from extender.cluster.watch.api_objects import decoders
from extender.cluster.watch.paging import list_all
from extender.config.cluster_access import ClusterAccess
from extender.config.settings import Command, Settings
from extender.errors import ClusterError, ConfigurationError, NotFound, Refused
from extender.framework.profile import Profile
from extender.model.kinds import ADMISSION_KINDS, KINDS, Kind
from extender.model.meta import Object
from extender.runtime.threads import LastingThread
from extender.table.features import FeatureGates
from extender.web.telemetry.start_log import log_start

# The kinds without which there is no answer. If another kind is missing, a note says what the answer leaves out.
_NEEDED = ("Node", "Pod")
_LEFT_OUT: Mapping[str, str] = {
    "PersistentVolume": "volumes",
    "PersistentVolumeClaim": "volumes",
    "StorageClass": "volumes",
    "CSINode": "limits of attached volumes",
    "CSIDriver": "limits of attached volumes",
    "CSIStorageCapacity": "storage capacity",
    "VolumeAttachment": "limits of attached volumes",
    "DeviceClass": "devices",
    "DeviceTaintRule": "devices",
    "ResourceClaim": "devices",
    "ResourceClaimTemplate": "devices",
    "ResourceSlice": "devices",
    "Namespace": "pod affinity by namespace labels",
    "Service": "spreading by services",
    "ReplicationController": "spreading of replicas",
    "ReplicaSet": "spreading of replicas",
    "StatefulSet": "spreading of replicas",
    "PodDisruptionBudget": "PodDisruptionBudgets in preemption",
    "PriorityClass": "priorities of new pods",
    "PodGroup": "pod groups",
    "CompositePodGroup": "pod groups",
    "LimitRange": "default requests of new pods",
    "ResourceQuota": "whether quotas limit new pods",
    "RuntimeClass": "overhead of new pods",
}
CONNECT_SECONDS = 4.0
_FORBIDDEN = 403
_USER = re.compile(r'User ("[^"]*") cannot list')
_CONCURRENT_LISTS = 8

Listed = list[Object] | ClusterError


class VersionInfo(msgspec.Struct, rename="camel"):
    """The part of the API server's version that is logged (apimachinery version.Info)."""

    git_version: str = ""


_VERSION = msgspec.json.Decoder(VersionInfo)


@dataclass(slots=True)
class ClusterObjects:
    """The objects of a cluster.

    Attributes:
        notes: messages for the user, one for each group of kinds that could not be read.
        nodes_unread: why the nodes could not be read; None if they were.
        pods_unread: why not all pods could be read; None if they were.
    """

    objects: list[Object] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    nodes_unread: str | None = None
    pods_unread: str | None = None


def read_cluster(access: ClusterAccess, namespace: str = "default", watch: Sequence[Kind] = ()) -> ClusterObjects:
    """Lists the objects of every kind that answers read, and notes the kinds that this user may not list.

    Args:
        namespace: the namespace whose pods to list if listing all pods is forbidden.
        watch: further kinds to list, for users' rules.

    Raises:
        ConfigurationError: the kubeconfig cannot be used.
        ClusterError: the API server does not answer within CONNECT_SECONDS or fails to list nodes or pods; or this user
            may list neither of them.
    """
    credentials = credentials_of(access)
    with _advice():
        credentials.load().endpoint.dial(CONNECT_SECONDS).close()
    client = KubeClient(credentials)
    kinds = [*KINDS.values(), *ADMISSION_KINDS.values(), *watch]
    try:
        with client.get("/version", {}, CONNECT_SECONDS) as response:
            response.read()
        with ThreadPoolExecutor(_CONCURRENT_LISTS) as pool:
            lists = list(pool.map(lambda kind: _list(client, kind), kinds))
        results = dict(zip((kind.name for kind in kinds), lists, strict=True))
        cluster = _nodes_and_pods(client, results, namespace)
    finally:
        client.close()
    unread: dict[str, list[Kind]] = {}
    for kind in kinds:
        result = results[kind.name]
        if not isinstance(result, ClusterError):
            cluster.objects += result
        elif kind.name not in _NEEDED:
            unread.setdefault(_reason(result), []).append(kind)
    for reason, unread_kinds in unread.items():
        plurals = ", ".join(kind.plural for kind in unread_kinds)
        subjects = ", ".join(dict.fromkeys(_LEFT_OUT.get(kind.name, "its rules") for kind in unread_kinds))
        cluster.notes.append(f"{plurals} could not be read ({reason}), so the answer leaves out {subjects}")
    return cluster


@contextmanager
def _advice() -> Iterator[None]:
    """Adds advice to the error if the block cannot connect to the API server."""
    try:
        yield
    except Refused as error:
        raise ClusterError(
            f"{error}; check that the API server is up, and the server address in the kubeconfig's context"
        ) from None


def _reason(error: ClusterError) -> str:
    """Returns why a kind cannot be read, without the kind's name, so that kinds with one reason can share a note."""
    user = _USER.search(str(error))
    return f"{_FORBIDDEN}: {user[1]} may not list them" if user else str(error)


def _nodes_and_pods(client: KubeClient, results: dict[str, Listed], namespace: str) -> ClusterObjects:
    """Returns ClusterObjects without objects, but with notes if nodes or pods could not be listed.

    If listing all pods is forbidden, lists those of `namespace` and puts them into `results`.

    Raises:
        ClusterError: both are forbidden, or the API server failed to list one of them.
    """
    nodes, pods = (results[name] for name in _NEEDED)
    for kind, result in ((KINDS[name], results[name]) for name in _NEEDED):
        if isinstance(result, ClusterError) and getattr(result, "status", 0) != _FORBIDDEN:
            raise ClusterError(f"{kind.plural} cannot be listed ({result}), and there is no answer without them")
    cluster = ClusterObjects()
    if isinstance(pods, ClusterError):
        of_namespace = _list(client, KINDS["Pod"], namespace)
        if not isinstance(of_namespace, ClusterError):
            results["Pod"] = of_namespace
            cluster.pods_unread = f"only pods in the namespace {namespace} could be read ({_reason(pods)})"
            cluster.notes.append(
                f"{cluster.pods_unread}, so the answer lacks pods of other namespaces: less may be free, and "
                "spreading, pod affinity and preemption may differ"
            )
        elif isinstance(nodes, ClusterError):
            raise ClusterError(
                f"neither nodes nor pods can be read ({_reason(pods)}), and there is no answer without them"
            )
        else:
            cluster.pods_unread = f"pods could not be read ({_reason(pods)})"
            cluster.notes.append(
                f"{cluster.pods_unread}, and every node counts as empty: the answer leaves out used resources, "
                "spreading, pod affinity and preemption"
            )
    if isinstance(nodes, ClusterError):
        cluster.nodes_unread = f"nodes could not be read ({_reason(nodes)})"
        cluster.notes.insert(
            0, f"{cluster.nodes_unread}, so the verdict is what the scheduler has written into the pod's conditions"
        )
    return cluster


def readable(settings: Settings) -> tuple[list[str], list[str]]:
    """Returns the kinds of the settings that this account may list, by name, and a note for each other kind.

    Raises:
        ConfigurationError: the credentials cannot be used.
        ClusterError: the API server does not answer within CONNECT_SECONDS, or nodes or pods may not be listed.
    """
    client = KubeClient(credentials_of(settings.access))
    names: list[str] = []
    notes: list[str] = []
    try:
        for kind in (KINDS[name] for name in settings.watch_kinds or KINDS if name in KINDS):
            with _advice(), client.get(kind.path, {"limit": "1"}, CONNECT_SECONDS) as response:
                body = response.read()
            if response.status not in (401, _FORBIDDEN):
                names.append(kind.name)
                continue
            if kind.name in _NEEDED:
                raise ClusterError(f"{kind.plural} cannot be listed ({error_of(response.status, body)})")
            notes.append(f"{kind.plural} cannot be listed ({error_of(response.status, body)}): they are left out")
    finally:
        client.close()
    return names, notes


def identify(settings: Settings) -> tuple[str, str]:
    """Returns the cluster's address, and its version or the reason why that is unknown.

    Raises:
        ConfigurationError: the credentials cannot be used.
    """
    if settings.cluster is not None:
        return str(settings.cluster), "none: the objects of a file"
    client = KubeClient(credentials_of(settings.access))
    try:
        version = client.call_for(_VERSION.decode, "GET", "/version", b"", timeout_seconds=CONNECT_SECONDS)
        return client.address, version.git_version
    except ClusterError as error:
        return client.address, f"unknown: {error}"
    finally:
        client.close()


def announcement(
    command: Command, settings: Settings, profiles: Sequence[Profile], features: FeatureGates
) -> LastingThread:
    """Returns a thread that logs the start of the process. It is a thread because the API server may answer late."""

    def announce() -> None:
        log_start(command, settings, profiles, features, identify(settings))

    return LastingThread("announcement", announce)


def namespace_of(access: ClusterAccess) -> str:
    """Returns the namespace of the kubeconfig's context; empty if it has none or cannot be read."""
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
    except NotFound as error:  # the cluster does not serve the kind, so it has no objects of it
        return error if kind.name in _NEEDED else []
    except ClusterError as error:
        return error

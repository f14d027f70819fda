"""One look at a live cluster: every kind that counts, listed once, and what could not be read named."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import yaml

from extender.cluster.http.credentials import Kubeconfig, credentials_of
from extender.cluster.http.kube_client import KubeClient, error_of
from extender.cluster.watch.api_objects import decoders
from extender.cluster.watch.paging import list_all
from extender.config.settings import Settings
from extender.errors import ClusterError, NotFound, Refused
from extender.framework.profile import Profile
from extender.model.kinds import ADMISSION_KINDS, KINDS, Kind
from extender.model.meta import Object
from extender.runtime.threads import LastingThread
from extender.table.features import FeatureGates
from extender.web.telemetry.start_log import Command, log_start

# What nobody can do without; of every other kind its absence is told, and what that leaves uncertain.
_NEEDED = ("Node", "Pod")
_UNCERTAIN: Mapping[str, str] = {
    "PersistentVolume": "volumes",
    "PersistentVolumeClaim": "volumes",
    "StorageClass": "volumes",
    "CSINode": "limits of attached volumes",
    "CSIDriver": "limits of attached volumes",
    "CSIStorageCapacity": "volumes to be made",
    "VolumeAttachment": "limits of attached volumes",
    "DeviceClass": "devices",
    "DeviceTaintRule": "devices",
    "ResourceClaim": "devices",
    "ResourceClaimTemplate": "devices",
    "ResourceSlice": "devices",
    "Namespace": "pod affinity by labels of namespaces",
    "Service": "spreading by services",
    "ReplicationController": "spreading of replicas",
    "ReplicaSet": "spreading of replicas",
    "StatefulSet": "spreading of replicas",
    "PodDisruptionBudget": "which pods preemption would spare",
    "PriorityClass": "priorities of new pods",
    "LimitRange": "requests of new pods",
    "RuntimeClass": "overhead of new pods",
}
CONNECT_SECONDS = 4.0
_FORBIDDEN, _MAY_NOT = 403, re.compile(r'User ("[^"]*") cannot list')
_AT_ONCE = 8


class VersionInfo(msgspec.Struct, rename="camel"):
    """The part of apimachinery's version.Info that is told."""

    git_version: str = ""


_VERSION = msgspec.json.Decoder(VersionInfo)


@dataclass(slots=True)
class ClusterObjects:
    """The objects that were found, and for people the kinds that were not.

    `nodes_unread`, `pods_unread`: why the nodes, or all pods, are not there; empty where they are.
    """

    objects: list[Object] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    nodes_unread: str = ""
    pods_unread: str = ""


def look_at(kubeconfig: Path, context: str | None = None, namespace: str = "default") -> ClusterObjects:
    """Returns everything that answers look at, as the cluster has it now; kinds that may not be read are noted.

    Args:
        namespace: whose pods are read where those of all may not be.

    Raises:
        ConfigurationError: the kubeconfig cannot be used.
        ClusterError: the API server does not answer in `CONNECT_SECONDS`, fails to give nodes or pods, or neither.
    """
    credentials = Kubeconfig(kubeconfig, context)
    with _advising():
        credentials.load().endpoint.dial(CONNECT_SECONDS).close()
    client = KubeClient(credentials)
    kinds = [*KINDS.values(), *ADMISSION_KINDS.values()]
    try:
        with client.get("/version", {}, CONNECT_SECONDS) as response:
            response.read()
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            found = list(pool.map(lambda kind: _listed(client, kind), kinds))
        results = dict(zip((kind.name for kind in kinds), found, strict=True))
        look = _without_rights(client, results, namespace)
    finally:
        client.close()
    unread: dict[str, list[Kind]] = {}
    for kind in kinds:
        result = results[kind.name]
        if not isinstance(result, ClusterError):
            look.objects += result
        elif kind.name not in _NEEDED:
            unread.setdefault(_why(result), []).append(kind)
    for why, those in unread.items():
        plurals = ", ".join(kind.plural for kind in those)
        uncertain = ", ".join(dict.fromkeys(_UNCERTAIN.get(kind.name, "its rules") for kind in those))
        look.notes.append(f"{plurals} could not be read ({why}), so nothing is known of {uncertain}")
    return look


@contextmanager
def _advising() -> Iterator[None]:
    """Says what to do where no server can be reached in the block."""
    try:
        yield
    except Refused as error:
        raise ClusterError(f"{error}; is it up, and the server of the kubeconfig's context?") from None


def _why(error: ClusterError) -> str:
    """Returns why a kind cannot be read; the same for all kinds where the API server names each in its own words."""
    named = _MAY_NOT.search(str(error))
    return f"{_FORBIDDEN}: {named[1]} may not list them" if named else str(error)


def _without_rights(
    client: KubeClient, results: dict[str, list[Object] | ClusterError], namespace: str
) -> ClusterObjects:
    """Returns the notes about nodes and pods that may not be read; the namespace's pods take the place of all.

    Raises ClusterError: neither may be read, or the API server failed to give what may be.
    """
    nodes, pods = (results[name] for name in _NEEDED)
    for kind, result in ((KINDS[name], results[name]) for name in _NEEDED):
        if isinstance(result, ClusterError) and getattr(result, "status", 0) != _FORBIDDEN:
            raise ClusterError(f"{kind.plural} cannot be listed ({result}): nothing can be answered without them")
    look = ClusterObjects()
    if isinstance(pods, ClusterError):
        of_one = _listed(client, KINDS["Pod"], namespace)
        if not isinstance(of_one, ClusterError):
            results["Pod"] = of_one
            look.pods_unread = f"pods could be read in the namespace {namespace} alone ({_why(pods)})"
            look.notes.append(
                f"{look.pods_unread}: nodes are taken to be empty of others, so less may be free, and spreading, pod "
                "affinity and preemption may differ"
            )
        elif isinstance(nodes, ClusterError):
            raise ClusterError(
                f"neither nodes nor pods can be read ({_why(pods)}): nothing can be answered without them"
            )
        else:
            look.pods_unread = f"pods could not be read ({_why(pods)})"
            look.notes.append(
                f"{look.pods_unread}: every node is taken to be empty, so nothing is known of what is free, of "
                "spreading, of pod affinity, nor of whom preemption would evict"
            )
    if isinstance(nodes, ClusterError):
        look.nodes_unread = f"nodes cannot be read ({_why(nodes)})"
        look.notes.insert(
            0,
            f"nodes could not be read ({_why(nodes)}): none can be judged, and the verdict is what kube-scheduler has "
            "written into the pod's conditions",
        )
    return look


def readable(settings: Settings) -> tuple[list[str], list[str]]:
    """Returns the kinds to watch that may be listed, and for people the others.

    Raises:
        ConfigurationError: the credentials cannot be used.
        ClusterError: the API server does not answer in `CONNECT_SECONDS`, or gives neither nodes nor pods.
    """
    client, names, notes = KubeClient(credentials_of(settings.kubeconfig)), list[str](), list[str]()
    try:
        for kind in (KINDS[name] for name in settings.watch_kinds or KINDS if name in KINDS):
            with _advising(), client.get(kind.path, {"limit": "1"}, CONNECT_SECONDS) as response:
                body = response.read()
            if response.status not in (401, 403):
                names.append(kind.name)
                continue
            if kind.name in _NEEDED:
                raise ClusterError(f"{kind.plural} cannot be listed ({error_of(response.status, body)})")
            notes.append(f"{kind.plural} cannot be listed ({error_of(response.status, body)}): they are left out")
    finally:
        client.close()
    return names, notes


def identify(settings: Settings) -> tuple[str, str]:
    """Returns the cluster's address, and its version or why that is not known.

    Raises:
        ConfigurationError: the credentials cannot be used.
    """
    if settings.cluster is not None:
        return str(settings.cluster), "none: the objects of a file"
    client = KubeClient(credentials_of(settings.kubeconfig))
    try:
        told = client.call_for(_VERSION.decode, "GET", "/version", b"", timeout_seconds=CONNECT_SECONDS)
        return client.address, told.git_version
    except ClusterError as error:
        return client.address, f"unknown: {error}"
    finally:
        client.close()


def announcement(
    command: Command, settings: Settings, profiles: Sequence[Profile], features: FeatureGates
) -> LastingThread:
    """Returns what logs the start once it is started: not at once, for the API server may take its time to answer."""

    def announce() -> None:
        log_start(command, settings, profiles, features, identify(settings))

    return LastingThread("announcement", announce)


def namespace_of(kubeconfig: Path, context: str | None = None) -> str:
    """Returns the namespace of the kubeconfig's context; empty where it says none, or cannot be read."""
    try:
        document: Any = yaml.safe_load(kubeconfig.read_bytes())
        name = context or document["current-context"]
        chosen = next(each["context"] for each in document["contexts"] if each["name"] == name)
        return str(chosen.get("namespace") or "")
    except (OSError, yaml.YAMLError, LookupError, TypeError, AttributeError, StopIteration):
        return ""


def _listed(client: KubeClient, kind: Kind, namespace: str = "") -> list[Object] | ClusterError:
    try:
        return list_all(client, kind, decoders(kind)[0], namespace=namespace)[1]
    except NotFound as error:  # a cluster that does not serve the kind has no objects of it
        return error if kind.name in _NEEDED else []
    except ClusterError as error:
        return error

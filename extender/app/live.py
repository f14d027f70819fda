"""One look at a live cluster: every kind that counts, listed once, and what could not be read named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import yaml

from extender.cluster.http.credentials import Kubeconfig, credentials_of
from extender.cluster.http.kube_client import KubeClient, error_of
from extender.cluster.watch.decoding import decoders
from extender.cluster.watch.paging import list_all
from extender.config.settings import Settings
from extender.errors import ClusterError, NotFound
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
_AT_ONCE = 8


class VersionInfo(msgspec.Struct, rename="camel"):
    """The part of apimachinery's version.Info that is told."""

    git_version: str = ""


_VERSION = msgspec.json.Decoder(VersionInfo)


@dataclass(slots=True)
class ClusterObjects:
    """The objects that were found, and for people the kinds that were not."""

    objects: list[Object] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def look_at(kubeconfig: Path, context: str | None = None) -> ClusterObjects:
    """Returns everything that answers look at, as the cluster has it now; kinds that may not be read are noted.

    Raises:
        ConfigurationError: the kubeconfig cannot be used.
        ClusterError: the API server does not answer in `CONNECT_SECONDS`, or gives neither nodes nor pods.
    """
    credentials = Kubeconfig(kubeconfig, context)
    credentials.load().endpoint.dial(CONNECT_SECONDS).close()
    client = KubeClient(credentials)
    kinds = [*KINDS.values(), *ADMISSION_KINDS.values()]
    try:
        with client.get("/version", {}, CONNECT_SECONDS) as response:
            response.read()
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            found = list(pool.map(lambda kind: _listed(client, kind), kinds))
    finally:
        client.close()
    look = ClusterObjects()
    for kind, result in zip(kinds, found, strict=True):
        if not isinstance(result, ClusterError):
            look.objects += result
        elif kind.name in _NEEDED:
            raise ClusterError(f"{kind.plural} cannot be listed ({result}): nothing can be answered without them")
        else:
            told = _UNCERTAIN.get(kind.name, "its rules")
            look.notes.append(f"{kind.plural} could not be read ({result}), so nothing is known of {told}")
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
            with client.get(kind.path, {"limit": "1"}, CONNECT_SECONDS) as response:
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
        told = client.call_for(_VERSION.decode, "GET", "/version", b"", silence_seconds=CONNECT_SECONDS)
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


def _listed(client: KubeClient, kind: Kind) -> list[Object] | ClusterError:
    try:
        return list_all(client, kind, decoders(kind)[0])[1]
    except NotFound as error:  # a cluster that does not serve the kind has no objects of it
        return error if kind.name in _NEEDED else []
    except ClusterError as error:
        return error

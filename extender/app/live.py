"""Reads a little of a live cluster: the kinds that `extender record` may list, and the version that is logged."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from extender.cluster.http.credentials import credentials_of
from extender.cluster.http.kube_client import KubeClient, error_of
from extender.config.settings import Command, Settings
from extender.errors import ClusterError
from extender.framework.profile import Profile
from extender.model.kinds import KINDS
from extender.offline.live import CONNECT_SECONDS, FORBIDDEN, NEEDED, connection_advice
from extender.runtime.threads import LastingThread
from extender.table.features import FeatureGates
from extender.web.telemetry.start_log import log_start


class VersionInfo(msgspec.Struct, rename="camel"):
    """The part of the API server's version that is logged (apimachinery version.Info)."""

    git_version: str = ""


_VERSION = msgspec.json.Decoder(VersionInfo)


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
            with connection_advice(), client.get(kind.path, {"limit": "1"}, CONNECT_SECONDS) as response:
                body = response.read()
            if response.status not in (401, FORBIDDEN):
                names.append(kind.name)
                continue
            if kind.name in NEEDED:
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

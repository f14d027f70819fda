"""Reads a few objects of a live cluster, for commands and for the log.

`readable` says which kinds `extender record` may list, `announcement` logs the start of a process with the cluster's
version and what is switched off, and `replicas` finds the processes that `--in-cluster` names.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from urllib.parse import quote

import msgspec

from extender.cluster.credentials import credentials_of
from extender.cluster.kube_client import (
    FIRST_CALL_SECONDS,
    FORBIDDEN,
    NEEDED,
    ApiCall,
    ForwardedReplica,
    KubeClient,
    connection_advice,
    error_of,
    reported_version,
)
from extender.config.cluster_access import ClusterAccess
from extender.config.settings import OPTIONS, Command, Settings
from extender.errors import ClusterError, ConfigurationError
from extender.framework.profile import Profile
from extender.model.kinds import KINDS
from extender.model.pod import Pod
from extender.plugins.registry import default_profile
from extender.plugins.users.function import custom_rules
from extender.policy.policy import Policy, followed, parsed
from extender.runtime.process import product_commit, product_version
from extender.runtime.threads import LastingThread
from extender.snapshots.files import read_snapshot
from extender.table.features import BY_NAME, FeatureGates

_UNKNOWN = "unknown: "
# These settings switch features; a feature is off if its setting is false, 0 or empty.
_SWITCHES = ("leader_elect", "max_staleness_seconds", "assumed_ttl_seconds", "simulate", "record")
_SWITCHES_OF_SERVE = ("tls_cert", "client_ca", "metrics_bind", "activate_after_seconds")
_log = logging.getLogger(__name__)


class _Selector(msgspec.Struct, rename="camel"):
    match_labels: dict[str, str] = {}


class _DeploymentSpec(msgspec.Struct):
    selector: _Selector


class _Deployment(msgspec.Struct):
    spec: _DeploymentSpec


class _Pods(msgspec.Struct):
    items: list[Pod] | None  # the API server, written in Go, sends an empty list as null


_DEPLOYMENT = msgspec.json.Decoder(_Deployment)
_PODS = msgspec.json.Decoder(_Pods)


def readable(settings: Settings) -> tuple[list[str], list[str]]:
    """Returns the names of the kinds that this account may list, and a note on each kind that may not be listed.

    Tries the kinds in the setting `watchKinds`; all kinds if it is empty.

    Raises:
        ConfigurationError: the credentials cannot be used.
        ClusterError: the API server does not answer within FIRST_CALL_SECONDS, or nodes or pods may not be listed.
    """
    names: list[str] = []
    notes: list[str] = []
    with closing(KubeClient(credentials_of(settings.access))) as client:
        for kind in (KINDS[name] for name in settings.watch_kinds or KINDS if name in KINDS):
            with connection_advice(), client.get(kind.path, {"limit": "1"}, FIRST_CALL_SECONDS) as response:
                body = response.read()
            if response.status not in (401, FORBIDDEN):
                names.append(kind.name)
                continue
            if kind.name in NEEDED:
                raise ClusterError(f"{kind.plural} cannot be listed ({error_of(response.status, body)})")
            notes.append(f"{kind.plural} cannot be listed ({error_of(response.status, body)}): they are left out")
    return names, notes


def version_to_follow(settings: Settings, policy: Policy) -> Settings:
    """Returns the settings with the version of Kubernetes to follow: the chosen one, else that of the API server.

    For a cluster in a file, it is the version that the file records. If no version is known, it is the newest that is
    released. Logs a warning if the cluster has another version than those that can be followed.

    Raises:
        ConfigurationError: the credentials cannot be used.
        MalformedCluster, OSError: the file of the cluster cannot be read.
    """
    version = settings.chosen_version or policy.features.choices.version
    if version is None:
        address, reported = identify(settings)
        if settings.cluster is not None:
            reported = read_snapshot(settings.cluster, policy.watch).kubernetes_version or f"{_UNKNOWN}not recorded"
        version, warning = followed(reported)
        if warning is not None and not reported.startswith(_UNKNOWN):  # the line `start` says why it is unknown
            _log.warning("kubernetes version cluster=%s reported=%r note=%r", address, reported, warning)
    return settings.model_copy(update={"kubernetes_version": version})


class FollowedVersion:
    """Follows the version of the API server while the process runs, unless a user has chosen one.

    While a control plane is upgraded, its API servers report two versions in turn. So a version is followed once two
    lookups in a row have found it.

    Attributes:
        settings: those of the process, with the version that is followed at present.
    """

    def __init__(
        self, settings: Settings, policy: Policy, follow: Callable[[FeatureGates], None], *, is_chosen: bool
    ) -> None:
        self.settings = settings
        self._policy = policy
        self._follow = follow
        self._is_chosen = is_chosen or settings.cluster is not None
        self._last: str = settings.kubernetes_version

    def look(self) -> None:
        """Asks the API server, and logs it if decisions follow another version from now on."""
        if self._is_chosen:
            return
        address, reported = identify(self.settings)
        if reported.startswith(_UNKNOWN):
            return
        version, note = followed(reported)
        is_first = version != self._last
        self._last = version
        if is_first or version == self.settings.kubernetes_version:
            return
        try:
            features = parsed(self.settings.feature_gates, self._policy.features, version)
        except ConfigurationError as error:  # it has removed a gate that the settings or the policy name
            _log.error("kubernetes version not followed cluster=%s reported=%s followed=%s reason=%r",
                       address, reported, self.settings.kubernetes_version, str(error))  # fmt: skip
            return
        self._follow(features)
        _log.warning("kubernetes version changed cluster=%s reported=%s followed=%s before=%s note=%r",
                     address, reported, version, self.settings.kubernetes_version, note or "")  # fmt: skip
        self.settings = self.settings.model_copy(update={"kubernetes_version": version})


def identify(settings: Settings) -> tuple[str, str]:
    """Returns the address of the cluster, and its version or the reason why the version is unknown.

    Raises:
        ConfigurationError: the credentials cannot be used.
    """
    if settings.cluster is not None:
        return str(settings.cluster), "none (the objects come from a file)"
    with closing(KubeClient(credentials_of(settings.access))) as client:
        try:
            return client.address, reported_version(client)
        except ClusterError as error:
            return client.address, f"{_UNKNOWN}{error}"


def announcement(
    command: Command, settings: Settings, profiles: Sequence[Profile], features: FeatureGates
) -> LastingThread:
    """Returns a thread that logs the start. If the API server answers slowly, only this log line is delayed."""

    def announce() -> None:
        address, reported = identify(settings)
        version, warning = followed(reported)
        if warning is None and version != settings.kubernetes_version:
            _log.warning(
                "kubernetes version cluster=%s reported=%s followed=%s note=%r",
                address, reported, settings.kubernetes_version, "decisions follow another version than the cluster's",
            )  # fmt: skip
        log_start(command, settings, profiles, features, (address, reported))

    return LastingThread("announcement", announce)


def log_start(
    command: Command,
    settings: Settings,
    profiles: Sequence[Profile],
    features: FeatureGates,
    cluster: tuple[str, str],
) -> None:
    """Logs the line about the start of the process.

    Args:
        cluster: the cluster's address, and its version, or the reason why the version is unknown.
    """
    address, kubernetes = cluster
    fields = {
        "command": command,
        "cluster": address,
        "kubernetes": kubernetes,
        "follows": features.version,
        "version": product_version(),
        "commit": product_commit(),
        "policy": str(settings.policy or "default"),
        "profiles": [profile.name for profile in profiles],
        "rules": sorted({rule.name for rule in custom_rules(profiles)}),
        "addresses": list(_addresses(command, settings)),
        "off": [*_switched_off(command, settings), *_gates_off(features), *_plugins_off(profiles)],
    }
    _log.info("start", extra={"fields": fields})


def _addresses(command: Command, settings: Settings) -> Iterator[str]:
    path = f"/{settings.prefix.strip('/')}" if command == "serve" else ""
    yield f"{'https' if settings.tls_cert else 'http'}://{settings.bind}{path}"
    if command == "serve" and settings.metrics_bind:
        yield f"{'https' if settings.metrics_client_ca else 'http'}://{settings.metrics_bind}"


def _switched_off(command: Command, settings: Settings) -> Iterator[str]:
    switches = (*_SWITCHES, *(_SWITCHES_OF_SERVE if command == "serve" else ()))
    yield from (OPTIONS[name].key for name in switches if not getattr(settings, name))


def _gates_off(features: FeatureGates) -> Iterable[str]:
    return (name for name, field in BY_NAME.items() if not getattr(features, field))


def _plugins_off(profiles: Sequence[Profile]) -> Iterator[str]:
    """Yields the default plugins that a profile lacks, like `NodeName`; with several profiles, `NodeName in mine`."""
    for profile in profiles:
        suffix = f" in {profile.name}" if len(profiles) > 1 else ""
        yield from (f"{name}{suffix}" for name in _plugins(default_profile()) if name not in _plugins(profile))


def _plugins(profile: Profile) -> dict[str, None]:
    """Returns the names of the profile's plugins, in their order."""
    names = [predicate.name for predicate in profile.predicates]
    names += [weighted.priority.name for weighted in profile.priorities]
    return dict.fromkeys([*names, *(["DefaultPreemption"] if profile.preemption else [])])


def replicas(access: ClusterAccess, namespace: str, name: str, port: int) -> Iterator[ForwardedReplica]:
    """Yields the running pods of a Deployment.

    Raises:
        ConfigurationError: the kubeconfig cannot be used.
        ClusterError: the Deployment or its pods cannot be read, or no pod of it runs.
    """
    credentials = credentials_of(access)
    with closing(KubeClient(credentials)) as client:
        path = f"/apis/apps/v1/namespaces/{quote(namespace)}/deployments/{quote(name)}"
        try:
            found = client.call_for(_DEPLOYMENT.decode, ApiCall("GET", path))
        except ClusterError as error:
            raise ClusterError(f"the Deployment {namespace}/{name} cannot be read: {error}") from None
        labels = ",".join(f"{key}={value}" for key, value in found.spec.selector.match_labels.items())
        path = f"/api/v1/namespaces/{quote(namespace)}/pods?labelSelector={quote(labels)}"
        pods = client.call_for(_PODS.decode, ApiCall("GET", path)).items
    running = [pod.name for pod in pods or () if pod.status.phase == "Running" and not pod.terminating]
    if not running:
        raise ClusterError(f"no pod of the Deployment {namespace}/{name} is running")
    for pod in running:
        yield ForwardedReplica(credentials, namespace, pod, port)

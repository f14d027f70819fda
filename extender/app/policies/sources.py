"""The rules that the settings name: a file, a ConfigMap of the cluster, or a provider of old."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

from extender.cluster.http.credentials import credentials_of
from extender.cluster.http.kube_client import KubeClient, read_config_map
from extender.errors import ClusterError, ConfigurationError, NotFound
from extender.framework.profile import Profiles
from extender.plugins.users import RuleFailures
from extender.policy.library import Library
from extender.policy.loading import load as load_policy
from extender.policy.policy import Policy, provider

CONFIG_MAP = "configmap:"
_MODULES = "*.py", "[!.]*/*.py"  # those of packages too; not what a mounted ConfigMap hides behind `..data`

_log = logging.getLogger(__name__)


def profiles_of(
    policy: Path | None, provider_name: str, failures: RuleFailures | None = None, kubeconfig: Path | None = None
) -> Profiles:
    """Returns the rules by schedulerName; see `policy_of`."""
    found = policy_of(policy, provider_name, failures, kubeconfig)
    return Profiles(found.profiles, found.features)


def policy_of(
    policy: Path | None, provider_name: str, failures: RuleFailures | None = None, kubeconfig: Path | None = None
) -> Policy:
    """Returns the rules that the settings name.

    A user's module may stand in the folder of the policy's file, which is searched last.

    Args:
        policy: a file, or configmap:NAMESPACE/NAME of the cluster that `kubeconfig` is of.
        failures: told when users' rules fail; without it their errors are raised.

    Raises:
        ConfigurationError: with every fault of the policy.
    """
    if policy is None:
        return Policy((provider(provider_name),))
    try:
        text = policy_text(policy, kubeconfig)
        return load_policy(text, Library(failures=failures, folder=folder_of(policy)))
    except OSError as error:
        raise ConfigurationError([f"policy {policy}: {error.strerror}"]) from None
    except ClusterError as error:
        raise ConfigurationError([f"policy {policy}: {error}"]) from None
    except ConfigurationError as error:
        raise ConfigurationError([f"policy {policy}: {fault}" for fault in error.faults]) from None


def log_failure(rule: str, error: BaseException) -> None:
    """Logs the first failure of its kind of a user's rule."""
    _log.error("rule %s failed; further failures of its kind are only counted", rule, exc_info=error)


class PolicyFiles:
    """The files, or the ConfigMap, that a policy is read from.

    Attributes:
        folder: where modules of users' rules may stand; "" for a ConfigMap of the cluster.
    """

    def __init__(self, policy: Path | None, kubeconfig: Path | None) -> None:
        self._policy = policy
        self.folder = "" if policy is None else folder_of(policy)
        by_api = policy is not None and _is_config_map(policy)
        self._client = KubeClient(credentials_of(kubeconfig)) if by_api else None

    def contents(self) -> Mapping[str, bytes]:
        """Returns the content of each file by its path, the reason where one cannot be read. Raises ClusterError."""
        if self._policy is None:
            return {}
        if self._client is not None:
            return {str(self._policy): _config_map(self._policy, self._client)}
        beside = (path for pattern in _MODULES for path in self._policy.parent.glob(pattern))
        return {str(path): _content(path) for path in (self._policy, *beside)}


def _config_map(policy: Path, client: KubeClient) -> bytes:
    try:
        return config_map_text(policy, client)
    except NotFound as error:
        return str(error).encode()


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        return str(error).encode()


def folder_of(policy: Path) -> str:
    """Returns the folder of the policy's file as it was named: a ConfigMap that is mounted changes what is behind."""
    return "" if _is_config_map(policy) else str(policy.parent.absolute())


def _is_config_map(policy: Path) -> bool:
    return str(policy).startswith(CONFIG_MAP)


def policy_text(policy: Path, kubeconfig: Path | None) -> bytes:
    """Returns the text of a policy's file or ConfigMap. Raises ConfigurationError, ClusterError, OSError."""
    if not _is_config_map(policy):
        return policy.read_bytes()
    client = KubeClient(credentials_of(kubeconfig))
    try:
        return config_map_text(policy, client)
    finally:
        client.close()


def config_map_text(policy: Path, client: KubeClient) -> bytes:
    """Returns the text of configmap:NAMESPACE/NAME. Raises ConfigurationError, ClusterError."""
    namespace, separator, name = str(policy).removeprefix(CONFIG_MAP).partition("/")
    if not (namespace and separator and name):
        raise ConfigurationError([f"want {CONFIG_MAP}NAMESPACE/NAME"])
    return read_config_map(client, namespace, name)

"""The rules that the settings name: a file, a ConfigMap of the cluster, or a provider of old."""

from __future__ import annotations

import logging
from pathlib import Path

from extender.cluster.http.credentials import credentials_of
from extender.cluster.http.kube_client import KubeClient, read_config_map
from extender.config.settings import Settings
from extender.errors import ClusterError, ConfigurationError
from extender.framework.profile import Profiles
from extender.plugins.users import RuleFailures
from extender.policy.feature_gates import parsed
from extender.policy.library import Library
from extender.policy.loading import load as load_policy
from extender.policy.policy import Policy
from extender.policy.providers import provider
from extender.table.features import FeatureGates

CONFIG_MAP = "configmap:"

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
        folder = "" if _is_config_map(policy) else str(policy.parent.resolve())
        return load_policy(policy_text(policy, kubeconfig), Library(failures=failures, folder=folder))
    except OSError as error:
        raise ConfigurationError([f"policy {policy}: {error.strerror}"]) from None
    except ClusterError as error:
        raise ConfigurationError([f"policy {policy}: {error}"]) from None
    except ConfigurationError as error:
        raise ConfigurationError([f"policy {policy}: {fault}" for fault in error.faults]) from None


def features_of(settings: Settings) -> FeatureGates:
    """Returns the feature gates of the policy, switched by those of the settings. Raises ConfigurationError."""
    policy = policy_of(settings.policy, settings.provider, kubeconfig=settings.kubeconfig)
    return parsed(settings.feature_gates, policy.features)


def log_failure(rule: str, error: BaseException) -> None:
    """Logs the first failure of its kind of a user's rule."""
    _log.error("rule %s failed; further failures of its kind are only counted", rule, exc_info=error)


def _is_config_map(policy: Path) -> bool:
    return str(policy).startswith(CONFIG_MAP)


def policy_text(policy: Path, kubeconfig: Path | None) -> bytes:
    """Returns the text of a policy's file or ConfigMap. Raises ConfigurationError, ClusterError, OSError."""
    if not _is_config_map(policy):
        return policy.read_bytes()
    namespace, separator, name = str(policy).removeprefix(CONFIG_MAP).partition("/")
    if not (namespace and separator and name):
        raise ConfigurationError([f"want {CONFIG_MAP}NAMESPACE/NAME"])
    client = KubeClient(credentials_of(kubeconfig))
    try:
        return read_config_map(client, namespace, name)
    finally:
        client.close()

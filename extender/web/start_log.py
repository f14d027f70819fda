"""Logs a line at the start of a process: cluster, versions, rules, addresses, and what is switched off."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence

from extender.config.settings import OPTIONS, Command, Settings
from extender.framework.profile import Profile
from extender.plugins.registry import default_profile
from extender.plugins.users import custom_rules
from extender.runtime.process import product_commit, product_version
from extender.table.features import BY_NAME, FeatureGates

_log = logging.getLogger(__name__)
# These settings switch features; a feature is off if its setting is false, 0 or empty.
_SWITCHES = ("leader_elect", "max_staleness_seconds", "assumed_ttl_seconds", "simulate", "record")
_SWITCHES_OF_SERVE = ("tls_cert", "client_ca", "metrics_bind", "activate_after_seconds")


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

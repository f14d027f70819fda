"""The line that a process logs as it starts: its cluster, versions, rules, addresses, and what is off."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import version
from typing import Literal

from extender.config.settings import OPTIONS, Settings
from extender.framework.profile import Profile
from extender.plugins.registry import default_profile, users_rules
from extender.table.features import BY_NAME, FeatureGates
from extender.web.telemetry.tracing import spans_wanted

_log = logging.getLogger(__name__)
# What these settings stand for is off where they are: neither False, nor 0, nor empty says so by itself.
_SWITCHES = (
    "leader_elect", "compare_seconds", "max_staleness_seconds", "assumed_ttl_seconds", "decisions_seconds", "simulate",
    "record",
)  # fmt: skip
_SWITCHES_OF_SERVE = ("tls_cert", "client_ca", "metrics_bind", "activate_after_seconds")
Command = Literal["serve", "schedule"]


def log_start(
    command: Command,
    settings: Settings,
    profiles: Sequence[Profile],
    features: FeatureGates,
    cluster: tuple[str, str],
) -> None:
    """Logs the line.

    Args:
        cluster: its address, and its version or the reason why that is not known.
    """
    where, kubernetes = cluster
    fields = {
        "command": command,
        "cluster": where,
        "kubernetes": kubernetes,
        "version": version("extender"),
        "policy": str(settings.policy or settings.provider),
        "profiles": [profile.name for profile in profiles],
        "rules": sorted({rule.name for profile in profiles for rule in (*users_rules(profile), *profile.permit)}),
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
    if not spans_wanted(os.environ):
        yield "spans"


def _gates_off(features: FeatureGates) -> Iterable[str]:
    return (name for name, field in BY_NAME.items() if not getattr(features, field))


def _plugins_off(profiles: Sequence[Profile]) -> Iterator[str]:
    """Yields the default plugins that a profile does without, with its name where there are several."""
    for profile in profiles:
        where = f" in {profile.name}" if len(profiles) > 1 else ""
        yield from (f"{name}{where}" for name in _plugins(default_profile()) if name not in _plugins(profile))


def _plugins(profile: Profile) -> dict[str, None]:
    """Returns the names of the profile's plugins, in their order."""
    names = [each.name for each in profile.predicates] + [each.priority.name for each in profile.priorities]
    return dict.fromkeys([*names, *(["DefaultPreemption"] if profile.preemption else [])])

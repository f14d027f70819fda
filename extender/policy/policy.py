"""Defines a policy as read from its file, and the two classic providers; parses feature gates.

It also compares and changes the version of Kubernetes that is followed; `extender.table.features` lists the versions.
Source of the providers: upstream pkg/scheduler/algorithmprovider, until v1.22.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from extender.errors import ConfigurationError
from extender.framework.profile import Profile, Profiles, WeightedPriority
from extender.model.extender_config import ExtenderConfig
from extender.model.kinds import Kind
from extender.plugins.node_resources_scores import NodeResourcesFitScore, most_allocated
from extender.plugins.registry import default_profile
from extender.policy.extenders import ignoring
from extender.policy.faults import Faults
from extender.table.features import (
    BY_NAME,
    DEFAULT_FEATURES,
    DEPENDENCIES,
    RELEASED,
    VERSIONS,
    FeatureGates,
    features_of,
    with_values,
)

_SWITCHES = {"true": True, "false": False}


def with_gates(
    gates: Mapping[str, bool], faults: Faults, path: str, base: FeatureGates = DEFAULT_FEATURES
) -> FeatureGates:
    """Returns `base` with these gates switched on or off; adds a fault for each gate that cannot be set so.

    If a version of Kubernetes is chosen, gates that it lacks or has locked are faults too, in kube-scheduler's words.
    So is a gate that is on while another that it needs is off.

    Args:
        gates: {name of the gate in Kubernetes: True to switch it on}.
    """
    refusals = {name: refusal for name, on in gates.items() if (refusal := _refusal(name, on, base))}
    for name, refusal in refusals.items():
        faults.add(f"{path}.{name}", refusal, name, BY_NAME.keys() - {name})
    choices = replace(base.choices, gates={**base.choices.gates, **gates})
    features = with_values(replace(base, choices=choices), gates)
    for name, missing in _unmet(features).items() if not refusals else ():
        faults.add(f"{path}.{name}", f"{name} is enabled, but depends on features that are disabled: [{missing}]")
    return features


def _unmet(features: FeatureGates) -> dict[str, str]:
    """Returns {gate that is on: the gates that it needs and that are off, separated by spaces}."""

    def is_on(name: str) -> bool:
        return name not in VERSIONS[features.version].gone and bool(getattr(features, BY_NAME[name]))

    off = {name: " ".join(each for each in needed if not is_on(each)) for name, needed in DEPENDENCIES.items()}
    return {name: missing for name, missing in off.items() if missing and is_on(name)}


def _refusal(name: str, on: bool, base: FeatureGates) -> str | None:
    version = VERSIONS[base.version] if base.choices.version else None
    if version and name in version.gone:
        return f"unrecognized feature gate: {name} (Kubernetes {base.version})"
    if version and name in version.locked:
        return None if on else f"cannot set feature gate {name} to false, feature is locked to true"
    return None if name in BY_NAME else f"expected a feature gate that can be set here: {', '.join(sorted(BY_NAME))}"


def parsed(text: str, base: FeatureGates = DEFAULT_FEATURES, version: str | None = None) -> FeatureGates:
    """Returns `base` changed by a text like "A=true,B=false", as in kube-scheduler's --feature-gates.

    Args:
        version: the version of Kubernetes to follow; None for that of `base`.

    Raises:
        ConfigurationError: lists every fault.
    """
    faults = Faults()
    gates: dict[str, bool] = {}
    for part in filter(None, text.split(",")):
        name, _, value = (text.strip() for text in part.partition("="))
        if value.lower() not in _SWITCHES:
            faults.add(f"featureGates.{name}", f"expected {name}=true or {name}=false, got {part.strip()!r}")
        else:
            gates[name] = _SWITCHES[value.lower()]
    if version is not None:
        base = features_of(replace(base.choices, version=version))
        gates = {**base.choices.gates, **gates}
    features = with_gates(gates, faults, "featureGates", base)
    faults.raise_if_any()
    return features


@dataclass(frozen=True, slots=True)
class Policy:
    """The profiles, and the values that they share. The first profile also serves unknown scheduler names.

    Attributes:
        pod_initial_backoff_seconds: the backoff after the first failed attempt.
        pod_max_backoff_seconds: the longest backoff.
        extenders: the extenders that `extender schedule` calls, in this order; `extender serve` calls none.
        watch: the kinds that only users' rules read.
        notes: remarks on entries that are accepted, but have no effect, as in kube-scheduler.
        qps, burst: the limits of clientConnection; 0 if they are not given.
    """

    profiles: tuple[Profile, ...]
    pod_initial_backoff_seconds: int = 1
    pod_max_backoff_seconds: int = 10
    extenders: tuple[ExtenderConfig, ...] = ()
    features: FeatureGates = DEFAULT_FEATURES
    watch: tuple[Kind, ...] = ()
    qps: float = 0.0
    burst: int = 0
    notes: tuple[str, ...] = ()

    def scheduler_profiles(self, profiles: Iterable[Profile] | None = None) -> Profiles:
        """Returns the given profiles, or else the policy's own, with the policy's extenders, gates and watched kinds.

        In the returned profiles, NodeResourcesFit ignores the resources that an extender manages alone
        (ignoredByScheduler).
        """
        ignored = frozenset().union(*(config.ignored_resources for config in self.extenders))
        chosen = self.profiles if profiles is None else profiles
        return Profiles([ignoring(profile, ignored) for profile in chosen], self.features, self.extenders, self.watch)


def _preferring_full_nodes() -> Profile:
    profile = default_profile()
    return replace(profile, priorities=[_most_allocated(weighted) for weighted in profile.priorities])


def _most_allocated(weighted: WeightedPriority) -> WeightedPriority:
    fit = weighted.priority
    if not isinstance(fit, NodeResourcesFitScore):
        return weighted
    return replace(weighted, priority=replace(fit, strategy=most_allocated))


PROVIDERS: Mapping[str, Callable[[], Profile]] = {
    "DefaultProvider": default_profile,
    "ClusterAutoscalerProvider": _preferring_full_nodes,
}
"""kube-scheduler's default profile, and the same with full nodes preferred to empty ones."""


_VERSION = re.compile(r"v?(\d+\.\d+)(\.\d+)?")
_REPORTED = re.compile(r"v?(\d+)\.(\d+)")


def followed(reported: str) -> tuple[str, str | None]:
    """Returns the version to follow in a cluster whose API server reports e.g. v1.38.2-gke.7, and a warning or None."""
    match = _REPORTED.match(reported)
    if match is None:
        return RELEASED, f"the cluster does not say its version, so it counts as {RELEASED}"
    minor = f"{match[1]}.{match[2]}"
    if minor in VERSIONS:
        return minor, None
    oldest, *_, newest = VERSIONS
    is_newer = (int(match[1]), int(match[2])) > tuple(map(int, newest.split(".")))
    nearest = newest if is_newer else oldest
    return nearest, f"Kubernetes {minor} is {'newer' if is_newer else 'older'} than {nearest}, and counts as {nearest}"


def upgraded(current: FeatureGates, target: str) -> FeatureGates:
    """Returns the gates after an upgrade to `target`.

    Gates that a user has set keep their values, unless `target` names them or its version does not have them.

    Args:
        current: the gates in force before.
        target: a version such as 1.36, or gates such as "A=true,B=false", or both, separated by commas.

    Raises:
        ConfigurationError: the version or a gate is not known.
    """
    parts = [part.strip() for part in target.split(",") if part.strip()]
    versions = [match[1] for part in parts if (match := _VERSION.fullmatch(part))]
    if len(versions) > 1 or not parts:
        raise ConfigurationError([f"{target!r}: expected a version such as 1.36, or gates such as A=true,B=false"])
    base = current
    for version in versions:
        if version not in VERSIONS:
            raise ConfigurationError([f"Kubernetes {version}: expected one of {', '.join(VERSIONS)}"])
        base = features_of(replace(current.choices, version=version))
    return parsed(",".join(part for part in parts if not _VERSION.fullmatch(part)), base)


def changes(before: FeatureGates, after: FeatureGates) -> str:
    """Returns what of `after` differs from `before`, as "Kubernetes 1.38, A=true, B=false"; empty if all are equal."""
    old, new, gone = by_name(before), by_name(after), VERSIONS[after.version].gone
    gates = [f"{name}={str(on).lower()}" for name, on in new.items() if on != old[name] and name not in gone]
    return ", ".join([*([f"Kubernetes {after.version}"] if after.behaviours != before.behaviours else []), *gates])


def by_name(features: FeatureGates) -> dict[str, bool]:
    """Returns the gates as {name in Kubernetes: True if the gate is on}."""
    return {name: getattr(features, field) for name, field in BY_NAME.items()}

"""A policy that has been read; feature gates; the providers of old (pkg/scheduler/algorithmprovider until v1.22)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from extender.framework.profile import Profile, WeightedPriority
from extender.model.extenders import ExtenderConfig
from extender.plugins.node_resources.priorities import NodeResourcesFitScore, most_allocated
from extender.plugins.registry import default_profile
from extender.policy.faults import Faults
from extender.table.features import BY_NAME, DEFAULT_FEATURES, FeatureGates

_SWITCHES = {"true": True, "false": False}


def with_gates(
    gates: Mapping[str, bool], faults: Faults, path: str, base: FeatureGates = DEFAULT_FEATURES
) -> FeatureGates:
    """Returns `base` with the gates switched as given by stock's names; what is no gate here is noted."""
    for name in gates.keys() - BY_NAME.keys():
        faults.add(f"{path}.{name}", "there is no such gate, or it decides nothing here", name, BY_NAME)
    return replace(base, **{field: gates[name] for name, field in BY_NAME.items() if name in gates})


def parsed(text: str, base: FeatureGates = DEFAULT_FEATURES) -> FeatureGates:
    """Returns `base` with the gates of a text like "A=true,B=false", as kube-scheduler's --feature-gates.

    Raises:
        ConfigurationError: with every fault.
    """
    faults = Faults()
    gates: dict[str, bool] = {}
    for part in filter(None, text.split(",")):
        name, _, value = (each.strip() for each in part.partition("="))
        if value.lower() not in _SWITCHES:
            faults.add(f"featureGates.{name}", f"want {name}=true or {name}=false, not {part.strip()!r}")
        else:
            gates[name] = _SWITCHES[value.lower()]
    features = with_gates(gates, faults, "featureGates", base)
    faults.raise_if_any()
    return features


@dataclass(frozen=True, slots=True)
class Policy:
    """The profiles, the first for pods of any other scheduler, and what is common to them.

    Attributes:
        pod_initial_backoff_seconds, pod_max_backoff_seconds: the wait of a pod that fits nowhere.
        extenders: the extenders that `extender schedule` asks, in this order; `extender serve` asks none.
    """

    profiles: tuple[Profile, ...]
    pod_initial_backoff_seconds: int = 1
    pod_max_backoff_seconds: int = 10
    extenders: tuple[ExtenderConfig, ...] = ()
    features: FeatureGates = DEFAULT_FEATURES


DEFAULT_PROVIDER, CLUSTER_AUTOSCALER_PROVIDER = "DefaultProvider", "ClusterAutoscalerProvider"


def provider(name: str) -> Profile:
    """Returns the profile of a provider.

    Raises:
        ConfigurationError: there is none of this name.
    """
    faults = Faults()
    if name not in PROVIDERS:
        faults.add("provider", f"there is no {name!r}, want {' or '.join(PROVIDERS)}", name, PROVIDERS)
    faults.raise_if_any()
    return PROVIDERS[name]()


def _preferring_full_nodes() -> Profile:
    profile = default_profile()
    return replace(profile, priorities=[_packing(weighted) for weighted in profile.priorities])


def _packing(weighted: WeightedPriority) -> WeightedPriority:
    fit = weighted.priority
    return (
        replace(weighted, priority=replace(fit, strategy=most_allocated))
        if isinstance(fit, NodeResourcesFitScore)
        else weighted
    )


PROVIDERS: Mapping[str, Callable[[], Profile]] = {
    DEFAULT_PROVIDER: default_profile,
    CLUSTER_AUTOSCALER_PROVIDER: _preferring_full_nodes,
}
"""The scheduler's defaults, and the same with full nodes preferred to empty ones."""

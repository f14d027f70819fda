"""The algorithm providers of old: profiles by name. Source: pkg/scheduler/algorithmprovider until v1.22."""

from __future__ import annotations

from dataclasses import replace

from extender.engine.algorithm import Profile, WeightedPriority
from extender.engine.policy.faults import Faults
from extender.engine.priorities.node_resources_fit import NodeResourcesFit
from extender.engine.registry import default_profile
from extender.engine.scoring_strategies import most_allocated

DEFAULT_PROVIDER, CLUSTER_AUTOSCALER_PROVIDER = "DefaultProvider", "ClusterAutoscalerProvider"


def provider(name: str) -> Profile:
    """The profile of a provider: what the scheduler does by default, or with full nodes preferred to empty ones.

    Raises:
        ConfigurationError: there is none of this name.
    """
    faults = Faults()
    if name not in (DEFAULT_PROVIDER, CLUSTER_AUTOSCALER_PROVIDER):
        right = (DEFAULT_PROVIDER, CLUSTER_AUTOSCALER_PROVIDER)
        faults.add("provider", f"there is no {name!r}, want {' or '.join(right)}", name, right)
    faults.raise_if_any()
    profile = default_profile()
    if name == DEFAULT_PROVIDER:
        return profile
    return replace(profile, priorities=[_packing(weighted) for weighted in profile.priorities])


def _packing(weighted: WeightedPriority) -> WeightedPriority:
    fit = weighted.priority
    return (
        replace(weighted, priority=replace(fit, strategy=most_allocated))
        if isinstance(fit, NodeResourcesFit)
        else weighted
    )

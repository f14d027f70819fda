"""A policy that has been read."""

from __future__ import annotations

from dataclasses import dataclass

from extender.framework.profile import Profile
from extender.model.extenders import ExtenderConfig
from extender.table.features import DEFAULT_FEATURES, FeatureGates


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

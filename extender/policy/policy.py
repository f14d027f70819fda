"""What a policy file comes down to."""

from __future__ import annotations

from dataclasses import dataclass

from extender.framework.profile import Profile
from extender.model.extenders import ExtenderConfig


@dataclass(frozen=True, slots=True)
class Policy:
    """The profiles, the first for pods of any other scheduler, and what is common to them.

    Attributes:
        pod_initial_backoff_seconds, pod_max_backoff_seconds: how long a pod waits that fits nowhere.
        extenders: whom `extender schedule` asks, in this order; `extender serve` asks nobody.
    """

    profiles: tuple[Profile, ...]
    pod_initial_backoff_seconds: int = 1
    pod_max_backoff_seconds: int = 10
    extenders: tuple[ExtenderConfig, ...] = ()

"""What a policy file comes down to."""

from __future__ import annotations

from dataclasses import dataclass

from extender.engine.algorithm import Profile


@dataclass(frozen=True, slots=True)
class Policy:
    """The profiles, the first for pods of any other scheduler; and how long a pod waits that fits nowhere."""

    profiles: tuple[Profile, ...]
    pod_initial_backoff_seconds: int = 1
    pod_max_backoff_seconds: int = 10

"""A bind that got no answer may have been made all the same: the watch tells, and seldom later than an answer would."""

from __future__ import annotations

import time
from collections.abc import Callable

from extender.cache.cache import Cache
from extender.cache.pod_states import PodState

PAUSES, PAUSE_SECONDS = 50, 0.02


class Confirmation:
    """Waits for the watch, for a second at most.

    Args:
        pause: waits for so many seconds; by default as time.sleep, looked up late: simulations have another.
    """

    def __init__(self, cache: Cache, pause: Callable[[float], object] | None = None) -> None:
        self._cache, self._pause = cache, pause or time.sleep

    def wait(self, uid: str, node: str) -> bool:
        """Waits until the watch tells what has become of the pod; returns whether it is bound to the node."""
        for _ in range(PAUSES):
            placement = self._cache.placement(uid)
            if placement is None or placement.state is PodState.ADDED:
                return placement is not None and placement.node_name == node
            self._pause(PAUSE_SECONDS)
        return False

"""Waiting for the watch, which may be about to tell what a verb should know."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Collection
from threading import Lock

from extender.cache.cache import Cache
from extender.cache.pod_states import PodState
from extender.runtime.clock import Clock

MOST_PODS = 1024
PAUSES, PAUSE_SECONDS = 50, 0.02
SECONDS = PAUSES * PAUSE_SECONDS


class Confirmation:
    """Waits, for `SECONDS` at most, for what has become of a bind that got no answer: it may have been made.

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


class RecentPreemptors:
    """Has filter wait for the watch, for `SECONDS` at most after victims were named.

    kube-scheduler may hear that the victims are gone sooner than this cache does. It asks at once whether the pod fits
    now, and a "no" has it evict other pods on other nodes. `pause`: see Confirmation.
    """

    def __init__(self, clock: Clock, pause: Callable[[float], object] | None = None) -> None:
        self._clock, self._pause, self._lock = clock, pause or time.sleep, Lock()
        self._pods: OrderedDict[str, tuple[float, Collection[str]]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._pods)

    def note(self, uid: str, nodes: Collection[str]) -> None:
        """Takes in that victims were named for the pod, on these nodes."""
        now = self._clock.monotonic()
        with self._lock:
            self._pods[uid] = now + SECONDS, frozenset(nodes)
            self._pods.move_to_end(uid)
            while len(self._pods) > MOST_PODS or next(iter(self._pods.values()))[0] < now:
                self._pods.popitem(last=False)

    def wait(self, uid: str, nodes: Collection[str]) -> bool:
        """Waits a moment if victims of the pod may have gone from one of the nodes; returns whether it has waited."""
        with self._lock:
            until, named = self._pods.get(uid, (0.0, ()))
        if self._clock.monotonic() >= until or not any(node in named for node in nodes):
            return False
        self._pause(PAUSE_SECONDS)
        return True

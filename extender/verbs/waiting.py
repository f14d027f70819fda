"""Waits briefly for the watch to deliver something that a verb needs."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Collection
from threading import Lock

from extender.cache.cache import Cache
from extender.cache.pod_states import PodState
from extender.runtime.clock import Clock

MOST_PODS = 1024
PAUSES = 50
PAUSE_SECONDS = 0.02
SECONDS = PAUSES * PAUSE_SECONDS


class Confirmation:
    """Waits at most `SECONDS` for the watch to show the outcome of a bind that got no answer.

    Args:
        pause: sleeps for some seconds; None means time.sleep, looked up here because simulations replace it.
    """

    def __init__(self, cache: Cache, pause: Callable[[float], object] | None = None) -> None:
        self._cache = cache
        self._pause = pause or time.sleep

    def wait(self, uid: str, node: str) -> bool:
        """Waits until the watch shows the pod; returns True if it is bound to the node."""
        for _ in range(PAUSES):
            placement = self._cache.placement(uid)
            if placement is None or placement.state is PodState.ADDED:
                return placement is not None and placement.node_name == node
            self._pause(PAUSE_SECONDS)
        return False


class RecentPreemptors:
    """Records the pods for which preempt named victims, and makes filter wait until the victims are gone.

    kube-scheduler may know that the victims are gone before this cache does, and then calls filter at once. If filter
    refused the pod, kube-scheduler would evict more pods on other nodes. So filter waits, but only within `SECONDS`
    after preempt. `pause` is described in Confirmation.
    """

    def __init__(self, clock: Clock, pause: Callable[[float], object] | None = None) -> None:
        self._clock = clock
        self._pause = pause or time.sleep
        self._lock = Lock()
        self._pods: OrderedDict[str, tuple[float, Collection[str]]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._pods)

    def note(self, uid: str, nodes: Collection[str]) -> None:
        """Records that preempt named victims for the pod on these nodes."""
        now = self._clock.monotonic()
        with self._lock:
            self._pods[uid] = (now + SECONDS, frozenset(nodes))
            self._pods.move_to_end(uid)
            while len(self._pods) > MOST_PODS or next(iter(self._pods.values()))[0] < now:
                self._pods.popitem(last=False)

    def wait(self, uid: str, nodes: Collection[str]) -> bool:
        """Waits a moment if preempt recently named victims for the pod on one of these nodes.

        Returns True if it waited; the caller then checks the pod again.
        """
        with self._lock:
            until, named = self._pods.get(uid, (0.0, ()))
        if self._clock.monotonic() >= until or not any(node in named for node in nodes):
            return False
        self._pause(PAUSE_SECONDS)
        return True

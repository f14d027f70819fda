"""Pods that victims were named for a moment ago.

kube-scheduler may hear that the victims are gone sooner than this cache does. It asks at once whether the pod fits now,
and a "no" has it evict other pods on other nodes, until the watch has told.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Collection
from threading import Lock

from extender.runtime.clock import Clock

MOST_PODS = 1024
SECONDS, PAUSE_SECONDS = 1.0, 0.02


class RecentPreemptors:
    """Has filter wait for the watch, for `SECONDS` at most after victims were named.

    Args:
        pause: waits for so many seconds; by default as time.sleep, looked up late: simulations have another.
    """

    def __init__(self, clock: Clock, pause: Callable[[float], object] | None = None) -> None:
        self._clock, self._pause, self._lock = clock, pause or time.sleep, Lock()
        self._pods: OrderedDict[str, tuple[float, Collection[str]]] = OrderedDict()

    def note(self, uid: str, nodes: Collection[str]) -> None:
        """Takes in that victims were named for the pod, on these nodes."""
        with self._lock:
            self._pods[uid] = self._clock.monotonic() + SECONDS, nodes
            self._pods.move_to_end(uid)
            if len(self._pods) > MOST_PODS:
                self._pods.popitem(last=False)

    def wait(self, uid: str, nodes: Collection[str]) -> bool:
        """Waits a moment if victims of the pod may have gone from one of the nodes; returns whether it has waited."""
        with self._lock:
            until, named = self._pods.get(uid, (0.0, ()))
        if self._clock.monotonic() >= until or not any(node in named for node in nodes):
            return False
        self._pause(PAUSE_SECONDS)
        return True

"""Finds pods that filter rejected but that fit now, and makes kube-scheduler try them again.

kube-scheduler tries a rejected pod again after an event that may help it, and otherwise after five minutes
(kubernetes#122022). It can miss the right moment for two reasons:

- An event reaches kube-scheduler before it reaches this cache. The pod is tried again at once, and is rejected again
  because the cache still shows the old state.
- A user's rule depends on something outside the cluster, which changes. The rule can report the change (`wake`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from threading import Lock
from typing import Protocol

from extender.cache.cache import Cache
from extender.errors import DeadlineExceeded
from extender.framework.find_fit import find_fit
from extender.framework.profile import Profiles
from extender.model.meta import NO_LABELS
from extender.model.pod import Pod
from extender.runtime.clock import NO_LIMIT, Clock, TimeLimit
from extender.table import PodInfo

MOST_PODS = 1024
LONGEST_SECONDS = 300.0  # kube-scheduler tries every pod again after this time
WOKEN_SECONDS = 1.0
_MOST_DOUBLED = 6
MOST_AT_ONCE = 32
_ANY = ""  # means every rule


class Activator(Protocol):
    """Makes the scheduler that called filter try a pod again (upstream framework.Handle.Activate)."""

    def activate(self, pod: Pod) -> None:
        """Asks the scheduler to try the pod again. Raises no error, even if the request fails."""


@dataclass(slots=True)
class _Refused:
    """A rejected pod: its key, its labels, and the rules that rejected it.

    Attributes:
        at: when the pod was rejected, in monotonic seconds.
        looked: True if the pod was checked because `after_seconds` had passed.
        woken: True if `wake` was called for one of the rules, and the pod has not been checked since.
        fitted: how often the pod fitted at a check.
        taken: True if `take` has returned the pod.
    """

    key: str
    labels: Mapping[str, str]
    rules: Collection[str]
    at: float
    looked: bool = False
    woken: bool = False
    fitted: int = 0
    taken: bool = False


class RefusedPods:
    """Remembers rejected pods, and checks each pod again `after_seconds` after the rejection.

    If `wake` is called for a pod, its check is already due one second after the rejection. If `after_seconds` is 0,
    only `wake` and `wake_all` cause checks.

    A pod that fits at a check may be rejected again all the same, for example because kube-scheduler's own filters
    refuse the node. Each time this happens, both delays double for the pod. The shorter one grows to a minute at most.

    Attributes:
        wakes: the number of calls of `wake` and `wake_all` so far.
    """

    def __init__(
        self, cache: Cache, profiles: Profiles, clock: Clock, after_seconds: float, limit: TimeLimit = NO_LIMIT
    ) -> None:
        self._cache = cache
        self._profiles = profiles
        self._clock = clock
        self._after_seconds = after_seconds
        self._limit = limit
        self._lock = Lock()
        self._pods: OrderedDict[str, _Refused] = OrderedDict()
        self._last_wake: dict[str, int] = {}
        self.wakes = 0

    def note(self, pod: Pod, *, refused: bool, rules: Collection[str] = (), wakes: int = 0) -> None:
        """Records filter's answer about a pod.

        Args:
            refused: True if every node was rejected.
            rules: the rules that rejected a node.
            wakes: the value of `self.wakes` before filter decided. A call of `wake` since then counts for this pod.
        """
        with self._lock:
            earlier = self._pods.pop(pod.uid, None)
            if refused:
                woken = any(self._last_wake.get(rule, 0) > wakes for rule in (_ANY, *rules))
                fitted = earlier.fitted if earlier else 0
                self._pods[pod.uid] = _Refused(
                    pod.key, pod.labels, rules, self._clock.monotonic(), woken=woken, fitted=fitted
                )
                if len(self._pods) > MOST_PODS:
                    self._pods.popitem(last=False)

    def wake(self, rule: str, namespace: str | None = None, labels: Mapping[str, str] = NO_LABELS) -> None:
        """Schedules a check of the pods that the rule rejected, because something that the rule reads has changed.

        Args:
            namespace: only pods of this namespace; None means any namespace.
            labels: only pods that have these labels.
        """
        with self._lock:
            self.wakes += 1
            self._last_wake[rule] = self.wakes
            for pod in self._pods.values():
                named = namespace in (None, pod.key.partition("/")[0]) and labels.items() <= pod.labels.items()
                pod.woken = pod.woken or (named and rule in pod.rules)

    def wake_all(self) -> None:
        """Schedules a check of every pod, because the rules have changed."""
        with self._lock:
            self.wakes += 1
            self._last_wake[_ANY] = self.wakes
            for pod in self._pods.values():
                pod.woken = True

    def fitting(self) -> Iterator[Pod]:
        """Yields the pods that are due for a check and fit a node now. Checks at most MOST_AT_ONCE pods."""
        for uid, key in self._due():
            info = self._cache.find_pod(uid, key)
            if info is None or self._cache.placement(uid) is not None:
                self._forget(uid)
                continue
            if self._fits(info):
                self._fitted(uid)
                yield info.pod

    def take(self, rules: Set[str]) -> list[tuple[str, str]]:
        """Returns (UID, namespace/name) of pods that any of `rules` rejected, at most MOST_AT_ONCE pods.

        Each pod is returned only once after a rejection, unless `give_back` is called for it. Pods rejected less than a
        second ago are left out, so that kube-scheduler can preempt for them first.
        """
        latest = self._clock.monotonic() - WOKEN_SECONDS
        with self._lock:
            refused = ((uid, pod) for uid, pod in self._pods.items() if not pod.taken and pod.at <= latest)
            pods = list(islice(((uid, pod) for uid, pod in refused if not rules.isdisjoint(pod.rules)), MOST_AT_ONCE))
            for _, pod in pods:
                pod.taken = True
        return [(uid, pod.key) for uid, pod in pods]

    def give_back(self, uid: str) -> None:
        """Lets `take` return the pod once more."""
        with self._lock:
            if uid in self._pods:
                self._pods[uid].taken = False

    def _fits(self, info: PodInfo) -> bool:
        """Returns True if a node can take the pod; False if no node can, or if the check takes too long."""
        profile = self._profiles.of(info.pod)
        deadline = self._limit.begin()
        with suppress(DeadlineExceeded), self._cache.snapshot("refused", deadline) as table:
            return len(find_fit(profile, info, table, table.nodes.rows).feasible) > 0
        return False

    def _due(self) -> list[tuple[str, str]]:
        now = self._clock.monotonic()
        with self._lock:
            due = list(islice(((uid, pod) for uid, pod in self._pods.items() if self._is_due(pod, now)), MOST_AT_ONCE))
            for _, pod in due:
                if pod.woken:
                    pod.woken = False
                else:
                    pod.looked = True
        return [(uid, pod.key) for uid, pod in due]

    def _is_due(self, pod: _Refused, now: float) -> bool:
        waited = now - pod.at
        if pod.woken:
            return waited >= WOKEN_SECONDS * (1 << min(pod.fitted, _MOST_DOUBLED))
        wait: float = self._after_seconds * (1 << pod.fitted)
        return not pod.looked and 0 < wait <= LONGEST_SECONDS and waited >= wait

    def _fitted(self, uid: str) -> None:
        with self._lock:
            if uid in self._pods:
                self._pods[uid].fitted += 1

    def _forget(self, uid: str) -> None:
        with self._lock:
            self._pods.pop(uid, None)

"""Pods that filter has refused everywhere, and that may fit by now without the scheduler's knowing.

kube-scheduler tries a refused pod again when an event comes that may help it, and otherwise after five minutes
(kubernetes#122022). An event that reaches the scheduler before it reaches this cache is lost on the pod: it is tried at
once, and refused for what is true no longer. So is what a user's rule reads outside the cluster: the rule may say so.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterator, Set
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from threading import Lock
from typing import Protocol

from extender.cache.cache import Cache
from extender.errors import DeadlineExceeded
from extender.framework.find_fit import find_fit
from extender.framework.profile import Profiles
from extender.model.pod import Pod
from extender.runtime.clock import NO_LIMIT, Clock, TimeLimit
from extender.table import PodInfo

MOST_PODS = 1024
LONGEST_SECONDS = 300.0  # after which kube-scheduler tries every pod again by itself
WOKEN_SECONDS, _MOST_DOUBLED = 1.0, 6
MOST_AT_ONCE = 32
_ANY = ""  # no rule's name


class Activator(Protocol):
    """Has the scheduler that calls this extender try a pod again (upstream framework.Handle.Activate)."""

    def activate(self, pod: Pod) -> None:
        """Brings the pod to the scheduler's notice; it need not succeed."""


@dataclass(slots=True)
class _Refused:
    """A pod by its key, and the rules that refused it.

    Attributes:
        looked: its time came, and it was judged again.
        woken: one of the rules has said since that it may fit.
        fitted: how often it fitted when it was judged again.
        taken: room was to be made for it; see `take`.
    """

    key: str
    rules: Collection[str]
    at: float
    looked: bool = False
    woken: bool = False
    fitted: int = 0
    taken: bool = False


class RefusedPods:
    """Remembers refusals, and judges each pod once more when nobody has asked about it for `after_seconds`.

    A pod that fits then, and is refused again when it is asked about, is one that others refuse: it is given twice the
    time after each such look. One that a rule wakes is judged once a second has passed since its refusal; this time
    doubles too, up to a minute.

    Attributes:
        wakes: the number of times that pods were woken.
    """

    def __init__(
        self, cache: Cache, profiles: Profiles, clock: Clock, after_seconds: float, limit: TimeLimit = NO_LIMIT
    ) -> None:
        self._limit = limit
        self._cache, self._profiles, self._clock, self._after_seconds = cache, profiles, clock, after_seconds
        self._lock = Lock()
        self._pods: OrderedDict[str, _Refused] = OrderedDict()
        self._last_wake: dict[str, int] = {}
        self.wakes = 0

    def note(self, pod: Pod, *, refused: bool, rules: Collection[str] = (), wakes: int = 0) -> None:
        """Takes in what the scheduler was told about the pod: whether every node was refused.

        Args:
            rules: those that refused it somewhere.
            wakes: the number of wakes before it was decided on; one that came meanwhile is not lost.
        """
        with self._lock:
            known = self._pods.pop(pod.uid, None)
            if refused:
                woken = any(self._last_wake.get(rule, 0) > wakes for rule in (_ANY, *rules))
                fitted = known.fitted if known else 0
                self._pods[pod.uid] = _Refused(pod.key, rules, self._clock.monotonic(), woken=woken, fitted=fitted)
                if len(self._pods) > MOST_PODS:
                    self._pods.popitem(last=False)

    def wake(self, rule: str) -> None:
        """Has the pods judged again that the rule refused: what it reads outside the cluster has changed."""
        with self._lock:
            self.wakes += 1
            self._last_wake[rule] = self.wakes
            for pod in self._pods.values():
                pod.woken = pod.woken or rule in pod.rules

    def wake_all(self) -> None:
        """Has every pod judged again: the rules are others."""
        with self._lock:
            self.wakes += 1
            self._last_wake[_ANY] = self.wakes
            for pod in self._pods.values():
                pod.woken = True

    def fitting(self) -> Iterator[Pod]:
        """Yields the pods whose time has come and that fit some node now; judges MOST_AT_ONCE at most."""
        for uid, key in self._due():
            info = self._cache.find_pod(uid, key)
            if info is None or self._cache.placement(uid) is not None:
                self._forget(uid)
                continue
            if self._fits(info):
                self._fitted(uid)
                yield info.pod

    def take(self, rules: Set[str]) -> list[tuple[str, str]]:
        """Returns the pods that one of the rules has refused, as UID and namespace/name, each refusal once.

        They are a second old at least, so that the scheduler has done what it does itself; MOST_AT_ONCE at most.
        """
        latest = self._clock.monotonic() - WOKEN_SECONDS
        with self._lock:
            refused = ((uid, pod) for uid, pod in self._pods.items() if not pod.taken and pod.at <= latest)
            taken = list(islice(((uid, pod) for uid, pod in refused if not rules.isdisjoint(pod.rules)), MOST_AT_ONCE))
            for _, pod in taken:
                pod.taken = True
        return [(uid, pod.key) for uid, pod in taken]

    def give_back(self, uid: str) -> None:
        """Has `take` return the pod again."""
        with self._lock:
            if uid in self._pods:
                self._pods[uid].taken = False

    def _fits(self, info: PodInfo) -> bool:
        """Returns whether some node can take the pod; one that takes too long to judge is left alone."""
        profile, deadline = self._profiles.of(info.pod), self._limit.begin()
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

"""The part that `serve` and `schedule` share: a cache that a feed fills, what looks after it, and its pages.

A process answers once its cache is filled, while its watches are alive, and once no binding of a process before it can
be in flight.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict

from extender.app.feed import ClusterFeed, Staleness
from extender.app.housekeeping import REPAIR_SECONDS, compare, limit_process, relist_interrupted
from extender.app.live import announcement
from extender.app.policies import PolicyReload
from extender.app.recording.observation import Observation
from extender.app.ui import live_pages, simulation_handler
from extender.cache.cache import Cache
from extender.cache.debugger import Comparer, dump
from extender.cache.expiry import ASK_AGAIN_SECONDS
from extender.cluster.election.elector import Reconciliation
from extender.config.settings import Settings
from extender.errors import ClusterError, ExtenderError
from extender.framework.profile import Profiles
from extender.policy.policy import Policy, parsed
from extender.runtime import memory
from extender.runtime.bindings_in_flight import BindingInFlight
from extender.runtime.clock import Clock, TimeLimit
from extender.runtime.threads import Ticker
from extender.web.access import CONFIGZ, SIMULATE
from extender.web.pages import COMPARE, DUMP, LOG_LEVEL, PrivatePages, change_log_level, configz, when_ready
from extender.web.telemetry.metrics import Metrics
from extender.web.telemetry.start_log import Command

_AGAIN_SECONDS = 1.0
_log = logging.getLogger(__name__)


class Readiness:
    """Waits until every kind is listed, and has `prepare` run after the first time; asked at every call."""

    def __init__(self, missing: Callable[[], Sequence[str]], prepare: Callable[[], None]) -> None:
        self._missing, self._prepare = missing, prepare
        self._lock = threading.Lock()
        self._prepared = False

    def waiting_for(self) -> str:
        """Returns what it waits for; "": the cache holds a whole cluster, and was prepared."""
        if missing := self._missing():
            return f"waiting for the {'' if self._prepared else 'first '}list of {', '.join(missing)}"
        if not self._prepared:
            with self._lock:
                if not self._prepared:
                    self._prepare()
                    self._prepared = True
        return ""


def take_over(cache: Cache, left: Iterable[BindingInFlight]) -> None:
    """Counts pods where a worker before was binding them, until the watch tells, or they expire."""
    for binding, _ in left:
        info = cache.find_pod(binding.uid, binding.key)
        if info is not None and cache.placement(binding.uid) is None:
            with suppress(ExtenderError):  # the node is gone
                cache.assume(info, binding.node)
                cache.finish_binding(binding.uid, certain=False)
                _log.warning("%s may have been bound to %s by the worker before", binding.key, binding.node)


class Settling:
    """Has nothing bound until the cache has been told of all that a process before may have bound.

    Nobody knows to which nodes that process was binding pods. So where pods wait, a start waits for as long as a call
    may take, and then for the watch to tell of what a list shows.
    """

    def __init__(self, cache: Cache, ready: Readiness, reconcile: Reconciliation, clock: Clock, seconds: float) -> None:
        """`seconds`: how long a call may be in flight; 0 waits for nothing."""
        self._cache, self._ready, self._reconcile, self._clock = cache, ready, reconcile, clock
        self._arrived_at = self._ask_at = clock.monotonic() + seconds
        self._settled = not seconds
        self._pods_wait = False
        self._is_told: Callable[[], bool] | None = None

    def waiting_for(self) -> str:
        """Returns what it waits for; "": nothing, or the cache."""
        if self._settled or self._ready.waiting_for():
            return ""
        if not self._pods_wait:
            self._pods_wait = any(not held.node_name for held in self._cache.view.pods().values())
            self._settled = not self._pods_wait
            return self.waiting_for()
        left = max(0.0, self._arrived_at - self._clock.monotonic())
        return f"a binding of a process before may still arrive, for {left:.0f} s yet"

    def advance(self) -> None:
        """Asks how far the API server is once it is time; to be called now and then.

        And again, for an API server that is restored from a copy may never get to what it has shown.
        """
        now = self._clock.monotonic()
        if self._settled or not self._pods_wait or now < self._arrived_at:
            return
        try:
            if now >= self._ask_at:
                self._is_told, self._ask_at = None, now + _AGAIN_SECONDS
                self._is_told, self._ask_at = self._reconcile(), now + ASK_AGAIN_SECONDS
            self._settled = self._is_told is not None and self._is_told()
        except ClusterError as error:
            _log.warning("nobody can tell what a process before has bound, asked again: %s", error)


class CacheProcess:
    """A process that follows a cluster: settings and a policy first, then `_follow` with what they call for.

    Raises:
        ConfigurationError, OSError: it cannot be set up.
    """

    def __init__(
        self, command: Command, settings: Settings, metrics: Metrics, clock: Clock, stopping: threading.Event
    ) -> None:
        self._command, self._settings, self._clock, self._stopping = command, settings, clock, stopping
        self._limit = TimeLimit(clock, settings.decision_seconds)  # of decisions, for calls, loop and pages alike
        self._observed = Observation(settings, command, metrics, clock)
        self._reload = PolicyReload(settings, metrics, self._tell_of_policy)
        self._policy = self._reload.read()
        self._features = parsed(settings.feature_gates, self._policy.features)
        self._tickers: tuple[Ticker, ...] = ()

    def _follow(
        self, cache: Cache, feed: ClusterFeed, profiles: Profiles, metrics: Metrics, prepare: Callable[[], None],
        *, settle: bool,
    ) -> None:  # fmt: skip
        """Makes what looks after the cache.

        Args:
            prepare: is called once the cache is filled.
            settle: a process before may have bound pods that nobody knows of.
        """
        self._cache, self._feed, self._profiles, settings, clock = cache, feed, profiles, self._settings, self._clock
        metrics.observe(lambda: asdict(cache.size()), feed.leading)
        self._announcement = announcement(self._command, settings, profiles.all, self._features)
        self._ready = ready = Readiness(feed.missing, prepare)
        self._settling = Settling(cache, ready, feed.reconcile, clock, settings.settle_seconds if settle else 0.0)
        self._freshness = Staleness(metrics.staleness, settings.max_staleness_seconds)
        self._comparer = comparer = Comparer(cache, feed.lister, metrics, self._stopping.wait)
        self._comparing = Ticker("comparer", settings.compare_seconds, self._if_ready(lambda: compare(comparer)))
        self._reloading = Ticker("policy", settings.policy_reload_seconds, lambda: self._reload.look(self._adopt))
        self._giving_back = Ticker("memory", memory.GIVE_BACK_SECONDS, memory.give_back)
        self._collecting = Ticker("collector", memory.COLLECT_SECONDS, memory.collect_young)
        self._repairing = Ticker("repair", REPAIR_SECONDS, lambda: relist_interrupted(cache, feed.lister))
        self._following = (self._comparing, self._reloading, self._giving_back, self._collecting, self._repairing)

    def _start_following(self) -> None:
        limit_process()
        self._observed.start()
        self._announcement.start()
        self._feed.start()
        self._comparing.start()
        self._giving_back.start()
        self._collecting.start()
        self._repairing.start()
        if self._settings.policy is not None:
            self._reloading.start()

    def _stop_following(self, timeout_seconds: float) -> None:
        self._feed.stop()  # first, for that ends the calls that the others may be waiting for
        for ticker in self._following:
            ticker.stop(timeout_seconds)
        self._announcement.stop(timeout_seconds)
        self._observed.stop()

    def compare(self) -> None:
        """Has the cache compared with the API server soon; safe in a signal handler."""
        self._comparing.wake()

    def read_policy_again(self) -> None:
        """Has the policy read again soon; safe in a signal handler."""
        self._reload.request()
        self._reloading.wake()

    def revive(self) -> list[str]:
        """Starts threads again that have ended; returns their names."""
        tickers = (*self._tickers, *self._following)
        revived = [ticker.name for ticker in tickers if ticker.revive()]
        return [*self._feed.revive(), *self._observed.revive(), *revived]

    def private_pages(self, **options: object) -> PrivatePages:
        """Returns what only this machine, or a client with a certificate, may see or do; `options`: see `configz`."""
        cache, profiles, out_of_sync = self._cache, self._profiles, self._ready.waiting_for
        pages = {CONFIGZ: configz(self._settings, **options), DUMP: when_ready(lambda: dump(cache), out_of_sync)}
        actions = {COMPARE: when_ready(self._comparer.compare, out_of_sync), LOG_LEVEL: change_log_level}
        asked = cache, profiles, out_of_sync, self._limit
        takers = {SIMULATE: simulation_handler(*asked)} if self._settings.simulate else {}
        return PrivatePages({**pages, **live_pages(*asked), **self._observed.pages}, actions, takers)

    def _if_ready(self, action: Callable[[], object]) -> Callable[[], object]:
        """Returns the action, which does nothing where the cache is not filled."""
        return lambda: None if self._ready.waiting_for() else action()

    def _leading(self) -> bool:
        return all(self._feed.leading().values())

    def _own_obstacles(self) -> Mapping[str, str]:
        """Returns what stands between this process and readiness, by check; not the lease."""
        cache, settling, watches = self._ready, self._settling, self._freshness
        return {"cache": cache.waiting_for(), "settling": settling.waiting_for(), "watches": watches.waiting_for()}

    def waiting_for(self) -> Mapping[str, str]:
        """Returns what stands between this process and a decision, by check; "" where a check passes."""
        self._feed.await_lead()
        return {**self._own_obstacles(), **self._feed.waiting_for()}

    def _adopt(self, policy: Policy, text: str) -> None:
        """Puts a policy in force; see `policies.reload.Adopt`."""
        raise NotImplementedError

    def _tell_of_policy(self, faults: str) -> None:
        """Hears of each policy that was read again: its faults, or "" where it was adopted."""

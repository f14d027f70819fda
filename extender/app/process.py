"""The part that `serve` and `schedule` share: a cache that a feed fills, what looks after it, and its pages.

A process answers once its cache is filled and the writes of its predecessors are settled, while its watches are alive.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict

from extender.app.feed import ClusterFeed, Staleness
from extender.app.housekeeping import REPAIR_SECONDS, compare, limit_process, relist_interrupted
from extender.app.live import announcement
from extender.app.policies import PolicyReload
from extender.app.recording.observation import Observation
from extender.app.ui import live_pages, simulation_handler
from extender.cache.cache import Cache
from extender.cache.debugger import Comparer, dump
from extender.config.settings import Settings
from extender.framework.profile import Profiles
from extender.policy.policy import Policy, parsed
from extender.runtime import process_memory
from extender.runtime.clock import Clock, TimeLimit
from extender.runtime.threads import Ticker
from extender.web.access import CONFIGZ, SIMULATE
from extender.web.pages import COMPARE, DUMP, LOG_LEVEL, PrivatePages, change_log_level, configz, when_ready
from extender.web.telemetry.metrics import Metrics
from extender.web.telemetry.start_log import Command


class Readiness:
    """Waits until every kind is listed, and has `prepare` run after the first time; asked at every call."""

    def __init__(self, missing: Callable[[], Sequence[str]], prepare: Callable[[], None]) -> None:
        self._missing, self._prepare = missing, prepare
        self._lock = threading.Lock()
        self._prepared = False

    def waiting_for(self) -> str | None:
        """Returns what it waits for; None: the cache holds a whole cluster, and was prepared."""
        if missing := self._missing():
            return f"waiting for the {'' if self._prepared else 'first '}list of {', '.join(missing)}"
        if not self._prepared:
            with self._lock:
                if not self._prepared:
                    self._prepare()
                    self._prepared = True
        return None


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
    ) -> None:  # fmt: skip
        """Makes what looks after the cache; `prepare` is called once the cache is filled."""
        self._cache, self._feed, self._profiles, settings = cache, feed, profiles, self._settings
        metrics.observe(lambda: asdict(cache.size()), feed.leading)
        self._announcement = announcement(self._command, settings, profiles.all, self._features)
        self._ready = Readiness(feed.missing, prepare)
        self._freshness = Staleness(metrics.staleness, settings.max_staleness_seconds)
        self._comparer = comparer = Comparer(cache, feed.lister, metrics, self._stopping.wait)
        self._comparing = Ticker("comparer", settings.compare_seconds, self._if_ready(lambda: compare(comparer)))
        self._reloading = Ticker("policy", settings.policy_reload_seconds, lambda: self._reload.look(self._adopt))
        self._giving_back = Ticker("memory", process_memory.GIVE_BACK_SECONDS, process_memory.give_back)
        self._collecting = Ticker("collector", process_memory.COLLECT_SECONDS, process_memory.collect_young)
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
        return lambda: action() if self._ready.waiting_for() is None else None

    def _leading(self) -> bool:
        return all(self._feed.leading().values())

    def _own_obstacles(self) -> Mapping[str, str | None]:
        """Returns what stands between this process and readiness, by check; not the lease."""
        cache = self._ready.waiting_for()
        settling = self._feed.settling() if cache is None else None
        return {"cache": cache, "settling": settling, "watches": self._freshness.waiting_for()}

    def waiting_for(self) -> Mapping[str, str | None]:
        """Returns what stands between this process and a decision, by check; None where a check passes."""
        self._feed.await_lead()
        return {**self._own_obstacles(), **self._feed.waiting_for()}

    def _adopt(self, policy: Policy, text: str) -> None:
        """Puts a policy in force; see `policies.reload.Adopt`."""
        raise NotImplementedError

    def _tell_of_policy(self, faults: str) -> None:
        """Hears of each policy that was read again: its faults, or "" where it was adopted."""

"""Runs what `serve` and `schedule` have in common: filling the cache, periodic tasks, memory and threads, and pages.

A process first creates a `Setup`, then its cache, its feed and its profiles, and last the `Upkeep`, which holds all of
them. The process answers calls once its cache is filled and it knows the outcome of all writes of earlier processes. It
stops answering if its watches stop delivering.

`orders` says in which order time limits must end, and why; in the wrong order, one limit can starve another. Each limit
is defined where it is used. A test holds every row for the defaults, and docs/faults.md repeats the table. A process
whose settings break an order logs a warning.
"""

from __future__ import annotations

import faulthandler
import gc
import logging
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from math import inf
from typing import NamedTuple

from extender.app.feed import HAND_OVER_SECONDS, LEAD_SECONDS, RELIST_SECONDS, ClusterFeed, Staleness, timing_of
from extender.app.live_lookups import FollowedVersion, announcement, version_to_follow
from extender.app.live_pages import live_pages, simulation_handler
from extender.app.observation import Observation
from extender.app.policies import Adopt, PolicyReload, PolicyReloaded, PolicyTrial
from extender.cache.cache import Cache
from extender.cache.changes import Changes
from extender.cache.debugger import TABLE, Comparer, dump
from extender.cache.expiry import SURVEY_SECONDS, Expiry
from extender.cache.pod_states import is_bound
from extender.cluster.kube_client import CALL_SECONDS, CONNECT_SECONDS
from extender.cluster.statuses import ApiStatuses
from extender.cluster.watch.api_objects import LIST_SILENCE_SECONDS
from extender.cluster.watch.reflector import DELETION_SECONDS
from extender.cluster.watch.source import WATCH_SILENCE_SECONDS
from extender.cluster.watch.survey import LONGEST_INTERVAL_SECONDS, PATIENCE_SECONDS
from extender.config.settings import Command, Settings
from extender.errors import ClusterError
from extender.framework.permit import Permits
from extender.framework.profile import Profiles
from extender.model.extender_config import DEFAULT_TIMEOUT_SECONDS
from extender.model.meta import Object
from extender.plugins.users.rule_calls import end_abandoned
from extender.policy.policy import Policy, parsed
from extender.runtime import process
from extender.runtime.clock import Clock, TimeLimit
from extender.runtime.ports import Lister, Telemetry
from extender.runtime.threads import HangingCalls, Ticker
from extender.table.features import FeatureGates
from extender.verbs.verb import SECONDS as CONFIRMATION_SECONDS
from extender.web.access import CONFIGZ, SIMULATE
from extender.web.app import COMPARE, DUMP, LOG_LEVEL, PrivatePages, change_log_level, configz, when_ready
from extender.web.metrics import Metrics

POLICY_SECONDS = 5.0  # between two checks if the policy has changed
_log = logging.getLogger(__name__)

BOOKMARK_SECONDS = 60.0  # kube-apiserver sends a bookmark about this often
HOUSEKEEPING_SECONDS = 1.0
WAITING_SECONDS = 0.2  # the time between two checks of pods that wait between their decision and their bind
UNANSWERED_SECONDS = 30.0  # the time to live after a bind without an answer, if assumedTtlSeconds is 0
REVIVAL_SECONDS = 60.0  # the time between two restarts of ended threads; a probe of /livez restarts them sooner
REPAIR_SECONDS = 30.0
VERSION_SECONDS = 60.0  # the time between two questions for the version of the API server
STATUSES_SECONDS = 30.0
FROZEN_SECONDS = 20.0  # less than gunicorn waits for a worker, so that the line is known when the worker is ended
# A thread gives up the GIL after this time. With Python's 5 ms, binders and calls would wait too long for it.
SWITCH_SECONDS = 0.001
COMPARE_SECONDS = 300.0  # between two comparisons of the cache with the API server


class Readiness:
    """Reports if every kind is listed. Calls `prepare` once, when all kinds are listed for the first time."""

    def __init__(self, missing: Callable[[], Sequence[str]], prepare: Callable[[], None]) -> None:
        self._missing = missing
        self._prepare = prepare
        self._lock = threading.Lock()
        self._prepared = False

    def waiting_for(self) -> str | None:
        """Returns why the cache cannot be used yet; None if it can. Every call of kube-scheduler runs this check."""
        if missing := self._missing():
            return f"waiting for the {'' if self._prepared else 'first '}list of {', '.join(missing)}"
        if not self._prepared:
            with self._lock:
                if not self._prepared:
                    self._prepare()
                    self._prepared = True
        return None


class Setup:
    """The parts of a process that are created before its cache.

    Attributes:
        settings: the settings of the process, with the version of Kubernetes that is followed.
        stopping: set when the process must end.
        limit: the time limit of each decision, for calls, the loop and pages alike.
        hanging: observes all binds and all calls of users' rules, and logs those that take too long.
        policy: the policy as it was read at the start.
        features: the feature gates at the start, from the settings and the policy.
        is_version_chosen: True if a user has chosen the version of Kubernetes, in the settings or in the policy.
    """

    def __init__(
        self,
        command: Command,
        settings: Settings,
        metrics: Metrics,
        clock: Clock,
        stopping: threading.Event,
        policy_reloaded: PolicyReloaded = lambda _faults: None,
    ) -> None:
        """Reads the policy, asks the cluster for its version, and prepares the recording.

        Raises:
            ConfigurationError, OSError: the policy, the credentials or the recording cannot be used.
        """
        self.command: Command = command
        self.metrics = metrics
        self.clock = clock
        self.stopping = stopping
        self.hanging = HangingCalls(clock)
        self.reload = PolicyReload(settings, metrics, policy_reloaded, clock, self.hanging)
        self.policy = self.reload.read()
        self.is_version_chosen = (settings.chosen_version or self.policy.features.choices.version) is not None
        self.settings = settings = version_to_follow(settings, self.policy)
        self.observation = Observation(settings, command, metrics, clock)
        self.limit = TimeLimit(clock, settings.decision_seconds)
        self.features = parsed(settings.feature_gates, self.policy.features, settings.chosen_version)


class Upkeep:
    """Fills the cache of a process and keeps it correct, between `start` and `stop`.

    Attributes:
        tickers: all periodic background tasks, including those that `compare` and `read_policy_again` wake.
    """

    def __init__(
        self,
        setup: Setup,
        cache: Cache,
        feed: ClusterFeed,
        profiles: Profiles,
        prepare: Callable[[], None],
        adopt: Adopt,
        follow: Callable[[FeatureGates], None],
    ) -> None:
        """Lets the metrics observe the cache.

        Args:
            prepare: called once, when the cache is filled for the first time.
            adopt: puts a changed policy in force.
            follow: makes decisions follow another version of Kubernetes.
        """
        settings, metrics = setup.settings, setup.metrics
        metrics.observe(lambda: asdict(cache.size()), feed.leading)
        self.setup = setup
        self.cache = cache
        self.feed = feed
        self.profiles = profiles
        self._readiness = Readiness(feed.missing, prepare)
        self._staleness = Staleness(metrics.staleness, settings.max_staleness_seconds)
        self._comparer = Comparer(cache, feed.lister, metrics, setup.stopping.wait)
        self._announcement = announcement(setup.command, settings, profiles.all, setup.features)
        trial = PolicyTrial(setup.command, cache, profiles, setup.clock, settings.decision_seconds)

        def adopt_if_tried(policy: Policy, text: str) -> None:
            trial.check(policy)
            adopt(policy, text)

        def follow_and_record(features: FeatureGates) -> None:
            follow(features)
            setup.observation.version_changed(features.version)

        self.version = FollowedVersion(settings, setup.policy, follow_and_record, is_chosen=setup.is_version_chosen)
        ticker = partial(Ticker, on_error=metrics.task_failed)
        self._comparing = ticker("comparer", COMPARE_SECONDS, self.if_ready(lambda: compare(self._comparer)))
        self._reloading = ticker("policy", POLICY_SECONDS, lambda: setup.reload.look(adopt_if_tried))
        self.tickers = (
            self._comparing,
            self._reloading,
            ticker("memory", process.GIVE_BACK_SECONDS, process.give_back),
            ticker("collector", process.COLLECT_SECONDS, process.collect_young),
            ticker("kubernetes version", VERSION_SECONDS, self.version.look),
            ticker("hanging calls", HOUSEKEEPING_SECONDS, setup.hanging.log),
            ticker("rule calls", HOUSEKEEPING_SECONDS, RuleCalls(setup.clock, metrics).look),
            ticker("repair", REPAIR_SECONDS, lambda: relist_interrupted(cache, feed.lister)),
        )

    def start(self) -> None:
        limit_process()
        warn(self.setup.settings)
        self.setup.observation.start()
        self._announcement.start()
        self.feed.start()
        for ticker in self.tickers:
            if ticker is not self._reloading or self.setup.settings.policy is not None:
                ticker.start()

    def stop(self, timeout_seconds: float) -> None:
        """Stops everything. Waits at most `timeout_seconds` for each thread."""
        self.feed.stop()  # the feed stops first, because that ends API calls for which other threads may wait
        for ticker in self.tickers:
            ticker.stop(timeout_seconds)
        faulthandler.cancel_dump_traceback_later()
        self._announcement.stop(timeout_seconds)
        self.setup.observation.stop()

    def compare(self) -> None:
        """Requests a comparison of the cache with the API server. A signal handler may call it."""
        self._comparing.wake()

    def read_policy_again(self) -> None:
        """Requests that the policy is read again. A signal handler may call it."""
        self.setup.reload.request()
        self._reloading.wake()

    def revive(self) -> list[str]:
        """Restarts threads that have ended; returns their names."""
        return [*self.feed.revive(), *self.setup.observation.revive(), *revive_tickers(self.tickers)]

    def private_pages(self) -> PrivatePages:
        """Returns the pages and actions that only this machine and clients with a certificate may use."""
        setup, waiting_for = self.setup, self._readiness.waiting_for
        pages = {
            CONFIGZ: configz(lambda: self.version.settings, setup.command),
            DUMP: when_ready(lambda: dump(self.cache), waiting_for),
            **live_pages(self.cache, self.profiles, waiting_for, setup.limit),
            **setup.observation.pages,
        }
        actions = {COMPARE: when_ready(self._comparer.compare, waiting_for), LOG_LEVEL: change_log_level}
        if not setup.settings.simulate:
            return PrivatePages(pages, actions)
        simulate = simulation_handler(self.cache, self.profiles, waiting_for, setup.limit)
        return PrivatePages(pages, actions, {SIMULATE: simulate})

    def if_ready(self, action: Callable[[], object]) -> Callable[[], object]:
        """Returns a function that calls `action` if the cache is filled, and otherwise does nothing."""
        return lambda: action() if self._readiness.waiting_for() is None else None

    def leading(self) -> bool:
        """Returns True if this process leads, or if there is no election."""
        return all(self.feed.leading().values())

    def own_obstacles(self) -> Mapping[str, str | None]:
        """Returns, for each readiness check except the lease, the reason why it fails; None if the check passes."""
        cache = self._readiness.waiting_for()
        settling = self.feed.settling() if cache is None else None
        return {"cache": cache, "settling": settling, "watches": self._staleness.waiting_for()}

    def waiting_for(self) -> Mapping[str, str | None]:
        """Returns for each check the reason why this process must not schedule yet; None if the check passes."""
        self.feed.await_lead()
        return {**self.own_obstacles(), **self.feed.waiting_for()}


def revive_tickers(tickers: Sequence[Ticker]) -> list[str]:
    """Restarts the tickers whose threads have ended; returns their names."""
    return [ticker.name for ticker in tickers if ticker.revive()]


class Order(NamedTuple):
    """Two limits in seconds, of which the first must not be longer than the second."""

    shorter: str
    shorter_seconds: float
    longer: str
    longer_seconds: float
    reason: str


def orders(settings: Settings) -> tuple[Order, ...]:
    """Returns the orders that must hold, with the limits of `settings`."""
    settle, stale = settings.settle_seconds, settings.max_staleness_seconds or inf
    unanswered = max(settings.assumed_ttl_seconds or UNANSWERED_SECONDS, settle)
    wrong = LONGEST_INTERVAL_SECONDS + LIST_SILENCE_SECONDS + PATIENCE_SECONDS
    survey = LIST_SILENCE_SECONDS + PATIENCE_SECONDS
    scheduler = DEFAULT_TIMEOUT_SECONDS
    timing = timing_of(settings)
    renewal, term, lease = timing.call_seconds, timing.renew_deadline_seconds, timing.lease_duration_seconds
    return (
        Order("a renewal", renewal, "a term without another", term, "one call that hangs does not end the term"),
        Order("a term without another", term, "leaseDurationSeconds", lease, "a leader ends before another begins"),
        Order("dialling", CONNECT_SECONDS, "a call", CALL_SECONDS, "a call that could not be sent is refused in time"),
        Order("a call", CALL_SECONDS, "settleSeconds", settle, "nothing is sent after the deadline of a write"),
        Order("settleSeconds", settle, "an unanswered bind's place", unanswered, "the place outlives the write"),
        Order("a survey's list and its patience", survey, "deletions", DELETION_SECONDS, "a survey finds deletions"),
        Order("a list's silence", LIST_SILENCE_SECONDS, "listing again", RELIST_SECONDS, "no slow list ends a term"),
        Order("the time until a wrong cache is known", wrong, "maxStalenessSeconds", stale, "surveys keep kinds fresh"),
        Order("bookmarks", BOOKMARK_SECONDS, "a silent watch", WATCH_SILENCE_SECONDS, "a quiet watch stays open"),
        Order("expiry's lists", SURVEY_SECONDS, "an unanswered bind's place", unanswered, "a place is given back soon"),
        Order("waiting for the watch", CONFIRMATION_SECONDS, "kube-scheduler's call", scheduler, "bind answers soon"),
        Order("waiting to lead", LEAD_SECONDS, "kube-scheduler's call", scheduler, "a standby answers in time"),
        Order("handing over", HAND_OVER_SECONDS, "a call", CALL_SECONDS, "an end does not wait for a call that hangs"),
    )


def warn(settings: Settings) -> None:
    """Logs each order that the settings break, because a promise of docs/faults.md does not hold then."""
    for order in orders(settings):
        if order.shorter_seconds > order.longer_seconds:
            shorter = f"{order.shorter}: {order.shorter_seconds:g} s"
            longer = f"{order.longer}: {order.longer_seconds:g} s"
            _log.warning("a time limit is too short shorter=%r longer=%r needed=%r", shorter, longer, order.reason)


def limit_process() -> None:
    """Limits garbage collection, the free memory that the C library keeps, and how long a thread waits for the GIL."""
    sys.setswitchinterval(SWITCH_SECONDS)
    gc.set_threshold(*process.GC_THRESHOLDS)
    process.PAUSES.start()
    process.limit()


def prepare(cache: Cache, tables: int = 1) -> None:
    """Builds the tables that decisions read, and tunes memory allocation for the number of cached nodes."""
    process.limit(cache.size().nodes)
    cache.refresh(tables)
    gc.freeze()  # most of the listed objects live long, so they are exempted from garbage collection
    process.use_huge_pages()


def create_cache(
    settings: Settings, clock: Clock, telemetry: Telemetry, features: FeatureGates, changes: Changes | None
) -> Cache:
    """Returns an empty cache. A pod stays assumed at least as long as its bind may be in flight."""
    seconds, settle_seconds = settings.assumed_ttl_seconds, settings.settle_seconds
    unanswered_seconds = max(seconds or UNANSWERED_SECONDS, settle_seconds)
    cache = Cache(clock, telemetry, unanswered_seconds if seconds else 0.0, features, changes, unanswered_seconds)
    if settings.coscheduling:
        cache.groups.use_coscheduling_label()
    return cache


class RuleCalls:
    """Ends calls of users' rules long after their deadline, and warns of those that run on.

    C code that keeps the interpreter to itself, as a regular expression does, stops all threads of the process. Then a
    thread of C writes to stderr where each of them is.
    """

    def __init__(self, clock: Clock, telemetry: Telemetry) -> None:
        self._clock = clock
        self._telemetry = telemetry
        self._known = 0

    def look(self) -> None:
        faulthandler.dump_traceback_later(FROZEN_SECONDS, file=2)
        stuck = end_abandoned(self._clock.monotonic())
        self._telemetry.rule_calls_stuck(len(stuck))
        if len(stuck) > self._known:
            places = ", ".join(sorted({f"{rule} ({place})" if place else rule for rule, place in stuck}))
            _log.warning("rule calls cannot be ended, restart the process calls=%d rules=%r", len(stuck), places)
        self._known = len(stuck)


def let_expire(expiry: Expiry, consequence: str) -> None:
    """Expires the assumed pods whose time to live has ended, and logs each of them.

    `consequence` says in the log what happens to an expired pod next.
    """
    try:
        expired = expiry.sweep()
    except ClusterError as error:
        _log.warning("assumed pods kept beyond their time, because pods cannot be listed reason=%r", str(error))
        return
    for key in expired:
        _log.warning("assumed pod expired, no watch or list shows its bind pod=%s consequence=%r", key, consequence)


def relist_interrupted(cache: Cache, lister: Lister[Object]) -> None:
    """If an error interrupted a change in the cache, lists all objects of that kind again to repair the cache."""
    for kind in cache.interrupted_kinds():
        if kind in lister.kinds():
            lister.relist(kind, "an error interrupted a change of an object of this kind in the cache")


def forget_statuses(cache: Cache, statuses: ApiStatuses) -> None:
    """Forgets the statuses that were written for pods that have since been bound or deleted."""
    statuses.forget_others({uid for uid, pod in cache.pods().items() if not pod.node_name})


def settle(permits: Permits, cache: Cache) -> None:
    """Undoes the reservations of users' rules for pods whose bind got no answer and has failed.

    The reservations stay if the cache shows that the pod was bound, or while the outcome is unknown.
    """
    permits.settle(lambda uid, node_name: is_bound(cache.placement(uid), node_name))


def compare(comparer: Comparer) -> None:
    """Compares the cache with the API server, and logs a summary."""
    report = comparer.compare()
    tables = report.compared.get(TABLE, 0)
    _log.info(
        "cache compared objects=%d kinds=%d tables=%d differences=%d undecided=%d",
        sum(report.compared.values()) - tables,
        len(report.compared) - 1,
        tables,
        len(report.differences),
        len(report.undecided),
    )
    for kind, reason in report.unlisted.items():
        _log.warning("kind not compared kind=%s reason=%r", kind, reason)

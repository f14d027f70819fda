"""The composition root of `extender serve`: a webhook over one cache, in the order of the start."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

from extender.app.feed import ClusterFeed, FeedFactory, feed_factory_of
from extender.app.housekeeping import (
    HOUSEKEEPING_SECONDS,
    REVIVAL_SECONDS,
    activate,
    compare,
    let_expire,
    limit_process,
    preempt,
    prepare,
    refresh,
    settle,
)
from extender.app.live import announcement
from extender.app.policies import policy_of
from extender.app.policies.reload import PolicyReload, held_by, refuse_changes
from extender.app.readiness import Readiness, Settling, Staleness, take_over
from extender.app.recording.observation import Observation
from extender.app.ui import SIMULATE, live_pages, simulation_handler
from extender.app.writers import PreemptionWriters
from extender.cache.cache import Cache
from extender.cache.debugger.comparer import Comparer
from extender.cache.debugger.dump import dump
from extender.cache.expiry import Expiry
from extender.cluster.election.fence import LeaderBinder
from extender.cluster.http.credentials import credentials_of
from extender.cluster.http.kube_client import KubeClient
from extender.config.settings import Settings
from extender.errors import ConfigurationError
from extender.extender_v1.decoding import NamesReader
from extender.framework.permit import Permits
from extender.framework.profile import Profiles
from extender.plugins.users import put_in_force
from extender.policy.feature_gates import parsed
from extender.policy.policy import Policy
from extender.runtime.bindings_in_flight import BindingInFlight, BindingsInFlight, NotedBinder
from extender.runtime.clock import Clock, SystemClock, TimeLimit
from extender.runtime.ports import Binder, Telemetry
from extender.runtime.ticker import Ticker
from extender.verbs.bind import Bind, PermitWait
from extender.verbs.filter import Filter
from extender.verbs.preempt import Preempt
from extender.verbs.preemptors import RecentPreemptors
from extender.verbs.prioritize import Prioritize, Scale
from extender.verbs.refused_pods import RefusedPods
from extender.verbs.verb import Verb
from extender.web import server
from extender.web.app import Backend, ExtenderApp, create_app
from extender.web.debug import Debug, is_loopback
from extender.web.telemetry import log
from extender.web.telemetry.metrics import Metrics
from extender.web.telemetry.tracing import traces_of

END_SECONDS = 1.0  # how long the line of the start is waited for at the end, if it is not written yet

_log = logging.getLogger(__name__)


def serve(settings: Settings) -> None:
    """Serves until SIGTERM or SIGINT, then exits the process.

    Raises:
        ConfigurationError, MalformedCluster, OSError: before anything is served.
    """
    log.configure(settings.log_format, settings.log_level)
    _check_callers(settings)
    policy = policy_of(settings.policy, settings.provider, kubeconfig=settings.kubeconfig)
    parsed(settings.feature_gates, policy.features)
    factory = feed_factory_of(settings)
    in_flight = BindingsInFlight()
    server.serve(settings, lambda: application(settings, factory, in_flight))


def _check_callers(settings: Settings) -> None:
    """Raises ConfigurationError where everybody may call, and nobody has said so; warns of a CA that lets many call."""
    host = settings.bind.rpartition(":")[0].strip("[]")
    local = host == "localhost" or is_loopback(host)
    if not (local or settings.tls_cert or settings.insecure_bind):
        raise ConfigurationError(
            [f"bind: {settings.bind} is beyond loopback, give tlsCert, tlsKey and clientCa (or insecureBind: true)"]
        )
    if settings.client_ca and not settings.client_names:
        _log.warning("clientCa without clientNames: every certificate that the CA has signed may bind pods")


def build(settings: Settings) -> ExtenderApp:
    """Returns the WSGI application for a gunicorn of one's own. Raises what `serve` raises."""
    log.configure(settings.log_format, settings.log_level)
    return application(settings, feed_factory_of(settings), BindingsInFlight())


def application(settings: Settings, factory: FeedFactory, in_flight: BindingsInFlight) -> ExtenderApp:
    """Returns the application over one cache, which is filled once it is started."""
    process = WebhookProcess(settings, factory, in_flight)
    return create_app(process.backend(), settings, process.metrics)


class WebhookProcess:
    """Everything that `extender serve` runs."""

    def __init__(self, settings: Settings, factory: FeedFactory, in_flight: BindingsInFlight) -> None:
        self._settings, clock, left = settings, SystemClock(), in_flight.take_over()
        self.metrics = metrics = Metrics(clock, version("extender"))
        self._observed = observed = Observation(settings, "serve", metrics, clock)
        self._reload = PolicyReload(settings, metrics)
        self._policy = policy = self._reload.read()
        features = parsed(settings.feature_gates, policy.features)
        self._cache = cache = Cache(clock, metrics, settings.assumed_ttl_seconds, features, observed.changes)
        self._feed = feed = factory(cache, metrics, clock)
        metrics.observe(lambda: asdict(cache.size()), feed.leading)
        self._profiles = profiles = Profiles(policy.profiles, features)
        self._traces = traces_of(os.environ)
        self._announcement = announcement("serve", settings, profiles.all, features)
        binder, permits = NotedBinder(LeaderBinder(feed.binder, feed.fence), in_flight), Permits(cache.snapshot)
        limit = TimeLimit(clock, settings.decision_seconds)
        self._refused = refused = RefusedPods(cache, profiles, clock, settings.activate_after_seconds, limit)
        self._preempting = _preempting(settings, cache, profiles, feed, metrics, clock)
        put_in_force(profiles.all, refused.wake)
        self._verbs = observed.verbs(verbs_over(cache, profiles, binder, metrics, settings, refused, permits))

        self._ready = ready = Readiness(feed.missing, lambda: self._prepare(left))
        known = feed.leading() or settings.cluster or in_flight.taken_over  # what a process before has left
        self._settling = Settling(cache, ready, feed.survey, clock, 0.0 if known else settings.settle_seconds)
        self._freshness = Staleness(metrics.staleness, settings.max_staleness_seconds, clock)
        self._calls_follow_leader, self._stopping = bool(settings.leader_service), threading.Event()
        self._comparer = comparer = Comparer(cache, feed.lister, metrics, self._stopping.wait)
        self._comparing = Ticker("comparer", settings.compare_seconds, lambda: compare(comparer, ready))
        self._reloading = Ticker("policy", settings.policy_reload_seconds, lambda: self._reload.look(self._adopt))
        self._tickers = self._tickers_of(clock, refused, permits)

    def _tickers_of(self, clock: Clock, refused: RefusedPods, permits: Permits) -> tuple[Ticker, ...]:
        cache, feed, ready = self._cache, self._feed, self._ready
        expiry = Expiry(cache, feed.survey, clock)
        reloading = (self._reloading,) if self._settings.policy else ()
        return (
            Ticker("refresh", HOUSEKEEPING_SECONDS, lambda: refresh(cache, ready)),
            Ticker("expiry", HOUSEKEEPING_SECONDS, lambda: let_expire(expiry, "its place is free again")),
            Ticker("permits", HOUSEKEEPING_SECONDS, lambda: settle(permits, cache)),
            Ticker("settling", HOUSEKEEPING_SECONDS, self._settling.advance),
            Ticker("activation", HOUSEKEEPING_SECONDS, lambda: activate(refused, feed.activator, ready, self._leading)),
            Ticker("threads", REVIVAL_SECONDS, self.revive),
            *(Ticker("preemption", HOUSEKEEPING_SECONDS, self._preempt(each, refused)) for each in self._preempting),
            self._comparing,
            *reloading,
        )

    def _preempt(self, writers: PreemptionWriters, refused: RefusedPods) -> Callable[[], None]:
        return lambda: preempt(refused, writers.preemption, self._ready, self._leading)

    def backend(self) -> Backend:
        """Returns what the web serves."""
        debug = Debug(self._comparer.compare, lambda: dump(self._cache), self._out_of_sync)
        pages = {**live_pages(self._cache, self._profiles, self._out_of_sync), **self._observed.pages}
        simulate = simulation_handler(self._cache, self._profiles, self._out_of_sync)
        takers = {SIMULATE: simulate} if self._settings.simulate else {}
        return Backend(
            self._verbs, self.waiting_for, self.start, self.stop, debug, self._comparing.wake,
            self._feed.hand_over, self.revive, pages, self.unready, self._read_again, takers, self._traces,
        )  # fmt: skip

    def _out_of_sync(self) -> str:
        return self._ready.waiting_for()["cache"]

    def _read_again(self) -> None:
        self._reload.request()
        self._reloading.wake()

    def _adopt(self, policy: Policy, text: str) -> None:
        """Decides by this policy from the next call on. Raises ConfigurationError where that needs a restart."""
        before, now = ({"featureGates": each.features, **held_by(each.profiles)} for each in (self._policy, policy))
        refuse_changes(before, now)
        self._profiles.replace(policy.profiles)
        put_in_force(policy.profiles, self._refused.wake, self._policy.profiles)
        self._policy = policy
        self._refused.wake_all()
        self._observed.policy_changed(text)

    def _prepare(self, left: Sequence[BindingInFlight]) -> None:
        take_over(self._cache, left)
        prepare(self._cache)

    def start(self) -> None:
        """Starts everything, in the process that serves."""
        limit_process()
        self._observed.start()
        self._announcement.start()
        self._feed.start()
        for each in self._preempting:
            each.start()
        for ticker in self._tickers:
            ticker.start()

    def stop(self) -> None:
        """Stops everything; the feed first, for that ends the calls that the others may be waiting for."""
        self._stopping.set()
        self._feed.stop()
        for ticker in self._tickers:
            ticker.stop()
        for each in self._preempting:
            each.stop(END_SECONDS)
        self._announcement.stop(END_SECONDS)
        self._observed.stop()

    def revive(self) -> list[str]:
        """Starts threads again that have ended; returns their names."""
        return [
            *self._feed.revive(),
            *self._observed.revive(),
            *(ticker.name for ticker in self._tickers if ticker.revive()),
        ]

    def _leading(self) -> bool:
        return all(self._feed.leading().values())

    def _own_obstacles(self) -> Mapping[str, str]:
        parts = (self._ready, self._settling, self._freshness)
        return {check: obstacle for part in parts for check, obstacle in part.waiting_for().items()}

    def unready(self) -> Mapping[str, str]:
        """Returns what stands between this process and readiness; not the lease where a Service leads to the leader."""
        return {**self._own_obstacles(), **({} if self._calls_follow_leader else self._feed.waiting_for())}

    def waiting_for(self) -> Mapping[str, str]:
        """Returns what stands between this process and an answer, by check; "" where a check passes."""
        self._feed.await_lead()
        return {**self._own_obstacles(), **self._feed.waiting_for()}


def _preempting(
    settings: Settings, cache: Cache, profiles: Profiles, feed: ClusterFeed, metrics: Metrics, clock: Clock
) -> Sequence[PreemptionWriters]:
    """Returns the writers that preempt for users' rules; none unless that is asked for, and the cluster live."""
    if not settings.preempt_for_rules or settings.cluster:
        return ()
    client = KubeClient(credentials_of(settings.kubeconfig), metrics.requested)
    return (PreemptionWriters(cache, profiles, client, feed.fence, metrics, clock),)


def verbs_over(
    cache: Cache,
    profiles: Profiles,
    binder: Binder,
    telemetry: Telemetry,
    settings: Settings,
    refused: RefusedPods,
    permits: Permits,
) -> list[Verb[Any, Any]]:
    """Returns the four verbs."""
    # Half of the connections stay free for other calls.
    wait = PermitWait(settings.permit_seconds, max(1, settings.connections // 2))
    reader, limit = NamesReader(), TimeLimit(SystemClock(), settings.decision_seconds)
    preemptors = None if settings.cluster else RecentPreemptors(SystemClock())  # no watch ever tells of a file's pods
    return [
        Filter(cache, profiles, telemetry, reader, limit, refused, preemptors),
        Prioritize(cache, profiles, Scale(settings.score_scale), reader, limit),
        Preempt(cache, profiles, limit, preemptors),
        Bind(cache, profiles, binder, telemetry, limit, permits, wait),
    ]

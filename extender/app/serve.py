"""The composition root of `extender serve`: a webhook over one cache, in the order of the start."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from typing import Any

from extender.app.evidence import CacheEvidence, count_unsettled
from extender.app.feed import FeedFactory, feed_factory_of
from extender.app.housekeeping import (
    HOUSEKEEPING_SECONDS,
    REVIVAL_SECONDS,
    TABLES,
    activate,
    let_expire,
    preempt,
    prepare,
    settle,
    time_to_live,
)
from extender.app.policies import held_by, policy_of, refuse_changes
from extender.app.process import CacheProcess
from extender.app.recording.observation import check_places
from extender.app.writers import PreemptionWriters
from extender.cache.cache import Cache
from extender.cache.expiry import Expiry
from extender.cluster.election.lease import LeaderBinder
from extender.cluster.http.credentials import credentials_of
from extender.cluster.http.kube_client import KubeClient
from extender.config.settings import Settings, host_and_port
from extender.errors import ConfigurationError
from extender.extender_v1.decoding import NamesReader
from extender.framework.permit import Permits
from extender.framework.profile import Profiles
from extender.plugins.users import put_in_force
from extender.policy.policy import Policy, parsed
from extender.runtime.clock import SystemClock
from extender.runtime.ports import Binder, Binding
from extender.runtime.threads import Ticker
from extender.runtime.unsettled import UnsettledWrites
from extender.verbs.bind import Bind, PermitWait
from extender.verbs.filter import Filter
from extender.verbs.filter_best import FilterBest
from extender.verbs.preempt import Preempt
from extender.verbs.prioritize import Prioritize, Scale
from extender.verbs.refused_pods import RefusedPods
from extender.verbs.verb import Verb
from extender.verbs.waiting import RecentPreemptors
from extender.web import server
from extender.web.access import is_loopback
from extender.web.app import Backend, ExtenderApp, create_app
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
    check_places(settings)
    factory = feed_factory_of(settings)
    writes = UnsettledWrites(settings.settle_seconds)
    server.serve(settings, lambda: application(settings, factory, writes))


def _check_callers(settings: Settings) -> None:
    """Raises ConfigurationError where everybody may call, and nobody has said so; warns of a CA that lets many call."""
    host, _ = host_and_port(settings.bind)
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
    return application(settings, feed_factory_of(settings), UnsettledWrites(settings.settle_seconds))


def application(settings: Settings, factory: FeedFactory, writes: UnsettledWrites) -> ExtenderApp:
    """Returns the application over one cache, which is filled once it is started; `writes` outlives this process."""
    process = WebhookProcess(settings, factory, writes)
    return create_app(process.backend(), settings, process.metrics)


class WebhookProcess(CacheProcess):
    """Everything that `extender serve` runs."""

    def __init__(self, settings: Settings, factory: FeedFactory, writes: UnsettledWrites) -> None:
        clock, left = SystemClock(), writes.take_over()
        self.metrics = metrics = Metrics(clock, version("extender"))
        super().__init__("serve", settings, metrics, clock, threading.Event())
        observed = self._observed
        cache = Cache(clock, metrics, time_to_live(settings), self._features, observed.changes)
        feed = factory(cache, metrics, clock, writes, CacheEvidence(cache))
        profiles = Profiles(self._policy.profiles, self._features)
        self._follow(cache, feed, profiles, metrics, lambda: self._prepare(left))
        self._traces, self._calls_follow_leader = traces_of(os.environ), bool(settings.leader_service)
        binder = LeaderBinder(feed.binder, feed.fence)
        permits = Permits(cache.snapshot, limit=self._limit)
        self._refused = refused = RefusedPods(cache, profiles, clock, settings.activate_after_seconds, self._limit)
        self._preempting = self._preempting_writers()
        put_in_force(profiles.all, refused.wake)
        self._verbs = self._verbs_over(binder, permits)
        self._tickers = self._tickers_of(refused, permits)

    def _preempting_writers(self) -> Sequence[PreemptionWriters]:
        """Returns the writers that preempt for users' rules; none unless that is asked for, and the cluster live."""
        settings, metrics, fence = self._settings, self.metrics, self._feed.fence
        if not settings.preempt_for_rules or settings.cluster:
            return ()
        client = KubeClient(credentials_of(settings.kubeconfig), metrics.requested)
        return (PreemptionWriters(self._cache, self._profiles, client, fence, metrics, self._clock, self._limit),)

    def _verbs_over(self, binder: Binder, permits: Permits) -> list[Verb[Any, Any]]:
        cache, profiles, settings, limit = self._cache, self._profiles, self._settings, self._limit
        reader = NamesReader()
        # Half of the connections stay free for other calls.
        wait = PermitWait(settings.permit_seconds, max(1, settings.connections // 2))
        preemptors = None if settings.cluster else RecentPreemptors(self._clock)  # no watch ever tells of a file's pods
        feasible = Filter(cache, profiles, self.metrics, reader, limit, self._refused, preemptors)
        prioritize = Prioritize(cache, profiles, Scale(settings.score_scale), reader, limit)
        return [
            FilterBest(feasible, prioritize, limit) if settings.filter_answer == "best" else feasible,
            prioritize,
            Preempt(cache, profiles, limit, preemptors),
            Bind(cache, profiles, binder, self.metrics, limit, permits, wait),
        ]

    def _tickers_of(self, refused: RefusedPods, permits: Permits) -> tuple[Ticker, ...]:
        cache, feed = self._cache, self._feed
        expiry = Expiry(cache, feed.survey, self._clock)
        return (
            Ticker("refresh", HOUSEKEEPING_SECONDS, self._if_ready(lambda: cache.refresh(TABLES))),
            Ticker("expiry", HOUSEKEEPING_SECONDS, lambda: let_expire(expiry, "its place is free again")),
            Ticker("permits", HOUSEKEEPING_SECONDS, lambda: settle(permits, cache)),
            Ticker("settling", HOUSEKEEPING_SECONDS, self._if_ready(feed.settle)),
            Ticker("activation", HOUSEKEEPING_SECONDS, self._if_leading(partial(activate, refused, feed.activator))),
            Ticker("threads", REVIVAL_SECONDS, self.revive),
            *(
                Ticker("preemption", HOUSEKEEPING_SECONDS, self._if_leading(partial(preempt, refused, each.preemption)))
                for each in self._preempting
            ),
        )

    def _if_leading(self, action: Callable[[], object]) -> Callable[[], object]:
        """Returns the action, which does nothing where the cache is not filled, or another process leads."""
        return self._if_ready(lambda: action() if self._leading() else None)

    def backend(self) -> Backend:
        return Backend(
            self._verbs, self.waiting_for, self.start, self.stop, self.private_pages(), self.compare,
            self._feed.hand_over, self.revive, self.unready, self.read_policy_again, self._traces,
            self._observed.observers,
        )  # fmt: skip

    def _adopt(self, policy: Policy, text: str) -> None:
        """Decides by this policy from the next call on. Raises ConfigurationError where that needs a restart."""
        before, now = ({"featureGates": each.features, **held_by(each.profiles)} for each in (self._policy, policy))
        refuse_changes(before, now)
        self._profiles.replace(policy.profiles)
        put_in_force(policy.profiles, self._refused.wake, self._policy.profiles)
        self._policy = policy
        self._refused.wake_all()
        self._observed.policy_changed(text)

    def _prepare(self, left: Sequence[Binding]) -> None:
        count_unsettled(self._cache, left)
        self._feed.settlement.look()
        prepare(self._cache)

    def start(self) -> None:
        """Starts everything, in the process that serves."""
        self._start_following()
        for each in self._preempting:
            each.start()
        for ticker in self._tickers:
            ticker.start()

    def stop(self) -> None:
        self._stopping.set()
        self._stop_following(END_SECONDS)
        for ticker in self._tickers:
            ticker.stop()
        for each in self._preempting:
            each.stop(END_SECONDS)

    def unready(self) -> Mapping[str, str | None]:
        """Returns what stands between this process and readiness; not the lease where a Service leads to the leader."""
        return {**self._own_obstacles(), **({} if self._calls_follow_leader else self._feed.waiting_for())}

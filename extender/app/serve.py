"""Runs `extender serve`: creates, starts and stops all parts of the webhook. Start reading at `serve`."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from random import Random
from typing import Any

from extender.app.feed import CacheEvidence, ClusterFeed, FedProcess, FeedFactory, feed_factory_of
from extender.app.loop import instance
from extender.app.observation import check_places
from extender.app.policies import policy_of, refuse_changes, unreserves_of, watched
from extender.app.upkeep import (
    HOUSEKEEPING_SECONDS,
    REVIVAL_SECONDS,
    STATUSES_SECONDS,
    WAITING_SECONDS,
    Setup,
    Upkeep,
    create_cache,
    forget_statuses,
    let_expire,
    prepare,
    revive_tickers,
    settle,
)
from extender.cache.cache import Cache
from extender.cache.expiry import Expiry
from extender.cluster.binder import WatchedBinder
from extender.cluster.credentials import credentials_of
from extender.cluster.election.lease import Fence, LeaderBinder, LeaderClient
from extender.cluster.events import ApiEvents
from extender.cluster.kube_client import KubeClient
from extender.cluster.outbox import TokenBucket
from extender.cluster.statuses import ApiEvictor, ApiStatuses
from extender.config.settings import Settings, host_and_port
from extender.engine.group_members import MemberJudge
from extender.errors import ConfigurationError, IllegalTransition
from extender.extender_v1.messages import NamesReader
from extender.framework.permit import Permits
from extender.framework.profile import Profiles
from extender.model.pod import Pod
from extender.plugins.users.function import put_in_force
from extender.plugins.users.handle import RunningProcess
from extender.policy.policy import Policy, parsed
from extender.runtime.clock import Clock, SystemClock, TimeLimit
from extender.runtime.ports import Binding
from extender.runtime.process import product_version
from extender.runtime.threads import Ticker
from extender.runtime.unsettled import UnsettledWrites
from extender.scheduler.preemption import RulePreemption, VictimEvictor, check_preemption
from extender.scheduler.scheduler_ports import WaitingForBind
from extender.table.features import FeatureGates
from extender.verbs.bind import Bind, PermitWait
from extender.verbs.filter import Activator, Filter, RefusedPods
from extender.verbs.group_plans import GroupPlans
from extender.verbs.group_quorum import GroupQuorum
from extender.verbs.preempt import Preempt
from extender.verbs.prioritize import FilterBest, Prioritize, Scale
from extender.verbs.split_gangs import SplitGangs
from extender.verbs.verb import RecentPreemptors, Verb
from extender.web import log, worker
from extender.web.access import is_loopback
from extender.web.app import Backend, ExtenderApp, create_app
from extender.web.metrics import Metrics

_WRITES_PER_SECOND = 100.0  # statuses, and Events, about preemptions
END_SECONDS = 1.0  # how long `stop` waits for each thread
# One copy of the cache is for filter, one is for bind, and one is for the comparer.
TABLES = 3

_log = logging.getLogger(__name__)


def serve(settings: Settings) -> None:
    """Runs the webhook until SIGTERM or SIGINT, and then ends the process.

    Raises:
        ConfigurationError, MalformedCluster, OSError: the webhook cannot start.
    """
    log.configure(settings.log_format, settings.log_level)
    _check_callers(settings)
    policy = policy_of(settings.policy, access=settings.access)
    _check_groups(settings, parsed(settings.feature_gates, policy.features, settings.chosen_version))
    _check_preemption(settings, policy)
    check_places(settings)
    factory = feed_factory_of(settings, watch=policy.watch)
    writes = UnsettledWrites(settings.settle_seconds)
    worker.serve(settings, lambda: application(settings, factory, writes))


def _check_callers(settings: Settings) -> None:
    """Checks that the settings restrict which clients may call the webhook; warns if they allow many.

    Raises:
        ConfigurationError: every client may call, and the settings do not say that this is intended.
    """
    host, _ = host_and_port(settings.bind)
    is_local = host == "localhost" or is_loopback(host)
    if not (is_local or settings.tls_cert or settings.insecure_bind):
        raise ConfigurationError(
            [f"bind: {settings.bind} is not a loopback address; set tlsCert, tlsKey, clientCa, or insecureBind: true"]
        )
    if settings.client_ca and not settings.client_names:
        _log.warning("every client with a certificate of clientCa may bind pods, because clientNames is not set")


def _check_groups(settings: Settings, features: FeatureGates) -> None:
    """Raises ConfigurationError if the settings select the PodGroups of Coscheduling and those of Kubernetes."""
    if settings.coscheduling and features.generic_workload:
        raise ConfigurationError(
            ["coscheduling: cannot be set with the feature gate GenericWorkload, because a pod has only one PodGroup"]
        )


def _check_preemption(settings: Settings, policy: Policy) -> None:
    """Raises ConfigurationError if preemptForRules is set, but the policy turns preemption off; warns if it is idle."""
    if settings.preempt_for_rules and (fault := check_preemption(policy.profiles)):
        _log.warning("preemption for rules is idle reason=%r", fault)


def build(settings: Settings) -> ExtenderApp:
    """Returns the WSGI application, for users who run their own gunicorn. Raises the same errors as `serve`."""
    log.configure(settings.log_format, settings.log_level)
    policy = policy_of(settings.policy, access=settings.access)
    factory = feed_factory_of(settings, watch=policy.watch)
    return application(settings, factory, UnsettledWrites(settings.settle_seconds))


def application(settings: Settings, factory: FeedFactory, writes: UnsettledWrites) -> ExtenderApp:
    """Returns the WSGI application. Its cache is filled once the application's lifecycle starts.

    Args:
        writes: records the writes whose outcome is unknown; it outlives this process.
    """
    process = WebhookProcess(settings, factory, writes)
    return create_app(process.backend(), settings, process.metrics)


class WebhookProcess:
    """All parts of a process of `extender serve`.

    Raises:
        ConfigurationError, OSError: the policy or the recording cannot be opened.
    """

    def __init__(self, settings: Settings, factory: FeedFactory, writes: UnsettledWrites) -> None:
        clock = SystemClock()
        unsettled = writes.take_over()
        self.metrics = Metrics(clock, product_version())
        setup = Setup("serve", settings, self.metrics, clock, threading.Event())
        cache = create_cache(settings, clock, self.metrics, setup.features, setup.observation.changes)
        feed = factory(FedProcess(cache, self.metrics, clock, writes, CacheEvidence(cache), setup.features))
        self._setup = setup
        self._policy = setup.policy
        self._cache = cache
        self._feed = feed
        self._profiles = Profiles(setup.policy.profiles, setup.features)
        self.upkeep = Upkeep(
            setup, cache, feed, self._profiles, lambda: _prepare(cache, feed, unsettled), self._adopt, self._follow
        )
        self._refused = RefusedPods(cache, self._profiles, clock, settings.activate_after_seconds, setup.limit)
        self._permits = Permits(cache.snapshot, limit=setup.limit)
        self._running_process = RunningProcess(self._refused.wake, self._permits)
        put_in_force(self._profiles.all, self._running_process)
        # At most half of the connections may wait, at Permit or for a gang, so that other calls still get a connection.
        self._permit_wait = PermitWait(settings.permit_seconds, max(1, settings.connections // 2))
        self._verbs = self._create_verbs()
        self._preemption = self._create_preemption()
        self._tickers = self._create_tickers()

    def _create_verbs(self) -> list[Verb[Any, Any]]:
        settings, limit = self._setup.settings, self._setup.limit
        cache, profiles = self._cache, self._profiles
        reader = NamesReader()
        # If the cluster is a file, no watch delivers nominations, so `preempt` itself remembers the preemptors.
        preemptors = None if settings.cluster else RecentPreemptors(self._setup.clock)
        plans_groups = self._setup.features.generic_workload or settings.coscheduling
        self._split = self._split_gangs() if plans_groups else None
        plans = self._group_plans(self._split) if plans_groups else None
        most_waiting = max(1, settings.connections // 2)
        self._quorum = GroupQuorum(
            cache, self.metrics, settings.group_bind_seconds, most_waiting, plans, self._permit_wait.free, self._split
        )  # fmt: skip
        feasible = Filter(
            cache, profiles, self.metrics, reader, limit, self._refused, preemptors,
            scheduler_filters=settings.scheduler_filters, plans=plans,
        )  # fmt: skip
        prioritize = Prioritize(cache, profiles, Scale(settings.score_scale), reader, limit)
        binder = WatchedBinder(LeaderBinder(self._feed.binder, self._feed.fence), self._setup.hanging)
        bind = Bind(
            cache, profiles, binder, self.metrics, limit, self._permits, self._permit_wait, quorum=self._quorum,
            fence=lambda: self._feed.fence.of_this_term().check,
        )  # fmt: skip
        return [
            FilterBest(feasible, prioritize, limit) if settings.filter_answer == "best" else feasible,
            prioritize,
            Preempt(cache, profiles, limit, preemptors),
            bind,
        ]

    def _split_gangs(self) -> SplitGangs:
        judge = MemberJudge(Random())  # noqa: S311  ties between nodes
        return SplitGangs(
            self._cache, self._profiles.of, judge, self._setup.clock, self._setup.limit,
            is_undecided=lambda uid: self._quorum.is_undecided(uid),
        )  # fmt: skip

    def _group_plans(self, split: SplitGangs | None) -> GroupPlans:
        settings, setup = self._setup.settings, self._setup
        judge = MemberJudge(setup.observation.random(None))
        return GroupPlans(
            self._cache, judge, self.metrics, setup.clock,
            scheduler_filters=settings.scheduler_filters, coscheduling=settings.coscheduling,
            observer=setup.observation.recording, split=split,
        )  # fmt: skip

    def _create_preemption(self) -> PreemptionWriters | None:
        """Returns the writers that evict pods to help pods that users' rules refuse.

        Returns None without --preempt-for-rules, or if the cluster is a file.
        """
        settings, metrics = self._setup.settings, self.metrics
        if not settings.preempt_for_rules or settings.cluster:
            return None
        client = KubeClient(credentials_of(settings.access), metrics.requested)
        fence, clock, limit = self._feed.fence, self._setup.clock, self._setup.limit
        return PreemptionWriters(
            self._cache, self._profiles, client, fence, self._permit_wait, metrics, clock, limit
        )  # fmt: skip

    def _create_tickers(self) -> list[Ticker]:
        cache, feed, upkeep, refused = self._cache, self._feed, self.upkeep, self._refused
        ticker = partial(Ticker, on_error=self.metrics.task_failed)
        expiry = Expiry(cache, feed.survey, self._setup.clock)
        tickers = [
            ticker("refresh", HOUSEKEEPING_SECONDS, upkeep.if_ready(lambda: cache.refresh(TABLES))),
            ticker("expiry", HOUSEKEEPING_SECONDS, lambda: let_expire(expiry, "its resources count as free again")),
            ticker("permits", HOUSEKEEPING_SECONDS, lambda: settle(self._permits, cache)),
            ticker("waiting", WAITING_SECONDS, self._end_deleted),
            ticker("settling", HOUSEKEEPING_SECONDS, upkeep.if_ready(self._settle)),
            ticker("activation", HOUSEKEEPING_SECONDS, self._if_leading(lambda: activate(refused, feed.activator))),
            ticker("threads", REVIVAL_SECONDS, self.revive),
        ]
        if self._preemption is not None:
            preemption, statuses = self._preemption.preemption, self._preemption.statuses
            run = self._if_leading(lambda: preempt(refused, preemption))
            tickers.append(ticker("preemption", HOUSEKEEPING_SECONDS, run))
            tickers.append(ticker("statuses", STATUSES_SECONDS, lambda: forget_statuses(cache, statuses)))
        return tickers

    def _settle(self) -> None:
        self._feed.settle()
        if self._split is not None and not self.upkeep.leading():
            self._split.search_again()

    def _end_deleted(self) -> None:
        """Ends the wait of each bind call whose pod was deleted."""
        self._permit_wait.end_deleted(self._exists)
        self._quorum.end_deleted()

    def _exists(self, pod: Pod) -> bool:
        return self._cache.find_pod(pod.uid, pod.key) is not None

    def _if_leading(self, action: Callable[[], object]) -> Callable[[], object]:
        """Returns a function that calls `action` if the cache is filled and this process leads."""
        return self.upkeep.if_ready(lambda: action() if self.upkeep.leading() else None)

    def backend(self) -> Backend:
        upkeep = self.upkeep
        return Backend(
            self._verbs, upkeep.waiting_for, self.start, self.stop, upkeep.private_pages(), upkeep.compare,
            self._feed.hand_over, self.revive, self.unready, upkeep.read_policy_again,
            self._setup.observation.observers,
        )  # fmt: skip

    def _adopt(self, policy: Policy, text: str) -> None:
        """Uses this policy from the next call on. Raises ConfigurationError if the policy needs a restart."""
        refuse_changes(_fixed(self._policy), _fixed(policy))
        _check_preemption(self._setup.settings, policy)
        self._profiles.replace(policy.profiles)
        put_in_force(policy.profiles, self._running_process, self._policy.profiles)
        self._policy = policy
        self._refused.wake_all()
        self._setup.observation.policy_changed(text)

    def _follow(self, features: FeatureGates) -> None:
        """Follows another version of Kubernetes from the next call on."""
        self._cache.use(features)
        self._profiles.features = features
        self._refused.wake_all()

    def start(self) -> None:
        """Starts all threads. Call it in the process that serves, after the fork."""
        self.upkeep.start()
        if self._preemption is not None:
            self._preemption.start()
        for ticker in self._tickers:
            ticker.start()

    def stop(self) -> None:
        self._setup.stopping.set()
        self.upkeep.stop(END_SECONDS)
        for ticker in self._tickers:
            ticker.stop()
        if self._preemption is not None:
            self._preemption.stop(END_SECONDS)

    def revive(self) -> list[str]:
        """Restarts threads that have ended; returns their names."""
        return [*self.upkeep.revive(), *revive_tickers(self._tickers)]

    def unready(self) -> Mapping[str, str | None]:
        """Returns, for each check, the reason why this process is not ready; None if the check passes.

        With --leader-service or --lease-follows-calls, a process that waits for the lease counts as ready. It is called
        only if it leads or is to lead, and a roll-out would stop if the other replicas were never ready.
        """
        obstacles, settings = self.upkeep.own_obstacles(), self._setup.settings
        standby_is_ready = settings.leader_service or settings.lease_follows_calls
        return obstacles if standby_is_ready else {**obstacles, **self._feed.waiting_for()}


def _prepare(cache: Cache, feed: ClusterFeed, unsettled: Sequence[Binding]) -> None:
    assume_unsettled(cache, unsettled)
    feed.settlement.look()
    prepare(cache)


class PreemptionWriters:
    """The writers and threads with which `extender serve` evicts pods to help pods that users' rules refuse.

    Args:
        fence: refuses writes while another process leads.
        waiting: the binds that wait at Permit.
    """

    def __init__(
        self,
        cache: Cache,
        profiles: Profiles,
        client: KubeClient,
        fence: Fence,
        waiting: WaitingForBind,
        metrics: Metrics,
        clock: Clock,
        limit: TimeLimit,
    ) -> None:
        self._client = client
        fenced = LeaderClient(client, fence)
        dropped = metrics.write_dropped
        self.statuses = ApiStatuses(fenced, TokenBucket(_WRITES_PER_SECOND), clock, dropped)
        self._events = ApiEvents(fenced, TokenBucket(_WRITES_PER_SECOND), clock, instance(), dropped)

        def evictor() -> VictimEvictor:
            in_this_term = ApiEvictor(LeaderClient(client, fence.of_this_term()), clock, fence.has_unknown)
            return VictimEvictor(cache, in_this_term, self._events, waiting)

        self.preemption = RulePreemption(cache, profiles, self.statuses, evictor, metrics.preempted_for_rules, limit)

    def start(self) -> None:
        self.statuses.start()
        self._events.start()

    def stop(self, timeout_seconds: float) -> None:
        """Waits for writes in progress, at most `timeout_seconds` for each writer, and closes the connections."""
        self.statuses.stop(timeout_seconds)
        self._events.stop(timeout_seconds)
        self._client.close()


def _fixed(policy: Policy) -> Mapping[str, object]:
    """Returns the values that cannot change while the process runs: path in the policy -> value."""
    return {"featureGates": policy.features, "watch": watched(policy), **unreserves_of(policy.profiles)}


def assume_unsettled(cache: Cache, bindings: Iterable[Binding]) -> None:
    """Assumes these pods in the cache, because an earlier worker may have bound them.

    They stay assumed until the watch shows them on their nodes, or they expire, whether their nodes exist or not.
    """
    for binding in bindings:
        info = cache.find_pod(binding.uid, binding.key)
        if info is not None and cache.placement(binding.uid) is None:
            with suppress(IllegalTransition):  # the watch may have shown the pod on a node just now
                cache.keep_place(info, binding.node, binding.annotations)
                _log.warning(
                    "pod assumed, an earlier worker may have bound it pod=%s node=%s", binding.key, binding.node
                )


def activate(refused: RefusedPods, activator: Activator) -> None:
    """If a pod was refused on every node but fits now, makes the scheduler try the pod again."""
    for pod in refused.fitting():
        activator.activate(pod)


def preempt(refused: RefusedPods, preemption: RulePreemption) -> None:
    """Evicts pods to help pods that only users' rules have refused. The next call repeats evictions that failed."""
    pods = refused.take(preemption.rules())
    failed = [uid for uid, _ in pods]  # an unexpected error counts as a failure for every pod
    try:
        failed = preemption.run(pods)
    finally:
        for uid in failed:
            refused.give_back(uid)

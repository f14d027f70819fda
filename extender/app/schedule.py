"""Runs `extender schedule`: creates, starts and stops all parts of the process."""

from __future__ import annotations

import logging
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from extender.app.feed import CacheEvidence, ClusterFeed, FedProcess, feed_factory_of
from extender.app.loop import Loop, LoopRules, Writers, compose_loop, cycles_of, extenders_of, sent_whole
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
)
from extender.cache.cache import Cache
from extender.cache.expiry import Expiry
from extender.cluster.binder import WatchedBinder
from extender.cluster.credentials import credentials_of
from extender.cluster.election.lease import LeaderBinder
from extender.cluster.kube_client import KubeClient
from extender.cluster.outbox import PacedBinder, TokenBucket
from extender.config.settings import Settings, host_and_port
from extender.engine.decide import SchedulingCycle
from extender.errors import ClusterError
from extender.model.pod import Pod
from extender.plugins.users.function import put_in_force
from extender.plugins.users.handle import RunningProcess
from extender.policy.policy import Policy
from extender.queue.heaps import WINDOW_SECONDS, Backoff
from extender.runtime.clock import SystemClock
from extender.runtime.ports import Binder
from extender.runtime.process import LinuxCpus, OneCpu, product_version
from extender.runtime.threads import TaskFailures, Ticker, going_on
from extender.runtime.unsettled import UnsettledWrites
from extender.scheduler.modeler import Modeler
from extender.scheduler.other_extenders import ExtenderBinder
from extender.scheduler.timing import ProfileTimer
from extender.table.features import FeatureGates
from extender.web import log
from extender.web.answers import Answer, Page, json_answer
from extender.web.app import PageServer, probe_pages
from extender.web.metrics import SchedulerMetrics, Waiting

FLUSH_UNSCHEDULABLE_SECONDS = 30.0
SWEEP_SECONDS = 30.0
TABLES = 2  # one table for decisions, and a rarely used second one that shows the cluster without terminating pods
REFRESH_SECONDS = 30.0
POP_SECONDS = 0.5
BIND_RATE = 5000.0
PAUSE_SECONDS = 0.05
# If no pod can be taken from the queue this often in a row, the queue is broken, and only a restart helps.
MOST_FAILURES_IN_A_ROW = 10
# Time limits at the end of the process. Together they stay below the 30 s that a kubelet waits.
TICKERS_STOP_SECONDS = 2.0
WRITERS_STOP_SECONDS = 10.0

_log = logging.getLogger(__name__)


def schedule(settings: Settings) -> None:
    """Runs the scheduler until SIGTERM or SIGINT.

    Raises:
        ConfigurationError, OSError: the scheduler cannot start.
        ClusterError: the lease was lost.
        TaskFailed: memory has run out, the queue is broken, or the thread that binds has ended.
    """
    log.configure(settings.log_format, settings.log_level)
    stopping = threading.Event()
    process = SchedulerProcess(settings, stopping)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    signal.signal(signal.SIGUSR2, lambda *_: process.upkeep.compare())
    signal.signal(signal.SIGHUP, lambda *_: process.upkeep.read_policy_again())
    process.run()


class SchedulerProcess:
    """All parts of a process of `extender schedule`. The process ends when `stopping` is set.

    Args:
        seed: the seed of the choice between nodes with the same score; None chooses another one at each start.
        identity: see feed_factory_of.

    Raises:
        ConfigurationError, OSError: the process cannot start.
    """

    def __init__(
        self, settings: Settings, stopping: threading.Event, seed: int | None = None, identity: str | None = None
    ) -> None:
        clock = SystemClock()
        self._scheduling = False
        self._metrics = metrics = SchedulerMetrics(clock, product_version())
        self._failures = TaskFailures(metrics.set_aside)
        self._setup = setup = Setup("schedule", settings, metrics, clock, stopping, self._record_reload)
        metrics.follow(setup.features.behaviours)
        self._extenders = extenders_of(setup.policy.extenders)
        self._random = random = setup.observation.random(seed)
        observers, timer = setup.observation.observers, ProfileTimer(clock, metrics)

        def cycles(policy: Policy) -> Mapping[str, SchedulingCycle]:
            return cycles_of(policy, settings.scheduler_name, random, self._extenders, observers, timer)

        self._rules = LoopRules(setup.policy, setup.features, cycles)
        cache = create_cache(settings, clock, metrics, setup.features, setup.observation.changes)
        factory = feed_factory_of(settings, sent_whole(setup.policy.extenders), setup.policy.watch, identity)
        writes = UnsettledWrites(settings.settle_seconds)
        feed = factory(FedProcess(cache, metrics, clock, writes, CacheEvidence(cache), setup.features))
        self._cache = cache
        self._feed = feed
        profiles = self._rules.profiles
        self.upkeep = Upkeep(setup, cache, feed, profiles, lambda: _prepare(cache, feed), self._adopt, self._follow)
        self._client = KubeClient(credentials_of(settings.access), metrics.requested)
        self._writers = Writers(
            self._client, feed.served, feed.fence, clock, metrics.write_dropped, self._failures.report
        )  # fmt: skip
        self._loop = self._create_loop()
        queue = self._loop.queue
        put_in_force(profiles.all, RunningProcess(queue.wake, self._loop.permits))
        metrics.observe_queue(Waiting(queue.pending, queue.entities, queue.rejections, self._writers.waiting))
        self._modeler = Modeler(cache, queue, clock, self._rules.cycles)
        self._one_cpu = OneCpu(LinuxCpus(), clock)
        self._tickers = self._create_tickers()
        self._pages = self._page_server()

    def _create_loop(self) -> Loop:
        setup, policy, feed = self._setup, self._setup.policy, self._feed
        binder: Binder = feed.binder
        if self._extenders:
            binder = ExtenderBinder(binder, self._extenders, self._cache.placement)
        watched = WatchedBinder(LeaderBinder(binder, feed.fence), setup.hanging)
        paced = PacedBinder(watched, bind_bucket(policy), setup.clock)
        return compose_loop(
            self._rules.cycles,
            self._cache,
            self._writers.ports(paced, setup.observation.events),
            self._metrics,
            setup.clock,
            Backoff(policy.pod_initial_backoff_seconds, policy.pod_max_backoff_seconds),
            setup.limit,
            setup.features,
            self._random,
        )

    def _page_server(self) -> PageServer:
        settings = self._setup.settings
        host, port = host_and_port(settings.bind)
        private = self.upkeep.private_pages()
        probes = probe_pages(self._metrics, self.revive, self.upkeep.own_obstacles)
        pages: dict[str, Page] = {**probes, **private.pages, "/debug/pods": lambda *_: self._queue_status()}
        return PageServer(host, port, replace(private, pages=pages), any_host=settings.insecure_bind)

    def run(self) -> None:
        """Starts everything in order, schedules, and stops everything. Raises what `schedule` raises."""
        self._pages.start()
        self._metrics.attempt_log.start()
        self.upkeep.start()
        try:
            if not self._become_ready():
                return
            self._start()
            failures_in_a_row = 0
            while not self._setup.stopping.is_set():
                if not self.upkeep.leading():
                    raise ClusterError("the lease was lost: another scheduler may lead now")
                self._failures.check()
                self._writers.binders.check()
                try:
                    self._loop.scheduler.schedule_one(POP_SECONDS)
                    failures_in_a_row = 0
                except Exception as error:  # about no single pod: an attempt handles its own errors
                    failures_in_a_row += 1
                    is_last = failures_in_a_row == MOST_FAILURES_IN_A_ROW
                    (self._failures.end if is_last else self._failures.report)("scheduling", error)
                    self._setup.stopping.wait(PAUSE_SECONDS)
        finally:
            self._stop()

    def _become_ready(self) -> bool:
        """Waits until this process may decide. Logs once for each failing check why it fails.

        Returns False if the process must stop.
        """
        logged: set[str] = set()
        while obstacles := {check: why for check, why in self.upkeep.waiting_for().items() if why is not None}:
            for check in obstacles.keys() - logged:
                _log.info("not scheduling yet check=%s reason=%r", check, obstacles[check])
            logged |= obstacles.keys()
            if "cache" not in obstacles:
                self._feed.settle()
            if self._setup.stopping.wait(PAUSE_SECONDS):
                return False
        return True

    def _adopt(self, policy: Policy, text: str) -> None:
        self._rules.adopt(policy, self._loop.queue, self._loop.permits)
        self._setup.observation.policy_changed(text)

    def _follow(self, features: FeatureGates) -> None:
        self._cache.use(features)
        self._rules.follow(features, self._loop.queue)

    def _record_reload(self, faults: str | None) -> None:
        """Writes an event about this process's own pod when a changed policy was adopted or refused.

        The pod has the name of the host. Writes nothing if ownNamespace has no such pod, or if this process does not
        lead.
        """
        own_name = (self._setup.settings.own_namespace, socket.gethostname())
        pods = (entry.pod for entry in self._cache.pods().values())
        own = next((pod for pod in pods if pod and (pod.namespace, pod.name) == own_name), None)
        if own is None or not self._scheduling or not self.upkeep.leading():
            return
        events, regarding = self._writers.events, Pod(metadata=own.metadata)
        if faults is None:
            events.record(regarding, "Normal", "PolicyReloaded", "Reloading", "the policy was read again")
        else:
            events.record(regarding, "Warning", "PolicyReloadFailed", "Reloading", faults)

    def _start(self) -> None:
        self._feed.commit()
        self._scheduling = True
        self._writers.start(self._loop.queue.has_backlog)
        for ticker in self._tickers:
            ticker.start()
        self._one_cpu.settle()
        with going_on(self._metrics.set_aside, "clean-up"):
            self._loop.recovery.clean_up()
        _log.info("scheduling profiles=%r", ", ".join(self._rules.cycles))

    def _stop(self) -> None:
        """Stops everything. Running tasks get a limited time to end, and the lease is released last."""
        begin = time.monotonic()
        self._loop.queue.close()
        if self._scheduling:
            for ticker in self._tickers:
                ticker.stop(max(0.0, begin + TICKERS_STOP_SECONDS - time.monotonic()))
            self._writers.stop(begin + WRITERS_STOP_SECONDS)
        self.upkeep.stop(TICKERS_STOP_SECONDS)
        self._client.close()
        self._metrics.attempt_log.stop()
        self._pages.stop()

    def revive(self) -> list[str]:
        """Restarts threads that have ended; returns their names."""
        return [*self.upkeep.revive(), *revive_tickers(self._tickers)]

    def _create_tickers(self) -> tuple[Ticker, ...]:
        loop, upkeep = self._loop, self.upkeep
        expiry = Expiry(self._cache, self._feed.survey, self._setup.clock)
        actions: tuple[tuple[str, float, Callable[[], object]], ...] = (
            ("expiry", HOUSEKEEPING_SECONDS, lambda: let_expire(expiry, "the pod is tried again")),
            ("settling", HOUSEKEEPING_SECONDS, upkeep.if_ready(self._feed.settle)),
            ("waiting", WAITING_SECONDS, loop.waiting.poll),
            ("claims", HOUSEKEEPING_SECONDS, loop.device_claims.resolve),
            ("leaked claims", REFRESH_SECONDS, loop.recovery.release_leaked),
            ("binds", HOUSEKEEPING_SECONDS, loop.settle_binds),
            ("backoff", WINDOW_SECONDS, loop.queue.flush_backoff),
            ("unschedulable", FLUSH_UNSCHEDULABLE_SECONDS, loop.queue.flush_unschedulable),
            ("queue sweep", SWEEP_SECONDS, loop.sweep.run),
            ("statuses", STATUSES_SECONDS, lambda: forget_statuses(self._cache, self._writers.statuses)),
            ("refresh", REFRESH_SECONDS, lambda: self._cache.refresh(TABLES)),
            ("threads", REVIVAL_SECONDS, self.revive),
            ("cpu", HOUSEKEEPING_SECONDS, self._one_cpu.look),
        )
        return tuple(Ticker(name, seconds, action, self._failures.report) for name, seconds, action in actions)

    def _queue_status(self) -> Answer:
        leading = self._scheduling and self.upkeep.leading()
        return json_answer(self._modeler.status(leading=leading))


def bind_bucket(policy: Policy) -> TokenBucket:
    """Returns the rate limit of bindings: that of the policy's clientConnection, or else BIND_RATE."""
    return TokenBucket(policy.qps or BIND_RATE, policy.burst or None)


def _prepare(cache: Cache, feed: ClusterFeed) -> None:
    feed.settlement.look()
    prepare(cache, TABLES)

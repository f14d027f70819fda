"""The composition root of `extender schedule`: everything is made, started and stopped here, in this order."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version

import msgspec

from extender.app.evidence import CacheEvidence
from extender.app.feed import feed_factory_of
from extender.app.housekeeping import HOUSEKEEPING_SECONDS, REVIVAL_SECONDS, let_expire, prepare, time_to_live
from extender.app.loop import LoopRules, compose_loop, cycles_of, extenders_of, sent_whole
from extender.app.process import CacheProcess
from extender.app.writers import Writers
from extender.cache.cache import Cache
from extender.cache.expiry import Expiry
from extender.cluster.election.lease import LeaderBinder, LeaderClient
from extender.cluster.http.credentials import credentials_of
from extender.cluster.http.kube_client import KubeClient
from extender.cluster.writers.pacing import PacedBinder, TokenBucket
from extender.config.settings import Settings, host_and_port
from extender.errors import ClusterError
from extender.model.pod import Pod
from extender.plugins.users import put_in_force
from extender.policy.policy import Policy
from extender.queue.backoff import WINDOW_SECONDS, Backoff
from extender.queue.priority_queue import MAX_UNSCHEDULABLE_SECONDS
from extender.runtime.clock import Clock, SystemClock
from extender.runtime.one_cpu import LinuxCpus, OneCpu
from extender.runtime.threads import TaskFailures, Ticker
from extender.runtime.unsettled import UnsettledWrites
from extender.scheduler.modeler import Modeler
from extender.scheduler.other_extenders import ExtenderBinder, Extenders
from extender.scheduler.timing import ProfileTimer
from extender.web.answers import Answer, Page
from extender.web.pages import PageServer, probe_pages
from extender.web.telemetry import log
from extender.web.telemetry.scheduler_metrics import SchedulerMetrics, Waiting
from extender.web.telemetry.tracing import traces_of

FLUSH_UNSCHEDULABLE_SECONDS = SWEEP_SECONDS = 30.0
TABLES, REFRESH_SECONDS = 2, 30.0  # one for the loop; one for the room of pods that leave, seldom lent
WAITING_SECONDS = 0.2  # how often it is asked whether pods still have to wait for volumes and devices
POP_SECONDS, PAUSE_SECONDS = 0.5, 0.05
# How long what is under way may take at the end: less in all than the 30 s that a kubelet waits, the lease included.
TICKERS_STOP_SECONDS, WRITERS_STOP_SECONDS = 2.0, 10.0
NOTE_CHARACTERS = 1000  # an event's note takes 1,024 bytes

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Options:
    """The options of `extender schedule` beside the settings; rates are calls a second.

    Attributes:
        scheduler_name: given to the only profile, or choosing one of several; None: the profiles' own names.
        seed: of the choice between nodes with the same score; None: another one every time.
        max_unschedulable_seconds: the longest wait for an event that may help a pod.
        one_cpu: all threads keep to one CPU.
    """

    scheduler_name: str | None = None
    seed: int | None = None
    bind_rate: float = 5000.0
    status_rate: float = 100.0
    event_rate: float = 200.0
    max_unschedulable_seconds: float = MAX_UNSCHEDULABLE_SECONDS
    one_cpu: bool = True


def schedule(settings: Settings, options: Options) -> None:
    """Schedules until SIGTERM or SIGINT.

    Raises:
        ConfigurationError, OSError: before anything is scheduled.
        ClusterError: the lease was lost.
        TaskFailed: a background task raised an unexpected error, or the thread that binds has ended.
    """
    log.configure(settings.log_format, settings.log_level)
    stopping = threading.Event()
    process = SchedulerProcess(settings, options, stopping)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    signal.signal(signal.SIGUSR2, lambda *_: process.compare())
    signal.signal(signal.SIGHUP, lambda *_: process.read_policy_again())
    process.run()


class SchedulerProcess(CacheProcess):
    """Everything that `extender schedule` runs; `stopping` ends it.

    Raises:
        ConfigurationError, OSError: it cannot be set up.
    """

    def __init__(self, settings: Settings, options: Options, stopping: threading.Event) -> None:
        self._scheduling, clock = False, SystemClock()
        self._failures = TaskFailures()
        self._metrics = metrics = SchedulerMetrics(clock, version("extender"), traces_of(os.environ))
        super().__init__("schedule", settings, metrics, clock, stopping)
        policy, observed = self._policy, self._observed
        extenders = extenders_of(policy.extenders)
        self._rules = rules = self._rules_of(policy, options, extenders, ProfileTimer(clock, metrics))
        cache = Cache(clock, metrics, time_to_live(settings), self._features, observed.changes)
        factory = feed_factory_of(settings, sent_whole(policy.extenders))
        feed = factory(cache, metrics, clock, UnsettledWrites(settings.settle_seconds), CacheEvidence(cache))
        self._follow(cache, feed, rules.profiles, metrics, self._prepare)
        self._client = KubeClient(credentials_of(settings.kubeconfig), metrics.requested)
        fenced, rates = LeaderClient(self._client, feed.fence), (options.status_rate, options.event_rate)
        self._writers = writers = Writers(fenced, *rates, clock, metrics.write_dropped, self._failures.report)
        # A bind waits for its turn, passes if this process leads, and goes to the extender that binds the pod, if any.
        binder = LeaderBinder(ExtenderBinder(feed.binder, extenders, cache.placement), feed.fence)
        ports = writers.ports(PacedBinder(binder, TokenBucket(options.bind_rate), clock), observed.events)
        waits = (
            Backoff(policy.pod_initial_backoff_seconds, policy.pod_max_backoff_seconds),
            options.max_unschedulable_seconds,
        )
        self._loop = compose_loop(rules.cycles, cache, ports, metrics, clock, *waits, self._limit)
        queue = self._loop.queue
        put_in_force(rules.profiles.all, queue.wake)
        metrics.observe_queue(Waiting(queue.pending, queue.rejections, writers.waiting))
        self._cpu, self._keep_to_one_cpu = OneCpu(LinuxCpus(), clock), options.one_cpu
        self._tickers, self._modeler = self._tickers_of(clock), Modeler(cache, queue, clock, rules.cycles)
        self._pages = self._page_server(asdict(options))

    def _rules_of(self, policy: Policy, options: Options, extenders: Extenders, timer: ProfileTimer) -> LoopRules:
        random, observers = self._observed.random(options.seed), self._observed.observers
        return LoopRules(
            policy,
            self._features,
            lambda policy: cycles_of(policy, options.scheduler_name, random, extenders, observers, timer),
        )

    def _page_server(self, options: Mapping[str, object]) -> PageServer:
        host, port = host_and_port(self._settings.bind)
        private = self.private_pages(**options)
        queue_status: dict[str, Page] = {"/debug/pods": lambda *_: self._queue_status()}
        pages = {**probe_pages(self._metrics, self.revive, self._own_obstacles), **private.pages, **queue_status}
        insecure = self._settings.insecure_bind
        return PageServer(host, port, pages, private.actions, takers=private.takers, any_host=insecure)

    def run(self) -> None:
        """Starts everything in order, schedules, and stops everything. Raises what `schedule` raises."""
        self._pages.start()
        self._metrics.attempt_log.start()
        self._start_following()
        try:
            if not self._become_ready():
                return
            self._start()
            while not self._stopping.is_set():
                if not self._leading():
                    raise ClusterError("the lease was lost: another scheduler may lead now")
                self._failures.check()
                self._writers.binders.check()
                try:
                    self._loop.scheduler.schedule_one(POP_SECONDS)
                except Exception as error:  # the pod's attempt is half done
                    self._failures.report("scheduling", error)
        finally:
            self._stop()

    def _become_ready(self) -> bool:
        """Waits until it may decide, and logs once of each check what it waits for. Returns False: it is to stop."""
        told: set[str] = set()
        while missing := {check: obstacle for check, obstacle in self.waiting_for().items() if obstacle is not None}:
            for check in missing.keys() - told:
                _log.info("not scheduling yet: %s", missing[check])
            told |= missing.keys()
            if "cache" not in missing:
                self._feed.settle()
            if self._stopping.wait(PAUSE_SECONDS):
                return False
        return True

    def _prepare(self) -> None:
        self._feed.settlement.look()
        prepare(self._cache, TABLES)

    def _adopt(self, policy: Policy, text: str) -> None:
        self._rules.adopt(policy, self._loop.queue, self._loop.permits)
        self._observed.policy_changed(text)

    def _tell_of_policy(self, faults: str) -> None:
        """Writes an event about this process's own pod, where the settings name it."""
        note = faults[:NOTE_CHARACTERS] or "the policy was read again"
        own = self._settings.own_namespace, self._settings.own_name
        pods = (held.pod for held in self._cache.pods().values())
        found = next((pod for pod in pods if pod and (pod.namespace, pod.name) == own), None)
        if found and self._scheduling and self._leading():
            about, reason = Pod(metadata=found.metadata), "PolicyReloadFailed" if faults else "PolicyReloaded"
            self._writers.events.record(about, "Warning" if faults else "Normal", reason, "Reloading", note)

    def _start(self) -> None:
        self._scheduling = True
        self._writers.start(self._loop.queue.has_backlog)
        for ticker in self._tickers:
            ticker.start()
        if self._keep_to_one_cpu:
            self._cpu.settle()
        self._loop.recovery.clean_up()
        _log.info("scheduling pods of %s", ", ".join(self._rules.cycles))

    def _stop(self) -> None:
        """Stops everything: what is under way ends first, if it does in time, and the lease is given up last."""
        begin = time.monotonic()
        self._loop.queue.close()
        if self._scheduling:
            for ticker in self._tickers:
                ticker.stop(max(0.0, begin + TICKERS_STOP_SECONDS - time.monotonic()))
            self._writers.stop(begin + WRITERS_STOP_SECONDS)
        self._stop_following(TICKERS_STOP_SECONDS)
        self._client.close()
        self._metrics.attempt_log.stop()
        self._pages.stop()

    def _tickers_of(self, clock: Clock) -> tuple[Ticker, ...]:
        expiry, loop = Expiry(self._cache, self._feed.survey, clock), self._loop
        actions: tuple[tuple[str, float, Callable[[], object]], ...] = (
            ("expiry", HOUSEKEEPING_SECONDS, lambda: let_expire(expiry, "it is tried again")),
            ("settling", HOUSEKEEPING_SECONDS, self._if_ready(self._feed.settle)),
            ("waiting", WAITING_SECONDS, loop.waiting.poll),
            ("claims", HOUSEKEEPING_SECONDS, loop.device_claims.resolve),
            ("kept claims", REFRESH_SECONDS, loop.recovery.release_leaked),
            ("permits", HOUSEKEEPING_SECONDS, loop.settle_permits),
            ("backoff", WINDOW_SECONDS, loop.queue.flush_backoff),
            ("unschedulable", FLUSH_UNSCHEDULABLE_SECONDS, loop.queue.flush_unschedulable),
            ("queue sweep", SWEEP_SECONDS, loop.sweep.run),
            ("refresh", REFRESH_SECONDS, lambda: self._cache.refresh(TABLES)),
            ("threads", REVIVAL_SECONDS, self.revive),
            ("cpu", HOUSEKEEPING_SECONDS, self._cpu.look),
        )
        return tuple(Ticker(name, seconds, action, self._failures.report) for name, seconds, action in actions)

    def _queue_status(self) -> Answer:
        leading = self._scheduling and self._leading()
        return Answer(200, msgspec.json.encode(self._modeler.status(leading=leading)) + b"\n")

"""The composition root of the scheduler's own loop: which part is plugged into which, in the order of the start."""

from __future__ import annotations

import gc
import logging
import signal
import socket
import sys
import threading
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from random import Random

import msgspec

from extender.app import serve as wiring
from extender.app.extenders import binder_over, extenders_of, sent_whole
from extender.app.feed import feed_factory_of
from extender.cache.cache import Cache
from extender.cache.expiry import Expiry
from extender.cluster.http.credentials import credentials_of
from extender.cluster.http.kube_client import KubeClient
from extender.cluster.writers.claims import ApiClaims
from extender.cluster.writers.events import ApiEvents
from extender.cluster.writers.pacing import PacedBinder, TokenBucket
from extender.cluster.writers.statuses import ApiStatuses
from extender.cluster.writers.victims import ApiEvictor
from extender.cluster.writers.volumes import ApiVolumes
from extender.config.settings import Settings
from extender.errors import ClusterError, ConfigurationError
from extender.framework.profile import Profile
from extender.plugins.registry import INTERESTS
from extender.plugins.scheduling_gates import SchedulingGates
from extender.plugins.users import CountedFailures
from extender.policy.extenders import ignoring
from extender.policy.policy import Policy
from extender.queue.backoff import WINDOW_SECONDS, Backoff
from extender.queue.priority_queue import MAX_UNSCHEDULABLE_SECONDS, PriorityQueue
from extender.runtime import memory as malloc
from extender.runtime.clock import SystemClock
from extender.runtime.ticker import Ticker
from extender.scheduler.binding.claims import DeviceClaims
from extender.scheduler.binding.cycle import BindingCycle
from extender.scheduler.binding.volumes import Volumes
from extender.scheduler.binding.waiting import WaitingPods
from extender.scheduler.event_router import EventRouter
from extender.scheduler.failures import FailureHandler
from extender.scheduler.modeler import Modeler
from extender.scheduler.nominations import Nominations
from extender.scheduler.preemption import EvictionsInProgress, PreemptionExecutor
from extender.scheduler.scheduler import Scheduler
from extender.scheduler.scheduling_cycle import SchedulingCycle
from extender.scheduler.startup_recovery import StartupRecovery
from extender.scheduler.workers import WorkerPool
from extender.table import PodInfo
from extender.web.answers import Answer, health_answer
from extender.web.pages import Page, PageServer
from extender.web.telemetry import log
from extender.web.telemetry.scheduler_metrics import SchedulerMetrics

FLUSH_UNSCHEDULABLE_SECONDS = 30.0
TABLES, REFRESH_SECONDS = 2, 30.0  # one for the loop; one for the room of pods that leave, seldom lent
WAITING_SECONDS = 0.2  # how often it is asked whether pods still have to wait for volumes and devices
POP_SECONDS, PAUSE_SECONDS, STOP_SECONDS = 0.5, 0.05, 5.0
# Enough that the loop does not wait for the API server's answers; more would only take turns with the loop.
BINDERS, PREEMPTORS = 16, 4
# How soon a thread that waits for the interpreter gets it: at the default of 5 ms the loop would starve the binders.
SWITCH_SECONDS = 0.0005

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Options:
    """What `extender schedule` is told beside the settings; rates are calls a second.

    Attributes:
        scheduler_name: given to the only profile, or choosing one of several; None: the profiles' own names.
        seed: of the choice between nodes with the same score; None: another one every time.
        max_unschedulable_seconds: the longest wait for an event that may help a pod.
    """

    scheduler_name: str | None = None
    seed: int | None = None
    bind_rate: float = 5000.0
    status_rate: float = 100.0
    event_rate: float = 200.0
    max_unschedulable_seconds: float = MAX_UNSCHEDULABLE_SECONDS


def schedule(settings: Settings, options: Options) -> None:
    """Schedules until SIGTERM or SIGINT.

    Raises:
        ConfigurationError, OSError: before anything is scheduled.
        ClusterError: the lease was lost.
    """
    log.configure(settings.log_format, settings.log_level)
    stopping = threading.Event()
    process = Process(settings, options, stopping)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    process.run()


def chosen(policy: Policy, scheduler_name: str | None) -> list[Profile]:
    """The profiles to schedule by.

    Raises:
        ConfigurationError: the policy has several profiles, and none of that name.
    """
    if scheduler_name is None:
        return list(policy.profiles)
    if len(policy.profiles) == 1:
        return [replace(policy.profiles[0], name=scheduler_name)]
    named = [profile for profile in policy.profiles if profile.name == scheduler_name]
    if not named:
        names = ", ".join(profile.name for profile in policy.profiles)
        raise ConfigurationError([f"--scheduler-name {scheduler_name}: the policy has profiles for {names}"])
    return named


class Process:
    """Everything that `extender schedule` runs; `stopping` ends it.

    Raises:
        ConfigurationError, OSError: it cannot be set up.
    """

    def __init__(self, settings: Settings, options: Options, stopping: threading.Event) -> None:
        self._stopping, self._scheduling = stopping, False
        clock = SystemClock()
        metrics = SchedulerMetrics(
            lambda: asdict(self._cache.size()), lambda: self._queue.pending(), clock, version("extender"),
            lambda: self._feed.leading(),
        )  # fmt: skip
        failing = CountedFailures(metrics, wiring.log_failure)
        policy = wiring.policy_of(settings.policy, settings.provider, failing, settings.kubeconfig)
        random = Random(options.seed)  # noqa: S311  for ties
        extenders = extenders_of(policy.extenders)
        left_to_them = frozenset().union(*(each.ignored_resources for each in policy.extenders))
        profiles = [ignoring(each, left_to_them) for each in chosen(policy, options.scheduler_name)]
        cycles = {each.name: SchedulingCycle(each, random, extenders) for each in profiles}

        self._names = tuple(cycles)
        self._cache = Cache(clock, metrics, settings.assumed_ttl_seconds)
        evictions = EvictionsInProgress(self._cache)
        backoff = Backoff(policy.pod_initial_backoff_seconds, policy.pod_max_backoff_seconds)
        rules = (SchedulingGates(), evictions)
        self._queue = PriorityQueue(metrics, clock, INTERESTS, rules, backoff, options.max_unschedulable_seconds)
        self._cache.listen(EventRouter(self._cache, self._queue, cycles))
        whole, bound_by = sent_whole(policy.extenders), binder_over(self._cache, extenders)
        self._feed = feed_factory_of(settings, whole, bound_by)(self._cache, metrics, clock)

        self._client = KubeClient(credentials_of(settings.kubeconfig))
        self._statuses = ApiStatuses(self._client, _bucket(options.status_rate), clock)
        instance = f"{socket.gethostname()}-{uuid.uuid4().hex[:8]}"
        self._events = ApiEvents(self._client, _bucket(options.event_rate), clock, instance)
        self._binders, self._preemptors = WorkerPool("binder", BINDERS), WorkerPool("preemptor", PREEMPTORS)

        nominations = Nominations(self._cache, self._queue, self._statuses)
        binder = PacedBinder(self._feed.binder, _bucket(options.bind_rate), clock)
        evictor, claims = ApiEvictor(self._client, clock), ApiClaims(self._client, clock)
        device_claims = DeviceClaims(self._cache, claims, self._events, clock)
        waiting = WaitingPods(clock, self._is_there, self._binders)
        preemption = PreemptionExecutor(
            evictions,
            self._cache,
            self._queue,
            nominations,
            evictor,
            self._events,
            metrics,
            self._preemptors,
            waiting,
        )
        failures = FailureHandler(
            self._queue,
            nominations,
            preemption,
            self._statuses,
            self._events,
            metrics,
            clock,
            self._preemptors,
            device_claims.deallocate,
        )
        binding = BindingCycle(
            self._cache,
            self._queue,
            binder,
            self._events,
            self._statuses,
            metrics,
            clock,
            failures.handle,
            waiting,
            leading=lambda: all(self._feed.leading().values()),
        )
        self._scheduler = Scheduler(
            cycles,
            self._cache,
            self._queue,
            (Volumes(self._cache, ApiVolumes(self._client)), device_claims),
            binding,
            self._binders,
            failures,
            self._events,
            metrics,
            clock,
        )
        self._leftovers = StartupRecovery(self._cache, cycles, claims, nominations)
        self._ready = wiring.Readiness(self._feed.missing, lambda: wiring.prepare(self._cache, TABLES))
        expiry = Expiry(self._cache, self._feed.survey, clock)
        self._tickers = (
            Ticker("expiry", wiring.HOUSEKEEPING_SECONDS, lambda: wiring.let_expire(expiry, "it is tried again")),
            Ticker("waiting", WAITING_SECONDS, waiting.poll),
            Ticker("claims", wiring.HOUSEKEEPING_SECONDS, device_claims.resolve),
            Ticker("backoff", WINDOW_SECONDS, self._queue.flush_backoff),
            Ticker("unschedulable", FLUSH_UNSCHEDULABLE_SECONDS, self._queue.flush_unschedulable),
            Ticker("refresh", REFRESH_SECONDS, lambda: self._cache.refresh(TABLES)),
        )
        self._modeler = Modeler(self._cache, self._queue, clock, cycles)
        host, _, port = settings.bind.rpartition(":")
        self._pages = PageServer(host.strip("[]"), int(port), self._pages_of(metrics))

    def run(self) -> None:
        """Starts everything in order, schedules, and stops everything. Raises ClusterError where the lease is lost."""
        gc.set_threshold(*wiring.GC_THRESHOLDS)
        malloc.limit()
        sys.setswitchinterval(SWITCH_SECONDS)
        self._pages.start()
        self._feed.start()
        try:
            while any(self._waiting_for().values()):
                if self._stopping.wait(PAUSE_SECONDS):
                    return
            self._start()
            while not self._stopping.is_set():
                if not all(self._feed.leading().values()):
                    raise ClusterError("the lease was lost: another scheduler may lead now")
                self._scheduler.schedule_one(POP_SECONDS)
        finally:
            self._stop()

    def _start(self) -> None:
        self._scheduling = True
        for part in (self._statuses, self._events, self._binders, self._preemptors, *self._tickers):
            part.start()
        self._leftovers.put_right()
        _log.info("scheduling pods of %s", ", ".join(self._names))

    def _stop(self) -> None:
        """What is under way ends first; the lease is given up last."""
        self._queue.close()
        if self._scheduling:
            for ticker in self._tickers:
                ticker.stop()
            for part in (self._binders, self._preemptors, self._statuses, self._events):
                part.stop(STOP_SECONDS)
        self._feed.stop()
        self._client.close()
        self._pages.stop()

    def _waiting_for(self) -> Mapping[str, str]:
        return {**self._ready.waiting_for(), **self._feed.waiting_for()}

    def _is_there(self, pod: PodInfo) -> bool:
        return self._cache.find_pod(pod.uid, pod.pod.key) is not None

    def _pages_of(self, metrics: SchedulerMetrics) -> Mapping[str, Page]:
        return {
            "/livez": lambda query, _: health_answer("livez", {"ping": ""}, "verbose" in query),
            "/readyz": lambda query, _: health_answer(
                "readyz", {"ping": "", **self._waiting_for()}, "verbose" in query
            ),
            "/metrics": lambda _, accept: _rendered(*metrics.render(accept)),
            "/debug/pods": lambda *_: self._picture(),
        }

    def _picture(self) -> Answer:
        leading = self._scheduling and all(self._feed.leading().values())
        return Answer(200, msgspec.json.encode(self._modeler.picture(leading=leading)) + b"\n")


def _bucket(per_second: float) -> TokenBucket:
    return TokenBucket(per_second, max(1, int(per_second)))


def _rendered(body: bytes, content_type: str) -> Answer:
    return Answer(200, body, content_type)

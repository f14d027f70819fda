"""The composition root: the one place that knows which part is plugged into which."""

from __future__ import annotations

import gc
import logging
import random
import signal
import socket
import sys
import threading
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from difflib import get_close_matches
from importlib.metadata import version
from pathlib import Path
from typing import Any

from extender import heap
from extender.clock import Clock, SystemClock
from extender.cluster.access import Credentials, Kubeconfig, ServiceAccount
from extender.cluster.binder import ApiBinder
from extender.cluster.config_map import read_config_map
from extender.cluster.connection import Connection
from extender.cluster.election import Election, Timing
from extender.cluster.elector import LeaderElector
from extender.cluster.freshness import caught_up
from extender.cluster.leader_binder import LeaderBinder
from extender.cluster.lease import LeaseClient
from extender.cluster.lister import ClusterLister
from extender.cluster.source import ClusterSource
from extender.engine.custom import CountedFailures, Failures
from extender.engine.policy.library import Library
from extender.engine.policy.loading import load as load_policy
from extender.engine.policy.policy import Policy
from extender.engine.policy.providers import provider
from extender.engine.profiles import Profiles
from extender.errors import ClusterError, ConfigurationError
from extender.model.kinds import KINDS, Kind
from extender.model.meta import Object
from extender.model.pod import Pod
from extender.ports import Binder, Lister, Silence, Sink, Telemetry
from extender.settings import Settings
from extender.simulator.files import load
from extender.simulator.memory import InMemoryCluster
from extender.state.cache import Cache
from extender.state.comparer import TABLE, Comparer, Report
from extender.state.dump import dump
from extender.state.expiry import Expiry, Survey
from extender.ticker import Ticker
from extender.verbs.bind import Bind
from extender.verbs.filter import Filter
from extender.verbs.preempt import Preempt
from extender.verbs.prioritize import Prioritize, Scale
from extender.verbs.verb import Verb
from extender.web import log, server
from extender.web.app import Extender, Service, create_app
from extender.web.debug import Debug
from extender.web.metrics import Metrics
from extender.wire import NamesReader

HOUSEKEEPING_SECONDS = 1.0
# A scheduler filters and binds at the same time; the comparer may have a third.
TABLES = 3
LISTING_SECONDS = 60.0
CONFIG_MAP = "configmap:"
# Objects that live long are many, and a full collection visits all of them while every call waits.
GC_THRESHOLDS = (50_000, 50, 1_000)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Feed:
    """What keeps a cache filled, and where its binds go; `missing` names the kinds that are not there yet.

    `survey` asks for the pods there are: see Expiry. `waiting_for` and `leading` speak of the election, if there is
    one: see Service and Metrics.
    """

    start: Callable[[], None]
    stop: Callable[[], None]
    missing: Callable[[], Sequence[str]]
    binder: Binder
    lister: Lister[Object]
    survey: Survey
    waiting_for: Callable[[], Mapping[str, str]] = dict
    leading: Callable[[], Mapping[str, bool]] = dict


Origin = Callable[[Sink[Object], Metrics, Clock], Feed]
"""Where the cluster comes from, not yet attached to a cache: made before the fork, where a fault ends the command."""


def serve(settings: Settings) -> None:
    """Serves until SIGTERM or SIGINT, then exits the process.

    Raises:
        ConfigurationError, MalformedCluster, OSError: before anything is served.
    """
    log.configure(settings.log_format, settings.log_level)
    profiles_of(settings.policy, settings.provider, kubeconfig=settings.kubeconfig)
    origin = origin_of(settings)
    server.serve(settings, lambda: application(settings, origin))


def build(settings: Settings) -> Extender:
    """The WSGI application for a gunicorn of one's own. Raises what `serve` raises."""
    log.configure(settings.log_format, settings.log_level)
    return application(settings, origin_of(settings))


def application(settings: Settings, origin: Origin) -> Extender:
    """The application over one cache, fed from `origin` once it is started."""
    clock = SystemClock()
    metrics = Metrics(lambda: asdict(cache.size()), clock, version("extender"), lambda: feed.leading())
    cache = Cache(clock, metrics, settings.assumed_ttl_seconds)
    feed = origin(cache, metrics, clock)
    ready = Readiness(feed.missing, lambda: prepare(cache))
    expiry = Expiry(cache, feed.survey, clock)
    tickers = (
        Ticker("refresh", HOUSEKEEPING_SECONDS, lambda: _refresh(cache, ready)),
        Ticker("expiry", HOUSEKEEPING_SECONDS, lambda: let_expire(expiry, "its place is free again")),
    )

    stopping = threading.Event()
    comparer = Comparer(cache, feed.lister, metrics, stopping.wait)
    comparing = Ticker("comparer", settings.compare_seconds, lambda: _compare(comparer, ready))
    freshness = Freshness(metrics.staleness, settings.max_staleness_seconds)

    def start() -> None:
        gc.set_threshold(*GC_THRESHOLDS)
        heap.limit()
        feed.start()
        for ticker in (*tickers, comparing):
            ticker.start()
        _at_sigusr2(comparing.wake)

    def stop() -> None:
        stopping.set()
        feed.stop()  # first, for it ends the calls that the others may be waiting for
        for ticker in (*tickers, comparing):
            ticker.stop()

    def waiting_for() -> Mapping[str, str]:
        return {**ready.waiting_for(), **freshness.waiting_for(), **feed.waiting_for()}

    verbs = verbs_over(cache, feed.binder, metrics, settings)
    debug = Debug(comparer.compare, lambda: dump(cache), lambda: ready.waiting_for()["cache"])
    return create_app(Service(verbs, waiting_for, start, stop, debug), settings, metrics)


def verbs_over(cache: Cache, binder: Binder, telemetry: Telemetry, settings: Settings) -> list[Verb[Any, Any]]:
    """The four verbs."""
    failures = CountedFailures(telemetry, log_failure)
    profiles = profiles_of(settings.policy, settings.provider, failures, settings.kubeconfig)
    names_reader = NamesReader()
    return [
        Filter(cache, profiles, telemetry, names_reader),
        Prioritize(cache, profiles, Scale(settings.score_scale), names_reader),
        Preempt(cache, profiles),
        Bind(cache, profiles, binder, telemetry),
    ]


def profiles_of(
    policy: Path | None, provider_name: str, failures: Failures | None = None, kubeconfig: Path | None = None
) -> Profiles:
    """The rules that the settings name, by schedulerName; see `policy_of`."""
    return Profiles(policy_of(policy, provider_name, failures, kubeconfig).profiles)


def policy_of(
    policy: Path | None, provider_name: str, failures: Failures | None = None, kubeconfig: Path | None = None
) -> Policy:
    """The rules that the settings name.

    A user's module is looked for beside the policy's file first.

    Args:
        policy: a file, or configmap:NAMESPACE/NAME of the cluster that `kubeconfig` is of.
        failures: told when users' rules fail; without it their errors are raised.

    Raises:
        ConfigurationError: with every fault of the policy.
    """
    if policy is None:
        return Policy((provider(provider_name),))
    try:
        return load_policy(_policy_text(policy, kubeconfig), Library(failures=failures))
    except OSError as error:
        raise ConfigurationError([f"policy {policy}: {error.strerror}"]) from None
    except ClusterError as error:
        raise ConfigurationError([f"policy {policy}: {error}"]) from None
    except ConfigurationError as error:
        raise ConfigurationError([f"policy {policy}: {fault}" for fault in error.faults]) from None


def _policy_text(policy: Path, kubeconfig: Path | None) -> bytes:
    if not str(policy).startswith(CONFIG_MAP):
        if (beside := str(policy.parent.resolve())) not in sys.path:
            sys.path.insert(0, beside)
        return policy.read_bytes()
    namespace, separator, name = str(policy).removeprefix(CONFIG_MAP).partition("/")
    if not (namespace and separator and name):
        raise ConfigurationError([f"want {CONFIG_MAP}NAMESPACE/NAME"])
    connection = Connection(Kubeconfig(kubeconfig) if kubeconfig else ServiceAccount())
    try:
        return read_config_map(connection, namespace, name)
    finally:
        connection.close()


def log_failure(rule: str, error: Exception) -> None:
    _log.error("rule %s failed; further failures of its kind are only counted", rule, exc_info=error)


class Readiness:
    """Whether the first full sync, and what `prepare` does after it, is behind us; asked at every call."""

    def __init__(self, missing: Callable[[], Sequence[str]], prepare: Callable[[], None]) -> None:
        self._missing, self._prepare = missing, prepare
        self._lock = threading.Lock()
        self.ready = False

    def waiting_for(self) -> Mapping[str, str]:
        """{"cache": what it waits for}, or {"cache": ""}."""
        if self.ready:
            return {"cache": ""}
        if missing := self._missing():
            return {"cache": f"waiting for the first list of {', '.join(missing)}"}
        with self._lock:
            if not self.ready:
                self._prepare()
                self.ready = True
        return {"cache": ""}


class Freshness:
    """Whether the watches of every kind are alive: events, bookmarks, or at least a watch opened anew after silence."""

    def __init__(self, staleness: Callable[[], Mapping[str, float]], limit_seconds: float) -> None:
        self._staleness, self._limit_seconds = staleness, limit_seconds

    def waiting_for(self) -> Mapping[str, str]:
        """{"watches": which kinds nothing was heard of for too long}, or {"watches": ""}."""
        if not self._limit_seconds:
            return {"watches": ""}
        stale = {kind: age for kind, age in self._staleness().items() if age > self._limit_seconds}
        if not stale:
            return {"watches": ""}
        silent = ", ".join(f"{kind} for {age:.0f} s" for kind, age in sorted(stale.items()))
        return {"watches": f"no word of {silent}, the limit is {self._limit_seconds:g} s"}


def _as_it_is(binder: Binder) -> Binder:
    return binder


def origin_of(
    settings: Settings, whole: Collection[str] = (), binder_over: Callable[[Binder], Binder] = _as_it_is
) -> Origin:
    """The file, or the live cluster, that the settings name.

    Args:
        whole: kinds whose objects are to keep the JSON that they come as.
        binder_over: what the binder to the API server is to be wrapped in, below the look at the lease.

    Raises:
        ConfigurationError: no cluster, or kinds that nobody knows.
        MalformedCluster, OSError: the file cannot be read.
    """
    kinds = [replace(kind, whole=kind.name in whole) for kind in _kinds(settings.watch_kinds)]
    if settings.cluster is not None:
        return _file_origin(load(settings.cluster))
    credentials = Kubeconfig(settings.kubeconfig) if settings.kubeconfig else ServiceAccount()
    credentials.load()
    return _live_origin(credentials, kinds, settings, binder_over)


def _file_origin(objects: Sequence[Object]) -> Origin:
    def origin(sink: Sink[Object], _metrics: Metrics, _clock: Clock) -> Feed:
        cluster = InMemoryCluster(objects, sink)
        return Feed(cluster.start, lambda: None, lambda: (), cluster, cluster, lambda: lambda: True)

    return origin


def _live_origin(
    credentials: Credentials, kinds: Iterable[Kind], settings: Settings, binder_over: Callable[[Binder], Binder]
) -> Origin:
    def origin(sink: Sink[Object], metrics: Metrics, clock: Clock) -> Feed:
        connection = Connection(credentials)
        source = ClusterSource(connection, kinds, sink, metrics, clock, random.Random())  # noqa: S311  for pauses

        # Pods only: their places are what is decided; what others write reaches a leader as it reaches anyone.
        def survey() -> Callable[[], bool]:
            return caught_up(connection, KINDS[Pod.__name__], lambda: source.version(Pod.__name__))

        lister = ClusterLister(connection, source)
        binder = binder_over(ApiBinder(connection))
        feed = Feed(source.start, source.stop, source.unsynced, binder, lister, survey)
        if not settings.leader_elect:
            return feed
        freshness = Freshness(metrics.staleness, settings.max_staleness_seconds)
        return _elected(feed, freshness, _lease_client(connection, settings), clock, settings)

    return origin


def _elected(feed: Feed, freshness: Freshness, lease: LeaseClient, clock: Clock, settings: Settings) -> Feed:
    """The feed of one of several replicas: all follow the cluster, the leader binds."""
    identity = settings.identity or f"{socket.gethostname()}_{uuid.uuid4()}"
    elector = LeaderElector(
        lease,
        Election(identity, _timing(settings), random.Random()),  # noqa: S311  for pauses
        # Who is stale is not ready, so nothing is lost if he gives up; who is no better does not stand.
        eligible=lambda: not feed.missing() and not freshness.waiting_for()["watches"],
        reconcile=feed.survey,
        clock=clock,
        idle=lambda: binder.idle(),
    )
    binder = LeaderBinder(feed.binder, elector.leading)

    def start() -> None:
        feed.start()
        elector.start()

    def stop() -> None:
        elector.stop()
        feed.stop()

    return replace(
        feed,
        start=start,
        stop=stop,
        binder=binder,
        waiting_for=lambda: {"lease": elector.waiting_for()},
        leading=lambda: {settings.lease_name: elector.leading()},
    )


def _lease_client(connection: Connection, settings: Settings) -> LeaseClient:
    namespace = settings.lease_namespace or settings.own_namespace
    return LeaseClient(connection, namespace, settings.lease_name, silence_seconds=_timing(settings).call_seconds)


def _timing(settings: Settings) -> Timing:
    return Timing(settings.lease_duration_seconds, settings.renew_deadline_seconds, settings.retry_period_seconds)


class _Gathering:
    """A sink that keeps what it is told, for a look at a cluster that is not followed."""

    def __init__(self) -> None:
        self.objects: list[Object] = []

    def replaced(self, kind: str, objects: Sequence[Object]) -> None:
        self.objects = [obj for obj in self.objects if type(obj).__name__ != kind] + [*objects]

    def changed(self, kind: str, obj: Object) -> None:
        pass  # What happens after the list is of no matter here.

    def deleted(self, kind: str, obj: Object) -> None:
        pass


def live_objects(kubeconfig: Path) -> list[Object]:
    """Everything that rules look at, as the cluster has it now.

    Raises:
        ConfigurationError: the kubeconfig cannot be used.
        ClusterError: a kind could not be listed in `LISTING_SECONDS`.
    """
    credentials = Kubeconfig(kubeconfig)
    gathering = _Gathering()
    connection = Connection(credentials)
    source = ClusterSource(connection, KINDS.values(), gathering, Silence(), SystemClock(), random.Random())  # noqa: S311  for pauses
    source.start()
    try:
        if not source.wait_until_synced(LISTING_SECONDS):
            missing = ", ".join(source.unsynced())
            raise ClusterError(
                f"no list of {missing} in {LISTING_SECONDS:g} s: is the API server up, and may you list them?"
            )
    finally:
        source.stop()
    return gathering.objects


def _kinds(names: Sequence[str]) -> list[Kind]:
    unknown = [name for name in names if name not in KINDS]
    if unknown:
        raise ConfigurationError([f"watchKinds: {name} is no kind that rules read{_nearest(name)}" for name in unknown])
    return [KINDS[name] for name in names or KINDS]


def _nearest(name: str) -> str:
    close = get_close_matches(name, KINDS, n=1)
    return f" (did you mean {close[0]}?)" if close else f": want one of {', '.join(KINDS)}"


def prepare(cache: Cache) -> None:
    """Makes the table that the first call would have to wait for."""
    cache.refresh(1)
    gc.freeze()  # What was listed stays: no collection needs to look at it again.


def let_expire(expiry: Expiry, consequence: str) -> None:
    """Lets assumed pods expire that are over, and tells of them."""
    try:
        expired = expiry.sweep()
    except ClusterError as error:
        _log.warning("assumed pods whose time is over keep their places, for nobody can tell: %s", error)
        return
    for key in expired:
        _log.warning("%s was bound, but no watch has confirmed it: %s", key, consequence)


def _refresh(cache: Cache, ready: Readiness) -> None:
    if ready.ready:
        cache.refresh(TABLES)


def _compare(comparer: Comparer, ready: Readiness) -> None:
    if ready.waiting_for()["cache"]:
        return
    report = comparer.compare()
    _log.info("%s", _summary(report))


def _summary(report: Report) -> str:
    tables, kinds = report.compared.get(TABLE, 0), len(report.compared) - 1
    objects = sum(report.compared.values()) - tables
    parts = [f"compared the cache: {objects} objects of {kinds} kinds, {tables} tables"]
    parts.append(f"{len(report.differences)} differences")
    if report.undecided:
        parts.append(f"{len(report.undecided)} undecided, for the watches are behind")
    parts += [f"no list of {kind}: {why}" for kind, why in report.unlisted.items()]
    return ", ".join(parts)


def _at_sigusr2(action: Callable[[], None]) -> None:
    # Under a plain gunicorn the application may be started by a thread, which cannot take signals.
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGUSR2, lambda _number, _frame: action())

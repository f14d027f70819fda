"""The composition root: the one place that knows which part is plugged into which."""

from __future__ import annotations

import gc
import logging
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from extender.app.feed import FeedFactory, Staleness, feed_factory_of
from extender.cache.cache import Cache
from extender.cache.debugger.comparer import TABLE, Comparer, Report
from extender.cache.debugger.dump import dump
from extender.cache.expiry import Expiry
from extender.cluster.http.credentials import credentials_of
from extender.cluster.http.kube_client import KubeClient, read_config_map
from extender.config.settings import Settings
from extender.errors import ClusterError, ConfigurationError
from extender.extender_v1.types import ArgsReader
from extender.framework.profile import Profiles
from extender.plugins.users import CountedFailures, Failures
from extender.policy.library import Library
from extender.policy.loading import load as load_policy
from extender.policy.policy import Policy
from extender.policy.providers import provider
from extender.runtime import memory as malloc
from extender.runtime.clock import SystemClock
from extender.runtime.ports import Binder, Telemetry
from extender.runtime.ticker import Ticker
from extender.verbs.bind import Bind
from extender.verbs.filter import Filter
from extender.verbs.preempt import Preempt
from extender.verbs.prioritize import Prioritize, Scale
from extender.verbs.verb import Verb
from extender.web import server
from extender.web.app import Backend, ExtenderApp, create_app
from extender.web.debug import Debug
from extender.web.telemetry import log
from extender.web.telemetry.metrics import Metrics

HOUSEKEEPING_SECONDS = 1.0
# A scheduler filters and binds at the same time; the comparer may have a third.
TABLES = 3
CONFIG_MAP = "configmap:"
# Objects that live long are many, and a full collection visits all of them while every call waits.
GC_THRESHOLDS = (50_000, 50, 1_000)

_log = logging.getLogger(__name__)


def serve(settings: Settings) -> None:
    """Serves until SIGTERM or SIGINT, then exits the process.

    Raises:
        ConfigurationError, MalformedCluster, OSError: before anything is served.
    """
    log.configure(settings.log_format, settings.log_level)
    profiles_of(settings.policy, settings.provider, kubeconfig=settings.kubeconfig)
    origin = feed_factory_of(settings)
    server.serve(settings, lambda: application(settings, origin))


def build(settings: Settings) -> ExtenderApp:
    """The WSGI application for a gunicorn of one's own. Raises what `serve` raises."""
    log.configure(settings.log_format, settings.log_level)
    return application(settings, feed_factory_of(settings))


def application(settings: Settings, origin: FeedFactory) -> ExtenderApp:
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
    freshness = Staleness(metrics.staleness, settings.max_staleness_seconds, clock)

    def start() -> None:
        gc.set_threshold(*GC_THRESHOLDS)
        malloc.limit()
        feed.start()
        for ticker in (*tickers, comparing):
            ticker.start()

    def stop() -> None:
        stopping.set()
        feed.stop()  # first, for it ends the calls that the others may be waiting for
        for ticker in (*tickers, comparing):
            ticker.stop()

    def waiting_for() -> Mapping[str, str]:
        return {**ready.waiting_for(), **freshness.waiting_for(), **feed.waiting_for()}

    verbs = verbs_over(cache, feed.binder, metrics, settings)
    debug = Debug(comparer.compare, lambda: dump(cache), lambda: ready.waiting_for()["cache"])
    return create_app(Backend(verbs, waiting_for, start, stop, debug, comparing.wake), settings, metrics)


def verbs_over(cache: Cache, binder: Binder, telemetry: Telemetry, settings: Settings) -> list[Verb[Any, Any]]:
    """The four verbs."""
    failures = CountedFailures(telemetry, log_failure)
    profiles = profiles_of(settings.policy, settings.provider, failures, settings.kubeconfig)
    reader = ArgsReader()
    return [
        Filter(cache, profiles, telemetry, reader),
        Prioritize(cache, profiles, Scale(settings.score_scale), reader),
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
    client = KubeClient(credentials_of(kubeconfig))
    try:
        return read_config_map(client, namespace, name)
    finally:
        client.close()


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


def prepare(cache: Cache, tables: int = 1) -> None:
    """Makes the tables that the first readers would have to wait for."""
    cache.refresh(tables)
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

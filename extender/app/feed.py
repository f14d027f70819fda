"""Where a cluster comes from, plugged together: a file or an API server, one replica or several that elect a leader."""

from __future__ import annotations

import random
import socket
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from math import inf
from pathlib import Path

from extender.cache.expiry import Survey
from extender.cluster.election.election import Election, Timing
from extender.cluster.election.elector import LeaderElector
from extender.cluster.election.leader_binder import LeaderBinder
from extender.cluster.election.lease import LeaseClient
from extender.cluster.http.credentials import Credentials, Kubeconfig, credentials_of
from extender.cluster.http.kube_client import KubeClient
from extender.cluster.watch.caught_up import caught_up
from extender.cluster.watch.source import ClusterSource
from extender.cluster.writers.binder import ApiBinder
from extender.config.settings import Settings
from extender.errors import ClusterError, ConfigurationError
from extender.model.kinds import KINDS, Kind
from extender.model.meta import Object
from extender.model.pod import Pod
from extender.offline.files import load
from extender.offline.memory import InMemoryCluster
from extender.runtime.clock import Clock, SystemClock
from extender.runtime.ports import Binder, Lister, NullTelemetry, Sink
from extender.web.telemetry.metrics import Metrics

LISTING_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class ClusterFeed:
    """What keeps a cache filled, and where its binds go; `missing` names the kinds that are not there yet.

    `survey` asks for the pods there are: see Expiry. `waiting_for` and `leading` speak of the election, if there is
    one: see Backend and Metrics.
    """

    start: Callable[[], None]
    stop: Callable[[], None]
    missing: Callable[[], Sequence[str]]
    binder: Binder
    lister: Lister[Object]
    survey: Survey
    waiting_for: Callable[[], Mapping[str, str]] = dict
    leading: Callable[[], Mapping[str, bool]] = dict


FeedFactory = Callable[[Sink[Object], Metrics, Clock], ClusterFeed]
"""Where the cluster comes from, not yet attached to a cache: made before the fork, where a fault ends the command."""


class Staleness:
    """Whether the watches of every kind are alive: events, bookmarks, or at least a watch opened anew after silence."""

    def __init__(self, staleness: Callable[[], Mapping[str, float]], limit_seconds: float, clock: Clock) -> None:
        self._staleness, self._limit_seconds, self._clock = staleness, limit_seconds, clock
        self._fresh_until = 0.0 if limit_seconds else inf

    def waiting_for(self) -> Mapping[str, str]:
        """{"watches": which kinds nothing was heard of for too long}, or {"watches": ""}."""
        now = self._clock.monotonic()
        if now <= self._fresh_until:
            return {"watches": ""}
        ages = self._staleness()
        stale = {kind: age for kind, age in ages.items() if age > self._limit_seconds}
        if not stale:
            # Till then none can be stale, whatever is heard or not.
            self._fresh_until = now + self._limit_seconds - max(ages.values(), default=0.0)
            return {"watches": ""}
        silent = ", ".join(f"{kind} for {age:.0f} s" for kind, age in sorted(stale.items()))
        return {"watches": f"no word of {silent}, the limit is {self._limit_seconds:g} s"}


def _as_it_is(binder: Binder) -> Binder:
    return binder


def feed_factory_of(
    settings: Settings, whole: Collection[str] = (), binder_over: Callable[[Binder], Binder] = _as_it_is
) -> FeedFactory:
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
    credentials = credentials_of(settings.kubeconfig)
    credentials.load()
    return _live_origin(credentials, kinds, settings, binder_over)


def _file_origin(objects: Sequence[Object]) -> FeedFactory:
    def origin(sink: Sink[Object], _metrics: Metrics, _clock: Clock) -> ClusterFeed:
        cluster = InMemoryCluster(objects, sink)
        return ClusterFeed(cluster.start, lambda: None, lambda: (), cluster, cluster, lambda: lambda: True)

    return origin


def _live_origin(
    credentials: Credentials, kinds: Iterable[Kind], settings: Settings, binder_over: Callable[[Binder], Binder]
) -> FeedFactory:
    def origin(sink: Sink[Object], metrics: Metrics, clock: Clock) -> ClusterFeed:
        client = KubeClient(credentials)
        source = ClusterSource(client, kinds, sink, metrics, clock, random.Random())  # noqa: S311  for pauses

        # Pods only: their places are what is decided; what others write reaches a leader as it reaches anyone.
        def survey() -> Callable[[], bool]:
            return caught_up(client, KINDS[Pod.__name__], lambda: source.version(Pod.__name__))

        binder = binder_over(ApiBinder(client))
        feed = ClusterFeed(source.start, source.stop, source.unsynced, binder, source, survey)
        if not settings.leader_elect:
            return feed
        freshness = Staleness(metrics.staleness, settings.max_staleness_seconds, clock)
        return _elected(feed, freshness, _lease_client(client, settings), clock, settings)

    return origin


def _elected(
    feed: ClusterFeed, freshness: Staleness, lease: LeaseClient, clock: Clock, settings: Settings
) -> ClusterFeed:
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


def _lease_client(client: KubeClient, settings: Settings) -> LeaseClient:
    namespace = settings.lease_namespace or settings.own_namespace
    return LeaseClient(client, namespace, settings.lease_name, silence_seconds=_timing(settings).call_seconds)


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
    client = KubeClient(credentials)
    source = ClusterSource(client, KINDS.values(), gathering, NullTelemetry(), SystemClock(), random.Random())  # noqa: S311  for pauses
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

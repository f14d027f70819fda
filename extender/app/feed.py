"""The sources of a cluster: a file, an API server, or an API server that several replicas share with a leader."""

from __future__ import annotations

import random
import socket
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf

from extender.cache.expiry import PodSurvey
from extender.cluster.election.election import Election, Timing
from extender.cluster.election.elector import LeaderElector
from extender.cluster.election.leader_service import LeaderService
from extender.cluster.election.lease import Fence, LeaderClient, LeaseClient
from extender.cluster.http.credentials import credentials_of
from extender.cluster.http.kube_client import KubeClient
from extender.cluster.watch.source import ClusterSource
from extender.cluster.writers.binder import ApiBinder
from extender.cluster.writers.statuses import ApiActivator
from extender.config.settings import Settings, host_and_port, labels_of
from extender.errors import ConfigurationError
from extender.model.devices.claims import ResourceClaim
from extender.model.kinds import KINDS, Kind
from extender.model.meta import Object
from extender.model.pod import Pod
from extender.offline.manifests.files import load
from extender.offline.memory import InMemoryCluster
from extender.runtime.clock import Clock
from extender.runtime.near_names import did_you_mean
from extender.runtime.ports import LONG_AGO, Sink, Telemetry
from extender.runtime.unsettled import Evidence, Settlement, UnsettledWrites
from extender.web.telemetry.metrics import Metrics

HAND_OVER_SECONDS, _POLL_SECONDS = 5.0, 0.02
LEAD_SECONDS = 3.0  # how long a call waits for its replica to lead; less than kube-scheduler waits for an answer, 5 s
_DECIDED = (Pod.__name__, ResourceClaim.__name__)  # which hold places and devices
RELIST_SECONDS = 5.0  # a leader that lists anew keeps its lease for so long: it is not ready meanwhile


class Staleness:
    """Reports the kinds of which the cache has known for too long no longer whether it equals the API server."""

    def __init__(self, ages: Callable[[], Mapping[str, float]], limit_seconds: float) -> None:
        """
        Args:
            ages: returns the seconds since the cache was last known to be equal, by kind.
            limit_seconds: 0 for no limit.
        """
        self._ages = ages
        self._limit_seconds = limit_seconds or inf

    def waiting_for(self) -> str | None:
        """Returns which kinds are too old; None if none is. It is asked at every call of a verb, and takes 3 us."""
        stale = {kind: age for kind, age in self._ages().items() if age > self._limit_seconds}
        if not stale:
            return None
        unknown = ", ".join(f"{kind} for {age:.0f} s" for kind, age in sorted(stale.items()))
        return f"not known to be up to date: {unknown}; the limit is {self._limit_seconds:g} s"


def feed_factory_of(settings: Settings, whole: Collection[str] = ()) -> FeedFactory:
    """Returns what makes the feed that the settings name.

    Args:
        whole: kinds whose objects are to keep the JSON that they come as.

    Raises:
        ConfigurationError: no cluster, or kinds that nobody knows.
        MalformedCluster, OSError: the file cannot be read.
    """
    kinds = [replace(kind, whole=kind.name in whole) for kind in _kinds(settings.watch_kinds)]
    if settings.cluster is not None:
        objects = load(settings.cluster)
        return lambda sink, _metrics, clock, writes, evidence: FileFeed(objects, sink, clock, writes, evidence)
    credentials = credentials_of(settings.kubeconfig)
    credentials.load()
    # Before the fork: a worker that takes the place of one that crashed goes on with its lease.
    identity = settings.identity or f"{socket.gethostname()}_{uuid.uuid4()}"

    def factory(
        sink: Sink[Object], metrics: Metrics, clock: Clock, writes: UnsettledWrites, evidence: Evidence
    ) -> ClusterFeed:
        client = KubeClient(credentials, metrics.requested)
        feed = LiveFeed(client, kinds, sink, metrics, clock, writes, evidence)
        if not settings.leader_elect:
            return feed
        freshness = Staleness(metrics.staleness, settings.max_staleness_seconds)
        return ElectedFeed(feed, freshness, settings, identity, clock)

    return factory


class _Unelected:
    """The part of a feed that only replicas need, for a process that is alone."""

    settlement: Settlement

    def hand_over(self) -> None:
        """Releases the lease, if there is one, once all writes are settled; the process is about to end."""

    def await_lead(self) -> None:
        """Returns when this process leads, or it is not to be expected soon; at once where nobody leads calls here."""

    def settle(self) -> None:
        """Finds out what became of unsettled writes; to be called every second or so once the cache is filled."""
        self.settlement.caught_up(LONG_AGO)  # the first list was asked for after every predecessor had ended
        self.settlement.advance()

    def settling(self) -> str | None:
        """Returns what this process waits for before it may give places away; None: nothing, or the lease."""
        return self.settlement.waiting_for()

    def waiting_for(self) -> Mapping[str, str | None]:
        """Returns what stands between this process and leading; see Backend. Empty without an election."""
        return {}

    def leading(self) -> Mapping[str, bool]:
        """Returns whether this process leads, by the lease's name; see Metrics. Empty without an election."""
        return {}


class FileFeed(_Unelected, InMemoryCluster):
    """Objects from a file, whose binds stay in memory."""

    def __init__(
        self, objects: Iterable[Object], sink: Sink[Object], clock: Clock, writes: UnsettledWrites, evidence: Evidence
    ) -> None:
        super().__init__(objects, sink)
        self.binder = self.activator = self.lister = self
        self.fence = Fence(writes)
        self.settlement = Settlement(writes, self.reconcile, evidence, clock)
        writes.vouch()  # no earlier process could write to this one's memory

    def activate(self, pod: Pod) -> None:
        """See Activator: no scheduler waits."""

    def stop(self) -> None:
        """Ends everything, calls of the binder and the lister too."""

    def revive(self) -> list[str]:
        """Starts threads again that have ended; returns their names."""
        return []

    def missing(self) -> Sequence[str]:
        """Returns the kinds that the cache does not hold in full."""
        return ()

    def survey(self) -> PodSurvey:
        """Asks which pods there are, see Expiry: this, for the cache is told of everything at once."""
        return self

    def reconcile(self) -> Callable[[], bool]:
        """See unsettled.Reconciliation."""
        return self.confirmed

    def confirmed(self) -> bool:
        return True

    def shows_newer(self, uid: str, pod: Pod | None) -> bool:  # noqa: ARG002  nothing comes between
        return False


class LiveFeed(_Unelected):
    """An API server, for the only process that binds there."""

    def __init__(
        self,
        client: KubeClient,
        kinds: Iterable[Kind],
        sink: Sink[Object],
        telemetry: Telemetry,
        clock: Clock,
        writes: UnsettledWrites,
        evidence: Evidence,
    ) -> None:
        self.client, self.binder, self.fence = client, ApiBinder(client), Fence(writes)
        self.settlement = Settlement(writes, self.reconcile, evidence, clock)
        self.activator = ApiActivator(client, clock)
        self.lister = self._source = ClusterSource(client, kinds, sink, telemetry, clock, random.Random())  # noqa: S311  for pauses
        self.start, self.stop, self.missing = self._source.start, self._source.stop, self._source.unsynced
        self.revive = self._source.revive

    def survey(self) -> PodSurvey:
        """Asks which pods there are. Raises ClusterError."""
        return self._source.survey(Pod.__name__)

    def reconcile(self) -> Callable[[], bool]:
        """See unsettled.Reconciliation; of pods and device claims alone: of what else schedulers write the API server
        lets nobody overwrite what he has not seen, and what others write arrives as for anyone.
        """
        surveys = [self._source.survey(kind) for kind in _DECIDED if self._source.serves(kind)]
        return lambda: all(survey.confirmed() for survey in surveys)


class ElectedFeed:
    """An API server, for one of several replicas: all follow the cluster, the leader binds."""

    def __init__(self, feed: LiveFeed, freshness: Staleness, settings: Settings, identity: str, clock: Clock) -> None:
        self.binder, self.lister, self.missing = feed.binder, feed.lister, feed.missing
        self.survey, self.reconcile, self.settlement = feed.survey, feed.reconcile, feed.settlement
        self._feed, self._freshness, self._name = feed, freshness, settings.lease_name
        periods = settings.renew_deadline_seconds, settings.retry_period_seconds, settings.settle_seconds
        timing = Timing(settings.lease_duration_seconds, *periods)
        namespace = settings.lease_namespace or settings.own_namespace
        writes = feed.settlement.writes
        self.fence = Fence(writes, lambda: self._elector.leading())
        self._clock, self._complete_at = clock, float("-inf")
        self._elector = LeaderElector(
            LeaseClient(feed.client, namespace, settings.lease_name, timeout_seconds=timing.call_seconds),
            Election(identity, timing, random.Random(), writes),  # noqa: S311  for pauses
            self._eligible,
            feed.settlement,
            clock,
        )
        self._service = _leader_service(feed.client, settings, namespace, self._elector.leading)
        self.activator = ApiActivator(LeaderClient(feed.client, self.fence), clock)

    def start(self) -> None:
        self._feed.start()
        self._elector.start()
        if self._service:
            self._service.start()

    def hand_over(self) -> None:
        if self._service:
            self._service.hand_over()
        self._elector.resign()
        for _ in range(int(HAND_OVER_SECONDS / _POLL_SECONDS)):
            if self.settlement.writes.nothing_unsettled():
                break
            time.sleep(_POLL_SECONDS)
        self._elector.stop()

    def revive(self) -> list[str]:
        services = ["leader-service"] if self._service and self._service.revive() else []
        return [*self._feed.revive(), *(["leader-election"] if self._elector.revive() else []), *services]

    def stop(self) -> None:
        """Gives the lease up, and ends everything."""
        if self._service:
            self._service.stop()
        self._elector.stop()
        self._feed.stop()

    def settle(self) -> None:
        self.settlement.advance()

    def settling(self) -> None:
        """Returns None, because the elector settles after it has won the lease and before it leads."""

    def waiting_for(self) -> Mapping[str, str | None]:
        return {"lease": self._elector.waiting_for()}

    def await_lead(self) -> None:
        if self._service and not self._elector.leading():
            self._elector.hurry(LEAD_SECONDS)

    def leading(self) -> Mapping[str, bool]:
        return {self._name: self._elector.leading()}

    def _eligible(self) -> bool:
        # A stale process is not ready, so nothing is lost if it gives up; one that is no better does not stand.
        now = self._clock.monotonic()
        if not self.missing():
            self._complete_at = now
        return now - self._complete_at < RELIST_SECONDS and self._freshness.waiting_for() is None


ClusterFeed = FileFeed | LiveFeed | ElectedFeed
"""Keeps a cache filled, and takes its binds.

Attributes:
    binder: to the API server or to the file's cluster; to be used within `fence`.
    activator: the leader's, like every write.
    lister: the cluster as it is at this moment.
    fence: notes each write and, if there is an election, lets only the leader's pass.
    settlement: finds out what became of writes of unknown outcome.
"""
FeedFactory = Callable[[Sink[Object], Metrics, Clock, UnsettledWrites, Evidence], ClusterFeed]
"""Attaches a feed to a cache; it is made before the fork, where a fault ends the command."""


def _leader_service(
    client: KubeClient, settings: Settings, namespace: str, leading: Callable[[], bool]
) -> LeaderService | None:
    if not settings.leader_service:
        return None
    _, port = host_and_port(settings.bind)
    own = settings.own_address, port, labels_of(settings.own_labels)
    return LeaderService(client, namespace, settings.leader_service, *own, leading)


def _kinds(names: Sequence[str]) -> list[Kind]:
    unknown = [name for name in names if name not in KINDS]
    if unknown:
        want = f": want one of {', '.join(KINDS)}"
        raise ConfigurationError(
            [f"watchKinds: {name} is no kind that rules read{did_you_mean(name, KINDS) or want}" for name in unknown]
        )
    return [KINDS[name] for name in names or KINDS]

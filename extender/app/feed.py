"""Fills the cache from a file or an API server; with an election, only one of several replicas leads.

`Staleness` says if the cache is current, and `CacheEvidence` if a write without an answer took effect.
"""

from __future__ import annotations

import random
import socket
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

from extender.cache.cache import Cache
from extender.cache.expiry import PodSurvey
from extender.cache.pod_states import PodState
from extender.cluster.binder import ApiBinder
from extender.cluster.credentials import credentials_of
from extender.cluster.election.election import Election, Timing
from extender.cluster.election.elector import LeaderElector, LeaderService
from extender.cluster.election.lease import Fence, LeaderClient, LeaseClient
from extender.cluster.in_memory import InMemoryCluster
from extender.cluster.kube_client import KubeClient
from extender.cluster.statuses import ApiActivator
from extender.cluster.watch.source import ClusterSource
from extender.config.settings import Settings, host_and_port, labels_of
from extender.errors import ConfigurationError
from extender.model.devices import ResourceClaim
from extender.model.kinds import COSCHEDULING_POD_GROUPS, KINDS, Kind
from extender.model.meta import Object
from extender.model.pod import Pod
from extender.runtime.clock import Clock
from extender.runtime.ports import LONG_AGO, Binding, Sink
from extender.runtime.text import did_you_mean, nearest
from extender.runtime.unsettled import Evidence, Settlement, UnsettledWrites
from extender.snapshots.files import load
from extender.table.features import FeatureGates
from extender.web.metrics import Metrics

HAND_OVER_SECONDS = 5.0
_POLL_SECONDS = 0.02
LEAD_SECONDS = 3.0  # how long a call waits until its replica leads; kube-scheduler waits 5 s for an answer
# A process keeps its lease for this time while it lists a kind again. If watches are always late, only such a list
# confirms the cache, so a shorter time could end each term before the process has taken over.
RELIST_SECONDS = 30.0
_RECONCILED_KINDS = (Pod.__name__, ResourceClaim.__name__)


class Staleness:
    """Reports the kinds for which the cache may have been out of date for too long.

    Args:
        ages: returns for each kind the seconds since the cache was last known to equal the API server.
        limit_seconds: the age that is too long; 0 means that there is no limit.
    """

    def __init__(self, ages: Callable[[], Mapping[str, float]], limit_seconds: float) -> None:
        self._ages = ages
        self._limit_seconds = limit_seconds or inf

    def waiting_for(self) -> str | None:
        """Returns a message that names the kinds that are out of date; None if all are up to date.

        Every call of kube-scheduler runs this check, which takes 3 us.
        """
        stale = {kind: age for kind, age in self._ages().items() if age > self._limit_seconds}
        if not stale:
            return None
        unknown = ", ".join(f"{kind} for {age:.0f} s" for kind, age in sorted(stale.items()))
        return f"cached objects not confirmed as current: {unknown}; the limit is {self._limit_seconds:g} s"


class CacheEvidence:
    """Finds out from the cache if a write without an answer has taken effect. It implements unsettled.Evidence."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache

    def nothing_waits(self) -> bool:
        """Returns True if all pods have nodes and all claims have devices, so a late write could change nothing.

        Only what the watch shows counts. A pod that is assumed here may wait, and another process may be binding it.
        """
        claims = self._cache.objects(ResourceClaim.__name__).values()
        if any(isinstance(claim, ResourceClaim) and claim.allocation is None for claim in claims):
            return False
        return all(pod.state is PodState.ADDED for pod in self._cache.pods().values())

    def shows(self, binding: Binding) -> bool:
        """Returns True if the watch has shown that the pod is on a node, or that it was deleted."""
        placement = self._cache.placement(binding.uid)
        if placement is None:
            return self._cache.find_pod(binding.uid, binding.key) is None
        return placement.state is PodState.ADDED


def feed_factory_of(
    settings: Settings, whole: Collection[str] = (), watch: Sequence[Kind] = (), identity: str | None = None
) -> FeedFactory:
    """Returns a function that creates the feed, which fills the cache from a file or an API server.

    Call the function once the cache exists.

    Args:
        settings: contain the file or the access to the API server.
        whole: the kinds for which the cache also keeps the JSON of each object.
        watch: the kinds that only users' rules read.
        identity: the holder in the lease; None for HOSTNAME_UUID.

    Raises:
        ConfigurationError: the settings name no cluster, or an unknown kind.
        MalformedCluster, OSError: the file of --cluster cannot be read.
    """
    named = [*(replace(kind, whole=kind.name in whole) for kind in _kinds(settings.watch_kinds)), *watch]
    if settings.cluster is not None:
        objects = load(settings.cluster, watch)
        return lambda process: FileFeed(objects, process)
    credentials = credentials_of(settings.access)
    credentials.load()
    # The identity is chosen before the fork, so a worker that replaces a crashed one still holds the lease.
    identity = identity or f"{socket.gethostname()}_{uuid.uuid4()}"

    def factory(process: FedProcess) -> ClusterFeed:
        # An account may lack the right to read pod groups, so they are watched only if they are used.
        kinds = [kind for kind in named if process.features.generic_workload or not kind.optional]
        if settings.coscheduling:
            kinds.append(COSCHEDULING_POD_GROUPS)
        client = KubeClient(credentials, process.metrics.requested)
        if settings.leader_elect:
            return ElectedFeed(client, kinds, process, settings, identity)
        return LiveFeed(client, kinds, process)

    return factory


@dataclass(frozen=True, slots=True)
class FedProcess:
    """The parts of a process that its feed uses; `sink` is its cache."""

    sink: Sink[Object]
    metrics: Metrics
    clock: Clock
    writes: UnsettledWrites
    evidence: Evidence
    features: FeatureGates


class _Unelected:
    """Implements the methods of leader election for a feed without an election. Most methods do nothing."""

    settlement: Settlement

    def commit(self) -> None:
        """Makes the present term the last one; the process ends with it. Does nothing without an election."""

    def hand_over(self) -> None:
        """Stops leading, and releases the lease once the outcome of all writes is known. Called before `stop`."""

    def await_lead(self) -> None:
        """Waits at most LEAD_SECONDS until this process leads, in every call, if it is called only to lead.

        With --leader-service, a Service sends calls only to the leader, so a process that gets a call will soon lead.
        With --lease-follows-calls, this process asks the leader for the lease.
        """

    def settle(self) -> None:
        """Finds out the outcome of unsettled writes. Call it about once a second after the cache is filled."""
        # Earlier processes ended before this process requested its lists, so every list shows their last writes.
        self.settlement.caught_up(LONG_AGO)
        self.settlement.advance()

    def settling(self) -> str | None:
        """Returns why this process must not schedule yet; None once the outcome of all earlier writes is known."""
        return self.settlement.waiting_for()

    def waiting_for(self) -> Mapping[str, str | None]:
        """Returns {"lease": the reason why this process does not lead, or None}; {} without an election."""
        return {}

    def leading(self) -> Mapping[str, bool]:
        """Returns {name of the lease: True if this process holds it}; {} without an election."""
        return {}


class FileFeed(_Unelected, InMemoryCluster):
    """Fills the cache with the objects in a file. Binds change only the memory of this process."""

    def __init__(self, objects: Iterable[Object], process: FedProcess) -> None:
        super().__init__(objects, process.sink)
        self.binder = self
        self.activator = self
        self.lister = self
        self.fence = Fence(process.writes)
        self.settlement = Settlement(process.writes, self.reconcile, process.evidence, process.clock)
        # This cluster exists only in the memory of this process, so no earlier process has written to it.
        process.writes.vouch()

    def activate(self, pod: Pod) -> None:
        """Does nothing, because pods from a file have no scheduler that could try them again; see Activator."""

    def stop(self) -> None:
        """Ends all threads, and the binder's and the lister's calls in progress."""

    def revive(self) -> list[str]:
        """Restarts threads that have ended; returns their names."""
        return []

    def served(self, kind: Kind) -> Kind:
        """Returns the kind in the API version that the cluster serves."""
        return kind

    def missing(self) -> Sequence[str]:
        """Returns the kinds that are not listed yet."""
        return ()

    def survey(self) -> PodSurvey:
        """Returns this feed, which implements PodSurvey, because the cache of a file is always up to date."""
        return self

    def reconcile(self) -> Callable[[], bool]:
        """Returns a function that always returns True, because the cache always shows all objects of the file."""
        return self.confirmed

    def confirmed(self) -> bool:
        return True

    def shows_newer(self, uid: str, pod: Pod | None) -> bool:  # noqa: ARG002  the cache is never behind
        return False


class _Watching:
    """Fills the cache from an API server."""

    def __init__(self, client: KubeClient, kinds: Iterable[Kind], process: FedProcess) -> None:
        clock = process.clock
        pauses = random.Random()  # noqa: S311  not for secrets
        self.served = client.served
        self.binder = ApiBinder(client)
        self.fence = Fence(process.writes)
        self.settlement = Settlement(process.writes, self.reconcile, process.evidence, clock)
        self.activator = ApiActivator(client, clock)
        self._source = ClusterSource(client, kinds, process.sink, process.metrics, clock, pauses)
        self.lister = self._source
        self.missing = self._source.unsynced

    def start(self) -> None:
        self._source.start()

    def stop(self) -> None:
        self._source.stop()

    def revive(self) -> list[str]:
        return self._source.revive()

    def survey(self) -> PodSurvey:
        """Lists the UIDs and versions of all pods. `Expiry` compares them with the cache. Raises ClusterError."""
        return self._source.survey(Pod.__name__)

    def reconcile(self) -> Callable[[], bool]:
        """Lists all pods and ResourceClaims.

        The returned function returns True once the cache has shown every listed object. A kind counts from the moment
        at which the cache shows it, whatever happens to its watch while another kind is awaited.
        """
        serves = self._source.serves
        surveys = {kind: self._source.survey(kind) for kind in _RECONCILED_KINDS if serves(kind)}

        def is_shown() -> bool:
            for kind in [kind for kind, survey in surveys.items() if not serves(kind) or survey.confirmed()]:
                del surveys[kind]
            return not surveys

        return is_shown


class LiveFeed(_Watching, _Unelected):
    """Fills the cache from an API server, for a process without other replicas."""


class ElectedFeed(_Watching):
    """Fills the cache of one of several replicas. Every replica watches the API server, but only the leader binds."""

    def __init__(
        self, client: KubeClient, kinds: Iterable[Kind], process: FedProcess, settings: Settings, identity: str
    ) -> None:
        super().__init__(client, kinds, process)
        self._staleness = Staleness(process.metrics.staleness, settings.max_staleness_seconds)
        self._name = settings.lease_name
        self._clock = process.clock
        self._complete_at = float("-inf")
        timing = timing_of(settings)
        namespace = settings.lease_namespace or settings.own_namespace
        writes = process.writes
        pauses = random.Random()  # noqa: S311  not for secrets
        lease = LeaseClient(client, namespace, settings.lease_name, timeout_seconds=timing.call_seconds)
        election = Election(identity, timing, pauses, writes, asks=settings.lease_follows_calls)
        self._elector = LeaderElector(lease, election, self._eligible, self.settlement, process.clock)
        self._awaits_lead = bool(settings.leader_service) or settings.lease_follows_calls
        self.fence = Fence(writes, self._elector.leading_term)
        self._service = _leader_service(client, settings, namespace, self._elector.leading)
        self.activator = ApiActivator(LeaderClient(client, self.fence), process.clock)

    def commit(self) -> None:
        self._elector.commit()

    def start(self) -> None:
        super().start()
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
        names = super().revive()
        if self._elector.revive():
            names.append("leader-election")
        if self._service and self._service.revive():
            names.append("leader-service")
        return names

    def stop(self) -> None:
        """Stops leading, releases the lease if the outcome of all writes is known, and ends all threads."""
        if self._service:
            self._service.stop()
        self._elector.stop()
        super().stop()

    def settle(self) -> None:
        self.settlement.advance()

    def settling(self) -> None:
        """Returns None, because the elector lets this process lead only once it knows all earlier writes."""

    def waiting_for(self) -> Mapping[str, str | None]:
        return {"lease": self._elector.waiting_for()}

    def await_lead(self) -> None:
        if self._service:
            self._service.note_call()
        if self._awaits_lead and not self._elector.leading():
            self._elector.hurry(LEAD_SECONDS)

    def leading(self) -> Mapping[str, bool]:
        return {self._name: self._elector.leading()}

    def _eligible(self) -> bool:
        """Returns True if the cache is up to date, or is listed again for less than RELIST_SECONDS."""
        now = self._clock.monotonic()
        if not self.missing():
            self._complete_at = now
        return now - self._complete_at < RELIST_SECONDS and self._staleness.waiting_for() is None


ClusterFeed = FileFeed | LiveFeed | ElectedFeed
"""Keeps a cache filled from a cluster, and binds pods in that cluster.

Attributes:
    binder: binds at the API server, or in memory for a file; use it within `fence`.
    activator: makes the scheduler try a pod again; does nothing unless this process leads.
    lister: lists the cluster as it is now.
    fence: records each write. With an election, its check refuses the write if this process does not lead.
    settlement: finds out the outcome of unsettled writes.
"""
FeedFactory = Callable[[FedProcess], ClusterFeed]
"""Creates the feed, which fills a cache. The factory is made before the fork, so that its errors end the command.

The feed watches pod groups only if a feature gate or --coscheduling requires them.
"""


def timing_of(settings: Settings) -> Timing:
    """Returns the times of the election, in client-go's ratios."""
    duration = settings.lease_duration_seconds
    return Timing(duration, duration * 2 / 3, duration * 2 / 15, settings.settle_seconds)


def _leader_service(
    client: KubeClient, settings: Settings, namespace: str, leading: Callable[[], bool]
) -> LeaderService | None:
    if not settings.leader_service:
        return None
    _, port = host_and_port(settings.bind)
    labels = labels_of(settings.own_labels)
    return LeaderService(client, namespace, settings.leader_service, settings.own_address, port, labels, leading)


def _kinds(names: Sequence[str]) -> list[Kind]:
    unknown = [name for name in names if name not in KINDS]
    if unknown:
        raise ConfigurationError([_unknown_kind(name) for name in unknown])
    return [KINDS[name] for name in names or KINDS]


def _unknown_kind(name: str) -> str:
    message = f"watchKinds: unknown kind {name}"
    return message + (did_you_mean(nearest(name, KINDS)) or f": expected one of {', '.join(KINDS)}")

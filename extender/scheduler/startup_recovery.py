"""The remains of an earlier scheduler, put right before the first decision.

A scheduler that was killed between a decision and the Binding leaves
- claims that are reserved for pods which are not bound: they are released, and their devices given back;
- claims made for the extended resources of such pods: they are deleted, for the next attempt makes its own;
- nominations to nodes that are gone: they are ended. All others are taken over as they stand, by the queue.
What else there is belongs to controllers: reservations for pods that are gone and claims of such pods to that of
resource claims, volumes that name their claims to that of volumes, claims with a selected node to provisioners.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator
from functools import partial

from extender.cache.cache import Cache
from extender.errors import ClusterError
from extender.model.devices.claims import ResourceClaim
from extender.model.node import Node
from extender.model.pod import Pod
from extender.scheduler.nominations import Nominations
from extender.scheduler.ports import ClaimWriter
from extender.table import PodInfo

_log = logging.getLogger(__name__)


class StartupRecovery:
    """Cleans up for the pods that the loop places; `put_right` is for the leader, once the cache is in sync."""

    def __init__(
        self,
        cache: Cache,
        scheduler_names: Collection[str],
        claims: ClaimWriter,
        nominations: Nominations,
    ) -> None:
        self._cache, self._scheduler_names = cache, frozenset(scheduler_names)
        self._claims, self._nominations = claims, nominations

    def put_right(self) -> None:
        """Releases claims and ends nominations; a failure is logged, for the pods' own attempts come upon it again."""
        waiting = {pod.uid: pod for pod in self._waiting_pods()}
        for claim in self._cache.view.objects(ResourceClaim.__name__).values():
            if isinstance(claim, ResourceClaim):
                self._put_right(claim, waiting)
        nodes = self._cache.view.objects(Node.__name__)
        nominated = (pod for pod in waiting.values() if pod.status.nominated_node_name)
        self._nominations.withdraw(PodInfo(pod) for pod in nominated if pod.status.nominated_node_name not in nodes)

    def _waiting_pods(self) -> Iterator[Pod]:
        for held in self._cache.view.pods().values():
            pod = held.pod
            if pod is not None and not held.node_name and pod.spec.scheduler_name in self._scheduler_names:
                yield pod

    def _put_right(self, claim: ResourceClaim, waiting: dict[str, Pod]) -> None:
        owner = claim.controller
        if claim.is_for_extended_resources and owner is not None and owner.uid in waiting:
            self._try(claim, lambda: self._claims.delete(claim))
            return
        for consumer in claim.status.reserved_for or ():
            pod = waiting.get(consumer.uid)
            if pod is not None:
                self._try(claim, partial(self._release, claim, pod))

    def _release(self, claim: ResourceClaim, pod: Pod) -> None:
        released = self._claims.release(claim, pod, deallocate=True)
        if released is not None:
            self._cache.confirm_object(released)

    def _try(self, claim: ResourceClaim, act: Callable[[], None]) -> None:
        try:
            act()
        except ClusterError as error:
            _log.warning("claim %s, left by an earlier scheduler: %s", claim.key, error)

"""The remains of an earlier scheduler, put right before the first decision, and what comes to light later.

A scheduler that was killed between a decision and the Binding leaves
- claims that are reserved for pods which are not bound: they are released, and their devices given back;
- claims made for the extended resources of such pods: they are deleted, for the next attempt makes its own;
- nominations to nodes that are gone: they are ended. All others are taken over as they stand, by the queue.
A Binding of unknown outcome that was not carried out leaves claims too, and so does a write that arrives late.
None of it is taken for a remain while a write of an earlier process may be in flight: a start settles first, and a pod
whose bind has no answer counts as placed until that is settled (`runtime.unsettled`).
What else there is belongs to controllers: reservations for pods that are gone and claims of such pods to that of
resource claims, volumes that name their claims to that of volumes, claims with a selected node to provisioners.
"""

from __future__ import annotations

from collections.abc import Collection

from extender.cache.cache import Cache
from extender.model.devices.claims import ResourceClaim
from extender.model.node import Node
from extender.model.pod import Pod
from extender.scheduler.binding.claims import DeviceClaims
from extender.scheduler.preemption import Nominations
from extender.table import PodInfo


class StartupRecovery:
    """Cleans up for the pods that the loop places; `put_right` is for the leader, once the cache is in sync.

    After that its owner calls `release_kept` every half minute or so.
    """

    def __init__(
        self,
        cache: Cache,
        scheduler_names: Collection[str],
        claims: DeviceClaims,
        nominations: Nominations,
    ) -> None:
        self._cache, self._scheduler_names = cache, frozenset(scheduler_names)
        self._claims, self._nominations = claims, nominations
        self._seen = frozenset[tuple[str, str]]()

    def put_right(self) -> None:
        """Releases claims and ends nominations."""
        for claim, pod in self._kept().values():
            self._claims.release(claim, pod)
        nodes = self._cache.objects(Node.__name__)
        nominated = (pod for pod in self._waiting_pods().values() if pod.status.nominated_node_name)
        self._nominations.withdraw(PodInfo(pod) for pod in nominated if pod.status.nominated_node_name not in nodes)

    def release_kept(self) -> None:
        """Releases the claims that are reserved for waiting pods, and were so the last time.

        Till then the pod may be tried again, and go on with what it has.
        """
        kept = self._kept()
        for key in kept.keys() & self._seen:
            self._claims.release(*kept[key])
        self._seen = frozenset(kept)

    def _kept(self) -> dict[tuple[str, str], tuple[ResourceClaim, Pod]]:
        """Returns the claims that are reserved, or made, for waiting pods, by the UIDs of claim and pod."""
        kept: dict[tuple[str, str], tuple[ResourceClaim, Pod]] = {}
        claims = self._cache.objects(ResourceClaim.__name__)
        waiting = self._waiting_pods() if claims else {}
        for claim in claims.values():
            if isinstance(claim, ResourceClaim):
                pods = (waiting.get(uid) for uid in _users(claim))
                kept.update({(claim.uid, pod.uid): (claim, pod) for pod in pods if pod is not None})
        return kept

    def _waiting_pods(self) -> dict[str, Pod]:
        """Returns the pods that have no place, nor are being bound, by UID."""
        return {
            uid: held.pod
            for uid, held in self._cache.pods().items()
            if held.pod and not held.node_name and held.pod.spec.scheduler_name in self._scheduler_names
        }


def _users(claim: ResourceClaim) -> list[str]:
    """Returns the UIDs of the pods that the claim is reserved for, or of the one that it was made for."""
    if claim.is_for_extended_resources and claim.controller is not None:
        return [claim.controller.uid]
    return [consumer.uid for consumer in claim.status.reserved_for or ()]

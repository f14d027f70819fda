"""Cleans up what a killed scheduler has left, before the first decision and regularly afterwards.

A scheduler that is killed between a decision and the Binding leaves these behind:

- Claims that are reserved for pods which are not bound. They are released, and so are their devices.
- Claims that were created for the extended resources of such pods. They are deleted, because the next attempt creates
  its own.
- Nominations to deleted nodes. They are ended. The queue takes over all other nominations.

A Binding may also leave such claims behind if it got no answer and was not carried out. So may a write that arrives
late. Therefore the clean-up is repeated.

Nothing is cleaned up while a write of an earlier process may still arrive: a new process waits for such writes first,
and a pod whose bind got no answer counts as placed until the outcome is known (`runtime.unsettled`).

Controllers clean up the rest: reservations for deleted pods and claims of such pods, volumes that name their claims,
and claims with a selected node.
"""

from __future__ import annotations

from collections.abc import Collection

from extender.cache.cache import Cache
from extender.model.devices import ResourceClaim
from extender.model.node import Node
from extender.model.pod import Pod
from extender.scheduler.preemption import Nominations
from extender.scheduler.reservations import DeviceClaims
from extender.table import PodInfo


class StartupRecovery:
    """Cleans up after killed schedulers, for the pods that the loop places.

    A new leader calls `clean_up` once its cache is complete, and then `release_leaked` about every half minute.
    """

    def __init__(
        self,
        cache: Cache,
        scheduler_names: Collection[str],
        claims: DeviceClaims,
        nominations: Nominations,
    ) -> None:
        self._cache = cache
        self._scheduler_names = frozenset(scheduler_names)
        self._claims = claims
        self._nominations = nominations
        self._seen = frozenset[tuple[str, str]]()

    def clean_up(self) -> None:
        """Releases the claims of waiting pods, and ends nominations to deleted nodes."""
        for claim, pod in self._leaked().values():
            self._claims.release(claim, pod)
        nodes = self._cache.objects(Node.__name__)
        nominated = (pod for pod in self._waiting_pods().values() if pod.status.nominated_node_name)
        self._nominations.withdraw(PodInfo(pod) for pod in nominated if pod.status.nominated_node_name not in nodes)

    def release_leaked(self) -> None:
        """Releases the claims of waiting pods that two calls in a row have found.

        One call is not enough, because a pod may just be trying again, with the claims reserved for it.
        """
        leaked = self._leaked()
        for key in leaked.keys() & self._seen:
            self._claims.release(*leaked[key])
        self._seen = frozenset(leaked)

    def _leaked(self) -> dict[tuple[str, str], tuple[ResourceClaim, Pod]]:
        """Returns (UID of claim, UID of pod) -> (claim, pod), for each claim that is reserved for a waiting pod."""
        leaked: dict[tuple[str, str], tuple[ResourceClaim, Pod]] = {}
        claims = self._cache.objects(ResourceClaim.__name__)
        waiting = self._waiting_pods() if claims else {}
        for claim in claims.values():
            if isinstance(claim, ResourceClaim):
                pods = (waiting.get(uid) for uid in _users(claim))
                leaked.update({(claim.uid, pod.uid): (claim, pod) for pod in pods if pod is not None})
        return leaked

    def _waiting_pods(self) -> dict[str, Pod]:
        """Returns the pods that have no node and are not being bound, by UID."""
        return {
            uid: cached.pod
            for uid, cached in self._cache.pods().items()
            if cached.pod and not cached.node_name and cached.pod.spec.scheduler_name in self._scheduler_names
        }


def _users(claim: ResourceClaim) -> list[str]:
    """Returns the UIDs of the pods that the claim is reserved for, or of the pod it was created for."""
    if claim.is_for_extended_resources and claim.controller is not None:
        return [claim.controller.uid]
    return [consumer.uid for consumer in claim.status.reserved_for or ()]

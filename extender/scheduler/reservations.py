"""Reserves what a pod needs before its Binding: devices for its claims, and volumes.

`StartupRecovery` releases what a killed scheduler has reserved.

Devices. The cache shows them as taken from the decision until the claim is written or given up. Members of a pod group
may share a claim, and each of them may be the first to write it. The devices become free again when the last of these
members gives up. One difference from upstream: if a pod is not bound in the end, the devices that were allocated for
it are released at once. Source: upstream DynamicResources, Reserve, PreBind, Unreserve.

Volumes. Existing volumes are bound to the pod's claims, or the provisioner is asked to create some. Writes are not
undone if a later step fails. The PV controller completes them, and the pod uses the volumes in its next attempt.
Source: upstream volumeBinder, AssumePodVolumes, BindPodVolumes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import NamedTuple

from extender.cache.cache import Cache
from extender.cache.observed import version_of
from extender.devices.plan import is_failed, is_overdue, is_ready, pending_claim
from extender.devices.pod_claims import CLAIM_NAME
from extender.devices.pod_claims import NAME as DEVICES
from extender.engine.decision import NOTHING_TO_ALLOCATE, NOTHING_TO_BIND, Chosen
from extender.errors import BindingFailed, ClusterError, Outdated
from extender.framework.status import Refusal
from extender.model.devices import AllocationResult, ConsumerReference, PendingClaim, ResourceClaim
from extender.model.node import Node
from extender.model.pod import Pod
from extender.model.storage import PersistentVolume, PersistentVolumeClaim
from extender.plugins.volume_binding import VolumePlan, bound, plan_volumes, selected
from extender.runtime.clock import Clock
from extender.scheduler.preemption import Nominations
from extender.scheduler.scheduler_ports import ClaimWriter, Events, VolumeWriter
from extender.scheduler.waiting_pods import pre_bind_failed
from extender.table import PodInfo
from extender.volumes.node_volumes import NAME as VOLUME_BINDING

PENDING = PendingClaim.__name__
CLAIM = ResourceClaim.__name__
_log = logging.getLogger(__name__)


class DeviceHolds:
    """Keeps a claim's devices taken while a pod holds the claim. Thread-safe.

    A pod holds a claim from the choice of its devices until `confirm` or `leave` is called for the pod.
    """

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._lock = Lock()
        # Key of a PendingClaim -> the UIDs of the pods that hold it.
        self._holders: dict[str, set[str]] = {}

    def take(self, pending: PendingClaim, uid: str) -> None:
        """Marks the claim's devices as taken, with the pod as the only holder.

        Raises Outdated if another pod has taken the claim.
        """
        with self._lock:
            self._cache.assume_object(pending)
            self._holders[pending.key] = {uid}

    def join(self, pending: PendingClaim, uid: str) -> bool:
        """Adds the pod to the holders; returns False if the claim is no longer held with the same devices."""
        with self._lock:
            current = self._cache.effective(PENDING, pending.key)
            if not isinstance(current, PendingClaim) or current.uid != pending.uid:
                return False
            if current.allocation != pending.allocation:
                return False
            self._holders.setdefault(pending.key, set()).add(uid)
            return True

    def confirm(self, key: str, uid: str, written: ResourceClaim) -> None:
        """Removes the pod from the holders, and stores the claim as the API server returned it (`written`)."""
        with self._lock:
            is_last = self._remove(key, uid)
            self._cache.confirm_object(written, instead_of=(PENDING, key) if is_last else None)

    def leave(self, key: str, uid: str) -> None:
        """Removes the pod from the holders. If no holder is left, the claim's devices are free again."""
        with self._lock:
            if self._remove(key, uid):
                self._cache.restore_object(PENDING, key)

    def _remove(self, key: str, uid: str) -> bool:
        """Removes the pod from the holders; returns True if no holder is left. The caller has the lock."""
        holders = self._holders.pop(key, set()) - {uid}
        if holders:
            self._holders[key] = holders
        return not holders


class DeviceClaims:
    """Reserves device claims for pods; implements Reserver.

    A failed rollback is retried. Until it succeeds, the claim's devices stay allocated. The owner calls `resolve` about
    once a second.
    """

    def __init__(self, cache: Cache, writer: ClaimWriter, events: Events, clock: Clock) -> None:
        self.cache = cache
        self.writer = writer
        self.events = events
        self.clock = clock
        self.holds = DeviceHolds(cache)
        # (UID of the claim, UID of the pod) -> the undo step that failed
        self.failed_steps: dict[tuple[str, str], UndoStep] = {}

    def reserve(self, pod: PodInfo, chosen: Chosen) -> ClaimReservation | None:
        return None if chosen.devices == NOTHING_TO_ALLOCATE else ClaimReservation(self, pod, chosen)

    def resolve(self) -> None:
        """Retries failed rollbacks."""
        for key, step in list(self.failed_steps.items()):
            self._try(key, step)

    def release(self, claim: ResourceClaim, pod: Pod) -> None:
        """Releases or deletes a waiting pod's claim, with retries. Does nothing if the pod is being bound."""
        key = (claim.uid, pod.uid)
        if key in self.failed_steps:
            return
        is_own = claim.is_for_extended_resources and claim.controller is not None and claim.controller.uid == pod.uid
        give_up = partial(self.give_up, claim, pod.uid, deallocate=True)
        step = UndoStep("", claim, partial(self.writer.delete, claim) if is_own else give_up)
        self.failed_steps[key] = step  # noted before the check, so that no new attempt takes the claim
        if self.cache.placement(pod.uid) is not None:
            del self.failed_steps[key]
        else:
            self._try(key, step)

    def give_up(self, claim: ResourceClaim, uid: str, *, deallocate: bool) -> None:
        """Removes the reservation of the pod or PodGroup with this UID. Raises ClusterError."""
        released = self.writer.release(claim, uid, deallocate=deallocate)
        if released is not None:
            self.cache.confirm_object(released)

    def _try(self, key: tuple[str, str], step: UndoStep) -> None:
        try:
            step.act()
        except ClusterError as error:
            _log.warning("releasing a claim failed and is retried claim=%s reason=%r", step.claim.key, str(error))
            return
        except Exception:  # a retry would meet the same error; the claim keeps its devices
            _log.exception("releasing a claim failed, it keeps its devices claim=%s", step.claim.key)
        self.failed_steps.pop(key, None)
        if step.pending:
            self.holds.leave(step.pending, key[1])

    def unreserve(self, claim: ResourceClaim, uid: str) -> None:
        """Removes the reservation of the PodGroup with this UID; the claim keeps its devices."""
        try:
            self.give_up(claim, uid, deallocate=False)
        except ClusterError as error:  # if the reservation is still there, the group's next attempt removes it
            _log.warning("unreserving a claim failed claim=%s reason=%r", claim.key, str(error))

    def deallocate(self, claim: ResourceClaim) -> None:
        """Deallocates a claim that no pod uses, so that other devices can be allocated to it."""
        try:
            if claim.is_for_extended_resources:
                self.writer.delete(claim)
            else:
                self.cache.confirm_object(self.writer.deallocate(claim))
        except ClusterError as error:  # if the claim was changed, the watch event wakes the pod
            _log.warning("deallocating a claim failed claim=%s reason=%r", claim.key, str(error))


class UndoStep(NamedTuple):
    """One step of a rollback. A call of `act` undoes one write.

    Attributes:
        pending: the key of the PendingClaim that keeps the claim's devices taken in the cache; "" if there is none.
    """

    pending: str
    claim: ResourceClaim
    act: Callable[[], None]


class ClaimReservation:
    """Allocates devices to a pod's claims and reserves the claims for the pod; implements Reservation.

    Attributes:
        timeout_seconds: the longest time until the devices are ready.
    """

    plugin = DEVICES

    def __init__(self, claims: DeviceClaims, pod: PodInfo, chosen: Chosen) -> None:
        self._claims = claims
        self._cache = claims.cache
        self._writer = claims.writer
        self._pod = pod
        self._node_name = chosen.node_name
        self._plan = chosen.devices
        self.timeout_seconds = chosen.timeouts.devices_seconds
        self._pending: list[str] = []
        self._undo_steps: list[UndoStep] = []
        self._written: list[ResourceClaim] = []
        # key of the PendingClaim -> (the created claim, the time of its creation)
        self._created: dict[str, tuple[ResourceClaim, float]] = {}

    def take(self) -> None:
        releasing = {uid for uid, _ in list(self._claims.failed_steps)}
        for claim in (*(claim for claim, _ in self._plan.allocate), *self._plan.reserve):
            if claim.uid in releasing or not self._still_holds(claim):
                raise Outdated(f"ResourceClaim {claim.key} is being released")
        for claim, allocation in self._plan.allocate:
            pending = pending_claim(claim, allocation)
            # Recorded before the call, so that `undo` restores the object even if the call raises.
            self._pending.append(pending.key)
            try:
                self._claims.holds.take(pending, self._pod.uid)
            except Outdated:
                self._pending.pop()  # another pod has assumed the claim, so this pod must not undo that
                raise

    def write(self) -> None:
        pod = self._pod.pod
        for claim, allocation in self._plan.allocate:
            pending = pending_claim(claim, allocation).key
            if claim.name == CLAIM_NAME:
                self._create(pod, claim, allocation, pending)
            else:
                self._bind(pod, claim, allocation, pending)
                self._confirm(self._written[-1], pending)
        for claim in self._plan.reserve:
            current = self._cache.effective(CLAIM, claim.key)
            if isinstance(current, ResourceClaim) and current.allocation is None:
                self._bind_allocated_by_sibling(pod, current, claim)
            elif claim.is_reserved_for(self._plan.consumer_of(claim, pod).uid):
                self._undo_later(claim, "", deallocate=True)
                self._written.append(claim)
            else:
                self._bind(pod, claim, None, "")
                self._cache.confirm_object(self._written[-1])
        if not all(map(is_ready, self._written)):
            note = f"waiting for binding conditions for device on node {self._node_name}"
            self._claims.events.record(pod, "Normal", "BindingConditionsPending", "Scheduling", note)

    def ready(self) -> bool:
        """Returns True if the watch shows all created claims, and all devices are ready (KEP-5007)."""
        shown = [self._is_shown(pending, *created) for pending, created in list(self._created.items())]
        return all(shown) and all(self._is_ready(claim) for claim in self._written)

    def overdue(self) -> BindingFailed:
        return pre_bind_failed(
            DEVICES, f"device binding timeout: devices are not ready after {self.timeout_seconds:g} s"
        )

    def undo(self) -> None:
        while self._undo_steps:
            step = self._undo_steps.pop()
            try:
                step.act()
            except ClusterError as error:
                _log.warning(
                    "undoing a claim's allocation failed, trying again claim=%s pod=%s reason=%r",
                    step.claim.key, self._pod.pod.key, str(error),
                )  # fmt: skip
                self._retry_later(step)
        while self._pending:
            self._claims.holds.leave(self._pending.pop(), self._pod.uid)

    def _retry_later(self, step: UndoStep) -> None:
        """Hands the failed step to DeviceClaims, which retries it."""
        if step.pending in self._pending:
            self._pending.remove(step.pending)
        else:
            step = step._replace(pending="")
        self._claims.failed_steps[step.claim.uid, self._pod.uid] = step

    def _still_holds(self, claim: ResourceClaim) -> bool:
        """Returns False if the claim was reserved for the pod at the decision, and was changed or deleted since.

        For a claim that was not reserved for the pod, returns True.
        """
        if not claim.is_reserved_for(self._plan.consumer_of(claim, self._pod.pod).uid):
            return True  # if another client changed the claim, writing it will fail
        current = self._cache.effective(CLAIM, claim.key)
        return current is not None and current.metadata.resource_version == claim.metadata.resource_version

    # ---- writing

    def _bind(self, pod: Pod, claim: ResourceClaim, allocation: AllocationResult | None, pending: str) -> None:
        # The undo step is recorded before the call, because a call without an answer may have been carried out.
        self._undo_later(claim, pending, deallocate=allocation is not None)
        self._written.append(self._writer.bind(claim, self._plan.consumer_of(claim, pod), allocation))

    def _bind_allocated_by_sibling(self, pod: Pod, current: ResourceClaim, decided: ResourceClaim) -> None:
        """Reserves a claim whose devices were chosen for another member of the group.

        Also writes which devices were chosen, unless the other member has written them already.
        """
        assert decided.allocation is not None
        pending = pending_claim(decided, decided.allocation)
        if self._claims.holds.join(pending, self._pod.uid):
            self._pending.append(pending.key)
            self._bind(pod, current, decided.allocation, pending.key)
            self._confirm(self._written[-1], pending.key)
            return
        if not self._is_allocated(current.key):
            raise pre_bind_failed(
                DEVICES, f"claim {current.name} was not allocated for another member of the pod's group"
            )
        # The other member has written the allocation. If that member frees the devices, they must stay free.
        self._undo_later(decided, "", deallocate=True)
        self._written.append(self._writer.bind(decided, self._plan.consumer_of(decided, pod), None))
        self._cache.confirm_object(self._written[-1])

    def _is_allocated(self, key: str) -> bool:
        claim = self._cache.effective(CLAIM, key)
        return isinstance(claim, ResourceClaim) and claim.allocation is not None

    def _undo_later(self, claim: ResourceClaim, pending: str, *, deallocate: bool) -> None:
        """Records how to undo a write of this claim.

        A reservation of the group is not undone, because other members may use the claim. If `deallocate` is False too,
        there is nothing to undo.
        """
        if deallocate or self._plan.consumer_of(claim, self._pod.pod).uid == self._pod.uid:
            give_up = partial(self._claims.give_up, claim, self._pod.uid, deallocate=deallocate)
            self._undo_steps.append(UndoStep(pending, claim, give_up))

    def _create(self, pod: Pod, claim: ResourceClaim, allocation: AllocationResult, pending: str) -> None:
        created = self._writer.create(claim, pod)
        self._undo_steps.append(UndoStep(pending, created, partial(self._writer.delete, created)))
        self._written.append(self._writer.bind(created, ConsumerReference.of_pod(pod), allocation))
        self._created[pending] = (self._written[-1], self._claims.clock.monotonic())
        self._writer.describe(pod, created, self._plan.mappings)

    def _confirm(self, written: ResourceClaim, pending: str) -> None:
        self._claims.holds.confirm(pending, self._pod.uid, written)
        self._pending.remove(pending)

    # ---- waiting

    def _is_shown(self, pending: str, created: ResourceClaim, created_at: float) -> bool:
        """Returns True if the watch shows the created claim with its devices.

        From then on, the claim itself keeps the devices taken in the cache. Until then, the PendingClaim does.
        """
        observed = self._cache.observed(CLAIM, created.key)
        if not isinstance(observed, ResourceClaim) or observed.allocation is None:
            # If a later list lacks the claim, the API server was restored from a backup.
            if self._cache.listed_since(created_at, CLAIM):
                raise pre_bind_failed(DEVICES, f"claim {created.name} no longer exists")
            return False
        self._confirm(observed, pending)
        del self._created[pending]
        return True

    def _is_ready(self, written: ResourceClaim) -> bool:
        claim = self._cache.effective(CLAIM, written.key)
        if not isinstance(claim, ResourceClaim) or claim.uid != written.uid:
            raise pre_bind_failed(DEVICES, f"claim {written.name} no longer exists")
        if not claim.is_reserved_for(self._plan.consumer_of(claim, self._pod.pod).uid):
            raise pre_bind_failed(DEVICES, f"claim {written.name} is no longer reserved for the pod")
        if is_failed(claim):
            raise pre_bind_failed(DEVICES, f"device binding failed: claim={claim.name}")
        if is_overdue(claim, self._claims.clock.now(), self.timeout_seconds):
            raise pre_bind_failed(DEVICES, f"device binding timeout: claim={claim.name}")
        return is_ready(claim)


VOLUME = PersistentVolume.__name__
VOLUME_CLAIM = PersistentVolumeClaim.__name__


class Volumes:
    """Reserves the volumes of pods that have volumes to bind or to provision; see Reserver."""

    def __init__(self, cache: Cache, writer: VolumeWriter) -> None:
        self._cache = cache
        self._writer = writer

    def reserve(self, pod: PodInfo, chosen: Chosen) -> VolumeReservation | None:
        if chosen.volumes == NOTHING_TO_BIND:
            return None
        return VolumeReservation(pod, chosen, self._cache, self._writer)


class VolumeReservation:
    """Reserves volumes for a pod's claims, and selects the node for volumes that the provisioner will create."""

    plugin = VOLUME_BINDING

    def __init__(self, pod: PodInfo, chosen: Chosen, cache: Cache, writer: VolumeWriter) -> None:
        self._pod = pod
        self._node_name = chosen.node_name
        self._plan = chosen.volumes
        self.timeout_seconds = chosen.timeouts.volumes_seconds
        self._cache = cache
        self._writer = writer
        self._assumed: dict[tuple[str, str], None] = {}
        self._bound: list[PersistentVolume] = []
        self._selected: list[PersistentVolumeClaim] = []

    def take(self) -> None:
        for claim, volume in self._plan.bind:
            self._assume(bound(volume, claim))
        for claim in self._plan.provision:
            self._assume(selected(claim, self._node_name))

    def write(self) -> None:
        for claim, volume in self._plan.bind:
            written = self._writer.bind(volume, claim)
            self._bound.append(written)
            self._confirm(written)
        for claim in self._plan.provision:
            written_claim = self._writer.select_node(claim, self._node_name)
            self._selected.append(written_claim)
            self._confirm(written_claim)

    def ready(self) -> bool:
        """Returns True if all claims are bound to volumes that the node can reach (upstream checkBindings)."""
        shown = [self._is_volume_shown(volume) for volume in self._bound]
        shown += [self._is_claim_shown(claim) for claim in self._selected]
        return all(shown) and all(self._is_bound(claim) for claim in self._claims()) and self._is_within_reach()

    def overdue(self) -> BindingFailed:
        names = ", ".join(claim.name for claim in self._claims() if not self._is_bound(claim))
        return pre_bind_failed(VOLUME_BINDING, f"binding volumes: {names} not bound after {self.timeout_seconds:g} s")

    def undo(self) -> None:
        for kind, key in self._assumed:
            self._cache.restore_object(kind, key)
        self._assumed.clear()

    def _assume(self, obj: PersistentVolume | PersistentVolumeClaim) -> None:
        reference = (type(obj).__name__, obj.key)
        self._assumed[reference] = None  # noted first, so that `undo` restores the object even if the call raises
        try:
            self._cache.assume_object(obj)
        except Outdated:
            del self._assumed[reference]  # another pod may have assumed the object, so this pod must not undo that
            raise

    def _confirm(self, obj: PersistentVolume | PersistentVolumeClaim) -> None:
        self._cache.confirm_object(obj)
        self._assumed.pop((type(obj).__name__, obj.key), None)

    def _claims(self) -> Iterator[PersistentVolumeClaim]:
        yield from (claim for claim, _ in self._plan.bind)
        yield from self._plan.provision

    def _is_volume_shown(self, written: PersistentVolume) -> bool:
        """Returns True if the watch shows the volume as written or newer. Raises BindingFailed if it is gone."""
        volume = self._cache.effective(VOLUME, written.key)
        if not isinstance(volume, PersistentVolume):
            raise pre_bind_failed(VOLUME_BINDING, f'binding volumes: pv "{written.name}" no longer exists')
        if volume.spec.claim_ref is None or volume.spec.claim_ref != written.spec.claim_ref:
            raise pre_bind_failed(VOLUME_BINDING, f'binding volumes: ClaimRef got reset for pv "{volume.name}"')
        return self._is_shown(written)

    def _is_claim_shown(self, written: PersistentVolumeClaim) -> bool:
        """Returns True if the watch shows the claim as written, or a newer version.

        Raises BindingFailed if the claim is gone, or if the provisioner gave up and removed the selected node.
        """
        self._claim(written)
        claim = self._cache.effective(VOLUME_CLAIM, written.key)
        if isinstance(claim, PersistentVolumeClaim) and claim.selected_node != self._node_name:
            raise pre_bind_failed(VOLUME_BINDING, f'binding volumes: provisioning failed for PVC "{claim.name}"')
        return self._is_shown(written)

    def _is_shown(self, written: PersistentVolume | PersistentVolumeClaim) -> bool:
        observed = self._cache.observed(type(written).__name__, written.key)
        return observed is not None and version_of(observed) >= version_of(written)

    def _is_bound(self, planned: PersistentVolumeClaim) -> bool:
        """Returns True if the claim and its volume are bound to each other, and the watch shows the volume."""
        claim = self._claim(planned)
        return claim.fully_bound and self._cache.observed(VOLUME, claim.spec.volume_name) is not None

    def _claim(self, planned: PersistentVolumeClaim) -> PersistentVolumeClaim:
        claim = self._cache.observed(VOLUME_CLAIM, planned.key)
        if not isinstance(claim, PersistentVolumeClaim) or claim.uid != planned.uid:
            raise pre_bind_failed(
                VOLUME_BINDING, f'binding volumes: persistentvolumeclaim "{planned.name}" no longer exists'
            )
        return claim

    def _is_within_reach(self) -> bool:
        with self._cache.snapshot("volumes") as table:
            row = table.nodes.row_of.get(self._node_name)
            if row is None or not table.nodes.present[row]:
                raise pre_bind_failed(VOLUME_BINDING, f'binding volumes: node "{self._node_name}" no longer exists')
            plan = plan_volumes(self._pod, table, row)
        if isinstance(plan, Refusal):
            raise pre_bind_failed(VOLUME_BINDING, f"binding volumes: {', '.join(plan.reasons)}")
        return plan == VolumePlan()


@dataclass(slots=True)
class StartupRecovery:
    """Cleans up what a killed scheduler has left for the pods of this loop: before its first decision, and regularly.

    A scheduler that is killed between a decision and the Binding leaves these behind:

    - Claims that are reserved for pods which are not bound. They are released, and so are their devices.
    - Claims that were created for the extended resources of such pods. They are deleted, because the next attempt
      creates its own.
    - Nominations to deleted nodes. They are ended. The queue takes over all other nominations.

    A Binding may also leave such claims behind if it got no answer and was not carried out. So may a write that arrives
    late. Therefore the clean-up is repeated: a new leader calls `clean_up` once its cache is complete, and then
    `release_leaked` about every half minute.

    Nothing is cleaned up while a write of an earlier process may still arrive: a new process waits for such writes
    first, and a pod whose bind got no answer counts as placed until the outcome is known (`runtime.unsettled`).

    Controllers clean up the rest: reservations for deleted pods and claims of such pods, volumes that name their
    claims, and claims with a selected node.
    """

    cache: Cache
    scheduler_names: Collection[str]
    claims: DeviceClaims
    nominations: Nominations
    seen: frozenset[tuple[str, str]] = frozenset()

    def clean_up(self) -> None:
        """Releases the claims of waiting pods, and ends nominations to deleted nodes."""
        for claim, pod in self._leaked().values():
            self.claims.release(claim, pod)
        nodes = self.cache.objects(Node.__name__)
        nominated = (pod for pod in self._waiting_pods().values() if pod.status.nominated_node_name)
        self.nominations.withdraw(PodInfo(pod) for pod in nominated if pod.status.nominated_node_name not in nodes)

    def release_leaked(self) -> None:
        """Releases the claims of waiting pods that two calls in a row have found.

        One call is not enough, because a pod may just be trying again, with the claims reserved for it.
        """
        leaked = self._leaked()
        for key in leaked.keys() & self.seen:
            self.claims.release(*leaked[key])
        self.seen = frozenset(leaked)

    def _leaked(self) -> dict[tuple[str, str], tuple[ResourceClaim, Pod]]:
        """Returns (UID of claim, UID of pod) -> (claim, pod), for each claim that is reserved for a waiting pod."""
        leaked: dict[tuple[str, str], tuple[ResourceClaim, Pod]] = {}
        claims = self.cache.objects(ResourceClaim.__name__)
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
            for uid, cached in self.cache.pods().items()
            if cached.pod and not cached.node_name and cached.pod.spec.scheduler_name in self.scheduler_names
        }


def _users(claim: ResourceClaim) -> list[str]:
    """Returns the UIDs of the pods that the claim is reserved for, or of the pod it was created for."""
    if claim.is_for_extended_resources and claim.controller is not None:
        return [claim.controller.uid]
    return [consumer.uid for consumer in claim.status.reserved_for or ()]

"""Binds existing volumes to a pod's claims, or asks the provisioner to create volumes.

Source: upstream volumeBinder, AssumePodVolumes, BindPodVolumes. Writes are not undone if a later step fails. The PV
controller completes them, and the pod uses the volumes in its next attempt.
"""

from __future__ import annotations

from collections.abc import Iterator

from extender.cache.cache import Cache
from extender.cache.observed import version_of
from extender.engine.decision import NOTHING_TO_BIND, Chosen
from extender.errors import BindingFailed, Outdated
from extender.framework.status import Refusal
from extender.model.storage import (
    PersistentVolume,
    PersistentVolumeClaim,
)
from extender.plugins.volume_binding import VolumePlan, bound, plan_volumes, selected
from extender.scheduler.scheduler_ports import VolumeWriter
from extender.scheduler.waiting_pods import pre_bind_failed
from extender.table import PodInfo
from extender.volumes.volume_claims import NAME as VOLUME_BINDING

VOLUME = PersistentVolume.__name__
CLAIM = PersistentVolumeClaim.__name__


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
        claim = self._cache.effective(CLAIM, written.key)
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
        claim = self._cache.observed(CLAIM, planned.key)
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

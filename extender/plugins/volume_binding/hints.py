"""The events that may help pods that VolumeBinding refused (upstream volumebinding, EventsToRegister)."""

from __future__ import annotations

from extender.framework.events.claim_hints import USED_CLAIMS, claim_of, uses_claim
from extender.framework.events.cluster_events import Action, Change, Resource
from extender.framework.events.queueing_hints import Interest, Interests, Reads
from extender.model.quantity import nano
from extender.table import PodInfo

_ADD_OR_UPDATE = Action.ADD | Action.UPDATE


def topologies_change(_pod: PodInfo, change: Change) -> bool:
    """Returns True if a storage class came, or provisions elsewhere than before."""
    return change.old is None or change.old.allowed_topologies != change.new.allowed_topologies


def migration_changes(_pod: PodInfo, change: Change) -> bool:
    """Returns True if a CSINode came, or leaves other in-tree plugins to drivers than before."""
    return change.old is None or change.old.migrated_plugins != change.new.migrated_plugins


def capacity_ceases_to_matter(pod: PodInfo, change: Change) -> bool:
    """Returns True if a driver of an inline volume of the pod no longer reports its capacity."""
    if not change.old.spec.storage_capacity or change.new.spec.storage_capacity:
        return False
    return change.new.name in _inline_drivers(pod)


def _inline_drivers(pod: PodInfo) -> frozenset[str]:
    return frozenset(volume.csi.driver for volume in pod.pod.spec.volumes or () if volume.csi)


def capacity_grows(_pod: PodInfo, change: Change) -> bool:
    """Returns True if larger volumes can be made than before."""
    if change.old is None:
        return True
    before, after = change.old.volume_limit, change.new.volume_limit
    return after is not None and (before is None or nano(after) > nano(before))


INTERESTS = Interests(
    (
        Interest(Resource.STORAGE_CLASS, _ADD_OR_UPDATE, topologies_change),
        Interest(Resource.PERSISTENT_VOLUME_CLAIM, _ADD_OR_UPDATE, uses_claim, USED_CLAIMS, claim_of),
        Interest(Resource.PERSISTENT_VOLUME, _ADD_OR_UPDATE),
        Interest(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL),
        Interest(Resource.CSI_NODE, _ADD_OR_UPDATE, migration_changes),
        Interest(Resource.CSI_DRIVER, Action.UPDATE, capacity_ceases_to_matter, Reads(_inline_drivers)),
        Interest(Resource.CSI_STORAGE_CAPACITY, _ADD_OR_UPDATE, capacity_grows),
    )
)

"""Events and hints of the volume rules.

Sources: upstream plugins volumebinding, volumezone, volumerestrictions, nodevolumelimits/csi.go.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from extender.framework.events.cluster_events import Action, Change, Resource
from extender.framework.events.queueing_hints import Interest, Interests
from extender.model.quantity import nano
from extender.model.volumes.csi_migration import BETA_REGION, BETA_ZONE, REGION, ZONE, CSIVolume
from extender.model.volumes.pod_volumes import InlineVolume, Mount
from extender.model.volumes.storage import WAIT_FOR_FIRST_CONSUMER, CSINode, PersistentVolume
from extender.table import PodInfo

_ADD_OR_UPDATE = Action.ADD | Action.UPDATE
_TOPOLOGY_LABELS = (BETA_ZONE, BETA_REGION, ZONE, REGION)


def claim_of(change: Change) -> tuple[str, ...]:
    """The claim that the change is about."""
    return (change.new.key,)


def uses_claim(pod: PodInfo, change: Change) -> bool:
    """The pod uses the claim, be it that of an ephemeral volume."""
    return change.new.key in _claims(pod)


def names_claim(pod: PodInfo, change: Change) -> bool:
    """The pod names the claim itself."""
    return change.new.key in _named_claims(pod)


def _claims(pod: PodInfo) -> Iterator[str]:
    return (use.key for use in pod.claims)


def _named_claims(pod: PodInfo) -> Iterator[str]:
    return (use.key for use in pod.claims if use.owner is None)


def _volumes(pod: PodInfo) -> Hashable:
    return pod.pod.namespace, pod.claims, pod.mounts, pod.attachables


# ---- VolumeBinding


def topologies_change(_pod: PodInfo, change: Change) -> bool:
    """A storage class came, or provisions elsewhere than before."""
    return change.old is None or change.old.allowed_topologies != change.new.allowed_topologies


def migration_changes(_pod: PodInfo, change: Change) -> bool:
    """A CSINode came, or leaves other in-tree plugins to drivers than before."""
    return change.old is None or change.old.migrated_plugins != change.new.migrated_plugins


def capacity_ceases_to_matter(pod: PodInfo, change: Change) -> bool:
    """A driver of an inline volume of the pod no longer reports how much it can store."""
    if not change.old.spec.storage_capacity or change.new.spec.storage_capacity:
        return False
    return any(volume.csi and volume.csi.driver == change.new.name for volume in pod.pod.spec.volumes or ())


def capacity_grows(_pod: PodInfo, change: Change) -> bool:
    """Larger volumes can be made than before."""
    if change.old is None:
        return True
    before, after = change.old.volume_limit, change.new.volume_limit
    return after is not None and (before is None or nano(after) > nano(before))


VOLUME_BINDING = Interests(
    (
        Interest(Resource.STORAGE_CLASS, _ADD_OR_UPDATE, topologies_change),
        Interest(Resource.PERSISTENT_VOLUME_CLAIM, _ADD_OR_UPDATE, uses_claim, claim_of),
        Interest(Resource.PERSISTENT_VOLUME, _ADD_OR_UPDATE),
        Interest(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL),
        Interest(Resource.CSI_NODE, _ADD_OR_UPDATE, migration_changes),
        Interest(Resource.CSI_DRIVER, Action.UPDATE, capacity_ceases_to_matter),
        Interest(Resource.CSI_STORAGE_CAPACITY, _ADD_OR_UPDATE, capacity_grows),
    ),
    lambda pod: tuple(volume.csi.driver for volume in pod.pod.spec.volumes or () if volume.csi),
    _claims,
)


# ---- VolumeZone


def class_waits(_pod: PodInfo, change: Change) -> bool:
    """A storage class came that binds once the pod has a node."""
    mode: str | None = change.new.volume_binding_mode
    return mode == WAIT_FOR_FIRST_CONSUMER


def zones_change(_pod: PodInfo, change: Change) -> bool:
    """A volume came, or is in other zones or regions than before."""
    return change.old is None or _zones(change.old) != _zones(change.new)


def _zones(volume: PersistentVolume) -> list[str | None]:
    return [volume.labels.get(key) for key in _TOPOLOGY_LABELS]


VOLUME_ZONE = Interests(
    (
        Interest(Resource.STORAGE_CLASS, Action.ADD, class_waits),
        Interest(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL),
        Interest(Resource.PERSISTENT_VOLUME_CLAIM, _ADD_OR_UPDATE, names_claim, claim_of),
        Interest(Resource.PERSISTENT_VOLUME, _ADD_OR_UPDATE, zones_change),
    ),
    names=_named_claims,
)


# ---- VolumeRestrictions


def volumes_are_released(pod: PodInfo, change: Change) -> bool:
    """A pod went that used a disk in a way that clashes with this one's, or one of its claims."""
    left: PodInfo = change.old
    if left.pod.namespace != pod.pod.namespace:
        return False
    shared = not set(_named_claims(pod)).isdisjoint(_named_claims(left))
    return shared or any(_clash(mine, other) for mine in pod.mounts for other in left.mounts)


def _clash(mine: Mount, other: Mount) -> bool:
    return mine.disk == other.disk and not (mine.read_only and other.read_only)


VOLUME_RESTRICTIONS = Interests(
    (
        Interest(Resource.ASSIGNED_POD, Action.DELETE, volumes_are_released),
        Interest(Resource.NODE, Action.ADD),
        Interest(Resource.PERSISTENT_VOLUME_CLAIM, Action.ADD, names_claim, claim_of),
    ),
    _volumes,
    _named_claims,
)


# ---- NodeVolumeLimits


def limits_grow(_pod: PodInfo, change: Change) -> bool:
    """A driver of the node can attach more volumes than before."""
    before = _limits(change.old)
    return any(limit > before.get(driver, 0) for driver, limit in _limits(change.new).items())


def volumes_are_detached(_pod: PodInfo, change: Change) -> bool:
    """A pod left a node and may have had volumes attached there."""
    left = change.old
    return bool((left.pod.node_name or left.pod.status.nominated_node_name) and left.attachables)


def attachment_goes(pod: PodInfo, change: Change) -> bool:
    """A volume was detached by a driver that may be needed for the pod."""
    return any(
        not isinstance(each, InlineVolume)
        or not isinstance(each.volume, CSIVolume)
        or each.volume.driver == change.old.spec.attacher
        for each in pod.attachables
    )


def _limits(csi_node: CSINode) -> dict[str, int]:
    return {driver.name: (driver.allocatable.count or 0) if driver.allocatable else 0 for driver in csi_node.drivers}


NODE_VOLUME_LIMITS = Interests(
    (
        Interest(Resource.CSI_NODE, Action.ADD),
        Interest(Resource.CSI_NODE, Action.UPDATE, limits_grow),
        Interest(Resource.ASSIGNED_POD, Action.DELETE, volumes_are_detached),
        Interest(Resource.PERSISTENT_VOLUME_CLAIM, Action.ADD, uses_claim, claim_of),
        Interest(Resource.VOLUME_ATTACHMENT, Action.DELETE, attachment_goes),
    ),
    lambda pod: pod.attachables,
    _claims,
)

"""Explains with numbers why nodes refuse the volumes and devices of a pod; `details` calls it by plugin."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from extender.devices.allocations import devices_of
from extender.devices.allocator import keeps_away
from extender.devices.cel.device_selectors import matching
from extender.devices.device import PoolDevice
from extender.devices.device_requests import RequestData, claim_data
from extender.devices.pod_claims import PodDeviceClaims, pod_device_claims
from extender.model.devices import DeviceClass
from extender.model.meta import NodeSelector
from extender.model.pod_volumes import clash
from extender.model.quantity import units
from extender.model.selectors import requirement_text
from extender.model.storage import (
    READ_WRITE_ONCE_POD,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from extender.plugins import node_volume_limits, volume_binding, volume_restrictions, volume_zone
from extender.runtime.text import counted, listed, rounded
from extender.table import PodInfo, Table
from extender.table.labels import Rows
from extender.volumes.accessibility import nodes_labelled
from extender.volumes.node_volumes import node_term
from extender.volumes.volume_claims import attachable_volumes

# ---- volumes


def volume_limits(pod: PodInfo, table: Table, rows: Rows, reason: str) -> str:
    """Returns, for each driver that refuses, the node with the most room: how many volumes it has and may have."""
    if reason not in node_volume_limits.REFUSAL.reasons:
        return ""
    storage = table.storage
    texts = []
    for driver, volumes in sorted(attachable_volumes(pod, table).by_driver.items()):
        attached = storage.attachments.counted(driver)[rows]
        limit = storage.csi_nodes.limit(driver)[rows]
        added = node_volume_limits.not_attached(volumes, table, rows)
        short = attached + added - limit
        full = np.flatnonzero((added > 0) & (short > 0))
        if len(full):
            best = full[short[full].argmin()]
            texts.append(
                f"{table.nodes.names[rows[best]]} has {attached[best]} of {counted(int(limit[best]), 'volume')} of "
                f"{driver} attached, and the pod adds {added[best]}"
            )
    return listed(texts)


def volumes(pod: PodInfo, table: Table, rows: Rows, reason: str) -> str:
    """Returns what each claim that refuses needs: the nodes of its volume, a free volume, or storage of its class."""
    claims = list(_claims(pod, table))
    bound = [(claim, _volume(claim, table)) for claim in claims if claim.spec.volume_name]
    delayed = [claim for claim in claims if not claim.spec.volume_name]
    if reason == volume_binding.NODE_CONFLICT:
        return listed(
            f"claim {claim.name} is bound to {volume.name}, which requires {_node_selector_text(volume.node_selector)}"
            for claim, volume in bound
            if volume is not None and volume.node_selector is not None
        )
    if reason == volume_binding.BIND_CONFLICT:
        return listed(_unbound_text(claim, table) for claim in delayed)
    if reason == volume_binding.NOT_ENOUGH_SPACE:
        return listed(_capacity_text(claim, table, rows) for claim in delayed)
    return listed(
        f"PersistentVolumeClaim {claim.name} is not bound (StorageClass {claim.class_name or 'none'})"
        for claim in delayed
    )


def _claims(pod: PodInfo, table: Table) -> Iterator[PersistentVolumeClaim]:
    """Yields the existing claims of the pod's volumes, also those of its ephemeral volumes."""
    for use in pod.claims:
        claim = table.objects.get(PersistentVolumeClaim, use.key)
        if claim is not None:
            yield claim


def _volume(claim: PersistentVolumeClaim, table: Table) -> PersistentVolume | None:
    return table.objects.get(PersistentVolume, claim.spec.volume_name)


def _node_selector_text(selector: NodeSelector | None) -> str:
    terms = [
        ",".join(map(requirement_text, (*(term.match_expressions or ()), *(term.match_fields or ()))))
        for term in (selector.node_selector_terms or () if selector is not None else ())
    ]
    return " or ".join(terms)


def _unbound_text(claim: PersistentVolumeClaim, table: Table) -> str:
    if claim.selected_node is not None:
        return f"the volume of claim {claim.name} is being provisioned for node {claim.selected_node}"
    free = counted(len(table.storage.unbound.free(claim.class_name)), "free volume")
    size = claim.requested_storage or "no size"
    text = (
        f"claim {claim.name} requests {size}; StorageClass {claim.class_name} has {free}, none of which suits it here"
    )
    storage_class = table.objects.get(StorageClass, claim.class_name)
    if storage_class is None or not storage_class.provisions:
        return f"{text}, and provisions no new ones"
    allowed = " or ".join(
        ",".join(map(requirement_text, node_term(term).match_expressions or ()))
        for term in storage_class.allowed_topologies or ()
    )
    return f"{text}, and provisions new ones only on nodes with {allowed}"


def _capacity_text(claim: PersistentVolumeClaim, table: Table, rows: Rows) -> str:
    """Returns the requested size, and the largest volume that the storage pools of these nodes can take."""
    limits = [
        pool.volume_limit
        for pool in table.objects.all(CSIStorageCapacity).values()
        if pool.storage_class_name == claim.class_name
        and pool.volume_limit is not None
        and pool.node_topology is not None
        and nodes_labelled(pool.node_topology, table, rows).any()
    ]
    largest = rounded("storage", max(map(units, limits), default=0))
    most = f"the largest volume possible on these nodes is {largest}" if limits else "these nodes have none"
    return f"claim {claim.name} requests {claim.requested_storage} of StorageClass {claim.class_name}; {most}"


def volume_zones(pod: PodInfo, table: Table, _rows: Rows, reason: str) -> str:
    """Returns the zone and region labels of the pod's volumes."""
    if reason not in volume_zone.REFUSAL.reasons:
        return ""
    texts = []
    for claim in _claims(pod, table):
        volume = _volume(claim, table) if claim.spec.volume_name else None
        labels = (
            {key: volume.labels[key] for key in volume_zone.TOPOLOGY_LABELS if key in volume.labels} if volume else {}
        )
        texts += [f"PersistentVolume {claim.spec.volume_name} is in {key}={value}" for key, value in labels.items()]
    return listed(texts)


def volumes_in_use(pod: PodInfo, table: Table, rows: Rows, reason: str) -> str:
    """Returns the pods that use a disk or a ReadWriteOncePod claim that the pod needs for itself."""
    if reason in volume_restrictions.CLAIM_CONFLICT.reasons:
        exclusive = [claim for claim in _claims(pod, table) if READ_WRITE_ONCE_POD in (claim.spec.access_modes or ())]
        users = (
            (claim, table.pods.at(np.array(sorted(table.storage.usage.users(claim.key)), np.intp)))
            for claim in exclusive
        )
        return listed(f"claim {claim.name} is used by {info.pod.key}" for claim, infos in users for info in infos)
    if reason in volume_restrictions.DISK_CONFLICT.reasons:
        on_rows = (info for row in rows.tolist() for info in table.pods.at(table.pods.on(row)))
        return listed(f"{info.pod.key} uses the disk" for info in on_rows if clash(pod.mounts, info.mounts))
    return ""


# ---- devices


def devices(pod: PodInfo, table: Table, rows: Rows, _reason: str) -> str:
    """Returns, for each request that finds too few devices, how many there are and what excludes the others."""
    claims = pod_device_claims(pod, table)
    to_allocate = claims.to_allocate if isinstance(claims, PodDeviceClaims) else []
    if not to_allocate:
        return _claim_names(pod)
    classes = table.objects.all(DeviceClass)
    texts = [
        f"request {request.name} of claim {claim.name}: {text}"
        for claim in to_allocate
        for alternatives in claim_data(0, claim, classes).requests
        for request in alternatives
        if (text := _shortage(request, table, rows))
    ]
    together = "each request finds devices, but constraints, counters, capacity or the other requests exclude them"
    return listed(texts) or f"{together} ({_claim_names(pod)})"


def _claim_names(pod: PodInfo) -> str:
    return listed(
        f"ResourceClaim {each.resource_claim_name}"
        if each.resource_claim_name
        else f"ResourceClaimTemplate {each.resource_claim_template_name}"
        for each in pod.pod.spec.resource_claims or ()
    )


def _shortage(request: RequestData, table: Table, rows: Rows) -> str:
    """Returns why no node on `rows` has enough free devices for the request; "" if a node has, or if it is faulty."""
    reachable = _devices_by_row(table, rows)
    examined = {device.id: device for on_node in reachable.values() for device in on_node}
    if not examined:
        return "these nodes have no devices"
    suitable = list(examined.values())
    for of_class, _, expression in request.selectors:
        selected = matching(expression, suitable, table.deadline)
        if selected is None:
            return ""
        if not selected:
            where = f" of class {of_class}" if of_class else ""
            return f"selector `{expression}`{where} matches none of {counted(len(suitable), 'device')} on these nodes"
        suitable = selected
    allocated = devices_of(table).allocated
    taken = {device.id for device in suitable if not device.shareable and allocated.holds(device.id)}
    tainted = {device.id for device in suitable if any(keeps_away(each, request.tolerations) for each in device.taints)}
    usable = {device.id for device in suitable} - taken - tainted
    free = {row: sum(device.id in usable for device in on_node) for row, on_node in reachable.items()}
    best = max(free, key=free.__getitem__)
    if free[best] >= max(request.count, 1) or request.takes_all or request.admin:
        return ""
    counts = [f"{len(suitable)} of {counted(len(examined), 'device')} match"]
    counts += [f"{len(keys)} {state}" for keys, state in ((taken, "allocated"), (tainted, "tainted")) if keys]
    most = f"the most free on a node is {free[best]}" + (f", on {table.nodes.names[best]}" if free[best] else "")
    return f"needs {counted(request.count, 'device')}; {most} ({', '.join(counts)})"


def _devices_by_row(table: Table, rows: Rows) -> dict[int, list[PoolDevice]]:
    """Returns the devices that nodes can access: for each distinct inventory, those of its first row in `rows`."""
    inventories = devices_of(table).inventories
    _, firsts = np.unique(inventories.number[rows], return_index=True)
    return {
        row: [
            device
            for view in inventories.views[inventories.number[row]]
            for device in view.devices
            if device.id not in view.unreachable
        ]
        for row in rows[firsts].tolist()
    }

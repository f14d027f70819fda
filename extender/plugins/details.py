"""Explains a refusal with numbers: the request, what the nodes have, and the pods that conflict.

The scheduler's own messages give only the reason. `detail` adds numbers by calling a function for the plugin that
refused the nodes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from extender.devices.allocations import devices_of
from extender.devices.cel.device_selectors import matching
from extender.devices.device_requests import RequestData, claim_data
from extender.devices.inventory import PoolDevice
from extender.devices.pod_claims import PodDeviceClaims, pod_device_claims
from extender.framework.node_selectors import nodes_in_term, nodes_with_labels, required_node_selector
from extender.framework.topology import summed_by_domain
from extender.model import storage
from extender.model.devices import DeviceClass
from extender.model.meta import NodeSelector, NodeSelectorTerm
from extender.model.node import NO_EXECUTE, NO_SCHEDULE, untolerated
from extender.model.pod_volumes import clash
from extender.model.quantity import units
from extender.model.selectors import requirement_text, term_text
from extender.plugins import node_volume_limits, volume_binding, volume_restrictions, volume_zone
from extender.plugins import pod_topology_spread as spread
from extender.plugins.inter_pod_affinity import pods_by_domain, query_for
from extender.plugins.node_resources_fit import NAME as FIT
from extender.runtime.text import counted, distinguishable, listed, rounded
from extender.table import PodInfo, Table
from extender.table.labels import ABSENT, Rows
from extender.table.nominated import AwaitedPods
from extender.volumes.accessibility import nodes_labelled
from extender.volumes.node_volumes import attachable_volumes, node_term

Detail = Callable[[PodInfo, Table, Rows, str], str]

_INSUFFICIENT = "Insufficient "
_MOST_LISTED = 4


def detail(plugin: str, reason: str, pod: PodInfo, table: Table, rows: Rows, awaited: AwaitedPods) -> str:
    """Returns one line of numbers that explain why `plugin` refused the nodes on `rows`; "" without such numbers.

    `awaited`: the nominated pods for which `pod` must leave resources free.
    """
    if plugin == FIT:
        return _resources(pod, table, rows, reason, awaited)
    describe = _DETAILS.get(plugin)
    return describe(pod, table, rows, reason) if describe else ""


def _on(nodes: int) -> str:
    """Returns the number of nodes as text, like `on 1 node` or `on 3 nodes`."""
    return f"on {counted(nodes, 'node')}"


# ---- by plugin


def _resources(pod: PodInfo, table: Table, rows: Rows, reason: str, awaited: AwaitedPods) -> str:
    if not reason.startswith(_INSUFFICIENT):
        most = int(table.nodes.allocatable[table.nodes.resources["pods"]][rows].max())
        return f"the largest of these nodes allows {counted(most, 'pod')}"
    resource = reason.removeprefix(_INSUFFICIENT)
    request = pod.requests.get(resource, 0)
    index = table.nodes.resources.get(resource)
    offering = rows[:0] if index is None else rows[table.nodes.allocatable[index][rows] > 0]
    if index is None or not len(offering):
        return f"requests {rounded(resource, request)}; none of these nodes has any"
    kept = awaited.taken(index, table.nodes.capacity)[offering]
    free = table.nodes.allocatable[index][offering] - table.nodes.requested[index][offering] - kept
    name = table.nodes.names[offering[free.argmax()]]
    largest = int(table.nodes.allocatable[index][offering].max())
    asked, most_free, limit = distinguishable(resource, request, max(int(free.max()), 0), largest)
    without = " (after subtracting the requests of nominated pods)" if kept.any() else ""
    parts = [f"requests {asked}; the most free is {most_free} on {name}{without}"]
    if len(offering) < len(rows):
        parts.append(f"{len(rows) - len(offering)} of these nodes have none")
    if request > largest:
        parts.append(f"even an empty node has at most {limit}")
    return "; ".join(parts)


def _taints(pod: PodInfo, table: Table, rows: Rows, _reason: str) -> str:
    tolerations = pod.pod.spec.tolerations or ()
    counts: Counter[str] = Counter()
    nodes_per_set = np.bincount(table.nodes.taint_set[rows], minlength=len(table.nodes.taint_sets)).tolist()
    for taints, nodes in zip(table.nodes.taint_sets, nodes_per_set, strict=True):
        for taint in untolerated(taints, tolerations, (NO_SCHEDULE, NO_EXECUTE)) if nodes else ():
            value = f"={taint.value}" if taint.value else ""
            counts[f"{taint.key}{value}:{taint.effect}"] += nodes
    return listed((f"{taint} {_on(nodes)}" for taint, nodes in counts.most_common()), _MOST_LISTED)


def _node_affinity(pod: PodInfo, table: Table, rows: Rows, _reason: str) -> str:
    met = {
        f"nodeSelector {key}={value}": nodes_with_labels({key: value}, table, rows)
        for key, value in (pod.pod.spec.node_selector or {}).items()
    }
    required = required_node_selector(pod.pod)
    for term in (required.node_selector_terms or ()) if required else ():
        alone = [(each, NodeSelectorTerm(match_expressions=[each])) for each in term.match_expressions or ()]
        alone += [(each, NodeSelectorTerm(match_fields=[each])) for each in term.match_fields or ()]
        met |= {f"affinity {requirement_text(each)}": nodes_in_term(only, table, rows) for each, only in alone}
    unmet = {demand: int(len(rows) - np.count_nonzero(nodes)) for demand, nodes in met.items()}
    return listed((f"{demand} not met {_on(nodes)}" for demand, nodes in unmet.items() if nodes), _MOST_LISTED)


def _names(_pod: PodInfo, table: Table, rows: Rows, _reason: str) -> str:
    return listed(table.nodes.names_of(rows))


def _node_name(pod: PodInfo, _table: Table, _rows: Rows, _reason: str) -> str:
    return f"its spec.nodeName is {pod.pod.node_name}"


def _ports(pod: PodInfo, table: Table, rows: Rows, _reason: str) -> str:
    requested = {(port.protocol, port.port) for port in pod.host_ports}
    holders: dict[str, str] = {}
    for row in rows.tolist():
        for info in table.pods.at(table.pods.on(row)):
            for port in info.host_ports:
                if (port.protocol, port.port) in requested:
                    name = f"host port {port.port}/{port.protocol}"
                    holders.setdefault(name, f"{info.pod.key} on {table.nodes.names[row]}")
        if len(holders) >= len(requested):
            break
    return listed(f"{port} is used by {holder}" for port, holder in holders.items())


def _spread(pod: PodInfo, table: Table, _rows: Rows, reason: str) -> str:
    constraints = spread.constraints_of(pod, table, spread.DO_NOT_SCHEDULE, spread.SYSTEM_DEFAULTS)
    if not constraints:
        return ""
    if "missing required label" in reason:
        return f"no label {listed(dict.fromkeys(each.topology_key for each in constraints))}"
    eligible = spread.nodes_counted(constraints, pod.pod, table, spread.nodes_with_all_keys(constraints, table))
    texts = []
    for constraint in constraints:
        column = table.nodes.labels[constraint.topology_key]
        domain = np.where(eligible[constraint.policies], column.ids, ABSENT)
        by_node = table.matching(constraint.counted(pod.pod.namespace)).by_node
        pods = summed_by_domain(column, by_node, domain)
        by_domain = {column.values[i]: int(pods[i]) for i in np.unique(domain).tolist() if i != ABSENT}
        text = f"maxSkew {constraint.max_skew} over {constraint.topology_key}: {_domains(by_domain)}"
        if len(by_domain) < constraint.min_domains:
            text += f"; the skew is counted from 0 pods, because minDomains is {constraint.min_domains}"
        texts.append(text)
    return listed(texts)


def _domains(pods: Mapping[str, int]) -> str:
    """Returns the number of pods in each domain as text. If there are many domains, only three are named."""
    if not pods:
        return "no domain"
    fullest_first = sorted(pods.items(), key=lambda item: (-item[1], item[0]))
    shown = fullest_first if len(fullest_first) <= _MOST_LISTED else [*fullest_first[:2], fullest_first[-1]]
    more = f" (of {len(fullest_first)} domains)" if len(fullest_first) > len(shown) else ""
    return ", ".join(f"{name} has {counted(count, 'pod')}" for name, count in shown) + more


def _pod_affinity(pod: PodInfo, table: Table, rows: Rows, reason: str) -> str:
    if "existing pods" in reason:
        return _existing_anti_affinity(pod, table, rows)
    affinity = pod.pod.spec.affinity
    is_anti = "anti-affinity" in reason
    own = (affinity.pod_anti_affinity if is_anti else affinity.pod_affinity) if affinity else None
    compiled_terms = pod.required_anti_affinity if is_anti else pod.required_affinity
    texts = []
    for term, compiled in zip((own.required or ()) if own else (), compiled_terms, strict=True):
        matching = table.matching(query_for(compiled, table))
        pods = pods_by_domain(compiled.topology_key, matching, table).around(rows)
        failing = int(np.count_nonzero(pods > 0 if is_anti else pods == 0))
        if failing and is_anti:
            texts.append(f"anti-affinity to {term_text(term)} violated {_on(failing)}")
        elif failing:
            texts.append(f"affinity to {term_text(term)} not met {_on(failing)}")
    return listed(texts)


def _existing_anti_affinity(pod: PodInfo, table: Table, rows: Rows) -> str:
    """Returns a text that names the placed pods whose anti-affinity keeps the pod off the nodes on `rows`."""
    chosen = frozenset(rows.tolist())
    texts = [
        f"{info.pod.key} on {table.nodes.names[int(table.pods.row[slot])]} has anti-affinity to this pod "
        f"within {term.topology_key}"
        for slot, info in enumerate(table.pods.infos)
        if info is not None
        for term in info.required_anti_affinity
        if query_for(term, table).matches(pod.group)
        and _shares_domain(term.topology_key, int(table.pods.row[slot]), chosen, table)
    ]
    return listed(texts, 2)


def _shares_domain(key: str, row: int, rows: frozenset[int], table: Table) -> bool:
    ids = table.nodes.labels[key].ids
    return ids[row] != ABSENT and any(ids[other] == ids[row] for other in rows)


# ---- volumes


def _volume_limits(pod: PodInfo, table: Table, rows: Rows, reason: str) -> str:
    """Returns, for each driver that refuses, the node with the most room: how many volumes it has and may have."""
    if reason not in node_volume_limits.REFUSAL.reasons:
        return ""
    texts = []
    for driver, volumes in sorted(attachable_volumes(pod, table).by_driver.items()):
        attached = table.storage.attachments.counted(driver)[rows]
        limit = table.storage.csi_nodes.limit(driver)[rows]
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


def _volumes(pod: PodInfo, table: Table, rows: Rows, reason: str) -> str:
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


def _claims(pod: PodInfo, table: Table) -> Iterator[storage.PersistentVolumeClaim]:
    """Yields the existing claims of the pod's volumes, also those of its ephemeral volumes."""
    for use in pod.claims:
        claim = table.objects.get(storage.PersistentVolumeClaim, use.key)
        if claim is not None:
            yield claim


def _volume(claim: storage.PersistentVolumeClaim, table: Table) -> storage.PersistentVolume | None:
    return table.objects.get(storage.PersistentVolume, claim.spec.volume_name)


def _node_selector_text(selector: NodeSelector | None) -> str:
    terms = [
        ",".join(map(requirement_text, (*(term.match_expressions or ()), *(term.match_fields or ()))))
        for term in (selector.node_selector_terms or () if selector is not None else ())
    ]
    return " or ".join(terms)


def _unbound_text(claim: storage.PersistentVolumeClaim, table: Table) -> str:
    if claim.selected_node is not None:
        return f"the volume of claim {claim.name} is being provisioned for node {claim.selected_node}"
    free = counted(len(table.storage.unbound.free(claim.class_name)), "free volume")
    size = claim.requested_storage or "no size"
    text = (
        f"claim {claim.name} requests {size}; StorageClass {claim.class_name} has {free}, none of which suits it here"
    )
    storage_class = table.objects.get(storage.StorageClass, claim.class_name)
    if storage_class is None or not storage_class.provisions:
        return f"{text}, and provisions no new ones"
    allowed = " or ".join(
        ",".join(map(requirement_text, node_term(term).match_expressions or ()))
        for term in storage_class.allowed_topologies or ()
    )
    return f"{text}, and provisions new ones only on nodes with {allowed}"


def _capacity_text(claim: storage.PersistentVolumeClaim, table: Table, rows: Rows) -> str:
    """Returns the requested size, and the largest volume that the storage pools of these nodes can take."""
    limits = [
        pool.volume_limit
        for pool in table.objects.all(storage.CSIStorageCapacity).values()
        if pool.storage_class_name == claim.class_name
        and pool.volume_limit is not None
        and pool.node_topology is not None
        and nodes_labelled(pool.node_topology, table, rows).any()
    ]
    largest = rounded("storage", max(map(units, limits), default=0))
    most = f"the largest volume possible on these nodes is {largest}" if limits else "these nodes have none"
    return f"claim {claim.name} requests {claim.requested_storage} of StorageClass {claim.class_name}; {most}"


def _volume_zones(pod: PodInfo, table: Table, _rows: Rows, reason: str) -> str:
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


def _volumes_in_use(pod: PodInfo, table: Table, rows: Rows, reason: str) -> str:
    """Returns the pods that use a disk or a ReadWriteOncePod claim that the pod needs for itself."""
    if reason in volume_restrictions.CLAIM_CONFLICT.reasons:
        exclusive = [
            claim for claim in _claims(pod, table) if storage.READ_WRITE_ONCE_POD in (claim.spec.access_modes or ())
        ]
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


def _devices(pod: PodInfo, table: Table, rows: Rows, _reason: str) -> str:
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
    tainted = {device.id for device in suitable if request.is_repelled_by(device.taints)}
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


_DETAILS: Mapping[str, Detail] = {
    "TaintToleration": _taints,
    "NodeAffinity": _node_affinity,
    "NodeUnschedulable": _names,
    "NodeName": _node_name,
    "NodePorts": _ports,
    "PodTopologySpread": _spread,
    "InterPodAffinity": _pod_affinity,
    "VolumeBinding": _volumes,
    "VolumeZone": _volume_zones,
    "VolumeRestrictions": _volumes_in_use,
    "NodeVolumeLimits": _volume_limits,
    "DynamicResources": _devices,
}

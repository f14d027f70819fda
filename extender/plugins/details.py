"""Explains a refusal with numbers: the request, the resources of the nodes, and the pods that conflict.

The scheduler's own messages give only the reason. `detail` adds numbers by calling a function for the plugin that
refused the nodes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

import numpy as np

from extender.framework.node_selectors import nodes_in_term, nodes_with_labels, required_node_selector
from extender.framework.topology import summed_by_domain
from extender.model.meta import NodeSelectorTerm
from extender.model.node import NO_EXECUTE, NO_SCHEDULE, untolerated
from extender.model.selectors import requirement_text, term_text
from extender.plugins import claim_details
from extender.plugins.inter_pod_affinity import pods_by_domain, query_for
from extender.plugins.node_resources.fit import NAME as FIT
from extender.plugins.pod_topology_spread.spread import (
    DO_NOT_SCHEDULE,
    SYSTEM_DEFAULTS,
    constraints_of,
    nodes_counted,
    nodes_with_all_keys,
)
from extender.runtime.text import counted, distinguishable, listed, rounded
from extender.table import PodInfo, Table
from extender.table.labels import ABSENT, Rows
from extender.table.nominated import AwaitedPods

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
        for each in term.match_expressions or ():
            alone = NodeSelectorTerm(match_expressions=[each])
            met[f"affinity {requirement_text(each)}"] = nodes_in_term(alone, table, rows)
        for each in term.match_fields or ():
            alone = NodeSelectorTerm(match_fields=[each])
            met[f"affinity {requirement_text(each)}"] = nodes_in_term(alone, table, rows)
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
    constraints = constraints_of(pod, table, DO_NOT_SCHEDULE, SYSTEM_DEFAULTS)
    if not constraints:
        return ""
    if "missing required label" in reason:
        return f"no label {listed(dict.fromkeys(each.topology_key for each in constraints))}"
    eligible = nodes_counted(constraints, pod.pod, table, nodes_with_all_keys(constraints, table))
    texts = []
    for constraint in constraints:
        column = table.nodes.labels[constraint.topology_key]
        domain = np.where(eligible[constraint.policies], column.ids, ABSENT)
        by_node = table.matching(constraint.counted(pod.pod.namespace)).by_node
        pods = summed_by_domain(column, by_node, domain)
        by_domain = {column.values[i]: int(pods[i]) for i in np.unique(domain).tolist() if i != ABSENT}
        text = f"maxSkew {constraint.max_skew} over {constraint.topology_key}: {_domains(by_domain)}"
        texts.append(text + _too_few(len(by_domain), constraint.min_domains))
    return listed(texts)


def _too_few(domains: int, min_domains: int) -> str:
    if domains >= min_domains:
        return ""
    return f"; the skew is counted from 0 pods, because minDomains is {min_domains}"


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


_DETAILS: Mapping[str, Detail] = {
    "TaintToleration": _taints,
    "NodeAffinity": _node_affinity,
    "NodeUnschedulable": _names,
    "NodeName": _node_name,
    "NodePorts": _ports,
    "PodTopologySpread": _spread,
    "InterPodAffinity": _pod_affinity,
    "VolumeBinding": claim_details.volumes,
    "VolumeZone": claim_details.volume_zones,
    "VolumeRestrictions": claim_details.volumes_in_use,
    "NodeVolumeLimits": claim_details.volume_limits,
    "DynamicResources": claim_details.devices,
}

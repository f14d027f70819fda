"""The numbers behind a refusal: what was wanted, what there is, who is in the way. One function for each plugin."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

import numpy as np

from extender.framework.node_affinity import nodes_in_term, nodes_with_labels, required_node_selector
from extender.framework.topology import summed_by_domain
from extender.model.meta import LabelSelector, NodeSelectorRequirement
from extender.model.node import NO_EXECUTE, NO_SCHEDULE, untolerated
from extender.model.pod import PodAffinityTerm
from extender.model.volumes.storage import PersistentVolumeClaim
from extender.offline.text import listed, rounded
from extender.plugins.inter_pod_affinity import pods_by_domain, query_for
from extender.plugins.pod_topology_spread.spread import (
    DO_NOT_SCHEDULE,
    SYSTEM_DEFAULTS,
    constraints_of,
    nodes_counted,
    nodes_with_all_keys,
)
from extender.table import PodInfo, Table
from extender.table.labels import ABSENT, Rows

Detail = Callable[[PodInfo, Table, Rows, str], str]

_INSUFFICIENT = "Insufficient "
_SELECTED_BY = {"In": "in ({})", "NotIn": "not in ({})", "Gt": "> {}", "Lt": "< {}"}


def detail(plugin: str, reason: str, pod: PodInfo, table: Table, rows: Rows) -> str:
    """Puts a plugin's `reason` on the nodes at `rows` into numbers, in one line; empty where there are none."""
    known = _DETAILS.get(plugin)
    return known(pod, table, rows, reason) if known and len(rows) else ""


def free(table: Table, resource: str, rows: Rows) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Returns what the pods on each of the rows leave of a resource: int64[len(rows)]."""
    index = table.nodes.resources.get(resource)
    if index is None:
        return np.zeros(len(rows), np.int64)
    left: np.ndarray[tuple[int], np.dtype[np.int64]] = (table.nodes.allocatable - table.nodes.requested)[index][rows]
    return left


def requirement_text(each: NodeSelectorRequirement) -> str:
    """`zone in (a, b)`, as kubectl writes selectors."""
    if each.operator == "Exists":
        return each.key
    if each.operator == "DoesNotExist":
        return f"!{each.key}"
    return f"{each.key} {_SELECTED_BY.get(each.operator, each.operator + ' {}').format(', '.join(each.values or ()))}"


def selector_text(selector: LabelSelector | None) -> str:
    """A label selector, as kubectl writes it."""
    if selector is None:
        return "nothing"
    labels = [f"{key}={value}" for key, value in sorted((selector.match_labels or {}).items())]
    labels += [
        requirement_text(NodeSelectorRequirement(key=each.key, operator=each.operator, values=each.values))
        for each in selector.match_expressions or ()
    ]
    return ",".join(labels) or "every pod"


def term_text(term: PodAffinityTerm) -> str:
    """A term of pod (anti-)affinity."""
    return f"pods with {selector_text(term.label_selector)} per {term.topology_key}"


# ---- by plugin


def _resources(pod: PodInfo, table: Table, rows: Rows, reason: str) -> str:
    if not reason.startswith(_INSUFFICIENT):
        most = int(table.nodes.allocatable[table.nodes.resources["pods"]][rows].max())
        return f"no room for another pod: the largest of these takes {most}"
    resource = reason.removeprefix(_INSUFFICIENT)
    index = table.nodes.resources.get(resource)
    offering = rows if index is None else rows[table.nodes.allocatable[index][rows] > 0]
    wanted = f"{resource}: wants {rounded(resource, pod.requests.get(resource, 0))}"
    if index is None or not len(offering):
        return f"{wanted}, no node of these has any"
    left = free(table, resource, offering)
    place = table.nodes.names[offering[left.argmax()]]
    most_free = f"most free {rounded(resource, max(int(left.max()), 0))} on {place}"
    largest = int(table.nodes.allocatable[index][offering].max())
    without = f"; {len(rows) - len(offering)} have none" if len(offering) < len(rows) else ""
    too_big = f"; even empty none has more than {rounded(resource, largest)}"
    return f"{wanted}, {most_free}{without}{too_big if pod.requests.get(resource, 0) > largest else ''}"


def _taints(pod: PodInfo, table: Table, rows: Rows, _reason: str) -> str:
    tolerations, counts = pod.pod.spec.tolerations or (), Counter[str]()
    sets = np.bincount(table.nodes.taint_set[rows], minlength=len(table.nodes.taint_sets)).tolist()
    for taints, nodes in zip(table.nodes.taint_sets, sets, strict=True):
        for taint in untolerated(taints, tolerations, (NO_SCHEDULE, NO_EXECUTE)) if nodes else ():
            value = f"={taint.value}" if taint.value else ""
            counts[f"taint {taint.key}{value}:{taint.effect}"] += nodes
    return listed((f"{taint} on {nodes}" for taint, nodes in counts.most_common()), 4)


def _node_affinity(pod: PodInfo, table: Table, rows: Rows, _reason: str) -> str:
    told = []
    for key, value in (pod.pod.spec.node_selector or {}).items():
        lacking = int(len(rows) - np.count_nonzero(nodes_with_labels({key: value}, table, rows)))
        if lacking:
            told.append(f"nodeSelector {key}={value}: not on {lacking}")
    required = required_node_selector(pod.pod)
    for term in (required.node_selector_terms or ()) if required else ():
        for each in (*(term.match_expressions or ()), *(term.match_fields or ())):
            alone = (
                type(term)(match_expressions=[each])
                if each in (term.match_expressions or ())
                else type(term)(match_fields=[each])
            )
            lacking = int(len(rows) - np.count_nonzero(nodes_in_term(alone, table, rows)))
            if lacking:
                told.append(f"affinity {requirement_text(each)}: not on {lacking}")
    return listed(told, 4)


def _names(_pod: PodInfo, table: Table, rows: Rows, _reason: str) -> str:
    return listed(table.nodes.names_of(rows))


def _node_name(pod: PodInfo, _table: Table, _rows: Rows, _reason: str) -> str:
    return f"the pod names its node: {pod.pod.node_name}"


def _ports(pod: PodInfo, table: Table, rows: Rows, _reason: str) -> str:
    wanted = {(each.protocol, each.port): each for each in pod.host_ports}
    example: dict[str, str] = {}
    for row in rows.tolist():
        for info in table.pods.at(table.pods.on(row)):
            for port in info.host_ports:
                if (port.protocol, port.port) in wanted:
                    told = f"host port {port.port}/{port.protocol}"
                    example.setdefault(told, f"{info.pod.key} on {table.nodes.names[row]}")
        if len(example) >= len(wanted):
            break
    return listed(f"{port} is taken, by {who}" for port, who in example.items())


def _spread(pod: PodInfo, table: Table, _rows: Rows, reason: str) -> str:
    constraints = constraints_of(pod, table, DO_NOT_SCHEDULE, SYSTEM_DEFAULTS)
    if not constraints:
        return ""
    if "missing required label" in reason:
        return f"no label {listed(dict.fromkeys(each.topology_key for each in constraints))}"
    counted = nodes_counted(constraints, pod.pod, table, nodes_with_all_keys(constraints, table))
    told = []
    for each in constraints:
        column = table.nodes.labels[each.topology_key]
        among = counted[each.policies]
        domain = np.where(among, column.ids, ABSENT)
        pods = summed_by_domain(column, table.matching(each.counted(pod.pod.namespace)).by_node, domain)
        domains = {column.values[at]: int(pods[at]) for at in np.unique(domain).tolist() if at != ABSENT}
        told.append(f"{each.topology_key}: {_domains(domains)}; maxSkew {each.max_skew}")
    return listed(told)


def _domains(pods: Mapping[str, int]) -> str:
    if not pods:
        return "no domain"
    by_count = sorted(pods.items(), key=lambda each: (-each[1], each[0]))
    shown = by_count if len(by_count) <= 4 else [*by_count[:2], by_count[-1]]
    more = f" (of {len(by_count)} domains)" if len(by_count) > len(shown) else ""
    return ", ".join(f"{name} has {count}" for name, count in shown) + more


def _pod_affinity(pod: PodInfo, table: Table, rows: Rows, reason: str) -> str:
    if "existing pods" in reason:
        return _others_against(pod, table, rows)
    affinity = pod.pod.spec.affinity
    anti = "anti-affinity" in reason
    own = (affinity.pod_anti_affinity if anti else affinity.pod_affinity) if affinity else None
    ready = pod.required_anti_affinity if anti else pod.required_affinity
    told = []
    for term, meant in zip((own.required or ()) if own else (), ready, strict=True):
        found = pods_by_domain(meant.topology_key, table.matching(query_for(meant, table)), table).around(rows)
        failing = int(np.count_nonzero(found > 0 if anti else found == 0))
        if failing:
            wants, found_there = ("keeps off", "they are") if anti else ("wants", "none")
            told.append(f"{wants} {term_text(term)}: {found_there} around {failing}")
    return listed(told)


def _others_against(pod: PodInfo, table: Table, rows: Rows) -> str:
    here = frozenset(rows.tolist())
    against = [
        f"{info.pod.key} on {table.nodes.names[int(table.pods.row[slot])]} keeps off such pods per {term.topology_key}"
        for slot, info in enumerate(table.pods.infos)
        if info is not None
        for term in info.required_anti_affinity
        if query_for(term, table).matches(pod.group)
        and _shares_domain(term.topology_key, int(table.pods.row[slot]), here, table)
    ]
    return listed(against, 2)


def _shares_domain(key: str, row: int, rows: frozenset[int], table: Table) -> bool:
    ids = table.nodes.labels[key].ids
    return ids[row] != ABSENT and any(ids[other] == ids[row] for other in rows)


def _volumes(pod: PodInfo, table: Table, _rows: Rows, _reason: str) -> str:
    told = []
    for use in pod.pod.spec.volumes or ():
        source = use.persistent_volume_claim
        if source is None:
            continue
        claim = table.objects.get(PersistentVolumeClaim, f"{pod.pod.namespace}/{source.claim_name}")
        if claim is None:
            told.append(f"claim {source.claim_name}: there is none")
            continue
        bound = f"bound to {claim.spec.volume_name}" if claim.spec.volume_name else "not bound"
        told.append(f"claim {source.claim_name}: {bound}, class {claim.class_name or 'none'}")
    return listed(told)


def _devices(pod: PodInfo, _table: Table, _rows: Rows, _reason: str) -> str:
    claims = (
        each.resource_claim_name or f"template {each.resource_claim_template_name}"
        for each in pod.pod.spec.resource_claims or ()
    )
    return listed(f"claim {each}" for each in claims)


_DETAILS: Mapping[str, Detail] = {
    "NodeResourcesFit": _resources,
    "TaintToleration": _taints,
    "NodeAffinity": _node_affinity,
    "NodeUnschedulable": _names,
    "NodeName": _node_name,
    "NodePorts": _ports,
    "PodTopologySpread": _spread,
    "InterPodAffinity": _pod_affinity,
    "VolumeBinding": _volumes,
    "VolumeZone": _volumes,
    "VolumeRestrictions": _volumes,
    "NodeVolumeLimits": _volumes,
    "DynamicResources": _devices,
}

"""The nodes of a cluster as documents: all of them in short, and one in full."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from extender.framework.topology import ZONE
from extender.offline.state import ClusterState
from extender.table.nodes.columns import NONZERO_CPU, NONZERO_MEMORY


def all_nodes(state: ClusterState) -> dict[str, Any]:
    """{"resources": [name, ...], "nodes": [{"name", "zone", "ready", "allocatable", "requested"}]}, by name.

    `ready`: it takes new pods. Amounts are per resource, in its order: cpu in milli, the others in units.
    """
    nodes, rows = state.table.nodes, state.table.nodes.rows
    indices = [at for at in nodes.resources.values() if at not in (NONZERO_CPU, NONZERO_MEMORY)]
    offered = [at for at in indices if nodes.allocatable[at, rows].any()]
    names = {at: name for name, at in nodes.resources.items()}
    zones = nodes.labels[ZONE]
    amounts = zip(
        rows.tolist(),
        nodes.allocatable[offered][:, rows].T.tolist(),
        nodes.requested[offered][:, rows].T.tolist(),
        strict=True,
    )
    told = [
        {
            "name": nodes.names[row],
            "zone": zones.values[zones.ids[row]] or "",
            "ready": not nodes.unschedulable[row],
            "allocatable": allocatable,
            "requested": requested,
        }
        for row, allocatable, requested in amounts
    ]
    return {"resources": [names[at] for at in offered], "nodes": sorted(told, key=lambda each: each["name"])}


def one_node(state: ClusterState, name: str) -> dict[str, Any]:
    """{"name", "labels", "taints", "unschedulable", "resources": {name: {"allocatable", "requested"}}, "pods"}.

    Raises UnknownNode.
    """
    node, table = state.node(name), state.table
    row = table.nodes.row_of[name]
    resources = {
        resource: {
            "allocatable": int(table.nodes.allocatable[at, row]),
            "requested": int(table.nodes.requested[at, row]),
        }
        for resource, at in table.nodes.resources.items()
        if at not in (NONZERO_CPU, NONZERO_MEMORY) and table.nodes.allocatable[at, row] | table.nodes.requested[at, row]
    }
    return {
        "name": name,
        "labels": dict(sorted(node.labels.items())),
        "taints": [f"{each.key}{f'={each.value}' if each.value else ''}:{each.effect}" for each in node.taints],
        "unschedulable": bool(node.spec.unschedulable),
        "resources": resources,
        "pods": sorted(info.pod.key for info in state.standing_on(name)),
    }


def column(document: Mapping[str, Any], resource: str) -> Sequence[tuple[int, int]]:
    """(allocatable, requested) of one resource, in the order of the document's nodes; zeros where it has no such."""
    if resource not in document["resources"]:
        return [(0, 0)] * len(document["nodes"])
    at = document["resources"].index(resource)
    return [(each["allocatable"][at], each["requested"][at]) for each in document["nodes"]]

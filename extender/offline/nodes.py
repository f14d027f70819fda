"""Describes nodes as documents for JSON: a summary of all nodes, and one node in full."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from extender.framework.topology import ZONE
from extender.model.node import LOST_NODE_TAINTS, Node
from extender.offline.answers import Documented
from extender.offline.devices import devices_on
from extender.offline.state import ClusterState


def all_nodes(state: ClusterState) -> dict[str, Any]:
    """Returns a summary of all nodes:
    {"resources": [name, ...], "nodes": [{"name", "zone", "ready", "allocatable", "requested"}]}.

    Nodes are sorted by name. `ready` means that the node takes new pods. Amounts are listed in the order of
    "resources": cpu in millicores, memory in bytes, everything else in whole units.
    """
    offered = {name: columns for name, columns in state.resources().items() if columns[0].any()}
    documents = [
        {
            "name": node.name,
            "zone": node.labels.get(ZONE, ""),
            "ready": _takes_pods(node),
            "allocatable": [int(allocatable[position]) for allocatable, _ in offered.values()],
            "requested": [int(requested[position]) for _, requested in offered.values()],
        }
        for position, node in enumerate(state.nodes())
    ]
    return {"resources": list(offered), "nodes": sorted(documents, key=lambda document: document["name"])}


class NodeUsage(Documented, frozen=True):
    """The resources of a node, by name: cpu in millicores, memory in bytes, the others in whole units.

    Attributes:
        name: the name of the node.
        zone: the node's zone; empty if it has none.
        ready: True if the node takes new pods.
        allocatable: the amounts that the node offers to pods.
        requested: the amounts that the node's pods request.
    """

    name: str
    zone: str
    ready: bool
    allocatable: Mapping[str, int]
    requested: Mapping[str, int]


def node_usage(state: ClusterState) -> list[NodeUsage]:
    """Returns the resources of every node, sorted by name. A resource that no node offers is left out."""
    document = all_nodes(state)
    resources = document["resources"]
    return [
        NodeUsage(
            node["name"],
            node["zone"],
            node["ready"],
            dict(zip(resources, node["allocatable"], strict=True)),
            dict(zip(resources, node["requested"], strict=True)),
        )
        for node in document["nodes"]
    ]


def _takes_pods(node: Node) -> bool:
    """Returns False if the node is cordoned, not ready or unreachable."""
    ready = next((each.status for each in node.status.conditions or () if each.type == "Ready"), "True")
    is_lost = any(taint.key in LOST_NODE_TAINTS for taint in node.taints)
    return ready == "True" and not node.spec.unschedulable and not is_lost


def one_node(state: ClusterState, name: str) -> dict[str, Any]:
    """Returns {"name", "labels", "taints", "unschedulable", "resources": {name: {"allocatable", "requested"}}, "pods",
    "devices"}; see `devices_on`.

    Raises UnknownNode if the cluster has no such node.
    """
    node = state.node(name)
    position = state.node_names().index(name)
    amounts = {
        resource: (int(allocatable[position]), int(requested[position]))
        for resource, (allocatable, requested) in state.resources().items()
    }
    return {
        "name": name,
        "labels": dict(sorted(node.labels.items())),
        "taints": [f"{each.key}{f'={each.value}' if each.value else ''}:{each.effect}" for each in node.taints],
        "unschedulable": bool(node.spec.unschedulable),
        "resources": {
            resource: {"allocatable": allocatable, "requested": requested}
            for resource, (allocatable, requested) in amounts.items()
            if allocatable or requested
        },
        "pods": sorted(info.pod.key for info in state.pods_on(name)),
        "devices": devices_on(state, name),
    }

"""The three worked examples of the README."""

from __future__ import annotations

import numpy as np

from extender import CPU, Node, Pod, PodInfo, Rows, Table, predicate, priority


@priority
def spread_by_rack_power(pod: PodInfo, table: Table, rows: Rows, *, rack: str, cpus: int) -> object:
    """Prefers racks with the most power left; `cpus` is the number of CPUs that a rack's feed can supply."""
    racks = table.nodes.labels[rack]
    milli = np.bincount(racks.ids, table.nodes.requested[CPU], len(racks))
    return 100 - milli[racks.ids[rows]] / (10 * cpus)


@predicate
def keep_namespace(pod: Pod, node: Node, *, namespace: str, label: str, value: str) -> str | None:
    """Keeps a namespace on its nodes, and other namespaces off them."""
    if (node.labels.get(label) == value) == (pod.namespace == namespace):
        return None
    return "node(s) were kept for other namespaces"


@priority
def warm_cache(pod: Pod, node: Node, *, annotation: str = "example.com/models") -> int:
    """Prefers nodes that already hold the models that the pod will load."""
    wanted = set(pod.annotations.get(annotation, "").split(",")) - {""}
    held = node.annotations.get(annotation, "").split(",")
    return 100 * len(wanted.intersection(held)) // max(1, len(wanted))

"""Keeps racks within the power of their feeds: a CPU stands for so many watts."""

import numpy as np

from extender import CPU, PodInfo, Rows, Table, predicate, priority


def watts_by_rack(table: Table, rack: str, watts: float) -> object:
    """Returns what the pods of each rack draw, by the rack's id; 0 is for nodes of no rack."""
    racks = table.nodes.labels[rack]
    return np.bincount(racks.ids, table.nodes.requested[CPU], len(racks)) * watts / 1000


@predicate(sees_pods=True, woken_by={"AssignedPod": "Delete", "Node": "Add|UpdateNodeLabel"})
def within_feed(
    pod: PodInfo,
    table: Table,
    rows: Rows,
    *,
    rack: str = "example.com/rack",
    feed_watts: float,
    cpu_watts: float = 10.0,
) -> object:
    """Refuses racks where the pod would draw more than is left of the feed."""
    ids = table.nodes.labels[rack].ids[rows]
    drawn = watts_by_rack(table, rack, cpu_watts)[ids] + pod.requests.get("cpu", 0) * cpu_watts / 1000
    return {"node(s) had no power left in their rack": (ids != 0) & (drawn > feed_watts)}


@priority(normalise=True)
def most_power_left(
    pod: PodInfo, table: Table, rows: Rows, *, rack: str = "example.com/rack", cpu_watts: float = 10.0
) -> object:
    """Prefers racks that draw least."""
    return -watts_by_rack(table, rack, cpu_watts)[table.nodes.labels[rack].ids[rows]]

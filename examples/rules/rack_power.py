"""Keeps racks within the power of their feeds; each CPU counts as a fixed number of watts."""

import numpy as np
from numpy.typing import NDArray

from extender import CPU, PodInfo, Rows, Table, predicate, priority


def watts_by_rack(table: Table, rack: str, watts: float) -> NDArray[np.float64]:
    """Returns the watts that the pods of each rack draw, by the rack's id; id 0 is for nodes without a rack."""
    racks = table.nodes.labels[rack]
    milli = np.asarray(np.bincount(racks.ids, table.nodes.requested[CPU], len(racks)), np.float64)
    return milli * watts / 1000


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
    """Refuses racks whose feed has too little power left for the pod."""
    ids = table.nodes.labels[rack].ids[rows]
    drawn = watts_by_rack(table, rack, cpu_watts)[ids] + pod.requests.get("cpu", 0) * cpu_watts / 1000
    return {"node(s) had no power left in their rack": (ids == 0) | (drawn <= feed_watts)}


@priority(normalise=True)
def most_power_left(
    pod: PodInfo, table: Table, rows: Rows, *, rack: str = "example.com/rack", cpu_watts: float = 10.0
) -> object:
    """Prefers the racks that draw the least power."""
    return -watts_by_rack(table, rack, cpu_watts)[table.nodes.labels[rack].ids[rows]]

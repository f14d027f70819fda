"""Fills the nodes of a pod's team one after another, so that whole nodes stay free for large jobs."""

import numpy as np

from extender import CPU, MEMORY, PodInfo, Rows, Table, priority


@priority
def pack_team(pod: PodInfo, table: Table, rows: Rows, *, label: str = "example.com/team") -> object:
    """Prefers the fullest node of the team; a node without a team gets half the points, another team's node none."""
    taken, most = table.nodes.requested[:, rows], table.nodes.allocatable[:, rows]
    used = 50 * sum(taken[each] / np.maximum(most[each], 1) for each in (CPU, MEMORY))
    teams = table.nodes.labels[label]
    own = teams.find(pod.pod.labels.get(label, ""))
    ids = teams.ids[rows]
    return np.where(ids == 0, used / 2, np.where(ids == (-1 if own is None else own), used, 0))

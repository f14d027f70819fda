"""Runs no more pods with a licence than there are licences. A pod asks for one as for an extended resource."""

import numpy as np

from extender import PodInfo, Rows, Table, predicate


@predicate(sees_pods=True, woken_by={"AssignedPod": "Delete"})
def licence_left(pod: PodInfo, table: Table, rows: Rows, *, resource: str, licences: int) -> object:
    """Refuses every node while all licences are taken."""
    wanted = pod.requests.get(resource, 0)
    index = table.nodes.resources.get(resource)
    taken = 0 if index is None else int(table.nodes.requested[index].sum())
    refused = wanted > 0 and taken + wanted > licences
    return {"node(s) would run more licences than there are": np.full(len(rows), refused)}

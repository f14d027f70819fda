"""Runs at most a few pods of one owner, such as a ReplicaSet, on a node."""

from extender import NodeInfo, Pod, predicate


@predicate(sees_pods=True, woken_by={"AssignedPod": "Delete", "Node": "Add"})
def at_most_of_one_owner(pod: Pod, node: NodeInfo, *, most: int = 2) -> str | None:
    """Refuses nodes that already run `most` pods of the pod's owner."""
    owner = pod.controller
    if owner is None or node.pods.count_owned_by(owner.uid) < most:
        return None
    return "node(s) ran enough pods of this owner"

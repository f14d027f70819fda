"""Binds at most as many pods with a licence as there are licences, on whatever node: `example.com/licence: solver`.

The pods themselves are counted, so nothing is lost when the process restarts.
"""

from extender import Handle, Node, Pod, reserve

LICENCE = "example.com/licence"


@reserve(woken_by={"AssignedPod": "Delete"})
def floating_licence(pod: Pod, node: Node, *, handle: Handle, licences: dict[str, int]) -> str | None:
    """Takes a licence, or says why the pod cannot be bound now. The pod itself has a node already, so it counts."""
    name = pod.labels.get(LICENCE)
    if name is None or handle.count_placed(None, {LICENCE: name}) <= licences.get(name, 0):
        return None
    handle.count("no_licence_left")
    return f"no licence of {name} was left"

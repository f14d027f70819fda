"""Prefers the nodes, then the zones, with the data sets that a pod reads: `example.com/data: orders,clicks` on both."""

from extender import Node, Pod, priority

ANNOTATION, ZONE = "example.com/data", "topology.kubernetes.io/zone"


@priority
def near_data(pod: Pod, node: Node, *, zones: dict[str, str] | None = None) -> float:
    """Returns 100 for a node that holds all the data, 50 for one in its zone; `zones`: data set -> zone."""
    wanted = {name for name in pod.annotations.get(ANNOTATION, "").split(",") if name}
    if not wanted:
        return 0
    held = set(node.annotations.get(ANNOTATION, "").split(","))
    near = {name for name in wanted - held if (zones or {}).get(name) == node.labels.get(ZONE)}
    return (100 * len(wanted & held) + 50 * len(near)) / len(wanted)

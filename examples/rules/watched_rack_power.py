"""Prefers racks with power left, as objects of a kind of our own report it.

The policy names the kind: `watch: [{apiVersion: example.com/v1, kind: RackPower}]`. Each object has the name of a rack,
and `spec.wattsLeft`.
"""

from extender import Handle, NodeInfo, Pod, priority

RACK = "example.com/rack"


@priority(normalise=True)
def most_watts_left(pod: Pod, node: NodeInfo, *, handle: Handle, label: str = RACK, cpu_watts: float = 10.0) -> float:
    """Returns the watts that the node's rack has left, minus those that the node itself may draw."""
    rack = handle.objects.get("RackPower", node.labels.get(label, ""))
    if rack is None:
        return 0
    watts_left: float = rack.content["spec"]["wattsLeft"]
    return watts_left - node.requested["cpu"] / 1000 * cpu_watts

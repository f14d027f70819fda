"""Places the pods of a gang together: none is bound before all of them have a node, or all give up theirs.

A pod says which gang it is of by a label, and by an annotation how many there are of it.
"""

from extender import Handle, Node, Pod, Wait, WaitingPod, permit

GANG, SIZE = "example.com/gang", "example.com/gang-size"


@permit
def whole_gang(
    pod: Pod, node: Node, handle: Handle, *, gang: str = GANG, size: str = SIZE, wait_seconds: float = 60.0
) -> Wait | None:
    """Has a pod wait for the others of its gang, and the last one lets them all go on."""
    name = pod.labels.get(gang)
    if name is None:
        return None
    if handle.count_placed(pod.namespace, {gang: name}) < int(pod.annotations.get(size, "1")):
        handle.activate(pod.namespace, {gang: name})
        return Wait(wait_seconds)
    for other in waiting(pod, handle, gang):
        other.allow()
    return None


@whole_gang.unreserve
def give_up(pod: Pod, node: Node, handle: Handle, *, gang: str = GANG) -> None:
    """Has the others of the gang give up their nodes too, which another gang may need."""
    for other in waiting(pod, handle, gang):
        other.reject("another pod of the gang could not be placed")


def waiting(pod: Pod, handle: Handle, gang: str) -> list[WaitingPod]:
    """Returns the other pods of the gang that wait."""
    name = pod.labels.get(gang)
    if name is None:
        return []
    same = (pod.namespace, name)
    return [each for each in handle.waiting if (each.pod.namespace, each.pod.labels.get(gang)) == same]

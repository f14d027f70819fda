"""Places the pods of a gang together: no pod is bound before all of them have a node; if one fails, all give up theirs.

A label of the pod names its gang, and an annotation says how many pods the gang has.
"""

from extender import Handle, Node, Pod, Wait, WaitingPod, permit

GANG, SIZE = "example.com/gang", "example.com/gang-size"


@permit
def whole_gang(
    pod: Pod, node: Node, handle: Handle, *, gang: str = GANG, size: str = SIZE, wait_seconds: float = 60.0
) -> Wait | None:
    """Makes a pod wait for the others of its gang; the last one lets all of them go on."""
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
    """Makes the others of the gang give up their nodes too, because another gang may need them."""
    for other in waiting(pod, handle, gang):
        other.reject("another pod of the gang could not be placed")


def waiting(pod: Pod, handle: Handle, gang: str) -> list[WaitingPod]:
    """Returns the waiting pods of the gang."""
    name = pod.labels.get(gang)
    if name is None:
        return []
    same = (pod.namespace, name)
    return [each for each in handle.waiting if (each.pod.namespace, each.pod.labels.get(gang)) == same]

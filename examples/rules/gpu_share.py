"""Shares GPUs by memory, for the device plugin that reads its choice from annotations (`aliyun.com/gpu-mem`).

A pod requests `aliyun.com/gpu-mem` in its limits, in the unit that the node's allocatable has (GiB or MiB). All its
containers share one GPU. `pick_gpu` chooses that GPU, and the choice leaves in the Binding: there is no second write
that could get lost. After a restart, the pods' annotations are the books.
"""

import time

from extender import NodeInfo, Pod, bind, predicate

MEMORY, COUNT = "aliyun.com/gpu-mem", "aliyun.com/gpu-count"
INDEX, POD, DEVICE = "ALIYUN_COM_GPU_MEM_IDX", "ALIYUN_COM_GPU_MEM_POD", "ALIYUN_COM_GPU_MEM_DEV"
ASSIGNED, AT = "ALIYUN_COM_GPU_MEM_ASSIGNED", "ALIYUN_COM_GPU_MEM_ASSUME_TIME"
NO_GPU = "node(s) had no GPU with enough memory left"
EVENTS = {"AssignedPod": "Delete|Update", "Node": "Add|UpdateNodeAllocatable"}


def wanted(pod: Pod) -> int:
    """Returns the GPU memory of all containers together."""
    limits = [each.resources.limits or {} for each in pod.containers if each.resources]
    return sum(int(str(each.get(MEMORY, 0))) for each in limits)


def free_memory(node: NodeInfo) -> list[int]:
    """Returns what is left on each GPU of the node.

    A pod whose annotation is missing or wrong may be using any GPU, for example if another writer changed it. So its
    memory counts on each of them.
    """
    count = node.allocatable.get(COUNT, 0)
    size = node.allocatable.get(MEMORY, 0) // count if count else 0
    free = [size] * count
    for pod in node.pods:
        if amount := wanted(pod):
            index = pod.annotations.get(INDEX, "")
            used = [int(index)] if index.isdecimal() and int(index) < count else range(count)
            for gpu in used:
                free[gpu] -= amount
    return free


@predicate(sees_pods=True, woken_by=EVENTS)
def has_gpu(pod: Pod, node: NodeInfo) -> str | None:
    """Refuses nodes on which no single GPU has enough memory left."""
    amount = wanted(pod)
    return NO_GPU if amount and max(free_memory(node), default=0) < amount else None


@bind(woken_by=EVENTS)
def pick_gpu(pod: Pod, node: NodeInfo) -> dict[str, str] | str | None:
    """Chooses the fullest GPU that has enough memory left, so that whole GPUs stay free."""
    amount, free = wanted(pod), free_memory(node)
    if not amount:
        return None
    fitting = [gpu for gpu, left in enumerate(free) if left >= amount]
    if not fitting:
        return NO_GPU
    size = node.allocatable[MEMORY] // node.allocatable[COUNT]
    gpu = min(fitting, key=free.__getitem__)
    return {INDEX: str(gpu), POD: str(amount), DEVICE: str(size), ASSIGNED: "false", AT: str(time.time_ns())}

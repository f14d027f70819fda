"""NodeResourcesFit, NodeResourcesBalancedAllocation: nodes that fill up, pods of every shape."""

from __future__ import annotations

from tests.builders import NodeBuilder, PodBuilder
from tests.conformance.draft import Dice, Draft

GPU, HUGEPAGES = "example.com/gpu", "hugepages-2Mi"
CPU = ("100m", "250m", "1", "0.5", "1.5", "2", "3", "0", "333m", "1e0", "0.0005")
MEMORY = ("64Mi", "256Mi", "1Gi", "3G", "5Gi", "0", "1500000k", "1073741825", "1.5Gi", "123456789m")


def add(dice: Dice, draft: Draft) -> None:
    for node in draft.nodes:
        _shrink(dice, node)
    for pod in draft.pods:
        _ask(dice, pod)
    _ask(dice, draft.target)
    _resize(dice, draft)


def _shrink(dice: Dice, node: NodeBuilder) -> None:
    node.allocatable(
        cpu=dice.one("4", "2", "1500m", "8", "0"),
        memory=dice.one("8Gi", "4Gi", "8000M", "16Gi"),
        pods=dice.one("110", "110", "1", "3"),
    )
    if dice.chance(50):
        node.allocatable({"ephemeral-storage": dice.one("20Gi", "1Gi")})
    if dice.chance(40):
        node.allocatable({GPU: dice.one("1", "2", "4", "0")})
    if dice.chance(20):
        node.allocatable({HUGEPAGES: "64Mi"})


def _ask(dice: Dice, pod: PodBuilder) -> None:
    pod.req(_requests(dice))
    if dice.chance(30):
        pod.container(**_plain(dice))
    for _ in range(dice.count(0, 2) if dice.chance(35) else 0):
        pod.init_container(_plain(dice), sidecar=dice.chance(40))
    if dice.chance(15):
        pod.overhead(cpu="250m", memory="120Mi")
    if dice.chance(12):
        pod.pod_level_req(**dice.one({"cpu": "2"}, {"memory": "3Gi"}, {"cpu": "3", "memory": "1Gi"}))


def _requests(dice: Dice) -> dict[str, str]:
    requests = _plain(dice)
    if dice.chance(15):
        requests["ephemeral-storage"] = dice.one("1Gi", "10Gi", "30Gi")
    if dice.chance(15):
        requests[GPU] = dice.one("1", "2", "3")
    if dice.chance(6):
        requests[HUGEPAGES] = dice.one("2Mi", "64Mi")
    return requests


def _plain(dice: Dice) -> dict[str, str]:
    requests = {"cpu": dice.one(*CPU)} if dice.chance(85) else {}
    return requests | ({"memory": dice.one(*MEMORY)} if dice.chance(80) else {})


def _resize(dice: Dice, draft: Draft) -> None:
    """A pod is resized in place: it counts with the larger of what it asks for and what it was given."""
    for pod in draft.pods:
        if dice.chance(15):
            given = {"cpu": dice.one(*CPU), "memory": dice.one(*MEMORY)}
            status = {"name": "c", "allocatedResources": given, "resources": {"requests": _plain(dice) or given}}
            pod.status(containerStatuses=[status])
            if dice.chance(20):
                pod.status(conditions=[{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}])

"""DefaultPreemption: nodes full of lesser pods, budgets, nominations."""

from __future__ import annotations

from typing import Any

from tests.builders import NodeBuilder, PodBuilder, make_pdb, make_pod
from tests.conformance.draft import APPS, NAMESPACES, Dice, Draft, moment

HIGHEST = 1000


def add(dice: Dice, draft: Draft) -> None:
    """Nobody else's requests count here: these nodes have no room left."""
    draft.target.priority(dice.one(HIGHEST, HIGHEST, 50)).req(cpu=dice.one("2", "3", "4"), memory="1Gi")
    if dice.chance(8):
        draft.target.preemption_policy("Never")
    for pod in draft.pods:
        pod.priority(dice.one(0, 10, 100))
    for node in draft.nodes:
        _fill(dice, draft, node)
    for number in range(dice.count(0, 2)):
        _budget(dice, draft, f"pdb-{number}")
    if dice.chance(30):
        _nominate(dice, draft)


def _fill(dice: Dice, draft: Draft, node: NodeBuilder) -> None:
    free_milli = dice.one(4000, 2000, 6000)
    node.capacity(cpu=f"{free_milli}m", memory="16Gi", pods=dice.one("110", "110", "110", "4"))
    name = node.obj()["metadata"]["name"]
    while free_milli > 0 and dice.chance(92):
        cpu_milli = dice.one(1000, 500, 1500, 2000)
        draft.pods.append(_occupant(dice, f"v{len(draft.pods)}", cpu_milli).node(name))
        free_milli -= cpu_milli


def _occupant(dice: Dice, name: str, cpu_milli: int) -> PodBuilder:
    pod = make_pod(name, dice.one(*NAMESPACES)).label(app=dice.one(*APPS)).phase("Running")
    pod.start_time(moment(dice)).priority(dice.one(0, 0, 10, 100, 2000, -5))
    pod.req(cpu=f"{cpu_milli}m", memory=dice.one("128Mi", "1Gi"))
    if dice.chance(6):
        pod.deleted()
    if dice.chance(4):
        pod.status(phase="Pending", startTime=None)
    return pod


def _budget(dice: Dice, draft: Draft, name: str) -> None:
    namespace = dice.one(*NAMESPACES)
    pdb = make_pdb(name, {"app": dice.one(*APPS)}, namespace=namespace, minAvailable=1)
    if dice.chance(10):
        pdb["spec"]["selector"] = {}
    status: dict[str, Any] = {"disruptionsAllowed": dice.one(0, 1, 2), "currentHealthy": 2, "desiredHealthy": 1}
    if draft.pods and dice.chance(20):
        status["disruptedPods"] = {dice.one(*draft.pods).obj()["metadata"]["name"]: "2026-11-21T09:00:00Z"}
    draft.add({**pdb, "status": {**status, "expectedPods": 2}})


def _nominate(dice: Dice, draft: Draft) -> None:
    """Another pod, or the target itself, waits for its place already."""
    node = dice.one(*draft.node_names)
    if dice.chance(25):
        draft.target.nominated(node)
        return
    waiting = (
        make_pod("waiting", dice.one(*NAMESPACES))
        .scheduler("default-scheduler")
        .req(cpu=dice.one("1", "2"), memory="1Gi")
    )
    draft.pods.append(waiting.priority(dice.one(10, HIGHEST, 2000)).nominated(node))

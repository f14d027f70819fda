"""TaintToleration, NodeUnschedulable."""

from __future__ import annotations

from tests.builders import NodeBuilder, PodBuilder
from tests.conformance.draft import Dice, Draft

CORDONED = "node.kubernetes.io/unschedulable"
KEYS = ("dedicated", "gpu", "level", "dedicated")
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def add(dice: Dice, draft: Draft) -> None:
    for node in draft.nodes:
        _taint(dice, node)
    for _ in range(dice.count(0, 3)):
        _tolerate(dice, draft.target)


def _taint(dice: Dice, node: NodeBuilder) -> None:
    for _ in range(dice.count(0, 3)):
        node.taint(dice.one(*KEYS), dice.one("a", "b", "5", "10", "", None), dice.one("NoSchedule", *EFFECTS))
    if dice.chance(12):
        node.unschedulable()
        if dice.chance(70):
            node.taint(CORDONED)


def _tolerate(dice: Dice, pod: PodBuilder) -> None:
    key, effect = dice.one(*KEYS, CORDONED), dice.one(None, *EFFECTS)
    match dice.count(0, 9):
        case 0:
            pod.toleration(effect=effect)
        case 1 | 2 | 3:
            pod.toleration(key, effect=effect)
        case 4:
            pod.toleration(key, dice.one("a", ""), effect=effect, operator="")
        case 5:
            pod.toleration(key, dice.one("4", "6", "x"), effect=effect, operator=dice.one("Gt", "Lt"))
        case _:
            pod.toleration(key, dice.one("a", "b", "5", ""), effect=effect)

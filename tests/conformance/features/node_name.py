"""NodeName, NodeUnschedulable."""

from __future__ import annotations

from tests.conformance.draft import Dice, Draft


def add(dice: Dice, draft: Draft) -> None:
    """The pod names a node itself; nodes are cordoned."""
    if dice.chance(50):
        draft.target.node(dice.one("n0", "n1", "elsewhere"))
    for node in draft.nodes:
        if dice.chance(30):
            node.unschedulable()
    if dice.chance(40):
        draft.target.toleration("node.kubernetes.io/unschedulable", effect=dice.one(None, "NoSchedule", "NoExecute"))

"""NodeAffinity: node selectors, required and preferred terms, wrong ones included."""

from __future__ import annotations

from tests.builders import HOSTNAME, ZONE, Object, expression, node_term
from tests.conformance.draft import ZONES, Dice, Draft

_VALUES = {ZONE: ZONES, HOSTNAME: ("n0", "n1", "n2"), "disktype": ("ssd", "hdd"), "rank": ("1", "5", "x"), "no": ("x",)}


def add(dice: Dice, draft: Draft) -> None:
    target = draft.target
    if dice.chance(25):
        target.node_selector({dice.one("disktype", ZONE, "no"): dice.one("ssd", "z0")})
    if dice.chance(60):
        target.require_node(*(term(dice) for _ in range(dice.count(0 if dice.chance(5) else 1, 3))))
    for _ in range(dice.count(0, 3)):
        target.prefer_node(dice.one(1, 10, 50, 100), term(dice))


def term(dice: Dice) -> Object:
    """A node selector term; now and then an empty one, which selects nothing."""
    expressions = [_requirement(dice) for _ in range(dice.count(1, 2))] if dice.chance(88) else []
    fields = [_field(dice) for _ in range(dice.count(1, 2))] if dice.chance(20) else []
    return node_term(*expressions, fields=fields)


def _requirement(dice: Dice) -> Object:
    operator = dice.one("In", "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
    key = dice.one(*_VALUES)
    if operator in ("Exists", "DoesNotExist"):
        return expression(key, operator)
    if operator in ("Gt", "Lt"):
        return expression(
            dice.one("rank", "rank", "disktype"), operator, dice.one("4", "0", "07", "-3" if dice.chance(15) else "2")
        )
    return expression(key, operator, *dice.some(_VALUES[key], 1, 2))


def _field(dice: Dice) -> Object:
    operator = dice.one("In", "In", "NotIn")
    names = dice.some(("n0", "n1", "n2", "elsewhere"), 1, 2 if dice.chance(8) else 1)
    return expression("metadata.name", operator, *names)

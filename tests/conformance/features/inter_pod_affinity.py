"""InterPodAffinity: both directions, required and preferred, over namespaces."""

from __future__ import annotations

from typing import Any

from tests.builders import PodBuilder
from tests.conformance.draft import NAMESPACES, TOPOLOGY_KEYS, Dice, Draft, label_selector


def add(dice: Dice, draft: Draft) -> None:
    for pod in draft.pods:
        if dice.chance(35):
            _relate(dice, pod, dice.one(pod.affinity, pod.anti_affinity))
    for relate in (draft.target.affinity, draft.target.anti_affinity):
        if dice.chance(55):
            _relate(dice, draft.target, relate)


def _relate(dice: Dice, pod: PodBuilder, relate: Any) -> None:
    for _ in range(dice.count(1, 2)):
        relate(dice.one(*TOPOLOGY_KEYS), weight=dice.one(None, 1, 50, 100), **_term(dice))


def _term(dice: Dice) -> dict[str, Any]:
    more: dict[str, Any] = {"labelSelector": label_selector(dice) if dice.chance(92) else None}
    if dice.chance(30):
        more["namespaces"] = dice.some((*NAMESPACES, "gone"), 1, 2)
    if dice.chance(25):
        more["namespaceSelector"] = dice.one({}, {"matchLabels": {"env": "prod"}}, {"matchLabels": {"env": "none"}})
    return more

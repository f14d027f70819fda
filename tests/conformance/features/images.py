"""ImageLocality."""

from __future__ import annotations

from tests.builders import NodeBuilder
from tests.conformance.draft import Dice, Draft

REPOSITORY = "registry.example"
SIZES = {"web": 50_000_000, "db": 400_000_000, "model": 1_500_000_000, "huge": 40_000_000_000, "tiny": 5_000_000}


def add(dice: Dice, draft: Draft) -> None:
    for node in draft.nodes:
        _pull(dice, node)
    target = draft.target
    target.image(_reference(dice))
    for _ in range(dice.count(0, 2)):
        target.container(_reference(dice))
    if dice.chance(25):
        target.init_container(sidecar=dice.chance(50), image=_reference(dice))
    if dice.chance(15):
        target.volume("files", {"image": {"reference": _reference(dice)}})


def _pull(dice: Dice, node: NodeBuilder) -> None:
    for name, size_bytes in SIZES.items():
        if dice.chance(50):
            tags = dice.one((":v1",), (":v1", "@sha256:" + "0" * 64), (":latest",), (":v1", ":latest"))
            node.image(*(f"{REPOSITORY}/{name}{tag}" for tag in tags), size_bytes=size_bytes + dice.one(0, 0, 999_999))


def _reference(dice: Dice) -> str:
    tag = dice.one(":v1", ":v1", "", ":v2", ":latest", "@sha256:" + "0" * 64)
    return dice.one(f"{REPOSITORY}/", "", f"{REPOSITORY}:5000/") + dice.one(*SIZES) + tag

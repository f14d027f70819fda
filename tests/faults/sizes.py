"""Sizes of the fault tests: short in `make test`, long in `make soak`; each figure may be set in the environment."""

from __future__ import annotations

import os

SOAKING = bool(os.environ.get("SOAK"))


def _size(name: str, short: int, long: int) -> int:
    return int(os.environ.get(f"SOAK_{name}", long if SOAKING else short))


PODS = _size("PODS", 300, 2000)
NODES = _size("NODES", 40, 200)
KILLS = _size("KILLS", 3, 20)
LEADER_CHANGES = _size("LEADER_CHANGES", 4, 40)
SEED = _size("SEED", 5, 5)
FUZZ_REQUESTS = _size("REQUESTS", 3000, 100_000)
CHURN_SECONDS = _size("CHURN_SECONDS", 15, 600)
SETTLE_SECONDS = _size("SETTLE_SECONDS", 120, 600)
GANGS = _size("GANGS", 24, 1000)

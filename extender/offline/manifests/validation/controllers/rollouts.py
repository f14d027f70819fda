"""Checks how a Deployment, a DaemonSet or a StatefulSet replaces its pods."""

from __future__ import annotations

import re
from collections.abc import Iterator

from extender.offline.manifests.validation.tree import Fields, fields, join

_SHARES = ("maxUnavailable", "maxSurge")
_PERCENT = re.compile(r"[0-9]+%")
_DEFAULT_DEADLINE = 600


def of_deployment(spec: Fields) -> Iterator[str]:
    strategy = fields(spec, "strategy")
    update, here = fields(strategy, "rollingUpdate"), "spec.strategy.rollingUpdate"
    yield from _shares(update, here)
    if strategy.get("type") == "Recreate" and strategy.get("rollingUpdate") is not None:
        yield f"{here}: cannot be set for type Recreate"
    if all(update.get(field) in (0, "0%") for field in _SHARES):
        yield f"{here}: maxUnavailable and maxSurge cannot both be 0"
    deadline, ready = spec.get("progressDeadlineSeconds", _DEFAULT_DEADLINE), spec.get("minReadySeconds") or 0
    if deadline <= ready:
        yield f"spec.progressDeadlineSeconds: expected more than minReadySeconds, which is {ready}, got {deadline}"


def of_daemon_set(spec: Fields) -> Iterator[str]:
    strategy, here = fields(spec, "updateStrategy"), "spec.updateStrategy.rollingUpdate"
    if strategy.get("type") == "OnDelete":
        return
    update = {"maxUnavailable": 1, "maxSurge": 0, **fields(strategy, "rollingUpdate")}
    yield from _shares(update, here, limited=_SHARES)
    if sum(update[field] not in (0, "0%") for field in _SHARES) != 1:
        yield f"{here}: exactly one of maxUnavailable (1 by default) and maxSurge must be 0"


def of_stateful_set(spec: Fields) -> Iterator[str]:
    strategy, here = fields(spec, "updateStrategy"), "spec.updateStrategy.rollingUpdate"
    update = fields(strategy, "rollingUpdate")
    yield from _shares(update, here)
    if strategy.get("type") == "OnDelete" and strategy.get("rollingUpdate") is not None:
        yield f"{here}: cannot be set for type OnDelete"
    if update.get("maxUnavailable") in (0, "0%"):
        yield f"{here}.maxUnavailable: must not be 0"


def _shares(update: Fields, path: str, limited: tuple[str, ...] = _SHARES[:1]) -> Iterator[str]:
    """Yields the faults of maxUnavailable and maxSurge.

    Args:
        limited: the fields in which a percentage must not exceed 100%.
    """
    for field in _SHARES:
        share = update.get(field, 0)
        is_valid = _PERCENT.fullmatch(share) if isinstance(share, str) else isinstance(share, int) and share >= 0
        if not is_valid:
            yield f"{join(path, field)}: expected a number or a percentage, like 25%, got {share!r}"
        elif field in limited and isinstance(share, str) and int(share.rstrip("%")) > 100:
            yield f"{join(path, field)}: must not be more than 100%"

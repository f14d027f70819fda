"""Merges the tolerations of a RuntimeClass into those of a pod. Source: upstream pkg/util/tolerations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from extender.model.workloads import TimedToleration


def merged(tolerations: Sequence[TimedToleration]) -> Iterator[int]:
    """Yields the positions of the tolerations that no other covers; if tolerations are equal, the first is kept."""
    kept: list[TimedToleration] = []
    for position, each in enumerate(tolerations):
        later = [other for other in tolerations[position + 1 :] if other != each]
        if not any(_covers(other, each) for other in (*kept, *later)):
            kept.append(each)
            yield position


def _covers(one: TimedToleration, other: TimedToleration) -> bool:
    """Returns True if `one` tolerates all that `other` tolerates (upstream isSuperset)."""
    if one == other:
        return True
    if one.key != other.key and (one.key or one.operator != "Exists"):
        return False
    if one.effect not in ("", other.effect):
        return False
    if one.effect == "NoExecute" and _lasts_longer(other.toleration_seconds, one.toleration_seconds):
        return False
    if one.operator in ("", "Equal"):
        return other.operator == "Equal" and one.value == other.value
    return one.operator == "Exists"


def _lasts_longer(first: int | None, second: int | None) -> bool:
    """Returns True if the time limit `first` is longer than `second`; None means no limit."""
    return second is not None and (first is None or first > second)

"""Defines the functions of lists, sets and optional values.

Source: cel-go ext; k8s.io/apiserver/pkg/cel/library/lists.go.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from functools import cmp_to_key
from itertools import pairwise
from typing import Any

from extender.devices.cel.library.functions import MAX_LENGTH, checked, fail
from extender.devices.cel.library.times import ZERO_TIMES, plus
from extender.devices.cel.values import (
    NO_OVERLOAD,
    NONE,
    Duration,
    EvaluationError,
    OptionalValue,
    Quantity,
    Semver,
    Timestamp,
    Uint,
    compare,
    contains,
    equal,
)


def _flatten(values: list[Any], depth: int = 1) -> list[Any]:
    if depth < 0:
        raise EvaluationError("level must be non-negative")
    flat: list[Any] = []
    for value in values:
        flat.extend(_flatten(value, depth - 1) if isinstance(value, list) and depth else [value])
    return flat


def _distinct(values: list[Any]) -> list[Any]:
    kept: list[Any] = []
    for value in values:
        if not contains(kept, value):
            kept.append(value)
    return kept


def _slice(values: list[Any], start: int, end: int) -> list[Any]:
    fits = 0 <= start <= end <= len(values)
    return values[start:end] if fits else fail(f"cannot slice({start}, {end}), list is length {len(values)}")


def sorted_by(values: list[Any], keys: list[Any]) -> list[Any]:
    """Returns the values sorted by their keys. The keys must be comparable and have the same type."""
    if keys and any(type(key) is not type(keys[0]) for key in keys):
        raise EvaluationError("list elements must have the same type")
    ordered = cmp_to_key(compare)
    return [value for _, value in sorted(zip(keys, values, strict=True), key=lambda pair: ordered(pair[0]))]


_ADDITIONS: dict[type, Callable[[Any, Any], Any]] = {float: operator.add, Duration: plus}
_ADDITIONS |= dict.fromkeys((int, Uint), checked(operator.add))


def _sum(values: list[Any]) -> Any:
    total = values[0] if values else 0
    for value in values[1:]:
        if type(value) is not type(total) or type(value) not in _ADDITIONS:
            raise EvaluationError(NO_OVERLOAD)
        total = _ADDITIONS[type(value)](total, value)
    return total


def _extreme(name: str, sign: int) -> Callable[[list[Any]], Any]:
    def apply(values: list[Any]) -> Any:
        best = values[0] if values else fail(f"{name} called on empty list")
        for value in values[1:]:
            best = value if compare(value, best) * sign > 0 else best
        return best

    return apply


def _position(values: Iterable[Any], value: object) -> int:
    return next((index for index, element in enumerate(values) if contains((element,), value)), -1)


def _last_position(values: list[Any], value: object) -> int:
    index = _position(reversed(values), value)
    return index if index < 0 else len(values) - 1 - index


def _is_zero(value: Any) -> bool:
    if isinstance(value, Duration | Timestamp):
        return value in ZERO_TIMES
    return value is None or (not isinstance(value, OptionalValue | Quantity | Semver) and not value)


LIST_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "list(A)::slice(int, int) list(A)": _slice,
    "list(A)::flatten() list(dyn)": _flatten,
    "list(dyn)::flatten(int) list(dyn)": _flatten,
    "list(A)::sort() list(A)": lambda values: sorted_by(values, values),
    "list(A)::reverse() list(A)": lambda values: values[::-1],
    "list(A)::distinct() list(A)": _distinct,
    "lists.range(int) list(int)": lambda size: (
        list(range(size)) if size <= MAX_LENGTH else fail("lists.range: cost limit exceeded")
    ),
    "list(A)::isSorted() bool": lambda values: all(compare(left, right) <= 0 for left, right in pairwise(values)),
    **{f"list({kind})::sum() {kind}": _sum for kind in ("int", "uint", "double", "google.protobuf.Duration")},
    "list(A)::min() A": _extreme("min", -1),
    "list(A)::max() A": _extreme("max", 1),
    "list(A)::indexOf(A) int": _position,
    "list(A)::lastIndexOf(A) int": _last_position,
    "dyn::includes(dyn) bool": lambda values, value: (
        _position(values, value) >= 0 if isinstance(values, list) else equal(values, value)
    ),
    "list(A)::first() optional(A)": lambda values: OptionalValue(True, values[0]) if values else NONE,
    "list(A)::last() optional(A)": lambda values: OptionalValue(True, values[-1]) if values else NONE,
    "sets.contains(list(A), list(A)) bool": lambda left, right: all(contains(left, element) for element in right),
    "sets.equivalent(list(A), list(A)) bool": lambda left, right: (
        all(contains(left, element) for element in right) and all(contains(right, element) for element in left)
    ),
    "sets.intersects(list(A), list(A)) bool": lambda left, right: any(contains(right, element) for element in left),
    "optional.of(A) optional(A)": lambda value: OptionalValue(True, value),
    "optional.ofNonZeroValue(A) optional(A)": lambda value: NONE if _is_zero(value) else OptionalValue(True, value),
    "optional.none() optional(A)": lambda: NONE,
    "optional.unwrap(list(optional(A))) list(A)": lambda values: [
        optional.value for optional in values if optional.present
    ],
    "list(optional(A))::unwrapOpt() list(A)": lambda values: [
        optional.value for optional in values if optional.present
    ],
    "optional(A)::value() A": lambda value: value.value if value.present else fail("optional.none() dereference"),
    "optional(A)::hasValue() bool": lambda value: value.present,
    "optional(A)::or(optional(A)) optional(A)": lambda value, other: value if value.present else other,
    "optional(A)::orValue(A) A": lambda value, other: value.value if value.present else other,
}

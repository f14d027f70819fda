"""The cost of calls, of which an evaluation may take so much. Source: cel-go interpreter/runtimecost.go;
k8s.io/apiserver/pkg/cel/library/cost.go.

The API server refuses expressions that it estimates to cost more, but nobody checks those of a file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from extender.devices.cel.library.functions import MAX_LENGTH
from extender.devices.cel.values import EvaluationError, OptionalValue

MAX_COST = 1_000_000  # upstream CELSelectorExpressionMaxCost
_CHARACTERS, _PATTERN_CHARACTERS = 10, 4  # for one unit
_FLAT = frozenset(("[]", "[?]", "size", "type", "dyn", "first", "last", "or", "orValue", "hasValue", "value"))
_EACH_BY_EACH = frozenset(("distinct", "sets.contains", "sets.equivalent", "sets.intersects"))
_SEARCHES = frozenset(("matches", "find", "findAll"))
_WRITERS = frozenset(("join", "format", "strings.quote"))


def spend(budget: list[int], units: int = 1) -> None:
    """Takes so many units of what is left. Raises EvaluationError where that is less."""
    budget[0] -= units
    if budget[0] < 0:
        raise EvaluationError("operation cancelled: actual cost limit exceeded")


def spend_on_call(budget: list[int], name: str, values: Sequence[Any]) -> None:
    """Takes the cost of a call before it is made; see `spend`."""
    spend(budget)
    if name in _FLAT:
        return
    sizes = [_size(value, budget[0]) for value in values]
    if name in _EACH_BY_EACH:
        spend(budget, sizes[0] * sizes[-1])
    elif name in _SEARCHES:  # by an automaton in Python: each character costs
        spend(budget, (sizes[0] + 1) * _CHARACTERS * (sizes[1] * _CHARACTERS // _PATTERN_CHARACTERS + 1))
    else:
        size = sum(sizes)
        spend(budget, MAX_COST if name in _WRITERS and size > MAX_LENGTH // _CHARACTERS else size)


def _size(value: Any, most: int) -> int:
    """Returns the units that it takes to read a value, whatever is shared in it; it stops beyond `most`."""
    size, pending = 0, [value]
    while pending and size <= most:
        each = pending.pop()
        if isinstance(each, str | bytes):
            size += len(each) // _CHARACTERS
        elif isinstance(each, list | dict):
            size += len(each)
            pending.extend(each.values() if isinstance(each, dict) else each)
        elif isinstance(each, OptionalValue):
            pending.append(each.value)
    return size

"""Evaluates the macros over lists and maps, such as `all` and `filter`.

Source: cel-go parser/macro.go, ext/comprehensions.go.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from extender.devices.cel.functions import sorted_by
from extender.devices.cel.values import (
    NO_OVERLOAD,
    NONE,
    EvaluationError,
    OptionalValue,
    equal,
    find,
    type_name,
)

Variables = dict[str, Any]
Evaluate = Callable[[Variables], Any]
BUDGET = "@budget"
"""The name of the variable, in each scope, that contains the CostBudget of the evaluation."""


def entries_of(over: Any, names: Sequence[str], variables: Variables) -> Any:
    if not isinstance(over, list | dict):
        raise EvaluationError(NO_OVERLOAD)
    budget = variables[BUDGET]
    pairs = enumerate(over) if isinstance(over, list) else over.items()
    for key, value in pairs:
        budget.spend()
        yield (
            {names[0]: value if isinstance(over, list) else key}
            if len(names) == 1
            else {names[0]: key, names[1]: value}
        )


def _quantified(scopes: Any, body: Evaluate, decisive: bool) -> bool:
    return decided((lambda _, inner=inner: body(inner) for inner in scopes), {}, decisive)


def _accepted(scopes: Any, functions: Sequence[Evaluate]) -> Any:
    """Returns the scopes that the macro's predicate accepts. A scope has the variables for one element.

    With two functions, the first is the predicate and the second computes the result. With one function, there is no
    predicate, and all scopes are accepted.
    """
    return (inner for inner in scopes if len(functions) == 1 or as_bool(functions[0](inner)))


def _to_map(scopes: Any, functions: Sequence[Evaluate], names: Sequence[str], *, entries: bool) -> dict[Any, Any]:
    mapping: dict[Any, Any] = {}
    for inner in _accepted(scopes, functions):
        value_or_entries = functions[-1](inner)
        for key, value in value_or_entries.items() if entries else ((inner[names[0]], value_or_entries),):
            insert(mapping, key, value, once=True)
    return mapping


def _sort_by(scopes: Any, functions: Sequence[Evaluate], names: Sequence[str]) -> list[Any]:
    inners = list(scopes)
    return sorted_by([inner[names[0]] for inner in inners], [functions[0](inner) for inner in inners])


COMPREHENSIONS: dict[str, Callable[[Any, Sequence[Evaluate], Sequence[str]], Any]] = {
    "all": lambda scopes, functions, _: _quantified(scopes, functions[0], False),
    "exists": lambda scopes, functions, _: _quantified(scopes, functions[0], True),
    "exists_one": lambda scopes, functions, _: sum(as_bool(functions[0](inner)) for inner in scopes) == 1,
    "filter": lambda scopes, functions, names: [inner[names[0]] for inner in scopes if as_bool(functions[0](inner))],
    "map": lambda scopes, functions, _: [functions[-1](inner) for inner in _accepted(scopes, functions)],
    "transformList": lambda scopes, functions, _: [functions[-1](inner) for inner in _accepted(scopes, functions)],
    "transformMap": lambda scopes, functions, names: _to_map(scopes, functions, names, entries=False),
    "transformMapEntry": lambda scopes, functions, names: _to_map(scopes, functions, names, entries=True),
    "sortBy": _sort_by,
}


def decided(functions: Any, variables: Variables, decisive: bool) -> bool:
    """Evaluates the operands of `||` (`decisive` is True) or of `&&` (`decisive` is False), and returns the result.

    An operand's error is raised only if no operand has the value `decisive`.
    """
    error: EvaluationError | None = None
    for function in functions:
        try:
            if as_bool(function(variables)) is decisive:
                return decisive
        except EvaluationError as failure:
            error = failure
    if error is not None:
        raise error
    return not decisive


def as_bool(value: Any) -> bool:
    if not isinstance(value, bool):
        raise EvaluationError(NO_OVERLOAD)
    return value


def is_present(value: Any) -> bool:
    if not isinstance(value, OptionalValue):
        raise EvaluationError(NO_OVERLOAD)
    return value.present


def field_of(value: Any, name: str) -> OptionalValue:
    if isinstance(value, OptionalValue):
        return field_of(value.value, name) if value.present else NONE
    if not isinstance(value, dict):
        raise EvaluationError(NO_OVERLOAD)
    return OptionalValue(True, value[name]) if hasattr(value, "__missing__") else find(value, name)


def insert(mapping: dict[Any, Any], key: Any, value: Any, *, once: bool = False) -> None:
    if type_name(key) not in ("bool", "int", "uint", "string"):
        raise EvaluationError("unsupported key type")
    if once and any(equal(key, other) for other in mapping):
        raise EvaluationError(f"insert failed: key {key} already exists")
    mapping[key] = value

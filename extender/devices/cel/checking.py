"""Finds the static types of CEL expressions. Source: cel-go checker.

Types are strings: `int`, `list(A)`, `map(string,dyn)`. An unknown type is `dyn`; its values are checked at run time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from extender.devices.cel.library.overloads import Overload, Type
from extender.devices.cel.syntax_tree import CompileError
from extender.devices.cel.values import OPAQUE, TYPES, type_name

_PARTS = re.compile(r"(\w+)\((.*)\)")


def parts_of(kind: Type) -> tuple[str, list[Type]]:
    """Splits a type into name and parameters: `map(string,list(int))` into `map`, [`string`, `list(int)`]."""
    match = _PARTS.fullmatch(kind)
    if match is None:
        return kind, ["dyn", "dyn"]
    arguments, depth = [""], 0
    for mark in match[2]:
        depth += (mark == "(") - (mark == ")")
        if mark == "," and not depth:
            arguments.append("")
        else:
            arguments[-1] += mark
    return match[1], arguments


def optional(kind: Type) -> Type:
    return kind if kind.startswith("optional(") else f"optional({kind})"


def unwrapped(kind: Type) -> Type:
    name, arguments = parts_of(kind)
    return arguments[0] if name == "optional" else "dyn"


def element_types(kinds: Sequence[Type], optional: frozenset[int]) -> list[Type]:
    """Returns the types of the elements of a list or map literal.

    Optional elements that never have a value are left out. `optional`: the indices of optional elements.
    """
    types = [unwrapped(kind) if index in optional else kind for index, kind in enumerate(kinds)]
    return [kind for index, kind in enumerate(types) if kind != "dyn" or index not in optional]


def joined(kinds: Sequence[Type]) -> Type:
    """Returns the common type of a literal's elements; `dyn` if there are no elements.

    Raises:
        CompileError: the elements have different types.
    """
    for kind in kinds[1:]:
        if kind != kinds[0] and ("dyn" in (kind, kinds[0]) or not assignable(kinds[0], kind, {})):
            raise CompileError(f"expected type '{kinds[0]}' but found '{kind}'")
    return kinds[0] if kinds else "dyn"


def require_bool(kind: Type, where: str) -> None:
    if kind not in ("bool", "dyn"):
        raise CompileError(f"expected type 'bool' but found '{kind}' in '{where}'")


def result_of(overload: Overload, kinds: Sequence[Type]) -> Type:
    """Returns the result type of the overload for arguments of these types; "" if it does not accept such arguments."""
    bound: dict[str, Type] = {}
    if not all(assignable(parameter, kind, bound) for parameter, kind in zip(overload.parameters, kinds, strict=True)):
        return ""
    return re.sub(r"\b[AB]\b", lambda letter: bound.get(letter[0], "dyn"), overload.result)


def assignable(parameter: Type, kind: Type, bound: dict[str, Type]) -> bool:
    if parameter in ("A", "B"):
        bound_type = bound.get(parameter)
        if bound_type is None or bound_type == "dyn":
            bound[parameter] = kind
            return True
        return assignable(bound_type, kind, bound)
    if "dyn" in (parameter, kind) or parameter == kind:
        return True
    (name, inner), (other, others) = parts_of(parameter), parts_of(kind)
    if "(" in parameter and kind in (name,):
        return True
    if kind == "null_type" or parameter == "null_type":
        return (parameter if kind == "null_type" else kind) in OPAQUE or name == "optional"
    if name != other or "(" not in parameter:
        return False
    return all(assignable(left, right, bound) for left, right in zip(inner, others, strict=True))


def runtime_test(parameter: Type) -> Callable[[Any], bool]:
    """Returns a function that tests, at run time, if a value may be passed for a parameter of this type."""
    name = parts_of(parameter)[0]
    if name in ("A", "B", "dyn"):
        return lambda _: True
    if name in ("list", "map"):
        of = TYPES[name]
        return lambda value: isinstance(value, of)
    name = "optional_type" if name == "optional" else name
    return lambda value: type_name(value) == name

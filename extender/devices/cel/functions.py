"""Defines the operators of CEL, its conversions, and the functions of strings, lists, sets and optional values.

The signature of a method is `receiver::name(parameters) result`; of a function, `name(parameters) result`. A and B mean
any type. A parameter may have one of several types, as in `int|uint`, and the last one may be left out, as in `int?`.

Source: cel-go common/stdlib and ext; k8s.io/apiserver/pkg/cel/library/lists.go.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable
from functools import cmp_to_key
from itertools import pairwise
from typing import Any

from extender.devices.cel.format import formatted, go_float
from extender.devices.cel.values import (
    INT64,
    NO_OVERLOAD,
    NONE,
    TIMES,
    UINT64,
    ZERO_TIMES,
    Duration,
    EvaluationError,
    OptionalValue,
    Quantity,
    Semver,
    Timestamp,
    TypeName,
    Uint,
    attempt,
    compare,
    contains,
    equal,
    find,
    plus,
    type_name,
)

TOO_LONG = "operation cancelled: cost limit exceeded"
MAX_LENGTH = 1_000_000
"""An evaluation fails if a string or list is longer than this. Upstream, the cost limit has the same effect."""


def fail(message: str) -> Any:
    raise EvaluationError(message)


def checked(function: Callable[[Any, Any], int]) -> Callable[[Any, Any], int]:
    """Returns a version of the integer operation that fails if the result does not fit into 64 bits."""

    def apply(left: int, right: int) -> int:
        result, unsigned = function(left, right), isinstance(left, Uint)
        if result not in (UINT64 if unsigned else INT64):
            raise EvaluationError(f"{'unsigned ' * unsigned}integer overflow")
        return Uint(result) if unsigned else result

    return apply


def _divide(left: int, right: int) -> int:
    if not right:
        raise EvaluationError("division by zero")
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def _modulo(left: int, right: int) -> int:
    if not right:
        raise EvaluationError("modulus by zero")
    return int(math.copysign(1, left)) * (abs(left) % abs(right))


def _divide_floats(left: float, right: float) -> float:
    if right:
        return left / right
    return math.nan if not left or math.isnan(left) else math.copysign(math.inf, left) * math.copysign(1, right)


def _index(values: list[Any], at: int) -> Any:
    return values[at] if 0 <= at < len(values) else fail(f"index out of bounds: {int(at)}")


def _lookup(mapping: dict[Any, Any], key: object) -> Any:
    if isinstance(key, str) and hasattr(mapping, "__missing__"):
        return mapping[key]
    value = find(mapping, key)
    return value.value if value.present else fail(f"no such key: {key}")


def _optional_index(value: Any, key: Any) -> OptionalValue:
    if isinstance(value, list):
        return OptionalValue(True, value[key]) if isinstance(key, int) and 0 <= key < len(value) else NONE
    return find(value, key)


def _chained(function: Callable[[Any, Any], OptionalValue]) -> Callable[[OptionalValue, Any], OptionalValue]:
    return lambda optional, key: function(optional.value, key) if optional.present else NONE


def _number(text: str, within: range) -> int:
    # None also for a number with more digits than Python converts
    number: int | None = attempt(int, text) if re.fullmatch(r"[+-]?\d+", text, re.ASCII) else None
    if number is None or number not in within:
        raise EvaluationError("type conversion error: invalid syntax")
    return number


def _whole(number: float, within: range) -> int:
    if not math.isfinite(number) or not within.start - 1 < number < within.stop or int(number) not in within:
        raise EvaluationError("integer overflow")
    return int(number)


def _double(text: str) -> float:
    number: float | None = attempt(float, text) if text == text.strip() and "_" not in text else None
    if number is None:
        raise EvaluationError(f"cannot parse {text!r} as double")
    return number


def parsed(kind: str, value: Any) -> Any:
    return fail(f"{kind} parse error") if value is None else value


def _char_at(text: str, at: int) -> str:
    return text[at : at + 1] if 0 <= at <= len(text) else str(fail(f"index out of range: {at}"))


def _index_of(text: str, part: str, start: int = 0) -> int:
    if start < 0:
        raise EvaluationError(f"index out of range: {start}")
    return text.find(part, start) if part else min(start, len(text))


def _last_index_of(text: str, part: str, start: int | None = None) -> int:
    if start is None:
        return text.rfind(part)
    if start < 0:
        raise EvaluationError(f"index out of range: {start}")
    if not part:
        return min(start, len(text))
    return text.rfind(part, 0, start + len(part)) if start < len(text) else -1


def _substring(text: str, start: int, end: int | None = None) -> str:
    stop = len(text) if end is None else end
    if start > stop and end is not None:
        raise EvaluationError(f"invalid substring range. start: {start}, end: {stop}")
    for position in (start, stop):
        if not 0 <= position <= len(text):
            raise EvaluationError(f"index out of range: {position}")
    return text[start:stop]


def _split(text: str, separator: str, parts: int = -1) -> list[str]:
    if not parts:
        return []
    if not separator:
        return list(text) if parts < 0 or parts >= len(text) else [*text[: parts - 1], text[parts - 1 :]]
    return text.split(separator, parts - 1 if parts > 0 else -1)


def _ascii(change: Callable[[str], str]) -> Callable[[str], str]:
    return lambda text: re.sub(r"[A-Za-z]+", lambda part: change(part[0]), text)


def _replaced(text: str, part: str, other: str, most: int = -1) -> str:
    times = text.count(part) if most < 0 else min(text.count(part), most)
    if len(text) + times * (len(other) - len(part)) > MAX_LENGTH:
        fail(TOO_LONG)
    return text.replace(part, other, most)


def _join(parts: list[Any], separator: str = "") -> str:
    if len(parts) * len(separator) > MAX_LENGTH:
        fail(TOO_LONG)
    return separator.join(
        part if isinstance(part, str) else str(fail(f"join: invalid input: {part}")) for part in parts
    )


def _concatenated(left: Any, right: Any) -> Any:
    return left + right if len(left) + len(right) <= MAX_LENGTH else fail(TOO_LONG)


def _differ(left: Any, right: Any) -> bool:
    try:
        return not equal(left, right)
    except EvaluationError:  # values that cannot be compared differ, as in cel-go
        return True


def _same(value: Any) -> Any:
    return value


def order(left: Any, right: Any) -> int:
    return bool(left > right) - bool(left < right)


_QUOTED = {"\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v", "\\": "\\\\"}
_QUOTED |= {'"': '\\"'}
_INTEGERS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": _divide, "%": _modulo}
_FLOATS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": _divide_floats}
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "!(bool) bool": operator.not_,
    "neg(int) int": lambda value: checked(operator.sub)(0, value),
    "neg(double) double": operator.neg,
    "==(A, A) bool": equal,
    "!=(A, A) bool": _differ,
    "in(A, list(A)) bool": lambda value, values: contains(values, value),
    "in(A, map(A,B)) bool": lambda key, mapping: find(mapping, key).present,
    "[](list(A), int) A": _index,
    "[](map(A,B), A) B": _lookup,
    "[](optional(list(A)), int) optional(A)": _chained(_optional_index),
    "[](optional(map(A,B)), A) optional(B)": _chained(_optional_index),
    "[?](list(A), int) optional(A)": _optional_index,
    "[?](map(A,B), A) optional(B)": _optional_index,
    "[?](optional(list(A)), int) optional(A)": _chained(_optional_index),
    "[?](optional(map(A,B)), A) optional(B)": _chained(_optional_index),
    **{f"+({kind}, {kind}) {kind}": _concatenated for kind in ("string", "bytes", "list(A)")},
    **{f"{symbol}(double, double) double": function for symbol, function in _FLOATS.items()},
    **{
        f"{symbol}({kind}, {kind}) {kind}": checked(function)
        for symbol, function in _INTEGERS.items()
        for kind in ("int", "uint")
    },
    **{
        f"{symbol}({left}, {right}) bool": lambda x, y, test=test: test(compare(x, y), 0)
        for symbol, test in (("<", operator.lt), ("<=", operator.le), (">", operator.gt), (">=", operator.ge))
        for left in ("int", "uint", "double", "string", "bytes", "bool", *TIMES)
        for right in (("int", "uint", "double") if left in ("int", "uint", "double") else (left,))
    },
    "size(string|bytes|list(A)|map(A,B)) int": len,
    "string|bytes|list(A)|map(A,B)::size() int": len,
    "type(A) type": lambda value: TypeName(type_name(value)),
    "dyn(A) dyn": _same,
    **{f"{kind}({kind}) {kind}": _same for kind in ("bool", "bytes", "double", "int", "string", "uint")},
    "bool(string) bool": lambda text: (
        text in ("1", "t", "T", "true", "TRUE", "True")
        or (text not in ("0", "f", "F", "false", "FALSE", "False") and fail("type conversion error"))
    ),
    "bytes(string) bytes": str.encode,
    "double(int|uint) double": float,
    "double(string) double": _double,
    "int(double) int": lambda number: _whole(number, INT64),
    "int(string) int": lambda text: _number(text, INT64),
    "int(uint) int": lambda number: int(number) if int(number) in INT64 else fail("integer overflow"),
    "uint(double) uint": lambda number: Uint(_whole(number, UINT64)),
    "uint(int) uint": lambda number: Uint(number) if number in UINT64 else fail("unsigned integer overflow"),
    "uint(string) uint": lambda text: Uint(_number(text, UINT64)),
    "string(bool) string": lambda value: str(value).lower(),
    "string(bytes) string": lambda value: parsed("UTF-8", attempt(value.decode)),
    "string(double) string": go_float,
    "string(int) string": str,
    "string(uint) string": lambda number: str(int(number)),
    "string::contains(string) bool": operator.contains,
    "string::startsWith(string) bool": str.startswith,
    "string::endsWith(string) bool": str.endswith,
    "string::charAt(int) string": _char_at,
    "string::indexOf(string, int?) int": _index_of,
    "string::lastIndexOf(string, int?) int": _last_index_of,
    "string::lowerAscii() string": _ascii(str.lower),
    "string::upperAscii() string": _ascii(str.upper),
    "string::replace(string, string, int?) string": _replaced,
    "string::split(string, int?) list(string)": _split,
    "string::substring(int, int?) string": _substring,
    "string::trim() string": str.strip,
    "string::format(list(dyn)) string": formatted,
    "strings.quote(string) string": lambda text: f'"{"".join(_QUOTED.get(mark, mark) for mark in text)}"',
    "list(string)::join(string?) string": _join,
}


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


def _present(optionals: Iterable[OptionalValue]) -> list[Any]:
    return [optional.value for optional in optionals if optional.present]


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
    "optional.unwrap(list(optional(A))) list(A)": _present,
    "list(optional(A))::unwrapOpt() list(A)": _present,
    "optional(A)::value() A": lambda value: value.value if value.present else fail("optional.none() dereference"),
    "optional(A)::hasValue() bool": lambda value: value.present,
    "optional(A)::or(optional(A)) optional(A)": lambda value, other: value if value.present else other,
    "optional(A)::orValue(A) A": lambda value, other: value.value if value.present else other,
}

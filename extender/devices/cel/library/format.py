"""Numbers as Go prints them, and string.format. Source: strconv.FormatFloat; cel-go ext/formatting.go."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from extender.devices.cel.library.times import duration_text, timestamp_text
from extender.devices.cel.values import TIMES, Duration, EvaluationError, Timestamp, Uint, type_name

_CLAUSE = re.compile(r"%(?:(%)|(?:\.(\d+))?(.)?)", re.DOTALL)
_FIXED_FROM, _FIXED_TO = -4, 6
_PRECISION_DIGITS = 3
_UNBOUNDED = {math.inf: "+Inf", -math.inf: "-Inf"}


def go_float(number: float) -> str:
    """The shortest text that is the number again."""
    if not math.isfinite(number):
        return _UNBOUNDED.get(number, "NaN")
    decimal = Decimal(repr(number))
    exponent = decimal.adjusted() if decimal else 0
    if _FIXED_FROM <= exponent < _FIXED_TO or not decimal:
        text = format(decimal, "f")
        return text.rstrip("0").rstrip(".") if "." in text else text
    digits = "".join(map(str, decimal.as_tuple().digits)).rstrip("0")
    mantissa = f"{digits[0]}.{digits[1:]}" if len(digits) > 1 else digits
    return f"{'-' * (number < 0)}{mantissa}e{'-' if exponent < 0 else '+'}{abs(exponent):02}"


def formatted(template: str, arguments: list[Any]) -> str:
    """The template with its clauses replaced by the arguments, one after another."""
    left = iter(arguments)

    def clause(match: re.Match[str]) -> str:
        if match[1]:
            return "%"
        if match[3] not in _CLAUSES:
            raise EvaluationError(f'could not parse formatting clause: unrecognized formatting clause "{match[3]}"')
        try:
            argument = next(left)
        except StopIteration:
            raise EvaluationError(f"index {len(arguments)} out of range") from None
        precision = 6 if match[2] is None else int(match[2][:_PRECISION_DIGITS])
        return _CLAUSES[match[3]](argument, precision)

    return _CLAUSE.sub(clause, template)


def _string(value: Any, _: int = 0) -> str:
    kind = type_name(value)
    if kind == "list":
        return f"[{', '.join(map(_nested, value))}]"
    if kind == "map":
        return f"{{{', '.join(sorted(f'{_nested(key)}:{_nested(each)}' for key, each in value.items()))}}}"
    if kind == "double":
        return go_float(value)
    if kind == "bytes":
        return str(value.decode("utf-8", "replace"))
    if kind in ("string", "type", "int", "uint"):
        return str(int(value)) if kind in ("int", "uint") else str(value)
    if isinstance(value, Duration | Timestamp):
        return duration_text(value) if isinstance(value, Duration) else timestamp_text(value)
    if kind in ("bool", "null_type"):
        return "null" if value is None else str(value).lower()
    raise EvaluationError(f"error during formatting: string clause cannot be used on {kind}")


def _nested(value: Any) -> str:
    kind = type_name(value)
    if kind == "double":
        return f"{value:.6f}" if math.isfinite(value) else json.dumps(f"{value}")
    if kind in ("string", "bytes"):
        return ("b" * (kind == "bytes")) + json.dumps(_string(value), ensure_ascii=False)
    if kind in TIMES:
        return f'{kind.rpartition(".")[2].lower()}("{_string(value)}")'
    return _string(value)


def _numbers(code: str, *kinds: str) -> Callable[[Any, int], str]:
    def apply(value: Any, precision: int) -> str:
        kind = type_name(value)
        if kind not in kinds:
            raise EvaluationError(f"error during formatting: {code} clause cannot be used on {kind}")
        if code in "xX" and kind in ("string", "bytes"):
            octets: bytes = value.encode() if kind == "string" else value
            return octets.hex().upper() if code == "X" else octets.hex()
        number: float = int(value) if isinstance(value, int | Uint) else value
        return format(number, f".{precision}{code}" if code in "fe" else code)

    return apply


_CLAUSES: dict[str, Callable[[Any, int], str]] = {
    "s": _string,
    "d": _numbers("d", "int", "uint"),
    "f": _numbers("f", "double"),
    "e": _numbers("e", "double"),
    "b": _numbers("b", "int", "uint", "bool"),
    "o": _numbers("o", "int", "uint"),
    "x": _numbers("x", "int", "uint", "string", "bytes"),
    "X": _numbers("X", "int", "uint", "string", "bytes"),
}

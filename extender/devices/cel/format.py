"""Formats values as strings (string.format), and checks strings against named formats (format.named).

Source: k8s.io/apiserver/pkg/cel/library/format.go, k8s.io/apimachinery/pkg/util/validation.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable
from datetime import date
from decimal import Decimal
from typing import Any
from urllib.parse import SplitResult, urlsplit

from extender.devices.cel.values import (
    NONE,
    TIMES,
    Duration,
    EvaluationError,
    NamedFormat,
    OptionalValue,
    Timestamp,
    Uint,
    attempt,
    duration_text,
    timestamp_text,
    type_name,
)

_CLAUSE = re.compile(r"%(?:(%)|(?:\.(\d+))?(.)?)", re.DOTALL)
_FIXED_FROM, _FIXED_TO = -4, 6
_PRECISION_DIGITS = 3
_UNBOUNDED = {math.inf: "+Inf", -math.inf: "-Inf"}


def go_float(number: float) -> str:
    """Returns the shortest text that Go would parse as the same number."""
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
    """Returns the template with its clauses, such as `%d`, replaced by the arguments in order."""
    remaining = iter(arguments)

    def clause(match: re.Match[str]) -> str:
        if match[1]:
            return "%"
        if match[3] not in _CLAUSES:
            raise EvaluationError(f'could not parse formatting clause: unrecognized formatting clause "{match[3]}"')
        try:
            argument = next(remaining)
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


_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_LABEL_1035 = r"[a-z]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_NAME = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_UUID = re.compile(r"(?i)[0-9a-f]{8}(-?[0-9a-f]{4}){3}-?[0-9a-f]{12}", re.ASCII)
_BASE64 = re.compile(r"([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})")
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_TIME = re.compile(r"([01]\d|2[0-3]):[0-5]\d:[0-5]\d(.\d+)?(z|[+-]\d\d:\d\d)", re.ASCII)
Faults = Iterable[str]


def _form(pattern: str, most: int) -> Callable[[str], Faults]:
    def faults(text: str) -> Faults:
        if len(text.encode()) > most:
            yield f"must be no more than {most} characters"
        if not re.fullmatch(pattern, text, re.ASCII):
            yield f"must match the regular expression '{pattern}'"

    return faults


def _dns_label(text: str) -> Faults:
    for fault in _form(_LABEL, 63)(text):
        dotted = "regular expression" in fault and re.fullmatch(_SUBDOMAIN, text)
        yield "must not contain dots" if dotted else fault


def _prefix(check: Callable[[str], Faults]) -> Callable[[str], Faults]:
    """Returns a check for the prefix of a generated name. Unlike a name, a prefix may end with a dash."""
    return lambda text: check(f"{text[:-2]}a" if len(text) > 1 and text.endswith("-") else text)


def _qualified_name(text: str) -> Faults:
    prefix, slash, name = text.rpartition("/")
    if "/" in prefix:
        yield "must be a name with an optional DNS subdomain and '/' before it"
        return
    if slash and not prefix:
        yield "prefix part must be non-empty"
    elif slash:
        yield from (f"prefix part {fault}" for fault in _form(_SUBDOMAIN, 253)(prefix))
    if not name:
        yield "name part must be non-empty"
    yield from (f"name part {fault}" for fault in _form(_NAME, 63)(name))


def _date(text: str) -> date | None:
    day = re.sub("^0000", "2000", text)  # Go has a year 0, which is a leap year like 2000
    parsed: date | None = attempt(date.fromisoformat, day) if _DATE.fullmatch(text) else None
    return parsed


def _is_date_time(text: str) -> bool:
    day, time = [*text.lower().split("t"), ""][:2]
    return _date(day) is not None and _TIME.fullmatch(time) is not None


def parse_url(text: str) -> SplitResult | None:
    """Returns the parsed URL; None if `text` is neither an absolute URL nor an absolute path (url.ParseRequestURI)."""
    if not re.fullmatch(r"(?:[a-zA-Z][a-zA-Z0-9+.-]*:|/)[^\x00-\x1f\x7f]*", text):
        return None
    try:
        url = urlsplit(text)
        url.port  # noqa: B018 - raises ValueError if the port is not a 16-bit number
    except ValueError:
        return None
    return None if re.search(r"%(?![0-9a-fA-F]{2})", url.path) else url


def _check(parse: Callable[[str], object], fault: str) -> Callable[[str], Faults]:
    return lambda text: () if parse(text) else (fault,)


_FORMATS: dict[str, Callable[[str], Faults]] = {
    "dns1123Label": _dns_label,
    "dns1123Subdomain": _form(_SUBDOMAIN, 253),
    "dns1035Label": _form(_LABEL_1035, 63),
    "qualifiedName": _qualified_name,
    "dns1123LabelPrefix": _prefix(_dns_label),
    "dns1123SubdomainPrefix": _prefix(_form(_SUBDOMAIN, 253)),
    "dns1035LabelPrefix": _prefix(_form(_LABEL_1035, 63)),
    "labelValue": _form(rf"({_NAME})?", 63),
    "uri": _check(parse_url, "invalid URI for request"),
    "uuid": _check(_UUID.fullmatch, "does not match the UUID format"),
    "byte": _check(_BASE64.fullmatch, "invalid base64"),
    "date": _check(_date, "invalid date"),
    "datetime": _check(_is_date_time, "invalid datetime"),
}


def _validate(named: NamedFormat, text: str) -> OptionalValue:
    faults = list(_FORMATS[named.name](text))
    return OptionalValue(True, faults) if faults else NONE


_F = "kubernetes.NamedFormat"
FORMAT_FUNCTIONS: dict[str, Callable[..., Any]] = {
    f"format.named(string) optional({_F})": lambda name: (
        OptionalValue(True, NamedFormat(name)) if name in _FORMATS else NONE
    ),
    f"{_F}::validate(string) optional(list(string))": _validate,
    **{f"format.{name}() {_F}": lambda name=name: NamedFormat(name) for name in _FORMATS},
}

"""Defines the CEL types that Python does not have, the equality and order of all values, and the cost of an evaluation.

The CEL types null, bool, int, double, string, bytes, list and map are represented by None, bool, int, float, str,
bytes, list and dict. Timestamps and durations also have their conversions, arithmetic and accessors here.
Source: cel-go common/types; k8s.io/apiserver/pkg/cel quantity.go, semver.go; semver.org, precedence; time.ParseDuration
and time.RFC3339 of Go.

The API server rejects expressions whose estimated cost is too high. Claims that are read from a file have not passed
this check, so the cost is counted here, and an evaluation ends at the API server's limit or at the decision's deadline.
Source of the costs: cel-go interpreter/runtimecost.go and cost.go.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import total_ordering
from ipaddress import IPv4Address, IPv4Interface, IPv6Address, IPv6Interface
from typing import Any, NamedTuple
from urllib.parse import SplitResult
from zoneinfo import ZoneInfo

from extender.errors import MalformedQuantity
from extender.model.quantity import NANO, nano
from extender.runtime.clock import Deadline

INT64, UINT64 = range(-(2**63), 2**63), range(2**64)
_NANO_SCALE, _MAX_SCALE = 9, 64  # a larger scale becomes _MAX_SCALE
_MAX_DIGITS = {10: 18, 2: 15}  # the most digits of a quantity that upstream stores in an int64
_QUANTITY = re.compile(r"[+-]?0*(\d*)(?:\.(\d*))?(?:[eE]([+-]?\d+)|([numkMGTPE]i?)?)", re.ASCII)
_EXPONENTS = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_MAX_INT64_DIGITS = 20
_NUMBER = r"(?:0|[1-9]\d*)"
_IDENTIFIER = rf"(?:{_NUMBER}|\d*[a-zA-Z-][0-9a-zA-Z-]*)"
_SEMVER = re.compile(
    rf"({_NUMBER})\.({_NUMBER})\.({_NUMBER})(?:-({_IDENTIFIER}(?:\.{_IDENTIFIER})*))?(?:\+[0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*)?",
    re.ASCII,
)
MAX_COST = 1_000_000  # upstream CELSelectorExpressionMaxCost
_UNITS_BETWEEN_CHECKS = 10_000  # the deadline is checked after this many units, about every ten milliseconds


class EvaluationError(Exception):
    """Raised if the evaluation of an expression fails for a device."""


NO_OVERLOAD = "no such overload"


def attempt(parse: Callable[..., Any], *arguments: Any) -> Any:
    """Returns what `parse` returns; None if it raises ValueError."""
    try:
        return parse(*arguments)
    except ValueError:
        return None


class Uint(int):
    """An unsigned integer of CEL."""


class TypeName(str):
    """The name of a CEL type, as the value of an expression like `type(1)`."""

    __slots__ = ()


class OptionalValue(NamedTuple):
    """A CEL optional: `value` if `present` is True, else no value."""

    present: bool
    value: Any = None


NONE = OptionalValue(False)


@dataclass(frozen=True, slots=True)
class Quantity:
    """A Kubernetes quantity in billionths.

    Attributes:
        scale: upstream stores most quantities as an int64 with a decimal exponent, and this is the exponent. None for
            other quantities.
    """

    nanos: int
    scale: int | None = None

    @classmethod
    def parse(cls, text: str) -> Quantity | None:
        """Returns the quantity that the text represents, None if the text is invalid."""
        form = _QUANTITY.fullmatch(text)
        try:
            nanos = nano(text) if text else None
        except MalformedQuantity:
            nanos = None
        if nanos is None or form is None:
            return None
        return cls(nanos, _scale(nanos, len(form[1] or "0"), len(form[2] or ""), form[3], form[4] or ""))

    def plus(self, other: Quantity | int, sign: int = 1) -> Quantity:
        """Returns the sum, or the difference if `sign` is -1."""
        addend = other if isinstance(other, Quantity) else Quantity(other * NANO, 0)
        scales = [part.scale for part in (self, addend) if part.nanos or part.scale is None]
        nanos = self.nanos + sign * addend.nanos
        scale = None if None in scales else min((part for part in scales if part is not None), default=0)
        return Quantity(nanos, scale if scale is None or _unscaled(nanos, scale) in INT64 else None)

    def integer(self) -> int | None:
        """Returns the quantity as an integer, like upstream's AsInt64; None if upstream's call would fail."""
        whole = self.nanos // NANO
        return whole if self.scale is not None and self.scale >= 0 and whole in INT64 else None

    def approximate_float(self) -> float:
        """Returns the quantity as a float, like upstream's AsApproximateFloat64."""
        scale = -_NANO_SCALE if self.scale is None else self.scale
        unscaled = float(_unscaled(self.nanos, scale))
        return unscaled * float(f"1e{scale}") if scale else unscaled


def _scale(nanos: int, whole: int, places: int, exponent: str | None, suffix: str) -> int | None:
    if suffix.endswith("i"):
        doublings = 10 * ("KMGTPE".index(suffix[0]) + 1)
        fits = not places and _MAX_DIGITS[2] - whole - doublings * 3 // 10 - 1 >= 0 and nanos // NANO in INT64
        return 0 if fits else None
    scale = (int(exponent) if exponent else _EXPONENTS.get(suffix, 0)) - places
    return scale if whole + places <= _MAX_DIGITS[10] and -_NANO_SCALE <= scale <= _MAX_SCALE else None


def _unscaled(nanos: int, scale: int) -> int:
    shift = _NANO_SCALE + scale
    unscaled: int = nanos // 10**shift
    return unscaled


@total_ordering
@dataclass(frozen=True, slots=True)
class Semver:
    """A semantic version; its build metadata is ignored."""

    release: tuple[int, int, int]
    pre_release: tuple[tuple[int, int, str], ...]

    @classmethod
    def parse(cls, text: str, normalize: bool = False) -> Semver | None:
        """Returns the version that the text represents, None if the text is invalid.

        `normalize`: a leading v, leading zeros and missing numbers are allowed.
        """
        match = _SEMVER.fullmatch(_normalized(text) if normalize else text)
        if match is None:
            return None
        parts = match[4].split(".") if match[4] else ()
        if any(len(part) > _MAX_INT64_DIGITS for part in (*match.groups()[:3], *parts) if part.isdigit()):
            return None
        order = tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in parts)
        return cls((int(match[1]), int(match[2]), int(match[3])), order)

    def __lt__(self, other: Semver) -> bool:
        mine, others = ((part.release, not part.pre_release, part.pre_release) for part in (self, other))
        return mine < others


@dataclass(frozen=True, slots=True, order=True)
class Duration:
    """A length of time, as a 64-bit number of nanoseconds."""

    nanos: int


@dataclass(frozen=True, slots=True, order=True)
class Timestamp:
    """A moment, in nanoseconds since 1970, and the offset of the time zone in which it was written."""

    nanos: int
    offset_seconds: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class NamedFormat:
    """A named format of strings, such as `dns1123Label`, from the CEL library `format`."""

    name: str


def _normalized(text: str) -> str:
    parts = [_without_zeros(part) for part in text.removeprefix("v").split(".", 2)]
    if len(parts) < 3 and any(mark in parts[-1] for mark in "+-"):
        return ""
    return ".".join([*parts, "0", "0"][:3])


def _without_zeros(part: str) -> str:
    rest = part.lstrip("0")
    return rest if rest[:1].isdigit() or rest == part else f"0{rest}"


OPAQUE: dict[str, Any] = {"Quantity": Quantity, "Semver": Semver, "IP": (IPv4Address, IPv6Address)}
OPAQUE |= {"CIDR": (IPv4Interface, IPv6Interface), "URL": SplitResult, "kubernetes.NamedFormat": NamedFormat}
TYPES: dict[str, type] = {"bool": bool, "int": int, "uint": Uint, "double": float, "string": str, "bytes": bytes}
TYPES |= {"null_type": type(None), "list": list, "map": dict, "type": TypeName, "optional_type": OptionalValue}
TIMES: dict[str, type] = {"google.protobuf.Timestamp": Timestamp, "google.protobuf.Duration": Duration}
TYPES |= TIMES
_NUMBERS = (int, Uint, float)
_ORDERED = (bool, str, bytes, Timestamp, Duration)


def type_name(value: object) -> str:
    for name, of in OPAQUE.items():  # the CIDR classes are subclasses of the IP classes
        if isinstance(value, of) and (name != "IP" or not isinstance(value, OPAQUE["CIDR"])):
            return name
    if isinstance(value, dict):
        return "map"
    return next((name for name, of in TYPES.items() if type(value) is of), "dyn")


def equal(left: Any, right: Any) -> bool:
    """Returns True if `left == right` in CEL.

    Raises:
        EvaluationError: one value is a quantity, version, address or URL, and the other is of another type.
    """
    if left is None or right is None:
        return left is right
    if type(left) in _NUMBERS and type(right) in _NUMBERS:
        return bool(left == right)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(equal, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return len(left) == len(right) and all(key in right and equal(left[key], right[key]) for key in left)
    if isinstance(left, OptionalValue) and isinstance(right, OptionalValue):
        return left.present == right.present and (not left.present or equal(left.value, right.value))
    kind = type_name(left)
    if kind != type_name(right):
        if kind in OPAQUE:
            raise EvaluationError(NO_OVERLOAD)
        return False
    return bool(left == right)


def compare(left: Any, right: Any) -> int:
    """Returns -1, 0 or 1 if `left` is less than, equal to or greater than `right`.

    Raises:
        EvaluationError: the values cannot be compared.
    """
    if (type(left) in _NUMBERS and type(right) in _NUMBERS) or (type(left) is type(right) and type(left) in _ORDERED):
        return int(left > right) - int(left < right)
    raise EvaluationError(NO_OVERLOAD)


def contains(values: Iterable[Any], value: object) -> bool:
    """Returns True if any of the values equals `value`. If none does and a comparison failed, raises its error."""
    error: EvaluationError | None = None
    for part in values:
        try:
            if equal(value, part):
                return True
        except EvaluationError as failure:
            error = failure
    if error is not None:
        raise error
    return False


def find(mapping: dict[Any, Any], key: object) -> OptionalValue:
    if type(key) in (str, int, Uint, bool) or (isinstance(key, float) and key.is_integer()):
        for candidate in (key,) if isinstance(key, str) else mapping:
            if candidate in mapping and isinstance(candidate, bool) is isinstance(key, bool) and candidate == key:
                return OptionalValue(True, mapping[candidate])
    return NONE


class CostBudget:
    """The cost that an evaluation may still use.

    Attributes:
        left: the remaining units.
    """

    __slots__ = ("_checked_at", "_deadline", "left")

    def __init__(self, deadline: Deadline) -> None:
        self.left = self._checked_at = MAX_COST
        self._deadline = deadline

    def spend(self, units: int = 1) -> None:
        """Subtracts `units` from the remaining cost.

        Raises:
            EvaluationError: fewer than `units` are left.
            DeadlineExceeded: the decision's deadline has passed.
        """
        self.left -= units
        if self.left < 0:
            raise EvaluationError("operation cancelled: actual cost limit exceeded")
        if self._checked_at - self.left >= _UNITS_BETWEEN_CHECKS:
            self._checked_at = self.left
            self._deadline.check("a CEL selector was evaluated")


SECOND = 1_000_000_000
_UNITS = {"ns": 1, "us": 1_000, "µs": 1_000, "μs": 1_000, "ms": 1_000_000, "s": SECOND}
_UNITS |= {"m": 60 * SECOND, "h": 3600 * SECOND}
_PART = rf"(\d+(?:\.\d*)?|\.\d+)({'|'.join(sorted(_UNITS, reverse=True))})"
_DURATION = re.compile(rf"[+-]?(?:0|(?:{_PART})+)", re.ASCII)
_TIMESTAMP = re.compile(
    r"(\d{4}-\d\d-\d\dT)(\d{1,2})(:\d\d:\d\d)(?:[.,](\d+))?(?:Z|([+-])([01]\d|2[0-4]):([0-5]\d|60))", re.ASCII
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TIMESTAMP_SECONDS = range(-62_135_596_800, 253_402_300_800)  # the years 1 to 9999, in seconds since 1970
ZERO_TIMES = (Duration(0), Timestamp(_TIMESTAMP_SECONDS.start * SECOND))


def _in_range(nanos: int) -> int:
    if nanos not in INT64:
        raise EvaluationError("integer overflow")
    return nanos


def duration(text: str) -> Duration:
    """Parses a duration like `1h30m`. Raises EvaluationError if it is invalid."""
    if not _DURATION.fullmatch(text):
        raise EvaluationError("type conversion error from 'string' to 'duration'")
    nanos = sum(int(Decimal(number) * _UNITS[unit]) for number, unit in re.findall(_PART, text))
    return Duration(_in_range(-nanos if text.startswith("-") else nanos))


def timestamp(text: str) -> Timestamp:
    """Parses a timestamp in the format of RFC 3339. Raises EvaluationError if it is invalid."""
    match = _TIMESTAMP.fullmatch(text)
    local = attempt(datetime.fromisoformat, f"{match[1]}{match[2]:0>2}{match[3]}Z") if match else None
    if match is None or local is None:
        raise EvaluationError("type conversion error from 'string' to 'timestamp'")
    offset_seconds = (int(match[6] or 0) * 60 + int(match[7] or 0)) * (-60 if match[5] == "-" else 60)
    seconds = (local - _EPOCH) // timedelta(seconds=1) - offset_seconds
    return _at(seconds * SECOND + int((match[4] or "0")[:9].ljust(9, "0")), offset_seconds)


def plus(left: Duration, right: Duration) -> Duration:
    return Duration(_in_range(left.nanos + right.nanos))


def _at(nanos: int, offset_seconds: int = 0) -> Timestamp:
    if nanos // SECOND not in _TIMESTAMP_SECONDS:
        raise EvaluationError("timestamp overflow")
    return Timestamp(nanos, offset_seconds)


def duration_text(value: Duration) -> str:
    """Returns the duration as text in seconds, like the CEL function `string`."""
    seconds = float(value.nanos // SECOND) + value.nanos % SECOND / SECOND
    text = format(Decimal(repr(seconds)), "f")
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text}s"


def timestamp_text(value: Timestamp) -> str:
    """Returns the timestamp as RFC 3339 text in its own time zone, like the CEL function `string`."""
    local = _EPOCH + timedelta(seconds=value.nanos // SECOND + value.offset_seconds)
    fraction = f"{value.nanos % SECOND:09}".rstrip("0")
    minutes = abs(value.offset_seconds) // 60
    zone = f"{'-' if value.offset_seconds < 0 else '+'}{minutes // 60:02}:{minutes % 60:02}" if minutes else "Z"
    return f"{local.strftime('%Y'):0>4}{local.strftime('-%m-%dT%H:%M:%S')}{'.' * bool(fraction)}{fraction}{zone}"


def _local(moment: datetime, zone: str) -> datetime:
    """Converts a moment to a time zone, given by name or as an offset like `-08:00`.

    Raises:
        EvaluationError: the time zone is unknown.
    """
    hours, colon, minutes = zone.partition(":")
    try:
        if not colon:
            return moment.astimezone(ZoneInfo(zone or "UTC"))
        return moment + timedelta(hours=int(hours), minutes=-int(minutes) if zone.startswith("-") else int(minutes))
    except (ValueError, OSError, KeyError) as error:  # OSError is raised for a folder of zones, such as Europe
        raise EvaluationError(f"unknown time zone {zone}") from error
    except OverflowError as error:
        raise EvaluationError("timestamp overflow") from error


def _part(part: Callable[[datetime], int]) -> Callable[..., int]:
    return lambda value, zone="UTC": part(_local(_EPOCH + timedelta(microseconds=value.nanos // 1000), zone))


def _truncated(value: Duration, unit: int) -> int:
    return abs(value.nanos) // unit * (-1 if value.nanos < 0 else 1)


_PARTS: dict[str, Callable[[datetime], int]] = {
    "getFullYear": lambda moment: moment.year,
    "getMonth": lambda moment: moment.month - 1,
    "getDayOfYear": lambda moment: moment.timetuple().tm_yday - 1,
    "getDayOfMonth": lambda moment: moment.day - 1,
    "getDate": lambda moment: moment.day,
    "getDayOfWeek": lambda moment: moment.isoweekday() % 7,
    "getHours": lambda moment: moment.hour,
    "getMinutes": lambda moment: moment.minute,
    "getSeconds": lambda moment: moment.second,
    "getMilliseconds": lambda moment: moment.microsecond // 1000,
}
_T, _D = "google.protobuf.Timestamp", "google.protobuf.Duration"
TIME_FUNCTIONS: dict[str, Callable[..., Any]] = {
    f"duration(string) {_D}": duration,
    f"duration({_D}) {_D}": lambda value: value,
    f"timestamp(string) {_T}": timestamp,
    f"timestamp(int) {_T}": lambda seconds: _at(seconds * SECOND),
    f"timestamp({_T}) {_T}": lambda value: value,
    f"int({_D}) int": lambda value: value.nanos,
    f"int({_T}) int": lambda value: value.nanos // SECOND,
    f"string({_D}) string": duration_text,
    f"string({_T}) string": timestamp_text,
    f"+({_D}, {_D}) {_D}": plus,
    f"-({_D}, {_D}) {_D}": lambda left, right: Duration(_in_range(left.nanos - right.nanos)),
    f"+({_T}, {_D}) {_T}": lambda left, right: _at(left.nanos + right.nanos, left.offset_seconds),
    f"+({_D}, {_T}) {_T}": lambda left, right: _at(left.nanos + right.nanos, right.offset_seconds),
    f"-({_T}, {_D}) {_T}": lambda left, right: _at(left.nanos - right.nanos, left.offset_seconds),
    f"-({_T}, {_T}) {_D}": lambda left, right: Duration(_in_range(left.nanos - right.nanos)),
    **{f"{_T}::{name}(string?) int": _part(part) for name, part in _PARTS.items()},
    **{
        f"{_D}::{name}() int": lambda value, unit=_UNITS[unit]: _truncated(value, unit)
        for name, unit in (("getHours", "h"), ("getMinutes", "m"), ("getSeconds", "s"), ("getMilliseconds", "ms"))
    },
}

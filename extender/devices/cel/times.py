"""Defines the conversions, arithmetic and accessors of timestamps and durations.

Source: cel-go common/types timestamp.go, duration.go; time.ParseDuration and time.RFC3339 of Go.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

from extender.devices.cel.values import INT64, Duration, EvaluationError, Timestamp

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
    try:
        local = datetime.fromisoformat(f"{match[1]}{match[2]:0>2}{match[3]}Z") if match else None
    except ValueError:
        local = None
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
    **{f"{_T}::{name}() int": _part(part) for name, part in _PARTS.items()},
    **{f"{_T}::{name}(string) int": _part(part) for name, part in _PARTS.items()},
    **{
        f"{_D}::{name}() int": lambda value, unit=unit: _truncated(value, unit)
        for name, unit in (
            ("getHours", _UNITS["h"]),
            ("getMinutes", _UNITS["m"]),
            ("getSeconds", SECOND),
            ("getMilliseconds", _UNITS["ms"]),
        )
    },
}

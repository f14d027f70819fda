"""Checks the schedule of a CronJob.

Sources: github.com/robfig/cron/v3 ParseStandard, upstream pkg/apis/batch/validation validateTimeZone.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import resources

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
# For each field of a cron schedule: its lowest number, its highest, and the names that may replace numbers.
_FIELDS: tuple[tuple[int, int, tuple[str, ...]], ...] = (
    (0, 59, ()),
    (0, 23, ()),
    (1, 31, ()),
    (1, 12, _MONTHS),
    (0, 6, _DAYS),
)
_NAMES = ("@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly")
_EVERY = re.compile(r"@every ([+-]?(\d+(\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h))+|@every [+-]?0")


def zone_fault(zone: str) -> str | None:
    """Returns what is wrong with a time zone's name; None if it is valid."""
    return None if zone in _zones() else f"{zone!r} is not a time zone: expected one like Europe/Berlin"


@cache
def _zones() -> frozenset[str]:
    """Returns the names of all time zones.

    They are read from the package tzdata, which has the same list as the API server. This machine may have another
    list.
    """
    return frozenset((resources.files("tzdata") / "zones").read_text().split())


def fault(schedule: str) -> str | None:
    """Returns what is wrong with a CronJob's schedule; None if it is valid."""
    parts = schedule.split()
    if schedule in _NAMES or _EVERY.fullmatch(schedule):
        return None
    if len(parts) == len(_FIELDS) and all(map(_is_valid, parts, _FIELDS)):
        return None
    return f"{schedule!r} is not a schedule: expected five fields, like '*/5 * * * *'"


def _is_valid(part: str, field: tuple[int, int, tuple[str, ...]]) -> bool:
    return all(_is_range(text, *field) for text in part.split(","))


def _is_range(text: str, lowest: int, highest: int, names: tuple[str, ...]) -> bool:
    """Returns True for `*`, `?`, a number, or a range of numbers, with or without a step."""
    numbers, has_step, step = text.partition("/")
    if has_step and not (step.isdecimal() and int(step) > 0):
        return False
    if numbers in ("*", "?"):
        return True
    first, has_end, last = numbers.partition("-")
    begin = _number(first, lowest, names)
    end = _number(last, lowest, names) if has_end else begin
    return begin is not None and end is not None and lowest <= begin <= end <= highest


def _number(text: str, lowest: int, names: tuple[str, ...]) -> int | None:
    if text.lower() in names:
        return lowest + names.index(text.lower())
    return int(text) if text.isdecimal() else None

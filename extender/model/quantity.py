"""Converts quantities of the Kubernetes API to exact integers.

A quantity is a decimal number with an optional suffix (n u m k M G T P E, Ki Mi Gi Ti Pi Ei) or exponent (1e3). This
module stores it as a number of billionths, the smallest unit of the API, so that sums are exact. A sum is rounded up
once, at the end, as in upstream's Quantity.Value and Quantity.MilliValue.

Source: k8s.io/apimachinery/pkg/api/resource.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from extender.errors import MalformedQuantity

Quantity = str | int | float | None
ResourceList = dict[str, Quantity]

INT64_MAX = 2**63 - 1
NANO = 10**9
NANO_PER_MILLI = 10**6

_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_FORM = re.compile(r"([+-]?)(\d*)(?:\.(\d*))?(?:([eE][+-]?\d+)|([numkMGTPE]|[KMGTPE]i)?)", re.ASCII)
_LONGEST = 256
# Numbers with an exponent above 64 become the largest quantity, and those below -9 the smallest.
_EXPONENT_BOUND = 64
_SMALLEST = -9


@lru_cache(maxsize=16384)
def nano(quantity: Quantity) -> int:
    """Returns the quantity in billionths, rounded away from zero. Raises MalformedQuantity."""
    raw = str(quantity) if quantity is not None else "0"
    text = raw.strip()
    # Longer texts are rejected, because all results are cached.
    form = _FORM.fullmatch(text) if len(raw) <= _LONGEST else None
    if form is None or not _has_number(form):
        raise MalformedQuantity(
            f"{text[:40]!r} is not a quantity: expected a number with an optional suffix, like 100m or 2Gi"
        )
    sign, whole, fraction = form[1], form[2], form[3] or ""
    digits = int(whole + fraction or "0")
    places = len(fraction)
    factor = 1 << _BINARY[form[5]] if form[5] in _BINARY else 1
    exponent = _exponent(form[4], form[5]) - places + 9
    magnitude = _scaled(digits * factor, exponent)
    return -magnitude if sign == "-" else magnitude


def _has_number(form: re.Match[str]) -> bool:
    """Returns True if the text has digits. A text such as "m" has none, but the API reads it as 0, so it passes too."""
    return bool(form[2] or form[3]) or (form[0] != "" and _exponent(form[4], form[5]) >= _SMALLEST)


def _exponent(scientific: str | None, suffix: str | None) -> int:
    if scientific:
        return max(-_EXPONENT_BOUND, min(_EXPONENT_BOUND, int(scientific[1:])))
    return _DECIMAL.get(suffix or "", 0)


def _scaled(digits: int, exponent: int) -> int:
    power: int = 10 ** abs(exponent)
    return digits * power if exponent >= 0 else -(-digits // power)


def _rounded_up(nanos: int, unit: int) -> int:
    magnitude = min(-(-abs(nanos) // unit), INT64_MAX)
    return magnitude if nanos >= 0 else -magnitude


def milli_from_nano(nanos: int) -> int:
    """Converts billionths to thousandths, rounded away from zero and capped at 2**63 - 1."""
    return _rounded_up(nanos, NANO_PER_MILLI)


def units_from_nano(nanos: int) -> int:
    """Converts billionths to whole units, rounded away from zero and capped at 2**63 - 1."""
    return _rounded_up(nanos, NANO)


def units(quantity: Quantity) -> int:
    """Returns the quantity in whole units (bytes, devices, pods), as Quantity.Value does."""
    return units_from_nano(nano(quantity))


def amount_from_nano(resource: str, nanos: int) -> int:
    """Converts billionths to the unit in which the scheduler counts the resource: thousandths for cpu, else units."""
    return milli_from_nano(nanos) if resource == "cpu" else units_from_nano(nanos)


def amounts(resources: Mapping[str, Quantity] | None) -> dict[str, int]:
    """Converts a resource list to the units in which the scheduler counts: cpu in thousandths, all else in units."""
    return {name: amount_from_nano(name, nano(quantity)) for name, quantity in (resources or {}).items()}

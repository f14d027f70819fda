"""Quantities and semantic versions as CEL carries them: bytes, a tag and a canonical text.

Every function raises ValueError for what is no quantity or no version.
Source: k8s.io/apiserver/pkg/cel/library quantity.go, semverlib.go; semver.org, precedence.
"""

from __future__ import annotations

import re

from extender.errors import MalformedQuantity
from extender.model.quantity import NANO, nano

_QUANTITY, _VERSION = b"q", b"v"
_INT64 = range(-(2**63), 2**63)
_NUMBER = r"(?:0|[1-9]\d*)"
_IDENTIFIER = rf"(?:{_NUMBER}|\d*[a-zA-Z-][0-9a-zA-Z-]*)"
_SEMVER = re.compile(
    rf"({_NUMBER})\.({_NUMBER})\.({_NUMBER})(?:-({_IDENTIFIER}(?:\.{_IDENTIFIER})*))?(?:\+[0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*)?",
    re.ASCII,
)

Precedence = tuple[int, int, int, tuple[tuple[int, int, str], ...]]
_RELEASE = ((2, 0, ""),)  # comes after every pre-release


def quantity(text: str) -> bytes:
    try:
        return _of_nanos(nano(text))
    except MalformedQuantity as error:
        raise ValueError(str(error)) from None


def is_quantity(text: str) -> bool:
    return _succeeds(quantity, text)


def semver(text: str, normalize: bool = False) -> bytes:
    """The version, without its build metadata, which count for nothing."""
    match = _SEMVER.fullmatch(_normalized(text) if normalize else text)
    if match is None:
        raise ValueError(f"{text[:40]!r} is not a semantic version")
    release = ".".join(match.groups()[:3])
    return _VERSION + (f"{release}-{match[4]}" if match[4] else release).encode()


def is_semver(text: str, normalize: bool = False) -> bool:
    return _succeeds(semver, text, normalize)


def compare(left: bytes, right: bytes) -> int:
    """-1, 0 or 1; a quantity and a version cannot be compared."""
    if left[:1] != right[:1]:
        raise ValueError("no such overload")
    if left[:1] == _QUANTITY:
        return _sign(_nanos(left) - _nanos(right))
    first, second = _precedence(left), _precedence(right)
    return (first > second) - (first < second)


def add(left: bytes, right: bytes | int) -> bytes:
    return _of_nanos(_nanos(left) + (right * NANO if isinstance(right, int) else _nanos(right)))


def subtract(left: bytes, right: bytes | int) -> bytes:
    return _of_nanos(_nanos(left) - (right * NANO if isinstance(right, int) else _nanos(right)))


def sign(value: bytes) -> int:
    return _sign(_nanos(value))


def is_integer(value: bytes) -> bool:
    return _nanos(value) % NANO == 0 and _nanos(value) // NANO in _INT64


def as_integer(value: bytes) -> int:
    if not is_integer(value):
        raise ValueError("cannot convert value to integer")
    return _nanos(value) // NANO


def as_float(value: bytes) -> float:
    return _nanos(value) / NANO


def major(value: bytes) -> int:
    return _precedence(value)[0]


def minor(value: bytes) -> int:
    return _precedence(value)[1]


def patch(value: bytes) -> int:
    return _precedence(value)[2]


def _of_nanos(nanos: int) -> bytes:
    return _QUANTITY + str(nanos).encode()


def _nanos(value: bytes) -> int:
    if value[:1] != _QUANTITY:
        raise ValueError("no such overload")
    return int(value[1:])


def _precedence(value: bytes) -> Precedence:
    match = _SEMVER.fullmatch(value[1:].decode()) if value[:1] == _VERSION else None
    if match is None:
        raise ValueError("no such overload")
    identifiers = match[4].split(".") if match[4] else ()
    order = tuple((0, int(each), "") if each.isdigit() else (1, 0, each) for each in identifiers)
    return int(match[1]), int(match[2]), int(match[3]), order or _RELEASE


def _normalized(text: str) -> str:
    """Without a leading v and leading zeros, and with a minor and patch number."""
    parts = [_without_zeros(part) for part in text.removeprefix("v").split(".", 2)]
    if len(parts) < 3 and any(mark in parts[-1] for mark in "+-"):
        raise ValueError("short version cannot contain PreRelease/Build meta data")
    return ".".join([*parts, "0", "0"][:3])


def _without_zeros(part: str) -> str:
    rest = part.lstrip("0")
    return rest if rest[:1].isdigit() or rest == part else f"0{rest}"


def _sign(number: int) -> int:
    return (number > 0) - (number < 0)


def _succeeds(parse: object, *arguments: object) -> bool:
    assert callable(parse)
    try:
        parse(*arguments)
    except ValueError:
        return False
    return True

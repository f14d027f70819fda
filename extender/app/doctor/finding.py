"""Defines the result of one check of `extender doctor`."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Level(enum.StrEnum):
    """The severity of a finding. `fail` means that pods stay pending or are placed wrongly; `warn` is less urgent."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check.

    Attributes:
        check: the check's name, which is also its heading in docs/doctor.md.
        fix: what to do; empty if the level is `ok`.
    """

    level: Level
    check: str
    message: str
    fix: str = ""

    @property
    def docs(self) -> str:
        """The section of the documentation that explains the check, as a relative link."""
        return f"docs/doctor.md#{self.check}"


def ok(check: str, message: str) -> Finding:
    return Finding(Level.OK, check, message)


def warn(check: str, message: str, fix: str) -> Finding:
    return Finding(Level.WARN, check, message, fix)


def fail(check: str, message: str, fix: str) -> Finding:
    return Finding(Level.FAIL, check, message, fix)

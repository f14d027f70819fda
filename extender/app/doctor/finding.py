"""A finding of one check."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Level(enum.StrEnum):
    """Its weight: `warn` can wait, `fail` means that pods are not placed, or not as they should be."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """A fact that one check found.

    Attributes:
        check: the check's name, which is also its heading in docs/doctor.md.
        fix: what to do; empty for `ok`.
    """

    level: Level
    check: str
    message: str
    fix: str = ""

    @property
    def docs(self) -> str:
        """The place in the documentation that explains it."""
        return f"docs/doctor.md#{self.check}"


def ok(check: str, message: str) -> Finding:
    return Finding(Level.OK, check, message)


def warn(check: str, message: str, fix: str) -> Finding:
    return Finding(Level.WARN, check, message, fix)


def fail(check: str, message: str, fix: str) -> Finding:
    return Finding(Level.FAIL, check, message, fix)

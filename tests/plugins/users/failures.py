"""A RuleFailures that remembers."""

from __future__ import annotations


class OfItsOwnBase(BaseException):
    """An error with the base class of those that end a process."""


class Remembered:
    """Remembers the failures: (rule, type of the error)."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []

    def failed(self, rule: str, error: BaseException) -> None:
        self.told.append((rule, type(error).__name__))

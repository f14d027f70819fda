"""A listener that remembers."""

from __future__ import annotations


class OfItsOwnBase(BaseException):
    """An error whose author has taken the base of what ends a process."""


class Remembered:
    """Every failure that was told: (rule, type of the error)."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []

    def failed(self, rule: str, error: BaseException) -> None:
        self.told.append((rule, type(error).__name__))

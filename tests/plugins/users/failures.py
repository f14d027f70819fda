"""A RuleHost that remembers failures."""

from __future__ import annotations

from extender.plugins.users import OfflineHost


class OfItsOwnBase(BaseException):
    """An error with the base class of those that end a process."""


class Remembered(OfflineHost):
    """Remembers the failures: (rule, type of the error)."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[str, str]] = []

    def failed(self, rule: str, error: BaseException) -> None:
        self.told.append((rule, type(error).__name__))

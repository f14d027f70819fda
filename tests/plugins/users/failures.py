"""A RuleHost that remembers failures."""

from __future__ import annotations

from typing import Any

from extender.framework.status import Refusal
from extender.plugins.users.rule_calls import OfflineHost


class OfItsOwnBase(BaseException):
    """An error with the base class of those that end a process."""


class Failed:
    """Equals the refusal of the rule `mine` if it failed with an error, whatever the error is."""

    __hash__ = None  # type: ignore[assignment]  # compared only

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Refusal)
            and other.plugin == "mine"
            and other.reasons[0].startswith("rule mine failed: test_")
        )


FAILED: Any = Failed()


class Remembered(OfflineHost):
    """Remembers the failures: (rule, type of the error)."""

    def __init__(self) -> None:
        super().__init__()
        self.recorded: list[tuple[str, str]] = []

    def failed(self, rule: str, error: BaseException) -> None:
        self.recorded.append((rule, type(error).__name__))

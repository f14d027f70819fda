"""The seam for explaining: the algorithm tells a Trace what it sees and never asks it anything."""

from __future__ import annotations

from typing import Protocol

from extender.framework.rules import Scores, Verdict
from extender.table.labels import Rows


class Trace(Protocol):
    """Listens to one decision."""

    def checked(self, plugin: str, rows: Rows, verdict: Verdict) -> None:
        """A predicate looked at `rows`."""
        ...

    def scored(self, plugin: str, weight: int, rows: Rows, raw: Scores, scores: Scores) -> None:
        """A priority scored `rows`: raw, and normalised but not yet weighted."""
        ...


class NoTrace:
    """Listens to nothing."""

    def checked(self, plugin: str, rows: Rows, verdict: Verdict) -> None:
        pass

    def scored(self, plugin: str, weight: int, rows: Rows, raw: Scores, scores: Scores) -> None:
        pass


NO_TRACE = NoTrace()

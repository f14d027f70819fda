"""Entries that the threads of a process hand to the recorder: references to values that never change, cheap to take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from extender.cache.changes import Present, Updates
from extender.offline.recording.lines import DroppedLine, EventLine
from extender.scheduler.scheduling_cycle import Chosen, Unfit
from extender.table import PodInfo


class PolicyEntry(NamedTuple):
    """Another policy decides from here on; `text`: it as it is written."""

    text: str


class ChangeEntry(NamedTuple):
    """The cache has noted a change. `present` None: the object is gone."""

    at: float
    moment: int
    kind: str
    key: str
    present: Present


class CheckpointEntry(NamedTuple):
    """Everything there is, after changes were dropped."""

    at: float
    moment: int
    updates: Updates
    dropped: int


class CallEntry(NamedTuple):
    """A verb was asked; `result` is its answer, None where there is none but `error`."""

    at: float
    moment: int
    verb: str
    outcome: str
    request: Any
    result: Any
    error: str = ""


class AttemptEntry(NamedTuple):
    """The loop has tried a pod. `order`: the names of the table's nodes in its order; None: as before."""

    at: float
    moment: int
    info: PodInfo
    order: Sequence[str] | None
    draws: list[tuple[int, int]]
    decided: Chosen | Unfit


Entry = ChangeEntry | CheckpointEntry | CallEntry | AttemptEntry | EventLine | DroppedLine
"""The last two are written as they are."""

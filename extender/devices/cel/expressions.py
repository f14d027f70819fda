"""What a compiled CEL expression is, and how it can go wrong."""

from __future__ import annotations

from collections.abc import Callable

from extender.devices.cel.values import PoolDevice

Evaluate = Callable[[PoolDevice], bool]


class SelectorError(Exception):
    """An expression that cannot be compiled, or evaluated for a device; the message says why."""

    def __init__(self, message: str, *, at_run_time: bool) -> None:
        super().__init__(f"CEL {'runtime' if at_run_time else 'compile'} error: {message}")
        self.at_run_time = at_run_time


class EvaluationError(Exception):
    """An expression that has no value for a device."""

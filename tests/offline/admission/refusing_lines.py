"""Which lines of the checks refuse something, and which of them run for an object."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from extender.offline.manifests import admission, checks, structure

if TYPE_CHECKING:
    from _typeshed import TraceFunction

_FILES = {str(module.__file__) for module in (admission, checks, structure)}

Line = tuple[str, int]


def all_of_them() -> set[Line]:
    """Returns (file, line) of each statement that yields or raises a refusal."""
    return {(path, line) for path in _FILES for line in _refusing(path)}


def _refusing(path: str) -> list[int]:
    statements = [
        node for node in ast.walk(ast.parse(Path(path).read_text())) if isinstance(node, ast.Expr | ast.Raise)
    ]
    return [
        node.lineno
        for node in statements
        if isinstance(node, ast.Raise) or isinstance(node.value, ast.Yield | ast.YieldFrom)
    ]


def run_by(action: Callable[[], object]) -> set[Line]:
    """Returns the lines of the checks that run in a call."""
    executed: set[Line] = set()

    def of_line(frame: FrameType, event: str, _: object) -> TraceFunction | None:
        if frame.f_code.co_filename not in _FILES:
            return None
        if event == "line":
            executed.add((frame.f_code.co_filename, frame.f_lineno))
        return of_line

    before = sys.gettrace()
    sys.settrace(of_line)
    try:
        action()
    finally:
        sys.settrace(before)
    return executed

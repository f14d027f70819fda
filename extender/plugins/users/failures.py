"""Exceptions that users' rules raise, and the place in a user's file where it went wrong, in one line.

The engine has no logger: it tells a listener.
"""

from __future__ import annotations

import sysconfig
import traceback
from collections.abc import Callable
from pathlib import Path
from threading import current_thread, main_thread
from typing import Protocol

from extender.runtime.near_names import did_you_mean
from extender.runtime.ports import Telemetry

_LIBRARIES = (sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"), str(Path(__file__).parents[2]), "<frozen")


def described(error: BaseException) -> str:
    """Returns `rules.py:12: AttributeError: ... (did you mean labels?)`, by the last line of the user's own code."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{Path(error.filename).name}:{error.lineno}: {type(error).__name__}: {error.msg}"
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(_LIBRARIES)]
    place = f"{Path(own[-1].filename).name}:{own[-1].lineno}: " if own else ""
    return f"{place}{type(error).__name__}: {error}{_meant(error)}"


def _meant(error: BaseException) -> str:
    if not isinstance(error, AttributeError) or error.name is None:
        return ""
    return did_you_mean(error.name, dir(error.obj))


def is_ctrl_c(error: BaseException) -> bool:
    """Returns whether somebody wants the process to end; all else that a user's code raises is a failure of its own."""
    return isinstance(error, KeyboardInterrupt) and current_thread() is main_thread()


def sendable(reason: str) -> str:
    """Returns what a rule has said as text that can be sent: half a character, a lone surrogate, becomes `?`."""
    return reason.encode(errors="replace").decode()


class RuleFailures(Protocol):
    """Is told once for each pod and rule that failed, whatever the number of nodes."""

    def failed(self, rule: str, error: BaseException) -> None:
        """`error` has its traceback."""
        ...


class CountedFailures:
    """Counts every failure, and passes the first of each rule and type of error on to a log."""

    def __init__(self, telemetry: Telemetry, log: Callable[[str, BaseException], None]) -> None:
        self._telemetry, self._log = telemetry, log
        self._logged: set[tuple[str, type[BaseException]]] = set()

    def failed(self, rule: str, error: BaseException) -> None:
        self._telemetry.rule_failed(rule)
        if (rule, type(error)) not in self._logged:
            self._logged.add((rule, type(error)))
            self._log(rule, error)


class RaisedFailures:
    """Lets the error through: for tests of a rule, and offline work, where a wrong rule should stop everything."""

    def failed(self, rule: str, error: BaseException) -> None:
        if not isinstance(error, Exception):  # it would end the process, or the thread, of whoever asks
            told = f"called sys.exit({error.code!r})" if isinstance(error, SystemExit) else f"raised {error!r}"
            error = RuntimeError(f"the rule {told}").with_traceback(error.__traceback__)
        error.add_note(f"in rule {rule}")
        raise error

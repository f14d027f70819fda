"""Exceptions that users' rules raise. The engine has no logger: it tells a listener."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Callable
from typing import Protocol

from extender.runtime.ports import Telemetry

RAISED_BY_RULES = (Exception, SystemExit, GeneratorExit, CancelledError)
"""What a user's code may raise; all but Ctrl-C."""


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

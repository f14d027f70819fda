"""The RuleHost of `extender serve` and `extender schedule`, which outlives the failures of rules.

By default a rule that fails rejects its pod. With `onRuleFailure: ignore`, decisions go on without it. The text that
says so is collected for the answer to the current call.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from math import inf

from extender.errors import DeadlineExceeded, RuleUnanswered
from extender.plugins.users.rule_calls import ENDED_AFTER_SECONDS, described
from extender.runtime.clock import Clock, Deadline, TimeLimit
from extender.runtime.ports import Telemetry

_left_out: ContextVar[dict[str, str] | None] = ContextVar("left_out", default=None)


def collect_left_out(left_out: dict[str, str]) -> None:
    """Adds each rule that later decisions of this thread leave out to `left_out`: rule -> the reason."""
    _left_out.set(left_out)


class LiveHost:
    """The RuleHost of a running process. It counts failures, and logs the first one of each type for each rule.

    Args:
        limit: the time limit of a decision. A call outside a decision, such as PreEnqueue, gets as much time.
        log_failure: logs a failure with its traceback.
        log_message: logs a message that a rule wrote about a pod.
        watch: returns a context manager for a call. If the call hangs, its pod and node are logged.
        ignores_failures: True if decisions go on without a rule that fails.
    """

    def __init__(
        self,
        telemetry: Telemetry,
        clock: Clock,
        limit: TimeLimit,
        log_failure: Callable[[str, BaseException], None],
        log_message: Callable[[str, str, str], None],
        watch: Callable[[str, str, str], AbstractContextManager[None]],
        *,
        ignores_failures: bool = False,
    ) -> None:
        self._telemetry = telemetry
        self._clock = clock
        self._limit = limit
        self._log_failure = log_failure
        self.log = log_message
        self.watch = watch
        self.ignores_failures = ignores_failures
        self._logged: set[tuple[str, type[BaseException]]] = set()
        self._pauses: dict[str, tuple[Callable[[], bool], float]] = {}  # rule -> (has it returned, earliest end)

    def failed(self, rule: str, error: BaseException) -> None:
        self._telemetry.rule_failed(rule)
        if (rule, type(error)) not in self._logged:
            self._logged.add((rule, type(error)))
            self._log_failure(rule, error)
        if self.ignores_failures:
            _note(rule, described(error))
            if isinstance(error, DeadlineExceeded):
                has_returned = error.has_returned if isinstance(error, RuleUnanswered) else None
                self._pauses[rule] = has_returned or _always, self._clock.monotonic() + ENDED_AFTER_SECONDS

    def leaves_out(self, rule: str) -> bool:
        """See RuleHost. A rule that was late is left out for a while, or each pod would wait for it again."""
        pause = self._pauses.get(rule)
        if pause is None:
            return False
        has_returned, ends_at = pause
        if has_returned() and self._clock.monotonic() >= ends_at:
            self._pauses.pop(rule, None)
            return False
        self._telemetry.rule_failed(rule)
        _note(rule, "it did not answer in time a short while ago")
        return True

    def now(self) -> float:
        return self._clock.now()

    def begin(self) -> Deadline:
        return self._limit.begin()

    def limited(self, deadline: Deadline) -> Deadline:
        """Returns the deadline; or one in half the time, so that there is time to go on without the rule."""
        seconds = deadline.left_seconds
        if not (self.ignores_failures and 0 < seconds < inf):
            return deadline
        return Deadline(self._clock, round(seconds / 2, 1) or seconds / 2)  # a round number for messages

    def count(self, rule: str, name: str, amount: float) -> None:
        self._telemetry.rule_counted(rule, name, amount)

    def observe(self, rule: str, name: str, value: float) -> None:
        self._telemetry.rule_observed(rule, name, value)


def _always() -> bool:
    return True


def _note(rule: str, reason: str) -> None:
    left_out = _left_out.get()
    if left_out is not None:
        left_out.setdefault(rule, reason)

"""Calls users' functions with a time limit, and describes their errors by the line in the user's file.

A running function cannot be interrupted. So if a decision has a deadline, the function runs in another thread, and
after the deadline the decision continues without its answer.
"""

from __future__ import annotations

import sysconfig
import traceback
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from math import inf
from pathlib import Path
from threading import Semaphore, current_thread, main_thread
from typing import Final, TypeVar

from extender.errors import RuleUnanswered
from extender.runtime.clock import NO_DEADLINE, Clock, Deadline, SystemClock, TimeLimit
from extender.runtime.near_names import with_suggestion
from extender.runtime.ports import Telemetry
from extender.runtime.threads import ParkedThreads

T = TypeVar("T")
MAX_RUNNING: Final = 64
"""The most calls that may run in other threads at the same time. A call that never returns counts forever."""
_CLOCK: Final = SystemClock()
_places = Semaphore(MAX_RUNNING)
_threads = ParkedThreads[Callable[[], None]](lambda work: work(), "rule")
_LIBRARIES = (sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"), str(Path(__file__).parents[2]), "<frozen")


def answer_of(rule: str, call: Callable[[], T], deadline: Deadline) -> T:
    """Calls `call`, in another thread if there is a deadline; returns its result or raises its error.

    Raises:
        RuleUnanswered: the call did not end before the deadline; it continues, but its result is ignored. Or there is a
            deadline, and the call was not started, because MAX_RUNNING calls are still running.
    """
    if deadline.left_seconds == inf:
        return call()
    places = _places
    if not places.acquire(blocking=False):
        raise RuleUnanswered(f"{rule} was not called: {MAX_RUNNING} calls of rules are still running")
    answer: Future[T] = Future()
    try:
        _threads.take(partial(_run, call, answer, places))
    except BaseException:
        places.release()
        raise
    if not _is_done(answer, deadline.left_seconds):
        raise RuleUnanswered(deadline.message(f"{rule} has not answered"), answer)
    return answer.result()


def _is_done(answer: Future[T], seconds: float) -> bool:
    """Waits for the answer for at most `seconds`; returns True if it has arrived."""
    try:
        answer.exception(max(seconds, 0.0))
    except TimeoutError:  # the wait or the rule itself raised this; `done` tells which
        return answer.done()
    return True


def _run(call: Callable[[], T], answer: Future[T], places: Semaphore) -> None:
    try:
        answer.set_result(call())
    except KeyboardInterrupt as error:  # the rule itself raised this, because Ctrl-C reaches only the main thread
        answer.set_exception(RuntimeError(f"the rule raised {error!r}").with_traceback(error.__traceback__))
    except BaseException as error:  # a user's rule may raise any exception
        answer.set_exception(error)
    finally:
        places.release()


def described(error: BaseException, rule: str = "") -> str:
    """Returns the error with its line in the user's code: `rules.py:12: AttributeError: ... (did you mean labels?)`.

    `rule`: the file and line where the rule begins. They are used if the user's code did not raise the error, for
    example because the answer has the wrong type.
    """
    if isinstance(error, SyntaxError) and error.filename:
        return f"{Path(error.filename).name}:{error.lineno}: {type(error).__name__}: {error.msg}"
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(_LIBRARIES)]
    place = f"{Path(own[-1].filename).name}:{own[-1].lineno}: " if own else rule and f"{rule}: "
    message = f"{place}{type(error).__name__}: {error}"
    if isinstance(error, AttributeError) and error.name is not None:
        return with_suggestion(message, error.name, dir(error.obj))
    return message


def is_ctrl_c(error: BaseException) -> bool:
    """Returns True for Ctrl-C, which ends the process. Any other exception of a rule is only a failure of the rule."""
    return isinstance(error, KeyboardInterrupt) and current_thread() is main_thread()


def sendable(reason: str) -> str:
    """Returns a rule's reason as text that can be encoded: lone surrogates become `?`."""
    return reason.encode(errors="replace").decode()


class OfflineHost:
    """The RuleHost of tests and offline commands. It raises the failure of a rule, which ends the test or command."""

    def __init__(self, clock: Clock = _CLOCK) -> None:
        self._clock = clock

    def failed(self, rule: str, error: BaseException) -> None:
        if not isinstance(error, Exception):  # SystemExit, for example, would end the caller's thread or process
            action = f"called sys.exit({error.code!r})" if isinstance(error, SystemExit) else f"raised {error!r}"
            error = RuntimeError(f"the rule {action}").with_traceback(error.__traceback__)
        error.add_note(f"in rule {rule}")
        raise error

    def now(self) -> float:
        return self._clock.now()

    def begin(self) -> Deadline:
        return NO_DEADLINE

    def log(self, rule: str, pod: str, message: str) -> None:
        """Ignores the message, because nothing is logged here."""

    def count(self, rule: str, name: str, amount: float) -> None:
        """Ignores the amount, because there are no metrics here."""

    def observe(self, rule: str, name: str, value: float) -> None:
        """Ignores the value, because there are no metrics here."""

    def watch(self, rule: str, pod: str, node: str) -> AbstractContextManager[None]:
        """Does not watch the call, because the user sees when an offline command hangs."""
        return nullcontext()


class LiveHost:
    """The RuleHost of a running process. It counts failures, and logs the first one of each type for each rule.

    Args:
        limit: the time limit of a decision. A call outside a decision, such as PreEnqueue, gets as much time.
        log_failure: logs a failure with its traceback.
        log_message: logs a message that a rule wrote about a pod.
        watch: returns a context manager for a call. If the call hangs, its pod and node are logged.
    """

    def __init__(
        self,
        telemetry: Telemetry,
        clock: Clock,
        limit: TimeLimit,
        log_failure: Callable[[str, BaseException], None],
        log_message: Callable[[str, str, str], None],
        watch: Callable[[str, str, str], AbstractContextManager[None]],
    ) -> None:
        self._telemetry = telemetry
        self._clock = clock
        self._limit = limit
        self._log_failure = log_failure
        self.log = log_message
        self.watch = watch
        self._logged: set[tuple[str, type[BaseException]]] = set()

    def failed(self, rule: str, error: BaseException) -> None:
        self._telemetry.rule_failed(rule)
        if (rule, type(error)) not in self._logged:
            self._logged.add((rule, type(error)))
            self._log_failure(rule, error)

    def now(self) -> float:
        return self._clock.now()

    def begin(self) -> Deadline:
        return self._limit.begin()

    def count(self, rule: str, name: str, amount: float) -> None:
        self._telemetry.rule_counted(rule, name, amount)

    def observe(self, rule: str, name: str, value: float) -> None:
        self._telemetry.rule_observed(rule, name, value)

"""Calls users' functions with a time limit, and describes their errors by the line in the user's file.

The caller cannot interrupt a running function. So the function runs in another thread, and after the deadline the
caller continues without its answer. `end_abandoned` ends such calls later, if they run Python code.

The switch of threads takes 60 us of CPU for each call (November 2026), 35 of them in the kernel. An exception raised in
the caller's own thread would cost nothing, but would not end code in C, such as a request to a server that does not
answer. `extender schedule` would then decide about no pod until a restart.

The module also has the two hosts of rules. `LiveHost`, for running processes, outlives the failures of rules. By
default a rule that fails rejects its pod. With `onRuleFailure: ignore`, decisions go on without it, and the text that
says so is collected for the answer to the current call.
"""

from __future__ import annotations

import ctypes
import faulthandler
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field
from functools import partial
from math import inf
from pathlib import Path
from threading import Lock, current_thread, get_ident, main_thread
from types import FrameType
from typing import Any, Final, Generic, TypeVar, cast

from extender.errors import DeadlineExceeded, RuleHangs, RuleUnanswered
from extender.runtime.clock import Clock, Deadline, SystemClock, TimeLimit
from extender.runtime.ports import Telemetry
from extender.runtime.text import with_suggestion
from extender.runtime.threads import ParkedThreads

T = TypeVar("T")
N = TypeVar("N")
MAX_ABANDONED: Final = 64
"""If this many calls run on after their deadline, no call begins. A call that never returns counts forever."""
OFFLINE_SECONDS: Final = 4.0
"""The time limit of each call in an offline command."""
_FROZEN_SECONDS: Final = 3 * OFFLINE_SECONDS
_STDERR: Final = 2
ENDED_AFTER_SECONDS: Final = 30.0
"""A call is ended this long after its deadline. Until then it may complete what later calls use, such as a cache."""
_MOST_STEPS: Final = 1000
_NODES_PER_CHECK: Final = 16
_CLOCK: Final = SystemClock()
_LIBRARIES = (sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"), str(Path(__file__).parents[2]), "<frozen")
_left_out: ContextVar[dict[str, str] | None] = ContextVar("left_out", default=None)


class CallEnded(BaseException):
    """Raised inside an abandoned call, to end it. Not an Exception, because rules often catch these."""


class CallOutcome(Generic[T]):
    """The result or the error of a call in another thread.

    A Future would do, but takes 10 us of CPU more, and some rules are called for every decision.
    """

    __slots__ = ("_error", "_pending", "_result")

    def __init__(self) -> None:
        self._pending = Lock()
        self._pending.acquire()

    def set(self, result: T | None, error: BaseException | None = None) -> None:
        self._result = result
        self._error = error
        self._pending.release()

    def is_known(self) -> bool:
        return not self._pending.locked()

    def wait(self, seconds: float) -> bool:
        """Waits for the outcome for at most `seconds`; returns True if it is known."""
        if not self._pending.acquire(timeout=max(seconds, 0.0)):
            return False
        self._pending.release()
        return True

    def take(self) -> T:
        """Returns the result or raises the error. The outcome must be known."""
        try:
            if self._error is not None:
                raise self._error
            return cast("T", self._result)
        finally:
            del self  # otherwise the error and its traceback would refer to each other


class RunningCall(Generic[T]):
    """A call of a user's function in another thread.

    Attributes:
        rule: the name of the rule.
        outcome: the result or the error of the function, once it has returned.
        tries: how often `end_abandoned` has tried to end the call.
    """

    __slots__ = ("_call", "_context", "_ends_at", "_has_left", "_thread", "outcome", "rule", "tries")

    def __init__(self, rule: str, call: Callable[[], T]) -> None:
        self.rule = rule
        self.outcome: CallOutcome[T] = CallOutcome()
        self.tries = 0
        self._call = call
        self._context = copy_context()
        self._thread = 0  # 0 before the call and after it
        self._has_left = False
        self._ends_at = inf

    def run(self) -> None:
        """Calls the function in the current thread. Raises nothing."""
        set_answer: Callable[[], object] = partial(self.outcome.set, None, CallEnded())
        has_left = False
        try:
            self._thread = get_ident()
            set_answer = self._called()
        except CallEnded:  # raised after the function had returned
            pass
        while not has_left:
            try:  # noqa: SIM105 -- an error could arrive inside `suppress` itself, and would not be caught
                has_left = self._leave()
            except CallEnded:
                pass
        set_answer()  # last, so that this thread hardly competes with the caller, which then goes on

    def _called(self) -> Callable[[], object]:
        """Calls the function; returns what stores its result or its error."""
        try:
            return partial(self.outcome.set, self._context.run(self._call))
        except KeyboardInterrupt as error:  # the rule itself raised this: Ctrl-C reaches only the main thread
            failure = RuntimeError(f"the rule raised {error!r}").with_traceback(error.__traceback__)
            return partial(self.outcome.set, None, failure)
        except BaseException as error:  # a user's rule may raise any exception
            return partial(self.outcome.set, None, error)

    def _leave(self) -> bool:
        """Returns True when `end` can no longer raise anything in this thread.

        Raises:
            CallEnded: `end` has raised it just before.
        """
        with _calls_lock:
            self._thread = 0
            self._has_left = True
            _abandoned.discard(self)
        for _ in range(_MOST_STEPS if self.tries else 0):
            pass  # an error that is on its way arrives here, between two steps
        return True

    @property
    def place(self) -> str:
        """The file and line of the user's code that runs now, such as `rules.py:13`; "" if there is no such code."""
        frame = sys._current_frames().get(self._thread)
        while frame is not None and not _is_users(frame):
            frame = frame.f_back
        return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}" if frame is not None else ""

    def abandon(self, ends_at: float) -> None:
        """Lets `end_abandoned` end the call at this time, in monotonic seconds."""
        with _calls_lock:
            if not self._has_left:
                self._ends_at = ends_at
                _abandoned.add(self)

    def end(self, now: float) -> None:
        """Raises CallEnded in the function, if it is time. The caller must hold `_calls_lock`.

        A function that runs C code, such as `time.sleep`, sees the exception only when that code returns.
        """
        if self._thread and now >= self._ends_at:
            self._ends_at = now + ENDED_AFTER_SECONDS  # a rule may catch the exception, so it is raised again later
            self.tries += 1
            _raise_in(self._thread, CallEnded)


def _is_users(frame: FrameType) -> bool:
    return not frame.f_code.co_filename.startswith(_LIBRARIES)


def _raise_in(thread: int, error: type[BaseException]) -> None:
    """Raises the error in the thread, before the next line of Python that it runs.

    Nothing can take it back: Python 3.11 would look for an error at every step from then on, which slows the process,
    and a profiled or traced function would never return.
    """
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(error))


_calls_lock = Lock()
_abandoned: set[RunningCall[Any]] = set()
_threads = ParkedThreads[RunningCall[Any]](lambda call: call.run(), "rule")


def end_abandoned(now: float) -> list[tuple[str, str]]:
    """Ends calls that are still running long after their deadline. Call it regularly.

    Returns (rule, place) of each call that runs on although an earlier call of this function has tried to end it.

    Args:
        now: the present time, in monotonic seconds.
    """
    with _calls_lock:
        stuck = [call for call in _abandoned if call.tries]
        for call in _abandoned:
            call.end(now)
    return [(call.rule, call.place) for call in stuck]


class EachCall(Deadline):
    """The deadline of a function that is called for one node after the other: each call may take as long."""

    def check(self, step: str) -> None:
        self._ends_at = self._clock.monotonic() + self.seconds


def checked(nodes: Iterable[N], deadline: Deadline, step: str) -> Iterator[N]:
    """Yields the nodes, and checks the deadline at the first 16 and at every 16th, because a check costs time too.

    An EachCall is checked at each node.
    """
    interval = 1 if isinstance(deadline, EachCall) else _NODES_PER_CHECK
    for number, node in enumerate(nodes):
        if number < _NODES_PER_CHECK or not number % interval:
            deadline.check(step)
        yield node


def answer_of(rule: str, call: Callable[[], T], deadline: Deadline) -> T:
    """Calls `call`, in another thread if there is a deadline; returns its result or raises its error.

    Raises:
        RuleUnanswered: the call did not end before the deadline; it continues, but its result is ignored. Or there is a
            deadline, and the call was not started, because MAX_ABANDONED earlier calls are still running.
        RuleHangs: the deadline is an EachCall, and has passed.
    """
    if deadline.left_seconds == inf:
        return call()
    if len(_abandoned) >= MAX_ABANDONED:
        raise RuleUnanswered(f"{rule} was not called: {MAX_ABANDONED} calls of rules are still running")
    running = RunningCall(rule, call)
    if not (_has_answered_offline if isinstance(deadline, EachCall) else _has_answered)(running, deadline):
        running.abandon(_CLOCK.monotonic() + ENDED_AFTER_SECONDS)
        if isinstance(deadline, EachCall):
            raise RuleHangs(f"{running.place or rule} has not returned after {deadline.seconds:g} s")
        raise RuleUnanswered(deadline.message(f"{rule} has not answered"), running.outcome.is_known)
    return running.outcome.take()


def _has_answered(running: RunningCall[T], deadline: Deadline) -> bool:
    _threads.take(running)
    return running.outcome.wait(deadline.left_seconds)


def _has_answered_offline(running: RunningCall[T], deadline: Deadline) -> bool:
    """Waits for the outcome while each node is answered in time.

    C code that keeps the interpreter to itself, as a regular expression does, also stops this thread and Ctrl-C. Then
    a thread of C writes where all threads are, and ends the process with status 1.
    """
    try:
        faulthandler.dump_traceback_later(_FROZEN_SECONDS, exit=True, file=_STDERR)
        has_answered = _has_answered(running, deadline)
        while not has_answered and deadline.left_seconds > 0:
            faulthandler.dump_traceback_later(_FROZEN_SECONDS, exit=True, file=_STDERR)
            has_answered = running.outcome.wait(deadline.left_seconds)
        return has_answered
    finally:
        faulthandler.cancel_dump_traceback_later()


def described(error: BaseException, rule: str = "") -> str:
    """Returns the error with its line in the user's code: `rules.py:12: AttributeError: ... (did you mean labels?)`.

    `rule`: the file and line where the rule begins. They are used if the user's code did not raise the error, for
    example because the answer has the wrong type.
    """
    if isinstance(error, DeadlineExceeded | RuleHangs):
        return str(error)
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

    ignores_failures = False

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
        return EachCall(_CLOCK, OFFLINE_SECONDS)

    def limited(self, deadline: Deadline) -> Deadline:
        return self.begin() if deadline.left_seconds == inf else deadline

    def leaves_out(self, rule: str) -> bool:
        return False

    def log(self, rule: str, pod: str, message: str) -> None:
        """Ignores the message, because nothing is logged here."""

    def count(self, rule: str, name: str, amount: float) -> None:
        """Ignores the amount, because there are no metrics here."""

    def observe(self, rule: str, name: str, value: float) -> None:
        """Ignores the value, because there are no metrics here."""

    def watch(self, rule: str, pod: str, node: str) -> AbstractContextManager[None]:
        """Does not watch the call, because the user sees when an offline command hangs."""
        return nullcontext()


def collect_left_out(left_out: dict[str, str]) -> None:
    """Adds each rule that later decisions of this thread leave out to `left_out`: rule -> the reason."""
    _left_out.set(left_out)


@dataclass(slots=True, eq=False)
class LiveHost:
    """The RuleHost of a running process. It counts failures, and logs the first one of each type for each rule.

    Args:
        _limit: the time limit of a decision. A call outside a decision, such as PreEnqueue, gets as much time.
        _log_failure: logs a failure with its traceback.
        log: logs a message that a rule wrote about a pod.
        watch: returns a context manager for a call. If the call hangs, its pod and node are logged.
        ignores_failures: True if decisions go on without a rule that fails.
    """

    _telemetry: Telemetry
    _clock: Clock
    _limit: TimeLimit
    _log_failure: Callable[[str, BaseException], None]
    log: Callable[[str, str, str], None]
    watch: Callable[[str, str, str], AbstractContextManager[None]]
    ignores_failures: bool = field(default=False, kw_only=True)
    _logged: set[tuple[str, type[BaseException]]] = field(default_factory=set, init=False)
    # rule -> (has it returned, earliest end)
    _pauses: dict[str, tuple[Callable[[], bool], float]] = field(default_factory=dict, init=False)

    def failed(self, rule: str, error: BaseException) -> None:
        self._telemetry.rule_failed(rule)
        if (rule, type(error)) not in self._logged:
            self._logged.add((rule, type(error)))
            self._log_failure(rule, error)
        if self.ignores_failures:
            _note(rule, described(error))
            if isinstance(error, DeadlineExceeded):
                has_returned = error.has_returned if isinstance(error, RuleUnanswered) else None
                self._pauses[rule] = has_returned or (lambda: True), self._clock.monotonic() + ENDED_AFTER_SECONDS

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


def _note(rule: str, reason: str) -> None:
    left_out = _left_out.get()
    if left_out is not None:
        left_out.setdefault(rule, reason)

"""A user's rule is asked in a thread of its own where its decision has a deadline: nothing can interrupt its code."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from math import inf
from threading import Semaphore
from typing import Final, TypeVar

from extender.errors import RuleUnanswered
from extender.runtime.clock import Deadline
from extender.runtime.threads import ParkedThreads

T = TypeVar("T")
MOST_AT_WORK: Final = 64
"""How many are asked at once, in all calls; one that hangs for good keeps as many threads, and is asked no more."""
_room = Semaphore(MOST_AT_WORK)
_threads = ParkedThreads[Callable[[], None]](lambda work: work(), "rule")


def answer_of(rule: str, ask: Callable[[], T], deadline: Deadline) -> T:
    """Returns what `ask` returns, or raises what it raises.

    Raises RuleUnanswered: it is not through by the deadline. It goes on, and what comes of it is dropped.
    """
    if deadline.left_seconds == inf:
        return ask()
    if not _room.acquire(blocking=False):
        raise RuleUnanswered(f"{rule} is not asked: {MOST_AT_WORK} rules have yet to answer")
    answer: Future[T] = Future()
    try:
        _threads.take(partial(_ask, ask, answer))
    except BaseException:
        _room.release()
        raise
    if not _is_done(answer, deadline.left_seconds):
        raise RuleUnanswered(deadline.told(f"{rule} has not answered"), answer)
    return answer.result()


def _is_done(answer: Future[T], seconds: float) -> bool:
    """Waits for the answer; a TimeoutError may be the rule's own."""
    try:
        answer.exception(max(seconds, 0.0))
    except TimeoutError:
        return answer.done()
    return True


def _ask(ask: Callable[[], T], answer: Future[T]) -> None:
    try:
        answer.set_result(ask())
    except KeyboardInterrupt as error:  # no Ctrl-C, which comes to the main thread alone
        answer.set_exception(RuntimeError(f"the rule raised {error!r}").with_traceback(error.__traceback__))
    except BaseException as error:  # whatever a user's code may raise
        answer.set_exception(error)
    finally:
        _room.release()

"""Defines the interface of a verb, and of the observers of its calls. The `web` package handles HTTP."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeVar

from extender.errors import RuleUnanswered

Request = TypeVar("Request")
Result = TypeVar("Result")


def repeated_without_late_rule(decide: Callable[[], Result]) -> Result:
    """Calls `decide`; calls it again if a rule did not answer, and the next decisions go on without that rule.

    The first decision cannot go on, because the rule may still be reading its table. Raises the errors of `decide`.
    """
    try:
        return decide()
    except RuleUnanswered as error:
        if not error.is_left_out:
            raise
    return decide()


class Summary(NamedTuple):
    """The part of a call that is logged: the number of nodes in the request, and the number in the answer."""

    nodes_in: int
    nodes_out: int


class Verb(Protocol[Request, Result]):
    """One of the calls that kube-scheduler makes: filter, prioritize, preempt or bind."""

    @property
    def name(self) -> str: ...

    def decode(self, body: bytes) -> Request:
        """Returns the request. Raises MalformedRequest if the body is not this verb's payload."""
        ...

    def decide(self, request: Request) -> Result:
        """Returns the answer. Errors about the pod are part of the answer; an exception is a defect of the extender."""
        ...

    def allow_all(self, request: Request) -> Result:
        """Returns the answer that accepts every node without a check."""
        ...

    def failed(self, request: Request, message: str) -> Result | None:
        """Returns an answer with the error message; None if this verb's answers have no field for one."""
        ...

    def encode(self, request: Request, result: Result) -> bytes:
        """Checks the answer against the request, and returns it as bytes.

        Raises:
            InvalidAnswer: the answer would cause errors in the scheduler.
        """
        ...

    def summary(self, request: Request, result: Result) -> Summary:
        """Returns what the log shows about the call."""
        ...


DECIDED, PASSED, FAILED = "decided", "passed", "failed"
"""The outcomes of a call: the rules decided it; it was passed without a check; it ended in an error."""


class CallObserver(Protocol):
    """Observes every call, in the call's thread, before the answer is sent. It must be quick and must not raise."""

    def called(self, verb: str, outcome: str, request: object, result: object, error: str = "") -> None:
        """Records the call. If the call failed, `result` is None and `error` is the message."""

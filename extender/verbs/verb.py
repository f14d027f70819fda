"""The form of a verb: the scheduler may call it over HTTP, without any HTTP here."""

from __future__ import annotations

from typing import NamedTuple, Protocol, TypeVar

Request = TypeVar("Request")
Result = TypeVar("Result")


class Summary(NamedTuple):
    """One call for the log: how many nodes were asked about, and how many are left."""

    nodes_in: int
    nodes_out: int


class Verb(Protocol[Request, Result]):
    """One of filter, prioritize, preempt, bind."""

    @property
    def name(self) -> str: ...

    def decode(self, body: bytes) -> Request:
        """Returns the request. Raises MalformedRequest: the body is not this verb's payload."""
        ...

    def decide(self, request: Request) -> Result:
        """Returns the answer. An error that concerns one pod is in the answer; only a defect raises."""
        ...

    def allow_all(self, request: Request) -> Result:
        """Returns the answer that changes nothing."""
        ...

    def failed(self, request: Request, message: str) -> Result | None:
        """Returns the answer that carries an error; None where the verb has no field for it."""
        ...

    def encode(self, request: Request, result: Result) -> bytes:
        """Returns the answer's bytes, after it was validated against the request.

        Raises:
            InvalidAnswer: the answer would hurt the scheduler.
        """
        ...

    def summary(self, request: Request, result: Result) -> Summary:
        """Returns the call as the log shows it."""
        ...


DECIDED, PASSED, FAILED = "decided", "passed", "failed"
"""The outcomes: judged by the rules; let through unjudged; no answer but an error."""


class CallObserver(Protocol):
    """Hears of every call in the thread that made it, before the answer leaves; must be quick, and not raise."""

    def called(self, verb: str, outcome: str, request: object, result: object, error: str = "") -> None:
        """`result` is None where there is none but `error`."""

"""The interface of a verb, and of those who observe its calls. HTTP is in `web`."""

from __future__ import annotations

from typing import NamedTuple, Protocol, TypeVar

Request = TypeVar("Request")
Result = TypeVar("Result")


class Summary(NamedTuple):
    """A call as the log shows it: the number of nodes in the request, and in the answer."""

    nodes_in: int
    nodes_out: int


class Verb(Protocol[Request, Result]):
    """One of filter, prioritize, preempt, bind."""

    @property
    def name(self) -> str: ...

    def decode(self, body: bytes) -> Request:
        """Returns the request. Raises MalformedRequest if the body is not this verb's payload."""
        ...

    def decide(self, request: Request) -> Result:
        """Returns the answer. An error about this pod is part of the answer; only a defect raises."""
        ...

    def allow_all(self, request: Request) -> Result:
        """Returns the answer that lets everything pass."""
        ...

    def failed(self, request: Request, message: str) -> Result | None:
        """Returns an answer with an error message, None if the verb has no field for it."""
        ...

    def encode(self, request: Request, result: Result) -> bytes:
        """Validates the answer against the request, and returns its bytes.

        Raises:
            InvalidAnswer: the answer would do harm in the scheduler.
        """
        ...

    def summary(self, request: Request, result: Result) -> Summary:
        """Returns the call as the log shows it."""
        ...


DECIDED, PASSED, FAILED = "decided", "passed", "failed"
"""The outcomes: decided by the rules; passed without a check; ended in an error."""


class CallObserver(Protocol):
    """Receives every call, in its thread, before the answer is sent; must be quick, and must not raise."""

    def called(self, verb: str, outcome: str, request: object, result: object, error: str = "") -> None:
        """Records the call; `result` is None if there is only an `error`."""

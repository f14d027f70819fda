"""The form of a verb: what the scheduler may call over HTTP, without any HTTP."""

from __future__ import annotations

from typing import NamedTuple, Protocol, TypeVar

Request = TypeVar("Request")
Result = TypeVar("Result")


class Summary(NamedTuple):
    """One call for the log: whose pod, how many nodes were asked about and how many are left."""

    uid: str
    namespace: str
    name: str
    nodes_in: int
    nodes_out: int


class Verb(Protocol[Request, Result]):
    """One of filter, prioritize, preempt, bind."""

    @property
    def name(self) -> str: ...

    def decode(self, body: bytes) -> Request:
        """Returns the request.

        Raises:
            MalformedRequest: the body is not this verb's payload.
        """
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

"""A verb whose calls others hear of: the recorder, and the memory of the last decisions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, Protocol

from extender.verbs.verb import Request, Result, Verb

DECIDED, PASSED, FAILED = "decided", "passed", "failed"
"""The outcomes: judged by the rules; let through unjudged; no answer but an error."""


class CallObserver(Protocol):
    """Hears of every call in the thread that made it, before the answer leaves; must be quick, and not raise."""

    def called(self, verb: str, outcome: str, request: object, result: object, error: str = "") -> None:
        """`result` is None where there is none but `error`."""


class ObservedVerb(Generic[Request, Result]):
    """A Verb that does as another, and tells of it."""

    def __init__(self, verb: Verb[Request, Result], observers: Sequence[CallObserver]) -> None:
        self.name, self.decode, self.encode, self.summary = verb.name, verb.decode, verb.encode, verb.summary
        self._verb, self._observers = verb, observers

    def decide(self, request: Request) -> Result:
        return self._told(DECIDED, request, self._verb.decide(request))

    def allow_all(self, request: Request) -> Result:
        return self._told(PASSED, request, self._verb.allow_all(request))

    def failed(self, request: Request, message: str) -> Result | None:
        for observer in self._observers:
            observer.called(self.name, FAILED, request, None, message)
        return self._verb.failed(request, message)

    def _told(self, outcome: str, request: Request, result: Result) -> Result:
        for observer in self._observers:
            observer.called(self.name, outcome, request, result)
        return result

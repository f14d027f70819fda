"""A thin WSGI layer before Flask: answers POSTs to the verbs' paths itself, hands everything else on.

A verb's call needs nothing of Flask's request context, which costs as much as a decision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from extender.verbs.verb import Verb
from extender.web.access import Access
from extender.web.answers import Answer, error_answer, status_line, wsgi_headers
from extender.web.calls import Calls
from extender.web.worker.lifecycle import Lifecycle, Post

Environ = dict[str, Any]
WSGI = Callable[[Environ, Any], Iterable[bytes]]

_TYPE = "application/json"


class Body(Protocol):
    """wsgi.input, as far as it is used here."""

    def read(self, size: int = ..., /) -> bytes:
        """Up to `size` bytes."""


class VerbEndpoint:
    """From a WSGI environ to a verb's answer: what both the front and Flask's routes call."""

    def __init__(self, calls: Calls, lifecycle: Lifecycle, access: Access) -> None:
        self._calls = calls
        self._lifecycle = lifecycle
        self._access = access

    def answer(self, verb: Verb[Any, Any], environ: Environ) -> Answer:
        """The answer to a POST to `verb`; every refusal is counted by its status."""
        refusal = self._refused(environ)
        return self._counted(self._called(verb, environ) if refusal is None else refusal)

    def post(self, verb: Verb[Any, Any]) -> Post:
        """`answer` to requests whose head has nothing in it that could be refused."""
        return lambda body: self._counted(self._calls.answer(verb, body))

    def _counted(self, answer: Answer) -> Answer:
        if answer.status >= 400:
            self._lifecycle.rejected(answer.status)
        return answer

    def _refused(self, environ: Environ) -> Answer | None:
        if refusal := self._access.refusal(environ):
            return error_answer(403, refusal)
        kind = environ.get("CONTENT_TYPE", "")
        if kind != _TYPE and kind.partition(";")[0].strip().lower() != _TYPE:
            return error_answer(415, f"want Content-Type {_TYPE}")
        if environ.get("HTTP_CONTENT_ENCODING", "identity").lower() != "identity":
            return error_answer(415, "want a body without Content-Encoding")
        return None

    def _called(self, verb: Verb[Any, Any], environ: Environ) -> Answer:
        body = self._body(environ)
        return body if isinstance(body, Answer) else self._calls.answer(verb, body)

    def _body(self, environ: Environ) -> bytes | Answer:
        """The whole body, or why not; no more than the limit is read, whatever was promised."""
        declared, source = environ.get("CONTENT_LENGTH"), environ["wsgi.input"]
        if not declared:
            return self._undeclared_body(environ, source)
        if not (declared.isascii() and declared.isdigit()):
            return error_answer(400, "Content-Length is not a number")
        size, limit = int(declared), self._lifecycle.limits.body_bytes
        if size > limit:
            return error_answer(413, f"the body has {size} bytes, the limit is {limit}")
        body: bytes = source.read(size)
        return body if len(body) == size else error_answer(400, "the body ended early")

    def _undeclared_body(self, environ: Environ, source: Body) -> bytes | Answer:
        if not environ.get("wsgi.input_terminated"):  # Reading on could wait for ever.
            chunked = "HTTP_TRANSFER_ENCODING" in environ
            return error_answer(411, "want a Content-Length") if chunked else b""
        limit = self._lifecycle.limits.body_bytes
        body = source.read(limit + 1)
        return body if len(body) <= limit else error_answer(413, f"the body is longer than {limit} bytes")


class Front:
    """The WSGI callable in front of `behind`; `verbs` by path.

    Under a worker that knows nothing of `lifecycle` the first request, a probe as a rule, starts the watches.
    """

    def __init__(
        self, behind: WSGI, door: VerbEndpoint, verbs: Mapping[str, Verb[Any, Any]], lifecycle: Lifecycle
    ) -> None:
        self._behind = behind
        self._door = door
        self._verbs = verbs
        self._lifecycle = lifecycle

    def __call__(self, environ: Environ, start_response: Any) -> Iterable[bytes]:
        if not self._lifecycle.started:
            self._lifecycle.start()
        verb = self._verbs.get(environ["PATH_INFO"])
        if verb is None or environ["REQUEST_METHOD"] != "POST":
            return self._behind(environ, start_response)
        answer = self._door.answer(verb, environ)
        start_response(status_line(answer.status), wsgi_headers(answer))
        return [answer.body]

"""The one way to a verb: the route table, path -> handler(body) -> answer, and a call, timed, counted and logged.

Two ways lead to the table. Flask's views read the body of a request that came by WSGI and call the handler; the worker
of `web.worker` asks `Routes.admit` for the handler as soon as it has read a request's head. Each way makes each check
once: certificate, method, media type, encoding, length.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, NamedTuple, Protocol

from extender.errors import DeadlineExceeded, MalformedInput, MalformedRequest
from extender.extender_v1.types import (
    ExtenderArgs,
    ExtenderBindingArgs,
    ExtenderBindingResult,
    ExtenderFilterResult,
    ExtenderPreemptionArgs,
)
from extender.model.meta import NO_LABELS
from extender.verbs.verb import DECIDED, FAILED, PASSED, CallObserver, Summary, Verb
from extender.web.access import AccessRules, SocketConnection
from extender.web.answers import CLOSE, JSON, Answer, error_answer
from extender.web.telemetry.log import LONGEST_KEY, LONGEST_TEXT, cut, inform
from extender.web.telemetry.metrics import Metrics
from extender.web.telemetry.tracing import Traces, Work
from extender.web.worker.application import Handler
from extender.web.worker.http1 import Head, RequestRefused

BeforeSync = Literal["fail", "pass"]
WaitingFor = Callable[[], Mapping[str, str]]
_WITH_POD = (ExtenderArgs, ExtenderPreemptionArgs)
_WITH_ERROR = (ExtenderFilterResult, ExtenderBindingResult)
_log = logging.getLogger(__name__)


class VerbHandler(Protocol):
    """Answers the body of a verb's request. Raises nothing."""

    def __call__(self, body: bytes, traceparent: str = "") -> Answer: ...


@dataclass(frozen=True)
class Routes:
    """The handlers of the verbs by path; `others` answers every other request, from its head, socket and body."""

    handlers: Mapping[str, VerbHandler]
    access: AccessRules
    others: Callable[[Head, socket.socket, bytes], Answer]

    def admit(self, head: Head, connected: socket.socket) -> Handler:
        """Returns the handler of the request's body; called before a byte of the body is read.

        Raises:
            RequestRefused: the caller may not send this request, or its body is not JSON.
        """
        connection = SocketConnection(connected)
        self.access.check(head.method, head.path, head.field(b"host"), head.field(b"origin"), connection)
        handler = self.handlers.get(head.path)
        if handler is None or head.method != "POST":
            return partial(self.others, head, connected)
        check_media_type(head.field(b"content-type"), head.field(b"content-encoding"))
        traceparent = head.field(b"traceparent")
        return partial(handler, traceparent=traceparent) if traceparent else handler


def check_media_type(content_type: str, content_encoding: str) -> None:
    """Raises RequestRefused (415) unless a body with these headers is plain JSON."""
    if content_type != JSON and content_type.partition(";")[0].strip().lower() != JSON:
        raise RequestRefused(415, f"expected Content-Type {JSON}")
    if content_encoding and content_encoding.lower() != "identity":
        raise RequestRefused(415, "expected a body without Content-Encoding")


class PodReference(NamedTuple):
    """The pod that a request is about, as far as the request describes it."""

    uid: str
    namespace: str
    name: str
    labels: Mapping[str, str]

    @classmethod
    def of(cls, request: object) -> PodReference | None:
        """Returns None for a request of no known form. A bind request holds no labels."""
        if isinstance(request, _WITH_POD):
            pod = request.pod
            return cls(pod.uid, pod.namespace, pod.name, pod.labels)
        if isinstance(request, ExtenderBindingArgs):
            return cls(request.pod_uid, request.pod_namespace, request.pod_name, NO_LABELS)
        return None


@dataclass(frozen=True, slots=True)
class Exemptions:
    """An extender that checked its own pods could not be started anew where it is the only way to a node.

    Own pods are those of `own_namespace` that are called `own_name` or, for other replicas, carry all of `own_labels`
    (none given: no pod).
    """

    namespaces: frozenset[str] = frozenset()
    own_namespace: str = ""
    own_name: str = ""
    own_labels: Mapping[str, str] = field(default_factory=dict)

    def cover(self, pod: PodReference | None) -> bool:
        if pod is None:
            return False
        return pod.namespace in self.namespaces or (bool(self.own_namespace) and self._own(pod))

    def _own(self, pod: PodReference) -> bool:
        if pod.namespace != self.own_namespace:
            return False
        labelled = bool(self.own_labels) and self.own_labels.items() <= pod.labels.items()
        return labelled or (bool(self.own_name) and pod.name == self.own_name)


@dataclass(slots=True)
class Call:
    """One call, as far as it has come.

    Attributes:
        result: decided, passed, error (it stands in the answer), failed (an exception), unready, malformed.
        seconds: from body to answer.
        ended_at: seconds since the epoch.
        traceparent: the caller's header of this name.
    """

    verb: str
    result: str = DECIDED
    subject: PodReference | None = None
    summary: Summary | None = None
    status: int = 200
    error: str = ""
    seconds: float = 0.0
    ended_at: float = 0.0
    traceparent: str = ""


@dataclass(frozen=True)
class Calls:
    """Answers verbs and notes each call when its answer is made.

    `waiting_for` returns what the first decision waits for by name: "" or what is missing. `observers` hear of requests
    and results before the answer is encoded.
    """

    waiting_for: WaitingFor
    note: Callable[[Call], None]
    before_sync: BeforeSync = "fail"
    exemptions: Exemptions = field(default_factory=Exemptions)
    observers: Sequence[CallObserver] = ()

    def answer(self, verb: Verb[Any, Any], body: bytes, traceparent: str = "") -> Answer:
        """Returns the answer to `body` posted to `verb`. Raises nothing."""
        started, call = time.perf_counter(), Call(verb.name, traceparent=traceparent)
        answer = self._answered(verb, body, call)
        call.status = answer.status
        call.seconds, call.ended_at = time.perf_counter() - started, time.time()
        self.note(call)
        return answer

    def _answered(self, verb: Verb[Any, Any], body: bytes, call: Call) -> Answer:
        try:
            request = verb.decode(body)
        except MalformedRequest as error:
            call.result, call.error = "malformed", str(error)
            return error_answer(400, str(error))
        except Exception:
            return _unanswerable(verb, call, "decoding")
        try:
            return self._decided(verb, request, call)
        except MalformedInput as error:
            call.result, call.error = "malformed", str(error)
            return self._failed(verb, request, str(error), 400, call)
        except DeadlineExceeded as error:
            call.result, call.error = "error", str(error)
            return self._failed(verb, request, f"{verb.name}: {error}", 503, call)
        except Exception:
            _log.exception("%s failed", verb.name)
            call.result = FAILED
            message = f"internal error in {verb.name}: the extender's log has the cause"
            return self._failed(verb, request, message, 500, call)

    def _decided(self, verb: Verb[Any, Any], request: Any, call: Call) -> Answer:
        call.subject = PodReference.of(request)
        missing = "; ".join(filter(None, self.waiting_for().values()))
        if self.exemptions.cover(call.subject) or (missing and self.before_sync == "pass"):
            call.result = PASSED
            # Bind too, by binding without a check: an answer alone would be taken for done, and strand the pod.
            result = verb.allow_all(request)
        elif missing:
            call.result, call.error = "unready", f"the extender is not ready: {missing}"
            unready = self._failed(verb, request, call.error, 503, call)
            # A kept connection would lead the scheduler here again and again, past the replica that is ready.
            return unready._replace(headers=(CLOSE,))
        else:
            result = verb.decide(request)
        for observer in self.observers:
            observer.called(verb.name, call.result, request, result)
        answer = Answer(200, verb.encode(request, result))
        call.summary = verb.summary(request, result)
        if isinstance(result, _WITH_ERROR) and result.error:
            call.result, call.error = "error", result.error
        return answer

    def _failed(self, verb: Verb[Any, Any], request: Any, message: str, status: int, call: Call) -> Answer:
        """Returns the error where the scheduler looks for it: in the answer if the verb has a field for it."""
        try:
            for observer in self.observers:
                observer.called(verb.name, FAILED, request, None, message)
            result = verb.failed(request, message)
            if result is None:
                return error_answer(status, message)
            return Answer(200, verb.encode(request, result))
        except Exception:
            return _unanswerable(verb, call, "answering with an error")


def report(calls: Sequence[Call], metrics: Metrics, traces: Traces) -> None:
    """Counts the calls, writes a line of each, and has their spans sent if any are."""
    for call in calls:
        metrics.called(call.verb, call.result, call.seconds)
        if call.status >= 400:
            metrics.rejected(call.status)
    work = [Work(call.verb, _fields(call), call.ended_at, call.seconds, call.traceparent) for call in calls]
    inform(_log, "call", [traces.trace(each) for each in work])


def _fields(call: Call) -> dict[str, object]:
    fields: dict[str, object] = {"verb": call.verb, "result": call.result, "ms": round(call.seconds * 1e3, 3)}
    if call.subject is not None:
        fields["uid"] = cut(call.subject.uid, LONGEST_KEY)
        fields["pod"] = cut(f"{call.subject.namespace}/{call.subject.name}", LONGEST_KEY)
    if call.summary is not None:
        fields["nodes_in"], fields["nodes_out"] = call.summary.nodes_in, call.summary.nodes_out
    if call.error:
        fields["error"] = cut(call.error, LONGEST_TEXT)
    return fields


def _unanswerable(verb: Verb[Any, Any], call: Call, doing: str) -> Answer:
    _log.exception("%s failed while %s", verb.name, doing)
    call.result = FAILED
    return error_answer(500, f"internal error in {verb.name}: the extender's log has the cause")

"""Builds the Flask applications, which answer every request: to verbs, probes and pages. They keep no global state.

`create_app` builds the webhook's; its `Calls` turn the body of a verb's request into an answer, and time, count and log
the call. `PageServer` serves pages from a thread of the process, for `extender schedule` and for the separate metrics
address of `extender serve`. `probe_pages` creates the pages for health and metrics; `configz`, `change_log_level` and
`when_ready` those for settings, the log level and the cache. `listener_at` opens a port.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Any, NamedTuple

from flask import Flask, Request, Response, request
from flask.sessions import NullSession, SessionInterface
from werkzeug.exceptions import HTTPException, MethodNotAllowed
from werkzeug.routing import MapAdapter

from extender.config.settings import API_VERSION, OPTIONS, Command, Settings, host_and_port, labels_of, options_of
from extender.errors import DeadlineExceeded, MalformedInput
from extender.extender_v1.messages import (
    ExtenderArgs,
    ExtenderBindingArgs,
    ExtenderBindingResult,
    ExtenderFilterResult,
    ExtenderPreemptionArgs,
)
from extender.model.meta import NO_LABELS
from extender.verbs import verb as verbs
from extender.verbs.verb import CallObserver, Summary, Verb, decide_call
from extender.web import log
from extender.web.access import DEBUG, AccessRules, ReloadingContext, WsgiConnection, server_context
from extender.web.answers import (
    CLOSE,
    JSON,
    Answer,
    Handler,
    Headers,
    Page,
    error_answer,
    header_lines,
    health_answer,
    json_answer,
    refuse,
    status_line,
)
from extender.web.connection import Acceptor, Environ, Lifecycle
from extender.web.log import LONGEST_KEY, LONGEST_TEXT, Traces, cut, inform
from extender.web.metrics import BatchedNotifier, Metrics
from extender.web.request_parser import Limits, RequestRefused

_BODY_BYTES, _QUESTION_BYTES = 64 * 1024, 8 * 1024 * 1024
_MOST_CONNECTIONS = 64
_TURN_SECONDS = 0.25
VerbHandler = Callable[[bytes, str], Answer]
TlsContext = Callable[[], ssl.SSLContext]
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PrivatePages:
    """Pages and actions of one server or listener, by path.

    Attributes:
        pages: answer GET and HEAD.
        actions: answer POST without a body.
        body_actions: answer POST with a body.
    """

    pages: Mapping[str, Page] = field(default_factory=dict)
    actions: Mapping[str, Page] = field(default_factory=dict)
    body_actions: Mapping[str, Handler] = field(default_factory=dict)


@dataclass(frozen=True)
class Backend:
    """The verbs that the web application serves, and the functions of the process behind them.

    Attributes:
        waiting_for: called for every call of a verb; returns check -> the reason why the process cannot decide yet, for
            example {"cache": "waiting for pods, nodes"}; {"cache": None} if it can decide.
        start: starts the process's threads; runs in the worker process, as does `stop`.
        private: pages that only this machine and clients with a certificate may use.
        compare: compares the cache with the API server. Called on SIGUSR2.
        hand_over: hands over the lease. Called on SIGTERM, while calls are still answered.
        revive: restarts threads that have ended; returns their names.
        unready: called for /readyz in place of `waiting_for`, because a standby may be ready although it cannot decide.
        reload: reads the policy again. Called on SIGHUP.
        observers: receive each call.
    """

    verbs: Sequence[Verb[Any, Any]]
    waiting_for: WaitingFor
    start: Callable[[], None]
    stop: Callable[[], None]
    private: PrivatePages = PrivatePages()
    compare: Callable[[], None] = lambda: None
    hand_over: Callable[[], None] = lambda: None
    revive: Callable[[], Sequence[str]] = list
    unready: WaitingFor | None = None
    reload: Callable[[], None] = lambda: None
    observers: Sequence[CallObserver] = ()


class _NoSessions(SessionInterface):
    """Gives all requests the same session, which refuses to be changed."""

    _session = NullSession()

    def open_session(self, app: Flask, request: Request) -> NullSession:  # noqa: ARG002  as Flask calls it
        return self._session


class ExtenderApp(Flask):
    """A Flask application that checks the caller of each request, and that a server can start, drain and stop.

    The methods of Flask that do for each request what could be done once, or not at all, are overridden.

    Args:
        count_refused: called with the status of each refused request.
    """

    session_interface = _NoSessions()

    def __init__(
        self, access: AccessRules, lifecycle: Lifecycle, count_refused: Callable[[int], object] = lambda _: None
    ) -> None:
        super().__init__("extender", static_folder=None)
        self.lifecycle = lifecycle
        self._access = access
        self._count_refused = count_refused
        self.register_error_handler(Exception, self._answer_error)

    def add_pages(self, pages: PrivatePages) -> None:
        for path, page in pages.pages.items():
            self._add(path, "GET", partial(_view, page))
        for path, page in pages.actions.items():
            self._add(path, "POST", partial(_act, page))
        for path, handler in pages.body_actions.items():
            self.add_handler(path, partial(_without_trace, handler))

    def add_handler(self, path: str, handler: VerbHandler) -> None:
        """Adds a function that answers a POST, given the JSON body and the header traceparent."""
        self._add(path, "POST", partial(_post, handler, self.lifecycle.limits.body_bytes))

    def _add(self, path: str, method: str, view: Callable[[], Response]) -> None:
        self.add_url_rule(path, path, view, methods=[method], provide_automatic_options=False)

    def preprocess_request(self) -> None:
        """Checks the caller, before Flask calls the view. Raises RequestRefused.

        Our own worker has started the process. Under any other WSGI server the watches start here, at the first
        request, which is usually a probe.
        """
        if not self.lifecycle.started:
            self.lifecycle.start()
        environ = request.environ
        host, origin = environ.get("HTTP_HOST", ""), environ.get("HTTP_ORIGIN", "")
        self._access.check(request.method, request.path, host, origin, WsgiConnection(environ))

    def create_url_adapter(self, request: Request | None) -> MapAdapter | None:
        """Returns what finds the view of a request. Flask's own method also examines the Host, which takes 20 us."""
        if request is None:
            return None
        host, query = request.environ.get("HTTP_HOST", ""), request.query_string.decode("latin-1")
        return MapAdapter(
            self.url_map, host, request.root_path, "", request.scheme, request.path, request.method, query
        )  # fmt: skip

    def ensure_sync(self, func: Callable[..., Any]) -> Callable[..., Any]:
        """Returns the view as it is: none is a coroutine."""
        return func

    def process_response(self, response: Response) -> Response:
        """Returns the response as it is: no page has a session, or a function that changes its response."""
        return response

    def do_teardown_request(self, exc: BaseException | None = None) -> None:
        """Does nothing: there is nothing to tear down after a request."""

    def do_teardown_appcontext(self, exc: BaseException | None = None) -> None:
        """Does nothing, as `do_teardown_request`."""

    def refuse(self, status: int, client: str, request: str, reason: str, headers: Headers = ()) -> Answer:
        """Counts and logs a refused request; returns the answer to it."""
        self._count_refused(status)
        return refuse(status, client, request, reason, headers)

    def _answer_error(self, error: Exception) -> Response:
        client, line, path = request.remote_addr or "", f"{request.method} {request.path}", request.path
        match error:
            case RequestRefused():
                return _Reply(self.refuse(error.status, client, line, error.message, (CLOSE,)))
            case MethodNotAllowed():
                allowed = ("Allow", ", ".join(sorted(error.valid_methods or ())))
                return _Reply(self.refuse(405, client, line, f"{path} does not take {request.method}", (allowed,)))
            case HTTPException(code=int(code)):
                reason = f"nothing is served at {path}" if code == 404 else error.description or error.name
                return _Reply(self.refuse(code, client, line, reason))
        _log.exception("request failed request=%r", line)
        self._count_refused(500)
        return _Reply(error_answer(500, "internal error: the log has the cause"))


def create_app(backend: Backend, settings: Settings, metrics: Metrics) -> ExtenderApp:
    """Returns the application that serves `backend`'s verbs under `settings.prefix`."""
    traces = Traces()
    notifier = BatchedNotifier[Call](lambda calls: report(calls, metrics, traces))
    exemptions = Exemptions(
        frozenset(settings.exempt_namespaces), settings.own_namespace, labels_of(settings.own_labels)
    )
    calls = Calls(backend.waiting_for, notifier.note, exemptions, backend.observers)

    def unready() -> Mapping[str, str | None]:
        draining = "shutting down" if lifecycle.draining else None
        return {**(backend.unready or backend.waiting_for)(), "shutdown": draining}

    pages = PrivatePages(probe_pages(metrics, backend.revive, unready, notifier.catch_up))
    lifecycle = _lifecycle(backend, notifier, settings, _page_server(pages, settings))
    access = AccessRules(settings.client_ca is not None, frozenset(settings.client_names), settings.insecure_bind)
    app = ExtenderApp(access, lifecycle, metrics.rejected)
    prefix = f"/{settings.prefix.strip('/')}".rstrip("/")
    for verb in backend.verbs:
        app.add_handler(f"{prefix}/{verb.name}", partial(calls.answer, verb))
    app.add_pages(pages)
    app.add_pages(backend.private)
    return app


def _lifecycle(
    backend: Backend, notifier: BatchedNotifier[Call], settings: Settings, server: PageServer | None
) -> Lifecycle:
    def start() -> None:
        if server:
            server.start()
        backend.start()  # started first, because it limits how many malloc arenas the later threads may use
        notifier.start()

    def stop() -> None:
        notifier.stop()
        backend.stop()
        if server:
            server.stop()

    limits = Limits(body_bytes=settings.body_limit)
    return Lifecycle(
        limits, settings.drain_seconds, start, stop, backend.compare, backend.hand_over, backend.reload
    )  # fmt: skip


class PageServer:
    """Serves pages from `start` to `stop`.

    Args:
        pages: a request to one of their `body_actions` has a body of at most 8 MiB.
        tls_context: called for each connection. If it is given, every request but probes needs a certificate that this
            context verifies.
        any_host: see AccessRules.
    """

    def __init__(
        self,
        host: str,
        port: int,
        pages: PrivatePages,
        tls_context: TlsContext | None = None,
        *,
        any_host: bool = False,
    ) -> None:
        limits = Limits(body_bytes=_QUESTION_BYTES if pages.body_actions else _BODY_BYTES)
        access = AccessRules(certificate_required=tls_context is not None, any_host=any_host)
        app = ExtenderApp(access, Lifecycle(limits))
        app.add_pages(pages)
        listener = listener_at(host, port)
        self.port = int(listener.getsockname()[1])
        self._acceptor = Acceptor(app, [listener], _MOST_CONNECTIONS, tls_context)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pages", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._acceptor.close()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._acceptor.turn(_TURN_SECONDS)


def _page_server(pages: PrivatePages, settings: Settings) -> PageServer | None:
    """Returns a server for health and metrics if the settings give them a separate address. Raises OSError."""
    if not settings.metrics_bind:
        return None
    host, port = host_and_port(settings.metrics_bind)
    context: TlsContext | None = None
    if settings.metrics_client_ca:
        certificate, key, ca = str(settings.tls_cert), str(settings.tls_key), str(settings.metrics_client_ca)
        context = ReloadingContext((certificate, key, ca), lambda: server_context(certificate, key, ca)).current
    return PageServer(host, port, pages, context, any_host=settings.insecure_bind)


class _Reply(Response):
    """Passes an answer through Flask. Response's own methods would parse, complete and copy its headers each time."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._headers = header_lines(answer)
        if any("\n" in value or "\r" in value for _, value in self._headers):
            raise ValueError("a header has several lines")

    def __call__(self, environ: Environ, start_response: Any) -> Iterable[bytes]:
        start_response(status_line(self._answer.status), self._headers)
        return () if environ["REQUEST_METHOD"] == "HEAD" else (self._answer.body,)


# ---- views


def _view(page: Page) -> Response:
    return _Reply(page(request.args.to_dict(flat=False), request.headers.get("Accept", "")))


def _act(action: Page) -> Response:
    if request.content_type:  # refuses an HTML form that another site makes a browser send
        _check_media_type(request.environ)
    return _view(action)


def _without_trace(handler: Handler, body: bytes, _traceparent: str) -> Answer:
    return handler(body)


def _post(handler: VerbHandler, limit_bytes: int) -> Response:
    """Reads the request's body, at most `limit_bytes`, and returns the handler's answer to it."""
    environ = request.environ
    _check_media_type(environ)
    stated, traceparent = environ.get("CONTENT_LENGTH", ""), environ.get("HTTP_TRACEPARENT", "")
    length = int(stated) if stated.isdecimal() else None
    # the body's length is unknown, so reading it could wait for ever
    if length is None and not environ.get("wsgi.input_terminated"):
        if "HTTP_TRANSFER_ENCODING" in environ:
            raise RequestRefused(411, "the request has no Content-Length")
        return _Reply(handler(b"", traceparent))
    if (length or 0) > limit_bytes:
        raise RequestRefused(413, f"the body has {length} bytes, the limit is {limit_bytes}")
    body = environ["wsgi.input"].read(limit_bytes + 1 if length is None else length)
    if len(body) > limit_bytes:
        raise RequestRefused(413, f"the body is larger than the limit of {limit_bytes} bytes")
    if len(body) < (length or 0):
        raise RequestRefused(400, "the body ended early")
    return _Reply(handler(body, traceparent))


def _check_media_type(environ: Environ) -> None:
    """Raises RequestRefused (415) unless the request's body is plain JSON."""
    content_type, encoding = environ.get("CONTENT_TYPE", ""), environ.get("HTTP_CONTENT_ENCODING", "")
    if content_type != JSON and content_type.partition(";")[0].strip().lower() != JSON:
        raise RequestRefused(415, f"expected Content-Type {JSON}")
    if encoding and encoding.lower() != "identity":
        raise RequestRefused(415, "expected a body without Content-Encoding")


WaitingFor = Callable[[], Mapping[str, str | None]]
_WITH_POD = (ExtenderArgs, ExtenderPreemptionArgs)
_WITH_ERROR = (ExtenderFilterResult, ExtenderBindingResult)


class PodReference(NamedTuple):
    """Identifies the pod of a request. `Exemptions` reads its fields, too."""

    uid: str
    namespace: str
    name: str
    labels: Mapping[str, str]

    @classmethod
    def of(cls, request: object) -> PodReference | None:
        """Returns a reference to the pod of a decoded request; None if the request is not about a pod.

        For a bind request the reference has no labels, because the request does not contain them.
        """
        if isinstance(request, _WITH_POD):
            pod = request.pod
            return cls(pod.uid, pod.namespace, pod.name, pod.labels)
        if isinstance(request, ExtenderBindingArgs):
            return cls(request.pod_uid, request.pod_namespace, request.pod_name, NO_LABELS)
        return None


@dataclass(frozen=True, slots=True)
class Exemptions:
    """The pods for which every node is accepted without a decision.

    They include the extender's own pods. Otherwise the extender could prevent its own restart.

    Attributes:
        namespaces: all pods in these namespaces are exempt.
        own_namespace: the namespace of the extender's own pods.
        own_labels: the labels of the replicas' pods. A pod in `own_namespace` with all these labels is exempt. If there
            are no labels, they exempt no pod.
    """

    namespaces: frozenset[str] = frozenset()
    own_namespace: str = ""
    own_labels: Mapping[str, str] = field(default_factory=dict)

    def cover(self, pod: PodReference | None) -> bool:
        if pod is None:
            return False
        return pod.namespace in self.namespaces or self._own(pod)

    def _own(self, pod: PodReference) -> bool:
        is_labelled = bool(self.own_labels) and self.own_labels.items() <= pod.labels.items()
        return is_labelled and pod.namespace == self.own_namespace


class Outcome(StrEnum):
    """The ways in which a call of a verb can end. Observers receive only DECIDED, PASSED and FAILED."""

    DECIDED = verbs.DECIDED  # the verb has answered by the rules of the policy
    PASSED = verbs.PASSED  # the pod is exempt, so every node was accepted
    FAILED = verbs.FAILED  # an unexpected exception was raised
    ERROR = "error"  # the verb's answer contains an error, or the decision took too long
    UNREADY = "unready"
    MALFORMED = "malformed"


_STATUSES = {Outcome.FAILED: 500, Outcome.ERROR: 503, Outcome.UNREADY: 503, Outcome.MALFORMED: 400}
"""The HTTP status for each outcome, used if the verb's answer has no field for an error."""


@dataclass(frozen=True, slots=True)
class CallResult:
    """The result of a call, before it becomes an HTTP answer.

    Attributes:
        request: the decoded body; None if it could not be decoded.
        result: the verb's answer; None if there is only an `error`.
    """

    outcome: Outcome
    request: Any = None
    result: Any = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class Call:
    """An answered call of a verb, as log and metrics report it.

    Attributes:
        seconds: the time from the arrival of the body to the encoded answer.
        ended_at: when the call ended, in seconds since the epoch.
        traceparent: the value of the caller's `traceparent` header.
        left_out: the rules that failed and were ignored, separated by commas.
    """

    verb: str
    outcome: Outcome
    subject: PodReference | None
    summary: Summary | None
    status: int
    error: str
    seconds: float
    ended_at: float
    traceparent: str
    left_out: str = ""


@dataclass(frozen=True)
class Calls:
    """Answers calls of verbs, and reports each answered call.

    Attributes:
        waiting_for: returns check -> the reason why the process cannot decide yet, or None if the check passes.
        note: called with each answered call.
        observers: receive each request and its result before the answer is encoded.
    """

    waiting_for: WaitingFor
    note: Callable[[Call], None]
    exemptions: Exemptions = field(default_factory=Exemptions)
    observers: Sequence[CallObserver] = ()

    def answer(self, verb: Verb[Any, Any], body: bytes, traceparent: str = "") -> Answer:
        """Returns the answer to `body` posted to `verb`. Raises nothing."""
        started = time.perf_counter()
        left_out: dict[str, str] = {}
        decision, summary = self._decide(verb, body, left_out), None
        try:
            answer, summary = self._encode(verb, decision)
        except Exception:
            _log.exception("encoding an answer failed verb=%s", verb.name)
            decision = CallResult(Outcome.FAILED, decision.request, error=_internal_error(verb))
            answer = self._encode_failure(verb, decision)
        if left_out:
            answer = answer._replace(headers=(*answer.headers, *map(_warning, left_out.items())))
        subject, seconds = PodReference.of(decision.request), time.perf_counter() - started
        self.note(
            Call(
                verb.name, decision.outcome, subject, summary, answer.status, decision.error, seconds, time.time(),
                traceparent, ",".join(left_out),
            )
        )  # fmt: skip
        return answer

    def _decide(self, verb: Verb[Any, Any], body: bytes, left_out: dict[str, str]) -> CallResult:
        """Returns the result of the call. Adds the rules without which it was decided to `left_out`."""
        request = None
        try:
            request = verb.decode(body)
            missing = "; ".join(obstacle for obstacle in self.waiting_for().values() if obstacle is not None)
            if self.exemptions.cover(PodReference.of(request)):
                # If the answer to a bind has no error, kube-scheduler takes the pod as bound.
                return CallResult(Outcome.PASSED, request, verb.allow_all(request))
            if missing:
                return CallResult(Outcome.UNREADY, request, error=f"the extender is not ready: {missing}")
            result = decide_call(verb, request, left_out)
            error = result.error if isinstance(result, _WITH_ERROR) else ""
            return CallResult(Outcome.ERROR if error else Outcome.DECIDED, request, result, error)
        except MalformedInput as error:
            return CallResult(Outcome.MALFORMED, request, error=str(error))
        except DeadlineExceeded as error:
            return CallResult(Outcome.ERROR, request, error=f"{verb.name}: {error}")
        except Exception:
            _log.exception("call failed verb=%s", verb.name)
            return CallResult(Outcome.FAILED, request, error=_internal_error(verb))

    def _encode(self, verb: Verb[Any, Any], decision: CallResult) -> tuple[Answer, Summary | None]:
        """Returns the HTTP answer, and its summary for the log. Calls the observers first, and raises their errors."""
        request, result = decision.request, decision.result
        if result is None:
            return self._encode_error(verb, decision), None
        judged = Outcome.PASSED if decision.outcome is Outcome.PASSED else Outcome.DECIDED
        for observer in self.observers:
            observer.called(verb.name, judged, request, result)
        return Answer(200, verb.encode(request, result)), verb.summary(request, result)

    def _encode_error(self, verb: Verb[Any, Any], decision: CallResult) -> Answer:
        """Returns the error in a field of the verb's answer (status 200).

        Returns an HTTP error if the answer has no such field, or if the request could not be decoded.
        """
        if decision.request is None:
            return error_answer(_STATUSES[decision.outcome], decision.error)
        for observer in self.observers:
            observer.called(verb.name, Outcome.FAILED, decision.request, None, decision.error)
        # The connection is closed, so that kube-scheduler opens a new one, which may reach a ready replica.
        headers = (CLOSE,) if decision.outcome is Outcome.UNREADY else ()
        result = verb.failed(decision.request, decision.error)
        if result is None:
            return error_answer(_STATUSES[decision.outcome], decision.error, headers)
        return Answer(200, verb.encode(decision.request, result), headers=headers)

    def _encode_failure(self, verb: Verb[Any, Any], decision: CallResult) -> Answer:
        try:
            return self._encode_error(verb, decision)
        except Exception:
            _log.exception("encoding an error failed verb=%s", verb.name)
            return error_answer(500, decision.error)


def report(calls: Sequence[Call], metrics: Metrics, traces: Traces) -> None:
    """Counts the calls in metrics and logs each in a line."""
    for call in calls:
        metrics.called(call.verb, call.outcome, call.seconds)
        if call.status >= 400:
            metrics.rejected(call.status)
    inform(_log, "call", (traces.trace(_fields(call), call.ended_at, call.traceparent) for call in calls))


def _fields(call: Call) -> dict[str, object]:
    """Returns the fields of the call's log line."""
    fields: dict[str, object] = {"verb": call.verb, "result": call.outcome.value, "ms": round(call.seconds * 1e3, 3)}
    if call.subject is not None:
        fields["uid"] = cut(call.subject.uid, LONGEST_KEY)
        fields["pod"] = cut(f"{call.subject.namespace}/{call.subject.name}", LONGEST_KEY)
    if call.summary is not None:
        fields["nodes_in"], fields["nodes_out"] = call.summary.nodes_in, call.summary.nodes_out
    if call.left_out:
        fields["left_out"] = cut(call.left_out, LONGEST_TEXT)
    if call.error:
        fields["error"] = cut(call.error, LONGEST_TEXT)
    return fields


def _warning(left_out: tuple[str, str]) -> tuple[str, str]:
    """Returns the header that says that the answer was made without a rule. kube-scheduler reads no headers."""
    text = f"decided without {': '.join(left_out)}"[:LONGEST_TEXT].encode("ascii", "backslashreplace").decode()
    plain = "".join(each if each.isprintable() else " " for each in text).replace("\\", "\\\\").replace('"', '\\"')
    return "Warning", f'199 extender "{plain}"'


def _internal_error(verb: Verb[Any, Any]) -> str:
    return f"internal error in {verb.name}: the extender's log has the cause"


COMPARE, DUMP, LOG_LEVEL = f"{DEBUG}cache/compare", f"{DEBUG}cache/dump", f"{DEBUG}log-level"


def when_ready(look: Callable[[], object], waiting_for: Callable[[], str | None]) -> Page:
    """Returns a page with the result of `look` as JSON, or the error 503 as long as `waiting_for` returns a reason."""

    def page(_query: Mapping[str, list[str]], _accept: str) -> Answer:
        missing = waiting_for()
        if missing is not None:
            return error_answer(503, f"not ready: {missing}")
        return json_answer(look())

    return page


def change_log_level(query: Mapping[str, list[str]], _accept: str) -> Answer:
    """Sets the least severe level that is logged (`?level=debug`) until the process ends."""
    levels = OPTIONS["log_level"].choices
    level = next(iter(query.get("level", ())), "")
    if level not in levels:
        return error_answer(400, f"expected ?level= with one of {', '.join(levels)}, got {level!r}")
    log.set_level(level)
    _log.warning("log level changed level=%s", level)
    return json_answer({"level": level})


def configz(settings: Callable[[], Settings], command: Command) -> Page:
    """Returns the page that shows the settings of the command in use, by their keys in the file of --config.

    It shows no secrets, because the settings hold only the paths of files with secrets.
    """

    def page(_query: Mapping[str, list[str]], _accept: str) -> Answer:
        values = settings().model_dump(mode="json")
        return json_answer({API_VERSION: {option.key: values[option.name] for option in options_of(command)}})

    return page


def listener_at(host: str, port: int) -> socket.socket:
    """Returns a listening socket. Raises OSError, with the address in its message."""
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        advice = "; choose another, or end the process that has it" if error.errno == errno.EADDRINUSE else ""
        raise OSError(f"cannot listen on {host}:{port}: {os.strerror(error.errno or 0)}{advice}") from None


def probe_pages(
    metrics: Metrics,
    revive: Callable[[], Sequence[str]],
    unready: Callable[[], Mapping[str, str | None]],
    before_scrape: Callable[[], object] = lambda: None,
) -> Mapping[str, Page]:
    """Returns the pages for probes and Prometheus, by path.

    Args:
        revive: restarts threads that have ended; returns their names.
        unready: returns check -> the reason why the process is not ready, or None if the check passes.
        before_scrape: called before metrics are rendered.
    """

    def livez(query: Mapping[str, list[str]], _accept: str) -> Answer:
        ended = ", ".join(revive())
        checks = {"ping": None, "threads": f"restarted after an unexpected end: {ended}" if ended else None}
        return health_answer("livez", checks, "verbose" in query)

    def readyz(query: Mapping[str, list[str]], _accept: str) -> Answer:
        return health_answer("readyz", {"ping": None, **unready()}, "verbose" in query)

    def scraped(_query: Mapping[str, list[str]], accept: str) -> Answer:
        before_scrape()
        try:
            body, content_type = metrics.render(accept)
        except (TypeError, ValueError):
            # prometheus-client fails for some versions of the format that a client may ask for
            metrics.rejected(406)
            return error_answer(406, "the Accept header asks for an unknown format of metrics")
        return Answer(200, body, content_type)

    return {"/livez": livez, "/healthz": livez, "/readyz": readyz, "/metrics": scraped}

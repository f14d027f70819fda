"""The Flask application: verbs' routes, health, metrics. `create_app` makes one; nothing of it is global."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flask import Flask, Response, request
from werkzeug.exceptions import HTTPException

from extender.config.settings import Settings
from extender.verbs.verb import Verb
from extender.web.access import Access
from extender.web.answers import Answer, error_answer, wsgi_headers
from extender.web.calls import Call, Calls, WaitingFor, tell_of
from extender.web.debug import COMPARE, DUMP, Debug, DebugDoor
from extender.web.exempt import Exemptions
from extender.web.front import Front, VerbEndpoint
from extender.web.health import health_answer
from extender.web.telemetry.batched_notifier import BatchedNotifier
from extender.web.telemetry.metrics import Metrics
from extender.web.worker.lifecycle import Lifecycle
from extender.web.worker.limits import Limits

_log = logging.getLogger(__name__)

_PROBES = ("/livez", "/readyz")


@dataclass(frozen=True)
class Service:
    """What the web serves. `waiting_for` names what the first decision waits for: {"cache": ""} when all is there, else
    {"cache": "waiting for pods, nodes"}; it is asked at every call and must be cheap. `start` and `stop` run in the
    worker process."""

    verbs: Sequence[Verb[Any, Any]]
    waiting_for: WaitingFor
    start: Callable[[], None]
    stop: Callable[[], None]
    debug: Debug | None = None


class Extender(Flask):
    """A Flask application with what the gunicorn worker wants to know of it."""

    lifecycle: Lifecycle


def create_app(service: Service, settings: Settings, metrics: Metrics) -> Extender:
    """The application that answers `service`'s verbs under `settings.prefix`."""
    app = Extender("extender", static_folder=None)
    telling = BatchedNotifier[Call](lambda calls: tell_of(calls, metrics))
    app.lifecycle = lifecycle = _lifecycle(service, telling, settings, metrics)
    access = Access(settings.client_ca is not None, frozenset(settings.client_names))
    door = VerbEndpoint(_calls(service, settings, telling.note), lifecycle, access)
    verbs = verb_paths(service.verbs, settings)
    if not access.certificate_required:
        lifecycle.posts = {path: door.post(verb) for path, verb in verbs.items()}
    for path, verb in verbs.items():
        app.add_url_rule(path, verb.name, _verb_view(door, verb), methods=["POST"], provide_automatic_options=False)
    _add_health(app, service.waiting_for)
    app.add_url_rule("/metrics", "metrics", _metrics_view(metrics, telling.catch_up))
    if service.debug is not None:
        _add_debug(app, DebugDoor(service.debug, access))
    app.before_request(_guard(access))
    app.register_error_handler(Exception, _error_view(lifecycle))
    app.wsgi_app = Front(app.wsgi_app, door, verbs, lifecycle)  # type: ignore[method-assign]  # Flask's way to wrap it
    return app


def verb_paths(verbs: Sequence[Verb[Any, Any]], settings: Settings) -> Mapping[str, Verb[Any, Any]]:
    """The path of each verb: the prefix, and the verb's name as the scheduler's configuration has it."""
    prefix = "/" + settings.prefix.strip("/")
    return {f"{prefix.rstrip('/')}/{settings.verb_path(verb.name).strip('/')}": verb for verb in verbs}


def _lifecycle(service: Service, telling: BatchedNotifier[Call], settings: Settings, metrics: Metrics) -> Lifecycle:
    def start() -> None:
        telling.start()
        service.start()

    def stop() -> None:
        telling.stop()
        service.stop()

    limits = Limits(
        body_bytes=settings.body_limit,
        idle_seconds=settings.keepalive_seconds,
        head_seconds=settings.head_seconds,
        body_seconds=settings.body_seconds,
    )
    return Lifecycle(
        start=start,
        stop=stop,
        rejected=metrics.rejected,
        limits=limits,
        drain_seconds=settings.drain_seconds,
    )


def _calls(service: Service, settings: Settings, note: Callable[[Call], None]) -> Calls:
    exemptions = Exemptions(
        namespaces=frozenset(settings.exempt_namespaces),
        own_namespace=settings.own_namespace,
        own_name=settings.own_name,
        own_labels=dict(pair.split("=", 1) for pair in settings.own_labels),
    )
    return Calls(service.waiting_for, note, settings.before_sync, exemptions)


def _verb_view(door: VerbEndpoint, verb: Verb[Any, Any]) -> Callable[[], Response]:
    def view() -> Response:
        return _response(door.answer(verb, request.environ))

    return view


def _add_health(app: Extender, waiting_for: WaitingFor) -> None:
    def livez() -> Response:
        return _response(health_answer("livez", {"ping": ""}, "verbose" in request.args))

    def readyz() -> Response:
        draining = "shutting down" if app.lifecycle.draining else ""
        checks = {"ping": "", **waiting_for(), "shutdown": draining}
        return _response(health_answer("readyz", checks, "verbose" in request.args))

    for path, view in (("/livez", livez), ("/readyz", readyz)):
        app.add_url_rule(path, path, view)


def _add_debug(app: Extender, door: DebugDoor) -> None:
    def compare() -> Response:
        return _response(door.compare(request.environ))

    def dump() -> Response:
        return _response(door.dump(request.environ))

    app.add_url_rule(COMPARE, COMPARE, compare, methods=["GET", "POST"])
    app.add_url_rule(DUMP, DUMP, dump)


def _metrics_view(metrics: Metrics, catch_up: Callable[[], None]) -> Callable[[], Response]:
    def view() -> Response:
        catch_up()
        body, content_type = metrics.render(request.headers.get("Accept", ""))
        return _response(Answer(200, body, content_type))

    return view


def _guard(access: Access) -> Callable[[], Response | None]:
    def guard() -> Response | None:
        refusal = "" if request.path in _PROBES else access.refusal(request.environ)
        return _response(error_answer(403, refusal)) if refusal else None

    return guard


def _error_view(lifecycle: Lifecycle) -> Callable[[Exception], Response]:
    def view(error: Exception) -> Response:
        if isinstance(error, HTTPException) and error.code is not None:
            answer = error_answer(error.code, _message(error), _kept(error))
        else:
            _log.exception("%s %s failed", request.method, request.path)
            answer = error_answer(500, "internal error: the extender's log has the cause")
        lifecycle.rejected(answer.status)
        return _response(answer)

    return view


def _message(error: HTTPException) -> str:
    if error.code == 404:
        return f"nothing is served at {request.path}"
    if error.code == 405:
        return f"{request.path} does not take {request.method}"
    return error.description or error.name


def _kept(error: HTTPException) -> list[tuple[str, str]]:
    return [(name, value) for name, value in error.get_headers() if name in ("Allow", "Location")]


def _response(answer: Answer) -> Response:
    return Response(answer.body, answer.status, wsgi_headers(answer))

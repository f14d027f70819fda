"""Flask's answers: health, metrics, errors."""

from __future__ import annotations

import json

import pytest
from prometheus_client.parser import text_string_to_metric_families
from werkzeug.test import Client, create_environ, run_wsgi_app

from extender.runtime.clock import ManualClock
from extender.web.metrics import Metrics
from extender.web.series import SERIES
from tests.web.fakes import Running, make_app


def test_alive() -> None:
    client = Client(make_app(Running(missing="waiting for pods")).app)
    assert client.get("/livez").text == client.get("/healthz").text == "ok"
    assert client.get("/livez?verbose").text == "[+]ping ok\n[+]threads ok\nlivez check passed\n"


def test_ready() -> None:
    client = Client(make_app().app)
    response = client.get("/readyz")
    assert (response.status_code, response.text) == (200, "ok")
    assert client.get("/readyz?verbose").text == "[+]ping ok\n[+]cache ok\n[+]shutdown ok\nreadyz check passed\n"


def test_not_ready_says_what_it_waits_for() -> None:
    response = Client(make_app(Running(missing="waiting for pods, nodes")).app).get("/readyz")
    assert response.status_code == 503
    assert response.text.splitlines()[1:] == [
        "[-]cache failed: waiting for pods, nodes",
        "[+]shutdown ok",
        "readyz check failed",
    ]


def test_not_ready_while_draining() -> None:
    fixture = make_app()
    fixture.app.lifecycle.drain()
    assert Client(fixture.app).get("/readyz").status_code == 503
    assert Client(fixture.app).get("/livez").status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "status", "error"),
    [
        ("GET", "/", 404, "nothing is served at /"),
        ("GET", "/scheduler/filter", 405, "/scheduler/filter does not take GET"),
        ("DELETE", "/scheduler/bind", 405, "/scheduler/bind does not take DELETE"),
        ("OPTIONS", "/scheduler/filter", 405, "/scheduler/filter does not take OPTIONS"),
        ("POST", "/livez", 405, "/livez does not take POST"),
    ],
)
def test_errors_are_one_line_of_json_and_counted(method: str, path: str, status: int, error: str) -> None:
    fixture = make_app()
    response = Client(fixture.app).open(path, method=method)
    assert (response.status_code, json.loads(response.data)) == (status, {"error": error})
    assert ("Allow" in response.headers) == (status == 405)
    assert fixture.count("extender_rejected_requests_total", code=str(status)) == 1


def test_a_body_of_unknown_length_is_not_waited_for() -> None:
    """A server that does not say `wsgi.input_terminated` might have us read from the bare socket."""
    fixture = make_app()
    headers = {"Transfer-Encoding": "chunked"}
    environ = create_environ("/scheduler/filter", method="POST", content_type="application/json", headers=headers)
    _, status, _ = run_wsgi_app(fixture.app, {**environ, "wsgi.input": None})
    assert status.startswith("411 ")


def test_a_certificate_is_required_whatever_the_server_in_front() -> None:
    """With a client CA set, a plain connection has no certificate: it must not get in."""
    fixture = make_app(client_ca="ca.pem", tls_cert="c", tls_key="k")
    client = Client(fixture.app)
    assert client.post("/scheduler/filter", data="{}", content_type="application/json").status_code == 403
    assert client.get("/metrics").status_code == 403
    assert client.get("/livez").status_code == 200


def test_the_first_request_starts_the_application_once() -> None:
    running = Running()
    fixture = make_app(running)
    assert running.started == 0
    for _ in range(2):
        Client(fixture.app).get("/readyz")
    assert running.started == 1
    fixture.app.lifecycle.stop()
    fixture.app.lifecycle.stop()
    assert running.stopped == 1


def test_every_series_is_in_the_table_and_every_row_is_served() -> None:
    fixture = make_app()
    metrics = fixture.metrics
    metrics.called("filter", "decided", 0.001)
    metrics.lock_waited("filter", 0.00001)
    metrics.refused("NodeResourcesFit", 7)
    metrics.bound("bound")
    metrics.watch_event("pods", "ADDED")
    metrics.relisted("pods")
    metrics.unreadable("Pod", "default/p", "'1Gx' is not a quantity")
    metrics.cache_differed("Pod", "default/p", "is listed, but not cached")
    metrics.set_aside("sweep", "default/p", ValueError("unexpected"))
    metrics.rule_failed("rules:on_ssd")
    metrics.rule_counted("rules:on_ssd", "misses", 1.0)
    metrics.rule_observed("rules:on_ssd", "seconds", 0.1)
    metrics.policy_reloaded(succeeded=False)
    metrics.write_dropped("events")
    metrics.synced("pods", 0.0)
    metrics.rejected(400)
    metrics.requested("GET", "api.example", "200", 0.01)
    metrics.write_dropped("Event")
    metrics.not_recorded("changes", 1)
    metrics.group_planned("placed")
    metrics.plan_dropped("age")
    metrics.quorum_refused("quorum", 2)
    text = Client(fixture.app).get("/metrics").text
    served = {
        family.name + ("_total" if family.type == "counter" else ""): family
        for family in text_string_to_metric_families(text)
        if not family.name.startswith(("python_", "process_"))
    }
    assert {(name, family.type, family.documentation) for name, family in served.items()} == {
        (series.name, series.kind, series.help) for series in SERIES.values()
    }
    for name, family in served.items():
        assert {label for sample in family.samples for label in sample.labels} - {"le"} == set(SERIES[name].labels)


def test_sizes_and_staleness_are_read_at_the_scrape() -> None:
    clock, sizes = ManualClock(), {"nodes": 1}
    metrics = Metrics(clock, "1")
    metrics.observe(lambda: sizes)
    metrics.synced("pods", clock.monotonic())
    clock.advance(7)
    sizes["nodes"] = 2
    assert metrics.registry.get_sample_value("extender_cache_size", {"type": "nodes"}) == 2
    assert metrics.registry.get_sample_value("extender_watch_staleness_seconds", {"kind": "pods"}) == 7


def test_metrics_are_in_the_openmetrics_format_if_accepted() -> None:
    response = Client(make_app().app).get("/metrics", headers={"Accept": "application/openmetrics-text"})
    assert response.content_type.startswith("application/openmetrics-text")
    assert response.data.endswith(b"# EOF\n")


def test_a_failed_reload_leaves_the_time_of_the_last_success() -> None:
    clock = ManualClock()
    metrics = Metrics(clock, "1")

    def election_metrics() -> tuple[float | None, float | None]:
        name = "extender_policy_last_reload_success"
        value = metrics.registry.get_sample_value
        return value(f"{name}ful"), value(f"{name}_timestamp_seconds")

    started = clock.now()
    assert election_metrics() == (1, started)
    clock.advance(7)
    metrics.policy_reloaded(succeeded=False)
    assert election_metrics() == (0, started)
    metrics.policy_reloaded(succeeded=True)
    assert election_metrics() == (1, started + 7)

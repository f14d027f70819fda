"""A call of a verb through the whole application."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from extender.web.answers import CLOSE, Answer
from tests.web.fakes import Fixture, Running, make_app


def post(fixture: Fixture, path: str, body: bytes) -> Answer:
    response = fixture.app.test_client().post(path, data=body, content_type="application/json")
    return Answer(response.status_code, response.data, headers=tuple(response.headers))


def call(fixture: Fixture, verb: str = "filter", path: str | None = None, **request: Any) -> Any:
    answer = post(fixture, path or f"/scheduler/{verb}", json.dumps(request).encode())
    return answer.status, json.loads(answer.body)


def test_a_decision() -> None:
    fixture = make_app()
    status, answer = call(fixture, nodes=["a", "b"])
    assert (status, answer["NodeNames"], answer["Error"]) == (200, ["a"], "")
    assert fixture.count("extender_verb_duration_seconds_count", verb="filter", result="decided") == 1


@pytest.mark.parametrize(
    ("verb", "do", "status", "result"),
    [
        pytest.param("filter", "raise", 200, "failed", id="filter says it in its Error"),
        pytest.param("bind", "raise", 200, "failed", id="bind says it in its Error"),
        pytest.param("prioritize", "raise", 500, "failed", id="prioritize has no Error"),
        pytest.param("preempt", "raise", 500, "failed", id="preempt has no Error"),
        pytest.param("filter", "unsafe", 500, "failed", id="an answer that must not leave"),
        pytest.param("filter", "raise in decode", 500, "failed", id="a defect while decoding"),
        pytest.param("bind", "refuse", 200, "error", id="an error that the verb decided"),
        pytest.param("filter", "late", 200, "error", id="filter takes too long"),
        pytest.param("preempt", "late", 503, "error", id="preempt takes too long"),
    ],
)
def test_errors(verb: str, do: str, status: int, result: str, caplog: pytest.LogCaptureFixture) -> None:
    fixture = make_app()
    answered, answer = call(fixture, verb, do=do)
    assert answered == status
    assert answer.get("Error") or answer["error"]
    assert "scripted" not in json.dumps(answer)  # the cause is for the log
    assert ("scripted" in caplog.text) == (result == "failed")
    assert fixture.count("extender_verb_duration_seconds_count", verb=verb, result=result) == 1
    assert fixture.count("extender_rejected_requests_total", code="500") == (1 if status == 500 else 0)


@pytest.mark.parametrize("body", [b"", b"{", b"[", b"nul", b'{"a"}'])
def test_malformed_json(body: bytes) -> None:
    fixture = make_app()
    answer = post(fixture, "/scheduler/filter", body)
    assert answer.status == 400
    assert json.loads(answer.body)["error"].startswith("not JSON")
    assert fixture.count("extender_rejected_requests_total", code="400") == 1
    assert fixture.count("extender_verb_duration_seconds_count", verb="filter", result="malformed") == 1


@pytest.mark.parametrize(("verb", "status"), [("filter", 200), ("bind", 200), ("prioritize", 503), ("preempt", 503)])
def test_before_the_sync_verbs_fail(verb: str, status: int) -> None:
    fixture = make_app(Running(missing="waiting for pods"))
    answered, answer = call(fixture, verb, nodes=["a"])
    assert answered == status
    assert (answer.get("Error") or answer["error"]) == "the extender is not ready: waiting for pods"
    assert not fixture.verbs[verb].decided


@pytest.mark.parametrize(("missing", "closes"), [(None, False), ("waiting for the lease", True)])
def test_an_unready_server_ends_the_connection(missing: str | None, closes: bool) -> None:
    assert (CLOSE in post(make_app(Running(missing=missing)), "/scheduler/filter", b"{}").headers) == closes


@pytest.mark.parametrize("missing", ["waiting for pods", None])
def test_an_exempt_pod_is_bound(missing: str | None) -> None:
    """kube-scheduler takes an answer without an error as done, so the pod would stay unbound."""
    fixture = make_app(Running(missing=missing), exempt_namespaces=("kube-system",))
    assert call(fixture, "bind", pod="kube-system/dns")[0] == 200
    bind = fixture.verbs["bind"]
    assert (len(bind.let_pass), len(bind.decided)) == (1, 0)


OWN = {"own_namespace": "extender", "own_labels": ("app=extender", "tier=control")}


@pytest.mark.parametrize(
    ("settings", "pod", "labels", "passes"),
    [
        pytest.param({}, "kube-system/dns", {}, False, id="nothing is exempt by default"),
        pytest.param({"exempt_namespaces": ("kube-system",)}, "kube-system/dns", {}, True, id="an exempt namespace"),
        pytest.param({"exempt_namespaces": ("kube-system",)}, "kube/dns", {}, False, id="another namespace"),
        pytest.param(OWN, "extender/x", {"app": "extender", "tier": "control", "v": "1"}, True, id="by labels"),
        pytest.param(OWN, "extender/x", {"app": "extender"}, False, id="by some of the labels"),
        pytest.param(OWN, "default/x", {"app": "extender", "tier": "control"}, False, id="the labels elsewhere"),
        pytest.param({"own_namespace": "extender"}, "extender/x", {}, False, id="a namespace alone"),
    ],
)
def test_exempt_pods_pass(settings: dict[str, Any], pod: str, labels: dict[str, str], passes: bool) -> None:
    fixture = make_app(**settings)
    answer = call(fixture, pod=pod, labels=labels, nodes=["a", "b"])[1]
    assert answer["NodeNames"] == (["a", "b"] if passes else ["a"])
    result = "passed" if passes else "decided"
    assert fixture.count("extender_verb_duration_seconds_count", verb="filter", result=result) == 1


@pytest.mark.parametrize(
    ("settings", "paths"),
    [
        pytest.param({}, {"filter": "/scheduler/filter", "bind": "/scheduler/bind"}, id="usual"),
        pytest.param({"prefix": "/"}, {"filter": "/filter"}, id="no prefix"),
        pytest.param({"prefix": "a/b/"}, {"filter": "/a/b/filter"}, id="slashes"),
    ],
)
def test_paths(settings: dict[str, Any], paths: dict[str, str]) -> None:
    fixture = make_app(**settings)
    for verb, path in paths.items():
        assert call(fixture, path=path)[0] == 200
        assert len(fixture.verbs[verb].decided) == 1


def test_one_line_a_call(caplog: pytest.LogCaptureFixture) -> None:
    fixture = make_app()
    with caplog.at_level(logging.INFO):
        call(fixture, nodes=["a", "b", "c"], pod="shop/cart-1")
        fixture.app.lifecycle.stop()
    [record] = [record for record in caplog.records if vars(record)["fields"]["pod"] == "shop/cart-1"]
    fields = vars(record)["fields"]
    assert fields.pop("ms") >= 0
    assert int(fields.pop("trace_id"), 16)
    assert fields == {
        "verb": "filter",
        "result": "decided",
        "uid": "uid-1",
        "pod": "shop/cart-1",
        "nodes_in": 3,
        "nodes_out": 1,
    }


def test_the_line_of_an_error_has_the_error(caplog: pytest.LogCaptureFixture) -> None:
    fixture = make_app()
    with caplog.at_level(logging.INFO):
        call(fixture, "bind", do="refuse")
        fixture.app.lifecycle.stop()
    assert [fields["error"] for record in caplog.records if "error" in (fields := vars(record)["fields"])] == ["no"]


@pytest.mark.parametrize(
    ("missing", "body", "error"),
    [
        pytest.param("waiting for pods", b"{}", "the extender is not ready: waiting for pods", id="not ready"),
        pytest.param(None, b"{", "not JSON", id="malformed"),
    ],
)
def test_the_log_line_has_the_error_that_the_scheduler_gets(
    missing: str | None,
    body: bytes,
    error: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """kube-scheduler drops the body of an answer other than 200, so the log is the only place for it."""
    fixture = make_app(Running(missing=missing))
    with caplog.at_level(logging.INFO):
        post(fixture, "/scheduler/filter", body)
        fixture.app.lifecycle.stop()
    assert [vars(record)["fields"]["error"][: len(error)] for record in caplog.records] == [error]


def test_the_log_line_of_a_call_has_a_length_limit(caplog: pytest.LogCaptureFixture) -> None:
    fixture = make_app()
    with caplog.at_level(logging.INFO):
        call(fixture, "bind", pod=f"{'s' * 100_000}/{'n' * 100_000}", do="refuse:" + "x" * 100_000)
        fixture.app.lifecycle.stop()
    [record] = caplog.records
    fields = vars(record)["fields"]
    assert sum(len(str(value)) for value in fields.values()) < 2000
    assert fields["pod"].endswith("...")

"""/openapi.json describes every page that answers in JSON, and the real answers are as it says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest
from jsonschema import Draft202012Validator

from extender.app.openapi import openapi, openapi_page
from extender.app.recording.past_decisions import DECISIONS, PastDecision, PastDecisions
from extender.app.serve import build
from extender.app.ui import live_pages, look_at_cluster, look_at_recording, providers, simulation_handler
from extender.cache.cache import Cache
from extender.cache.debugger import CacheDifference, Report, dump
from extender.config.settings import Settings
from extender.framework.profile import Profiles
from extender.model.kinds import KINDS
from extender.offline.state import ClusterState
from extender.plugins.registry import default_profile
from extender.runtime.clock import ManualClock
from extender.runtime.ports import Telemetry
from extender.ui.documents import Choices
from extender.ui.site import Site
from extender.web.access import OPENAPI, UI
from extender.web.pages import COMPARE, DUMP, change_log_level, configz
from tests.builders import make_node, make_pod
from tests.cli.test_status import PICTURE

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "extender/offline/example.yaml"
GROUPS = ROOT / "examples/pod-groups.yaml"
RECORDING = ROOT / "tests/recordings/served.jsonl.gz"


def validator(path: str, method: str) -> Draft202012Validator:
    content = openapi()["paths"][path][method]["responses"]["200"]["content"]["application/json"]
    return Draft202012Validator({**content["schema"], "components": openapi()["components"]})


def check(path: str, answer: Any, method: str = "get") -> None:
    """Validates the answer, and that nothing else of JSON would be valid."""
    validator(path, method).validate(json.loads(msgspec.json.encode(answer)))
    assert not validator(path, method).is_valid([])


@pytest.fixture
def cache() -> Cache:
    cache = Cache(ManualClock(), Telemetry())
    for kind, obj in (("Node", make_node("n").capacity(cpu="4").obj()), ("Pod", make_pod("p").node("n").obj())):
        cache.changed(kind, msgspec.convert(obj, KINDS[kind].type))
    return cache


@pytest.mark.parametrize(
    "address",
    [
        "pending",
        "pod?pod=ml/recommend-7f6d-v4nzs",
        "pod?pod=shop/api-58b9c-w8x5n",
        "nodes",
        "node?node=gpu-a1",
        "node?node=gpu-a1&pod=ml/recommend-7f6d-v4nzs",
        "compare?with=ClusterAutoscalerProvider",
    ],
)
def test_a_page_is_as_described(address: str) -> None:
    site = Site(look_at_cluster(ClusterState.load(EXAMPLE), "example.yaml"), Choices(others=providers()))
    parts = urlsplit(address)
    answer = site.pages()[f"{UI}/{parts.path}.json"](parse_qs(parts.query), "")
    assert answer.status == 200
    check(f"{UI}/{parts.path}.json", json.loads(answer.body))


def test_the_page_of_a_group_is_as_described() -> None:
    site = Site(look_at_cluster(ClusterState.load(GROUPS), "groups"), Choices())
    answer = site.pages()[f"{UI}/group.json"]({"group": ["ml/train"]}, "")
    check(f"{UI}/group.json", json.loads(answer.body))


def test_the_steps_of_a_recording_are_as_described() -> None:
    pages = Site(look_at_recording(RECORDING, None), Choices()).pages()
    check(f"{UI}/steps.json", json.loads(pages[f"{UI}/steps.json"]({}, "").body))


def test_the_debug_pages_are_as_described(cache: Cache) -> None:
    check(DUMP, dump(cache))
    check("/debug/pods", PICTURE)
    report = Report({"Pod": 1}, [CacheDifference("Pod", "default/p", "not listed")], [], {"Node": "403"})
    check(COMPARE, report, "post")
    check("/debug/log-level", json.loads(change_log_level({"level": ["info"]}, "").body), "post")
    check("/configz", json.loads(configz(Settings(), "serve")({}, "").body))


def test_past_decisions_are_as_described() -> None:
    decisions = PastDecisions(ManualClock(), 10**6, 3600.0)
    decisions._add("shop/web", PastDecision(1.0, "filter", "1 of 2 nodes remain", reasons={"Too many pods": 1}))
    for query in ({}, {"pod": ["shop/web"]}):
        check(DECISIONS, json.loads(decisions.page(query, "").body))


def test_a_simulation_and_its_request_are_as_described(cache: Cache) -> None:
    request = {"pods": [make_pod("new").req(cpu="100").obj()], "nodeTemplates": [{"node": make_node("t").obj()}]}
    body = openapi()["paths"]["/simulate"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    schema = Draft202012Validator({**body, "components": openapi()["components"]})
    schema.validate(json.loads(json.dumps(request)))
    assert not schema.is_valid({"pods": "all"})
    handler = simulation_handler(cache, Profiles([default_profile()]), lambda: None)
    answer = handler(json.dumps(request).encode())
    assert answer.status == 200
    check("/simulate", json.loads(answer.body), "post")


def test_every_page_in_json_is_described(cache: Cache) -> None:
    rules = build(Settings(cluster=EXAMPLE, simulate=True)).url_map.iter_rules()
    private = {rule.rule for rule in rules if rule.rule.startswith(("/debug/", "/configz", "/simulate"))}
    pages = {path for path in live_pages(cache, Profiles([default_profile()]), lambda: None) if path.endswith(".json")}
    assert set(openapi()["paths"]) == private | pages | {"/debug/pods"}


def test_the_document_is_served_and_its_references_lead_somewhere() -> None:
    assert OPENAPI in {rule.rule for rule in build(Settings(cluster=EXAMPLE)).url_map.iter_rules()}
    served = json.loads(openapi_page({}, "").body)
    assert served == json.loads(json.dumps(openapi()))
    names = {part.split('"')[0] for part in json.dumps(served).split("#/components/schemas/")[1:]}
    assert names <= served["components"]["schemas"].keys()
    for schema in served["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)

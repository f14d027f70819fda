"""POST /simulate: pods on nodes that do not exist yet, all at once, and nothing remembered."""

from __future__ import annotations

import http.client
import json
import re
from pathlib import Path
from typing import Any

import pytest

from extender.app.feed import feed_factory_of
from extender.app.live_pages import simulation_handler
from extender.app.serve import application
from extender.cache.cache import Cache
from extender.config.settings import Settings
from extender.framework.profile import Profiles
from extender.model.kinds import KINDS
from extender.model.meta import Object
from extender.plugins.registry import default_profile
from extender.runtime.clock import ManualClock
from extender.runtime.ports import Telemetry
from extender.runtime.unsettled import UnsettledWrites
from extender.snapshots.objects import to_object
from extender.web.answers import Answer
from extender.web.app import PageServer, PrivatePages
from tests.builders import make_claim, make_device_class, make_node, make_pod, make_request, make_resource_slice, stored

ROOM = {"cpu": "4", "memory": "8Gi", "pods": "20"}


class Asked:
    """A running process that is asked."""

    def __init__(self, *objects: dict[str, Any], missing: str | None = None) -> None:
        self.cache = Cache(ManualClock(), Telemetry())
        listed: dict[str, list[Object]] = {kind: [] for kind in KINDS}
        for each in objects:
            made = to_object(each, "object")
            assert made is not None
            listed[each["kind"]].append(made)
        for kind, found in listed.items():
            self.cache.replaced(kind, found)
        self.answer = simulation_handler(self.cache, Profiles([default_profile()]), lambda: missing)

    def ask(self, *pods: dict[str, Any], templates: Any = (), **fields: Any) -> dict[str, Any]:
        body = json.dumps({"pods": pods, "nodeTemplates": list(templates), **fields}).encode()
        answer = self.answer(body)
        assert answer.status == 200, answer.body
        return dict(json.loads(answer.body))


def node(name: str) -> dict[str, Any]:
    return make_node(name).allocatable(ROOM).capacity(ROOM).obj()


def pod(name: str, cpu: str = "3") -> dict[str, Any]:
    return make_pod(name).req(cpu=cpu).obj()


def homes(answer: dict[str, Any]) -> dict[str, str]:
    return {each["pod"]: each["node"] for each in answer["placements"]}


def test_state_is_kept_over_the_pods_and_nothing_afterwards() -> None:
    asked = Asked(node("n1"))
    for _ in range(2):
        answer = asked.ask(pod("a"), pod("b"), pod("c"), templates=[{"node": node("big")}])
        assert homes(answer).keys() == {"default/a", "default/b"}
        assert set(homes(answer).values()) == {"n1", "big-1"}
        (left,) = answer["remaining"]
        assert left["pod"] == "default/c"
        assert left["reason"].startswith("0/2 nodes are available: 2 Insufficient cpu.")
        assert not answer["complete"]
    with asked.cache.snapshot("test") as table:
        assert (list(table.nodes.row_of), table.pods.slot_of) == (["n1"], {})


def test_only_templates_leaves_the_nodes_there_are_alone() -> None:
    answer = Asked(node("n1")).ask(pod("a"), templates=[{"node": node("big"), "count": 2}], onlyTemplates=True)
    (placed,) = answer["placements"]
    assert (placed["node"] in ("big-1", "big-2"), placed["template"]) == (True, "big")
    assert answer["complete"]


def test_devices_of_a_template_are_counted() -> None:
    asked = Asked(
        make_device_class("gpu"),
        *(make_claim(f"c{i}", make_request("device", "gpu")) for i in range(3)),
    )
    slices = [make_resource_slice("template", "gpu.example.com", "g0", "g1")]
    wanting = [make_pod(f"p{i}").req(cpu="100m").resource_claim(f"c{i}").obj() for i in range(3)]
    answer = asked.ask(*wanting, templates=[{"node": node("gpu"), "resourceSlices": slices}])
    assert len(homes(answer)) == 2
    (left,) = answer["remaining"]
    assert "cannot allocate all claims" in left["reason"]


def test_pods_of_a_node_that_goes_find_other_homes_or_are_lost() -> None:
    owner = {"kind": "ReplicaSet", "name": "web", "uid": "web", "apiVersion": "apps/v1", "controller": True}
    owned, bare = make_pod("web-0").req(cpu="1").node("n1").obj(), make_pod("bare").req(cpu="1").node("n1").obj()
    owned["metadata"]["ownerReferences"] = [owner]
    answer = Asked(node("n1"), node("n2"), owned, bare).ask(removeNodes=["n1"])
    assert (homes(answer), answer["lost"], answer["complete"]) == ({"default/web-0": "n2"}, ["default/bare"], False)


def test_a_request_to_scale_down_needs_no_pods() -> None:
    answer = Asked(node("n1"), node("n2")).answer(b'{"removeNodes":["n1"]}')
    assert (answer.status, json.loads(answer.body)["complete"]) == (200, True)


def test_a_hypothetical_pod_evicts_no_pod() -> None:
    standing = make_pod("low").req(cpu="4").node("n1").priority(0).obj()
    important = stored(make_pod("high").req(cpu="4").priority(1000).obj())
    answer = Asked(node("n1"), standing).ask(important)
    assert [each["pod"] for each in answer["remaining"]] == ["default/high"]


def deployment(replicas: int) -> bytes:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": {"a": "b"}}, "template": template}
    made = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d", "namespace": "default"},
        "spec": spec,
    }
    return json.dumps(made).encode()


@pytest.mark.parametrize(
    ("body", "recorded"),
    [
        pytest.param(b"{", "the body is not a valid simulation request", id="no JSON"),
        pytest.param(b'{"pods":[],"nodes":[]}', "unknown field `nodes`", id="a misspelt field"),
        pytest.param(b'{"pods":[],"removeNodes":["n7"]}', "no node n7", id="a node that is not there"),
        pytest.param(b'{"pods":[{"kind":"Pod"}]}', "template", id="a pod without anything"),
        pytest.param(b'{"pods":[],"nodeTemplates":[{"node":{"kind":"Pod"}}]}', "nodeTemplates[0].node", id="no node"),
        pytest.param(b'{"pods":[],"nodeTemplates":[{"node":{"metadata":{"name":"x"}},"count":5000}]}', "at most 1000",
                     id="too many"),
        pytest.param(b'{"pods":[],"nodeTemplates":[{"node":{"metadata":{"name":"x"}},"count":-1}]}', "`int` >= 1",
                     id="fewer than none"),
        pytest.param(b'{"pods":[%b,%b]}' % (deployment(6000), deployment(6000)), "10000 pods", id="too many replicas"),
        pytest.param(b'{"pods":[%b]}' % deployment(-6000), "spec.replicas: expected a number from 0", id="taken off"),
        pytest.param(b'{"pods":[],"nodeTemplates":[{"node":{"metadata":{"name":"x"}},"count":900,"resourceSlices":[%b{}]}]}'
                     % (b"{}," * 11), "10000 resourceSlices", id="too many devices"),
    ],
)  # fmt: skip
def test_a_malformed_simulation_request_gets_400_and_the_fault(body: bytes, recorded: str) -> None:
    answer = Asked().answer(body)
    assert answer.status == 400
    assert recorded in json.loads(answer.body)["error"]


def test_a_simulation_before_the_cache_is_filled_gets_503() -> None:
    assert Asked(missing="waiting for the first list of Pod").answer(b"{}").status == 503


def test_the_example_of_the_document_is_answered() -> None:
    text = (Path(__file__).parents[3] / "docs/autoscaling.md").read_text()
    (example,) = re.findall(r"^```json\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    answer = Asked(node("n1")).answer(example.encode())
    (placed,) = json.loads(answer.body)["placements"]
    assert (placed["pod"], placed["template"]) == ("shop/web-0", "large")


def test_simulate_is_served_only_if_enabled(tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [node("n1")]}))
    for enabled in (False, True):
        settings = Settings(cluster=tmp_path / "cluster.yaml", simulate=enabled)
        app = application(settings, feed_factory_of(settings), UnsettledWrites(10.0))
        rules = {str(rule) for rule in app.url_map.iter_rules()}
        assert ("/simulate" in rules) is enabled


def test_pages_hand_a_body_to_its_taker_on_this_machine_alone() -> None:
    for address, status in (("127.0.0.1", 200), ("127.0.0.6", 403)):
        pages = PrivatePages(body_actions={"/simulate": lambda body: Answer(200, body)})
        server = PageServer("127.0.0.1", 0, pages)
        server.start()
        try:
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=5, source_address=(address, 0))
            connection.request("POST", "/simulate", b"question", {"Content-Type": "application/json"})
            answer = connection.getresponse()
            assert answer.status == status
            assert (answer.read() == b"question") is (status == 200)
            connection.request("GET", "/simulate")
            assert connection.getresponse().status == (405 if status == 200 else 403)
        finally:
            connection.close()
            server.stop()


def test_a_new_node_has_the_pods_of_daemon_sets() -> None:
    daemon = make_pod("agent-n1").req(cpu="2").owner("DaemonSet", "agent").node("n1").obj()
    asked = Asked(node("n1"), daemon)
    template = {"node": node("new"), "count": 2}
    answer = asked.ask(pod("a"), templates=[template], onlyTemplates=True)
    assert [each["pod"] for each in answer["remaining"]] == ["default/a"]
    assert asked.ask(pod("a", "2"), templates=[template], onlyTemplates=True)["complete"]

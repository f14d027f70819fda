"""The library door: a cluster of objects, asked where pods would go."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from extender import Cluster
from extender.errors import Conflict, MalformedCluster, UnknownNode, UnknownPod
from extender.framework.status import Code
from tests.builders import make_namespace, make_node, make_pod, stored

NODES = [
    make_node("big").capacity(cpu="8").obj(),
    make_node("small").capacity(cpu="2").obj(),
    make_node("tainted").capacity(cpu="8").taint("dedicated").obj(),
]


def small_pod(name: str = "p") -> dict[str, Any]:
    return make_pod(name).req(cpu="1", memory="1Gi").priority(0).obj()


def test_a_decision_lists_feasible_and_refused_nodes() -> None:
    decision = Cluster.from_objects(NODES).decide(small_pod())
    assert decision.nodes == ["big", "small", "tainted"]
    assert decision.feasible == ["big", "small"]
    refusal = decision.refusals["tainted"]
    assert (refusal.plugin, refusal.code) == ("TaintToleration", Code.UNSCHEDULABLE_AND_UNRESOLVABLE)
    assert decision.reasons == {"node(s) had untolerated taint(s)": 1}
    assert decision.preemption is None


def test_scores_add_up_to_the_total() -> None:
    decision = Cluster.from_objects(NODES).decide(small_pod())
    for score in decision.scores.values():
        assert score.raw.shape == score.normalised.shape == (len(decision.feasible),)
        assert (score.weighted == score.normalised * score.weight).all()
    assert (decision.total == np.sum([score.weighted for score in decision.scores.values()], axis=0)).all()
    assert decision.best == ["big"]


def test_a_bound_pod_takes_room() -> None:
    cluster = Cluster.from_objects(NODES)
    cluster.bind(small_pod("first"), "small")
    cluster.bind(small_pod("second"), "small")
    decision = cluster.decide(small_pod("third"))
    assert decision.feasible == ["big"]
    assert decision.refusals["small"].reasons == ("Insufficient cpu",)
    assert cluster.pod("default/first").node_name == "small"
    assert cluster.pending == []


def test_a_pod_is_bound_once() -> None:
    cluster = Cluster.from_objects(NODES)
    cluster.bind(small_pod(), "small")
    cluster.bind(small_pod(), "small")
    with pytest.raises(Conflict, match="is already on node small, not big"):
        cluster.bind(small_pod(), "big")
    assert cluster.pod("default/p").node_name == "small"


def test_a_placed_pod_is_decided_as_if_it_had_no_node() -> None:
    standing = make_pod("standing").req(cpu="2").node("small").obj()
    cluster = Cluster.from_objects([NODES[1], standing])
    assert cluster.decide(cluster.pod("default/standing")).feasible == ["small"]
    assert cluster.decide("default/standing").feasible == ["small"]
    assert cluster.decide(small_pod()).feasible == []


def test_a_nominated_pod_keeps_its_place_until_it_is_bound() -> None:
    waiting = make_pod("waiting").req(cpu="2").priority(5).nominated("small").obj()
    cluster = Cluster.from_objects([*NODES[:2], waiting])
    assert [pod.name for pod in cluster.pending] == ["waiting"]
    assert cluster.decide(small_pod()).feasible == ["big"]
    cluster.bind(cluster.pod("default/waiting"), "big")
    assert cluster.decide(small_pod()).feasible == ["big", "small"]


def test_preemption_is_tried_where_nothing_else_helps() -> None:
    victim = make_pod("victim").req(cpu="2").priority(1).node("small").phase("Running").obj()
    cluster = Cluster.from_objects([NODES[1], victim])
    preemption = cluster.decide(stored(make_pod("p").req(cpu="1").priority(9).obj())).preemption
    assert preemption is not None
    assert preemption.nominated_node == "small"
    assert [info.pod.key for info in preemption.candidates["small"].victims] == ["default/victim"]
    assert cluster.decide(stored(make_pod("p").req(cpu="1").priority(1).obj())).preemption is not None


def test_deciding_changes_nothing() -> None:
    victim = make_pod("victim").req(cpu="2").priority(1).node("small").obj()
    cluster = Cluster.from_objects([NODES[1], victim])
    pod = stored(make_pod("p").req(cpu="1").priority(9).obj())
    first, second = cluster.decide(pod), cluster.decide(pod)
    assert first.refusals == second.refusals
    assert cluster.decide(cluster.pod("default/victim")).feasible == ["small"]


def test_finished_pods_hold_nothing() -> None:
    done = make_pod("done").req(cpu="2").node("small").phase("Succeeded").obj()
    assert Cluster.from_objects([NODES[1], done]).decide(small_pod()).feasible == ["small"]


def test_kinds_that_scheduling_does_not_look_at_are_left_out() -> None:
    other = {"apiVersion": "serving.knative.dev/v1", "kind": "Service", "metadata": {"name": "s"}, "spec": 7}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}}
    assert Cluster.from_objects([other, secret, make_namespace("a"), *NODES]).nodes == ["big", "small", "tainted"]


def test_a_file_is_a_cluster_too(tmp_path: Path) -> None:
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": NODES}))
    assert Cluster.load(path).decide(small_pod()).feasible == ["big", "small"]


@pytest.mark.parametrize(
    ("item", "fault"),
    [
        pytest.param(7, r"items\[0\]: expected an object", id="no object"),
        pytest.param({"metadata": {}}, r"items\[0\]: expected an object with kind", id="no kind"),
        pytest.param({"kind": "Node", "metadata": {}}, r"items\[0\]: metadata.name is missing", id="no name"),
        pytest.param(
            {"kind": "Node", "metadata": {"name": 7}}, r"items\[0\]: metadata.name: expected text", id="wrong type"
        ),
        pytest.param(make_node("n").capacity(cpu="many").obj(), "Node n: 'many' is not a quantity", id="no quantity"),
    ],
)
def test_an_item_that_is_not_an_object_is_refused_by_its_place(item: Any, fault: str) -> None:
    with pytest.raises(MalformedCluster, match=fault):
        Cluster.from_objects([item])


def test_unknown_names_are_refused() -> None:
    cluster = Cluster.from_objects(NODES)
    with pytest.raises(UnknownNode, match="no node nowhere"):
        cluster.bind(small_pod(), "nowhere")
    with pytest.raises(UnknownPod, match="no pod default/p"):
        cluster.pod("default/p")


@pytest.mark.parametrize(
    ("key", "advice"),
    [
        ("default/report", ": namespace default has no pods at all (did you mean ops/report?)"),
        ("shops/elsewhere", ": namespace shops has no pods at all (name it NAMESPACE/NAME)"),
        ("shop/web", " (did you mean shop/web-1 or shop/web-2?)"),
        ("shop/web-9", " (did you mean shop/web-1 or shop/web-2?)"),
        ("ops/web-9", " (did you mean shop/web-1, shop/web-2 or web/web-3?)"),
        ("shop/nothing-like-it", " (name it NAMESPACE/NAME)"),
    ],
)
def test_an_unknown_pod_is_reported_with_those_that_may_be_meant(key: str, advice: str) -> None:
    pods = [("web-1", "shop"), ("web-2", "shop"), ("web-3", "web"), ("report", "ops")]
    cluster = Cluster.from_objects([make_pod(name, namespace).obj() for name, namespace in pods])
    with pytest.raises(UnknownPod, match=re.escape(f"no pod {key} in this cluster{advice}")):
        cluster.explain(key)


def test_a_faulty_pod_is_refused_by_its_field() -> None:
    cluster = Cluster.from_objects(NODES)
    with pytest.raises(MalformedCluster, match="pod: spec: expected a mapping, got 7"):
        cluster.decide({"metadata": {"name": "p"}, "spec": 7})
    with pytest.raises(MalformedCluster, match=r"resources.requests.cpu: 'much' is not a quantity"):
        cluster.decide(make_pod("p").req(cpu="much").obj())

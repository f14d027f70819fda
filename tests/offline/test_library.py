"""What the library offers beside the answers: live clusters, policies in every form, tables, notebooks."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from extender import Cluster, ExtenderError, Listing, Recording, Scenario, replay
from extender.errors import ConfigurationError
from extender.policy.loading import AnyPolicy, read
from tests.builders import make_node, make_pod
from tests.cluster.fake_api import NODES, PODS, answer, fake_api

RECORDING = Path(__file__).parents[1] / "recordings/served.jsonl.gz"
POLICY: dict[str, Any] = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "profiles": [
        {
            "schedulerName": "default-scheduler",
            "pluginConfig": [
                {
                    "name": "NodeResourcesFit",
                    "args": {"scoringStrategy": {"type": "MostAllocated", "resources": [{"name": "cpu", "weight": 1}]}},
                }
            ],
        }
    ],
}


def objects() -> list[dict[str, Any]]:
    return [
        make_node("used").zone("a").capacity(cpu="4", memory="8Gi").obj(),
        make_node("empty").capacity(cpu="4", memory="8Gi").obj(),
        make_pod("first").node("used").req(cpu="2").obj(),
        make_pod("next").req(cpu="1").obj(),
    ]


@pytest.fixture
def cluster() -> Cluster:
    return Cluster.from_objects(objects())


def test_a_live_cluster_is_read_once(tmp_path: Path) -> None:
    with fake_api(make_node("n").obj()) as api:
        api.put(PODS, make_pod("p").obj())
        cluster = Cluster.from_kubeconfig(api.kubeconfig(tmp_path))
    assert (cluster.nodes, [pod.key for pod in cluster.pending], cluster.notes) == (["n"], ["default/p"], [])
    assert cluster.decide(cluster.pod("default/p")).feasible == ["n"]


def test_a_live_cluster_without_its_nodes_is_refused(tmp_path: Path) -> None:
    with fake_api() as api:
        api.put(PODS, make_pod("p").obj())
        api.fail(NODES, answer(403, "nodes is forbidden"))
        with pytest.raises(ExtenderError, match="nodes could not be read"):
            Cluster.from_kubeconfig(api.kubeconfig(tmp_path))


def test_without_a_kubeconfig_the_error_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nonexistent")
    with pytest.raises(ConfigurationError, match="/nonexistent does not exist"):
        Cluster.from_kubeconfig()


@pytest.mark.parametrize("form", ["path", "text of a path", "mapping", "policy", "profiles"])
def test_a_policy_is_taken_in_every_form(form: str, tmp_path: Path, cluster: Cluster) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(yaml.safe_dump(POLICY))
    forms: dict[str, AnyPolicy] = {
        "path": path,
        "text of a path": str(path),
        "mapping": POLICY,
        "policy": read(POLICY),
        "profiles": read(POLICY).scheduler_profiles(),
    }
    policy = forms[form]
    pod = cluster.pod("default/next")
    assert cluster.decide(pod).best == ["empty"]
    assert Cluster.from_objects(objects(), policy).decide(pod).best == ["used"]
    assert cluster.with_policy(policy).decide(pod).best == ["used"]
    assert cluster.with_policy(policy).with_policy(None).decide(pod).best == ["empty"]
    assert [moved.second for moved in cluster.compare(policy).moved] == ["used"]
    assert replay(RECORDING, policy).decided == replay(RECORDING).decided
    assert Recording.load(RECORDING).cluster(1, policy).nodes == Recording.load(RECORDING).cluster(1).nodes


def test_a_faulty_policy_names_its_file(tmp_path: Path, cluster: Cluster) -> None:
    (tmp_path / "policy.yaml").write_text("kind: Polic\n")
    with pytest.raises(ConfigurationError, match=r"policy\.yaml: kind: expected .* \(did you mean Policy\?\)"):
        cluster.with_policy(tmp_path / "policy.yaml")


def test_the_usage_of_nodes_is_in_the_units_of_resources(cluster: Cluster) -> None:
    first, second = cluster.usage
    assert (first.name, first.zone, first.requested["cpu"]) == ("empty", "", 0)
    assert (second.name, second.zone, second.requested["cpu"], second.allocatable["cpu"]) == ("used", "a", 2000, 4000)
    assert second.allocatable["memory"] == 8 * 2**30


def test_results_are_given_as_frames(cluster: Cluster) -> None:
    usage = cluster.usage.to_frame()
    assert list(usage["requested.cpu"]) == [0, 2000]
    assert list(cluster.explain_pending().to_frame()["name"]) == ["next"]
    placed = cluster.simulate(Scenario(delete=["default/first"])).to_frame()
    assert placed[["pod", "node"]].to_dict("records") == [{"pod": "default/next", "node": "empty"}]
    moved = cluster.compare(POLICY).to_frame()
    assert list(moved.columns) == ["pod", "first", "firstOutcome", "second", "secondOutcome"]
    room = cluster.capacity([make_pod("p").req(cpu="1").obj()]).to_frame()
    assert dict(zip(room["node"], room["pods"], strict=True)) == {"used": 2, "empty": 4}
    explained = cluster.explain("default/next").to_frame().set_index("node")
    assert list(explained["fits"]) == [True, True]
    assert explained.loc["empty", "total"] == cluster.explain("default/next").to_dict()["total"]["empty"]
    assert list(replay(RECORDING).to_frame().columns)[:4] == ["step", "at", "what", "pod"]


def test_frames_without_rows_have_their_columns(cluster: Cluster) -> None:
    assert list(cluster.compare().to_frame().columns)[:2] == ["pod", "first"]
    assert list(Cluster(()).simulate().to_frame().columns) == ["pod", "node", "previous", "reason"]
    assert Listing[Any]().to_frame().empty


def test_without_pandas_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch, cluster: Cluster) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ExtenderError, match=r"pip install 'podseat\[pandas\]'"):
        cluster.usage.to_frame()


def test_a_notebook_shows_tables(cluster: Cluster) -> None:
    assert repr(cluster) == "Cluster(2 nodes, 1 pending pod)"
    for shown in (cluster, cluster.usage, cluster.explain_pending(), cluster.simulate(), cluster.compare(POLICY)):
        assert "<table" in shown._repr_html_()
    assert "cpu 2000" in cluster._repr_html_()
    assert Listing[Any]()._repr_html_()


def test_names_in_a_cluster_are_escaped_in_a_notebook() -> None:
    node = make_node("n").zone("<script>").capacity(cpu="1").obj()
    assert "<script>" not in Cluster.from_objects([json.loads(json.dumps(node))])._repr_html_()

"""`extender explain`: what it prints and how it exits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.builders import make_node, make_pod
from tests.cli.test_main import extender

NODES = [make_node("free").obj(), make_node("full").obj()]
FILLER = make_pod("filler").req(cpu="3").node("full").obj()
WAITING = make_pod("waiting").req(cpu="2").obj()


@pytest.fixture
def cluster(tmp_path: Path) -> str:
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [*NODES, FILLER, WAITING]}))
    return str(path)


def test_a_pod_of_the_cluster(cluster: str) -> None:
    told = extender("explain", "default/waiting", "--cluster", cluster)
    assert told.returncode == 0
    assert told.stdout.startswith("pod default/waiting: 1 of 2 nodes can take it\n")
    assert "Insufficient cpu" in told.stdout


@pytest.mark.parametrize("given", ["json", "yaml"])
def test_a_pod_of_a_file(given: str, cluster: str, tmp_path: Path) -> None:
    path = tmp_path / "pod"
    written = {"json": json.dumps(make_pod("new").obj()), "yaml": "kind: Pod\nmetadata: {name: new}\n"}
    path.write_text(written[given])
    told = extender("explain", "-f", str(path), "--cluster", cluster, "-o", "json")
    assert json.loads(told.stdout)["pod"] == "default/new"


def test_cases_from_standard_input() -> None:
    case = {"name": "a", "cluster": {"items": NODES}, "pod": WAITING}
    told = extender("explain", "--batch", given=json.dumps(case) + "\n")
    assert told.returncode == 0
    assert json.loads(told.stdout)["feasible"] == ["free", "full"]


@pytest.mark.parametrize("batch", [False, True], ids=["one pod", "batch"])
def test_a_policy_decides(batch: bool, cluster: str, tmp_path: Path) -> None:
    path = tmp_path / "policy.json"
    predicates = [{"name": "PodFitsHostPorts"}]
    path.write_text(json.dumps({"kind": "Policy", "apiVersion": "v1", "predicates": predicates, "priorities": []}))
    case = {"name": "a", "cluster": {"items": [*NODES, FILLER]}, "pod": WAITING}
    one = ["default/waiting", "--cluster", cluster, "-o", "json"]
    told = extender("explain", "--policy", str(path), *(["--batch"] if batch else one), given=json.dumps(case))
    assert json.loads(told.stdout)["feasible"] == ["free", "full"]


def test_a_bad_case_is_told_by_the_exit_status_too() -> None:
    case = {"name": "a", "cluster": {"items": NODES}, "pod": WAITING}
    told = extender("explain", "--batch", given="nonsense\n" + json.dumps(case) + "\n")
    assert told.returncode == 1
    assert ["error" in json.loads(line) for line in told.stdout.splitlines()] == [True, False]
    assert told.stderr == ""


@pytest.mark.parametrize(
    ("arguments", "status", "error"),
    [
        pytest.param(["default/p"], 2, "give one cluster", id="no cluster"),
        pytest.param(["--cluster", "x"], 2, "give one pod", id="no pod"),
        pytest.param(["p", "-f", "-", "--cluster", "x"], 2, "give one pod", id="two pods"),
        pytest.param(["p", "--cluster", "x", "--kubeconfig", "x"], 2, "give one cluster", id="two clusters"),
        pytest.param(["--batch", "--cluster", "x"], 2, "--batch reads", id="batch and cluster"),
        pytest.param(["p", "--cluster", "/none"], 1, "/none", id="no file"),
        pytest.param(["-f", "/none"], 2, "/none", id="no pod file"),
        pytest.param(["--batch", "--policy", "/none"], 2, "policy /none", id="no policy"),
        pytest.param(["default/nobody", "--cluster", "{cluster}"], 1, "no pod default/nobody", id="unknown pod"),
        pytest.param(["-f", "{cluster}", "--cluster", "{cluster}"], 1, "want one Pod", id="a list for a pod"),
    ],
)
def test_wrong_usage(arguments: list[str], status: int, error: str, cluster: str) -> None:
    told = extender("explain", *(argument.format(cluster=cluster) for argument in arguments))
    assert told.returncode == status
    assert error in told.stderr
    assert "Traceback" not in told.stderr
    assert told.stdout == ""

"""`extender explain`: what it prints and how it exits."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
import yaml

from tests.builders import make_node, make_pod
from tests.cli.commands import extender
from tests.cli.test_main import EXAMPLE

NODES = [make_node("free").obj(), make_node("full").obj()]
FILLER = make_pod("filler").req(cpu="3").node("full").obj()
WAITING = make_pod("waiting").req(cpu="2").obj()
TOO_BIG = make_pod("huge", "shop").req(cpu="9").obj()
LIST = {"apiVersion": "v1", "kind": "List", "items": [*NODES, FILLER, WAITING, TOO_BIG]}


@pytest.fixture
def cluster(tmp_path: Path) -> str:
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps(LIST))
    return str(path)


@pytest.mark.parametrize(
    "named",
    [["default/waiting"], ["waiting"], ["pod/waiting"], ["waiting", "-n", "default"], ["po/waiting", "-n", "default"]],
    ids=" ".join,
)
def test_a_pod_is_explained_from_the_cluster(named: list[str], cluster: str) -> None:
    printed = extender("explain", *named, "--cluster", cluster)
    assert printed.returncode == 0
    assert printed.stdout.startswith("pod default/waiting: 1/2 nodes are available\n")
    assert "Insufficient cpu" in printed.stdout


def test_a_pod_that_fits_nowhere_is_explained_with_status_3(cluster: str) -> None:
    printed = extender("explain", "huge", "-n", "shop", "--cluster", cluster)
    assert printed.returncode == 3
    assert "0/2 nodes are available: 2 Insufficient cpu." in printed.stdout
    assert "request 4 cpu instead of 9" in printed.stdout


def test_all_pending_pods_are_listed(cluster: str) -> None:
    printed = extender("explain", "--cluster", cluster)
    assert printed.returncode == 0
    assert printed.stdout.startswith("2 pending pods: 1 blocked (1 cause), 1 would fit now\n")
    of_shop = extender("explain", "--cluster", cluster, "-n", "shop", "-o", "json")
    assert [each["name"] for each in json.loads(of_shop.stdout)["pending"]] == ["huge"]


def test_node_by_node_and_one_node(cluster: str) -> None:
    wide = extender("explain", "waiting", "--cluster", cluster, "-o", "wide").stdout
    assert wide == extender("explain", "waiting", "--cluster", cluster, "--nodes").stdout
    assert "REFUSED BY" in wide
    one = extender("explain", "waiting", "--cluster", cluster, "--node", "full").stdout
    assert "NodeResourcesFit" in one
    assert "ON full" in one


@pytest.mark.parametrize("given", ["json", "yaml", "gz"])
def test_a_pod_is_explained_from_a_file(given: str, cluster: str, tmp_path: Path) -> None:
    path = tmp_path / "pod"
    pod = json.dumps(make_pod("new").obj()).encode()
    written = {
        "json": pod,
        "yaml": b"apiVersion: v1\nkind: Pod\nmetadata: {name: new}\nspec: {containers: [{name: c, image: i}]}\n",
        "gz": gzip.compress(pod),
    }
    path.write_bytes(written[given])
    printed = extender("explain", "-f", str(path), "--cluster", cluster, "-o", "json")
    assert json.loads(printed.stdout)["pod"] == "default/new"


def test_a_deployment_is_explained_from_its_file(cluster: str) -> None:
    template = {"metadata": {"labels": {"app": "x"}}, "spec": make_pod("x").req(cpu="9").obj()["spec"]}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {"selector": {"matchLabels": {"app": "x"}}, "template": template},
    }
    printed = extender("explain", "-f", "-", "--cluster", cluster, given=yaml.safe_dump(deployment))
    assert printed.returncode == 3
    assert printed.stdout.startswith("pod default/web: 0/2 nodes are available")


def test_json_and_yaml_say_the_same(cluster: str) -> None:
    as_json, as_yaml = (
        extender("explain", "huge", "-n", "shop", "--cluster", cluster, "-o", form) for form in ("json", "yaml")
    )
    assert json.loads(as_json.stdout) == yaml.safe_load(as_yaml.stdout)


@pytest.mark.parametrize("form", ["stdin", "gz", "dump", "one after another"])
def test_a_cluster_comes_in_many_forms(form: str, tmp_path: Path) -> None:
    path, given = tmp_path / "c.json.gz", None
    if form == "stdin":
        path, given = Path("-"), json.dumps(LIST)
    elif form == "gz":
        path.write_bytes(gzip.compress(json.dumps(LIST).encode()))
    elif form == "dump":
        path = tmp_path
        (path / "default").mkdir()
        (path / "nodes.json").write_text(json.dumps({"kind": "NodeList", "apiVersion": "v1", "items": NODES}))
        (path / "default/pods.json").write_text(json.dumps({"kind": "PodList", "apiVersion": "v1", "items": [WAITING]}))
    else:
        path = tmp_path / "c.json"
        path.write_text("\n".join(json.dumps(obj) for obj in (*NODES, FILLER, WAITING)))
    printed = extender("explain", "waiting", "--cluster", str(path), given=given)
    assert (printed.returncode, printed.stderr) == (0, "")


def test_cases_are_read_from_standard_input() -> None:
    case = {"name": "a", "cluster": {"items": NODES}, "pod": WAITING}
    printed = extender("explain", "--batch", given=json.dumps(case) + "\n")
    assert printed.returncode == 0
    assert json.loads(printed.stdout)["feasible"] == ["free", "full"]


@pytest.mark.parametrize("batch", [False, True], ids=["one pod", "batch"])
def test_a_policy_decides(batch: bool, cluster: str, tmp_path: Path) -> None:
    path = tmp_path / "policy.json"
    predicates = [{"name": "PodFitsHostPorts"}]
    path.write_text(json.dumps({"kind": "Policy", "apiVersion": "v1", "predicates": predicates, "priorities": []}))
    case = {"name": "a", "cluster": {"items": [*NODES, FILLER]}, "pod": WAITING}
    one = ["default/waiting", "--cluster", cluster, "-o", "json"]
    printed = extender("explain", "--policy", str(path), *(["--batch"] if batch else one), given=json.dumps(case))
    assert json.loads(printed.stdout)["feasible"] == ["free", "full"]


def test_a_rule_that_raises_is_one_line(cluster: str, tmp_path: Path) -> None:
    (tmp_path / "dividing_rules.py").write_text(
        "from extender import predicate\n\n\n@predicate\ndef bad(pod, node):\n    return 1 / 0\n"
    )
    kind = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    plugins = {"filter": {"enabled": [{"name": "dividing_rules:bad"}]}}
    policy = {**kind, "profiles": [{"schedulerName": "default-scheduler", "plugins": plugins}]}
    (tmp_path / "policy.yaml").write_text(yaml.safe_dump(policy))
    printed = extender("explain", "waiting", "--cluster", cluster, "--policy", str(tmp_path / "policy.yaml"))
    assert printed.returncode == 1
    assert len(printed.stderr.splitlines()) == 1
    assert "rule dividing_rules:bad raised ZeroDivisionError: division by zero" in printed.stderr


def test_a_bad_case_sets_the_exit_status() -> None:
    case = {"name": "a", "cluster": {"items": NODES}, "pod": WAITING}
    printed = extender("explain", "--batch", given="nonsense\n" + json.dumps(case) + "\n")
    assert printed.returncode == 1
    assert ["error" in json.loads(line) for line in printed.stdout.splitlines()] == [True, False]
    assert printed.stderr == ""


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        pytest.param(["default/p", "--kubeconfig", "/none"], "kubeconfig /none: no such file", id="no cluster"),
        pytest.param(["--cluster", "x", "--node", "n"], "need a pod", id="no pod"),
        pytest.param(["p", "-f", "-", "--cluster", "x"], "give one pod", id="two pods"),
        pytest.param(["p", "--cluster", "x", "--kubeconfig", "x"], "give one cluster", id="two clusters"),
        pytest.param(
            ["p", "--cluster", "x", "--context", "c"],
            "--context, --as and --as-group are about a live cluster",
            id="context of a file",
        ),
        pytest.param(
            ["a/b/c", "--cluster", "{cluster}"], "a/b/c: expected NAME, NAMESPACE/NAME", id="pod of three parts"
        ),
        pytest.param(["--batch", "--cluster", "x"], "--batch reads", id="batch and cluster"),
        pytest.param(["-f", "-", "--cluster", "-"], "cannot both read standard input", id="standard input twice"),
        pytest.param(["p", "--cluster", "/none"], "/none", id="no file"),
        pytest.param(["-f", "/none"], "/none", id="no pod file"),
        pytest.param(["--batch", "--policy", "/none"], "policy /none", id="no policy"),
        pytest.param(["default/nobody", "--cluster", "{cluster}"], "no pod default/nobody", id="unknown pod"),
        pytest.param(
            ["default/hugo", "--cluster", "{cluster}"], "(did you mean shop/huge?)", id="a pod nearly so called"
        ),
        pytest.param(
            ["ml/recommend", "--cluster", str(EXAMPLE)],
            "(did you mean ml/recommend-7f6d-v4nzs, ml/recommend-7f6d-c5tqw or ml/recommend-7f6d-r9xjk?)",
            id="a Deployment's name",
        ),
        pytest.param(
            ["waiting", "--node", "ful", "--cluster", "{cluster}"], "(did you mean full?)", id="a node nearly so called"
        ),
        pytest.param(["waiting", "--node", "n", "--cluster", "{cluster}"], "no node n", id="unknown node"),
    ],
)
def test_wrong_usage_is_refused(arguments: list[str], error: str, cluster: str) -> None:
    printed = extender("explain", *(argument.format(cluster=cluster) for argument in arguments))
    assert printed.returncode == 2
    assert error in printed.stderr
    assert "Traceback" not in printed.stderr
    assert printed.stdout == ""

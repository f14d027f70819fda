"""`extender simulate`, `capacity` and `compare`: what they print and how they exit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tests.builders import make_claim, make_device_class, make_node, make_pod, make_request, make_resource_slice
from tests.cli.commands import extender

NODES = [make_node(name).capacity(cpu="4").obj() for name in ("one", "two")]
STANDING = (
    make_pod("web-5d8f-a", "shop").label(app="web").req(cpu="1").owner("ReplicaSet", "web-5d8f").node("one").obj()
)
WAITING = make_pod("waiting").req(cpu="2").obj()


@pytest.fixture
def cluster(tmp_path: Path) -> str:
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [*NODES, STANDING, WAITING]}))
    return str(path)


@pytest.fixture
def pod(tmp_path: Path) -> str:
    path = tmp_path / "pod.yaml"
    path.write_text(yaml.safe_dump(make_pod("new").req(cpu="1").obj()))
    return str(path)


def test_simulate_places_the_waiting_pods(cluster: str) -> None:
    printed = extender("simulate", "--cluster", cluster)
    assert (printed.returncode, printed.stderr) == (0, "")
    assert printed.stdout.startswith("1 pod placed, 0 pending, 0 evicted\n")


@pytest.mark.parametrize(
    ("changes", "status", "placed"),
    [
        pytest.param(["--drain", "one"], 0, {"shop/web-5d8f-a": "two"}, id="drain"),
        pytest.param(["--remove-node", "one", "--delete", "waiting"], 0, {"shop/web-5d8f-a": "two"}, id="remove"),
        pytest.param(["--cordon", "one"], 0, {"default/waiting": "two"}, id="cordon"),
        pytest.param(["-n", "shop", "--scale", "deploy/web=4", "--cordon", "one"], 3, {}, id="scale"),
        pytest.param(["--scale", "shop/deploy/web=2", "--add-node", "two=2"], 0, {}, id="add"),
    ],
)
def test_simulate_applies_changes_before_it_places_pods(
    changes: list[str], status: int, placed: dict[str, str], cluster: str
) -> None:
    printed = extender("simulate", "--cluster", cluster, "-o", "json", *changes)
    assert printed.returncode == status
    homes = {each["pod"]: each["node"] for each in json.loads(printed.stdout)["placements"]}
    assert homes.items() >= placed.items()


def test_new_pods_and_a_new_node_of_a_file(cluster: str, pod: str, tmp_path: Path) -> None:
    (tmp_path / "node.yaml").write_text(yaml.safe_dump(make_node("big").capacity(cpu="64").obj()))
    many = extender("simulate", "--cluster", cluster, "-f", pod, "--replicas", "10")
    assert (many.returncode, many.stdout.splitlines()[0]) == (3, "6 pods placed, 5 pending, 0 evicted")
    more = extender(
        "simulate", "--cluster", cluster, "-f", pod, "--replicas", "10", "--add-node", str(tmp_path / "node.yaml")
    )
    assert more.returncode == 0


def test_the_devices_and_volumes_of_a_new_node_are_in_its_file(tmp_path: Path) -> None:
    lists = {
        "cluster": [make_node("one").capacity(cpu="1").obj(), make_device_class("gpu")],
        "node": [
            make_node("big").capacity(cpu="64").obj(),
            *(make_resource_slice(name, "gpu.example.com", "g0", "g1") for name in ("big", "another")),
        ],
        "pod": [
            make_claim("c", make_request("r", "gpu", count=2)),
            make_pod("p").req(cpu="1").resource_claim("c").obj(),
        ],
    }
    for name, items in lists.items():
        (tmp_path / f"{name}.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    cluster, node, pod = (str(tmp_path / f"{name}.json") for name in lists)
    note = "new nodes like big: left out, because no driver reports them for node big alone: 1 ResourceSlice"
    for command, answer in (
        ("simulate", "1 pod placed, 0 pending, 0 evicted"),
        ("capacity", "64 more pods would fit"),
        ("explain", "would be placed on big-new-1"),
    ):
        arguments = (command, "--cluster", cluster, "-f", pod, "--add-node", node)
        assert extender(*arguments[:-2]).stdout.count(answer) == 0
        printed = extender(*arguments)
        assert printed.returncode == 0
        assert printed.stdout.count(answer) == printed.stdout.count(f"note: {note}\n") == 1


def test_a_node_whose_name_has_a_dot_is_copied(tmp_path: Path) -> None:
    name = "ip-10-0-1-5.ec2.internal"
    items = [make_node(name).capacity(cpu="2").obj(), *(make_pod(f"p{n}").req(cpu="2").obj() for n in range(3))]
    (tmp_path / "cluster.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    answer = extender("simulate", "--cluster", str(tmp_path / "cluster.json"), "--add-node", f"{name}=2")
    assert (answer.stderr, answer.returncode) == ("", 0)
    assert answer.stdout.startswith("3 pods placed, 0 pending")


def test_capacity_counts_the_pods_that_would_fit(cluster: str, pod: str) -> None:
    printed = extender("capacity", "--cluster", cluster, "-f", pod)
    assert printed.returncode == 0
    assert printed.stdout.startswith("7 more pods would fit\n")
    assert json.loads(extender("capacity", "--cluster", cluster, "-f", pod, "-o", "json").stdout)["pods"] == {
        "Pod default/new": 7
    }


@pytest.mark.parametrize("kind", ["deploy", "Deployments", "deployment.apps"])
def test_room_for_more_replicas_of_a_workload(kind: str, cluster: str) -> None:
    answer = extender("capacity", "-n", "shop", f"{kind}/web", "--cluster", cluster, "-o", "json")
    assert json.loads(answer.stdout)["pods"] == {f"shop/{kind}/web": 7}
    missing = extender("capacity", "deploy/none", "--cluster", cluster)
    assert (missing.returncode, missing.stdout) == (2, "")
    assert "no Deployment default/none in this cluster" in missing.stderr


@pytest.mark.parametrize(("limits", "status"), [([], 0), (["--max-moved", "1"], 0), (["--max-pending", "0"], 3)])
def test_a_comparison_is_a_check(limits: list[str], status: int, cluster: str, pod: str, tmp_path: Path) -> None:
    kind = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    (tmp_path / "next.yaml").write_text(yaml.safe_dump({**kind, "profiles": [{"schedulerName": "default-scheduler"}]}))
    common = ["--cluster", cluster, "-f", pod, "--replicas", "9", "--policy", str(tmp_path / "next.yaml")]
    printed = extender("compare", *common, *limits)
    assert printed.returncode == status
    assert "defaults" in printed.stdout
    assert "next.yaml" in printed.stdout
    assert ("too many pods pending or lost: 4, the limit is 0" in printed.stderr) is (status == 3)


def test_a_running_pod_that_only_the_second_policy_evicts_fails_the_check(tmp_path: Path) -> None:
    items = [
        make_node("one").capacity(cpu="4").obj(),
        make_node("two").capacity(cpu="4").taint("dedicated").obj(),
        make_pod("running").req(cpu="3").node("one").obj(),
        make_pod("urgent").req(cpu="3").priority(10).obj(),
    ]
    (tmp_path / "cluster.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    kind = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    off = {"multiPoint": {"disabled": [{"name": "TaintToleration"}]}}
    for name, plugins in (("now.yaml", off), ("next.yaml", {})):
        profile = {"schedulerName": "default-scheduler", "plugins": plugins}
        (tmp_path / name).write_text(yaml.safe_dump({**kind, "profiles": [profile]}))
    policies = ["--policy", str(tmp_path / "now.yaml"), "--policy", str(tmp_path / "next.yaml")]
    answer = extender("compare", "--cluster", str(tmp_path / "cluster.json"), *policies, "--max-pending", "0")
    assert (answer.returncode, answer.stderr) == (3, "too many pods pending or lost: 1, the limit is 0\n")
    assert "default/running  one       lost" in answer.stdout
    moved = extender("compare", "--cluster", str(tmp_path / "cluster.json"), *policies, "--max-moved", "1")
    assert (moved.returncode, moved.stderr) == (3, "too many pods with another outcome: 2, the limit is 1\n")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        pytest.param(["simulate", "--drain", "three"], "no node three", id="node"),
        pytest.param(["simulate", "--scale", "web"], "--scale web: expected [NAMESPACE/]KIND/NAME=N", id="scale"),
        pytest.param(["simulate", "--scale", "deploy/x=2"], "no Deployment default/x in this cluster", id="workload"),
        pytest.param(["simulate", "-f", "/none"], "/none", id="no file"),
        pytest.param(["simulate", "--replicas", "5"], "--replicas needs -f FILE", id="replicas of none"),
        pytest.param(["simulate", "--add-node", "two=x"], "--add-node two=x: expected NODE=N", id="no number"),
        pytest.param(["simulate", "--add-node", "{cluster}"], "expected a file with one Node, got 2", id="two nodes"),
        pytest.param(["capacity"], "give a template with -f FILE, or a workload such as deploy/web", id="no template"),
        pytest.param(["simulate", "-f", "-", "-f", "-"], "cannot both read standard input", id="standard input twice"),
        pytest.param(
            ["capacity", "-f", "{cluster}", "--weight", "1"],
            "expected one --weight for each template, got 1 for 2",
            id="weights",
        ),
        pytest.param(["compare", "--policy", "/none"], "policy /none", id="no policy"),
        pytest.param(["compare"], "expected one or two policies", id="nothing to compare"),
        pytest.param(["compare", *["--policy", "x"] * 3], "--policy FILE), got 3", id="three policies"),
    ],
)
def test_wrong_usage_is_refused(arguments: list[str], error: str, cluster: str) -> None:
    printed = extender(*(each.format(cluster=cluster) for each in arguments), "--cluster", cluster)
    assert printed.returncode == 2
    assert error in printed.stderr
    assert "Traceback" not in printed.stderr
    assert printed.stdout == ""

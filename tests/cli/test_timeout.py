"""Every question ends, however hard it is: --timeout, Ctrl-C, and numbers that are counted and never built."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from extender.runtime.questions import in_child
from tests.builders import make_node, make_pod, make_pod_group
from tests.cli.commands import extender
from tests.running import EXTENDER, command_running

pytestmark = pytest.mark.processes

MIB = 1 << 20
NOT_BUILT = 2**31 - 1
NO_ANSWER_IN_TIME = 4


def device_claim(name: str, requests: list[dict[str, Any]], **devices: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "ml", "uid": name}
    spec = {"devices": {"requests": requests, **devices}}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": metadata, "spec": spec}


def cluster_of(*items: dict[str, Any]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})


def hard_cluster() -> str:
    """A pod whose claim has 17 requests with a constraint that no 17 of 100 devices satisfy, on any of four nodes.

    The search on one node ends after some seconds, as in kube-scheduler.
    """
    nodes = ("n", "n-2", "n-3", "n-4")
    devices = [
        {"name": f"g{n}", "attributes": {"a": {"int": n % 7}, "b": {"int": n}, "z": {"int": n % 5}}} for n in range(100)
    ]
    slices = [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": f"s-{node}"},
            "spec": {
                "driver": "d.example.com",
                "nodeName": node,
                "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
                "devices": devices,
            },
        }
        for node in nodes
    ]
    device_class = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "gpu"}, "spec": {}}
    requests = [
        {
            "name": f"r{n}",
            "exactly": {
                "deviceClassName": "gpu",
                "selectors": [{"cel": {"expression": f"device.attributes['d.example.com'].b >= {n}"}}],
            },
        }
        for n in range(17)
    ]
    claim = device_claim("rc", requests, constraints=[{"matchAttribute": "d.example.com/a"}])
    pod = make_pod("p", namespace="ml").obj()
    pod["spec"]["resourceClaims"] = [{"name": "x", "resourceClaimName": "rc"}]
    return cluster_of(*(make_node(node).obj() for node in nodes), device_class, *slices, claim, pod)


@pytest.fixture(scope="module")
def hard(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("hard") / "cluster.json"
    path.write_text(hard_cluster())
    return path


@pytest.mark.parametrize(
    ("arguments", "known"),
    [
        pytest.param(("explain", "ml/p"), "", id="a pod", marks=pytest.mark.slow),
        pytest.param(("simulate",), "; 0 of 1 pod are placed", id="a simulation"),
    ],
)
def test_a_question_ends_in_time_and_says_what_took_it(hard: Path, arguments: tuple[str, ...], known: str) -> None:
    done = subprocess.run(
        [EXTENDER, *arguments, "--cluster", hard, "--timeout", "15"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (NO_ANSWER_IN_TIME, "")
    printed = f"no answer within 15 s: the claim ml/rc took the time; pod ml/p needs it{known}"
    assert done.stderr == f"error: {printed} (--timeout sets the limit)\n"


def listed(path: Path) -> dict[str, Any]:
    """Returns the list of all pending pods of a cluster, as JSON."""
    done = subprocess.run(
        [EXTENDER, "explain", "-A", "--cluster", path, "--timeout", "20", "-o", "json"],
        capture_output=True,
        text=True,
        check=False,
    )
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_a_list_names_the_pod_that_takes_too_long_and_answers_the_others(hard: Path, tmp_path: Path) -> None:
    items = json.loads(hard.read_text())["items"]
    easy = [make_pod(f"easy-{n}", namespace="ml").node_selector(none="here").obj() for n in range(5)]
    path = tmp_path / "cluster.json"
    path.write_text(cluster_of(*items, *easy))
    blockers = {each["name"]: each["blocker"] for each in listed(path)["pending"]}
    late = blockers.pop("p")
    assert late == "no verdict within its share of the time: the claim ml/rc took the time; pod ml/p needs it"
    assert set(blockers) == {f"easy-{n}" for n in range(5)}
    assert all("affinity/selector" in blocker for blocker in blockers.values())


@pytest.mark.slow
def test_a_list_names_the_group_that_takes_too_long_once(hard: Path, tmp_path: Path) -> None:
    *items, pod = json.loads(hard.read_text())["items"]
    group = {"schedulingGroup": {"podGroupName": "g"}}
    members = [
        {**pod, "metadata": {**pod["metadata"], "name": f"m-{n}", "uid": f"m-{n}"}, "spec": {**pod["spec"], **group}}
        for n in range(4)
    ]
    path = tmp_path / "cluster.json"
    path.write_text(cluster_of(*items, make_pod_group("g", 4, namespace="ml"), *members))
    answer = listed(path)
    [summary] = answer["groups"]
    late = "no verdict within its share of the time: the claim ml/rc took the time"
    assert (summary["name"], summary["code"], summary["waiting"]) == ("g", "NoVerdict", 4)
    assert summary["blocker"].startswith(late)
    assert [each["blocker"].startswith(late) for each in answer["pending"]] == [True] * 4


@pytest.mark.slow
def test_each_case_of_a_batch_has_its_own_time(hard: Path) -> None:
    items = json.loads(hard.read_text())["items"]
    easy = {"name": "easy", "cluster": {"items": items[:1]}, "pod": make_pod("q").obj()}
    cases = [{"name": "hard", "cluster": {"items": items}, "pod": items[-1]}, easy]
    done = subprocess.run(
        [EXTENDER, "explain", "--batch", "--timeout", "10"],
        input="".join(json.dumps(case) + "\n" for case in cases),
        capture_output=True,
        text=True,
        check=False,
    )
    first, second = map(json.loads, done.stdout.splitlines())
    assert first["error"].startswith("line 1: no answer within 10 s: the claim ml/rc took the time")
    assert second["fits"]


SEARCHING_CPU_SECONDS = 4.0  # the command starts in less, and the search lasts for minutes


def cpu_seconds(pid: int) -> float:
    """Returns the CPU time that the process has used, as Linux counts it."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_ctrl_c_says_what_took_the_time(hard: Path) -> None:
    command: list[str | Path] = [EXTENDER, "explain", "ml/p", "--timeout=0", "--cluster", hard]
    with command_running(command, stderr=subprocess.PIPE) as running:
        while cpu_seconds(running.pid) < SEARCHING_CPU_SECONDS:  # a busy machine takes long to start it
            time.sleep(0.1)
        running.send_signal(signal.SIGINT)
        _, printed = running.communicate()
    assert running.returncode == -signal.SIGINT
    assert printed == "interrupted: the claim ml/rc took the time; pod ml/p needs it\n"


def gang(minimum: int) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "g", "namespace": "default"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": minimum}}},
    }


def member(name: str) -> dict[str, Any]:
    pod = make_pod(name).req(cpu="1").obj()
    pod["spec"]["schedulingGroup"] = {"podGroupName": "g"}
    return pod


def test_members_that_a_gang_lacks_are_counted_and_not_built() -> None:
    def changes() -> list[str]:
        from extender import Cluster
        from extender.snapshots.objects import to_objects

        cluster = Cluster(
            to_objects([make_node("n").capacity(cpu="8", pods="110").obj(), gang(NOT_BUILT), member("a")])
        )
        return [change.text for change in cluster.explain_group("default/g").changes]

    assert in_child(changes, memory_bytes=256 * MIB) == [f"lower minCount of g from {NOT_BUILT} to 1"]


def test_a_gang_that_no_cluster_holds_is_counted_and_not_built() -> None:
    def counts() -> tuple[int, int, bool]:
        from extender import Cluster
        from extender.snapshots.objects import to_objects

        cluster = Cluster(to_objects([make_node("n").capacity(cpu="8", pods="110").obj(), gang(NOT_BUILT)]))
        result = cluster.capacity([member("a")])
        return result.total, sum(each.count for each in result.gangs.values()), result.limited

    assert in_child(counts, memory_bytes=256 * MIB) == (0, 0, False)


@pytest.mark.parametrize("count", ["²", "9" * 5000, "", "-1", "1e3"])
@pytest.mark.parametrize("option", ["--add-node", "--scale"])
def test_a_number_that_is_none_is_a_wrong_usage(hard: Path, option: str, count: str) -> None:
    argument = f"{'n' if option == '--add-node' else 'deploy/web'}={count}"
    done = extender("simulate", "--cluster", str(hard), option, argument)
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {option} ")
    assert "Traceback" not in done.stderr

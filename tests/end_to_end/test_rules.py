"""Rules of users in a running process: they wake the pods that they refused, and change while it runs."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.builders import Object, PodBuilder, make_pod, make_priority_class
from tests.end_to_end.conftest import StartExtender, StartScheduler
from tests.end_to_end.scheduling import condition, events, placed, sized
from tests.running import SCHEDULER_NAME
from tests.stock.build import NEXT_MINOR
from tests.stock.control_plane import ControlPlane
from tests.stock.waiting import wait_until

pytestmark = pytest.mark.stock
LICENCES = Path(__file__).parents[2] / "examples" / "rules" / "licences.py"
LICENCE, RULE = "example.com/licence", "licences:licence_left"
LOOK_SECONDS = 0.1


def policy_of(rule: str, arguments: dict[str, Any], point: str = "filter") -> str:
    plugins = {point: {"enabled": [{"name": rule}]}}
    profile = {
        "schedulerName": SCHEDULER_NAME,
        "plugins": plugins,
        "pluginConfig": [{"name": rule, "args": arguments}],
    }
    header = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    return json.dumps({**header, "profiles": [profile]})


@pytest.fixture
def licensed(control_plane: ControlPlane, tmp_path: Path) -> Path:
    """A folder with the rule, its policy and a number of licences, 0; a node, and a pod that waits for a licence."""
    shutil.copy(LICENCES, tmp_path)
    (tmp_path / "count").write_text("0")
    arguments = {"resource": LICENCE, "file": str(tmp_path / "count"), "look_every_seconds": LOOK_SECONDS}
    (tmp_path / "policy.yaml").write_text(policy_of(RULE, arguments))
    node = sized("n", "4").capacity({LICENCE: "100"})
    control_plane.client.create(node.obj(), make_pod("p").req({LICENCE: "1"}).limit({LICENCE: "1"}).obj())
    return tmp_path


def refused(control_plane: ControlPlane) -> bool:
    return "more licences than there are" in condition(control_plane, "p").get("message", "")


def test_kube_scheduler_tries_a_pod_again_that_the_rule_wakes(
    control_plane: ControlPlane, start_extender: StartExtender, licensed: Path
) -> None:
    flags = ("--policy", str(licensed / "policy.yaml"), "--activate-after-seconds", "0")
    with start_extender(*flags) as extender, control_plane.scheduler(extender.configuration()):
        assert wait_until(lambda: refused(control_plane))
        # Its condition is an update of the pod, for which it is tried once more.
        assert wait_until(lambda: len(extender.calls("filter")) > 1)
        (licensed / "count").write_text("1")
        assert wait_until(lambda: placed(control_plane) == {"p": "n"})


@pytest.mark.slow
def test_the_loop_tries_a_pod_again_that_the_rule_wakes(
    control_plane: ControlPlane, start_scheduler: StartScheduler, licensed: Path
) -> None:
    with start_scheduler("--policy", str(licensed / "policy.yaml")):
        assert wait_until(lambda: refused(control_plane))
        (licensed / "count").write_text("1")
        assert wait_until(lambda: placed(control_plane) == {"p": "n"})


GATE = "from extender import predicate\n\n@predicate\ndef gate(pod, node):\n    return {answer}\n"
CLOSED, OPEN, BROKEN = (GATE.format(answer=answer) for answer in ('"the gate is closed"', "True", "("))


@pytest.fixture
def gated(control_plane: ControlPlane, tmp_path: Path) -> Path:
    """A folder with a rule that refuses every node, and its policy; a node, and a pod that waits."""
    (tmp_path / "gates.py").write_text(CLOSED)
    (tmp_path / "policy.yaml").write_text(policy_of("gates:gate", {}))
    control_plane.client.create(sized("n", "4").obj(), make_pod("p").obj())
    return tmp_path


def is_refused_by_the_gate(control_plane: ControlPlane) -> bool:
    return "the gate is closed" in condition(control_plane, "p").get("message", "")


@pytest.mark.slow
def test_a_webhook_reads_its_rules_again_at_sighup(
    control_plane: ControlPlane, start_extender: StartExtender, gated: Path
) -> None:
    flags = ("--policy", str(gated / "policy.yaml"))
    with start_extender(*flags) as extender, control_plane.scheduler(extender.configuration()):
        assert wait_until(lambda: is_refused_by_the_gate(control_plane))
        assert wait_until(lambda: len(extender.calls("filter")) > 1)
        for text, result in ((BROKEN, "failure"), (OPEN, "success")):
            (gated / "gates.py").write_text(text)
            os.kill(extender.process.pid, signal.SIGHUP)
            sample = f'extender_policy_reloads_total{{result="{result}"}}'
            assert wait_until(partial(extender.metric, sample)) == 1
        assert wait_until(lambda: placed(control_plane) == {"p": "n"})


@pytest.mark.slow
def test_a_loop_reads_changed_rules_again_and_reports_those_that_do_not_load(
    control_plane: ControlPlane, start_scheduler: StartScheduler, gated: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EXTENDER_OWN_NAMESPACE", "default")
    own = socket.gethostname()
    control_plane.client.create(make_pod(own).scheduler("other").obj())
    with start_scheduler("--policy", str(gated / "policy.yaml")) as scheduler:
        assert wait_until(lambda: is_refused_by_the_gate(control_plane))
        (gated / "gates.py").write_text(BROKEN)
        [event] = wait_until(lambda: events(control_plane, "PolicyReloadFailed"))
        assert (event["type"], event["involvedObject"]["name"]) == ("Warning", own)
        assert "gates:gate cannot be imported: gates.py:5: SyntaxError" in event["message"]
        assert scheduler.metric("extender_policy_last_reload_successful") == 0
        (gated / "gates.py").write_text(OPEN)
        assert wait_until(lambda: placed(control_plane) == {"p": "n"})
        assert wait_until(lambda: scheduler.metric("extender_policy_last_reload_successful") == 1)
        assert wait_until(lambda: events(control_plane, "PolicyReloaded"))


PAINT, PAINTERS = "example.com/paint", "painters:one_painter"
PAINTERS_FILE = """
from extender import PodInfo, Rows, Table, predicate


@predicate(sees_pods=True)
def one_painter(pod: PodInfo, table: Table, rows: Rows) -> object:
    taken = table.nodes.requested[table.nodes.resources["example.com/paint"]][rows]
    return {"node(s) had a painter": (pod.requests.get("example.com/paint", 0) == 0) | (taken == 0)}
"""


def painter(name: str, priority_class: str) -> PodBuilder:
    return make_pod(name).req({PAINT: "1"}).limit({PAINT: "1"}).priority_class(priority_class)


def leaving(control_plane: ControlPlane) -> list[str]:
    pods = control_plane.client.list("Pod")
    return [each["metadata"]["name"] for each in pods if "deletionTimestamp" in each["metadata"]]


@pytest.fixture
def painters(control_plane: ControlPlane, tmp_path: Path) -> Path:
    """The policy of a rule that lets no node have two painters; two nodes that have one each."""
    (tmp_path / "painters.py").write_text(PAINTERS_FILE)
    (tmp_path / "policy.yaml").write_text(policy_of(PAINTERS, {}))
    nodes = [sized(name, "4").capacity({PAINT: "9"}).obj() for name in ("n1", "n2")]
    classes = [make_priority_class(name, value) for name, value in (("high", 1000), ("low", 1))]
    lows = [painter(f"low-{name}", "low").node(name).grace(60).obj() for name in ("n1", "n2")]
    control_plane.client.create(*nodes, *classes, *lows)
    return tmp_path / "policy.yaml"


def test_room_is_made_for_a_pod_that_rules_alone_refuse(
    control_plane: ControlPlane, start_extender: StartExtender, painters: Path
) -> None:
    """kube-scheduler evicts no pod for it: its own plugins let it pass. While one victim leaves no other does.

    Since 1.38 it asks the extender for victims and evicts them, and does not try the pod again before they are gone.
    """
    evicts_itself = os.environ.get("KUBERNETES_MINOR") == NEXT_MINOR
    client, flags = control_plane.client, ("--policy", str(painters), "--preempt-for-rules")
    with start_extender(*flags) as extender, control_plane.scheduler(extender.configuration()):
        client.create(painter("p", "high").obj())
        assert wait_until(lambda: leaving(control_plane))
        (victim,) = leaving(control_plane)
        node_name = victim.removeprefix("low-")
        assert wait_until(lambda: client.get("Pod", "p")["status"].get("nominatedNodeName") == node_name)
        asked = len(extender.calls("filter"))
        client.create(sized("n3", "1").taint("for-others", "").obj())  # an event, for which p is tried again
        assert evicts_itself or wait_until(lambda: len(extender.calls("filter")) > asked)
        assert leaving(control_plane) == [victim]
        assert wait_until(
            lambda: [each["involvedObject"]["name"] for each in events(control_plane, "Preempted")] == [victim]
        )
        assert extender.metric("extender_preemption_victims_total") == (0 if evicts_itself else 1)
        client.delete("Pod", victim)
        assert wait_until(lambda: placed(control_plane).get("p") == node_name)
    assert leaving(control_plane) == []


def member(name: str, gang: str) -> Object:
    """A pod of a gang of three."""
    return make_pod(name).label({"example.com/gang": gang}).annotation({"example.com/gang-size": "3"}).obj()


@pytest.fixture
def gangs(control_plane: ControlPlane, tmp_path: Path) -> Path:
    """The policy of gangs, whose pods wait 2 s; a node, and two pods of a gang that is not whole.

    The scheduler must bring the three pods of a whole gang to Permit within this time.
    """
    shutil.copy(LICENCES.with_name("gang.py"), tmp_path)
    (tmp_path / "policy.yaml").write_text(policy_of("gang:whole_gang", {"wait_seconds": 2.0}, "permit"))
    control_plane.client.create(sized("n", "4").obj(), member("a1", "a"), member("a2", "a"))
    return tmp_path / "policy.yaml"


def whole_gangs_are_bound(control_plane: ControlPlane) -> None:
    def has_waited(name: str) -> bool:
        return "rejected due to timeout after waiting 2s" in condition(control_plane, name).get("message", "")

    assert wait_until(lambda: has_waited("a1") or has_waited("a2"))
    control_plane.client.create(*(member(f"b{number}", "b") for number in range(3)), make_pod("alone").obj())
    assert wait_until(lambda: placed(control_plane) == dict.fromkeys(("alone", "b0", "b1", "b2"), "n"))


def test_gangs_wait_in_bind_under_kube_scheduler(
    control_plane: ControlPlane, start_extender: StartExtender, gangs: Path
) -> None:
    with start_extender("--policy", str(gangs)) as extender, control_plane.scheduler(extender.configuration()):
        whole_gangs_are_bound(control_plane)


@pytest.mark.slow
def test_gangs_wait_in_the_loop(control_plane: ControlPlane, start_scheduler: StartScheduler, gangs: Path) -> None:
    with start_scheduler("--policy", str(gangs)):
        whole_gangs_are_bound(control_plane)

"""Rules of users in a running process: they wake the pods that they refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.builders import make_pod
from tests.end_to_end.conftest import StartExtender, StartScheduler
from tests.end_to_end.scheduling import condition, placed, sized
from tests.running import SCHEDULER_NAME
from tests.stock.control_plane import ControlPlane
from tests.stock.waiting import wait_until

pytestmark = pytest.mark.stock
LICENCES = Path(__file__).parents[2] / "examples" / "rules" / "licences.py"
LICENCE, RULE = "example.com/licence", "licences:licence_left"
LOOK_SECONDS = 0.1


def policy_of(rule: str, arguments: dict[str, Any]) -> str:
    plugins = {"filter": {"enabled": [{"name": rule}]}}
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


def test_the_loop_tries_a_pod_again_that_the_rule_wakes(
    control_plane: ControlPlane, start_scheduler: StartScheduler, licensed: Path
) -> None:
    with start_scheduler("--policy", str(licensed / "policy.yaml")):
        assert wait_until(lambda: refused(control_plane))
        (licensed / "count").write_text("1")
        assert wait_until(lambda: placed(control_plane) == {"p": "n"})

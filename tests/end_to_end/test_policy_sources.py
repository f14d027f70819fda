"""The sources of the rules of `extender schedule`: files and ConfigMaps, several profiles, or none."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.builders import Object, make_node, make_pod
from tests.end_to_end.conftest import StartScheduler
from tests.end_to_end.scheduling import placed
from tests.running import EXTENDER, SCHEDULER_NAME
from tests.stock.control_plane import ControlPlane
from tests.stock.waiting import wait_until

pytestmark = [pytest.mark.stock, pytest.mark.slow]


def node(name: str) -> Object:
    return make_node(name).label(rack=name).capacity(cpu="4", memory="8Gi", pods="110").obj()


@pytest.fixture(autouse=True)
def half_full(control_plane: ControlPlane) -> None:
    """Nodes a, half full, and b, empty; a pod that may go to either."""
    control_plane.client.create(node("a"), node("b"), make_pod("there").req(cpu="2", memory="4Gi").node("a").obj())
    control_plane.client.create(make_pod("p").req(cpu="1", memory="1Gi").obj())


def place(control_plane: ControlPlane, pod: str = "p") -> str:
    return wait_until(lambda: placed(control_plane).get(pod, ""))


def test_without_a_policy_emptier_nodes_are_preferred(
    control_plane: ControlPlane, start_scheduler: StartScheduler
) -> None:
    with start_scheduler():
        assert place(control_plane) == "b"


PACKING = {
    "apiVersion": "v1",
    "kind": "Policy",
    "predicates": [{"name": "PodFitsResources"}],
    "priorities": [{"name": "MostRequestedPriority", "weight": 1}],
}


def config_map(name: str, policy: Any) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "default"},
        "data": {"policy.cfg": yaml.safe_dump(policy)},
    }


def test_the_classic_policy_of_a_file(
    control_plane: ControlPlane, start_scheduler: StartScheduler, tmp_path: Path
) -> None:
    path = tmp_path / "policy.json"
    path.write_text(yaml.safe_dump(PACKING))
    with start_scheduler("--policy", str(path)):
        assert place(control_plane) == "a"


def test_the_classic_policy_of_a_config_map_and_what_it_is_changed_to(
    control_plane: ControlPlane, start_scheduler: StartScheduler
) -> None:
    spreading = {**PACKING, "priorities": [{"name": "LeastRequestedPriority", "weight": 1}]}
    control_plane.client.create(config_map("mine", PACKING))
    with start_scheduler("--policy", "configmap:default/mine") as scheduler:
        assert place(control_plane) == "a"
        control_plane.client.patch("ConfigMap", "mine", {"data": config_map("mine", spreading)["data"]})
        assert wait_until(lambda: scheduler.metric('extender_policy_reloads_total{result="success"}')) == 1
        control_plane.client.create(make_pod("later").req(cpu="1", memory="1Gi").obj())
        assert place(control_plane, "later") == "b"


@pytest.mark.parametrize(
    ("policy", "recorded"),
    [
        pytest.param("configmap:default/nothing", '404: configmaps "nothing" not found', id="not there"),
        pytest.param("configmap:nothing", "expected configmap:NAMESPACE/NAME", id="no namespace"),
        pytest.param("configmap:default/broken", "predicates[0].name: unknown plugin 'PodFits'", id="faulty"),
    ],
)
def test_a_config_map_that_will_not_do(control_plane: ControlPlane, policy: str, recorded: str) -> None:
    control_plane.client.create(config_map("broken", {**PACKING, "predicates": [{"name": "PodFits"}]}))
    command: list[str | Path] = [EXTENDER, "schedule", "--policy", policy, "--no-leader-elect"]
    ended = subprocess.run(
        [*command, "--kubeconfig", control_plane.kubeconfig], capture_output=True, text=True, check=False, timeout=120
    )
    assert ended.returncode == 2
    assert f"error: policy {policy}: {recorded}" in ended.stderr


def test_each_profile_places_the_pods_of_its_name(
    control_plane: ControlPlane, start_scheduler: StartScheduler, tmp_path: Path
) -> None:
    def profile(name: str, strategy: str) -> Object:
        arguments = {"scoringStrategy": {"type": strategy}}
        return {"schedulerName": name, "pluginConfig": [{"name": "NodeResourcesFit", "args": arguments}]}

    path = tmp_path / "policy.yaml"
    header = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    profiles = [profile(SCHEDULER_NAME, "LeastAllocated"), profile("packing", "MostAllocated")]
    path.write_text(yaml.safe_dump({**header, "profiles": profiles}))
    packed = make_pod("packed").req(cpu="1", memory="1Gi").scheduler("packing").obj()
    with start_scheduler("--policy", str(path), named=False):
        assert place(control_plane) == "b"
        control_plane.client.create(packed)
        assert place(control_plane, "packed") == "a"

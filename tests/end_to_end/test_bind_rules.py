"""What a rule of @bind chooses leaves in the Binding: a real API server stores it with the node, in one write."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from examples.rules.gpu_share import COUNT, INDEX, MEMORY
from extender.cluster.binder import ApiBinder
from extender.cluster.credentials import Kubeconfig
from extender.cluster.kube_client import KubeClient
from extender.errors import Conflict
from extender.runtime.ports import Binding
from tests.builders import make_node, make_pod
from tests.end_to_end.conftest import StartExtender, StartScheduler
from tests.end_to_end.scheduling import placed
from tests.running import SCHEDULER_NAME
from tests.stock.control_plane import ControlPlane
from tests.stock.waiting import wait_until

pytestmark = pytest.mark.stock
RULES = Path(__file__).parents[2] / "examples" / "rules"


def test_the_api_server_adds_the_annotations_in_the_write_of_the_node(control_plane: ControlPlane) -> None:
    client = control_plane.client
    [pod] = client.create(make_pod("p").annotation({"own": "kept", "both": "old"}).obj())
    uid, before = pod["metadata"]["uid"], pod["metadata"]["resourceVersion"]
    binding = Binding("default", "p", uid, "n", (("both", "new"), ("example.com/slot", '{"a": [1]}')))
    connection = KubeClient(Kubeconfig(control_plane.kubeconfig))
    try:
        with pytest.raises(Conflict):
            ApiBinder(connection).bind(binding._replace(uid="another"))
        assert client.get("Pod", "p")["metadata"]["resourceVersion"] == before
        ApiBinder(connection).bind(binding)
        bound = client.get("Pod", "p")
        assert bound["spec"]["nodeName"] == "n"
        assert bound["metadata"]["annotations"] == {"own": "kept", "both": "new", "example.com/slot": '{"a": [1]}'}
        ApiBinder(connection).bind(binding._replace(annotations=(("both", "newest"),)))  # bound already: not written
        assert client.get("Pod", "p")["metadata"] == bound["metadata"]
    finally:
        connection.close()


def policy(folder: Path) -> str:
    """Writes a policy with the rules that share GPUs; returns its path."""
    shutil.copy(RULES / "gpu_share.py", folder)
    plugins = {
        "filter": {"enabled": [{"name": "gpu_share:has_gpu"}]},
        "bind": {"enabled": [{"name": "gpu_share:pick_gpu"}]},
    }
    document = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"schedulerName": SCHEDULER_NAME, "plugins": plugins}],
    }
    (folder / "policy.yaml").write_text(json.dumps(document))
    return str(folder / "policy.yaml")


def gpu_node(name: str, gpus: int) -> Any:
    return make_node(name).capacity({"cpu": "8", "pods": "50", MEMORY: str(gpus * 16), COUNT: str(gpus)}).obj()


def sharer(name: str, memory: int = 8) -> Any:
    return make_pod(name).req({MEMORY: str(memory)}).limit({MEMORY: str(memory)}).obj()


def shares(control_plane: ControlPlane) -> Counter[str]:
    """The number of pods on each GPU."""
    pods = [pod for pod in control_plane.client.list("Pod", "default") if pod["spec"].get("nodeName")]
    return Counter(pod["metadata"]["annotations"][INDEX] for pod in pods)


def fills_both_gpus(control_plane: ControlPlane) -> None:
    control_plane.client.create(sharer("c"), sharer("d"), sharer("e"))
    assert wait_until(lambda: len(placed(control_plane)) == 4)
    assert shares(control_plane) == {"0": 2, "1": 2}


@pytest.mark.slow
def test_the_loop_shares_gpus_before_and_after_a_restart(
    control_plane: ControlPlane, start_scheduler: StartScheduler, tmp_path: Path
) -> None:
    path = policy(tmp_path)
    control_plane.client.create(gpu_node("n", 2), sharer("a"), sharer("b"))
    with start_scheduler("--policy", path):
        assert wait_until(lambda: len(placed(control_plane)) == 2)
    with start_scheduler("--policy", path):
        fills_both_gpus(control_plane)


def test_the_webhook_shares_gpus(control_plane: ControlPlane, start_extender: StartExtender, tmp_path: Path) -> None:
    control_plane.client.create(gpu_node("n", 2), sharer("a"), sharer("b"))
    with (
        start_extender("--policy", policy(tmp_path)) as extender,
        control_plane.scheduler(extender.configuration()),
    ):
        assert wait_until(lambda: len(placed(control_plane)) == 2)
        fills_both_gpus(control_plane)

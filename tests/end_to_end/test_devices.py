"""Devices on a real API server: pods that preempt for them, and nodes that the webhook scores by them.

A preemptor gets the devices once the API server has deallocated their claim, not merely when the victim is gone. No
kubelet and no claim controller run: an evicted pod stays until the test ends it, and its claim until the test
deallocates it. One test leaves that to the real kube-controller-manager.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from extender.model.devices import RESOURCE_CLAIM_FINALIZER
from tests.builders import (
    Object,
    make_claim,
    make_device,
    make_device_class,
    make_pdb,
    make_priority_class,
    make_request,
    make_resource_slice,
    make_result,
)
from tests.cli.commands import extender
from tests.end_to_end.conftest import StartExtender, StartScheduler
from tests.end_to_end.controllers import Claims, release_claims
from tests.end_to_end.scheduling import Scene, asking, condition, events, sized
from tests.running import SCHEDULER_NAME, RunningScheduler, extender_entry, schedule
from tests.stock.control_plane import ControlPlane
from tests.stock.waiting import wait_until

pytestmark = pytest.mark.stock

GPU = "gpu.example.com"
CLASS = make_device_class("gpu", f'device.driver == "{GPU}"')
PRIORITIES = {"low": 1, "medium": 100, "high": 1000}
PREEMPTS = ("DynamicResources", {"devicePreemption": True})
ATTEMPTS = 'scheduler_schedule_attempts_total{profile="mortal",result="unschedulable"}'
DEALLOCATING = "not eligible because devices that suffice are being deallocated"


def policy_for(scheduler_name: str, folder: Path, plugin: str, args: Object, **profile: Any) -> Path:
    profile |= {"schedulerName": scheduler_name, "pluginConfig": [{"name": plugin, "args": args}]}
    document = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [profile],
    }
    file = folder / "policy.json"
    file.write_text(json.dumps(document))
    return file


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return policy_for(SCHEDULER_NAME, tmp_path_factory.mktemp("policy"), *PREEMPTS)


@pytest.fixture(scope="module")
def scheduler(
    shared_control_plane: ControlPlane, policy: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningScheduler]:
    folder = tmp_path_factory.mktemp("scheduler")
    with schedule(shared_control_plane.kubeconfig, folder, "--policy", str(policy)) as scheduler:
        yield scheduler


@dataclass(frozen=True)
class Cluster:
    """The API server with priority classes and a device class, and what happens to claims there."""

    plane: ControlPlane
    policy: Path

    def create(self, *objects: Object) -> None:
        self.plane.client.create(*objects)

    def node(self, name: str, *devices: str | Object) -> None:
        self.create(sized(name, "8").obj(), make_resource_slice(name, GPU, *devices))

    def pod(
        self, name: str, priority: str, *requests: Object, claim: str = "", scheduler: str = SCHEDULER_NAME
    ) -> None:
        """Creates a pod; also its claim with these requests, unless it uses one that is there."""
        if requests:
            self.create(make_claim(claim or name, *requests))
        pod = asking(name, "1").label(app=name).grace(30).priority_class(priority).resource_claim(claim or name)
        self.create(pod.scheduler(scheduler).obj())

    def allocate(self, name: str, node: str, device: str, gib: int) -> None:
        """Creates a claim that has a share already."""
        self.create(make_claim(name, share(gib)))
        result = make_result(node, device, shareID=str(uuid.uuid4()), consumedCapacity={"memory": f"{gib}Gi"})
        allocation = {"devices": {"results": [result]}}
        client = self.plane.client
        client.patch("ResourceClaim", name, {"metadata": {"finalizers": [RESOURCE_CLAIM_FINALIZER]}})
        client.patch("ResourceClaim", name, {"status": {"allocation": allocation}}, subresource="status")

    def placed(self) -> dict[str, str]:
        pods = self.plane.client.list("Pod", "default")
        return {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in pods if pod["spec"].get("nodeName")}

    def await_placed(self, **expected: str) -> None:
        assert wait_until(lambda: self.placed() == expected), self.placed()

    def terminating(self) -> set[str]:
        pods = self.plane.client.list("Pod", "default")
        return {pod["metadata"]["name"] for pod in pods if "deletionTimestamp" in pod["metadata"]}

    def await_evicted(self, *names: str) -> None:
        assert wait_until(lambda: self.terminating() == {*names}), self.terminating()

    def end(self, *names: str) -> None:
        """Ends pods that are being evicted, as the kubelet does."""
        for name in names:
            self.plane.client.delete("Pod", name)

    def deallocate(self) -> None:
        Claims(self.plane.client).act()

    def await_waiting(self, pod: str, scheduler: RunningScheduler) -> None:
        """Lets the pod be tried once the scheduler knows which pods are gone: it must wait for the deallocation."""
        pods = len(self.plane.client.list("Pod", "default"))
        assert wait_until(lambda: scheduler.metric('extender_cache_size{type="pods"}') == pods)
        for node in self.plane.client.list("Node"):
            self.plane.client.patch("Node", node["metadata"]["name"], {"metadata": {"labels": {"changed": "yes"}}})
        self.await_message(pod, DEALLOCATING)

    def await_message(self, pod: str, text: str) -> None:
        assert wait_until(lambda: text in self.message(pod)), self.message(pod)

    def message(self, pod: str) -> str:
        return str(condition(self.plane, pod).get("message", ""))

    def devices(self) -> dict[str, tuple[list[str], list[str]]]:
        """Claim -> its devices, and the pods that have reserved it."""
        statuses = {
            each["metadata"]["name"]: each.get("status", {}) for each in self.plane.client.list("ResourceClaim")
        }
        return {
            name: (
                [result["device"] for result in status.get("allocation", {}).get("devices", {}).get("results", [])],
                sorted(user["name"] for user in status.get("reservedFor", [])),
            )
            for name, status in statuses.items()
        }

    def explained(self, pod: str) -> list[str]:
        """Returns what `extender explain` says about evictions."""
        flags = ("--kubeconfig", str(self.plane.kubeconfig), "--policy", str(self.policy), "-o", "json")
        answer = extender("explain", f"default/{pod}", *flags)
        return [note for note in json.loads(answer.stdout)["notes"] if "evicting" in note]


@pytest.fixture
def cluster(control_plane: ControlPlane, policy: Path, scene: Scene) -> Iterator[Cluster]:
    release_claims(control_plane.client)
    cluster = Cluster(control_plane, policy)
    cluster.create(CLASS, *(make_priority_class(name, value) for name, value in PRIORITIES.items()))
    yield cluster
    control_plane.client.delete_all("Pod", "default")
    release_claims(control_plane.client)


def whole(count: int = 1) -> Object:
    return make_request("device", "gpu", count=count)


def share(gib: int) -> Object:
    return make_request("device", "gpu", capacity={"requests": {"memory": f"{gib}Gi"}})


def shared(*names: str) -> list[Object]:
    return [make_device(name, {}, {"memory": "40Gi"}, allowMultipleAllocations=True) for name in names]


def test_whole_devices_are_taken_when_the_api_server_has_deallocated_them(
    cluster: Cluster, scheduler: RunningScheduler
) -> None:
    """Of two nodes, the one is preempted where one pod has both devices."""
    cluster.node("n1", "gpu-0", "gpu-1")
    cluster.pod("both", "low", whole(2))
    cluster.await_placed(both="n1")
    cluster.node("n2", "gpu-0", "gpu-1")
    cluster.pod("one", "low", whole())
    cluster.pod("other", "low", whole())
    cluster.await_placed(both="n1", one="n2", other="n2")
    cluster.create(make_claim("high", whole(2)))
    cluster.create(asking("high", "1").priority_class("high").gate("later").resource_claim("high").obj())
    assert cluster.explained("high") == ["evicting default/both frees gpu-0 and gpu-1 of node n1; then the claim fits"]
    cluster.plane.client.patch("Pod", "high", {"spec": {"schedulingGates": None}})
    cluster.await_evicted("both")
    cluster.end("both")
    cluster.await_waiting("high", scheduler)
    assert cluster.placed() == {"one": "n2", "other": "n2"}
    cluster.deallocate()
    cluster.await_placed(one="n2", other="n2", high="n1")
    assert cluster.devices()["both"] == ([], [])
    assert cluster.devices()["high"] == (["gpu-0", "gpu-1"], ["high"])


def test_a_share_is_taken_from_as_few_pods_as_possible(cluster: Cluster, scheduler: RunningScheduler) -> None:
    """30 of 40 GiB are in use. The preemptor needs 25, so only the pod with 20 has to leave."""
    cluster.node("n1", *shared("gpu-0"))
    cluster.pod("ten", "low", share(10))
    cluster.pod("twenty", "low", share(20))
    cluster.await_placed(ten="n1", twenty="n1")
    cluster.pod("high", "high", share(25))
    cluster.await_evicted("twenty")
    cluster.end("twenty")
    cluster.await_waiting("high", scheduler)
    cluster.deallocate()
    cluster.await_placed(ten="n1", high="n1")
    assert cluster.devices()["high"] == (["gpu-0"], ["high"])


def test_a_pod_with_a_budget_keeps_its_device_if_another_can_leave(
    cluster: Cluster, scheduler: RunningScheduler
) -> None:
    cluster.create(make_pdb("guard", {"app": "guarded"}, minAvailable=1))  # no controller finds that it allows any
    cluster.node("n1", "gpu-0")
    cluster.pod("guarded", "low", whole())
    cluster.await_placed(guarded="n1")
    cluster.node("n2", "gpu-0")
    cluster.pod("free", "medium", whole())
    cluster.await_placed(guarded="n1", free="n2")
    cluster.pod("high", "high", whole())
    cluster.await_evicted("free")
    cluster.end("free")
    cluster.deallocate()
    cluster.await_placed(guarded="n1", high="n2")


def test_a_claim_that_two_pods_share_is_free_when_both_have_left(cluster: Cluster, scheduler: RunningScheduler) -> None:
    cluster.node("n1", "gpu-0")
    cluster.pod("a", "low", whole(), claim="both")
    cluster.pod("b", "low", claim="both")
    cluster.await_placed(a="n1", b="n1")
    cluster.pod("high", "high", whole())
    cluster.await_evicted("a", "b")
    cluster.end("a")
    cluster.deallocate()
    assert cluster.devices()["both"] == (["gpu-0"], ["b"])
    assert cluster.placed() == {"b": "n1"}
    cluster.end("b")
    cluster.await_waiting("high", scheduler)
    cluster.deallocate()
    cluster.await_placed(high="n1")
    assert cluster.devices() == {"both": ([], []), "high": (["gpu-0"], ["high"])}


def test_no_pod_is_evicted_whose_claim_a_pod_of_higher_priority_has_reserved(
    cluster: Cluster, scheduler: RunningScheduler
) -> None:
    cluster.node("n1", "gpu-0")
    cluster.pod("a", "low", whole(), claim="both")
    cluster.pod("boss", "high", claim="both")
    cluster.await_placed(a="n1", boss="n1")
    cluster.pod("medium", "medium", whole())
    cluster.await_message("medium", "preemption: 0/1 nodes are available")
    assert (cluster.explained("medium"), cluster.terminating()) == ([], set())


def test_a_preemptor_that_is_deleted_while_it_waits_leaves_the_device_to_others(
    cluster: Cluster, scheduler: RunningScheduler
) -> None:
    cluster.node("n1", "gpu-0")
    cluster.pod("victim", "low", whole())
    cluster.await_placed(victim="n1")
    cluster.pod("high", "high", whole())
    cluster.await_evicted("victim")
    cluster.end("victim")
    cluster.await_waiting("high", scheduler)
    cluster.pod("next", "low", whole())
    cluster.await_message("next", "0/1 nodes are available")
    cluster.end("high")
    cluster.deallocate()
    cluster.await_placed(next="n1")
    assert cluster.devices()["high"] == ([], [])


FULLEST = """
from extender import DeviceAsk, DeviceNodes, device_priority

@device_priority
def fullest(nodes: DeviceNodes, ask: DeviceAsk):
    return 100 - nodes.free // 10
"""


def scoring_by(policy: str, scheduler_name: str, folder: Path) -> Path:
    """Writes a policy file that names a device policy, and a module of a user beside it."""
    (folder / "fullest_first.py").write_text(FULLEST)
    enabled = {"score": {"enabled": [{"name": "DeviceScoring", "weight": 100}]}}
    args = {"policies": [{"name": policy}]}
    return policy_for(scheduler_name, folder, "DeviceScoring", args, plugins=enabled)


def test_the_loop_takes_the_device_that_a_users_policy_prefers(
    cluster: Cluster, start_scheduler: StartScheduler, tmp_path: Path
) -> None:
    for node in ("n1", "n2"):
        cluster.node(node, *shared("gpu-0", "gpu-1"))
    cluster.allocate("in-use", "n2", "gpu-1", 20)
    file = scoring_by("fullest_first:fullest", "own", tmp_path)
    with start_scheduler("--policy", str(file), "--scheduler-name", "own"):
        cluster.pod("p", "low", share(10), scheduler="own")
        cluster.await_placed(p="n2")
    assert cluster.devices()["p"] == (["gpu-1"], ["p"])


def _place_of(cluster: Cluster, pod: str) -> str:
    return cluster.placed().get(pod, "")


def test_a_loop_that_is_killed_while_a_preemptor_waits_evicts_no_other_pod(
    cluster: Cluster, start_scheduler: StartScheduler, tmp_path: Path
) -> None:
    flags = ("--policy", str(policy_for("mortal", tmp_path, *PREEMPTS)), "--scheduler-name", "mortal")
    with start_scheduler(*flags) as first:
        for node, name, priority in (("n1", "victim", "low"), ("n2", "bystander", "medium")):
            cluster.node(node, "gpu-0")
            cluster.pod(name, priority, whole(), scheduler="mortal")
            assert wait_until(partial(_place_of, cluster, name)) == node
        cluster.pod("high", "high", whole(), scheduler="mortal")
        cluster.await_evicted("victim")
        cluster.end("victim")
        cluster.await_waiting("high", first)
        first.process.kill()
    with start_scheduler(*flags) as second:
        assert wait_until(lambda: second.metric(ATTEMPTS)) and cluster.placed() == {"bystander": "n2"}
        cluster.deallocate()
        cluster.await_placed(bystander="n2", high="n1")
    assert cluster.terminating() == set()


@pytest.mark.controllers
def test_kube_controller_manager_deallocates_the_claim_of_the_evicted_pod(
    cluster: Cluster, scheduler: RunningScheduler
) -> None:
    cluster.node("n1", "gpu-0")
    cluster.pod("victim", "low", whole())
    cluster.await_placed(victim="n1")
    cluster.pod("high", "high", whole())
    cluster.await_evicted("victim")
    cluster.end("victim")
    cluster.await_waiting("high", scheduler)
    with cluster.plane.controllers("resourceclaim-controller"):
        cluster.await_placed(high="n1")
    assert cluster.devices() == {"victim": ([], []), "high": (["gpu-0"], ["high"])}
    assert [each["involvedObject"]["name"] for each in events(cluster.plane, "Preempted")] == ["victim"]


# ---- the webhook


@pytest.mark.parametrize(
    ("device_policy", "cordoned"),
    [
        ("PWR", ""),
        pytest.param("PWR", "n2", marks=pytest.mark.slow),
        pytest.param("fullest_first:fullest", "", marks=pytest.mark.slow),
    ],
)
def test_the_webhook_scores_a_node_by_the_device_that_kube_scheduler_takes(
    device_policy: str, cordoned: str, cluster: Cluster, start_extender: StartExtender, tmp_path: Path
) -> None:
    """kube-scheduler takes gpu-0 on each node, which is idle on n1 and half in use on n2. n3 has too little memory.

    So a pod costs power on n1, although gpu-1 is in use there; `extender schedule` would take that one.
    """
    client = cluster.plane.client
    cluster.node("n1", *shared("gpu-0", "gpu-1"))
    cluster.node("n2", *shared("gpu-0", "gpu-1"))
    cluster.node("n3", *shared("gpu-0"))
    for number, (node, device, gib) in enumerate((("n1", "gpu-1", 30), ("n2", "gpu-0", 20), ("n3", "gpu-0", 35))):
        cluster.allocate(f"in-use-{number}", node, device, gib)
    if cordoned:
        client.patch("Node", cordoned, {"spec": {"unschedulable": True}})
    file = scoring_by(device_policy, "stock", tmp_path)
    with start_extender("--policy", str(file)) as extender:
        url, verbs = f"http://127.0.0.1:{extender.port}/scheduler", ("filter", "prioritize")
        entry = extender_entry(url, verbs=verbs, weight=100)
        with cluster.plane.scheduler({"extenders": [entry], "profiles": [{"schedulerName": "stock"}]}):
            cluster.pod("p", "low", share(10), scheduler="stock")
            cluster.await_placed(p="n1" if cordoned else "n2")
        assert cluster.devices()["p"] == (["gpu-0"], ["p"])
        assert {verb for verb in verbs if extender.calls(verb)} == ({"filter"} if cordoned else {*verbs})

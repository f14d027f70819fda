"""The claims of pods that come and go in a simulation, as the controllers of a cluster make and free them."""

from __future__ import annotations

from typing import Any

import pytest

from extender import Cluster
from extender.offline.what_if.result import SimulationResult
from extender.offline.what_if.scenario import Scenario
from tests.builders import (
    Object,
    make_device_class,
    make_node,
    make_pod,
    make_resource_claim,
    make_resource_slice,
    make_result,
    with_allocation,
)
from tests.builders.pod import PodBuilder

GPUS = [make_device_class("gpu"), *(make_resource_slice(name, "gpu.example.com", "a") for name in ("n0", "n1"))]
NODES = [make_node(name).obj() for name in ("n0", "n1")]


def simulated(*objects: Object, **scenario: Any) -> SimulationResult:
    return Cluster.from_objects(objects).simulate(Scenario(**scenario))


def homes(result: SimulationResult) -> dict[str, str]:
    return {each.pod: each.node for each in result.placements}


def held(claim: Object, *pods: str, owner: str = "") -> Object:
    """The claim with the device of n0, reserved for these pods; `owner`: the pod that it goes with."""
    field = {"key": "metadata.name", "operator": "In", "values": ["n0"]}
    taken = with_allocation(
        claim, make_result("n0", "a"), nodeSelector={"nodeSelectorTerms": [{"matchFields": [field]}]}
    )
    taken["status"]["reservedFor"] = [{"resource": "pods", "name": pod, "uid": f"pod-default-{pod}"} for pod in pods]
    if owner:
        reference = {"apiVersion": "v1", "kind": "Pod", "name": owner, "uid": f"pod-default-{owner}"}
        taken["metadata"]["ownerReferences"] = [{**reference, "controller": True}]
    return taken


def user(name: str, claim: str) -> PodBuilder:
    return make_pod(name).resource_claim(claim).owner("ReplicaSet", "ml-5d8f")


def generated(name: str) -> PodBuilder:
    """A pod whose claim has been made of a template, under the pod's own name."""
    return (
        make_pod(name)
        .owner("ReplicaSet", "ml-5d8f")
        .resource_claim("t", template=True)
        .status(resourceClaimStatuses=[{"name": "t", "resourceClaimName": name}])
    )


@pytest.mark.parametrize("of_template", [True, False], ids=["its own claim", "a claim of the user"])
@pytest.mark.parametrize(
    "scenario",
    [{"delete": ["default/x"]}, {"scale": [("default/deploy/ml", 0)]}, {"delete": ["default/deploy/ml"]}],
    ids=["delete", "scale", "delete workload"],
)
def test_a_pod_that_goes_frees_its_devices(scenario: dict[str, Any], of_template: bool) -> None:
    pod = (generated("x") if of_template else user("x", "x")).node("n0").obj()
    claim = held(make_resource_claim("x", "gpu"), "x", owner="x" if of_template else "")
    waiting = [make_resource_claim("mine", "gpu"), make_pod("w").resource_claim("mine").obj()]
    cluster = [*GPUS[:2], NODES[0], pod, claim, *waiting]
    assert homes(simulated(*cluster)) == {}
    assert homes(simulated(*cluster, **scenario)) == {"default/w": "n0"}


def test_a_drained_pod_takes_devices_elsewhere() -> None:
    pod = user("x", "x").node("n0").obj()
    assert homes(simulated(*GPUS, *NODES, pod, held(make_resource_claim("x", "gpu"), "x"), drain=["n0"])) == {
        "default/x": "n1"
    }


def test_devices_that_a_preempted_pod_held_can_be_taken() -> None:
    victim = user("x", "x").req(cpu="3").node("n0").obj()
    urgent = make_pod("w").priority(9).req(cpu="3").resource_claim("mine").obj()
    node = make_node("n0").capacity(cpu="4").obj()
    free = make_resource_slice("n0", "gpu.example.com", "a", "b")
    claims = [held(make_resource_claim("x", "gpu"), "x"), make_resource_claim("mine", "gpu")]
    late = make_pod("late").resource_claim("other").obj()
    result = simulated(GPUS[0], free, node, victim, urgent, *claims, late, make_resource_claim("other", "gpu"))
    assert homes(result) == {"default/w": "n0", "default/late": "n0"}


def test_devices_that_others_use_are_not_freed() -> None:
    pods = [user("x", "x").node("n0").obj(), user("y", "x").obj()]
    waiting = [make_resource_claim("mine", "gpu"), make_pod("w").resource_claim("mine").obj()]
    claim = held(make_resource_claim("x", "gpu"), "x", "y")
    cluster = [*GPUS[:2], NODES[0], *pods, claim, *waiting]
    assert homes(simulated(*cluster, delete=["default/x"])) == {"default/y": "n0"}

"""The claims of pods that come and go in a simulation, as the controllers of a cluster make and free them."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from extender import Cluster
from extender.errors import MalformedCluster
from extender.offline.explain.explanation import explain_workload
from extender.offline.manifests.templates import Workload, read_workloads, required_workload
from extender.offline.state import ClusterState
from extender.offline.what_if.hypothetical import answer_simulation
from extender.offline.what_if.result import SimulationResult
from extender.offline.what_if.scenario import Scenario
from extender.snapshots.objects import to_objects
from tests.builders import (
    Object,
    expression,
    make_device_class,
    make_node,
    make_pod,
    make_pv,
    make_pvc,
    make_resource_claim,
    make_resource_slice,
    make_result,
    make_storage_class,
    node_term,
    with_allocation,
)
from tests.builders.pod import PodBuilder

GPUS = [make_device_class("gpu"), *(make_resource_slice(name, "gpu.example.com", "a") for name in ("n0", "n1"))]
NODES = [make_node(name).obj() for name in ("n0", "n1")]
DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"


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


TEMPLATE = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaimTemplate",
    "metadata": {"name": "t", "namespace": "default"},
    "spec": {"spec": make_resource_claim("x", "gpu")["spec"]},
}


def templated(name: str) -> PodBuilder:
    return make_pod(name).owner("ReplicaSet", "ml-5d8f").resource_claim("t", template=True)


def with_scratch(name: str, **claim: Any) -> PodBuilder:
    """A pod with a generic ephemeral volume."""
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, **claim}
    volume = {"ephemeral": {"volumeClaimTemplate": {"spec": spec}}}
    return make_pod(name).owner("ReplicaSet", "web-5d8f").volume("scratch", volume)


def of_pod(claim: Object, pod: str) -> Object:
    claim["metadata"]["ownerReferences"] = [
        {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": f"pod-default-{pod}", "controller": True}
    ]
    return claim


def in_zone(zone: str) -> Object:
    return {"matchExpressions": [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": [zone]}]}


def test_claims_are_created_from_their_template_for_created_pods() -> None:
    cluster = [*GPUS, *NODES, TEMPLATE]
    manifest = templated("new").obj()
    assert Cluster.from_objects(cluster).capacity([manifest]).total == 2
    assert explain_workload(ClusterState(to_objects(cluster)), required_workload(manifest)).fits
    assert len(homes(simulated(*cluster, create=[(manifest, 3)]))) == 2
    question = {"pods": [manifest], "onlyTemplates": True, "nodeTemplates": [{"node": NODES[0]}]}
    state = ClusterState(to_objects(cluster))
    assert not answer_simulation(state, json.dumps(question).encode())["complete"]
    question["nodeTemplates"] = [{"node": NODES[0], "resourceSlices": [GPUS[1]]}]
    assert answer_simulation(state, json.dumps(question).encode())["complete"]


def test_claims_are_created_from_their_template_for_recreated_and_scaled_pods() -> None:
    standing = [generated("ml-5d8f-x").node("n0").obj(), held(make_resource_claim("ml-5d8f-x", "gpu"), "ml-5d8f-x")]
    of_pod(standing[1], "ml-5d8f-x")
    cluster = [*GPUS, *NODES, TEMPLATE, *standing]
    assert homes(simulated(*cluster, drain=["n0"])) == {"default/ml-5d8f-x": "n1"}
    assert list(homes(simulated(*cluster, scale=[("default/deploy/ml", 3)])).values()) == ["n1"]


def test_a_missing_template_is_named() -> None:
    objects, manifest = [*GPUS, *NODES], templated("new").obj()
    cluster = Cluster.from_objects(objects)
    recorded = "no ResourceClaimTemplate default/t is in the cluster"
    result = cluster.simulate(Scenario(create=[(manifest, 1)]))
    assert recorded in result.remaining["default/new"]
    assert recorded in "".join(cluster.capacity([manifest]).notes)
    assert recorded in explain_workload(ClusterState(to_objects(objects)), required_workload(manifest)).notes


def test_ephemeral_volumes_are_made_and_go_with_their_pod() -> None:
    volume = make_pv("v", storage_class="local", node_terms=[in_zone("a")], claim="default/web-5d8f-x-scratch")
    claim = of_pod(make_pvc("web-5d8f-x-scratch", storage_class="local", volume="v"), "web-5d8f-x")
    standing = with_scratch("web-5d8f-x", storageClassName="local").req(cpu="1").node("na").obj()
    nodes = [make_node(f"n{zone}").capacity(cpu="1").zone(zone).obj() for zone in "ab"]
    cluster = [*nodes, make_storage_class("local"), volume, claim, standing]
    assert homes(simulated(*cluster, drain=["na"])) == {"default/web-5d8f-x": "nb"}
    assert list(homes(simulated(*cluster, scale=[("default/deploy/web", 3)])).values()) == ["nb"]
    manifest = with_scratch("new", storageClassName="local").req(cpu="1").obj()
    assert Cluster.from_objects(cluster).capacity([manifest]).total == 1
    assert explain_workload(ClusterState(to_objects(cluster)), required_workload(manifest)).fits


def test_an_ephemeral_volume_gets_the_default_class() -> None:
    default = make_storage_class(
        "elsewhere",
        allowedTopologies=[{"matchLabelExpressions": [{"key": "topology.kubernetes.io/zone", "values": ["b"]}]}],
    )
    default["metadata"]["annotations"] = {"storageclass.kubernetes.io/is-default-class": "true"}
    nodes = [make_node(f"n{zone}").zone(zone).obj() for zone in "ab"]
    cluster = Cluster.from_objects([*nodes, default, make_storage_class("local")])
    result = cluster.simulate(Scenario(create=[(with_scratch("new").obj(), 2)]))
    assert list(homes(result).values()) == ["nb", "nb"]


def test_a_faulty_volume_template_is_refused() -> None:
    with pytest.raises(MalformedCluster, match=r"volume scratch: ephemeral.volumeClaimTemplate"):
        simulated(*NODES, with_scratch("new", accessModes=5).obj())


def in_zones(zones: str) -> list[Object]:
    return [make_node(f"n{zone}").capacity(cpu="8").zone(zone).obj() for zone in zones]


def only_in(zone: str) -> Object:
    """The StorageClass `local`, whose volumes are made in that zone alone."""
    expression = {"key": "topology.kubernetes.io/zone", "values": [zone]}
    return make_storage_class("local", allowedTopologies=[{"matchLabelExpressions": [expression]}])


def of_stateful_set(*ordinals: int) -> list[Object]:
    """Replicas of db, the last one the oldest, each bound to a volume of zone a."""
    objects = []
    for age, number in enumerate(reversed(ordinals)):
        pod = make_pod(f"db-{number}").label(app="db").owner("StatefulSet", "db").node("na").req(cpu="1")
        pod.volume("data", {"persistentVolumeClaim": {"claimName": f"data-db-{number}"}})
        objects.append(pod.created(f"2026-11-2{age}T09:00:00Z").obj())
        objects.append(make_pvc(f"data-db-{number}", storage_class="local", volume=f"v{number}"))
        key = f"default/data-db-{number}"
        objects.append(make_pv(f"v{number}", storage_class="local", node_terms=[in_zone("a")], claim=key))
    return objects


STATEFUL_SET = {
    "apiVersion": "apps/v1",
    "kind": "StatefulSet",
    "metadata": {"name": "new"},
    "spec": {
        "replicas": 2,
        "selector": {"matchLabels": {"app": "new"}},
        "template": {"metadata": {"labels": {"app": "new"}}, "spec": make_pod("x").req(cpu="1").obj()["spec"]},
        "volumeClaimTemplates": [{**make_pvc("data", storage_class="local"), "apiVersion": "v1"}],
    },
}


@pytest.mark.parametrize(("standing", "names"), [((0, 1), "23"), ((5, 6), "78"), ((0, 2), "13")])
def test_a_scaled_stateful_set_gets_ordinals_and_claims_of_their_own(standing: tuple[int, ...], names: str) -> None:
    cluster = [*in_zones("ab"), only_in("b"), *of_stateful_set(*standing)]
    placed = homes(simulated(*cluster, scale=[("default/sts/db", 4)]))
    assert placed == {f"default/db-{number}": "nb" for number in names}


@pytest.mark.parametrize(("start", "names"), [(0, "03"), (1, "34"), (3, "3456")])
def test_a_scaled_stateful_set_is_numbered_from_its_first_ordinal(start: int, names: str) -> None:
    cluster = [*in_zones("ab"), only_in("b"), *of_stateful_set(1, 2), numbered_from(start)]
    placed = homes(simulated(*cluster, scale=[("default/sts/db", 4)]))
    assert placed == {f"default/db-{number}": "nb" for number in names}


def numbered_from(start: int) -> Object:
    claims = [{**make_pvc("data", storage_class="local"), "apiVersion": "v1"}]
    spec = {"ordinals": {"start": start}, "selector": {"matchLabels": {"app": "db"}}, "volumeClaimTemplates": claims}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "db", "namespace": "default"},
        "spec": spec,
    }


def test_a_replica_finds_the_claim_that_it_had_before() -> None:
    kept = of_stateful_set(0, 1)
    gone = kept.pop(0)
    assert gone["metadata"]["name"] == "db-1"
    cluster = [*in_zones("ab"), only_in("b"), *kept]
    assert homes(simulated(*cluster, scale=[("default/sts/db", 2)])) == {"default/db-1": "na"}


@pytest.mark.parametrize("gap", ["db-0", "db-1"])
def test_capacity_fills_a_gap_in_the_ordinals_before_it_adds_further_ones(gap: str) -> None:
    """The old claim of the missing pod ties it to the full node, and the controller creates no db-3 before it."""
    nodes = [make_node(f"n{zone}").zone(zone).capacity(cpu=cpu).obj() for zone, cpu in (("a", "2"), ("b", "2"))]
    pods = [numbered_from(0), *(each for each in of_stateful_set(2, 1, 0) if each["metadata"]["name"] != gap)]
    cluster = Cluster.from_objects([*nodes, only_in("b"), *pods])
    assert cluster.capacity(["default/sts/db"]).by_node == {"default/sts/db": {}}
    wide = Cluster.from_objects([*in_zones("ab"), only_in("b"), *pods])
    assert wide.capacity(["default/sts/db"], most=1).by_node == {"default/sts/db": {"na": 1}}


def test_capacity_begins_at_the_first_ordinal_of_the_stateful_set() -> None:
    """The claim of db-0 ties it to the full node; db-0 is not missing, because the set is numbered from 1."""
    nodes = [make_node(f"n{zone}").zone(zone).capacity(cpu="2").obj() for zone in "ab"]
    pods = [each for each in of_stateful_set(2, 1, 0) if each["metadata"]["name"] != "db-0"]
    cluster = Cluster.from_objects([*nodes, only_in("b"), *pods, numbered_from(1)])
    assert cluster.capacity(["default/sts/db"]).by_node == {"default/sts/db": {"nb": 2}}


@pytest.mark.parametrize(
    ("maximum", "claims"),
    [
        pytest.param("2Gi", [], id="allowed"),
        pytest.param("512Mi", [make_pvc("data-new-0", storage_class="local", storage="1Gi")], id="it exists already"),
    ],
)
def test_the_pods_of_a_stateful_set_fit_if_their_claims_are_allowed(maximum: str, claims: list[Object]) -> None:
    cluster = Cluster.from_objects([*in_zones("b"), only_in("b"), at_most(maximum), *claims])
    assert homes(cluster.simulate(Scenario(create=[(STATEFUL_SET, 1)]))) == {"default/new-0": "nb"}


def test_a_stateful_set_whose_claims_a_limit_range_forbids_is_refused() -> None:
    cluster = Cluster.from_objects([*in_zones("b"), only_in("b"), at_most("512Mi")])
    fault = (
        "PersistentVolumeClaim default/data-new-0: the API server would refuse it: the claim: its request of storage "
        "is missing, or more than the maximum of 512Mi in LimitRange small"
    )
    with pytest.raises(MalformedCluster) as refused:
        cluster.capacity([STATEFUL_SET])
    assert str(refused.value) == fault
    with pytest.raises(MalformedCluster) as refused:
        cluster.simulate(Scenario(create=[(STATEFUL_SET, None)]))
    assert str(refused.value) == fault


def test_a_stateful_set_is_refused_if_only_claims_of_later_pods_are_missing_and_forbidden() -> None:
    existing = make_pvc("data-new-0", storage_class="local", storage="1Gi")
    cluster = Cluster.from_objects([*in_zones("b"), only_in("b"), at_most("512Mi"), existing])
    fault = "PersistentVolumeClaim default/data-new-1: the API server would refuse it"
    with pytest.raises(MalformedCluster, match=fault):
        cluster.capacity([STATEFUL_SET])
    with pytest.raises(MalformedCluster, match=fault):
        cluster.simulate(Scenario(create=[(STATEFUL_SET, None)]))


def at_most(storage: str) -> Object:
    limits = [{"type": "PersistentVolumeClaim", "max": {"storage": storage}}]
    metadata = {"name": "small", "namespace": "default"}
    return {"apiVersion": "v1", "kind": "LimitRange", "metadata": metadata, "spec": {"limits": limits}}


def test_a_stateful_set_loses_its_highest_ordinal_first() -> None:
    cluster = Cluster.from_objects([*in_zones("a"), only_in("a"), *of_stateful_set(0, 1, 2)])
    moved = cluster.simulate(Scenario(scale=[("default/sts/db", 1)], add_nodes=[("na", 1)], remove_nodes=["na"]))
    assert homes(moved).keys() == {"default/db-0"}


def test_replicas_of_a_stateful_set_have_labels_of_their_own() -> None:
    apart = make_pod("watcher").affinity("kubernetes.io/hostname", labels={"apps.kubernetes.io/pod-index": "2"}).obj()
    nodes = [
        make_node(f"n{zone}").capacity(cpu="8").zone(zone).label({"kubernetes.io/hostname": zone}) for zone in "ab"
    ]
    cluster = [*(node.obj() for node in nodes), only_in("b"), *of_stateful_set(0, 1)]
    placed = homes(simulated(*cluster, apart, scale=[("default/sts/db", 3)]))
    assert placed == {"default/db-2": "nb", "default/watcher": "nb"}


def test_a_stateful_set_of_a_file_brings_claims_of_its_templates() -> None:
    objects = [*in_zones("ab"), only_in("b")]
    cluster = Cluster.from_objects(objects)
    result = cluster.simulate(Scenario(create=[(STATEFUL_SET, None)]))
    assert homes(result) == {"default/new-0": "nb", "default/new-1": "nb"}
    (template,) = (cluster.capacity([STATEFUL_SET]).by_node).values()
    assert template.keys() == {"nb"}
    explanation = explain_workload(ClusterState(to_objects(objects)), required_workload(STATEFUL_SET))
    assert (explanation.pod.key, explanation.decision.feasible) == ("default/new-0", ["nb"])
    assert cluster.explain_pending() == []


@pytest.mark.parametrize("provisioner", ["csi.example.com", "kubernetes.io/no-provisioner"])
def test_a_volume_of_an_immediate_class_is_provisioned_at_once_if_a_provisioner_exists(provisioner: str) -> None:
    expression = {"key": "topology.kubernetes.io/zone", "values": ["b"]}
    topologies = [{"matchLabelExpressions": [expression]}]
    local = make_storage_class("local", wait=False, provisioner=provisioner, allowedTopologies=topologies)
    cluster = [*in_zones("ab"), local]
    pods = [STATEFUL_SET, with_scratch("p", storageClassName="local").obj()]
    result = simulated(*cluster, create=[(each, 1) for each in pods])
    assert homes(result) == ({} if "no-" in provisioner else {"default/new-0": "nb", "default/p": "nb"})


# ---- claims in the file of a pod


def in_one_file(*objects: Object) -> list[Workload]:
    return read_workloads(yaml.safe_dump_all(objects).encode(), "app.yaml", "default")


def written(obj: Object) -> Object:
    """The object as a user writes it, without what the API server and controllers add."""
    metadata = {key: obj["metadata"][key] for key in ("name", "namespace") if key in obj["metadata"]}
    return {key: each for key, each in {**obj, "metadata": metadata}.items() if key != "status"}


DISK = make_storage_class("disk", metadata={"name": "disk", "annotations": {DEFAULT_CLASS: "true"}})
DATA = written(make_pvc("data"))
GPU = written(make_resource_claim("wanted", "gpu"))


@pytest.mark.parametrize(
    ("claim", "pod"),
    [
        pytest.param(DATA, make_pod("p").pvc("data"), id="volume claim"),
        pytest.param(GPU, make_pod("p").resource_claim("wanted"), id="device claim"),
    ],
)
def test_a_claim_of_the_same_file_is_created_with_the_pod(claim: Object, pod: PodBuilder) -> None:
    objects = [*NODES, *GPUS, DISK]
    state = ClusterState(to_objects(objects))
    (alone,), (together,) = in_one_file(written(pod.obj())), in_one_file(claim, written(pod.obj()))
    assert not explain_workload(state, alone).fits
    assert explain_workload(state, together).fits
    assert homes(simulated(*objects, create=[(together, None)])).keys() == {"default/p"}


def test_a_claim_that_the_cluster_has_stays_as_it_is() -> None:
    volume = make_pv(
        "v", claim="default/data", node_terms=[node_term(expression("kubernetes.io/hostname", "In", "n1"))]
    )
    objects = [*NODES, DISK, volume, make_pvc("data", volume="v")]
    (workload,) = in_one_file(DATA, written(make_pod("p").pvc("data").obj()))
    assert explain_workload(ClusterState(to_objects(objects)), workload).decision.feasible == ["n1"]


def test_a_claim_takes_the_free_volume_that_it_names() -> None:
    volume = make_pv("v", node_terms=[node_term(expression("kubernetes.io/hostname", "In", "n1"))])
    claim = {**DATA, "spec": {**DATA["spec"], "volumeName": "v", "storageClassName": ""}}
    (workload,) = in_one_file(claim, written(make_pod("p").pvc("data").obj()))
    assert explain_workload(ClusterState(to_objects([*NODES, volume])), workload).decision.feasible == ["n1"]


def test_an_invalid_claim_in_the_file_of_a_pod_is_refused() -> None:
    claim = {**DATA, "spec": {**DATA["spec"], "accessModes": []}}
    with pytest.raises(MalformedCluster, match=r"app.yaml: document 1: spec.accessModes: is empty"):
        in_one_file(claim, written(make_pod("p").pvc("data").obj()))

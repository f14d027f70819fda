"""A new node brings what kubelet, drivers and DaemonSets bring, and nothing that its template lived through."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from extender import Cluster
from extender.errors import MalformedCluster
from extender.model.devices import ResourceSlice
from extender.model.node import Node
from extender.model.storage import CSINode, CSIStorageCapacity
from extender.offline.fresh_nodes import FreshNodes, copies_of, from_manifest
from extender.offline.state import ClusterState
from extender.offline.what_if.scenario import Scenario
from extender.snapshots.objects import to_object, to_objects
from tests.builders import Object, make_node, make_pod, make_resource_slice

HOSTNAME, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
LOCAL, DRIVERS_ZONE = "topology.lvm.csi/node", "topology.disk.csi/zone"
CSI_NODE = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "CSINode",
    "metadata": {"name": "a"},
    "spec": {
        "drivers": [
            {"name": "lvm.csi", "nodeID": "a", "topologyKeys": [LOCAL], "allocatable": {"count": 7}},
            {"name": "disk.csi", "nodeID": "i-1", "topologyKeys": [DRIVERS_ZONE]},
        ]
    },
}
CAPACITY = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "CSIStorageCapacity",
    "metadata": {"name": "c", "namespace": "csi"},
    "storageClassName": "local",
    "nodeTopology": {"matchLabels": {LOCAL: "a"}},
    "capacity": "10Gi",
}
CAPACITY_OF_ZONE = {
    **CAPACITY,
    "metadata": {"name": "z", "namespace": "csi"},
    "storageClassName": "zonal",
    "nodeTopology": {"matchLabels": {ZONE: "z1"}},
}
TEMPLATE = make_node("a").capacity(cpu="4").label({LOCAL: "a", DRIVERS_ZONE: "z1", ZONE: "z1", "project-role": "a"})


def copies(*objects: Object, count: int = 1) -> FreshNodes:
    state = ClusterState(to_objects(objects))
    return copies_of(state, state.node("a"), [f"new-{number}" for number in range(count)])


def manifest(node: Object, *objects: Object, reported: Sequence[Object] = ()) -> FreshNodes:
    template = to_object({"kind": "Node", **node}, "node")
    assert isinstance(template, Node)
    of_drivers = [obj for each in reported if (obj := to_object(each, "reported"))]
    return from_manifest(ClusterState(to_objects(objects)), template, ["new-0"], of_drivers)


def daemon_set(name: str = "agent", cpu: str = "1", **spec: Any) -> Object:
    containers = [{"name": "c", "image": "a", "resources": {"requests": {"cpu": cpu}}}]
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": containers, **spec}}
    body = {"selector": {"matchLabels": {"app": name}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": name, "namespace": "mon"}, "spec": body}


def by_name(operator: str, name: str) -> Object:
    term = {"matchFields": [{"key": "metadata.name", "operator": operator, "values": [name]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}


def test_a_manifest_brings_what_drivers_report_about_its_node_alone() -> None:
    slices = [make_resource_slice(name, "gpu.x", "d0") for name in ("a", "b")]
    fresh = manifest(
        TEMPLATE.obj(),
        CSI_NODE,
        CAPACITY,
        reported=[CSI_NODE, CAPACITY, CAPACITY_OF_ZONE, make_pod("p").obj(), *slices],
    )
    csi_node, capacity, own_slice = fresh.nodes[0].objects
    assert isinstance(csi_node, CSINode)
    assert isinstance(capacity, CSIStorageCapacity)
    assert isinstance(own_slice, ResourceSlice)
    assert (csi_node.name, [each.name for each in csi_node.drivers]) == ("new-0", ["lvm.csi", "disk.csi"])
    selector = capacity.node_topology
    assert selector is not None
    assert [(each.key, each.values) for each in selector.match_expressions or ()] == [(LOCAL, ["new-0"])]
    assert (own_slice.spec.node_name, own_slice.spec.pool.name) == ("new-0", "new-0")
    kinds = "1 CSIStorageCapacity, 1 Pod, 1 ResourceSlice"
    assert fresh.notes == [f"new nodes like a: left out, because no driver reports them for node a alone: {kinds}"]


def test_a_list_describes_exactly_one_node() -> None:
    one, other = (to_object({"kind": "Node", **make_node(name).obj()}, "node") for name in ("a", "b"))
    assert one is not None
    assert other is not None
    for template, count in (([], 0), ([one, other], 2)):
        with pytest.raises(MalformedCluster, match=f"^expected one Node, got {count}$"):
            Cluster.from_objects([]).simulate(Scenario(add_nodes=[(template, 1)]))


def test_only_labels_that_identify_a_node_change() -> None:
    (fresh,) = copies(TEMPLATE.obj(), CSI_NODE).nodes
    assert {key: fresh.node.labels[key] for key in (HOSTNAME, LOCAL, DRIVERS_ZONE, ZONE, "project-role")} == {
        HOSTNAME: "new-0",
        LOCAL: "new-0",
        DRIVERS_ZONE: "z1",
        ZONE: "z1",
        "project-role": "a",
    }


def test_a_manifest_named_like_its_pool_keeps_the_label_of_the_pool() -> None:
    (fresh,) = manifest({"metadata": {"name": "big", "labels": {"pool": "big"}}}).nodes
    assert fresh.node.labels["pool"] == "big"


def test_a_template_without_the_labels_of_kubelet_gets_them() -> None:
    (fresh,) = manifest(
        {"metadata": {"name": "big"}}, make_node("x").label({"kubernetes.io/arch": "arm64"}).obj()
    ).nodes
    assert dict(fresh.node.labels) == {
        HOSTNAME: "new-0",
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "arm64",
        "beta.kubernetes.io/os": "linux",
        "beta.kubernetes.io/arch": "arm64",
    }


def test_old_labels_tell_the_system_if_the_new_ones_are_missing() -> None:
    (fresh,) = manifest({"metadata": {"name": "win", "labels": {"beta.kubernetes.io/os": "windows"}}}).nodes
    assert fresh.node.labels["kubernetes.io/os"] == "windows"


def test_a_placeholder_in_a_manifest_becomes_the_name_of_the_node() -> None:
    template = {"metadata": {"name": "big", "labels": {LOCAL: "any", DRIVERS_ZONE: "z1"}}}
    (fresh,) = manifest(template, TEMPLATE.obj(), CSI_NODE).nodes
    assert (fresh.node.labels[LOCAL], fresh.node.labels[DRIVERS_ZONE]) == ("new-0", "z1")


def test_the_notes_on_a_manifest_say_what_counts_as_none_and_what_as_unlimited() -> None:
    template = {"metadata": {"name": "big"}}
    assert manifest(template, TEMPLATE.obj(), CSI_NODE, CAPACITY, CAPACITY_OF_ZONE).notes == [
        "new nodes like big: a manifest does not say how many volumes of disk.csi, lvm.csi can be attached, so no such "
        "limit counts there",
        "new nodes like big: a manifest does not say how much local storage of StorageClass local is free, so none "
        "counts there",
    ]


@pytest.mark.parametrize(
    ("key", "stays"),
    [
        ("dedicated", True),
        ("node.kubernetes.io/unreachable", False),
        ("node.cloudprovider.kubernetes.io/uninitialized", False),
        ("ebs.csi.aws.com/agent-not-ready", False),
        ("ToBeDeletedByClusterAutoscaler", False),
        ("DeletionCandidateOfClusterAutoscaler", False),
        ("karpenter.sh/disrupted", False),
        ("node.cluster.x-k8s.io/outdated-revision", False),
        ("status-taint.cluster-autoscaler.kubernetes.io/suspended", False),
        ("cloud.google.com/impending-node-termination", False),
        ("aws-node-termination-handler/spot-itn", False),
        ("NodeWithImpairedVolumes", False),
        ("remediator.kubernetes.azure.com/unschedulable", False),
        ("UpdateInProgress", False),
        ("kops.k8s.io/scheduled-for-update", False),
        ("deployment.machine.sapcloud.io/prefer-no-schedule", False),
        ("node.gardener.cloud/critical-components-not-ready", False),
        ("cni.istio.io/not-ready", False),
        ("kubernetes.azure.com/scalesetpriority", True),
        ("node-role.kubernetes.io/control-plane", True),
        ("karpenter.sh/capacity", True),
    ],
)
def test_taints_of_a_nodes_life_are_not_copied(key: str, stays: bool) -> None:
    (fresh,) = copies(make_node("a").taint(key).obj()).nodes
    assert [taint.key for taint in fresh.node.taints] == ([key] if stays else [])


def test_images_conditions_and_the_cordon_are_not_copied() -> None:
    used = make_node("a").unschedulable().obj()
    used["status"]["images"] = [{"names": ["x:1"], "sizeBytes": 5}]
    used["metadata"]["deletionTimestamp"] = "2026-11-21T09:00:00Z"
    (fresh,) = copies(used).nodes
    state = (
        fresh.node.spec.unschedulable,
        fresh.node.status.images,
        fresh.node.status.conditions,
        fresh.node.terminating,
    )
    assert state == (None, None, None, False)


def test_drivers_report_their_limits_and_local_storage_for_the_new_node() -> None:
    fresh = copies(TEMPLATE.obj(), CSI_NODE, CAPACITY, CAPACITY_OF_ZONE)
    csi_node, own = fresh.nodes[0].objects
    assert isinstance(csi_node, CSINode) and isinstance(own, CSIStorageCapacity)
    assert csi_node.name == "new-0" and csi_node.drivers[0].allocatable is not None
    assert own.node_topology is not None and own.node_topology.match_expressions is not None
    assert [(each.key, each.values) for each in own.node_topology.match_expressions] == [(LOCAL, ["new-0"])]
    assert fresh.notes == ["new nodes like a: as much local storage of StorageClass local counts as free as on it"]


def test_every_pool_of_every_driver_keeps_a_name_of_its_own() -> None:
    slices = [make_resource_slice("a", "gpu.x", "d0"), make_resource_slice("a", "gpu.x", "d1")]
    slices[1]["metadata"]["name"] = "second"
    slices[1]["spec"]["pool"] = {**slices[1]["spec"]["pool"], "name": "second"}
    copied = [obj for fresh in copies(TEMPLATE.obj(), *slices, count=2).nodes for obj in fresh.objects]
    pools = [(obj.spec.node_name, obj.spec.pool.name) for obj in copied if isinstance(obj, ResourceSlice)]
    assert len(set(pools)) == len({obj.name for obj in copied}) == 4


@pytest.mark.parametrize(
    ("daemons", "runs"),
    [
        pytest.param(daemon_set(), True, id="without a pod anywhere"),
        pytest.param(daemon_set(nodeSelector={"pool": "gpu"}), False, id="its selector excludes the node"),
        pytest.param(daemon_set(tolerations=[{"operator": "Exists"}]), True, id="tolerates all"),
        pytest.param(daemon_set(affinity=by_name("In", "a")), False, id="on another node by name"),
        pytest.param(daemon_set(affinity=by_name("NotIn", "a")), True, id="not on another node by name"),
        pytest.param(daemon_set(nodeName="a"), False, id="names another node"),
    ],
)
def test_pods_of_daemon_sets_come_from_their_objects(daemons: Object, runs: bool) -> None:
    (fresh,) = copies(TEMPLATE.obj(), daemons).nodes
    assert [pod.key for pod in fresh.pods] == (["mon/agent-new-0"] if runs else [])


def test_a_daemon_set_without_an_object_is_known_by_its_pods_also_by_pending_ones() -> None:
    pending = make_pod("agent-x").req(cpu="1").owner("DaemonSet", "agent")
    field = {"key": "metadata.name", "operator": "In", "values": ["a"]}
    pending.spec(
        affinity={
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": [field]}]}
            }
        }
    )
    (fresh,) = copies(TEMPLATE.obj(), pending.obj()).nodes
    assert [(pod.name, pod.node_name) for pod in fresh.pods] == [("agent-x-new-0", "new-0")]


REFUSED = "new nodes like a: DaemonSet mon/agent gets no pod there: pod mon/agent: "


@pytest.mark.parametrize(
    ("daemons", "reason"),
    [
        (daemon_set(priorityClassName="vip"), "no PriorityClass vip is in the cluster"),
        (daemon_set(runtimeClassName="kata"), "no RuntimeClass kata is in the cluster"),
        (daemon_set(cpu="3"), "the API server would refuse it: spec.containers[0].resources.requests.cpu"),
    ],
    ids=["PriorityClass", "RuntimeClass", "LimitRange"],
)
def test_a_daemon_set_whose_pods_are_refused_spoils_no_answer(daemons: Object, reason: str) -> None:
    limits = {"limits": [{"type": "Container", "max": {"cpu": "2"}}]}
    limit_range = {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": "l", "namespace": "mon"},
        "spec": limits,
    }
    fresh = copies(TEMPLATE.obj(), daemons, limit_range)
    assert fresh.nodes[0].pods == []
    assert [note.startswith(REFUSED + reason) for note in fresh.notes] == [True]


@pytest.mark.parametrize("selects", [True, False])
@pytest.mark.parametrize("missing", ["priorityClassName", "runtimeClassName"])
def test_a_pod_shows_what_a_class_that_the_file_lacks_gives_to_a_daemon_set(missing: str, selects: bool) -> None:
    daemons = daemon_set(affinity=by_name("NotIn", "a" if selects else "new-0"), **{missing: "absent"})
    running = make_pod("agent-1", namespace="mon").owner("DaemonSet", "agent").priority(7).node("a").obj()
    fresh = copies(TEMPLATE.obj(), daemons, running)
    assert [(pod.name, pod.priority) for pod in fresh.nodes[0].pods] == ([("agent-1-new-0", 7)] if selects else [])
    assert fresh.notes == []


@pytest.mark.parametrize(
    "own",
    [
        {"resourceClaims": [{"name": "g", "resourceClaimTemplateName": "t"}]},
        {"volumes": [{"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}]},
    ],
    ids=["devices", "volumes"],
)
def test_a_daemon_with_claims_of_its_own_runs_on_a_new_node(own: Object) -> None:
    fresh = copies(TEMPLATE.obj(), daemon_set(**own))
    assert [pod.name for pod in fresh.nodes[0].pods] == ["agent-new-0"]
    text = (
        "new nodes like a: the devices and volumes that DaemonSet mon/agent claims for each pod are not counted there"
    )
    assert fresh.notes == [text]


def test_a_daemon_that_does_not_fit_on_the_new_node_is_named() -> None:
    fresh = copies(TEMPLATE.obj(), daemon_set(cpu="5"))
    assert fresh.nodes[0].pods == []
    assert fresh.notes == ["new nodes like a: the pod of DaemonSet mon/agent does not fit there"]


def test_daemons_of_a_removed_node_disappear_and_count_nowhere() -> None:
    pinned = make_pod("agent-b").owner("DaemonSet", "agent")
    field = {"key": "metadata.name", "operator": "In", "values": ["a"]}
    required = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    pinned.spec(affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}})
    running = make_pod("agent-a").owner("DaemonSet", "agent").node("a").obj()
    nodes = [TEMPLATE.obj(), make_node("b").obj()]
    result = Cluster.from_objects([*nodes, running, pinned.obj()]).simulate(Scenario(remove_nodes=["a"]))
    assert (result.placements, result.remaining, result.evictions, result.pods) == ([], {}, [], {})


def test_three_pods_that_repel_each_other_need_three_nodes_without_hostnames() -> None:
    pods = [make_pod(f"p{n}").label(app="x").anti_affinity(HOSTNAME, labels={"app": "x"}).obj() for n in range(3)]
    template = to_object({"kind": "Node", **make_node("big").capacity(cpu="4").obj()}, "node")
    assert isinstance(template, Node)
    for count in (2, 3):
        result = Cluster.from_objects(pods).simulate(Scenario(add_nodes=[(template, count)]))
        assert len(result.placements) == count

"""The real API server takes what the builders make, every field of it."""

from __future__ import annotations

import pytest

from tests import builders
from tests.builders import (
    HOSTNAME,
    ZONE,
    expression,
    make_alternative,
    make_claim,
    make_csi_driver,
    make_csi_node,
    make_device,
    make_device_class,
    make_device_taint_rule,
    make_namespace,
    make_node,
    make_pdb,
    make_pod,
    make_prioritized_list,
    make_priority_class,
    make_pv,
    make_pvc,
    make_request,
    make_resource_claim,
    make_resource_slice,
    make_result,
    make_service,
    make_slice,
    make_storage_capacity,
    make_storage_class,
    make_volume_attachment,
    node_term,
    version,
    with_allocation,
)
from tests.stock.api_client import ApiError
from tests.stock.cleaning import clean
from tests.stock.control_plane import ControlPlane

OBJECTS = [
    make_namespace("team", tier="front"),
    make_priority_class("high", 1000, preemptionPolicy="Never"),
    make_node("n").label(disktype="ssd").zone("z1", "r1").capacity({"example.com/gpu": "2"}, cpu="8").obj(),
    make_node("m").taint("k", "v", "NoExecute").unschedulable().image("app:v1", size_bytes=1000).obj(),
    make_node("o").condition("MemoryPressure", "True").declared_features("Example").allocatable(cpu="1").obj(),
    make_service("s", {"app": "web"}),
    make_pdb("b", {"app": "web"}, maxUnavailable=1),
    make_storage_class("wait"),
    make_storage_class("now", wait=False),
    make_pvc("bound", storage_class="now", volume="v"),
    make_pvc("pending", storage_class="wait"),
    make_pv("v", storage_class="now", claim="default/bound"),
    make_pv("local", source={"local": {"path": "/mnt"}}, node_terms=[node_term(expression(HOSTNAME, "In", "n"))]),
    make_csi_node("n", {"csi.example.com": 4}),
    make_csi_driver("csi.example.com", storageCapacity=True, preventPodSchedulingIfMissing=True),
    make_storage_capacity("here", "wait", labels={ZONE: "z1"}, capacity="10Gi", maximumVolumeSize="1Gi"),
    make_volume_attachment("n-v", "n", "v"),
    make_device_class("gpu", 'device.driver == "gpu.example.com"'),
    make_resource_claim("claim", "gpu", count=2),
    make_resource_slice("n", "gpu.example.com", "gpu-0", "gpu-1"),
    make_device_class("other", extended_resource="example.com/other"),
    make_claim(
        "choosy",
        make_request("one", "gpu", 'device.attributes["gpu.example.com"].model == "a100"', adminAccess=False),
        make_prioritized_list(
            "list", make_alternative("all", "gpu", allocationMode="All"), make_alternative("two", "gpu", count=2)
        ),
        constraints=[{"requests": ["one"], "matchAttribute": "gpu.example.com/model"}],
    ),
    with_allocation(make_claim("had", make_request("device", "gpu")), make_result("n", "gpu-0")),
    make_slice(
        "shared",
        "gpu.example.com",
        "everywhere",
        make_device("d", {"model": "a100", "index": 1, "mig": True, "driver": version("1.2.3")}, {"memory": "80Gi"}),
        allNodes=True,
    ),
    make_device_taint_rule("broken", {"key": "broken", "effect": "NoSchedule"}, driver="gpu.example.com", pool="n"),
    make_pod("plain").obj(),
    make_pod("sized")
    .req({"example.com/gpu": "1"}, cpu="1", memory="1Gi")
    .limit({"example.com/gpu": "1"})
    .container(cpu="100m")
    .init_container(cpu="2")
    .init_container(sidecar=True, memory="64Mi")
    .pod_level_req(cpu="4", memory="8Gi")
    .obj(),
    make_pod("described", "team")
    .label({"example.com/rank": "1"}, app="web")
    .annotation({"example.com/note": "x"})
    .owner("ReplicaSet", "web")
    .image("app:v1")
    .node("n")
    .priority_class("high")
    .preemption_policy("Never")
    .scheduler("other")
    .obj(),
    make_pod("constrained")
    .node_selector({ZONE: "z1"}, disktype="ssd")
    .toleration("k", "v", effect="NoSchedule")
    .toleration()
    .require_node(node_term(expression("rank", "Gt", "3")), node_term(fields=[expression("metadata.name", "In", "n")]))
    .prefer_node(10, node_term(expression("disktype", "Exists")))
    .affinity(ZONE, labels={"app": "web"}, namespaces=["team"])
    .affinity(ZONE, weight=5, expressions=[expression("app", "NotIn", "db")])
    .anti_affinity(HOSTNAME, labels={"app": "db"}, namespaceSelector={})
    .anti_affinity(HOSTNAME, weight=1, labels={"app": "db"}, matchLabelKeys=["version"])
    .spread(ZONE, labels={"app": "web"}, minDomains=2)
    .spread(HOSTNAME, max_skew=3, soft=True, labels={"app": "web"})
    .host_port(8080)
    .host_port(53, "UDP", "127.0.0.1")
    .gate("example.com/wait")
    .obj(),
    make_pod("storing").pvc("bound").pvc("pending", read_only=True).volume("scratch", {"emptyDir": {}}).obj(),
    make_pod("claiming").resource_claim("claim").resource_claim("template", template=True).obj(),
]


@pytest.mark.stock
def test_the_api_server_takes_them_and_has_none_of_them_once_it_is_cleaned(control_plane: ControlPlane) -> None:
    created = control_plane.client.create(*OBJECTS)
    names = [(item["kind"], item["metadata"]["name"]) for item in OBJECTS]
    assert [(item["kind"], item["metadata"]["name"]) for item in created] == names
    clean(control_plane)
    assert [key for key in control_plane.new_keys() if {name for _, name in names} & {*key.split("/")}] == []


@pytest.mark.stock
def test_the_api_server_would_refuse_a_misspelt_field(control_plane: ControlPlane) -> None:
    pod = make_pod("p").obj()
    pod["spec"]["nodeNam"] = "n"
    with pytest.raises(ApiError, match="unknown field"):
        control_plane.client.create(pod)


def test_every_maker_is_tried() -> None:
    unserved = {"make_pod_group", "make_composite_pod_group"}  # by this control plane; tests/model tries them
    makers = {name for name in builders.__all__ if name.startswith("make_")} - unserved
    assert makers <= globals().keys()


def test_a_builder_is_a_template() -> None:
    template = make_pod("p").label(app="web")
    first = template.obj()
    second = template.label(app="db").req(cpu="1").obj()
    assert first["metadata"]["labels"] == {"app": "web"}
    assert "resources" not in first["spec"]["containers"][0]
    assert second["metadata"]["labels"] == {"app": "db"}

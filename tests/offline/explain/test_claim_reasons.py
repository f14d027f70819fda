"""The numbers behind refusals of volumes and devices: each plugin names its own limits, claims and selectors."""

from __future__ import annotations

import pytest

from extender import Cluster
from tests.builders import (
    Object,
    expression,
    make_claim,
    make_csi_driver,
    make_csi_node,
    make_device,
    make_device_class,
    make_node,
    make_pod,
    make_pv,
    make_pvc,
    make_request,
    make_resource_slice,
    make_result,
    make_storage_capacity,
    make_storage_class,
    node_term,
    stored,
    with_allocation,
)

IN_A, IN_B = make_node("a1").label(zone="a").obj(), make_node("b1").label(zone="b").obj()
WEB = make_pod("web").pvc("data").obj()
TRAINING = make_pod("train").resource_claim("rc").obj()
GPU = make_device_class("gpu", 'device.driver == "gpu.example.com"')
BIG = 'device.attributes["gpu.example.com"].model == "big"'


def volume(name: str, claim: str | None = None) -> Object:
    return make_pv(name, source={"csi": {"driver": "csi.example.com", "volumeHandle": name}}, claim=claim)


def gpus(node: str, *models: str) -> Object:
    return make_resource_slice(
        node, "gpu.example.com", *(make_device(f"gpu-{i}", {"model": model}) for i, model in enumerate(models))
    )


def allocated(name: str, pool: str, device: str) -> Object:
    return with_allocation(make_claim(name, make_request("device", "gpu")), make_result(pool, device))


@pytest.mark.parametrize(
    ("pod", "objects", "reason", "expected"),
    [
        pytest.param(
            WEB,
            [
                *(make_csi_node("a1", {"csi.example.com": 1}), make_csi_node("b1", {"csi.example.com": 0})),
                *(make_pvc("data", volume="new"), volume("new", "default/data")),
                *(make_pvc("other", volume="old"), volume("old", "default/other")),
                make_pod("db").pvc("other").node("a1").obj(),
            ],
            "node(s) exceed max volume count",
            "a1 has 1 of 1 volume of csi.example.com attached, and the pod adds 1",
            id="the limit of a driver",
        ),
        pytest.param(
            WEB,
            [make_pvc("data", volume="v"), make_pv("v", node_terms=[node_term(expression("zone", "In", "c"))])],
            "node(s) didn't match PersistentVolume's node affinity",
            "claim data is bound to v, which requires zone in (c)",
            id="a volume of another zone",
        ),
        pytest.param(
            WEB,
            [
                make_pvc("data", storage_class="local", storage="2Gi"),
                make_storage_class("local", provisioner="kubernetes.io/no-provisioner"),
                make_pv("small", storage_class="local"),
            ],
            "node(s) didn't find available persistent volumes to bind",
            "claim data requests 2Gi; StorageClass local has 1 free volume, none of which suits it here, "
            "and provisions no new ones",
            id="no free volume",
        ),
        pytest.param(
            WEB,
            [
                make_pvc("data", storage_class="zonal"),
                make_storage_class(
                    "zonal",
                    allowedTopologies=[{"matchLabelExpressions": [{"key": "zone", "values": ["c", "d"]}]}],
                ),
            ],
            "node(s) didn't find available persistent volumes to bind",
            "claim data requests 1Gi; StorageClass zonal has 0 free volumes, none of which suits it here, "
            "and provisions new ones only on nodes with zone in (c, d)",
            id="a class of other zones",
        ),
        pytest.param(
            WEB,
            [
                make_pvc("data", storage_class="fast", storage="10Gi"),
                *(make_storage_class("fast"), make_csi_driver("csi.example.com", storageCapacity=True)),
                make_storage_capacity("a", "fast", labels={"zone": "a"}, capacity="4Gi"),
                make_storage_capacity("b", "fast", labels={"zone": "b"}, capacity="5Gi"),
                make_storage_capacity("c", "fast", labels={"zone": "c"}, capacity="50Gi"),
            ],
            "node(s) did not have enough free storage",
            "claim data requests 10Gi of StorageClass fast; the largest volume possible on these nodes is 5Gi",
            id="storage pools that are too small",
        ),
        pytest.param(
            WEB,
            [
                make_pvc("data", volume="v"),
                make_pv("v", labels={"topology.kubernetes.io/zone": "c"}),
                make_node("c1").label({"topology.kubernetes.io/zone": "x"}).obj(),
            ],
            "node(s) had no available volume zone",
            "PersistentVolume v is in topology.kubernetes.io/zone=c",
            id="the zone of a volume",
        ),
        pytest.param(
            WEB,
            [
                make_pvc("data", volume="v", access_mode="ReadWriteOncePod"),
                *(make_pv("v"), make_pod("db").pvc("data").node("a1").obj()),
            ],
            "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by "
            "another pod",
            "claim data is used by default/db",
            id="a claim for one pod",
        ),
        pytest.param(
            TRAINING,
            [GPU, make_claim("rc", make_request("gpu", "gpu"))],
            "cannot allocate all claims",
            "request gpu of claim rc: these nodes have no devices",
            id="no device",
        ),
        pytest.param(
            TRAINING,
            [GPU, make_claim("rc", make_request("gpu", "gpu", BIG)), gpus("a1", "small", "small"), gpus("b1", "tiny")],
            "cannot allocate all claims",
            f"request gpu of claim rc: selector `{BIG}` matches none of 3 devices on these nodes",
            id="a selector that matches nothing",
        ),
        pytest.param(
            TRAINING,
            [
                *(GPU, make_claim("rc", make_request("gpu", "gpu", BIG, count=2))),
                *(gpus("a1", "big", "big", "small"), gpus("b1", "big"), allocated("other", "a1", "gpu-0")),
            ],
            "cannot allocate all claims",
            "request gpu of claim rc: needs 2 devices; the most free on a node is 1, on a1 "
            "(3 of 4 devices match, 1 allocated)",
            id="allocated devices",
        ),
        pytest.param(
            TRAINING,
            [
                *(GPU, gpus("a1", "big", "small")),
                make_claim(
                    "rc",
                    make_request("gpu", "gpu", count=2),
                    constraints=[{"matchAttribute": "gpu.example.com/model", "requests": ["gpu"]}],
                ),
            ],
            "cannot allocate all claims",
            "each request finds devices, but constraints, counters, capacity or the other requests exclude them "
            "(ResourceClaim rc)",
            id="a constraint",
        ),
    ],
)
def test_refused_claims_come_with_numbers(pod: Object, objects: list[Object], reason: str, expected: str) -> None:
    explanation = Cluster.from_objects([IN_A, IN_B, *objects]).explain(stored(pod))
    assert [each.detail for each in explanation.reasons if each.reason == reason] == [expected]

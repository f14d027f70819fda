"""VolumeBinding: the events that may help."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from extender.framework.cluster_events import Action, Resource
from extender.model.storage import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolumeClaim,
    StorageClass,
)
from tests.builders import (
    ZONE,
    Object,
    PodBuilder,
    make_csi_node,
    make_pod,
    make_storage_class,
)
from tests.plugins.hint_case import claim, helped, read
from tests.queue.queueing import info

EPHEMERAL: Object = {"ephemeral": {"volumeClaimTemplate": {}}}


def storage_class(**fields: Any) -> StorageClass:
    return read(StorageClass, make_storage_class("fast", **fields))


IN_ZONE_A = [{"matchLabelExpressions": [{"key": ZONE, "values": ["a"]}]}]


def capacity(size: str | None, largest: str | None = None) -> CSIStorageCapacity:
    return CSIStorageCapacity(capacity=size, maximum_volume_size=largest)


def driver(name: str, reports: bool) -> CSIDriver:
    return msgspec.convert({"metadata": {"name": name}, "spec": {"storageCapacity": reports}}, CSIDriver)


def csi_node(**limits: int) -> CSINode:
    return read(CSINode, make_csi_node("n", limits))


@pytest.mark.parametrize(
    ("pod", "came", "expected"),
    [
        pytest.param(make_pod("p").pvc("data"), claim("data"), True, id="its claim"),
        pytest.param(make_pod("p").pvc("data"), claim("other"), False, id="another"),
        pytest.param(make_pod("p").pvc("data"), claim("data", "x"), False, id="elsewhere"),
        pytest.param(make_pod("p").volume("v", EPHEMERAL), claim("p-v"), True, id="made"),
    ],
)
def test_a_new_claim_wakes_the_pods_that_use_it(pod: PodBuilder, came: PersistentVolumeClaim, expected: bool) -> None:
    assert helped("VolumeBinding", info(pod), Resource.PERSISTENT_VOLUME_CLAIM, Action.ADD, None, came) is expected


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param(None, storage_class(), True, id="comes"),
        pytest.param(storage_class(), storage_class(allowedTopologies=IN_ZONE_A), True, id="elsewhere"),
        pytest.param(storage_class(), storage_class(), False, id="unchanged"),
    ],
)
def test_storage_classes(old: StorageClass | None, new: StorageClass, expected: bool) -> None:
    action = Action.UPDATE if old else Action.ADD
    assert helped("VolumeBinding", info("p"), Resource.STORAGE_CLASS, action, old, new) is expected


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param(None, capacity("1Gi"), True, id="comes"),
        pytest.param(capacity("1Gi"), capacity("2Gi"), True, id="grows"),
        pytest.param(capacity("2Gi"), capacity("1Gi"), False, id="shrinks"),
        pytest.param(capacity(None), capacity("1Gi"), True, id="becomes known"),
        pytest.param(capacity("1Gi"), capacity(None), False, id="becomes unknown"),
        pytest.param(capacity("1Gi", "1Gi"), capacity("9Gi", "1Gi"), False, id="not for one volume"),
    ],
)
def test_volume_binding_and_capacity(old: CSIStorageCapacity | None, new: CSIStorageCapacity, expected: bool) -> None:
    action = Action.UPDATE if old else Action.ADD
    assert helped("VolumeBinding", info("p"), Resource.CSI_STORAGE_CAPACITY, action, old, new) is expected


@pytest.mark.parametrize(
    ("name", "before", "after", "expected"),
    [
        pytest.param("mine", True, False, True, id="no longer asked for capacity"),
        pytest.param("mine", False, True, False, id="asked from now on"),
        pytest.param("mine", True, True, False, id="asked as before"),
        pytest.param("other", True, False, False, id="another driver"),
    ],
)
def test_volume_binding_and_a_driver(name: str, before: bool, after: bool, expected: bool) -> None:
    pod = info(make_pod("p").volume("v", {"csi": {"driver": "mine"}}))
    old, new = driver(name, before), driver(name, after)
    assert helped("VolumeBinding", pod, Resource.CSI_DRIVER, Action.UPDATE, old, new) is expected


@pytest.mark.parametrize(
    ("plugins", "expected"),
    [pytest.param("kubernetes.io/aws-ebs", True, id="migrated"), pytest.param("", False, id="unchanged")],
)
def test_volume_binding_and_migration(plugins: str, expected: bool) -> None:
    annotation = {"storage.alpha.kubernetes.io/migrated-plugins": plugins}
    new = msgspec.convert({"metadata": {"name": "n", "annotations": annotation}}, CSINode)
    assert helped("VolumeBinding", info("p"), Resource.CSI_NODE, Action.UPDATE, csi_node(), new) is expected


def test_a_new_csi_node_may_help_the_pods_that_volume_binding_refused() -> None:
    assert helped("VolumeBinding", info("p"), Resource.CSI_NODE, Action.ADD, None, csi_node())

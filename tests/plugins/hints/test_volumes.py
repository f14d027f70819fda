"""VolumeBinding, VolumeZone, VolumeRestrictions, NodeVolumeLimits, DynamicResources."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
import pytest

from extender.framework.events.cluster_events import Action, Resource
from extender.model.devices.claims import ResourceClaim
from extender.model.meta import Object
from extender.model.volumes.storage import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from tests.builders import (
    ZONE,
    PodBuilder,
    make_csi_node,
    make_pod,
    make_pv,
    make_pvc,
    make_resource_claim,
    make_storage_class,
)
from tests.plugins.hints.hint_case import helped
from tests.queue.queueing import info

T = TypeVar("T", bound=Object)
EPHEMERAL = {"ephemeral": {"volumeClaimTemplate": {}}}
DISK = {"gcePersistentDisk": {"pdName": "d"}}
DISK_READ_ONLY = {"gcePersistentDisk": {"pdName": "d", "readOnly": True}}


def read(kind: type[T], obj: dict[str, Any]) -> T:
    return msgspec.convert(obj, kind)


def claim(name: str, namespace: str = "default") -> PersistentVolumeClaim:
    return read(PersistentVolumeClaim, make_pvc(name, namespace=namespace))


@pytest.mark.parametrize(
    ("rule", "pod", "came", "expected"),
    [
        pytest.param("VolumeBinding", make_pod("p").pvc("data"), claim("data"), True, id="binding: its claim"),
        pytest.param("VolumeBinding", make_pod("p").pvc("data"), claim("other"), False, id="binding: another"),
        pytest.param("VolumeBinding", make_pod("p").pvc("data"), claim("data", "x"), False, id="binding: elsewhere"),
        pytest.param("VolumeBinding", make_pod("p").volume("v", EPHEMERAL), claim("p-v"), True, id="binding: made"),
        pytest.param("VolumeZone", make_pod("p").pvc("data"), claim("data"), True, id="zone: its claim"),
        pytest.param("VolumeZone", make_pod("p").volume("v", EPHEMERAL), claim("p-v"), False, id="zone: ephemeral"),
        pytest.param("VolumeRestrictions", make_pod("p").pvc("data"), claim("data"), True, id="restrictions"),
        pytest.param("NodeVolumeLimits", make_pod("p").pvc("data"), claim("data"), True, id="limits: its claim"),
        pytest.param("NodeVolumeLimits", make_pod("p").pvc("data"), claim("other"), False, id="limits: another"),
    ],
)
def test_a_claim_comes(rule: str, pod: PodBuilder, came: PersistentVolumeClaim, expected: bool) -> None:
    assert helped(rule, info(pod), Resource.PERSISTENT_VOLUME_CLAIM, Action.ADD, None, came) is expected


def storage_class(**fields: Any) -> StorageClass:
    return read(StorageClass, make_storage_class("fast", **fields))


IN_ZONE_A = [{"matchLabelExpressions": [{"key": ZONE, "values": ["a"]}]}]


@pytest.mark.parametrize(
    ("rule", "old", "new", "expected"),
    [
        pytest.param("VolumeBinding", None, storage_class(), True, id="binding: comes"),
        pytest.param(
            "VolumeBinding", storage_class(), storage_class(allowedTopologies=IN_ZONE_A), True, id="binding: elsewhere"
        ),
        pytest.param("VolumeBinding", storage_class(), storage_class(), False, id="binding: unchanged"),
        pytest.param("VolumeZone", None, storage_class(), True, id="zone: waits"),
        pytest.param("VolumeZone", None, storage_class(wait=False), False, id="zone: immediate"),
        pytest.param("VolumeZone", storage_class(), storage_class(), False, id="zone: updates mean nothing"),
    ],
)
def test_storage_classes(rule: str, old: StorageClass | None, new: StorageClass, expected: bool) -> None:
    action = Action.UPDATE if old else Action.ADD
    assert helped(rule, info("p"), Resource.STORAGE_CLASS, action, old, new) is expected


@pytest.mark.parametrize(
    ("old_zone", "new_zone", "expected"),
    [pytest.param("a", "b", True, id="moves"), pytest.param("a", "a", False, id="stays")],
)
def test_volume_zone_and_a_volume(old_zone: str, new_zone: str, expected: bool) -> None:
    old, new = (read(PersistentVolume, make_pv("v", labels={ZONE: zone})) for zone in (old_zone, new_zone))
    assert helped("VolumeZone", info("p"), Resource.PERSISTENT_VOLUME, Action.UPDATE, old, new) is expected
    assert helped("VolumeZone", info("p"), Resource.PERSISTENT_VOLUME, Action.ADD, None, new)


def capacity(size: str | None, largest: str | None = None) -> CSIStorageCapacity:
    return CSIStorageCapacity(capacity=size, maximum_volume_size=largest)


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


def driver(name: str, reports: bool) -> CSIDriver:
    return msgspec.convert({"metadata": {"name": name}, "spec": {"storageCapacity": reports}}, CSIDriver)


@pytest.mark.parametrize(
    ("name", "before", "after", "expected"),
    [
        pytest.param("mine", True, False, True, id="no longer asked for capacity"),
        pytest.param("mine", False, True, False, id="asked from now on"),
        pytest.param("other", True, False, False, id="another driver"),
    ],
)
def test_volume_binding_and_a_driver(name: str, before: bool, after: bool, expected: bool) -> None:
    pod = info(make_pod("p").volume("v", {"csi": {"driver": "mine"}}))
    old, new = driver(name, before), driver(name, after)
    assert helped("VolumeBinding", pod, Resource.CSI_DRIVER, Action.UPDATE, old, new) is expected


def csi_node(**limits: int) -> CSINode:
    return read(CSINode, make_csi_node("n", limits))


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param(csi_node(d=1), csi_node(d=2), True, id="grows"),
        pytest.param(csi_node(d=2), csi_node(d=1), False, id="shrinks"),
        pytest.param(csi_node(), csi_node(d=1), True, id="driver comes"),
        pytest.param(csi_node(d=1), csi_node(d=1), False, id="unchanged"),
    ],
)
def test_node_volume_limits_and_a_csi_node(old: CSINode, new: CSINode, expected: bool) -> None:
    assert helped("NodeVolumeLimits", info("p"), Resource.CSI_NODE, Action.UPDATE, old, new) is expected


@pytest.mark.parametrize(
    ("plugins", "expected"),
    [pytest.param("kubernetes.io/aws-ebs", True, id="migrated"), pytest.param("", False, id="unchanged")],
)
def test_volume_binding_and_migration(plugins: str, expected: bool) -> None:
    annotation = {"storage.alpha.kubernetes.io/migrated-plugins": plugins}
    new = msgspec.convert({"metadata": {"name": "n", "annotations": annotation}}, CSINode)
    assert helped("VolumeBinding", info("p"), Resource.CSI_NODE, Action.UPDATE, csi_node(), new) is expected


@pytest.mark.parametrize(
    ("rule", "pod", "left", "expected"),
    [
        pytest.param("VolumeRestrictions", make_pod("p").pvc("c"), make_pod("o").pvc("c"), True, id="shared claim"),
        pytest.param("VolumeRestrictions", make_pod("p").pvc("c"), make_pod("o").pvc("d"), False, id="another claim"),
        pytest.param(
            "VolumeRestrictions", make_pod("p").pvc("c"), make_pod("o", "x").pvc("c"), False, id="another namespace"
        ),
        pytest.param(
            "VolumeRestrictions", make_pod("p").volume("v", DISK), make_pod("o").volume("v", DISK), True, id="same disk"
        ),
        pytest.param(
            "VolumeRestrictions",
            make_pod("p").volume("v", DISK_READ_ONLY),
            make_pod("o").volume("v", DISK_READ_ONLY),
            False,
            id="both only read",
        ),
        pytest.param("NodeVolumeLimits", make_pod("p").pvc("c"), make_pod("o").pvc("d"), True, id="a volume less"),
        pytest.param("NodeVolumeLimits", make_pod("p").pvc("c"), make_pod("o"), False, id="nothing attached"),
    ],
)
def test_a_pod_leaves(rule: str, pod: PodBuilder, left: PodBuilder, expected: bool) -> None:
    gone = info(left.node("n"))
    assert helped(rule, info(pod), Resource.ASSIGNED_POD, Action.DELETE, gone) is expected


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        pytest.param(make_pod("p").pvc("c"), True, id="a claim may be of any driver"),
        pytest.param(make_pod("p").volume("v", DISK), True, id="inline, of this driver"),
        pytest.param(make_pod("p").volume("v", {"cinder": {"volumeID": "x"}}), False, id="inline, of another driver"),
        pytest.param(make_pod("p"), False, id="no volumes"),
    ],
)
def test_node_volume_limits_and_an_attachment(pod: PodBuilder, expected: bool) -> None:
    gone = msgspec.convert({"metadata": {"name": "a"}, "spec": {"attacher": "pd.csi.storage.gke.io"}}, VolumeAttachment)
    assert helped("NodeVolumeLimits", info(pod), Resource.VOLUME_ATTACHMENT, Action.DELETE, gone) is expected


def device_claim(name: str, *, allocated: bool = False, reserved: bool = False) -> ResourceClaim:
    status: dict[str, Any] = {"allocation": {"devices": {}}} if allocated else {}
    status |= {"reservedFor": [{"resource": "pods", "name": "o", "uid": "o"}]} if reserved else {}
    return read(ResourceClaim, {**make_resource_claim(name, "gpu"), "status": status})


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param(None, device_claim("mine"), True, id="its claim comes"),
        pytest.param(None, device_claim("other"), False, id="another comes"),
        pytest.param(device_claim("mine"), device_claim("mine", allocated=True), True, id="its claim is allocated"),
        pytest.param(device_claim("mine"), device_claim("mine"), False, id="nothing changes"),
        pytest.param(device_claim("other", allocated=True), device_claim("other"), True, id="devices come free"),
        pytest.param(device_claim("other", allocated=True), None, True, id="devices come free by deletion"),
        pytest.param(device_claim("mine"), None, False, id="its claim goes"),
        pytest.param(device_claim("generated"), device_claim("generated", reserved=True), True, id="a generated claim"),
    ],
)
def test_dynamic_resources(old: ResourceClaim | None, new: ResourceClaim | None, expected: bool) -> None:
    claims = [{"name": "a", "resourceClaimName": "mine"}, {"name": "b", "resourceClaimTemplateName": "t"}]
    statuses = [{"name": "b", "resourceClaimName": "generated"}]
    pod = info(make_pod("p").spec(resourceClaims=claims).status(resourceClaimStatuses=statuses))
    action = Action.ADD if old is None else Action.DELETE if new is None else Action.UPDATE
    assert helped("DynamicResources", pod, Resource.RESOURCE_CLAIM, action, old, new) is expected

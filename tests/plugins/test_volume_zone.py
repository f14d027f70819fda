"""VolumeZone: volumes with zone labels can be used on nodes of their zone."""

from __future__ import annotations

from typing import Any

import pytest

from extender.framework.cluster_events import Action, Resource
from extender.framework.status import Refusal, unresolvable
from extender.model.storage import (
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from extender.plugins.volume_zone import VolumeZone
from tests.builders import (
    REGION,
    ZONE,
    Object,
    PodBuilder,
    make_node,
    make_pod,
    make_pv,
    make_pvc,
    make_storage_class,
)
from tests.framework.cluster import refusals
from tests.plugins.hint_case import claim, helped, read
from tests.queue.queueing import info

BETA_ZONE = "failure-domain.beta.kubernetes.io/zone"
NODES = [
    make_node("z0").zone("z0", "r0").obj(),
    make_node("z1").zone("z1", "r0").obj(),
    make_node("old").label({BETA_ZONE: "z0"}).obj(),
    make_node("region only").label({REGION: "r0"}).obj(),
    make_node("bare").obj(),
]
POD = make_pod("p").pvc("c").obj()
BOUND = make_pvc("c", volume="v")
WRONG_ZONE = unresolvable("VolumeZone", "node(s) had no available volume zone")


@pytest.mark.parametrize(
    ("labels", "refused"),
    [
        pytest.param({}, set(), id="no labels"),
        pytest.param({"disktype": "ssd"}, set(), id="other labels"),
        pytest.param({ZONE: "z0"}, {"z1", "old", "region only"}, id="a zone"),
        pytest.param({ZONE: "z0__z1"}, {"old", "region only"}, id="several zones"),
        pytest.param({ZONE: " z0 __z1"}, {"old", "region only"}, id="blanks around them"),
        pytest.param({ZONE: "z0__"}, set(), id="a label that cannot be read"),
        pytest.param({BETA_ZONE: "z0"}, {"z1", "region only"}, id="a zone by the old label"),
        pytest.param({REGION: "r1"}, {"z0", "z1", "old", "region only"}, id="a region"),
        pytest.param({ZONE: "z1", REGION: "r0"}, {"z0", "old", "region only"}, id="both"),
    ],
)
def test_labels(labels: dict[str, str], refused: set[str]) -> None:
    volume = make_pv("v", labels=labels, claim="default/c")
    assert refusals_for(BOUND, volume) == dict.fromkeys(refused, WRONG_ZONE)


@pytest.mark.parametrize(
    ("objects", "reason"),
    [
        pytest.param([], 'persistentvolumeclaim "c" not found', id="no claim"),
        pytest.param([BOUND], 'persistentvolume "v" not found', id="no volume"),
        pytest.param([make_pvc("c")], "PersistentVolumeClaim had no pv name and storageClass name", id="no class"),
        pytest.param(
            [make_pvc("c", storage_class="s")], 'storageclass.storage.k8s.io "s" not found', id="class is missing"
        ),
        pytest.param(
            [make_pvc("c", storage_class="s"), make_storage_class("s", wait=False)],
            "PersistentVolume had no name",
            id="not bound yet",
        ),
        pytest.param(
            [make_pvc("c", storage_class="s"), {**make_storage_class("s"), "volumeBindingMode": None}],
            'VolumeBindingMode not set for StorageClass "s"',
            id="class without a mode",
        ),
        pytest.param([make_pvc("c", storage_class="s"), make_storage_class("s")], None, id="bound with the pod"),
    ],
)
def test_claims(objects: list[Object], reason: str | None) -> None:
    refusal = unresolvable("VolumeZone", reason) if reason else None
    assert refusals_for(*objects) == ({} if refusal is None else {node["metadata"]["name"]: refusal for node in NODES})


def refusals_for(*objects: Object) -> dict[str, Refusal]:
    return refusals(VolumeZone(), POD, *NODES, *objects)


EPHEMERAL: Object = {"ephemeral": {"volumeClaimTemplate": {}}}


def storage_class(**fields: Any) -> StorageClass:
    return read(StorageClass, make_storage_class("fast", **fields))


@pytest.mark.parametrize(
    ("pod", "came", "expected"),
    [
        pytest.param(make_pod("p").pvc("data"), claim("data"), True, id="its claim"),
        pytest.param(make_pod("p").volume("v", EPHEMERAL), claim("p-v"), False, id="ephemeral"),
    ],
)
def test_a_new_claim_wakes_the_pods_that_use_it(pod: PodBuilder, came: PersistentVolumeClaim, expected: bool) -> None:
    assert helped("VolumeZone", info(pod), Resource.PERSISTENT_VOLUME_CLAIM, Action.ADD, None, came) is expected


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param(None, storage_class(), True, id="waits"),
        pytest.param(None, storage_class(wait=False), False, id="immediate"),
        pytest.param(storage_class(), storage_class(), False, id="updates mean nothing"),
    ],
)
def test_storage_classes(old: StorageClass | None, new: StorageClass, expected: bool) -> None:
    action = Action.UPDATE if old else Action.ADD
    assert helped("VolumeZone", info("p"), Resource.STORAGE_CLASS, action, old, new) is expected


@pytest.mark.parametrize(
    ("old_zone", "new_zone", "expected"),
    [pytest.param("a", "b", True, id="moves"), pytest.param("a", "a", False, id="stays")],
)
def test_volume_zone_and_a_volume(old_zone: str, new_zone: str, expected: bool) -> None:
    old, new = (read(PersistentVolume, make_pv("v", labels={ZONE: zone})) for zone in (old_zone, new_zone))
    assert helped("VolumeZone", info("p"), Resource.PERSISTENT_VOLUME, Action.UPDATE, old, new) is expected
    assert helped("VolumeZone", info("p"), Resource.PERSISTENT_VOLUME, Action.ADD, None, new)

"""VolumeZone: labelled volumes and the nodes of their zones."""

from __future__ import annotations

import pytest

from extender.framework.status import Refusal, unresolvable
from extender.plugins.volume_zone import REFUSAL, VolumeZone
from tests.builders import REGION, ZONE, Object, make_node, make_pod, make_pv, make_pvc, make_storage_class
from tests.framework.cluster import refusals

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
    assert refusals_for(BOUND, volume) == dict.fromkeys(refused, REFUSAL)


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

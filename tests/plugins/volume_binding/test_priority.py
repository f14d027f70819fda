"""VolumeBinding, Score: the share of free volumes or pools that a pod would use."""

from __future__ import annotations

import pytest

from extender.framework.policy_fields import ShapePoint
from extender.plugins.volume_binding import VolumeBindingScore
from tests.builders import (
    ZONE,
    Object,
    expression,
    make_csi_driver,
    make_node,
    make_pod,
    make_pv,
    make_pvc,
    make_storage_capacity,
    make_storage_class,
    node_term,
)
from tests.framework.cluster import scores

NODES = [make_node(f"n{i}").zone(f"z{i}").obj() for i in range(3)]
CLASSES = [make_storage_class("s"), make_storage_class("t"), make_csi_driver("csi.example.com", storageCapacity=True)]
MOST_USED = (ShapePoint(0, 0), ShapePoint(100, 10))


def free(name: str, storage: str, zone: str, *, storage_class: str = "s") -> Object:
    terms = [node_term(expression(ZONE, "In", zone))]
    return make_pv(name, storage_class=storage_class, storage=storage, node_terms=terms)


def pool(zone: str, capacity: str, *, storage_class: str = "s") -> Object:
    return make_storage_capacity(f"{storage_class}-{zone}", storage_class, labels={ZONE: zone}, capacity=capacity)


CLAIM = make_pvc("c", storage_class="s", storage="1Gi")
POD = make_pod("p").pvc("c").obj()


@pytest.mark.parametrize(
    ("objects", "expected"),
    [
        pytest.param([free("v", "1Gi", "z0"), free("w", "4Gi", "z1")], [0, 75, 0], id="free volumes"),
        pytest.param([pool("z0", "2Gi"), pool("z1", "10Gi"), pool("z2", "1Gi")], [50, 90, 0], id="pools"),
        pytest.param([free("v", "2Gi", "z0"), pool("z1", "4Gi")], [50, 75, 0], id="a volume here, a pool there"),
    ],
)
def test_one_claim(objects: list[Object], expected: list[int]) -> None:
    assert list(scores(VolumeBindingScore(), POD, *NODES, *CLASSES, CLAIM, *objects).values()) == expected


def test_claims_of_one_class_share_its_pool() -> None:
    pod = make_pod("p").pvc("c").pvc("d").obj()
    other = make_pvc("d", storage_class="s", storage="2Gi")
    assert scores(VolumeBindingScore(), pod, *NODES, *CLASSES, CLAIM, other, pool("z0", "12Gi"))["n0"] == 75


def test_a_volume_counts_on_its_node_even_if_another_claim_of_its_class_has_none_there() -> None:
    pod = make_pod("p").pvc("c").pvc("d").obj()
    other = make_pvc("d", storage_class="s", storage="2Gi")
    objects = [free("c0", "1Gi", "z0"), free("d0", "2Gi", "z0"), free("c1", "1280Mi", "z1"), pool("z1", "100Gi")]
    found = scores(VolumeBindingScore(MOST_USED), pod, *NODES, *CLASSES, CLAIM, other, *objects)
    assert (found["n0"], found["n1"]) == (100, 80)  # 3 of 3 GiB; 1 of 1.25 GiB


def test_claims_that_do_not_fit_into_their_pool_together_score_like_a_full_pool() -> None:
    pod = make_pod("p").pvc("c").pvc("d").obj()
    other = make_pvc("d", storage_class="s", storage="2Gi")
    found = scores(VolumeBindingScore(MOST_USED), pod, *NODES, *CLASSES, CLAIM, other, pool("z0", "2Gi"))
    assert found["n0"] == 100


def test_classes_count_alike_and_halves_are_rounded_up() -> None:
    pod = make_pod("p").pvc("c").pvc("d").obj()
    other = make_pvc("d", storage_class="t", storage="3Gi")
    pools = [pool("z0", "2Gi"), pool("z0", "4Gi", storage_class="t"), pool("z1", "100Gi")]
    pools += [pool("z1", "100Gi", storage_class="t")]
    found = scores(VolumeBindingScore(), pod, *NODES, *CLASSES, CLAIM, other, *pools)
    assert (found["n0"], found["n1"]) == (38, 98)  # 37.5 of 50 and 25; 98 of 99 and 97


def test_pools_do_not_count_if_a_volume_matches() -> None:
    pod = make_pod("p").pvc("c").pvc("d").obj()
    other = make_pvc("d", storage_class="t", storage="3Gi")
    objects = [free("v", "2Gi", "z0"), pool("z0", "300Gi", storage_class="t")]
    assert scores(VolumeBindingScore(), pod, *NODES, *CLASSES, CLAIM, other, *objects)["n0"] == 50


def test_the_shape_determines_the_best_utilization() -> None:
    objects = [free("v", "1Gi", "z0"), free("w", "4Gi", "z1")]
    found = scores(VolumeBindingScore(MOST_USED), POD, *NODES, *CLASSES, CLAIM, *objects)
    assert (found["n0"], found["n1"]) == (100, 25)


@pytest.mark.parametrize(
    ("pod", "objects"),
    [
        pytest.param(make_pod("p").obj(), [], id="no claims"),
        pytest.param(POD, [make_pvc("c", volume="v"), make_pv("v", claim="default/c")], id="bound claims"),
        pytest.param(POD, [], id="a claim that is missing"),
    ],
)
def test_it_does_not_apply(pod: Object, objects: list[Object]) -> None:
    assert scores(VolumeBindingScore(), pod, *NODES, *CLASSES, *objects) == {}

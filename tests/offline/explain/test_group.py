"""Why a pod group is pending: how many members find a node together, and which change admits them all."""

from __future__ import annotations

from typing import Any

import pytest

from extender import Cluster
from extender.errors import UnknownPod
from extender.offline.explain.group import GroupExplanation
from tests.builders import Object, make_composite_pod_group, make_pod, make_pod_group
from tests.groups.deciding import members, node

ROOM = [node("a", 4), node("b", 4)]


def cluster(*objects: Object) -> Cluster:
    return Cluster.from_objects(objects)


def explained(*objects: Object) -> GroupExplanation:
    return cluster(*objects).explain_group("default/g")


def test_a_gang_that_fits() -> None:
    explanation = explained(*ROOM, make_pod_group("g", 3), *members("g", 3, cpu="2"))
    assert explanation.fits
    assert explanation.message == "3 of 3 waiting members find a node"
    assert explanation.changes == []


def test_a_gang_of_which_too_few_fit() -> None:
    explanation = explained(*ROOM, make_pod_group("g", 5), *members("g", 5, cpu="2"))
    assert not explanation.fits
    assert explanation.message == "none of its members is placed, because only 4 of 5 waiting members find a node"
    assert explanation.verdict.text == "minCount (5) cannot be satisfied: 4 scheduled, 0 remaining"
    assert explanation.refused is not None
    assert explanation.refused.pod.name == "g-4"
    assert [reason.reason for reason in explanation.refused.reasons] == ["Insufficient cpu"]


def test_the_best_domain_comes_first() -> None:
    racks = [node("a", 2, rack="r1"), node("b", 6, rack="r2")]
    constraint = {"topology": [{"key": "rack"}]}
    explanation = explained(*racks, make_pod_group("g", 4, schedulingConstraints=constraint), *members("g", 4, cpu="2"))
    assert [(offer.domain, offer.placed) for offer in explanation.domains] == [("r2", 3), ("r1", 1)]


@pytest.mark.parametrize(
    ("objects", "message"),
    [
        (
            [make_pod_group("g", 3), *members("g", 2)],
            "2 of 3 pods exist: a gang is tried only when all of these do, and no event says so",
        ),
        (members("g", 2), "PodGroup default/g does not exist: its members wait for it, and no event says so"),
        (
            [make_pod_group("g", 1, parentCompositePodGroupName="tree"), *members("g", 1)],
            "CompositePodGroup default/tree does not exist: its members wait for it, and no event says so",
        ),
        (
            [
                make_composite_pod_group("t", 2),
                make_pod_group("g", 1, parentCompositePodGroupName="t"),
                *members("g", 1),
            ],
            "1 of 2 child groups have enough pods",
        ),
        (
            [make_pod_group("g"), make_pod("g-0").group("g").gate("example.com/wait").obj()],
            "member g-0 is gated by example.com/wait, which holds back the whole group",
        ),
        (
            [make_pod_group("g", priority=5), *members("g", 1)],
            "all pods in a single pod group should have the same priority as the pod group's priority, got 0 and 5",
        ),
    ],
    ids=["short of pods", "no PodGroup", "no parent", "too few groups", "gated", "priority"],
)
def test_a_group_that_no_scheduler_tries(objects: list[Object], message: str) -> None:
    explanation = explained(*ROOM, *objects)
    assert (explanation.fits, explanation.message) == (False, message)
    assert explanation.changes == []


def test_a_group_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(UnknownPod, match="no PodGroup default/g in this cluster"):
        explained(*ROOM)


# ---- what would help


def with_change(objects: list[Object], change: Any) -> Cluster:
    """Returns the cluster with a suggested change carried out."""
    items = [
        obj for obj in objects if f"{obj['metadata'].get('namespace')}/{obj['metadata']['name']}" not in change.removed
    ]
    document = change.to_dict()
    if "spec" in document:
        items = [
            {**obj, "spec": document["spec"]} if "schedulingGroup" in obj.get("spec", {}) else obj for obj in items
        ]
    changed = [{"apiVersion": _version(obj["kind"]), **obj} for obj in document.get("objects", ())]
    replaced = {(obj["kind"], obj["metadata"]["name"]) for obj in changed}
    return cluster(*(obj for obj in items if (obj["kind"], obj["metadata"]["name"]) not in replaced), *changed)


def _version(kind: str) -> str:
    return "scheduling.k8s.io/v1beta1" if kind == "PodGroup" else "v1"


TIGHT: list[Object] = [
    node("a", 4),
    node("b", 2),
    {**node("c", 4), "spec": {"unschedulable": True}},
    make_pod("other").req(cpu="2").node("b").obj(),
    make_pod_group("g", 3),
    *members("g", 3, cpu="2"),
]


def test_every_suggested_change_holds_when_it_is_carried_out() -> None:
    changes = explained(*TIGHT).changes
    assert {change.kind for change in changes} == {"requests", "min-count", "uncordon", "remove-pods", "add-node"}
    for change in changes:
        after = with_change(TIGHT, change).explain_group("default/g")
        assert after.verdict.decision is not None, change.text
        assert after.verdict.decision.is_success, change.text
        assert after.fits or change.kind == "min-count", change.text


def test_a_change_is_repeated_until_all_members_fit() -> None:
    cordoned = [{**node(name, 2), "spec": {"unschedulable": True}} for name in ("c", "d")]
    changes = explained(node("a", 2), *cordoned, make_pod_group("g", 3), *members("g", 3, cpu="2")).changes
    (uncordoned,) = [change for change in changes if change.kind == "uncordon"]
    assert uncordoned.nodes == ["a", "c", "d"]


def test_the_fewest_new_nodes() -> None:
    changes = explained(node("a", 4), make_pod_group("g", 7), *members("g", 7, cpu="2")).changes
    assert [change.text for change in changes if change.kind == "add-node"] == ["add 3 nodes like a"]


# ---- a member


def test_a_member_waits_with_its_gang_though_a_node_would_take_it() -> None:
    objects = (*ROOM, make_pod_group("g", 5), *members("g", 5, cpu="2"))
    explanation = cluster(*objects).explain("default/g-0")
    assert explanation.decision.feasible == ["a", "b"]
    assert not explanation.fits
    lost = "minCount (5) cannot be satisfied: 4 scheduled, 0 remaining"
    assert explanation.message == f"pod group is unschedulable, {lost}"
    assert f"it is scheduled with PodGroup default/g: {lost}" in explanation.notes


def test_a_member_of_a_gang_that_fits() -> None:
    explanation = cluster(*ROOM, make_pod_group("g", 2), *members("g", 2)).explain("default/g-0")
    assert explanation.fits


def test_a_manifest_is_explained_alone() -> None:
    manifest = make_pod("new").group("g").req(cpu="1").obj()
    assert cluster(*ROOM, make_pod_group("g", 2)).explain(manifest).fits


def test_pending_pods_of_a_group_have_one_cause() -> None:
    pending = cluster(*ROOM, make_pod_group("g", 5), *members("g", 5, cpu="2")).explain_pending()
    assert {pod.cause for pod in pending} == {"PodGroup default/g is pending"}

"""Why a pod group is pending: how many members find a node together, and which change admits them all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from extender import Cluster
from extender.errors import RuleFailed, UnknownPod
from extender.offline.answers import CauseCode
from extender.offline.explain.group import GroupExplanation
from extender.offline.groups import Membership, MissingGroup
from extender.table import PodInfo
from tests.answers.carrying_out import carried_out
from tests.builders import (
    Object,
    make_composite_pod_group,
    make_device_class,
    make_pdb,
    make_pod,
    make_pod_group,
    make_resource_claim,
    make_resource_slice,
)
from tests.groups.deciding import members, node
from tests.policy.configurations import profile as configuration

ROOM = [node("a", 4), node("b", 4)]
CONFIGURATION = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "kubernetesVersion": "1.37",
}


def cluster(*objects: Object) -> Cluster:
    return Cluster.from_objects(objects, CONFIGURATION)


def explained(*objects: Object) -> GroupExplanation:
    return cluster(*objects).explain_group("default/g")


def test_a_gang_that_fits() -> None:
    explanation = explained(*ROOM, make_pod_group("g", 3), *members("g", 3, cpu="2"))
    assert explanation.fits
    assert explanation.message == "3 of 3 waiting members find a node"
    assert explanation.changes == []


def test_a_member_that_does_not_exist_yet_is_judged_alone() -> None:
    explanation = cluster(*ROOM, make_pod_group("g", 3)).explain(make_pod("g-0").group("g").obj())
    assert "it is a member of PodGroup default/g, and judged alone" in explanation.notes[0]


def test_a_gang_without_waiting_members_needs_no_change() -> None:
    explanation = explained(*ROOM, make_pod_group("g", 3), make_pod("g-0").group("g").node("a").obj())
    assert explanation.message.startswith("1 of 3 pods exist")
    assert explanation.changes == []


def test_a_gang_of_which_too_few_fit() -> None:
    explanation = explained(*ROOM, make_pod_group("g", 5), *members("g", 5, cpu="2"))
    assert not explanation.fits
    assert explanation.message == "none of its members is placed, because only 4 of 5 waiting members find a node"
    assert explanation.verdict.text == "minCount (5) cannot be satisfied: 4 scheduled, 0 remaining"
    assert explanation.refused is not None
    assert explanation.refused.pod.name == "g-4"
    assert [reason.reason for reason in explanation.refused.reasons] == ["Insufficient cpu"]


@pytest.mark.parametrize("needed", [5, 8], ids=["too few fit", "too few exist"])
def test_a_profile_without_gang_scheduling_places_as_many_as_fit(needed: int) -> None:
    policy = configuration(plugins={"multiPoint": {"disabled": [{"name": "GangScheduling"}]}})
    objects = [*ROOM, make_pod_group("g", needed), *members("g", 5, cpu="2")]
    explanation = Cluster.from_objects(objects, policy).explain_group("default/g")
    assert explanation.message == "4 of 5 waiting members find a node"
    assert explanation.verdict.obstacle is None


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
            "2 of 3 pods exist: a gang is not tried before it has enough pods, and no event reports this",
        ),
        (members("g", 2), "PodGroup default/g does not exist: its members wait for it, and no event reports this"),
        (
            [make_pod_group("g", 1, parentCompositePodGroupName="tree"), *members("g", 1)],
            "CompositePodGroup default/tree does not exist: its members wait for it, and no event reports this",
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
    assert (explanation.placed, explanation.refused) == ({}, None)


CYCLE = (
    make_composite_pod_group("b", 1, parentCompositePodGroupName="a"),
    make_composite_pod_group("a", 1, parentCompositePodGroupName="b"),
    make_pod_group("g", 1, parentCompositePodGroupName="b"),
    *members("g", 1),
)
CIRCULAR = "CompositePodGroup default/a is its own ancestor: its members have no root group, and no event reports this"


def test_groups_that_are_each_others_parents_get_an_answer() -> None:
    explanation = explained(*ROOM, *CYCLE)
    assert (explanation.fits, explanation.message, explanation.changes) == (False, CIRCULAR, [])
    assert explanation.to_dict()["causes"] == ["NoGroup"]
    assert cluster(*ROOM, *CYCLE).explain_group("default/b", kind="CompositePodGroup").message == CIRCULAR


def test_a_group_that_is_its_own_parent_gets_an_answer() -> None:
    own = make_composite_pod_group("a", 1, parentCompositePodGroupName="a")
    assert explained(*ROOM, own, make_pod_group("g", 1, parentCompositePodGroupName="a"), *members("g", 1)).message == (
        CIRCULAR
    )


def test_a_member_below_a_cycle_of_groups_gets_an_answer() -> None:
    of_file = cluster(*ROOM, *CYCLE)
    explanation = of_file.explain("default/g-0")
    assert not explanation.fits
    assert CIRCULAR in explanation.message
    assert explanation.to_dict()["changes"] == []
    assert [pod.blocker for pod in of_file.explain_pending()] == [CIRCULAR]
    assert [group.blocker for group in of_file.explain_pending_groups()] == [CIRCULAR]


@pytest.mark.parametrize("levels", [4, 5, 600])
def test_every_group_of_a_tree_with_too_many_levels_gets_an_answer(levels: int) -> None:
    parents = [{}, *({"parentCompositePodGroupName": f"c{level}"} for level in range(levels))]
    chain = [make_composite_pod_group(f"c{level}", 1, **parents[level]) for level in range(levels)]
    of_file = cluster(*ROOM, *chain, make_pod_group("g", 1, **parents[levels]), *members("g", 1))
    answers = [of_file.explain_group("default/g")]
    answers += [of_file.explain_group(f"default/c{level}", kind="CompositePodGroup") for level in {0, 1, levels - 1}]
    for answer in answers:
        assert answer.message.startswith(("exceeded maximum hierarchy depth at ", "1 of 1 child group"))
        assert (answer.fits, answer.to_dict()["causes"], answer.changes) == (False, ["NoGroup"], [])


def test_no_group_is_created_above_a_tree_that_has_too_many_levels_then() -> None:
    parents = [{"parentCompositePodGroupName": name} for name in ("missing", "c0", "c1", "c2")]
    chain = [make_composite_pod_group(f"c{level}", 1, **parents[level]) for level in range(3)]
    explanation = explained(*ROOM, *chain, make_pod_group("g", 1, **parents[3]), *members("g", 1))
    assert (explanation.fits, explanation.changes) == (False, [])


def test_a_missing_group_is_searched_for_its_members_once(monkeypatch: pytest.MonkeyPatch) -> None:
    searched = []
    search = Membership.waiting_for

    def counted(self: Membership, missing: MissingGroup) -> list[PodInfo]:
        searched.append(missing.key)
        return search(self, missing)

    monkeypatch.setattr(Membership, "waiting_for", counted)
    assert len(cluster(*ROOM, *members("g", 20)).explain_pending()) == 20
    assert searched == ["default/g"]


def test_a_group_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(UnknownPod, match="no PodGroup default/g in this cluster"):
        explained(*ROOM)


@pytest.mark.parametrize("part", ["domains", "evictions"])
def test_a_rule_that_raises_while_a_part_is_computed_is_named(part: str, tmp_path: Path) -> None:
    switch = tmp_path / "raises"
    (tmp_path / f"raising_{part}.py").write_text(
        "from pathlib import Path\n\nfrom extender import predicate\n\n\n@predicate\ndef bad(pod, node):\n"
        f"    return 1 / 0 if Path({str(switch)!r}).exists() else True\n"
    )
    profile = {"plugins": {"filter": {"enabled": [{"name": f"raising_{part}:bad"}]}}}
    (tmp_path / "policy.json").write_text(json.dumps({**CONFIGURATION, "profiles": [profile]}))
    constraint = {"topology": [{"key": "rack"}]} if part == "domains" else {}
    objects = [
        node("a", 4, rack="r1"),
        make_pod("low").req(cpu="1").node("a").obj(),
        make_pod_group("g", 2, schedulingConstraints=constraint, priority=5),
        *(make_pod(f"g-{n}").group("g").req(cpu="2").priority(5).obj() for n in range(2)),
    ]
    explanation = Cluster.from_objects(objects, str(tmp_path / "policy.json")).explain_group("default/g")
    switch.touch()
    with pytest.raises(RuleFailed, match=f"rule raising_{part}:bad raised ZeroDivisionError"):
        getattr(explanation, part)


# ---- what would help


def test_the_overhead_of_a_runtime_class_is_left_out_of_smaller_requests() -> None:
    pods = [make_pod(f"g-{n}").group("g").req(cpu="3").overhead(cpu="500m").obj() for n in range(2)]
    explanation = explained(node("a", 4), make_pod_group("g", 2), *pods)
    texts = {change.kind: change.text for change in explanation.changes}
    assert texts["requests"] == "request 1500m cpu instead of 3 in g-1 and every member with the same spec"


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
        after = explained(*carried_out(TIGHT, change.to_dict()))
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


@pytest.mark.parametrize("running", ["a-0", "z-0"])
def test_no_member_that_is_yet_to_be_created_is_removed_for_another(running: str) -> None:
    explanation = explained(
        *(node("a", 2), node("b", 4), node("c", 4), make_pod_group("g", 4, disruptionMode={"all": {}})),
        make_pod(running).group("g").req(cpu="2").node("a").obj(),
        make_pod("g-0").group("g").req(cpu="3").obj(),
    )
    kinds = [change.kind for change in explanation.changes]
    assert kinds == ["min-count", "create-pods+requests", "create-pods+min-count", "create-pods+add-node"]


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


def test_pending_groups_are_listed_with_what_blocks_them() -> None:
    gang, fitting = make_pod_group("g", 5), make_pod_group("fits", 1)
    (group,) = cluster(*ROOM, gang, *members("g", 5, cpu="2"), fitting, *members("fits", 1)).explain_pending_groups()
    assert (group.name, group.waiting, group.placed, group.code) == ("g", 5, 4, CauseCode.INSUFFICIENT_RESOURCE)
    assert group.blocker == "Insufficient cpu (requests 2; the most free is 0 on a)"


# ---- preemption, topology and trees


def test_the_evicted_pods_are_named_in_units() -> None:
    low = make_pod_group("low", 1, priority=-5, disruptionMode={"all": {}})
    running = [make_pod(f"low-{node}").group("low").req(cpu="2").node(node).priority(-5).obj() for node in ("a", "b")]
    budget = make_pdb("budget", {"app": "single"}, minAvailable=1)
    single = make_pod("single").label({"app": "single"}).req(cpu="2").node("b").priority(-1).obj()
    explanation = explained(*ROOM, low, *running, budget, single, make_pod_group("g", 4), *members("g", 4, cpu="2"))
    assert explanation.evictions is not None
    assert [(unit.group, dict(unit.pods)) for unit in explanation.evictions.units] == [
        (None, {"default/single": "b"}),
        ("default/low", {"default/low-a": "a", "default/low-b": "b"}),
    ]
    assert explanation.evictions.violated_budgets == ["default/budget"]
    assert set(explanation.evictions.nominated.values()) == {"a", "b"}


@pytest.mark.parametrize(
    ("disrupted", "violated"), [({}, ["default/budget"]), ({"single": "2026-11-21T09:00:00Z"}, [])]
)
def test_a_pod_whose_eviction_has_begun_counts_no_longer_against_its_budget(
    disrupted: dict[str, str], violated: list[str]
) -> None:
    budget = make_pdb("budget", {"app": "single"}, minAvailable=1)
    budget["status"] = {"disruptionsAllowed": 0, "disruptedPods": disrupted}
    single = make_pod("single").label({"app": "single"}).req(cpu="2").node("a").priority(-1).obj()
    explanation = explained(*ROOM, budget, single, make_pod_group("g", 4), *members("g", 4, cpu="2"))
    assert explanation.evictions is not None
    assert explanation.evictions.violated_budgets == violated


def test_no_evictions_if_they_do_not_help() -> None:
    running = make_pod("low").req(cpu="1").node("a").priority(-5).obj()
    assert explained(*ROOM, running, make_pod_group("g", 9), *members("g", 9, cpu="2")).evictions is None


RACKS = [node("a", 4, rack="r1"), node("b", 2, rack="r2"), node("c", 2, rack="r2")]
IN_A_RACK = {"topology": [{"key": "rack"}]}


def test_the_next_member_is_judged_within_the_best_domain() -> None:
    gang = make_pod_group("g", 3, schedulingConstraints=IN_A_RACK)
    explanation = explained(*RACKS, gang, *members("g", 3, cpu="2"))
    found = "2 of 3 waiting members find a node in rack=r1"
    assert explanation.message == f"none of its members is placed, because only {found}"
    assert explanation.causes == [CauseCode.TOPOLOGY, CauseCode.INSUFFICIENT_RESOURCE]
    assert explanation.refused is not None
    assert explanation.refused.decision.nodes == ["a"]


def test_a_change_within_the_domain() -> None:
    gang = make_pod_group("g", 3, schedulingConstraints=IN_A_RACK)
    cordoned = {**node("d", 4, rack="r1"), "spec": {"unschedulable": True}}
    elsewhere = {**node("e", 4, rack="r3"), "spec": {"unschedulable": True}}
    changes = explained(*RACKS, cordoned, elsewhere, gang, *members("g", 3, cpu="2")).changes
    assert [change.text for change in changes if change.kind == "uncordon"] == ["uncordon d"]


def test_a_topology_constraint_whose_label_no_node_has() -> None:
    gang = make_pod_group("g", 2, schedulingConstraints=IN_A_RACK)
    explanation = explained(*ROOM, gang, *members("g", 2))
    assert explanation.message == "no node has the label rack, by which its topology constraint divides the nodes"
    assert (explanation.causes, explanation.refused) == ([CauseCode.TOPOLOGY], None)


def test_the_child_groups_that_fit_are_counted() -> None:
    tree = make_composite_pod_group("t", 3)
    children = [make_pod_group(name, 2, parentCompositePodGroupName="t") for name in ("x", "y", "z")]
    pods = [pod for name in ("x", "y", "z") for pod in members(name, 2, cpu="2")]
    explanation = cluster(*ROOM, tree, *children, *pods).explain_group("default/t", "CompositePodGroup")
    assert [(child.key, child.fits, child.message) for child in explanation.child_groups] == [
        ("default/x", True, ""),
        ("default/y", True, ""),
        (
            "default/z",
            False,
            "only 0 of 2 waiting members find a node: 0/2 nodes are available: 2 Insufficient cpu.",
        ),
    ]
    assert explanation.message.startswith("none of its members is placed, because only 2 of 3 child groups fit")
    lower = next(change for change in explanation.changes if change.kind == "min-count")
    assert lower.text == "lower minGroupCount from 3 to 2; 1 child group would keep waiting"


def test_a_claim_that_an_earlier_member_gets_is_taken() -> None:
    gpu = make_device_class("gpu", 'device.driver == "gpu.example.com"')
    objects = [gpu, make_resource_slice("a", "gpu.example.com", "gpu-0"), make_pod_group("g", 2)]
    for number, pod in enumerate(members("g", 2)):
        objects += [make_resource_claim(f"c{number}", "gpu"), pod]
        pod["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": f"c{number}"}]
    explanation = explained(node("a", 8), *objects)
    assert explanation.refused is not None
    assert [reason.code for reason in explanation.refused.reasons] == [CauseCode.DEVICE]


def test_a_member_of_a_basic_group_that_finds_no_node_beside_the_others() -> None:
    objects = [node("a", 4), make_pod_group("g"), *members("g", 2, cpu="3")]
    second, first = cluster(*objects).explain_pending()
    assert (first.name, first.code, first.cause) == ("g-0", CauseCode.FITS, "fits on a node now")
    assert (second.name, second.code) == ("g-1", CauseCode.POD_GROUP)
    assert second.cause == "no node can take it once the other members of its group are placed"
    assert second.blocker == "0/1 nodes are available: 1 Insufficient cpu."


BY_GROUP = {**CONFIGURATION, "featureGates": {"GenericWorkload": True, "PodGroupPreemptionPolicy": True}}
SHARES_CLAIMS = {**CONFIGURATION, "featureGates": {"GenericWorkload": True, "DRAWorkloadResourceClaims": True}}


def never_preempting(gang: str, member: str) -> list[Object]:
    """A full node with a pod of lower priority, and a gang with these preemption policies."""
    group = make_pod_group("g", 2, priority=5, preemptionPolicy=gang)
    pods = [make_pod(f"g-{n}").group("g").req(cpu="2").priority(5).preemption_policy(member).obj() for n in range(2)]
    return [node("a", 4), make_pod("low").req(cpu="4").node("a").obj(), group, *pods]


@pytest.mark.parametrize(
    ("policy", "gang", "member", "message", "evicts"),
    [
        (CONFIGURATION, "Never", "PreemptLowerPriority", "none of its 2 waiting members finds a node", True),
        (BY_GROUP, "Never", "Never", "none of its 2 waiting members finds a node", False),
        (
            BY_GROUP,
            "Never",
            "PreemptLowerPriority",
            "all pods in a single pod group should have the same preemption policy as the pod group's "
            "preemption policy, got PreemptLowerPriority and Never",
            False,
        ),
    ],
)
def test_the_gate_says_whose_preemption_policy_counts(
    policy: Object, gang: str, member: str, message: str, evicts: bool
) -> None:
    explanation = Cluster.from_objects(never_preempting(gang, member), policy).explain_group("default/g")
    assert (explanation.message, explanation.evictions is not None) == (message, evicts)


def test_members_are_suggested_to_be_recreated_with_the_policy_of_their_group() -> None:
    objects = never_preempting("Never", "PreemptLowerPriority")
    del objects[1]
    changes = Cluster.from_objects(objects, BY_GROUP).explain_group("default/g").changes
    assert [change.text for change in changes] == ["recreate 2 members with preemptionPolicy Never"]


def sharing_one_device() -> list[Object]:
    """A gang of two whose members share a claim for the one device, made from a template."""
    entry = {"name": "shared", "resourceClaimTemplateName": "shared"}
    claim = make_resource_claim("g-shared-x", "gpu")
    owner = {"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "name": "g", "uid": "g", "controller": True}
    claim["metadata"]["ownerReferences"] = [owner]
    group = make_pod_group("g", 2, resourceClaims=[entry])
    group["metadata"]["uid"] = "g"
    group["status"] = {"resourceClaimStatuses": [{"name": "shared", "resourceClaimName": "g-shared-x"}]}
    pods = [make_pod(f"g-{n}").group("g").req(cpu="2").resource_claim("shared", template=True).obj() for n in range(2)]
    device = make_resource_slice("a", "gpu.example.com", "gpu-0")
    return [make_device_class("gpu"), device, claim, group, *pods]


def test_members_share_the_claim_of_their_group() -> None:
    explanation = Cluster.from_objects([*sharing_one_device(), *ROOM], SHARES_CLAIMS).explain_group("default/g")
    assert explanation.placed == {"default/g-0": "a", "default/g-1": "a"}
    assert explanation.fits


def test_the_member_that_is_refused_uses_the_claim_of_its_group() -> None:
    objects = [*sharing_one_device(), node("a", 2), node("b", 2)]
    explanation = Cluster.from_objects(objects, SHARES_CLAIMS).explain_group("default/g")
    assert explanation.placed == {"default/g-0": "a"}
    assert explanation.refused is not None
    assert [reason.reason for reason in explanation.refused.reasons] == [
        "Insufficient cpu",
        "resourceclaim not available on the node",
    ]


def test_a_group_waits_for_its_claim_to_be_created() -> None:
    objects = [*sharing_one_device(), *ROOM]
    del objects[3]["status"]
    explanation = Cluster.from_objects(objects, SHARES_CLAIMS).explain_group("default/g")
    assert explanation.placed == {}
    reason = 'podgroup "default/g": ResourceClaim not created yet'
    assert reason in explanation.to_dict()["pending"]["default/g-0"]
    assert "ResourceClaim not created yet (ResourceClaimTemplate shared)" in explanation.blocker


SINCE_1_38 = {
    **CONFIGURATION,
    "kubernetesVersion": "1.38",
    "featureGates": {"GenericWorkload": True, "TopologyAwareWorkloadScheduling": True, "CompositePodGroup": True},
}


def test_a_tree_that_1_38_refuses_for_its_structure_is_explained_in_the_same_words() -> None:
    objects = [make_composite_pod_group("t", 1), make_pod_group("g", parentCompositePodGroupName="t")]
    cluster = Cluster.from_objects([*ROOM, *objects, *members("g", 1)], SINCE_1_38)
    assert cluster.explain_group("default/g").message == (
        'gang parent "compositepodgroup/default/t" cannot have basic child "podgroup/default/g"'
    )
    levels = [make_composite_pod_group(f"t{n}", parentCompositePodGroupName=f"t{n - 1}") for n in range(1, 4)]
    deep = [make_composite_pod_group("t0"), *levels, make_pod_group("g", parentCompositePodGroupName="t3")]
    cluster = Cluster.from_objects([*ROOM, *deep, *members("g", 1)], SINCE_1_38)
    assert cluster.explain_group("default/t0", "CompositePodGroup").message == (
        'hierarchy depth exceeds maximum allowed depth 4 at "compositepodgroup/default/t3"'
    )


@pytest.mark.parametrize("levels", [4, 5, 6, 600])
def test_a_pod_below_a_tree_with_too_many_levels_is_explained_in_the_words_of_1_38(levels: int) -> None:
    parents = [{}, *({"parentCompositePodGroupName": f"c{level}"} for level in range(levels))]
    chain = [make_composite_pod_group(f"c{level}", 1, **parents[level]) for level in range(levels)]
    objects = [*ROOM, *chain, make_pod_group("g", 1, **parents[levels]), *members("g", 1)]
    fault = 'hierarchy depth exceeds maximum allowed depth 4 at "compositepodgroup/default/c3"'
    of_file = Cluster.from_objects(objects, SINCE_1_38)
    assert fault in of_file.explain("default/g-0").message
    assert of_file.explain_group("default/g").message == fault
    assert [pod.blocker for pod in of_file.explain_pending()] == [fault]

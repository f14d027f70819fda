"""Each behaviour that no gate switches changes the small cases that were made for it, and no other small case."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from extender import Cluster
from extender.engine import Decision
from extender.framework.profile import Profiles
from extender.framework.status import Code
from extender.plugins.registry import default_profile
from extender.table.features import VERSIONS, Behaviours, FeatureGates
from tests.builders import Object, PodBuilder, make_node, make_pod, stored
from tests.conformance.answered import NEXT, answered
from tests.framework.cluster import pod_info, table_of

SMALL = {case["name"]: case for case in answered(NEXT) if case["name"].startswith("2.")}
NEXT_FEATURES = VERSIONS["1.38"].features
ELSEWHERE = {
    "candidates_without_victims": "tests/scheduler/test_extenders.py, tests/verbs/test_preempt.py",
    "shrunk_nomination_wakes": "tests/scheduler/test_preemption.py",
    "placement_fields": "tests/policy/test_newer_fields.py",
    "members_are_evicted_as_pods": "tests/scheduler/test_pod_groups.py",
    "request_sums_are_capped": "below",
    "failures_name_the_group": "tests/groups/test_next_version.py",
    "preemption_ranks_nodes": "tests/scheduler/test_pod_groups.py",
    "ongoing_preemption_comes_first": "tests/scheduler/test_pod_groups.py",
    "no_victims_is_unschedulable": "tests/scheduler/test_pod_groups.py",
    "nominated_placement_first": "tests/groups/test_next_version.py",
    "enough_placements_end_the_search": "tests/groups/test_next_version.py",
    "empty_labels_are_no_domain": "tests/groups/test_next_version.py",
    "composites_have_conditions": "tests/scheduler/test_group_trees.py",
    "recreated_groups_are_new": "tests/scheduler/test_group_trees.py",
    "group_priorities_have_no_maximum": "tests/offline/manifests/test_newer_checks.py",
    "more_objects_are_refused": "tests/offline/manifests/test_newer_checks.py",
    "composite_placements_are_counted": "tests/groups/test_next_version.py",
    "metrics_have_entities": "tests/web/test_scheduler_metrics.py",
    "whole_trees_are_validated": "tests/groups/test_mismatch.py, tests/scheduler/test_group_trees.py",
}
CHANGED = {
    "empty_spread_selector_counts": {
        "2.1-spread-DoNotSchedule-empty": "feasible: a 396, b 398",
        "2.1-spread-ScheduleAnyway-empty": "feasible: a 596, b 598",
    },
    "pod_level_requests_in_score": {"2.2-podlevel": "feasible: a 440, b 448"},
    "exact_score_fractions": {"2.4-huge-score": "feasible: a 419, b 416"},
    "every_budget_protects": {
        "2.5-pdb-empty": "preempts on a: v1 (0), b: v2 (0); nominated: a",
        "2.5-pdb-no-labels": "preempts on a: v1 (0), b: v2 (0); nominated: a",
    },
    "victims_by_uid": {
        "2.6-uid": "preempts on a: b1 (0); nominated: a",
        "2.6-unstarted": "preempts on a: b1 (0); nominated: a",
    },
    "incomplete_pools_refuse_the_node": {
        "2.8-all-incomplete": "refused: Error",
        "2.8-all-incomplete-only": "refused: Error",
    },
    "capacities_have_domains": {
        "2.9-memory-gpu.example.com.memory": "refused: cannot allocate all claims",
        "2.9-gpu.example.com.memory-memory": "refused: cannot allocate all claims",
        "2.9-both": "refused: cannot allocate all claims",
        "2.9-renamed-fits": "feasible: a 398",
        "2.13-negative-request": "refused: Error",
    },
    "attributes_fail_when_read": {
        "2.10-matchAttribute-version": "refused: cannot allocate all claims",
        "2.10-distinctAttribute-version": "feasible: a 398",
        "2.10-bad-unread": "refused: Error",
        "2.10-bad-read": "refused: Error",
        "2.10-bad-match": "refused: cannot allocate all claims",
    },
    "shares_prevent_exclusive_use": {"2.11-exclusive": "feasible: a 398"},
    "every_class_has_its_resource": {
        "2.12-implicit-old": "refused: Insufficient deviceclass.resource.kubernetes.io/old"
    },
    "negative_consumption_fails": {"2.13-negative-consumed": "feasible: a 398"},
    "certificate_and_oci_features": {"2.14-mldsa": "feasible: a 398, b 398", "2.14-oci": "feasible: a 398, b 398"},
    "exact_storage_capacity": {
        "2.15-capacity-1500m": "feasible: a 398",
        "2.15-capacity-10E": "feasible: a 398",
        "2.15-capacity-100E": "feasible: a 398",
    },
}
"""Behaviour -> small case -> the decision of Kubernetes 1.38 without this behaviour."""


def decided(case: Object, features: FeatureGates) -> Decision:
    profiles = Profiles([default_profile()], features)
    return Cluster.from_objects(case["cluster"]["items"], profiles).decide(stored(case["pod"]))


def shown(decision: Decision) -> str:
    if len(decision.feasible):
        totals = zip(decision.feasible, decision.total.tolist(), strict=True)
        return f"feasible: {', '.join(f'{node} {total}' for node, total in totals)}"
    if decision.preemption and decision.preemption.candidates:
        candidates = decision.preemption.candidates.items()
        victims = ", ".join(
            f"{node}: {each.victims[0].pod.name} ({each.num_pdb_violations})" for node, each in candidates
        )
        return f"preempts on {victims}; nominated: {decision.preemption.nominated_node}"
    reasons = {"Error" if each.code is Code.ERROR else ", ".join(each.reasons) for each in decision.refusals.values()}
    return f"refused: {' or '.join(sorted(reasons))}"


def details(decision: Decision) -> object:
    """Returns all that a case may change, with the texts of errors."""
    return shown(decision), {node: (refusal.code, refusal.reasons) for node, refusal in decision.refusals.items()}


@pytest.fixture(scope="module")
def by_next_version() -> dict[str, object]:
    return {name: details(decided(case, NEXT_FEATURES)) for name, case in SMALL.items()}


def test_every_behaviour_has_a_test() -> None:
    assert {field.name for field in fields(Behaviours)} == CHANGED.keys() | ELSEWHERE.keys()


@pytest.mark.parametrize("behaviour", CHANGED)
def test_a_behaviour_changes_its_cases_only(behaviour: str, by_next_version: dict[str, object]) -> None:
    features = replace(NEXT_FEATURES, behaviours=replace(NEXT_FEATURES.behaviours, **{behaviour: False}))
    without = {name: decided(case, features) for name, case in SMALL.items()}
    changed = {name: shown(each) for name, each in without.items() if details(each) != by_next_version[name]}
    assert changed == CHANGED[behaviour]


@pytest.mark.parametrize("name", SMALL)
def test_without_its_behaviours_a_version_decides_like_the_one_before(name: str) -> None:
    before = VERSIONS["1.37"].features
    features = replace(NEXT_FEATURES, behaviours=Behaviours(), dra_fractional_capacity_range=False)
    assert details(decided(SMALL[name], features)) == details(decided(SMALL[name], before))


def test_huge_requests_on_a_node_keep_others_away_since_1_38() -> None:
    placed = [huge(f"p{number}").node("n") for number in range(3)]
    assert by_version(make_pod("new").req(memory="1Gi"), *placed) == (
        "feasible: n 422", "refused: Insufficient memory"
    )  # fmt: skip


def test_huge_requests_of_nominated_pods_count_since_1_38() -> None:
    nominated = [huge(f"p{number}").nominated("n").priority(100) for number in range(2)]
    assert by_version(make_pod("new").req(memory="1Gi"), huge("running").node("n"), *nominated) == (
        "feasible: n 423", "refused: Insufficient memory"
    )  # fmt: skip


def test_victims_with_huge_requests_leave_until_the_rest_fits_since_1_38() -> None:
    placed = [huge(f"p{number}").node("n").start_time(f"2026-11-21T09:00:0{number}Z") for number in range(4)]
    decision = decision_of(make_pod("new").req(memory="1Ei").priority(10), *placed, features=NEXT_FEATURES)
    assert decision.preemption is not None
    assert [victim.pod.name for victim in decision.preemption.candidates["n"].victims] == ["p1", "p2", "p3"]


def test_a_node_is_free_again_when_pods_with_huge_requests_have_left() -> None:
    table = table_of(make_node("n").allocatable(cpu="8", memory="7Ei", pods="110").obj(), features=NEXT_FEATURES)
    infos = [pod_info(huge(f"p{number}").obj()) for number in range(3)]
    memory = table.nodes.resources["memory"]
    for info in infos:
        table.place(info, "n")
    assert table.nodes.requested[memory, 0] == 2**63 - 1
    for info in infos[1:]:
        table.take_away(info.uid)
    assert table.nodes.requested[memory, 0] == 6 * 2**60
    table.take_away(infos[0].uid)
    assert not table.nodes.requested.any()


def huge(name: str) -> PodBuilder:
    return make_pod(name).req(memory="6Ei").priority(0)


def decision_of(pod: PodBuilder, *others: PodBuilder, features: FeatureGates) -> Decision:
    node = make_node("n").allocatable(cpu="8", memory="7Ei", pods="110").obj()
    return decided({"cluster": {"items": [node, *(each.obj() for each in others)]}, "pod": pod.obj()}, features)


def by_version(pod: PodBuilder, *others: PodBuilder) -> tuple[str, str]:
    """Returns the decisions of 1.37 and 1.38 about the pod and a node with 7 EiB of memory."""
    before, after = (
        decision_of(pod, *others, features=features) for features in (VERSIONS["1.37"].features, NEXT_FEATURES)
    )
    return shown(before), shown(after)

"""The classic Policy: historical names, arguments, the order of predicates, and the algorithm providers."""

from __future__ import annotations

from typing import Any

import pytest

from extender.framework.find_fit import find_fit
from extender.framework.policy_fields import ShapePoint
from extender.framework.profile import DEFAULT_LIMITS, Profile
from extender.framework.status import Code
from extender.plugins.classic import NodeLabelFilter, NodeLabelScore, ServiceAffinity, ServiceAntiAffinity
from extender.plugins.inter_pod_affinity import InterPodAffinityScore
from extender.plugins.node_resources_scores import NodeResourcesFitScore, RequestedToCapacityRatio
from extender.plugins.registry import default_profile
from extender.policy.classic import DEFAULT_PRIORITIES, PREDICATES, priorities
from extender.policy.loading import read
from extender.policy.policy import PROVIDERS
from tests.builders import Object, make_node, make_pod
from tests.framework.cluster import pod_info, scores, table_of

MANDATORY = ["NodeUnschedulable", "TaintToleration"]


def made(**fields: Any) -> Profile:
    [profile] = read({"apiVersion": "v1", "kind": "Policy", **fields}).profiles
    return profile


def names(profile: Profile) -> list[str]:
    return [rule.name for rule in profile.predicates]


def named(*entries: str) -> list[Object]:
    return [{"name": name} for name in entries]


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        pytest.param([], MANDATORY, id="none but the mandatory ones"),
        pytest.param(
            ["MatchInterPodAffinity", "PodFitsResources"],
            ["NodeUnschedulable", "NodeResourcesFit", "TaintToleration", "InterPodAffinity"],
            id="in their order, not in that of the file",
        ),
        pytest.param(
            ["GeneralPredicates", "PodFitsResources", "HostName", "PodFitsPorts", "MatchNodeSelector"],
            ["NodeUnschedulable", "NodeResourcesFit", "NodeName", "NodePorts", "NodeAffinity", "TaintToleration"],
            id="each once",
        ),
        pytest.param(
            ["MaxEBSVolumeCount", "MaxCSIVolumeCountPred", "MaxCinderVolumeCount"],
            [*MANDATORY, "EBSLimits", "NodeVolumeLimits", "CinderLimits"],
            id="volume counts",
        ),
        pytest.param(
            ["CheckNodeDiskPressure", "CheckNodeMemoryPressure", "CheckNodePIDPressure", "CheckNodeCondition"],
            [
                "CheckNodeCondition",
                *MANDATORY,
                "CheckNodeMemoryPressure",
                "CheckNodePIDPressure",
                "CheckNodeDiskPressure",
            ],
            id="conditions",
        ),
    ],
)
def test_predicates(entries: list[str], expected: list[str]) -> None:
    assert names(made(predicates=named(*entries), priorities=[])) == expected


def test_what_is_not_said_is_the_default_and_an_empty_list_is_none() -> None:
    said_nothing, nothing = made(), made(predicates=[], priorities=[])
    assert names(said_nothing) == [
        "NodeUnschedulable",
        "NodeResourcesFit",
        "NodeName",
        "NodePorts",
        "NodeAffinity",
        "VolumeRestrictions",
        "TaintToleration",
        "EBSLimits",
        "GCEPDLimits",
        "NodeVolumeLimits",
        "AzureDiskLimits",
        "VolumeBinding",
        "VolumeZone",
        "PodTopologySpread",
        "InterPodAffinity",
    ]
    assert [weighted.weight for weighted in said_nothing.priorities] == list(DEFAULT_PRIORITIES.values())
    assert (names(nothing), nothing.priorities) == (MANDATORY, [])
    assert nothing.preemption == DEFAULT_LIMITS


def test_every_priority_reports_under_the_name_of_its_plugin() -> None:
    assert {name: rule.name for name, rule in priorities(1).items()} == {
        "SelectorSpreadPriority": "SelectorSpread",
        "ServiceSpreadingPriority": "ServiceSpreadingPriority",
        "InterPodAffinityPriority": "InterPodAffinity",
        "LeastRequestedPriority": "NodeResourcesLeastAllocated",
        "MostRequestedPriority": "NodeResourcesMostAllocated",
        "BalancedResourceAllocation": "NodeResourcesBalancedAllocation",
        "NodePreferAvoidPodsPriority": "NodePreferAvoidPods",
        "NodeAffinityPriority": "NodeAffinity",
        "TaintTolerationPriority": "TaintToleration",
        "ImageLocalityPriority": "ImageLocality",
        "EqualPriority": "EqualPriority",
        "ResourceLimitsPriority": "NodeResourceLimits",
        "EvenPodsSpreadPriority": "PodTopologySpread",
    }


@pytest.mark.parametrize("name", [name for name, rules in PREDICATES.items() if rules])
def test_every_predicate_has_its_name(name: str) -> None:
    assert set(PREDICATES[name]) <= set(made(predicates=named(name)).predicates)


@pytest.mark.parametrize("name", priorities(1))
def test_every_priority_has_its_name_and_weight(name: str) -> None:
    [weighted] = made(priorities=[{"name": name, "weight": 7}]).priorities
    assert (weighted.priority, weighted.weight) == (priorities(1)[name], 7)


def test_predicates_of_any_name_by_their_argument() -> None:
    entries = [
        {"name": "Region", "argument": {"serviceAffinity": {"labels": ["region", "zone"]}}},
        {"name": "NotRetiring", "argument": {"labelsPresence": {"labels": ["retiring"], "presence": False}}},
        {"name": "CheckNodeLabelPresence", "argument": {"labelsPresence": {"labels": ["rack"], "presence": True}}},
        *named("NoVolumeZoneConflict", "NoDiskConflict"),
    ]
    predicates = made(predicates=entries).predicates
    assert predicates[3:6] == [
        NodeLabelFilter(("retiring",), False, "NotRetiring"),
        NodeLabelFilter(("rack",), True, "CheckNodeLabelPresence"),
        ServiceAffinity(("region", "zone"), "Region"),
    ]
    assert [names(made(predicates=entries))[at] for at in (1, 6)] == ["VolumeRestrictions", "VolumeZone"]


def test_priorities_of_any_name_by_their_argument() -> None:
    shape = [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]
    ratio = {"shape": shape, "resources": [{"name": "example.com/gpu", "weight": 3}]}
    entries = [
        {"name": "RackSpread", "weight": 3, "argument": {"serviceAntiAffinity": {"label": "rack"}}},
        {"name": "Fast", "weight": 2, "argument": {"labelPreference": {"label": "ssd", "presence": True}}},
        {"name": "Packing", "weight": 1, "argument": {"requestedToCapacityRatioArguments": ratio}},
    ]
    first, second, third = (weighted.priority for weighted in made(priorities=entries).priorities)
    assert first == ServiceAntiAffinity("rack", "RackSpread")
    assert second == NodeLabelScore("ssd", True, "Fast")
    assert isinstance(third, NodeResourcesFitScore)
    assert third.strategy == RequestedToCapacityRatio((ShapePoint(0, 0), ShapePoint(100, 10)))
    assert [(each.name, each.weight) for each in third.resources] == [("example.com/gpu", 3)]


@pytest.mark.parametrize(("said", "weight"), [(None, 1), (0, 1), (7, 7)])
def test_symmetric_weight_of_hard_affinity(said: int | None, weight: int) -> None:
    fields = {} if said is None else {"hardPodAffinitySymmetricWeight": said}
    rules = [weighted.priority for weighted in made(**fields).priorities]
    assert [rule.hard_pod_affinity_weight for rule in rules if isinstance(rule, InterPodAffinityScore)] == [weight]


# What users had: the first is from the Kubernetes documentation, the others show the oldest names.
POLICIES = [
    pytest.param(
        {
            "predicates": named(
                "PodFitsHostPorts", "PodFitsResources", "NoDiskConflict", "MatchNodeSelector", "HostName"
            ),
            "priorities": [
                {"name": "LeastRequestedPriority", "weight": 1},
                {"name": "BalancedResourceAllocation", "weight": 1},
                {"name": "ServiceSpreadingPriority", "weight": 1},
                {"name": "EqualPriority", "weight": 1},
            ],
            "hardPodAffinitySymmetricWeight": 10,
            "alwaysCheckAllPredicates": False,
        },
        id="example",
    ),
    pytest.param(
        {
            "extenders": [
                {"urlPrefix": "http://127.0.0.1:8888/", "filterVerb": "filter", "weight": 1, "enableHttps": False}
            ],
            "predicates": named("PodFitsPorts", "CheckNodeMemoryPressure", "MaxGCEPDVolumeCount"),
            "priorities": [{"name": "NodePreferAvoidPodsPriority", "weight": 10000}],
        },
        id="with extenders",
    ),
]


@pytest.mark.parametrize("fields", POLICIES)
def test_policies_as_users_had_them(fields: Object) -> None:
    assert len(made(**fields).priorities) == len(fields["priorities"])


@pytest.mark.parametrize("always", [False, True])
def test_all_predicates_are_checked_where_the_policy_wants_it(always: bool) -> None:
    profile = made(predicates=named("GeneralPredicates"), priorities=[], alwaysCheckAllPredicates=always)
    table = table_of(make_node("n").allocatable(cpu="1").unschedulable().taint("a").obj(), make_node("ok").obj())
    pod = make_pod("p").req(cpu="2").node_selector(disk="ssd").obj()
    fit = find_fit(profile, pod_info(pod), table, table.nodes.rows)
    by_node = {table.nodes.names[row]: refusal for row, refusal in fit.refused()}
    reasons = [
        "node(s) were unschedulable",
        "Insufficient cpu",
        "node(s) didn't match Pod's node affinity/selector",
        "node(s) had untolerated taint(s)",
    ]
    assert list(by_node["n"].reasons) == (reasons if always else reasons[:1])
    assert by_node["n"].code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE
    assert by_node["ok"].reasons == (reasons[2],)


def test_the_default_provider_is_the_default_profile() -> None:
    assert PROVIDERS["DefaultProvider"]() == default_profile()


def test_the_cluster_autoscaler_provider_prefers_full_nodes_and_is_else_the_same() -> None:
    default, packing = default_profile(), PROVIDERS["ClusterAutoscalerProvider"]()
    assert packing.predicates == default.predicates
    changed = [pair for pair in zip(default.priorities, packing.priorities, strict=True) if pair[0] != pair[1]]
    [(spreading, filling)] = changed
    nodes = [make_node("used").obj(), make_node("free").obj(), make_pod("there").req(cpu="2").node("used").obj()]
    pod = make_pod("p").req(cpu="1").obj()
    by_spreading, by_filling = scores(spreading.priority, pod, *nodes), scores(filling.priority, pod, *nodes)
    assert by_spreading["free"] > by_spreading["used"]
    assert by_filling["used"] > by_filling["free"]

"""KubeSchedulerConfiguration: which rules run, in what order, with what weights and arguments."""

from __future__ import annotations

from typing import Any

import pytest

from extender.framework.profile import CandidateLimits, Profile
from extender.plugins.inter_pod_affinity import InterPodAffinityScore
from extender.plugins.node_affinity import NodeAffinityScore
from extender.plugins.node_resources_fit import NodeResourcesFitFilter
from extender.plugins.node_resources_scores import NodeResourcesFitScore, RequestedToCapacityRatio, least_allocated
from extender.plugins.pod_topology_spread import SYSTEM_DEFAULTS, PodTopologySpreadScore
from extender.plugins.registry import default_profile
from extender.policy.configuration import PreFilterOnly
from extender.policy.loading import read
from tests.builders import Object, expression, make_node, make_pod, node_term
from tests.framework.cluster import refusals
from tests.policy.configurations import profile

OFF = {"disabled": [{"name": "*"}]}


def made(**fields: Any) -> Profile:
    return read(profile(**fields)).profiles[0]


def predicates(of: Profile) -> list[str]:
    """Those that see nodes, in their order."""
    names = list(of.filter_order) or [rule.name for rule in of.predicates]
    idle = {rule.name for rule in of.predicates if isinstance(rule, PreFilterOnly)}
    return [name for name in names if name not in idle]


def weights(of: Profile) -> dict[str, int]:
    return {weighted.priority.name: weighted.weight for weighted in of.priorities}


def enabled(*names: str) -> list[Object]:
    """ "NodeName", or "NodeName=3" with a weight."""
    parts = [name.partition("=") for name in names]
    return [{"name": name} | ({"weight": int(weight)} if weight else {}) for name, _, weight in parts]


DEFAULT = default_profile()
DEFAULT_PREDICATES = predicates(DEFAULT)
DEFAULT_WEIGHTS = weights(DEFAULT)


def test_the_default_weights_are_those_of_kube_scheduler() -> None:
    assert DEFAULT_WEIGHTS == {
        "TaintToleration": 3,
        "NodeAffinity": 2,
        "NodeResourcesFit": 1,
        "VolumeBinding": 1,
        "PodTopologySpread": 2,
        "InterPodAffinity": 2,
        "DynamicResources": 2,
        "NodeResourcesBalancedAllocation": 1,
        "ImageLocality": 1,
    }


HEADER = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}


@pytest.mark.parametrize(
    "document",
    [
        pytest.param({}, id="nothing said"),
        pytest.param({"profiles": []}, id="no profiles"),
        pytest.param({"profiles": [{}]}, id="one profile that says nothing"),
        pytest.param({"profiles": [{"plugins": None, "pluginConfig": None}]}, id="null is nothing"),
    ],
)
def test_what_says_nothing_is_the_default(document: Object) -> None:
    read_profile = read({**HEADER, **document}).profiles[0]
    assert read_profile == default_profile("default-scheduler")


def without(*names: str) -> list[str]:
    return [name for name in DEFAULT_PREDICATES if name not in names]


@pytest.mark.parametrize(
    ("plugins", "expected"),
    [
        pytest.param({"filter": {"disabled": enabled("NodePorts")}}, without("NodePorts"), id="one off"),
        pytest.param({"filter": OFF}, [], id="all off"),
        pytest.param({"multiPoint": OFF}, [], id="all off everywhere"),
        pytest.param({"filter": {"disabled": enabled("SelectorSpread")}}, DEFAULT_PREDICATES, id="off was removed"),
        pytest.param(
            {"filter": {"enabled": enabled("NodePorts", "NodeName")}},
            ["NodePorts", "NodeName", *without("NodePorts", "NodeName")],
            id="named ones first, in the order named",
        ),
        pytest.param(
            {"multiPoint": {**OFF, "enabled": enabled("NodePorts", "NodeName")}},
            ["NodePorts", "NodeName"],
            id="all again",
        ),
        pytest.param(
            {"multiPoint": {"disabled": enabled("NodePorts"), "enabled": enabled("NodePorts")}},
            [*without("NodePorts"), "NodePorts"],
            id="off and on again goes last",
        ),
    ],
)
def test_predicates(plugins: Object, expected: list[str]) -> None:
    assert predicates(made(plugins=plugins)) == expected


@pytest.mark.parametrize(
    ("plugins", "expected"),
    [
        pytest.param(
            {},
            {
                "TaintToleration": 3,
                "NodeAffinity": 2,
                "PodTopologySpread": 2,
                "InterPodAffinity": 2,
                "DynamicResources": 2,
                "NodeResourcesFit": 1,
                "NodeResourcesBalancedAllocation": 1,
                "VolumeBinding": 1,
                "ImageLocality": 1,
            },
            id="default",
        ),
        pytest.param(
            {"score": {"enabled": enabled("ImageLocality=7")}}, {**DEFAULT_WEIGHTS, "ImageLocality": 7}, id="weighted"
        ),
        pytest.param(
            {"score": {"enabled": enabled("TaintToleration")}},
            {**DEFAULT_WEIGHTS, "TaintToleration": 1},
            id="1 if unsaid",
        ),
        pytest.param(
            {"multiPoint": {"enabled": enabled("TaintToleration=5")}},
            {**DEFAULT_WEIGHTS, "TaintToleration": 5},
            id="weighted everywhere",
        ),
        pytest.param(
            {
                "score": {"enabled": enabled("TaintToleration=2")},
                "multiPoint": {"enabled": enabled("TaintToleration=5")},
            },
            {**DEFAULT_WEIGHTS, "TaintToleration": 2},
            id="score goes before multiPoint",
        ),
        pytest.param({"score": {**OFF, "enabled": enabled("ImageLocality=0")}}, {"ImageLocality": 1}, id="0 is unsaid"),
        pytest.param(
            {"filter": {"disabled": enabled("VolumeBinding")}},
            {name: weight for name, weight in DEFAULT_WEIGHTS.items() if name != "VolumeBinding"},
            id="VolumeBinding scores what it has filtered",
        ),
    ],
)
def test_weights(plugins: Object, expected: dict[str, int]) -> None:
    assert weights(made(plugins=plugins)) == expected


def args(plugin: str, **arguments: Any) -> Object:
    return {"name": plugin, "args": arguments}


def test_arguments_of_resources() -> None:
    strategy = {
        "type": "RequestedToCapacityRatio",
        "resources": [{"name": "cpu"}, {"name": "example.com/gpu", "weight": 3}],
        "requestedToCapacityRatio": {"shape": [{"utilization": 0}, {"utilization": 80, "score": 10}]},
    }
    fit = args("NodeResourcesFit", ignoredResources=["example.com/foo"], scoringStrategy=strategy)
    result = made(pluginConfig=[fit])
    [predicate] = [rule for rule in result.predicates if isinstance(rule, NodeResourcesFitFilter)]
    assert predicate.ignored_resources == {"example.com/foo"}
    [priority] = [each.priority for each in result.priorities if each.priority.name == "NodeResourcesFit"]
    assert isinstance(priority, NodeResourcesFitScore)
    assert priority.strategy == RequestedToCapacityRatio(((0, 0), (80, 10)))  # type: ignore[arg-type]  # as good as points
    assert [(each.name, each.weight) for each in priority.resources] == [("cpu", 1), ("example.com/gpu", 3)]


def test_arguments_of_pod_affinity() -> None:
    given = args("InterPodAffinity", hardPodAffinityWeight=7, ignorePreferredTermsOfExistingPods=True)
    [rule] = [each.priority for each in made(pluginConfig=[given]).priorities if each.priority.name == given["name"]]
    assert rule == InterPodAffinityScore(7, ignore_preferred_terms_of_existing_pods=True)


def test_arguments_of_node_affinity() -> None:
    term = {"weight": 5, "preference": node_term(expression("disk", "In", "ssd"))}
    given = args("NodeAffinity", addedAffinity={"preferredDuringSchedulingIgnoredDuringExecution": [term]})
    [rule] = [each.priority for each in made(pluginConfig=[given]).priorities if each.priority.name == given["name"]]
    assert isinstance(rule, NodeAffinityScore)
    assert [(each.weight, (each.preference.match_expressions or [])[0].key) for each in rule.added] == [(5, "disk")]


@pytest.mark.parametrize("point", ["preFilter", "filter", "permit"])
def test_a_plugin_that_does_nothing_here_may_be_enabled_where_kube_scheduler_has_it(point: str) -> None:
    profile = made(plugins={point: {"enabled": enabled("DeferredPodScheduling")}})
    assert (predicates(profile), weights(profile)) == (DEFAULT_PREDICATES, DEFAULT_WEIGHTS)


def test_arguments_of_spreading() -> None:
    def defaults(**arguments: Any) -> Any:
        result = made(pluginConfig=[args("PodTopologySpread", **arguments)])
        rules = [each.priority for each in result.priorities]
        return next(rule.defaults for rule in rules if isinstance(rule, PodTopologySpreadScore))

    constraint = {"maxSkew": 2, "topologyKey": "rack", "whenUnsatisfiable": "ScheduleAnyway"}
    assert defaults() is SYSTEM_DEFAULTS
    assert defaults(defaultingType="List") == ()
    [given] = defaults(defaultingType="List", defaultConstraints=[constraint])
    assert (given.max_skew, given.topology_key, given.when_unsatisfiable) == (2, "rack", "ScheduleAnyway")


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param({}, CandidateLimits(10, 100), id="default"),
        pytest.param(
            {"pluginConfig": [args("DefaultPreemption", minCandidateNodesPercentage=0, minCandidateNodesAbsolute=5)]},
            CandidateLimits(0, 5),
            id="limited",
        ),
        pytest.param({"plugins": {"postFilter": OFF}}, None, id="off"),
        pytest.param(
            {"plugins": {"multiPoint": {"disabled": enabled("DefaultPreemption")}}}, None, id="off everywhere"
        ),
    ],
)
def test_preemption(fields: Object, expected: CandidateLimits | None) -> None:
    assert made(**fields).preemption == expected


def test_percentage_of_nodes_to_score_of_the_profile_goes_before_that_of_all() -> None:
    document = profile(schedulerName="a", percentageOfNodesToScore=30)
    document["profiles"].append({"schedulerName": "b"})
    policy = read({**document, "percentageOfNodesToScore": 70})
    assert [(each.name, each.percentage_of_nodes_to_score) for each in policy.profiles] == [("a", 30), ("b", 70)]


def test_what_concerns_kube_scheduler_alone_is_read_over() -> None:
    document = {
        **profile(),
        "parallelism": 4,
        "leaderElection": {"leaderElect": True, "leaseDuration": "30s"},
        "clientConnection": {"kubeconfig": "/etc/kubernetes/scheduler.conf"},
        "enableProfiling": False,
        "extenders": [{"urlPrefix": "http://127.0.0.1:8888/scheduler", "filterVerb": "filter"}],
        "podInitialBackoffSeconds": 2,
        "podMaxBackoffSeconds": 20,
        "delayCacheUntilActive": True,
    }
    policy = read(document)
    assert (policy.pod_initial_backoff_seconds, policy.pod_max_backoff_seconds) == (2, 20)


def test_a_plugin_whose_filter_is_off_may_still_name_the_nodes() -> None:
    result = made(plugins={"filter": {"disabled": enabled("NodeAffinity")}})
    [rule] = [each for each in result.predicates if each.name == "NodeAffinity"]
    assert isinstance(rule, PreFilterOnly)
    field = {"key": "metadata.name", "operator": "In", "values": ["a"]}
    pod = make_pod("p").node_selector(disk="ssd").require_node({"matchFields": [field]}).obj()
    assert refusals(rule, pod, make_node("a").obj(), make_node("b").obj()).keys() == {"b"}


def test_the_strategy_is_that_of_the_engine_by_default() -> None:
    rules = [each.priority for each in made().priorities]
    [fit] = [rule for rule in rules if isinstance(rule, NodeResourcesFitScore)]
    assert fit.strategy is least_allocated


BOTH = {"DynamicResources", "VolumeBinding"}
ADVICE = "which is disabled; enable or disable the plugin by multiPoint"


@pytest.mark.parametrize(
    ("plugins", "reserving", "unsupported"),
    [
        pytest.param({}, BOTH, [], id="the default"),
        pytest.param({"multiPoint": {"disabled": [{"name": "VolumeBinding"}]}}, BOTH - {"VolumeBinding"}, [], id="off"),
        pytest.param(
            {
                "reserve": {"disabled": [{"name": "VolumeBinding"}]},
                "preBind": {"disabled": [{"name": "VolumeBinding"}]},
            },
            BOTH - {"VolumeBinding"},
            [],
            id="off where it reserves and binds",
        ),
        pytest.param(
            {"preBind": {"disabled": [{"name": "VolumeBinding"}]}},
            BOTH,
            [": VolumeBinding cannot be disabled at preBind alone; disable it by multiPoint"],
            id="off at one point",
        ),
        pytest.param(
            {"queueSort": {"disabled": [{"name": "PrioritySort"}]}},
            BOTH,
            [": PrioritySort cannot be disabled at queueSort without a rule that replaces it"],
            id="the order of the queue",
        ),
        pytest.param(
            {"filter": {"disabled": [{"name": "VolumeBinding"}]}},
            BOTH - {"VolumeBinding"},
            [],
            id="volumes off at filter, where upstream then reserves and binds none",
        ),
        pytest.param(
            {"filter": {"disabled": [{"name": "DynamicResources"}]}},
            BOTH,
            [f".reserve: DynamicResources requires its filter, {ADVICE}"],
            id="devices off at filter, where upstream then fails at reserve",
        ),
        pytest.param(
            {point: {"disabled": [{"name": "VolumeBinding"}]} for point in ("preFilter", "filter", "score")},
            BOTH - {"VolumeBinding"},
            [f".reserve: VolumeBinding requires its preFilter, {ADVICE}"],
            id="volumes off at preFilter and filter, where upstream then fails every pod at reserve",
        ),
        pytest.param(
            {point: {"disabled": [{"name": "DynamicResources"}]} for point in ("preFilter", "filter", "score")},
            BOTH,
            [
                f".reserve: DynamicResources requires its preFilter, {ADVICE}",
                f".reserve: DynamicResources requires its filter, {ADVICE}",
            ],
            id="devices off at preFilter and filter, where upstream then fails every pod at reserve",
        ),
        pytest.param({"preEnqueue": {"disabled": [{"name": "SchedulingGates"}]}}, BOTH, [], id="gates"),
        pytest.param(
            {"bind": {"disabled": [{"name": "DefaultBinder"}]}},
            BOTH,
            [": DefaultBinder cannot be disabled at bind"],
            id="the binder",
        ),
        pytest.param(
            {"bind": {"disabled": [{"name": "*"}]}}, BOTH, [": DefaultBinder cannot be disabled at bind"], id="bind"
        ),
        pytest.param({"postFilter": {"disabled": [{"name": "DefaultPreemption"}]}}, BOTH, [], id="no preemption"),
    ],
)
def test_what_is_switched_off_is_honoured_or_named(
    plugins: Object, reserving: set[str], unsupported: list[str]
) -> None:
    (made,) = read(profile(plugins=plugins)).profiles
    assert made.reserving == reserving
    assert list(made.unsupported) == [f"profiles[0].plugins{text}" for text in unsupported]


def test_the_limits_of_calls_to_the_api_server_are_read() -> None:
    document = {"clientConnection": {"kubeconfig": "/etc/kubeconfig", "qps": 50, "burst": 100}}
    policy = read({"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration", **document})
    assert (policy.qps, policy.burst) == (50.0, 100)

"""Every fault is reported at once, each with its place, what is wrong, and the nearest right name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.errors import ConfigurationError
from extender.policy.loading import load, read
from tests.builders import Object, expression, node_term
from tests.policy.configurations import profile


def faults(document: object) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        read(document)
    return list(caught.value.faults)


def configured(plugin: str, **arguments: Any) -> Object:
    return profile(pluginConfig=[{"name": plugin, "args": arguments}])


def plugins(**points: Any) -> Object:
    return profile(plugins=points)


def policy(**fields: Any) -> Object:
    return {"apiVersion": "v1", "kind": "Policy", **fields}


def required(*expressions: Object, fields: Iterable[Object] = ()) -> Object:
    """Node affinity that requires them."""
    term = node_term(*expressions, fields=fields)
    return {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}


ARGS = "profiles[0].pluginConfig[0].args"
ADDED = f"{ARGS}.addedAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0]"
PLUGINS = "profiles[0].plugins"
CONSTRAINT = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}


@pytest.mark.parametrize(
    ("document", "fault"),
    [
        # ---- the document
        pytest.param([], "kind: expected KubeSchedulerConfiguration or Policy", id="a list"),
        pytest.param(
            {"kind": "KubeSchedulerConfig"},
            "kind: expected KubeSchedulerConfiguration or Policy, got KubeSchedulerConfig (did you mean "
            "KubeSchedulerConfiguration?)",
            id="kind",
        ),
        pytest.param(
            {**profile(), "apiVersion": "kubescheduler.config.k8s.io/v1beta3"},
            "apiVersion: expected kubescheduler.config.k8s.io/v1, got 'kubescheduler.config.k8s.io/v1beta3' (did you "
            "mean kubescheduler.config.k8s.io/v1?)",
            id="version",
        ),
        pytest.param(
            {**profile(), "percentageOfNodeToScore": 5},
            "percentageOfNodeToScore: unknown field (did you mean percentageOfNodesToScore?)",
            id="unknown field",
        ),
        pytest.param({**profile(), "zzz": 5}, "zzz: unknown field", id="unlike any field"),
        pytest.param(
            {**profile(), "parallelism": "16"}, "parallelism: expected a valid integer, got '16'", id="text for number"
        ),
        pytest.param(
            {**profile(), "podMaxBackoffSeconds": 0},
            "podMaxBackoffSeconds: must not be less than podInitialBackoffSeconds",
            id="backoff",
        ),
        pytest.param(
            profile(percentageOfNodesToScore=101),
            "profiles[0].percentageOfNodesToScore: expected a value less than or equal to 100, got 101",
            id="percentage",
        ),
        # ---- plugins
        pytest.param(
            plugins(filter={"enabled": [{"name": "noderesourcefit"}]}),
            f"{PLUGINS}.filter.enabled[0].name: unknown plugin 'noderesourcefit' (did you mean NodeResourcesFit?)",
            id="unknown plugin",
        ),
        pytest.param(
            plugins(score={"enabled": [{"name": "NodePorts"}]}),
            f"{PLUGINS}.score.enabled[0].name: NodePorts does not implement the extension point score",
            id="wrong point",
        ),
        pytest.param(
            plugins(score={"enabled": [{"name": "ImageLocality"}, {"name": "ImageLocality"}]}),
            f"{PLUGINS}.score.enabled[1].name: ImageLocality is enabled twice",
            id="twice",
        ),
        pytest.param(
            plugins(score={"enabled": [{"name": "SelectorSpread"}]}),
            f"{PLUGINS}.score.enabled[0].name: SelectorSpread was removed from kube-scheduler; "
            "use it in a file with `kind: Policy`",
            id="removed",
        ),
        pytest.param(plugins(score={"enabled": [{}]}), f"{PLUGINS}.score.enabled[0].name: required", id="no name"),
        pytest.param(
            plugins(score={"enabled": [{"name": "ImageLocality", "weight": 2**31}]}),
            f"{PLUGINS}.score.enabled[0].weight: expected a value less than 2147483648, got 2147483648",
            id="weight",
        ),
        pytest.param(plugins(fliter={}), f"{PLUGINS}.fliter: unknown field (did you mean filter?)", id="unknown point"),
        pytest.param(
            plugins(
                preFilter={"disabled": [{"name": "*"}]},
                filter={"disabled": [{"name": "*"}], "enabled": [{"name": "NodePorts"}]},
                score={"disabled": [{"name": "*"}]},
            ),
            f"{PLUGINS}.filter: NodePorts requires its preFilter, which is disabled; enable or "
            "disable the plugin by multiPoint",
            id="unprepared",
        ),
        *(
            pytest.param(
                plugins(multiPoint={"disabled": [{"name": name}]}, score={"enabled": [{"name": name}]}),
                f"{PLUGINS}.score: {name} requires its {before}, which is disabled; enable or disable the plugin "
                "by multiPoint",
                id=f"score of {name}, which multiPoint disables",
            )
            for name, before in (
                ("TaintToleration", "preScore"),
                ("InterPodAffinity", "preScore"),
                ("PodTopologySpread", "preScore"),
                ("VolumeBinding", "preFilter"),
                ("DynamicResources", "preFilter"),
            )
        ),
        # ---- arguments
        pytest.param(
            profile(pluginConfig=[{"name": "NodePorts"}, {"name": "NodePorts"}]),
            "profiles[0].pluginConfig[1].name: NodePorts is configured twice",
            id="configured twice",
        ),
        pytest.param(
            configured("NodeAffinity", kind="NodeResourcesFitArgs"),
            f"{ARGS}.kind: expected NodeAffinityArgs, got 'NodeResourcesFitArgs'",
            id="kind of arguments",
        ),
        pytest.param(
            configured("NodeResourcesFit", scoringStrategy={"type": "MostAlocated"}),
            f"{ARGS}.scoringStrategy.type: expected LeastAllocated or MostAllocated or RequestedToCapacityRatio, got "
            "'MostAlocated' (did you mean MostAllocated?)",
            id="strategy",
        ),
        pytest.param(
            configured("NodeResourcesFit", scoringStrategy={}),
            f"{ARGS}.scoringStrategy.type: required",
            id="no strategy",
        ),
        pytest.param(
            configured("NodeResourcesFit", scoringStrategy={"type": "RequestedToCapacityRatio"}),
            f"{ARGS}.scoringStrategy: type RequestedToCapacityRatio needs requestedToCapacityRatio",
            id="no shape",
        ),
        pytest.param(
            configured(
                "NodeResourcesFit",
                scoringStrategy={"type": "LeastAllocated", "resources": [{"name": "cpu", "weight": 101}]},
            ),
            f"{ARGS}.scoringStrategy.resources[0].weight: expected a value less than or equal to 100, got 101",
            id="resource weight",
        ),
        pytest.param(
            configured("NodeResourcesFit", ignoredResources=["a b"]),
            f"{ARGS}.ignoredResources[0]: expected a label key, like example.com/rack, got 'a b'",
            id="resource name",
        ),
        pytest.param(
            configured("NodeResourcesFit", ignoredResourceGroups=["example.com/gpu"]),
            f"{ARGS}.ignoredResourceGroups[0]: expected a group of resources, like example.com, without a slash, got "
            "'example.com/gpu'",
            id="resource group",
        ),
        pytest.param(
            configured("NodeResourcesBalancedAllocation", resources=[{"name": "cpu", "weight": 2}]),
            f"{ARGS}.resources: expected resources of weight 1",
            id="balanced weight",
        ),
        pytest.param(
            configured("VolumeBinding", shape=[{"utilization": 5}, {"utilization": 5}]),
            f"{ARGS}.shape: expected points in increasing order of utilization",
            id="shape",
        ),
        pytest.param(
            configured("InterPodAffinity", hardPodAffinityWeight=-1),
            f"{ARGS}.hardPodAffinityWeight: expected a value greater than or equal to 0, got -1",
            id="hard weight",
        ),
        pytest.param(
            configured("DefaultPreemption", minCandidateNodesPercentage=0, minCandidateNodesAbsolute=0),
            f"{ARGS}: minCandidateNodesPercentage and minCandidateNodesAbsolute cannot both be 0",
            id="no candidates",
        ),
        pytest.param(
            configured(
                "PodTopologySpread", defaultConstraints=[{**CONSTRAINT, "labelSelector": {}}], defaultingType="List"
            ),
            f"{ARGS}.defaultConstraints[0].labelSelector: unknown field",
            id="selector",
        ),
        pytest.param(
            configured(
                "PodTopologySpread", defaultConstraints=[{**CONSTRAINT, "maxSkew": 2**31}], defaultingType="List"
            ),
            f"{ARGS}.defaultConstraints[0].maxSkew: expected a value less than 2147483648, got 2147483648",
            id="more than an int32 holds",
        ),
        pytest.param(
            configured(
                "NodeAffinity",
                addedAffinity={"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 2**31}]},
            ),
            f"{ARGS}.addedAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight: expected a value less "
            "than or equal to 2147483647, got 2147483648",
            id="a weight that is more than an int32 holds",
        ),
        pytest.param(
            configured("NodeAffinity", addedAffinity=required(expression("a rank", "Exists"))),
            f"{ADDED}.matchExpressions[0]: expected a label key, like example.com/rack",
            id="a key that no label has",
        ),
        pytest.param(
            configured("NodeAffinity", addedAffinity=required(expression("rank", "In", "-1"))),
            f"{ADDED}.matchExpressions[0]: expected values that a label can have",
            id="a value that no label has",
        ),
        pytest.param(
            configured("NodeAffinity", addedAffinity=required(expression("rank", "Gt", f"{2**63}"))),
            f"{ADDED}.matchExpressions[0]: operator Gt needs exactly one whole number",
            id="more than an int64 holds",
        ),
        *(
            pytest.param(
                configured("NodeAffinity", addedAffinity=required(fields=[expression("metadata.name", *requirement)])),
                f"{ADDED}.matchFields[0]: a field needs operator In or NotIn and exactly one value",
                id=f"a field {requirement[0]} {len(requirement) - 1} values",
            )
            for requirement in (("Exists",), ("In", "a", "b"), ("Gt", "1"))
        ),
        pytest.param(
            configured("DefaultPreemption", minCandidateNodesAbsolute=2**31),
            f"{ARGS}.minCandidateNodesAbsolute: expected a value less than or equal to 2147483647, got 2147483648",
            id="more candidates than an int32 holds",
        ),
        pytest.param(
            configured("PodTopologySpread", defaultConstraints=[CONSTRAINT, CONSTRAINT], defaultingType="List"),
            f"{ARGS}.defaultConstraints: two constraints have the same topologyKey and whenUnsatisfiable",
            id="constraint twice",
        ),
        pytest.param(
            configured("PodTopologySpread", defaultConstraints=[CONSTRAINT]),
            f"{ARGS}: defaultConstraints need defaultingType List",
            id="constraints beside those of the system",
        ),
        pytest.param(
            configured("DynamicResources", filterTimeout="10"),
            f"{ARGS}.filterTimeout: expected a duration of at least 0s, like 10s or 5m, got '10'",
            id="duration",
        ),
        pytest.param(
            configured("DynamicResources", bindingTimeout="500ms"),
            f"{ARGS}.bindingTimeout: expected a duration of at least 1s, like 10s or 5m, got '500ms'",
            id="short",
        ),
        # ---- the classic Policy
        pytest.param(
            policy(predicates=[{"name": "PodFitResources"}]),
            "predicates[0].name: unknown plugin 'PodFitResources' (did you mean PodFitsResources?)",
            id="predicate",
        ),
        pytest.param(
            policy(priorities=[{"name": "LeastRequested", "weight": 1}]),
            "priorities[0].name: unknown plugin 'LeastRequested' (did you mean LeastRequestedPriority?)",
            id="priority",
        ),
        pytest.param(
            policy(priorities=[{"name": "EqualPriority"}]),
            "priorities[0].weight: expected a positive weight of at most 2147483647, got 0",
            id="no weight",
        ),
        pytest.param(
            policy(priorities=[{"name": "EqualPriority", "weight": 1}] * 2),
            "priorities[1].name: EqualPriority is given twice",
            id="priority twice",
        ),
        pytest.param(
            policy(predicates=[{"name": "HostName", "argument": {"labelsPresence": {"labels": ["a"]}}}]),
            "predicates[0].argument: HostName takes no argument",
            id="argument of a predicate that takes no argument",
        ),
        pytest.param(
            policy(predicates=[{"name": "CheckNodeLabelPresence"}]),
            "predicates[0].argument: expected exactly one of serviceAffinity, labelsPresence",
            id="argument missing",
        ),
        pytest.param(
            policy(predicates=[{"name": "Rack", "argument": {"labelPresence": {"labels": ["a"]}}}]),
            "predicates[0].argument.labelPresence: unknown field (did you mean labelsPresence?)",
            id="unknown argument",
        ),
        pytest.param(
            policy(priorities=[{"name": "Rack", "weight": 1, "argument": {"labelPreference": {"presence": True}}}]),
            "priorities[0].argument.labelPreference.label: required",
            id="argument of an argument",
        ),
        pytest.param(
            policy(hardPodAffinitySymmetricWeight=101),
            "hardPodAffinitySymmetricWeight: expected a value less than or equal to 100, got 101",
            id="symmetric weight",
        ),
    ],
)
def test_one_fault(document: object, fault: str) -> None:
    assert faults(document) == [fault]


@pytest.mark.parametrize(
    ("document", "note"),
    [
        pytest.param(
            plugins(filter={"disabled": [{"name": "NodePort"}]}),
            f"{PLUGINS}.filter.disabled[0].name: no plugin 'NodePort' is known here, so nothing is disabled (did you "
            "mean NodePorts?)",
            id="disabled",
        ),
        pytest.param(
            configured("Coscheduling", permitWaitingTimeSeconds=5),
            "profiles[0].pluginConfig[0].name: no plugin 'Coscheduling' is known here, so its args have no effect (did "
            "you mean GangScheduling?)",
            id="configured",
        ),
        pytest.param(
            configured("NodePorts", ports=[1]),
            f"{ARGS}: NodePorts has no arguments, so they have no effect",
            id="arguments of a plugin without arguments",
        ),
    ],
)
def test_an_entry_without_effect_is_accepted_with_a_note(document: object, note: str) -> None:
    assert read(document).notes == (note,)


def test_all_faults_at_once() -> None:
    document = {
        **profile(schedulerName="a", plugins={"score": {"enabled": [{"name": "NodeName"}, {"nam": "X"}]}}),
        "paralelism": 3,
    }
    arguments = {"shape": [{"utilization": 101}], "bindTimeoutSeconds": -1}
    document["profiles"].append({"pluginConfig": [{"name": "VolumeBinding", "args": arguments}, {"name": "Nonesuch"}]})
    assert sorted(faults(document)) == sorted(
        [
            "paralelism: unknown field (did you mean parallelism?)",
            "profiles[0].plugins.score.enabled[0].name: NodeName does not implement the extension point score",
            "profiles[0].plugins.score.enabled[1].nam: unknown field (did you mean name?)",
            "profiles[0].plugins.score.enabled[1].name: required",
            "profiles[1].schedulerName: required if there are several profiles",
            "profiles[1].pluginConfig[0].args.shape[0].utilization: expected a value less than or equal to 100, "
            "got 101",
            "profiles[1].pluginConfig[0].args.bindTimeoutSeconds: expected a value greater than or equal to 0, got -1",
        ]
    )


def test_all_faults_of_a_policy_at_once() -> None:
    document = policy(
        predicates=[{"name": "HostNam"}, {"name": "X", "argument": {"serviceAffinity": {"labels": []}}}],
        priorities=[{"name": "EqualPriority", "weight": 0}, {"name": 3, "weight": 1}],
        alwaysCheckAllPredicate=True,
    )
    assert sorted(faults(document)) == sorted(
        [
            "alwaysCheckAllPredicate: unknown field (did you mean alwaysCheckAllPredicates?)",
            "predicates[0].name: unknown plugin 'HostNam' (did you mean HostName?)",
            "predicates[1].argument.serviceAffinity.labels: expected at least 1",
            "priorities[0].weight: expected a positive weight of at most 2147483647, got 0",
            "priorities[1].name: expected a valid string, got 3",
        ]
    )


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
)
known_keys = st.sampled_from(
    [
        "profiles",
        "plugins",
        "score",
        "filter",
        "enabled",
        "name",
        "pluginConfig",
        "args",
        "predicates",
        "argument",
        "weight",
    ]
)
likely_values = st.recursive(
    st.none() | st.integers() | st.sampled_from(["*", "NodeName", "NodeResourcesFit", "HostName", ""]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(known_keys, inner, max_size=4),
    max_leaves=20,
)


@given(st.sampled_from(["KubeSchedulerConfiguration", "Policy", "ConfigMap"]), st.one_of(json_values, likely_values))
def test_whatever_a_document_holds_it_is_a_policy_or_has_faults(kind: str, content: Any) -> None:
    document = {**content, "kind": kind} if isinstance(content, dict) else {"kind": kind, "profiles": content}
    try:
        read(document)
    except ConfigurationError as error:
        assert error.faults


@given(st.text(max_size=40))
def test_whatever_a_text_holds_it_is_a_policy_or_has_faults(text: str) -> None:
    try:
        load(text)
    except ConfigurationError as error:
        assert error.faults

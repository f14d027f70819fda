"""Everything said of a pod: verdict, notes, reasons with numbers, scores, preemption."""

from __future__ import annotations

import json

import pytest

from extender import Cluster
from extender.errors import UnknownNode, UnknownPod
from extender.offline.explain import terminal
from extender.offline.explain.explanation import Explanation
from extender.policy.loading import read
from tests.builders import (
    HOSTNAME,
    Object,
    PodBuilder,
    expression,
    make_device,
    make_device_class,
    make_node,
    make_pod,
    make_resource_claim,
    make_resource_slice,
    node_term,
    stored,
)
from tests.policy.configurations import profile

NODES = [
    make_node("big").capacity(cpu="8").obj(),
    make_node("small").capacity(cpu="2").obj(),
    make_node("tainted").taint("dedicated").obj(),
]
FILLER = make_pod("filler").req(cpu="1500m").priority(0).node("small").obj()


def explained(pod: Object, *objects: Object) -> Explanation:
    return Cluster.from_objects(objects).explain(stored(pod))


def against_web(name: str, topology_key: str, node: str) -> Object:
    """Returns a placed pod with anti-affinity to the web pods in its domain."""
    return make_pod(name).anti_affinity(topology_key, labels={"app": "web"}).node(node).obj()


def lines(pod: Object, *objects: Object) -> list[str]:
    return list(terminal.summary(explained(pod, *objects)))


def detail(reason: str, explanation: Explanation) -> str:
    return next(each.detail for each in explanation.reasons if each.reason == reason)


def test_the_verdict_is_worded_as_kubectl_words_it() -> None:
    explanation = explained(make_pod("p").req(cpu="9").obj(), *NODES)
    assert explanation.message == (
        "0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 Insufficient cpu. "
        "preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling."
    )
    assert not explanation.fits


def test_the_most_free_leaves_out_what_is_kept_for_nominated_pods() -> None:
    nominated = make_pod("n").req(cpu="3").priority(10).nominated("a").obj()
    nodes = [make_node("a").capacity(cpu="4").obj(), make_node("b").capacity(cpu="1500m").obj()]
    explanation = explained(make_pod("p").req(cpu="2").priority(0).obj(), *nodes, nominated)
    assert detail("Insufficient cpu", explanation) == (
        "requests 2; the most free is 1.5 on b (after subtracting the requests of nominated pods)"
    )


def test_a_pod_that_fits_is_explained_by_node_and_scores() -> None:
    shown = lines(make_pod("p").req(cpu="1").obj(), *NODES)
    assert shown[0] == "pod default/p: 2/3 nodes are available"
    assert shown[1].startswith("would be placed on big (")
    assert shown[2].startswith("runner-up: small (")
    assert "NodeResourcesFit +" in shown[2]


def test_the_waterfall_adds_up() -> None:
    choice = explained(make_pod("p").req(cpu="1").obj(), *NODES).waterfall
    assert choice is not None
    assert choice.runner_up_total is not None
    assert sum(line.difference for line in choice.plugins.values()) == choice.total - choice.runner_up_total


@pytest.mark.parametrize(
    ("pod", "objects", "reason", "expected"),
    [
        pytest.param(
            make_pod("p").req(cpu="3").obj(),
            [*NODES[1:2], FILLER, make_node("mid").capacity(cpu="2500m").obj()],
            "Insufficient cpu",
            "requests 3; the most free is 2.5 on mid; even an empty node has at most 2.5",
            id="resources",
        ),
        pytest.param(
            make_pod("p").req({"example.com/gpu": "1"}).obj(),
            NODES[:2],
            "Insufficient example.com/gpu",
            "requests 1; none of these nodes has any",
            id="a resource that no node has",
        ),
        pytest.param(
            make_pod("p").req(memory="4294967297").obj(),
            [make_node("a").capacity(memory="4Gi").obj()],
            "Insufficient memory",
            "requests 4294967297; the most free is 4Gi on a; even an empty node has at most 4Gi",
            id="amounts that rounding would make equal",
        ),
        pytest.param(
            make_pod("p").obj(),
            NODES[2:],
            "node(s) had untolerated taint(s)",
            "dedicated:NoSchedule on 1 node",
            id="taints",
        ),
        pytest.param(
            make_pod("p").node_selector(disk="ssd").obj(),
            NODES[:2],
            "node(s) didn't match Pod's node affinity/selector",
            "nodeSelector disk=ssd not met on 2 nodes",
            id="node selector",
        ),
        pytest.param(
            make_pod("p")
            .require_node(node_term(expression("disk", "In", "ssd"), fields=[expression("metadata.name", "In", "big")]))
            .obj(),
            [make_node("big").obj(), make_node("fast").label(disk="ssd").obj()],
            "node(s) didn't match Pod's node affinity/selector",
            "affinity disk in (ssd) not met on 1 node",
            id="required node affinity",
        ),
        pytest.param(
            make_pod("p").node_selector(dict.fromkeys("abcde", "x")).obj(),
            NODES[:1],
            "node(s) didn't match Pod's node affinity/selector",
            "nodeSelector a=x not met on 1 node, nodeSelector b=x not met on 1 node, nodeSelector c=x not met on 1 node"
            ", nodeSelector d=x not met on 1 node and 1 more",
            id="many labels",
        ),
        pytest.param(
            make_pod("p").obj(),
            [make_node("n").capacity(pods="1").obj(), make_pod("other").node("n").obj()],
            "Too many pods",
            "the largest of these nodes allows 1 pod",
            id="too many pods",
        ),
        pytest.param(
            make_pod("p").affinity(HOSTNAME, labels={"app": "web"}).obj(),
            NODES[:2],
            "node(s) didn't match pod affinity rules",
            "affinity to pods with app=web within kubernetes.io/hostname not met on 2 nodes",
            id="affinity",
        ),
        pytest.param(
            make_pod("p")
            .anti_affinity(HOSTNAME, labels={"app": "web"})
            .anti_affinity(HOSTNAME, labels={"app": "db"})
            .obj(),
            [NODES[0], make_pod("db").label(app="db").node("big").obj()],
            "node(s) didn't match pod anti-affinity rules",
            "anti-affinity to pods with app=db within kubernetes.io/hostname violated on 1 node",
            id="one of two anti-affinity terms",
        ),
        pytest.param(
            make_pod("p").obj(),
            [make_node(str(number)).taint(f"k{number}").obj() for number in range(6)],
            "node(s) had untolerated taint(s)",
            "k0:NoSchedule on 1 node, k1:NoSchedule on 1 node, k2:NoSchedule on 1 node, k3:NoSchedule on 1 node"
            " and 2 more",
            id="many taints",
        ),
        pytest.param(
            make_pod("p").label(app="web").obj(),
            [
                *(make_node("r1").label(rack="r1").obj(), make_node("bare").obj(), make_node("lone").obj()),
                *(against_web("x", "rack", "r1"), against_web("y", "rack", "r1"), against_web("v", HOSTNAME, "lone")),
                against_web("w", "rack", "bare"),
            ],
            "node(s) didn't satisfy existing pods anti-affinity rules",
            "default/x on r1 has anti-affinity to this pod within rack, "
            "default/y on r1 has anti-affinity to this pod within rack and 1 more",
            id="anti-affinity of placed pods, but not of one whose node has no rack",
        ),
        pytest.param(
            make_pod("p").host_port(80).obj(),
            [NODES[0], make_pod("web").host_port(80).node("big").obj()],
            "node(s) didn't have free ports for the requested pod ports",
            "host port 80/TCP is used by default/web on big",
            id="ports",
        ),
    ],
)
def test_reasons_come_with_numbers(pod: Object, objects: list[Object], reason: str, expected: str) -> None:
    assert detail(reason, explained(pod, *objects)) == expected


@pytest.mark.parametrize(
    ("zones", "expected"),
    [
        pytest.param("ab", "a has 3 pods, b has 0 pods", id="the fullest first"),
        pytest.param("cba", "a has 3 pods, b has 0 pods, c has 0 pods", id="equally full ones by name"),
        pytest.param("abcd", "a has 3 pods, b has 0 pods, c has 0 pods, d has 0 pods", id="all of 4"),
        pytest.param("abcde", "a has 3 pods, b has 0 pods, e has 0 pods (of 5 domains)", id="3 of more"),
    ],
)
def test_a_refusal_by_spreading_counts_the_pods_of_each_domain(zones: str, expected: str) -> None:
    nodes = [make_node(f"n{zone}").label(zone=zone).obj() for zone in zones]
    full = [make_pod(f"r{n}").label(app="x").node("na").obj() for n in range(3)]
    pod = make_pod("p").label(app="x").spread("zone", labels={"app": "x"}).obj()
    recorded = detail("node(s) didn't match pod topology spread constraints", explained(pod, *nodes, *full))
    assert recorded == f"maxSkew 1 over zone: {expected}"


def test_a_refusal_by_spreading_says_when_there_are_too_few_domains() -> None:
    node, placed = make_node("n").label(zone="a").obj(), make_pod("r").label(app="x").node("n").obj()
    pod = make_pod("p").label(app="x").spread("zone", labels={"app": "x"}, minDomains=2).obj()
    text = detail("node(s) didn't match pod topology spread constraints", explained(pod, node, placed))
    assert text == "maxSkew 1 over zone: a has 1 pod; the skew is counted from 0 pods, because minDomains is 2"


@pytest.mark.parametrize(
    ("pod", "note", "fits"),
    [
        pytest.param(make_pod("p").gate("quota").obj(), "gated by quota", False, id="gated"),
        pytest.param(make_pod("p").scheduler("other").obj(), "its schedulerName is other", True, id="foreign"),
        pytest.param(make_pod("p").nominated("big").obj(), "nominated to big", True, id="nominated"),
        pytest.param(
            make_pod("p").nominated("gone").obj(),
            "nominated to gone, a node that does not exist, so the scheduler tries the other nodes",
            True,
            id="nominated to a node that is gone",
        ),
        pytest.param(make_pod("p").node("small").obj(), "bound to small", True, id="bound"),
        pytest.param(
            make_pod("p").node("gone").obj(),
            "bound to gone, a node that does not exist, and judged as if it were not",
            True,
            id="bound to a node that is gone",
        ),
    ],
)
def test_the_first_note_says_why_no_scheduler_tries_the_pod(pod: Object, note: str, fits: bool) -> None:
    cluster = Cluster.from_objects([*NODES, pod])
    explanation = cluster.explain("default/p")
    assert note in explanation.notes[0]
    assert explanation.fits is fits
    assert explanation.decision.feasible == ["big", "small"]


def test_a_pod_that_leaves_is_not_tried_again() -> None:
    pod = make_pod("p").obj()
    pod["metadata"]["deletionTimestamp"] = "2026-11-21T09:00:00Z"
    explanation = explained(pod, *NODES)
    assert "being deleted" in explanation.notes[0]
    assert not explanation.fits


def test_a_finished_pod_is_named_as_such() -> None:
    with pytest.raises(UnknownPod, match="has finished"):
        Cluster.from_objects([*NODES, make_pod("p").phase("Succeeded").obj()]).explain("default/p")


def test_every_filter_speaks_of_one_node() -> None:
    pod = make_pod("p").req(cpu="9").node_selector(disk="ssd").obj()
    verdicts = {each.plugin: each.reasons for each in explained(pod, *NODES).on_node("tainted")}
    assert {plugin for plugin, reasons in verdicts.items() if reasons} == {
        "TaintToleration",
        "NodeAffinity",
        "NodeResourcesFit",
    }
    with pytest.raises(UnknownNode, match="no node nowhere"):
        explained(pod, *NODES).on_node("nowhere")


def test_a_filter_counts_pods_that_are_nominated_to_the_node() -> None:
    waiting = make_pod("waiting").req(cpu="4").nominated("n").obj()
    cluster = Cluster.from_objects([make_node("n").capacity(cpu="4").obj(), waiting])
    verdicts = cluster.explain(stored(make_pod("p").req(cpu="1").obj())).on_node("n")
    assert [(each.plugin, each.reasons) for each in verdicts if each.reasons] == [
        ("NodeResourcesFit", ("Insufficient cpu",))
    ]


NOT_AT_FILTER = "passes preFilter; not checked at filter: the policy disables it there"
EXCLUDED = "node(s) didn't satisfy plugin(s) [NodeAffinity]"


@pytest.mark.parametrize(
    ("point", "pod", "expected"),
    [
        pytest.param(
            "multiPoint",
            make_pod("p").req(cpu="9").require_node({"matchFields": [expression("metadata.name", "In", "big")]}),
            ("not checked: the policy disables it", "not checked: the policy disables it"),
            id="everywhere",
        ),
        pytest.param(
            "filter",
            make_pod("p").req(cpu="9").node_selector(disk="ssd"),
            (NOT_AT_FILTER, NOT_AT_FILTER),
            id="only at filter",
        ),
        pytest.param(
            "filter",
            make_pod("p").req(cpu="9").require_node({"matchFields": [expression("metadata.name", "In", "big")]}),
            (NOT_AT_FILTER, EXCLUDED),
            id="only at filter, and preFilter excludes the node",
        ),
    ],
)
def test_a_filter_that_the_policy_disables_says_what_still_runs(
    point: str, pod: PodBuilder, expected: tuple[str, str]
) -> None:
    disabled = [{"name": "NodeResourcesFit"}, {"name": "NodeAffinity"}]
    profiles = read(profile(plugins={point: {"disabled": disabled}})).scheduler_profiles()
    verdicts = Cluster.from_objects(NODES, profiles).explain(pod.obj()).on_node("small")
    texts = {each.plugin: each.text for each in verdicts}
    assert (texts["NodeResourcesFit"], texts["NodeAffinity"]) == expected
    assert texts["NodeName"] == "passes"
    assert [each.plugin for each in verdicts if each.is_disabled and each.reasons] == []


def test_a_nominated_node_may_be_one_that_only_pre_filter_excludes() -> None:
    disabled = {"filter": {"disabled": [{"name": "NodeAffinity"}]}}
    only_big = {"matchFields": [expression("metadata.name", "In", "big")]}
    waiting = make_pod("p").req(cpu="1").nominated("small").require_node(only_big)
    profiles = read(profile(plugins=disabled)).scheduler_profiles()
    explanation = Cluster.from_objects(NODES, profiles).explain(stored(waiting.obj()))
    assert explanation.decision.best == ["small"]
    assert [verdict.plugin for verdict in explanation.on_node("small") if verdict.reasons] == []


@pytest.mark.parametrize(
    ("nominated", "reasons"),
    [
        pytest.param(
            "n1",
            "1 Insufficient cpu, 2 node(s) didn't satisfy plugin(s) [NodeAffinity NodeResourcesFit]",
            id="the node that it names",
        ),
        pytest.param(
            "n2",
            "1 Insufficient cpu, 1 node(s) didn't match Pod's node affinity/selector, "
            "1 node(s) didn't satisfy plugin(s) [NodeAffinity]",
            id="another node",
        ),
    ],
)
def test_the_message_has_the_own_refusal_of_the_nominated_node(nominated: str, reasons: str) -> None:
    """As in the loop, since kube-scheduler checks that node alone first."""
    only_n1 = {"matchFields": [expression("metadata.name", "In", "n1")]}
    waiting = make_pod("p").req(cpu="2").nominated(nominated).require_node(only_n1)
    nodes = [make_node(name).capacity(cpu="1").obj() for name in ("n1", "n2", "n3")]
    message = explained(waiting.obj(), *nodes).message
    assert message.startswith(f"0/3 nodes are available: {reasons}. preemption:")


def test_node_by_node_says_whether_evictions_may_help() -> None:
    shown = list(terminal.nodes(explained(make_pod("p").req(cpu="1").obj(), *NODES, FILLER)))
    at = next(number for number, line in enumerate(shown) if "REFUSED BY" in line)
    assert [line.split(maxsplit=4) for line in shown[at + 1 : at + 3]] == [
        ["small", "NodeResourcesFit", "may", "help", "Insufficient cpu"],
        ["tainted", "TaintToleration", "cannot", "help", "node(s) had untolerated taint(s)"],
    ]


def test_preemption_names_victims_and_the_rule_that_chose() -> None:
    other = [make_node("other").capacity(cpu="2").obj(), make_pod("vip").req(cpu="2").priority(3).node("other").obj()]
    explanation = explained(make_pod("p").req(cpu="1").priority(5).obj(), NODES[1], FILLER, *other)
    shown = "\n".join(terminal.summary(explanation))
    assert "preemption: would evict default/filler from small" in shown
    assert explanation.preemption_decided_by == "its most important victim has the lowest priority"


def test_names_cannot_steer_the_terminal() -> None:
    shown = lines(make_pod("p").req(cpu="99").obj(), make_node("n\x1b[2J").obj())
    assert not any("\x1b" in line for line in shown)


def test_the_form_for_json_holds_the_whole_decision() -> None:
    explanation = explained(make_pod("p").req(cpu="1").obj(), *NODES, FILLER)
    recorded = json.loads(json.dumps(explanation.to_dict()))
    assert (recorded["pod"], recorded["fits"]) == ("default/p", True)
    assert recorded["feasible"] == recorded["best"] == ["big"]
    assert recorded["nodes"]["small"] == {
        "plugin": "NodeResourcesFit",
        "code": "Unschedulable",
        "reasons": ["Insufficient cpu"],
    }
    assert recorded["total"]["big"] == sum(recorded["scores"]["big"].values())
    assert recorded["preemption"]["candidates"] == {}
    assert recorded["reasons"][0]["plugin"] in ("NodeResourcesFit", "TaintToleration")


def test_a_notebook_shows_a_table() -> None:
    shown = explained(make_pod("p").req(cpu="9").obj(), make_node("<blink>").obj())._repr_html_()
    assert "Insufficient cpu" in shown
    assert "<blink>" not in shown


CLASS = make_device_class("gpu", 'device.attributes["gpu.example.com"].model == "a"')
"""It cannot be decided for a device without a model, which ends the attempt in an error."""
WANTED = make_resource_claim("wanted", "gpu")
GOOD = make_resource_slice("good", "gpu.example.com", make_device("d", {"model": "a"}))
UNDECIDED = make_resource_slice("odd", "gpu.example.com", make_device("d"))
PAIR = [make_node("good").obj(), make_node("odd").obj(), CLASS, WANTED, GOOD, UNDECIDED]


def test_an_error_on_one_node_fails_the_attempt_as_in_the_scheduler() -> None:
    pod = make_pod("p").resource_claim("wanted").obj()
    cluster = Cluster.from_objects([*PAIR, pod])
    explanation = cluster.explain(pod)
    assert (explanation.fits, explanation.decision.feasible, explanation.decision.best) == (False, [], [])
    assert explanation.message.startswith('running "DynamicResources" filter plugin: class')
    assert explanation.message == cluster.simulate().remaining["default/p"]
    assert cluster.explain_pending()[0].cause == explanation.message


def test_a_pod_that_names_its_node_is_judged_on_it() -> None:
    pod = make_pod("p").req(cpu="3").spec(nodeName="tainted").obj()
    explanation = Cluster.from_objects(NODES).explain(pod)
    assert explanation.fits
    assert explanation.notes == ["spec.nodeName binds it to tainted without a scheduler"]
    refused = Cluster.from_objects(NODES).explain(make_pod("p").req(cpu="3").spec(nodeName="small").obj())
    assert not refused.fits
    (note,) = refused.notes
    assert note.endswith("without a scheduler, but the kubelet of small would reject it: Insufficient cpu")


def test_the_nominated_node_is_taken_before_a_better_one() -> None:
    pod = make_pod("p").req(cpu="1").nominated("small").obj()
    explanation = explained(pod, *NODES[:2])
    assert (explanation.decision.best, explanation.waterfall) == (["small"], None)
    assert "would be placed on small, because it is nominated to it" in lines(pod, *NODES[:2])
    assert Cluster.from_objects([*NODES[:2], pod]).simulate().placements[0].node == "small"

"""Pods placed on a copy of a cluster: as one decision after another would, and after changes."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from extender import Cluster
from extender.errors import ConfigurationError, MalformedCluster, UnknownNode, UnknownPod
from extender.model.node import Node
from extender.offline.what_if.result import DrainEffect, SimulationResult, as_text
from extender.offline.what_if.scenario import Scenario
from tests.builders import (
    Object,
    make_device_class,
    make_node,
    make_pdb,
    make_pod,
    make_resource_claim,
    make_resource_slice,
)
from tests.builders.pod import PodBuilder

ZONE = "topology.kubernetes.io/zone"
NODES = [make_node(f"n{zone}").capacity(cpu="4").label({ZONE: zone}).obj() for zone in "abc"]


def owned(name: str, kind: str = "ReplicaSet", owner: str = "web-5d8f") -> PodBuilder:
    return make_pod(name).label(app="web").req(cpu="1").owner(kind, owner)


def budget(allowed: int) -> Object:
    return {**make_pdb("web", {"app": "web"}), "status": {"disruptionsAllowed": allowed}}


def simulated(*objects: Object, **scenario: Any) -> SimulationResult:
    return Cluster.from_objects(objects).simulate(Scenario(**scenario))


def homes(result: SimulationResult) -> dict[str, str]:
    return {each.pod: each.node for each in result.placements}


@st.composite
def backlogs(draw: Any) -> list[Object]:
    objects = [
        make_node(f"n{number}").capacity(cpu=str(draw(st.integers(1, 4)))).label(zone=draw(st.sampled_from("ab"))).obj()
        for number in range(draw(st.integers(1, 4)))
    ]
    for number in range(draw(st.integers(1, 8))):
        # One priority for all: no pod preempts, so that one decision after another is all there is to it.
        pod = (
            make_pod(f"p{number}")
            .req(cpu=draw(st.sampled_from(("500m", "1", "3"))))
            .label(app=draw(st.sampled_from("xy")))
        )
        if draw(st.integers(0, 2)) == 0:
            pod.spread("zone", labels={"app": "x"})
        if draw(st.integers(0, 3)) == 0:
            pod.anti_affinity("kubernetes.io/hostname", labels={"app": "y"})
        objects.append(pod.created(f"2026-11-21T09:00:{number:02}Z").obj())
    return objects


@settings(suppress_health_check=list(HealthCheck))
@given(backlogs(), st.integers(0, 3))
def test_the_result_is_that_of_one_decision_after_another(objects: list[Object], seed: int) -> None:
    result = Cluster.from_objects(objects).simulate(seed=seed)
    cluster = Cluster.from_objects(objects)
    placed = homes(result)
    left = [pod for pod in cluster.pending if pod.key not in placed]
    for placement in result.placements:
        decision = cluster.decide(cluster.pod(placement.pod))
        assert placement.node in decision.best
        cluster.bind(decision.pod, placement.node)
    for pod in left:
        assert cluster.decide(pod).feasible == []
        assert pod.key in result.remaining


def test_the_cluster_itself_stays_as_it_is() -> None:
    cluster = Cluster.from_objects([*NODES, make_pod("p").req(cpu="1").obj(), owned("q").node("na").obj()])
    cluster.simulate(Scenario(drain=["na"], add_nodes=[("nb", 2)], remove_nodes=["nc"]))
    assert cluster.nodes == ["na", "nb", "nc"]
    assert [pod.key for pod in cluster.pending] == ["default/p"]
    assert cluster.pod("default/q").node_name == "na"


def test_the_same_seed_gives_the_same_result() -> None:
    cluster = Cluster.from_objects([*NODES, *(make_pod(f"p{n}").req(cpu="1").obj() for n in range(6))])
    assert cluster.simulate(seed=7).to_dict() == cluster.simulate(seed=7).to_dict()


def test_the_more_important_pod_goes_first_and_evicts() -> None:
    low = owned("low").req(cpu="3").priority(1).node("na").obj()
    high, small = make_pod("high").req(cpu="3").priority(9).obj(), make_pod("small").req(cpu="2").obj()
    result = simulated(NODES[0], low, small, high)
    assert homes(result) == {"default/high": "na"}
    assert [(e.pod, e.cause, e.comes_back) for e in result.evictions] == [
        ("default/low", "preemption by default/high", True)
    ]
    assert result.remaining.keys() == {"default/low", "default/small"}


def test_pods_that_no_scheduler_tries_stay_pending_with_the_reason() -> None:
    leaving = make_pod("leaving").obj()
    leaving["metadata"]["deletionTimestamp"] = "2026-11-21T09:00:00Z"
    result = simulated(*NODES, leaving, make_pod("gated").gate("quota").obj())
    assert "being deleted" in result.remaining["default/leaving"]
    assert "gated" in result.remaining["default/gated"]


def test_a_pod_is_labelled_with_its_zone_as_it_is_bound() -> None:
    wanting = make_pod("z").affinity("kubernetes.io/hostname", labels={ZONE: "a"}).obj()
    first = make_pod("a").node_selector({ZONE: "a"}).priority(5).obj()
    assert homes(simulated(*NODES, first, wanting)) == {"default/a": "na", "default/z": "na"}


def test_drained_pods_find_new_homes_but_for_daemons() -> None:
    daemon = owned("agent", "DaemonSet", "agent").node("na").obj()
    bare = make_pod("bare").req(cpu="1").node("na").obj()
    result = simulated(*NODES[:2], owned("w1").node("na").obj(), daemon, bare, drain=["na"])
    assert homes(result) == {"default/w1": "nb"}
    assert result.placements[0].previous == "na"
    assert result.lost == ["default/bare"]


def test_a_drain_evicts_a_pod_once_that_tolerates_cordoned_nodes() -> None:
    result = simulated(NODES[0], owned("w").toleration().node("na").obj(), drain=["na"])
    assert homes(result) == {"default/w": "na"}
    assert [each.pod for each in result.evictions] == ["default/w"]
    assert result.kept == {}


def test_a_drain_waits_for_budgets_round_by_round() -> None:
    pods = [owned(f"w{n}").node("na").obj() for n in range(3)]
    assert len(homes(simulated(*NODES, *pods, budget(1), drain=["na"]))) == 3
    blocked = simulated(*NODES, *pods, budget(0), drain=["na"])
    assert blocked.evictions == []
    assert blocked.kept == {f"default/w{n}": "na" for n in range(3)}


def test_a_node_may_be_drained_and_removed_beside_others() -> None:
    pods = [owned("w1").node("na").obj(), owned("w2").node("nb").obj()]
    result = simulated(*NODES, *pods, drain=["na", "nb"], remove_nodes=["na"])
    assert homes(result) == {"default/w1": "nc", "default/w2": "nc"}
    assert {each.cause for each in result.evictions} == {"node na removed", "drain"}


def unready(name: str) -> PodBuilder:
    return owned(name).phase("Running").status(conditions=[{"type": "Ready", "status": "False"}])


@pytest.mark.parametrize(
    ("policy", "healthy", "desired", "goes"),
    [
        pytest.param("AlwaysAllow", 0, 1, True, id="always"),
        pytest.param("IfHealthyBudget", 0, 1, False, id="too few others healthy"),
        pytest.param("IfHealthyBudget", 1, 1, True, id="enough others healthy"),
        pytest.param(None, 1, 1, True, id="by default"),
    ],
)
def test_an_unready_pod_is_evicted_by_the_policy_of_its_budget(
    policy: str | None, healthy: int, desired: int, goes: bool
) -> None:
    pdb = make_pdb("web", {"app": "web"}, unhealthyPodEvictionPolicy=policy)
    pdb["status"] = {"disruptionsAllowed": 0, "currentHealthy": healthy, "desiredHealthy": desired}
    result = simulated(*NODES, unready("w").node("na").obj(), pdb, drain=["na"])
    assert (list(homes(result)), list(result.kept)) == ((["default/w"], []) if goes else ([], ["default/w"]))


def test_an_unready_pod_counts_as_healthy_once_it_is_placed_again() -> None:
    pdb = make_pdb("web", {"app": "web"}, unhealthyPodEvictionPolicy="AlwaysAllow")
    pdb["status"] = {"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1}
    pods = [owned("ready").node("na").obj(), unready("bad").node("na").obj()]
    assert len(homes(simulated(*NODES, *pods, pdb, drain=["na"]))) == 2
    pdb["status"]["desiredHealthy"] = 2
    assert homes(simulated(*NODES, *pods, pdb, drain=["na"])).keys() == {"default/bad"}


def test_a_pod_that_has_not_started_is_evicted_despite_its_budget() -> None:
    starting = owned("w").phase("Pending").node("na").obj()
    assert homes(simulated(*NODES, starting, budget(0), drain=["na"])).keys() == {"default/w"}


def test_a_pod_with_two_budgets_is_never_evicted() -> None:
    other = {**budget(9), "metadata": {"name": "other", "namespace": "default"}}
    result = simulated(*NODES, owned("w").node("na").obj(), budget(9), other, drain=["na"])
    assert (result.evictions, result.kept) == ([], {"default/w": "na"})
    assert any("w stays on na: more than one PodDisruptionBudget covers it" in note for note in result.notes)


def test_evicted_pods_that_fit_nowhere_stay_pending() -> None:
    pods = [owned(f"w{n}").req(cpu="2").node("na").obj() for n in range(2)]
    result = simulated(NODES[0], make_node("small").capacity(cpu="2").obj(), *pods, drain=[f"{ZONE}=a"])
    assert (len(result.placements), len(result.remaining)) == (1, 1)


@pytest.mark.parametrize("chosen", ["drain", "cordon", "remove_nodes"])
def test_a_label_chooses_no_copy_of_a_node_that_has_it(chosen: str) -> None:
    pod = owned("w").node("na").obj() if chosen != "cordon" else owned("w").obj()
    result = simulated(NODES[0], pod, add_nodes=[("na", 1)], **{chosen: [f"{ZONE}=a"]})
    assert homes(result) == {"default/w": "na-new-1"}


def test_nodes_come_and_go() -> None:
    waiting = make_pod("p").req(cpu="4").obj()
    full = [owned(f"w{zone}").req(cpu="1").node(f"n{zone}").obj() for zone in "abc"]
    assert homes(simulated(*NODES, *full, waiting)) == {}
    assert homes(simulated(*NODES, *full, waiting, add_nodes=[("na", 1)])) == {"default/p": "na-new-1"}
    gone = simulated(*NODES, *full, remove_nodes=["na"])
    assert homes(gone).keys() == {"default/wa"}
    assert homes(gone)["default/wa"] != "na"
    assert homes(simulated(*NODES, make_pod("q").obj(), cordon=["na", "nb"])) == {"default/q": "nc"}


@pytest.mark.parametrize(
    ("count", "placed", "standing"), [(4, 2, 4), (1, 0, 1), (2, 0, 2)], ids=["more", "fewer", "the same"]
)
def test_workloads_are_scaled(count: int, placed: int, standing: int) -> None:
    pods = [owned(f"web-5d8f-{n}").node("na").obj() for n in range(2)]
    result = simulated(*NODES, *pods, scale=[("default/deploy/web", count)])
    assert len(result.placements) == placed
    assert round(result.after.utilisation["cpu"] * 12) == standing


def test_workloads_are_made_and_deleted() -> None:
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "new"},
        "spec": {
            "selector": {"matchLabels": {"app": "new"}},
            "template": {"metadata": {"labels": {"app": "new"}}, "spec": make_pod("x").limit(cpu="1").obj()["spec"]},
        },
    }
    old = [owned(f"web-5d8f-{n}").req(cpu="4").node(f"n{zone}").obj() for n, zone in enumerate("abc")]
    result = simulated(*NODES, *old, create=[(deployment, 5)], delete=["default/deploy/web"])
    assert len(result.placements) == 5
    assert len({each.node for each in result.placements}) == 3
    assert any("requests cpu=1, taken from its limits" in note for note in result.notes)


@pytest.mark.parametrize(
    ("scenario", "error", "recorded"),
    [
        pytest.param({"drain": ["nowhere"]}, UnknownNode, "no node nowhere", id="node"),
        pytest.param({"cordon": ["a=b"]}, UnknownNode, "no node has the label a=b", id="label"),
        pytest.param(
            {"scale": [("default/deploy/x", 2)]}, UnknownPod, "no Deployment default/x in this cluster", id="workload"
        ),
        pytest.param({"scale": [("default/cj/x", 2)]}, ConfigurationError, "name a Job of it", id="CronJob"),
        pytest.param({"scale": [("default/daemonsets/x", 2)]}, ConfigurationError, "one on each node", id="DaemonSet"),
        pytest.param({"delete": ["rollout/x"]}, UnknownPod, "and others are given with -f", id="another kind"),
        pytest.param({"delete": ["default/x"]}, UnknownPod, "no pod default/x", id="pod"),
        pytest.param({"delete": ["a/b/c/d"]}, ConfigurationError, "expected NAMESPACE/KIND/NAME", id="form"),
    ],
)
def test_a_scenario_with_an_unknown_name_is_refused_by_that_name(
    scenario: dict[str, Any], error: type[Exception], recorded: str
) -> None:
    with pytest.raises(error, match=recorded):
        simulated(*NODES, **scenario)


@pytest.mark.parametrize(
    ("differing", "node"),
    [
        pytest.param(make_pod("last").req(cpu="4").label(app="web"), "", id="a replica"),
        pytest.param(make_pod("last").req(cpu="3").label(app="web"), "na", id="a smaller pod"),
        pytest.param(make_pod("last").req(cpu="4").label(app="web").priority(5), "na", id="a more important pod"),
        pytest.param(make_pod("last").req(cpu="4").label(app="web").toleration("big"), "tainted", id="a tolerant pod"),
    ],
)
def test_only_replicas_of_a_refused_pod_share_its_refusal(differing: PodBuilder, node: str) -> None:
    nodes = [make_node("na").capacity(cpu="4"), make_node("tainted").capacity(cpu="4").taint("big")]
    replicas = [make_pod(f"web-{number}").req(cpu="4").label(app="web") for number in range(3)]
    built = [*nodes, make_pod("small").req(cpu="1").node("na"), *replicas, differing]
    result = simulated(*(each.obj() for each in built))
    assert homes(result).get("default/last", "") == node
    refusals = {result.remaining[f"default/web-{number}"] for number in range(3)}
    assert len(refusals) == 1
    assert refusals.pop().startswith("0/2 nodes are available: 1 Insufficient cpu")


@pytest.mark.parametrize("number", [-3, 10**20], ids=["less than none", "more than there can be"])
def test_a_number_that_makes_no_sense_is_refused_before_anything_is_made(number: int) -> None:
    pod = owned("web-5d8f-1").node("na").obj()
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}}
    job["spec"] = {"parallelism": number, "template": {"spec": {**pod["spec"], "restartPolicy": "Never"}}}
    with pytest.raises(
        MalformedCluster, match=f"spec.parallelism: expected a number from 0 to 2147483647, got {number}"
    ):
        simulated(*NODES, pod, create=[(job, None)])
    for scenario, most in (
        ({"scale": [("default/deploy/web", number)]}, 100_000),
        ({"add_nodes": [("na", number)]}, 10_000),
    ):
        with pytest.raises(ConfigurationError, match=f"expected a number from 0 to {most}, got {number}"):
            simulated(*NODES, pod, **scenario)


def test_the_text_counts_placed_and_evicted_pods_and_names_reasons() -> None:
    pods = [owned("w1").node("na").obj(), make_pod("huge").req(cpu="9").obj()]
    shown = "\n".join(as_text(simulated(*NODES, *pods, drain=["na"])))
    assert shown.startswith("1 pod placed, 1 pending, 1 evicted")
    assert "default/w1   na    drain" in shown
    assert "3 Insufficient cpu" in shown or "2 Insufficient cpu" in shown
    assert "<table>" in simulated(*NODES)._repr_html_()


def test_a_copied_node_brings_its_devices() -> None:
    gpu = [make_node("gpu").obj(), make_resource_slice("gpu", "gpu.example.com", "a"), make_device_class("gpu")]
    waiting = [make_pod(name).resource_claim(name).obj() for name in ("p", "q")]
    claims = [make_resource_claim(name, "gpu") for name in ("p", "q")]
    assert len(homes(simulated(*gpu, *claims, *waiting))) == 1
    added = simulated(*gpu, *claims, *waiting, add_nodes=[("gpu", 1)])
    assert sorted(homes(added).values()) == ["gpu", "gpu-new-1"]


@pytest.mark.parametrize(("kind", "waits"), [("DaemonSet", True), ("Node", True), ("ReplicaSet", False)])
def test_a_copied_node_has_the_pods_of_every_such_node(kind: str, waits: bool) -> None:
    daemon = owned("agent-x", kind, "agent").node("na")
    if kind == "Node":
        daemon.annotation({"kubernetes.io/config.mirror": "hash"})
    daemon.spec(affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": on_node("na")}})
    waiting = make_pod("p").req(cpu="4").obj()
    added = simulated(NODES[0], daemon.obj(), waiting, add_nodes=[("na", 2)])
    assert ("default/p" in added.remaining) is waits
    assert round(added.after.utilisation["cpu"] * 12) == (3 if waits else 5)


def test_a_copied_pod_of_a_daemon_set_belongs_to_the_copy() -> None:
    daemon = owned("agent-x", "DaemonSet", "agent").req(cpu="4").node("na")
    daemon.spec(affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": on_node("na")}})
    urgent = make_pod("p").priority(9).req(cpu="2").node_selector({"kubernetes.io/hostname": "na-new-1"}).obj()
    node = make_node("na").capacity(cpu="4").label({"kubernetes.io/hostname": "na"}).obj()
    result = simulated(node, daemon.obj(), urgent, add_nodes=[("na", 1)], remove_nodes=["na"])
    assert [each.pod for each in result.evictions if "preemption" in each.cause] == ["default/agent-x-na-new-1"]
    assert "1 Insufficient cpu" in result.remaining["default/agent-x-na-new-1"]


def test_a_node_of_a_manifest_has_the_pods_of_the_daemon_sets_that_may_go_there() -> None:
    daemons = []
    for name, builder in (
        ("agent", make_pod("agent-x")),
        ("old", make_pod("old-x").node_selector({"pool": "old"})),
        ("shy", make_pod("shy-x")),
        ("large", make_pod("large-x").req(cpu="9")),
    ):
        builder.owner("DaemonSet", name).node("na")
        builder.spec(affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": on_node("na")}})
        if name != "shy":
            builder.toleration("new")
        daemons.append(builder.obj())
    static, web = owned("static-na", "Node", "na").node("na").obj(), owned("web-1").node("na").obj()
    node = make_node("m").capacity(cpu="4", pods="3").label(new="yes").taint("new").obj()
    waiting = [make_pod(name).toleration("new").node_selector({"new": "yes"}).obj() for name in "pqrst"]
    added = [(msgspec.convert(node, Node), 2)]
    result = simulated(NODES[0], *daemons, static, web, *waiting, add_nodes=added)
    assert sorted(homes(result).values()) == ["m-new-1", "m-new-1", "m-new-2", "m-new-2"]
    assert len(result.remaining) == 1


def on_node(name: str) -> Object:
    field = {"key": "metadata.name", "operator": "In", "values": [name]}
    return {"nodeSelectorTerms": [{"matchFields": [field]}]}


def test_a_bare_replica_set_is_no_deployment() -> None:
    bare = make_pod("web-2-x").owner("ReplicaSet", "web-2").obj()
    old = [owned(f"web-5d8f-{number}").node("na").obj() for number in range(2)]
    result = simulated(*NODES, *old, bare, scale=[("default/deploy/web", 3)])
    assert result.placements[-1].pod != "default/web-2-x-1"
    assert len(result.placements) == 2  # the bare one, which waits, and one replica
    with pytest.raises(UnknownPod):
        simulated(*NODES, bare, scale=[("default/deploy/web", 3)])


@pytest.mark.parametrize(
    ("labels", "is_deployment"),
    [({"pod-template-hash": "2"}, True), ({"pod-template-hash": "3"}, False), ({}, False)],
)
def test_the_label_of_a_replica_says_whether_a_deployment_made_it(labels: dict[str, str], is_deployment: bool) -> None:
    pod = make_pod("web-2-x").label(labels).owner("ReplicaSet", "web-2").node("na").obj()
    if is_deployment:
        assert simulated(*NODES, pod, scale=[("default/deploy/web", 2)]).placements
    else:
        with pytest.raises(UnknownPod):
            simulated(*NODES, pod, scale=[("default/deploy/web", 2)])


def test_a_pod_that_is_given_twice_is_not_blamed_on_the_cluster() -> None:
    pod = make_pod("p").obj()
    with pytest.raises(
        ConfigurationError, match="Pod default/p: a pod default/p is given twice, also by Pod default/p"
    ):
        simulated(*NODES, create=[(pod, None), (pod, None)])


def test_a_pod_that_names_its_node_is_placed_there_and_takes_its_room() -> None:
    bound = make_pod("bound").req(cpu="3").spec(nodeName="na").obj()
    tainted = make_node("na").capacity(cpu="4").taint("dedicated").obj()
    result = simulated(
        tainted, create=[(bound, None), (make_pod("other").req(cpu="2").toleration("dedicated").obj(), None)]
    )
    assert [(each.pod, each.node) for each in result.placements] == [("default/bound", "na")]
    assert list(result.remaining) == ["default/other"]


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        pytest.param(make_node("m").obj(), "there is no node n in this cluster", id="no node"),
        pytest.param(
            make_node("n").capacity(cpu="1").obj(), "the kubelet of n would reject it: Insufficient cpu", id="full"
        ),
        pytest.param(
            make_node("n").taint("a", effect="NoExecute").obj(),
            r"the kubelet of n would reject it: node\(s\) had untolerated taint",
            id="taint",
        ),
    ],
)
def test_a_pod_that_would_not_run_on_the_node_that_it_names_stays_pending(node: Object, reason: str) -> None:
    pod = make_pod("p").req(cpu="2").spec(nodeName="n").obj()
    (recorded,) = simulated(node, create=[(pod, None)]).remaining.values()
    assert re.match(f"spec.nodeName binds it to n, but {reason}", recorded)


def test_a_daemon_set_gets_a_pod_for_each_node_that_it_tolerates() -> None:
    daemon_set = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "agent"},
        "spec": {
            "selector": {"matchLabels": {"app": "agent"}},
            "template": {"metadata": {"labels": {"app": "agent"}}, "spec": make_pod("x").req(cpu="1").obj()["spec"]},
        },
    }
    full = make_node("full").capacity(cpu="500m").obj()
    nodes = [make_node("a").obj(), make_node("b").obj(), full, make_node("t").taint("dedicated").obj()]
    result = simulated(*nodes, create=[(daemon_set, None)])
    assert {each.pod: each.node for each in result.placements} == {"default/agent-a": "a", "default/agent-b": "b"}
    assert list(result.remaining) == ["default/agent-full"]


def test_the_effect_of_a_drain_is_separate_from_what_waited_before() -> None:
    pods = [owned(f"web-{number}").req(cpu="2").node("na").obj() for number in (1, 2)]
    full = [owned(f"db-{name}").req(cpu="3").node(name).obj() for name in ("nb", "nc")]
    waiting = make_pod("waiting").req(cpu="9").obj()
    result = simulated(*NODES, *pods, *full, waiting, drain=["na"])
    assert result.drain == DrainEffect(
        evicted=["default/web-1", "default/web-2"],
        remaining=["default/web-1", "default/web-2"],
        lost=[],
        remaining_without=["default/waiting"],
        summary="because of the drain: 2 evicted, 2 pending; without it: 1 pending",
    )
    lines = list(as_text(result))
    assert lines[1] == result.drain.summary
    assert lines[1] in result.to_html()
    assert simulated(*NODES, waiting).drain is None


def test_a_result_shows_the_utilisation_of_each_node() -> None:
    result = simulated(*NODES, owned("web-1").node("na").obj(), add_nodes=[("nb", 1)])
    assert result.after.by_node["na"] == {"cpu": 0.25, "memory": 0.0}
    assert result.to_dict()["before"]["nodes"].keys() == {"na", "nb", "nc"}
    rows = [line.split() for line in as_text(result, every=True)]
    assert ["na", "25.0%", "25.0%", "0.0%", "0.0%"] in rows
    assert ["nb-new-1", "0.0%", "0.0%"] in rows


def test_a_printed_result_is_one_short_line() -> None:
    cluster = Cluster.from_objects([*NODES, *(make_pod(f"p{number}").obj() for number in range(50))])
    assert repr(cluster.simulate()) == "SimulationResult(50 pods placed, 0 pending, 0 evicted)"
    assert repr(cluster.capacity([make_pod("t").req(cpu="1").obj()])) == "Capacity(12 more pods would fit)"
    placed = "50 pods placed, 0 pending, 0 evicted"
    assert repr(cluster.compare()) == f"Comparison(0 outcomes differ; first: {placed}; second: {placed})"


def test_a_suspended_job_gets_no_pods_and_a_note() -> None:
    template = {"spec": {**make_pod("x").obj()["spec"], "restartPolicy": "Never"}}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j"},
        "spec": {"suspend": True, "template": template},
    }
    result = simulated(*NODES, create=[(job, None)])
    assert not result.placements
    assert "Job default/j: it gets no pods, because it has no replicas or is suspended" in result.notes

"""Controllers, kubelets and evictions do in a simulation what the real ones do."""

from __future__ import annotations

from typing import Any

import pytest

from extender import Cluster
from extender.errors import UnknownPod
from extender.offline.what_if.result import SimulationResult, as_text
from extender.offline.what_if.scenario import Scenario
from tests.builders import Object, make_node, make_pdb, make_pod
from tests.builders.pod import PodBuilder

NODES = [make_node(name).capacity(cpu="4").obj() for name in ("na", "nb")]
READY = [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-01T00:00:00Z"}]
UNREADY = [{"type": "Ready", "status": "False"}]


def replica(name: str, node: str = "na", kind: str = "ReplicaSet", **status: Any) -> PodBuilder:
    pod = make_pod(name).label(app="web").req(cpu="1").owner(kind, "web").created("2026-11-01T00:00:00Z")
    return (pod.node(node) if node else pod).status(**{"phase": "Running", "conditions": READY, **status})


def leaving(pod: PodBuilder) -> Object:
    obj = pod.obj()
    return {**obj, "metadata": {**obj["metadata"], "deletionTimestamp": "2026-11-21T09:00:00Z"}}


def workload(kind: str, replicas: int = 0, cpu: str = "3", **spec: Any) -> Object:
    containers = [{"name": "c", "image": "a", "resources": {"requests": {"cpu": cpu}}}]
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": containers}}
    version = "batch/v1" if kind == "Job" else "apps/v1"
    scale = {"parallelism" if kind == "Job" else "replicas": replicas}
    body = {**scale, "selector": {"matchLabels": {"app": "web"}}, "template": template, **spec}
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "web", "namespace": "default"}, "spec": body}


def budget(labels: dict[str, str] | None = None, **spec: Any) -> Object:
    pdb = make_pdb("web", labels or {}, **spec)
    return pdb if labels else {**pdb, "spec": {**pdb["spec"], "selector": {}}}


def simulated(*objects: Object, **scenario: Any) -> SimulationResult:
    return Cluster.from_objects(objects).simulate(Scenario(**scenario))


def evicted(result: SimulationResult) -> list[str]:
    return sorted(each.pod.partition("/")[2] for each in result.evictions)


@pytest.mark.parametrize(
    ("kind", "spec", "comes_back"),
    [
        ("ReplicaSet", {}, False),
        ("Job", {}, False),
        ("Job", {"podReplacementPolicy": "Failed"}, True),
        ("StatefulSet", {}, True),
    ],
)
def test_a_pod_that_is_being_deleted_comes_back_only_if_its_controller_counts_it(
    kind: str, spec: dict[str, Any], comes_back: bool
) -> None:
    result = simulated(*NODES, workload(kind, 1, **spec), leaving(replica("web-0", kind=kind)))
    assert [each.pod for each in result.placements] == (["default/web-0"] if comes_back else [])
    assert list(result.pods) == [each.pod for each in result.placements]


@pytest.mark.parametrize(("kind", "comes_back"), [("ReplicaSet", False), ("StatefulSet", True)])
def test_the_pods_of_a_dead_node_that_were_replaced_stay_away(kind: str, comes_back: bool) -> None:
    dead = make_node("na").capacity(cpu="4").taint("node.kubernetes.io/unreachable", effect="NoExecute").obj()
    result = simulated(dead, NODES[1], leaving(replica("web-0", kind=kind)), remove_nodes=["na"])
    assert evicted(result) == (["web-0"] if comes_back else [])
    assert result.remaining == {}


def test_a_pod_on_a_lost_node_does_not_end() -> None:
    dead = make_node("na").capacity(cpu="4").taint("node.kubernetes.io/unreachable", effect="NoExecute").obj()
    result = simulated(dead, NODES[1], leaving(replica("web-0")), drain=["na"])
    assert list(result.pods) == ["default/web-0"]
    assert result.notes == ["pod default/web-0 stays on na: it is being deleted, but its node is lost"]


def test_a_preemptor_is_placed_once_its_terminating_victims_are_gone() -> None:
    victim = leaving(replica("low").req(cpu="4").priority(1))
    high = make_pod("high").req(cpu="4").priority(9).status(phase="Pending", nominatedNodeName="na").obj()
    result = simulated(NODES[0], victim, high)
    assert [(each.pod, each.node) for each in result.placements] == [("default/high", "na")]
    assert result.evictions == []


def test_scaling_counts_active_pods_only() -> None:
    result = simulated(*NODES, replica("w0").obj(), leaving(replica("w1")), scale=[("default/rs/web", 2)])
    assert len(result.pods) == 2


@pytest.mark.parametrize(
    ("first", "why"),
    [
        (replica("x", node=""), "it has no node"),
        (replica("x", phase="Pending"), "it is pending"),
        (replica("x", conditions=UNREADY), "it is not ready"),
        (replica("x").annotation({"controller.kubernetes.io/pod-deletion-cost": "-1"}), "it costs less"),
        (
            replica("x", conditions=[{**READY[0], "lastTransitionTime": "2026-10-31T23:59:59Z"}]).uid("0"),
            "its UID comes first, for it is about as old as the others",
        ),
        (replica("x", conditions=[{**READY[0], "lastTransitionTime": "2099-01-01T00:00:00Z"}]), "it became ready last"),
        (replica("x", containerStatuses=[{"name": "c", "restartCount": 3}]), "it was restarted"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_replica_set_deletes_first_what_its_controller_deletes_first(first: PodBuilder, why: str) -> None:
    others = [replica(f"w{number}").obj() for number in range(2)]
    objects = [*NODES, *others[:1], first.obj(), *others[1:]]
    left = Cluster.from_objects(objects).simulate(Scenario(scale=[("default/rs/web", 2)])).pods
    assert sorted(left) == ["default/w0", "default/w1"], why


def test_a_replica_beside_others_is_deleted_before_one_that_is_alone() -> None:
    pods = [replica("alone", "nb").uid("0").obj(), *(replica(f"w{number}").obj() for number in range(3))]
    assert "default/alone" in simulated(*NODES, *pods, scale=[("default/rs/web", 1)]).pods


@pytest.mark.parametrize(
    ("kind", "owner", "counts"),
    [
        pytest.param("ReplicaSet", None, False, id="nothing controls the ReplicaSet"),
        pytest.param("ReplicationController", None, False, id="a ReplicationController"),
        pytest.param("ReplicaSet", "Deployment", True, id="a Deployment controls it"),
        pytest.param("ReplicaSet", "Rollout", True, id="a custom kind controls it"),
    ],
)
def test_only_replicas_of_a_controlled_replica_set_are_counted_on_their_nodes(
    kind: str, owner: str | None, counts: bool
) -> None:
    obj = workload(kind, 3)
    if kind == "ReplicationController":
        obj = {**obj, "apiVersion": "v1", "spec": {**obj["spec"], "selector": {"app": "web"}}}
    if owner is not None:
        reference = {"apiVersion": "v1", "kind": owner, "name": "above", "uid": "1", "controller": True}
        obj["metadata"]["ownerReferences"] = [reference]
    old = [{**READY[0], "lastTransitionTime": "2020-11-01T00:00:00Z"}]
    beside = [replica(f"w{number}", kind=kind, conditions=old).obj() for number in range(2)]
    short = "rc" if kind == "ReplicationController" else "rs"
    result = simulated(*NODES, obj, replica("young", "nb", kind).obj(), *beside, scale=[(f"default/{short}/web", 1)])
    assert (list(result.pods) == ["default/young"]) is counts


@pytest.mark.parametrize("sets", [("web-1", "web-1"), ("web-1", "web-2")], ids=["one ReplicaSet", "a rollout"])
def test_a_rollout_is_said_not_to_go_on_when_its_deployment_is_scaled(sets: tuple[str, str]) -> None:
    pods = [
        make_pod(f"{owner}-{number}")
        .label(**{"pod-template-hash": owner[-1]})
        .owner("ReplicaSet", owner)
        .node("na")
        .obj()
        for number, owner in enumerate(sets)
    ]
    notes = simulated(*NODES, *pods, scale=[("default/deploy/web", 1)]).notes
    text = (
        "default/deploy/web: a rollout is under way; its pods count as those of one ReplicaSet, and it does not go on"
    )
    assert list(notes) == ([text] if len(set(sets)) > 1 else [])


ON_EVICTION = [{"type": "DisruptionTarget", "status": "True"}]


def failure_policy(action: str) -> Object:
    return {"podFailurePolicy": {"rules": [{"action": action, "onPodConditions": ON_EVICTION}]}}


@pytest.mark.parametrize(
    ("spec", "left", "lost"),
    [
        pytest.param({"backoffLimit": 0}, [], ["w0", "w1"], id="it fails with all of its pods"),
        pytest.param({"backoffLimit": 1}, ["w0", "w1"], [], id="it tries again"),
        pytest.param({"backoffLimit": 0, **failure_policy("Ignore")}, ["w0", "w1"], [], id="an eviction is no failure"),
        pytest.param({"backoffLimit": 0, **failure_policy("Count")}, [], ["w0", "w1"], id="an eviction is a failure"),
        pytest.param(failure_policy("FailJob"), [], ["w0", "w1"], id="an eviction ends it"),
        pytest.param({"backoffLimitPerIndex": 0}, ["w1"], ["w0"], id="only the index fails"),
        pytest.param({"backoffLimitPerIndex": 1}, ["w0", "w1"], [], id="the index is tried again"),
        pytest.param({"backoffLimitPerIndex": 1, **failure_policy("FailIndex")}, ["w1"], ["w0"], id="ends the index"),
        pytest.param({"suspend": True}, ["w1"], ["w0"], id="it is suspended"),
    ],
)
def test_a_job_answers_an_eviction_by_its_limits_and_its_policy(
    spec: dict[str, Any], left: list[str], lost: list[str]
) -> None:
    pods = [replica("w0", kind="Job").obj(), replica("w1", "nb", kind="Job").obj()]
    result = simulated(*NODES, workload("Job", 2, "1", completions=2, **spec), *pods, drain=["na"])
    assert sorted(result.pods) == [f"default/{name}" for name in left]
    assert result.lost == [f"default/{name}" for name in lost]


@pytest.mark.parametrize(
    ("most", "failed", "lost"),
    [
        pytest.param(None, "3-8", ["w0"], id="there is no limit"),
        pytest.param(1, None, ["w0"], id="one may fail"),
        pytest.param(0, None, ["w0", "w1", "w2"], id="none may fail"),
        pytest.param(4, "3,5-6", ["w0"], id="three of four have failed"),
        pytest.param(3, "3,5-6", ["w0", "w1", "w2"], id="three of three have failed"),
    ],
)
def test_a_job_of_which_too_many_indexes_fail_fails_with_all_of_its_pods(
    most: int | None, failed: str | None, lost: list[str]
) -> None:
    limits = {"completionMode": "Indexed", "completions": 9, "backoffLimitPerIndex": 0, "maxFailedIndexes": most}
    job = {**workload("Job", 3, "1", **limits), "status": {"failedIndexes": failed}}
    pods = [
        replica(f"w{index}", node, kind="Job")
        .annotation({"batch.kubernetes.io/job-completion-index": str(index)})
        .obj()
        for index, node in enumerate(("na", "nb", "nb"))
    ]
    assert simulated(*NODES, job, *pods, drain=["na"]).lost == [f"default/{name}" for name in lost]


@pytest.mark.parametrize(
    ("spec", "conditions", "left"),
    [
        pytest.param({"backoffLimit": 1}, [], ["w0", "w1"], id="it tries again"),
        pytest.param({"backoffLimit": 0}, [], [], id="it fails with all of its pods"),
        pytest.param({"backoffLimit": 0, **failure_policy("Ignore")}, [], [], id="a plain deletion is a failure"),
        pytest.param(
            {"backoffLimit": 0, **failure_policy("Ignore")}, ON_EVICTION, ["w0", "w1"], id="an eviction is none"
        ),
        pytest.param({"backoffLimitPerIndex": 0}, [], ["w1"], id="only the index fails"),
    ],
)
def test_a_pod_that_is_being_deleted_is_a_failure_of_a_job_that_counts_it(
    spec: Object, conditions: list[Object], left: list[str]
) -> None:
    job = workload("Job", 2, "1", completions=2, podReplacementPolicy="Failed", **spec)
    ending = leaving(replica("w0", kind="Job", conditions=[*READY, *conditions]))
    assert sorted(simulated(*NODES, job, ending, replica("w1", "nb", kind="Job").obj()).pods) == [
        f"default/{name}" for name in left
    ]


def test_a_job_without_completions_makes_no_more_pods_once_one_has_succeeded() -> None:
    job = {**workload("Job", 2, "1"), "status": {"succeeded": 1}}
    assert simulated(*NODES, job, replica("w0", kind="Job").obj(), drain=["na"]).lost == ["default/w0"]


@pytest.mark.parametrize("scenario", [{"drain": ["na"]}, {"remove_nodes": ["na"]}], ids=["drain", "removal"])
def test_the_pods_of_a_failed_job_are_lost_once(scenario: dict[str, Any]) -> None:
    pods = [replica(f"w{number}", kind="Job").obj() for number in range(3)]
    result = simulated(*NODES, workload("Job", 3, "1", backoffLimit=0), *pods, **scenario)
    assert (evicted(result), result.remaining) == (["w0", "w1", "w2"], {})


def test_a_job_that_fails_takes_along_the_pods_that_wait() -> None:
    pods = [replica("w0", kind="Job").obj(), replica("w1", "", kind="Job", phase="Pending", conditions=None).obj()]
    result = simulated(NODES[0], workload("Job", 2, "1", backoffLimit=0), *pods, drain=["na"])
    assert (result.pods, result.remaining, result.lost) == ({}, {}, ["default/w0", "default/w1"])


@pytest.mark.parametrize(
    ("spec", "status", "pods"),
    [
        pytest.param({}, {}, 5, id="no completions"),
        pytest.param({"completions": 3}, {}, 3, id="fewer completions"),
        pytest.param({"completions": 4}, {"succeeded": 2}, 2, id="some have succeeded"),
        pytest.param({"completions": 4}, {"succeeded": 1, "failedIndexes": "0,2"}, 1, id="some indexes have failed"),
        pytest.param({"completions": 9, "suspend": True}, {}, 0, id="suspended"),
        pytest.param({}, {"conditions": [{"type": "Complete", "status": "True"}]}, 0, id="complete"),
    ],
)
def test_a_scaled_job_gets_no_more_pods_than_it_needs(spec: Object, status: Object, pods: int) -> None:
    job = {**workload("Job", 1, "1", **spec), "status": status}
    result = simulated(*NODES, job, scale=[("default/job/web", 5)])
    assert len(result.pods) == pods
    assert any(f"its Job has {pods} of 5 pods" in note for note in result.notes) == (pods < 5)


@pytest.mark.parametrize("kind", ["ReplicaSet", "StatefulSet", "Job"])
def test_a_controller_that_is_being_deleted_recreates_nothing(kind: str) -> None:
    obj = workload(kind, 1, "1")
    obj["metadata"]["deletionTimestamp"] = "2026-11-21T09:00:00Z"
    for pod in (replica("web-0", kind=kind).obj(), leaving(replica("web-0", kind=kind))):
        assert simulated(*NODES, obj, pod, drain=["na"]).pods == {}


def test_a_budget_no_longer_counts_a_workload_that_was_deleted() -> None:
    pods = [replica(f"w{number}").obj() for number in range(2)]
    others = [
        make_pod(f"api-{n}").req(cpu="1").label(app="api").owner("ReplicaSet", "api").node("nb") for n in range(2)
    ]
    covered = {
        **budget(maxUnavailable=1),
        "status": {"disruptionsAllowed": 1, "currentHealthy": 4, "desiredHealthy": 3, "expectedPods": 4},
    }
    objects = [*NODES, *pods, *(each.obj() for each in others), covered]
    assert evicted(simulated(*objects, delete=["default/rs/web"], drain=["nb"])) == ["api-0", "api-1"]


@pytest.mark.parametrize("kind", ["Node", "Job", "DaemonSet"])
def test_a_budget_over_a_pod_without_scale_allows_no_eviction(kind: str) -> None:
    pods = [replica("w0").obj(), make_pod("x").label(app="web").owner(kind, "nb").node("nb").obj()]
    assert evicted(simulated(*NODES, *pods, budget({"app": "web"}, maxUnavailable=1), drain=["na"])) == []


@pytest.mark.parametrize("missing", ["priorityClassName", "runtimeClassName"])
def test_replicas_are_like_the_pods_if_the_file_lacks_a_class_of_the_template(missing: str) -> None:
    obj = workload("ReplicaSet", 1)
    obj["spec"]["template"]["spec"][missing] = "absent"
    assert Cluster.from_objects([*NODES, obj, replica("w0").obj()]).capacity(["default/rs/web"]).total == 7


@pytest.mark.parametrize("selector", [{}, {"app": "web"}])
def test_a_budget_protects_from_eviction_also_with_an_empty_selector(selector: dict[str, str]) -> None:
    pods = [replica(f"w{number}").obj() for number in range(2)]
    assert evicted(simulated(*NODES, *pods, budget(selector, minAvailable=2), drain=["na"])) == []


def test_an_empty_selector_protects_no_pod_from_preemption() -> None:
    low = replica("low").req(cpu="4").priority(1).obj()
    high = make_pod("high").req(cpu="4").priority(9).obj()
    covered = {**budget(minAvailable=1), "status": {"disruptionsAllowed": 0, "desiredHealthy": 1, "currentHealthy": 1}}
    assert evicted(simulated(NODES[0], low, high, covered)) == ["low"]


def test_a_drain_goes_on_once_the_evicted_replicas_run_elsewhere() -> None:
    pods = [replica(f"w{number}").obj() for number in range(3)]
    result = simulated(*NODES, *pods, budget({"app": "web"}, maxUnavailable=1), drain=["na"])
    assert evicted(result) == ["w0", "w1", "w2"]
    assert result.kept == {}


def test_a_drain_waits_for_a_replica_that_starts_elsewhere() -> None:
    pods = [replica("w0").obj(), replica("w1", "nb", phase="Pending", conditions=None).obj()]
    covered = {
        **budget({"app": "web"}, minAvailable=1),
        "status": {"desiredHealthy": 1, "currentHealthy": 1, "expectedPods": 2},
    }
    assert evicted(simulated(*NODES, *pods, covered, drain=["na"])) == ["w0"]


@pytest.mark.parametrize(("policy", "leaves"), [("IfHealthyBudget", []), ("AlwaysAllow", ["w0"])])
def test_the_policy_for_unhealthy_pods_is_heeded(policy: str, leaves: list[str]) -> None:
    pods = [replica("w0", conditions=UNREADY).obj(), replica("w1", "nb").obj()]
    covered = budget({"app": "web"}, minAvailable=2, unhealthyPodEvictionPolicy=policy)
    assert evicted(simulated(*NODES, *pods, covered, drain=["na"])) == leaves


def test_a_budget_in_percent_follows_a_scaled_workload() -> None:
    pods = [replica(f"w{number}").obj() for number in range(2)]
    objects = [*NODES, workload("ReplicaSet", 2, "1"), *pods, budget({"app": "web"}, minAvailable="50%")]
    result = simulated(*objects, scale=[("default/rs/web", 4)], drain=["na"])
    assert evicted(result) == ["w0", "w1"]


def test_a_static_pod_is_known_by_its_annotation() -> None:
    static = make_pod("etcd-na").node("na").annotation({"kubernetes.io/config.mirror": "hash"}).obj()
    result = simulated(*NODES, static, drain=["na"])
    assert (evicted(result), list(result.pods)) == ([], ["default/etcd-na"])


def test_a_job_whose_backoff_limit_is_reached_does_not_replace_an_evicted_pod() -> None:
    job = workload("Job", 1, backoffLimit=0)
    assert simulated(*NODES, job, replica("web-x", kind="Job").obj(), drain=["na"]).lost == ["default/web-x"]


@pytest.mark.parametrize(("kind", "short"), [("Deployment", "deploy"), ("ReplicaSet", "rs"), ("StatefulSet", "sts")])
def test_a_workload_without_replicas_is_counted_and_scaled_by_its_template(kind: str, short: str) -> None:
    cluster = Cluster.from_objects([*NODES, workload(kind)])
    assert cluster.capacity([f"default/{short}/web"]).total == 2
    result = cluster.simulate(Scenario(scale=[(f"default/{short}/web", 3)]))
    assert (len(result.placements), len(result.remaining)) == (2, 1)


def test_a_workload_without_pods_is_suggested() -> None:
    with pytest.raises(UnknownPod, match="did you mean default/deploy/web"):
        Cluster.from_objects([*NODES, workload("Deployment")]).capacity(["default/deploy/webs"])


def test_new_replicas_have_the_template_of_the_workload_not_that_of_an_old_pod() -> None:
    objects = [*NODES, workload("ReplicaSet", 1), replica("w0").obj()]
    assert Cluster.from_objects(objects).capacity(["default/rs/web"]).total == 2


def test_every_placed_pod_is_in_the_table() -> None:
    pods = [replica("w0").obj(), make_pod("new").req(cpu="1").obj()]
    lines = list(as_text(simulated(*NODES, *pods, drain=["na"])))
    assert lines[0].startswith("2 pods placed")
    assert sum(line.startswith("default/") and "drain" not in line for line in lines) == 2


@pytest.mark.parametrize(
    ("objects", "succeeds"),
    [
        pytest.param([make_pod("huge").req(cpu="9").obj()], True, id="a pod is pending anyway"),
        pytest.param([replica("w0").req(cpu="4").obj(), replica("w1", "nb").obj()], False, id="one has no room"),
        pytest.param([replica("w0").obj(), budget({"app": "web"}, minAvailable=1)], False, id="one stays"),
        pytest.param([make_pod("bare").node("na").obj()], False, id="one is lost"),
    ],
)
def test_a_drain_succeeds_if_it_causes_nothing_that_is_missing(objects: list[Object], succeeds: bool) -> None:
    assert simulated(*NODES, *objects, drain=["na"]).succeeds is succeeds

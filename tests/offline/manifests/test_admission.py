"""Pods as the API server would store them, and what it would refuse."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import msgspec
import pytest

from extender import Cluster
from extender.errors import MalformedCluster
from extender.model.requests import pod_requests
from extender.model.storage import PersistentVolumeClaim
from extender.model.workloads import LimitRange
from extender.offline.explain.explanation import Explanation
from extender.offline.manifests.admission import claim_limit_violations
from tests.builders import Object, make_node, make_pod, make_priority_class

NODE = make_node("n").capacity(cpu="4").obj()


def limit_range(**item: Any) -> Object:
    metadata = {"name": "defaults", "namespace": "default"}
    limits = [{"type": "Container", **item}]
    return {"apiVersion": "v1", "kind": "LimitRange", "metadata": metadata, "spec": {"limits": limits}}


def runtime_class(**fields: Any) -> Object:
    return {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": "kata"},
        "handler": "kata",
        **fields,
    }


def admitted(pod: Object, *objects: Object) -> Explanation:
    return Cluster.from_objects([NODE, *objects]).explain(pod)


def test_limits_stand_in_for_requests() -> None:
    explanation = admitted(make_pod("p").limit(cpu="5").obj())
    assert not explanation.fits
    assert "container c: requests cpu=5, taken from its limits" in explanation.notes


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        pytest.param({"defaultRequest": {"cpu": "3"}}, 3000, id="requests"),
        pytest.param({"default": {"cpu": "2"}}, 2000, id="limits alone"),
        pytest.param({"default": {"cpu": "2"}, "defaultRequest": {"cpu": "1"}}, 1000, id="both"),
    ],
)
def test_a_limit_range_fills_in(item: Object, expected: int) -> None:
    explanation = admitted(make_pod("p").obj(), limit_range(**item))
    assert pod_requests(explanation.pod)["cpu"] == expected
    assert "from LimitRange defaults" in explanation.notes[0]


def test_a_limit_range_does_not_change_a_stated_request() -> None:
    assert (
        pod_requests(admitted(make_pod("p").req(cpu="1").obj(), limit_range(defaultRequest={"cpu": "3"})).pod)["cpu"]
        == 1000
    )


def test_a_pod_that_stands_in_the_cluster_was_admitted_before() -> None:
    cluster = Cluster.from_objects([NODE, make_pod("p").obj(), limit_range(defaultRequest={"cpu": "3"})])
    assert pod_requests(cluster.explain("default/p").pod).get("cpu", 0) == 0


def test_a_runtime_class_has_overhead_and_a_place() -> None:
    scheduling = {"nodeSelector": {"kata": "yes"}, "tolerations": [{"key": "kata", "operator": "Exists"}]}
    kata = runtime_class(overhead={"podFixed": {"cpu": "250m"}}, scheduling=scheduling)
    pod = admitted(make_pod("p").req(cpu="1").spec(runtimeClassName="kata").obj(), kata).pod
    assert pod_requests(pod)["cpu"] == 1250
    assert pod.spec.node_selector == {"kata": "yes"}
    assert "kata" in [toleration.key for toleration in pod.spec.tolerations or ()]


@pytest.mark.parametrize(
    ("toleration", "kept"),
    [
        pytest.param({"key": "kata", "operator": "Sometimes"}, False, id="covered by that of the class"),
        pytest.param({"key": "kata", "value": "a b"}, False, id="covered, whatever its value"),
        pytest.param({"key": "kata", "effect": "Never"}, False, id="covered, whatever its effect"),
        pytest.param({"key": "other", "operator": "Sometimes"}, True, id="of another key"),
    ],
)
def test_a_toleration_that_a_runtime_class_replaces_may_be_invalid(toleration: Object, kept: bool) -> None:
    kata = runtime_class(scheduling={"tolerations": [{"key": "kata", "operator": "Exists"}]})
    pod = make_pod("p").spec(runtimeClassName="kata", tolerations=[toleration]).obj()
    with pytest.raises(MalformedCluster, match=r"spec.tolerations\[0\]") if kept else nullcontext():
        assert [each.key for each in admitted(pod, kata).pod.spec.tolerations or ()][-1] == "kata"


def test_a_priority_class_gives_the_number_and_may_forbid_preemption() -> None:
    never = make_priority_class("low", 7, preemptionPolicy="Never")
    explanation = admitted(make_pod("p").priority_class("low").obj(), never)
    assert (explanation.pod.priority, explanation.pod.spec.preemption_policy) == (7, "Never")
    assert "priority 7, from PriorityClass low" in explanation.notes


def test_a_stored_pod_may_outlive_its_class() -> None:
    stored = make_pod("p").priority_class("gone").priority(5).created("2026-11-21T09:00:00Z").obj()
    assert admitted(stored).pod.priority == 5


@pytest.mark.parametrize(
    ("pod", "fault"),
    [
        pytest.param(make_pod("p").priority_class("urgent").obj(), "no PriorityClass urgent", id="priority class"),
        pytest.param(make_pod("p").spec(runtimeClassName="gvisor").obj(), "no RuntimeClass gvisor", id="runtime class"),
    ],
)
def test_a_pod_with_a_missing_class_is_refused(pod: Object, fault: str) -> None:
    with pytest.raises(MalformedCluster, match=f"{fault} .*the API server would refuse the pod"):
        admitted(pod)


def test_a_pod_outlives_a_lost_node_for_a_while() -> None:
    lost = make_node("lost").taint("node.kubernetes.io/unreachable", effect="NoExecute").obj()
    assert "lost" in admitted(make_pod("p").obj(), lost).decision.feasible


def test_an_unknown_resource_is_refused_by_its_path() -> None:
    pod = {"kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    pod["spec"]["containers"][0]["resources"] = {"requests": {"cpus": "500m"}}  # type: ignore[index]  # a plain dict
    with pytest.raises(MalformedCluster) as caught:
        admitted(pod)
    assert str(caught.value) == (
        "pod: spec.containers[0].resources.requests.cpus: unknown resource: expected cpu, memory, ephemeral-storage, "
        "hugepages-SIZE or a name with a domain, like example.com/gpu (did you mean cpu?)"
    )


def test_a_priority_needs_a_class() -> None:
    with pytest.raises(MalformedCluster, match="a pod without PriorityClass has 0; a pod cannot set another value"):
        admitted(make_pod("p").priority(7).obj())


def test_a_limit_range_may_refuse() -> None:
    with pytest.raises(MalformedCluster, match="its limit of cpu is more than the maximum of 2 in LimitRange defaults"):
        admitted(make_pod("p").limit(cpu="3").obj(), limit_range(max={"cpu": "2"}))


@pytest.mark.parametrize(
    ("requests", "faults"),
    [
        ({}, ["the claim: its request of storage is missing, or more than the maximum of 1Gi in LimitRange defaults"]),
        (
            {"storage": "2Gi"},
            ["the claim: its request of storage is missing, or more than the maximum of 1Gi in LimitRange defaults"],
        ),
        ({"storage": "1Gi"}, []),
    ],
    ids=["no request", "too much", "in the limit"],
)
def test_a_limit_range_may_refuse_a_claim(requests: dict[str, str], faults: list[str]) -> None:
    claim = msgspec.convert(
        {"metadata": {"name": "c"}, "spec": {"resources": {"requests": requests}}}, PersistentVolumeClaim
    )
    limits = msgspec.convert(limit_range(type="PersistentVolumeClaim", max={"storage": "1Gi"}), LimitRange)
    assert list(claim_limit_violations(claim, limits)) == faults


def test_a_runtime_class_may_contradict_the_pod() -> None:
    kata = runtime_class(scheduling={"nodeSelector": {"kata": "yes"}})
    pod = make_pod("p").spec(runtimeClassName="kata", nodeSelector={"kata": "no"}).obj()
    with pytest.raises(MalformedCluster, match="RuntimeClass kata needs 'yes', got 'no'"):
        admitted(pod, kata)


def test_the_label_keys_of_an_affinity_become_part_of_its_selector() -> None:
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"a": "b"}}, "matchLabelKeys": ["version"]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    pod = make_pod("p").label(a="b", version="2").spec(affinity={"podAntiAffinity": required}).obj()
    old = make_pod("old").label(a="b", version="1").node("n").obj()
    node = make_node("n").label(zone="z").obj()
    assert Cluster.from_objects([node, old]).explain(pod).fits


def test_a_note_says_that_quotas_are_ignored() -> None:
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "compute", "namespace": "default"}}
    (note,) = admitted(make_pod("p").obj(), quota).notes
    assert note == "ResourceQuota compute of namespace default may refuse the pod; it is not checked"

"""Preemption leaves room for nominated pods of the same or a higher priority."""

from __future__ import annotations

import pytest

from extender import Cluster
from extender.plugins.volume_restrictions import VolumeRestrictions
from extender.policy.loading import read
from tests.builders import HOSTNAME, PodBuilder, make_node, make_pod
from tests.preemption.clusters import RULES, chosen, node, preempted, preemptor, victim

NODES = [node("n").obj(), node("m").obj()]
DISK = {"gcePersistentDisk": {"pdName": "d"}}
PODS = [victim(f"{name}{i}", name, minute=i).obj() for name in ("n", "m") for i in range(4)]


def nominated(cpu: str = "2", priority: int = 100) -> PodBuilder:
    return make_pod("nominated").req(cpu=cpu).priority(priority).nominated("n")


@pytest.mark.parametrize(
    ("waiting", "expected"),
    [
        pytest.param(
            nominated("1"), {"n": (["n1", "n2", "n3"], 0), "m": (["m2", "m3"], 0)}, id="a peer's place is left"
        ),
        pytest.param(nominated("3"), {"m": (["m2", "m3"], 0)}, id="no place is left besides a peer's"),
        pytest.param(
            nominated("3", 99), {"n": (["n2", "n3"], 0), "m": (["m2", "m3"], 0)}, id="a lesser one's is taken"
        ),
        pytest.param(
            nominated("1").host_port(80), {"m": (["m2", "m3"], 0)}, id="a port that is promised cannot be freed"
        ),
        pytest.param(
            nominated("0").volume("v", DISK), {"m": (["m2", "m3"], 0)}, id="a disk that is promised cannot be freed"
        ),
        pytest.param(
            nominated("0").label(app="web"), {"m": (["m2", "m3"], 0)}, id="whom it does not stand with is to come"
        ),
        pytest.param(
            nominated("0").uid("pod-default-preemptor").label(app="web"),
            {"n": (["n2", "n3"], 0), "m": (["m2", "m3"], 0)},
            id="its own nomination does not count",
        ),
    ],
)
def test_room_of_nominated_pods_stays_free(waiting: PodBuilder, expected: dict[str, tuple[list[str], int]]) -> None:
    pod = preemptor("2").host_port(80).anti_affinity(HOSTNAME, labels={"app": "web"}).volume("v", DISK)
    rules = (*RULES, VolumeRestrictions())
    assert chosen(preempted(pod, *NODES, *PODS, waiting.obj(), rules=rules)) == expected


def test_a_nominated_pod_must_not_make_the_preemptor_fit() -> None:
    """Its affinity is to a pod that is only nominated, which may never arrive."""
    pod = preemptor("2").affinity(HOSTNAME, labels={"app": "web"})
    friend = victim("friend", "m", "0", 500, app="web").obj()
    waiting = nominated("0").label(app="web").obj()
    assert chosen(preempted(pod, *NODES, *PODS, friend, waiting)) == {"m": (["m2", "m3"], 0)}


@pytest.mark.parametrize(("nominated_to", "expected"), [("b", "b"), ("", None)])
def test_room_is_made_on_the_nominated_node_even_if_pre_filter_excludes_it(
    nominated_to: str, expected: str | None
) -> None:
    """The filter of NodeAffinity would refuse the node, but is disabled. As upstream, the pod can then use the node."""
    policy = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"plugins": {"filter": {"disabled": [{"name": "NodeAffinity"}]}}}],
    }
    only_a = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}
    pod = make_pod("p").req(cpu="3").priority(9).nominated(nominated_to).require_node(only_a).obj()
    objects = [
        *(make_node(name).capacity(cpu="4").obj() for name in "ab"),
        make_pod("stays").req(cpu="3").priority(99).node("a").obj(),
        pod,
    ]
    low = make_pod("low").req(cpu="3").priority(1).node("b").obj()
    profiles = read(policy).scheduler_profiles()
    preemption = Cluster.from_objects([*objects, low], profiles).decide("default/p").preemption
    assert preemption is not None
    assert preemption.nominated_node == expected
    assert Cluster.from_objects(objects, profiles).decide("default/p").feasible == ([expected] if expected else [])

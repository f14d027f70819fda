"""Pod groups on the real API server, with the Jobs of the real kube-controller-manager and the real kube-scheduler."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.builders import (
    Object,
    make_claim,
    make_composite_pod_group,
    make_device_class,
    make_node,
    make_pod,
    make_pod_group,
    make_priority_class,
    make_request,
    make_resource_slice,
)
from tests.end_to_end.controllers import release_claims
from tests.end_to_end.group_plane import (
    CLAIMS,
    FLAGS,
    GATES,
    TREE_FLAGS,
    TREES,
    GroupControlPlane,
    are_scheduled,
    bound,
    clean_up,
    group_condition,
    job,
    require_trees,
)
from tests.running import ONLY_EXTENDER, schedule, serve
from tests.stock.build import Binaries
from tests.stock.waiting import wait_until

pytestmark = [pytest.mark.stock, pytest.mark.controllers]

JOBS, PODS = int(os.environ.get("JOBS", "20")), 10
GATE = GATES[:1]


@pytest.fixture(scope="module")
def shared_plane(stock_binaries: Binaries, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GroupControlPlane]:
    with GroupControlPlane(stock_binaries, tmp_path_factory.mktemp("groups")) as plane:
        yield plane


@pytest.fixture
def plane(shared_plane: GroupControlPlane) -> GroupControlPlane:
    clean_up(shared_plane)
    return shared_plane


def create_jobs(plane: GroupControlPlane, number: int) -> None:
    nodes = range(number * PODS // 50)
    plane.client.create(*(make_node(f"n{i}").capacity(cpu="110", memory="64Gi", pods="110").obj() for i in nodes))
    plane.client.create(*(job(f"job-{i}", PODS, make_pod("p").req(cpu="1")) for i in range(number)))


def await_jobs(plane: GroupControlPlane, number: int) -> None:
    """All pods of the Jobs are bound, and each Job has its own PodGroup."""
    wanted = number * PODS
    assert wait_until(lambda: len(bound(plane)) == wanted, 120 + number)
    groups = {pod["spec"]["schedulingGroup"]["podGroupName"] for pod in plane.client.list("Pod", "default")}
    assert len(groups) == number


def test_the_loop_binds_jobs(plane: GroupControlPlane, tmp_path: Path) -> None:
    with (
        plane.controllers("job-controller", gates=GATES),
        schedule(plane.kubeconfig, tmp_path, *FLAGS),
    ):
        create_jobs(plane, JOBS)
        await_jobs(plane, JOBS)


def test_the_webhook_binds_jobs(plane: GroupControlPlane, tmp_path: Path) -> None:
    with (
        plane.controllers("job-controller", gates=GATES),
        serve(plane.kubeconfig, tmp_path, *FLAGS) as extender,
        plane.scheduler(extender.configuration(), gates=GATE),
    ):
        create_jobs(plane, JOBS)
        await_jobs(plane, JOBS)


def test_a_gang_preempts_beside_the_webhook(plane: GroupControlPlane, tmp_path: Path) -> None:
    """Without the rule for dry runs, filter refuses every node, because the victims still count in its table."""
    with (
        serve(plane.kubeconfig, tmp_path, *FLAGS) as extender,
        plane.scheduler(extender.configuration(), gates=GATE),
    ):
        nodes = [make_node(f"n{i}").capacity(cpu="4", memory="64Gi", pods="110").obj() for i in range(4)]
        victims = [make_pod(f"victim-{i}").req(cpu="4").grace(0).obj() for i in range(4)]
        plane.client.create(make_priority_class("high", 100), *nodes, *victims)
        assert wait_until(lambda: len(bound(plane)) == 4)
        gang = [make_pod(f"member-{i}").req(cpu="4").priority_class("high").group("gang").obj() for i in range(2)]
        plane.client.create(make_pod_group("gang", 2, priorityClassName="high"), *gang)
        assert wait_until(lambda: {"member-0", "member-1"} <= bound(plane).keys())
        assert wait_until(lambda: group_condition(plane, "gang")) == ("True", "Scheduled", "")
        assert len(bound(plane)) == 4


def gang(plane: GroupControlPlane, name: str, size: int) -> None:
    """Creates a gang whose members each need half a node."""
    members = [make_pod(f"{name}-{i}").req(cpu="2").group(name).obj() for i in range(size)]
    plane.client.create(make_pod_group(name, size), *members)


def a_node(name: str) -> Object:
    return make_node(name).capacity(cpu="4", memory="64Gi", pods="110").obj()


def bound_of(plane: GroupControlPlane, name: str) -> int:
    return sum(pod.startswith(f"{name}-") for pod in bound(plane))


GANGS_ONLY = {
    "multiPoint": {
        **ONLY_EXTENDER["multiPoint"],
        "enabled": [*ONLY_EXTENDER["multiPoint"]["enabled"], {"name": "GangScheduling"}],
    }
}
"""In-tree filters and scores off, but members are tried as a group."""


def test_the_webhook_alone_splits_no_gang(plane: GroupControlPlane, tmp_path: Path) -> None:
    """kube-scheduler's own filters are off, so that only the webhook knows what fits."""
    plane.client.create(*(a_node(f"n{i}") for i in range(2)))
    with (
        serve(plane.kubeconfig, tmp_path, *FLAGS, "--no-scheduler-filters") as extender,
        plane.scheduler(extender.configuration(plugins=GANGS_ONLY), gates=GATE),
    ):
        gang(plane, "eight", 8)
        assert wait_until(lambda: extender.metric('extender_group_plans_total{result="refused"}') >= 2)
        assert bound_of(plane, "eight") == 0
        plane.client.create(*(a_node(f"more-{i}") for i in range(2)))
        assert wait_until(lambda: bound_of(plane, "eight") == 8)
        assert extender.metric('extender_binds_total{result="unfit"}') == 0


def test_the_best_nodes_of_a_gang_are_spread(plane: GroupControlPlane, tmp_path: Path) -> None:
    """Judged one by one, the members do not see each other, and kube-scheduler does not score the one node it gets."""
    hosts = ("n0", "n1")
    nodes = [make_node(name).label(host=name).capacity(cpu="64", memory="64Gi", pods="110").obj() for name in hosts]
    plane.client.create(*nodes)
    pods = [
        make_pod(f"gang-{i}").req(cpu="1").label(app="g").spread("host", soft=True, labels={"app": "g"}).group("gang")
        for i in range(8)
    ]
    with (
        serve(plane.kubeconfig, tmp_path, *FLAGS, "--filter-answer", "best") as extender,
        plane.scheduler(extender.configuration(), gates=GATE),
    ):
        plane.client.create(make_pod_group("gang", 8), *(pod.obj() for pod in pods))
        assert wait_until(lambda: bound_of(plane, "gang") == 8)
        assert Counter(bound(plane).values()) == {"n0": 4, "n1": 4}


def test_the_loop_binds_gangs_whole_or_not_at_all(plane: GroupControlPlane, tmp_path: Path) -> None:
    plane.client.create(*(a_node(f"n{i}") for i in range(4)))
    with schedule(plane.kubeconfig, tmp_path, *FLAGS):
        gang(plane, "three", 3)
        gang(plane, "four", 4)
        assert wait_until(lambda: len(bound(plane)) == 7)
        gang(plane, "two", 2)
        condition = wait_until(lambda: group_condition(plane, "two"))
        assert condition
        assert condition[:2] == ("False", "Unschedulable")
        assert "(2) cannot be satisfied: 1 scheduled, " in condition[2]
        assert bound_of(plane, "two") == 0
        plane.client.create(a_node("more"))
        assert wait_until(lambda: bound_of(plane, "two") == 2)
        assert wait_until(lambda: are_scheduled(plane, "two", "three", "four"))


def test_a_restarted_loop_completes_a_partly_bound_gang(plane: GroupControlPlane, tmp_path: Path) -> None:
    """A process that is killed between two Bindings of a gang leaves it partly bound."""
    plane.client.create(*(a_node(f"n{i}") for i in range(2)))
    gang(plane, "four", 4)
    for name in ("four-0", "four-1"):
        target = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": {"name": "n0"}}
        plane.client.request("POST", f"/api/v1/namespaces/default/pods/{name}/binding", target)
    with schedule(plane.kubeconfig, tmp_path, *FLAGS):
        assert wait_until(lambda: bound_of(plane, "four") == 4)
        assert set(bound(plane).values()) == {"n0", "n1"}


def test_a_gang_preempts_in_the_loop(plane: GroupControlPlane, tmp_path: Path) -> None:
    plane.client.create(make_priority_class("high", 100), *(a_node(f"n{i}") for i in range(2)))
    with schedule(plane.kubeconfig, tmp_path, *FLAGS):
        plane.client.create(*(make_pod(f"victim-{i}").req(cpu="2").grace(0).obj() for i in range(4)))
        assert wait_until(lambda: bound_of(plane, "victim") == 4)
        members = [make_pod(f"gang-{i}").req(cpu="2").priority_class("high").group("gang").obj() for i in range(2)]
        plane.client.create(make_pod_group("gang", 2, priorityClassName="high"), *members)
        assert wait_until(lambda: bound_of(plane, "gang") == 2)
        assert bound_of(plane, "victim") == 2


def test_the_loop_binds_trees_whole_or_not_at_all(plane: GroupControlPlane, tmp_path: Path) -> None:
    """Two gangs of two below a tree that needs both; one rack has room for all four members, the other for three."""
    rack: Object = {"schedulingConstraints": {"topology": [{"key": "rack"}]}}
    tree = make_composite_pod_group("tree", 2, workloadRef=template("tree"), **rack)
    small = make_node("small").label(rack="r1").capacity(cpu="6", memory="64Gi", pods="110").obj()
    plane.client.create(small, tree, *branch("left"), *branch("right"))
    with schedule(plane.kubeconfig, tmp_path, *TREE_FLAGS):
        condition = wait_until(lambda: group_condition(plane, "left"))
        assert condition
        assert condition[:2] == ("False", "Unschedulable")
        assert bound(plane) == {}
        plane.client.create(
            *(make_node(f"n{i}").label(rack="r2").capacity(cpu="4", memory="64Gi", pods="110").obj() for i in range(2))
        )
        assert wait_until(lambda: len(bound(plane)) == 4)
        assert set(bound(plane).values()) == {"n0", "n1"}
        assert wait_until(lambda: are_scheduled(plane, "left", "right"))


def branch(name: str, **spec: Any) -> list[Object]:
    """A gang of two below the tree; each member needs half a large node."""
    group = make_pod_group(name, 2, parentCompositePodGroupName="tree", workloadRef=template(name), **spec)
    return [group, *(make_pod(f"{name}-{i}").req(cpu="2").group(name).obj() for i in range(2))]


TREES_ONLY = {
    "multiPoint": {
        **GANGS_ONLY["multiPoint"],
        "enabled": [*GANGS_ONLY["multiPoint"]["enabled"], {"name": "TopologyPlacementGenerator"}],
    }
}


@pytest.mark.parametrize(
    "constraint", [{}, {"schedulingConstraints": {"topology": [{"key": "rack"}]}}], ids=["anywhere", "each in a rack"]
)
def test_the_webhook_alone_splits_no_tree(plane: GroupControlPlane, tmp_path: Path, constraint: Object) -> None:
    """Only the webhook knows what fits: at first one child group, but the tree needs two."""
    require_trees()
    racks(plane, first="4")
    with (
        serve(plane.kubeconfig, tmp_path, *TREE_FLAGS, "--no-scheduler-filters") as extender,
        plane.scheduler(extender.configuration(plugins=TREES_ONLY), gates=(*GATE, *TREES)),
    ):
        children = [pod for name in ("left", "right") for pod in branch(name, **constraint)]
        plane.client.create(make_composite_pod_group("tree", 2, workloadRef=template("tree")), *children)
        condition = wait_until(lambda: group_condition(plane, "left"))
        assert condition
        assert condition[:2] == ("False", "Unschedulable")
        assert bound(plane) == {}
        racks(plane, second="4")
        assert wait_until(lambda: len(bound(plane)) == 4)
        assert Counter(bound(plane).values()) == {"first": 2, "second": 2}
        racks_of_left = {node for pod, node in bound(plane).items() if pod.startswith("left")}
        assert len(racks_of_left) == 1 or not constraint
        assert extender.metric('extender_binds_total{result="unfit"}') == 0
        assert wait_until(lambda: are_scheduled(plane, "left", "right"))


def template(name: str) -> Object:
    return {"workloadName": "work", "templateName": name}


def racks(plane: GroupControlPlane, **cpus: str) -> None:
    """Creates a node in each rack."""
    plane.client.create(
        *(
            make_node(name).label(rack=name).capacity(cpu=cpu, memory="64Gi", pods="110").obj()
            for name, cpu in cpus.items()
        )
    )


IN_ONE_RACK: Object = {"schedulingConstraints": {"topology": [{"key": "rack"}]}}


def members(group: str, size: int) -> list[Object]:
    return [make_pod(f"{group}-{i}").req(cpu="1").group(group).obj() for i in range(size)]


def test_the_loop_places_a_gang_in_the_rack_that_takes_most_of_it(plane: GroupControlPlane, tmp_path: Path) -> None:
    racks(plane, small="3", large="4")
    with schedule(plane.kubeconfig, tmp_path, *TREE_FLAGS) as loop:
        plane.client.create(*members("gang", 4))
        # Three members alone fit into both racks.
        assert wait_until(lambda: loop.metric('scheduler_pending_pods{queue="gated"}') == 4)
        plane.client.create(make_pod_group("gang", 3, **IN_ONE_RACK))
        assert wait_until(lambda: len(bound(plane)) == 4)
        assert set(bound(plane).values()) == {"large"}


RACKS_ONLY = {
    "multiPoint": {
        **GANGS_ONLY["multiPoint"],
        "enabled": [
            *GANGS_ONLY["multiPoint"]["enabled"],
            {"name": "TopologyPlacementGenerator"},
            {"name": "PodGroupPodsCount"},
        ],
    }
}


def test_the_webhook_answers_within_the_rack_of_each_placement(plane: GroupControlPlane, tmp_path: Path) -> None:
    """kube-scheduler tries one rack after the other, and only the webhook knows what fits."""
    racks(plane, small="3")
    half = (make_node(f"half-{i}").label(rack="large").capacity(cpu="2", memory="64Gi", pods="110") for i in range(2))
    plane.client.create(*(node.obj() for node in half))
    with (
        serve(plane.kubeconfig, tmp_path, *TREE_FLAGS, "--no-scheduler-filters") as extender,
        plane.scheduler(
            extender.configuration(plugins=RACKS_ONLY), gates=(*GATE, "TopologyAwareWorkloadScheduling=true")
        ),
    ):
        plane.client.create(*members("gang", 4), make_pod_group("gang", 4, **IN_ONE_RACK))
        assert wait_until(lambda: len(bound(plane)) == 4)
        assert Counter(bound(plane).values()) == {"half-0": 2, "half-1": 2}
        assert wait_until(lambda: group_condition(plane, "gang")) == ("True", "Scheduled", "")


def test_the_loop_places_a_gang_in_the_fuller_of_two_racks(plane: GroupControlPlane, tmp_path: Path) -> None:
    """Both take all members, so the score of NodeResourcesFit decides."""
    racks(plane, empty="8", used="8")
    plane.client.create(make_pod("filler").req(cpu="4").node("used").obj())
    with schedule(plane.kubeconfig, tmp_path, *TREE_FLAGS):
        plane.client.create(*members("gang", 4), make_pod_group("gang", 4, **IN_ONE_RACK))
        assert wait_until(lambda: len(bound(plane)) == 5)
        assert {node for pod, node in bound(plane).items() if pod != "filler"} == {"used"}
        assert wait_until(lambda: group_condition(plane, "gang")) == ("True", "Scheduled", "")


@contextmanager
def gang_with_a_claim(plane: GroupControlPlane) -> Iterator[None]:
    """Three members share the only device, which is on one of two nodes. After the block, all must be on that node."""
    racks(plane, first="8", second="8")
    shared = {"name": "gpu", "resourceClaimName": "gpu"}
    plane.client.create(
        make_device_class("gpu", 'device.driver == "gpu.example.com"'),
        make_resource_slice("second", "gpu.example.com", "gpu-0"),
        make_claim("gpu", make_request("device", "gpu")),
        *(make_pod(f"member-{i}").req(cpu="1").resource_claim("gpu").group("gang").obj() for i in range(3)),
        make_pod_group("gang", 3, resourceClaims=[shared]),
    )
    try:
        yield
        assert set(bound(plane).values()) == {"second"}
        [consumer] = plane.client.get("ResourceClaim", "gpu")["status"]["reservedFor"]
        assert (consumer["apiGroup"], consumer["resource"], consumer["name"]) == (
            "scheduling.k8s.io",
            "podgroups",
            "gang",
        )
    finally:
        release_claims(plane.client)


def test_the_loop_reserves_a_claim_for_a_group(plane: GroupControlPlane, tmp_path: Path) -> None:
    with gang_with_a_claim(plane), schedule(plane.kubeconfig, tmp_path, *TREE_FLAGS):
        assert wait_until(lambda: len(bound(plane)) == 3)


def test_the_webhook_plans_a_group_with_a_claim(plane: GroupControlPlane, tmp_path: Path) -> None:
    with (
        gang_with_a_claim(plane),
        serve(plane.kubeconfig, tmp_path, *TREE_FLAGS) as extender,
        plane.scheduler(extender.configuration(), gates=(*GATE, *CLAIMS)),
    ):
        assert wait_until(lambda: len(bound(plane)) == 3)
        assert extender.metric('extender_group_plans_total{result="placed"}') >= 1

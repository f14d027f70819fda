"""Pod groups on the real API server, with the Jobs of the real kube-controller-manager and the real kube-scheduler."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders import make_node, make_pod, make_pod_group, make_priority_class
from tests.end_to_end.group_plane import FLAGS, GATES, GroupControlPlane, bound, clean_up, group_condition, job
from tests.running import schedule, serve
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
    assert wait_until(lambda: len(bound(plane)) == wanted, 30 + number)
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
        assert wait_until(lambda: {"member-0", "member-1"} <= bound(plane).keys(), 60)
        assert wait_until(lambda: group_condition(plane, "gang")) == ("True", "Scheduled", "")
        assert len(bound(plane)) == 4

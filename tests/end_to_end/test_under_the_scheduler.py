"""All four verbs, in both modes, called by the stock kube-scheduler."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.builders import Object, make_node, make_pod, make_priority_class
from tests.end_to_end.conftest import StartExtender
from tests.end_to_end.workload import nodes, pods, violations
from tests.running import ONLY_EXTENDER, VERBS, RunningExtender, serve
from tests.stock.control_plane import ControlPlane
from tests.stock.waiting import wait_until

pytestmark = pytest.mark.stock

FULL_FIRST = pytest.mark.parametrize(
    "names", [pytest.param(True, id="names", marks=pytest.mark.slow), pytest.param(False, id="full")]
)
NAMES_FIRST = pytest.mark.parametrize(
    "names", [pytest.param(True, id="names"), pytest.param(False, id="full", marks=pytest.mark.slow)]
)


def placed(control_plane: ControlPlane) -> dict[str, str]:
    """Pod name -> node of every pod that is bound."""
    listed = control_plane.client.list("Pod", "default")
    return {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in listed if pod["spec"].get("nodeName")}


def sized(name: str, cpu: str) -> Object:
    resources = {"cpu": cpu, "memory": "8Gi", "pods": "110"}
    return make_node(name).allocatable(resources).capacity(resources).obj()


DISPATCHED = """\
from flask import request, request_started

from extender import Node, Pod, predicate


def note(app, **_):
    with open({file!r}, "a") as file:
        print(request.path.rpartition("/")[2], file=file)


if not request_started.receivers:  # a process may load this module more than once
    request_started.connect(note, weak=False)


@predicate
def any_node(pod: Pod, node: Node) -> str | None:
    return None
"""


@pytest.fixture
def dispatched(tmp_path: Path) -> Path:
    """The file to which the extender writes the verb of each request that Flask dispatches, with `policy.json`."""
    file = tmp_path / "dispatched"
    (tmp_path / "dispatching.py").write_text(DISPATCHED.format(file=str(file)))
    profile = {
        "schedulerName": "default-scheduler",
        "plugins": {"filter": {"enabled": [{"name": "dispatching:any_node"}]}},
    }
    header = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    (tmp_path / "policy.json").write_text(json.dumps({**header, "profiles": [profile]}))
    return file


@pytest.fixture(scope="module")
def extender(shared_control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningExtender]:
    """An `extender serve` without flags, which several tests use."""
    with serve(shared_control_plane.kubeconfig, tmp_path_factory.mktemp("extender")) as extender:
        yield extender


@FULL_FIRST
def test_every_verb_is_called_and_believed(
    control_plane: ControlPlane, start_extender: StartExtender, names: bool, dispatched: Path
) -> None:
    client = control_plane.client
    client.create(*(sized(f"n{i}", "2") for i in range(3)), sized("tiny", "100m"))
    client.create(make_priority_class("high", 1000), make_priority_class("low", 1))
    policy = ("--policy", str(dispatched.with_name("policy.json")))
    with start_extender(*policy) as extender, control_plane.scheduler(extender.configuration(names=names)):
        low = [make_pod(f"low-{i}").req(cpu="2").priority_class("low").grace(0).obj() for i in range(3)]
        client.create(*low)
        assert wait_until(lambda: len(placed(control_plane)) == 3)
        client.create(make_pod("high").req(cpu="2").priority_class("high").obj())
        assert wait_until(lambda: "high" in placed(control_plane))
        assert len(placed(control_plane)) == 3
        assert all(extender.calls(verb) for verb in VERBS)
        assert wait_until(
            lambda: (
                [len(extender.calls(verb)) for verb in VERBS]
                == [dispatched.read_text().split().count(verb) for verb in VERBS]
            )
        )
        assert wait_until(lambda: extender.metric('extender_binds_total{result="bound"}') == 4)
        assert wait_until(lambda: extender.metric('extender_cache_size{type="assumed_pods"}') == 0)


@NAMES_FIRST
def test_pods_of_many_shapes_find_lawful_places_though_every_in_tree_rule_is_off(
    control_plane: ControlPlane, extender: RunningExtender, names: bool
) -> None:
    random = Random(7)
    client = control_plane.client
    client.create(*nodes(50, random))
    with control_plane.scheduler(extender.configuration(names=names, plugins=ONLY_EXTENDER)):
        client.create(*pods(200, random))
        wait_until(lambda: len(placed(control_plane)) == 200, timeout_seconds=180)
    assert len(placed(control_plane)) == 200
    assert violations(client.list("Node"), client.list("Pod", "default")) == []


@NAMES_FIRST
def test_where_filter_answers_the_best_node_the_scheduler_takes_it_and_asks_for_no_scores(
    control_plane: ControlPlane, start_extender: StartExtender, names: bool
) -> None:
    client = control_plane.client
    client.create(*(sized(f"small-{i}", "2") for i in range(9)), sized("large", "64"))
    with start_extender("--filter-answer=best") as extender:
        with control_plane.scheduler(extender.configuration(names=names, plugins=ONLY_EXTENDER)):
            client.create(*(make_pod(f"p{i}").req(cpu="1").obj() for i in range(10)))
            assert wait_until(lambda: len(placed(control_plane)) == 10)
        assert set(placed(control_plane).values()) == {"large"}
        assert wait_until(lambda: len(extender.calls("bind")) == 10)
        assert extender.calls("prioritize") == []


def test_a_full_cluster_refuses_the_rest_with_stock_reasons(
    control_plane: ControlPlane, extender: RunningExtender
) -> None:
    client = control_plane.client
    client.create(sized("a", "2"), sized("b", "2"))
    with control_plane.scheduler(extender.configuration(plugins=ONLY_EXTENDER)):
        client.create(*(make_pod(f"p{i}").req(cpu="1").obj() for i in range(6)))
        assert wait_until(lambda: len(placed(control_plane)) == 4)

        def refused() -> list[str]:
            waiting = [pod for pod in client.list("Pod", "default") if not pod["spec"].get("nodeName")]
            conditions = [pod["status"].get("conditions") for pod in waiting]
            return [found[0]["message"] for found in conditions if found]

        # A bind that lost a race for the last place has another message at first, and is tried again.
        assert wait_until(lambda: sum("2 Insufficient cpu" in message for message in refused()) == 2)


def test_a_bind_that_the_api_server_refuses_leaves_no_trace_and_is_tried_again(
    control_plane: ControlPlane, start_extender: StartExtender
) -> None:
    client = control_plane.client
    client.create(
        sized("n", "2"),
        *_account_that_may("look", {"apiGroups": ["*"], "resources": ["*"], "verbs": ["list", "watch"]}),
    )
    token = control_plane.service_account_token("default", "extender")
    kubeconfig = control_plane.write_kubeconfig("look-only", token)
    with start_extender(kubeconfig=kubeconfig) as extender, control_plane.scheduler(extender.configuration()):
        client.create(make_pod("p").req(cpu="2").obj())
        assert wait_until(lambda: extender.metric('extender_binds_total{result="refused"}') >= 1)
        assert "is forbidden" in extender.calls("bind")[0]["error"]
        assert wait_until(lambda: extender.metric('extender_cache_size{type="assumed_pods"}') == 0)
        client.create(
            *_account_that_may("bind", {"apiGroups": [""], "resources": ["pods/binding"], "verbs": ["create"]})[1:]
        )
        client.patch("Pod", "p", {"metadata": {"labels": {"try": "again"}}})
        assert wait_until(lambda: placed(control_plane).get("p") == "n")


def _account_that_may(name: str, rule: Object) -> list[Object]:
    """The service account `extender`, and what it is allowed."""
    group, account = "rbac.authorization.k8s.io", {"kind": "ServiceAccount", "name": "extender", "namespace": "default"}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "extender", "namespace": "default"}},
        {"apiVersion": f"{group}/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": [rule]},
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
            "subjects": [account],
        },
    ]


def test_only_as_many_victims_fall_as_are_needed(control_plane: ControlPlane, extender: RunningExtender) -> None:
    client = control_plane.client
    client.create(sized("n", "4"), make_priority_class("high", 1000), make_priority_class("low", 1))
    with control_plane.scheduler(extender.configuration()):
        client.create(*(make_pod(f"low-{i}").req(cpu="1").priority_class("low").grace(0).obj() for i in range(4)))
        assert wait_until(lambda: len(placed(control_plane)) == 4)
        client.create(make_pod("high").req(cpu="2").priority_class("high").obj())
        assert wait_until(lambda: "high" in placed(control_plane))
        left: list[Any] = [name for name in placed(control_plane) if name.startswith("low")]
        assert len(left) == 2


LICENSED = """\
from pathlib import Path

from extender import Node, Pod, predicate


@predicate
def licensed(pod: Pod, node: Node, *, file: str) -> str | None:
    return None if Path(file).exists() else "no licence is free"
"""


def test_a_rejected_pod_that_fits_now_is_retried_without_an_event_in_the_cluster(
    control_plane: ControlPlane, start_extender: StartExtender, tmp_path: Path
) -> None:
    (tmp_path / "licences.py").write_text(LICENSED)
    rule, licence = "licences:licensed", tmp_path / "licence"
    plugins = {"filter": {"enabled": [{"name": rule}]}}
    profile = {
        "schedulerName": "default-scheduler",
        "plugins": plugins,
        "pluginConfig": [{"name": rule, "args": {"file": str(licence)}}],
    }
    header = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    (tmp_path / "policy.yaml").write_text(json.dumps({**header, "profiles": [profile]}))
    control_plane.client.create(sized("n", "4"))
    flags = ("--policy", str(tmp_path / "policy.yaml"), "--activate-after-seconds", "3")
    with start_extender(*flags) as extender, control_plane.scheduler(extender.configuration()):
        control_plane.client.create(make_pod("p").req(cpu="1").obj())
        # Its condition is an update of the pod, for which it is tried once more.
        assert wait_until(lambda: len(extender.calls("filter")) > 1)
        licence.touch()
        assert wait_until(lambda: placed(control_plane) == {"p": "n"})

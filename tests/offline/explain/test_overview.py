"""All pods that wait, by cause."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest

from extender import Cluster
from extender.offline.explain.overview import as_text, none_pending
from extender.offline.rendering import by_cause
from extender.offline.state import ClusterState
from extender.runtime.text import age
from extender.snapshots.objects import to_objects
from tests.builders import make_node, make_pod

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
NODE = make_node("n").capacity(cpu="4").obj()
PODS = [
    make_pod("big", "shop").req(cpu="9").created("2026-11-21T09:00:00Z").obj(),
    make_pod("bigger", "shop").req(cpu="10").created("2026-11-21T11:58:30Z").obj(),
    make_pod("gated", "lab").gate("quota").obj(),
    make_pod("fine", "lab").req(cpu="1").obj(),
]


def test_the_same_causes_stand_together_the_most_frequent_first() -> None:
    pods = Cluster.from_objects([NODE, *PODS]).explain_pending()
    assert [each.name for each in pods] == ["big", "bigger", "gated", "fine"]
    shown = list(as_text(pods, [], NOW))
    assert shown[0] == "4 pending pods: 3 blocked (2 causes), 1 would fit now"
    assert "Insufficient cpu: 2 pods" in shown
    assert shown[shown.index("Insufficient cpu: 2 pods") + 2].split()[:4] == ["shop", "big", "3h", "0/1"]
    assert shown[-1].endswith("nothing: does a scheduler named default-scheduler run?")


def test_the_pending_pods_of_one_namespace_are_explained() -> None:
    pods = Cluster.from_objects([NODE, *PODS]).explain_pending("lab")
    assert {each.name for each in pods} == {"gated", "fine"}


def test_pods_of_a_workload_with_the_same_line_are_one_line() -> None:
    replicas = [
        make_pod(f"web-6d5f8-{name}", "shop")
        .label({"pod-template-hash": "6d5f8"})
        .owner("ReplicaSet", "web-6d5f8")
        .req(cpu=cpu)
        .created(f"2026-11-21T{hour}:00:00Z")
        .obj()
        for name, cpu, hour in (("a", "9", "10"), ("b", "9", "09"), ("c", "8", "11"), ("d", "9", "11"))
    ]
    alone = make_pod("web-0", "shop").owner("StatefulSet", "web").req(cpu="9").obj()
    pods = Cluster.from_objects([NODE, *replicas, alone]).explain_pending()
    assert {each.workload for each in pods} == {"Deployment web", "StatefulSet web"}
    shown = list(as_text(pods, [], NOW))
    names = [re.split(r"\s{2,}", line)[2] for line in shown if line.startswith("  shop")]
    assert sorted(names) == ["web-0", "web-6d5f8-b and 2 more of Deployment web", "web-6d5f8-c"]
    [(_, count, rows)] = by_cause([pod.to_dict() for pod in pods])
    assert (count, sorted(map(len, rows))) == (5, [1, 1, 3])


def test_pods_of_two_replica_sets_of_a_deployment_are_one_line() -> None:
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "d", "controller": True}
    sets = [
        {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {"name": name, "namespace": "shop", "uid": name, "ownerReferences": [owner]},
        }
        for name in ("web-old", "web-new")
    ]
    pods = [
        make_pod(f"{name}-x", "shop").owner("ReplicaSet", name).req(cpu="9").obj() for name in ("web-old", "web-new")
    ]
    pending = Cluster.from_objects([NODE, *sets, *pods]).explain_pending()
    assert {each.workload for each in pending} == {"Deployment web"}
    [line] = [line for line in as_text(pending, [], NOW) if line.startswith("  shop")]
    assert " and 1 more of Deployment web " in line


@pytest.mark.parametrize(
    ("namespace", "is_selected", "line"),
    [
        ("", False, "no pods are pending"),
        ("shop", False, "no pods are pending in namespace shop"),
        ("", True, "no pods with these labels are pending"),
        ("shop", True, "no pods with these labels are pending in namespace shop"),
        ("shops", False, "namespace shops has no pods at all (did you mean shop?)"),
        ("shops", True, "namespace shops has no pods at all (did you mean shop?)"),
    ],
)
def test_an_overview_without_pending_pods_names_what_was_listed(namespace: str, is_selected: bool, line: str) -> None:
    state = ClusterState(to_objects([NODE, make_pod("runs", "shop").node("n").obj()]))
    if_none = none_pending(state, namespace, is_selected=is_selected)
    assert list(as_text([], [], NOW, if_none=if_none)) == [line]


def test_ages_are_written_as_kubectl_does() -> None:
    assert [age(seconds) for seconds in (3 * 86400, 3 * 3600, 60)] == ["3d", "3h", "60s"]

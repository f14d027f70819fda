"""`extender upgrade-check` on a snapshot: which decisions another version of Kubernetes changes, and why."""

from __future__ import annotations

from dataclasses import fields

import pytest

from extender.offline.recording import upgrade
from extender.offline.recording.upgrade import SEVERAL, as_text, check
from extender.offline.state import ClusterState
from extender.snapshots.objects import to_objects
from extender.table.features import Behaviours
from tests.builders import ZONE, Object, make_node, make_pod

NODES = [
    make_node(name).capacity(cpu=cpu, memory="16Gi", pods="110").label({ZONE: name}).obj()
    for name, cpu in (("a", "16"), ("b", "4"))
]
PLACED = make_pod("placed").req(cpu="9").node("a").obj()
SPREAD = make_pod("spread").spread(ZONE, labelSelector={}).obj()
PLAIN = make_pod("plain").req(cpu="1").obj()


def with_pod_level_requests(name: str) -> Object:
    pod = make_pod(name).obj()
    return {**pod, "spec": {**pod["spec"], "resources": {"requests": {"cpu": "4", "memory": "1Gi"}}}}


def state_of(*pods: Object, version: str = "v1.37.1") -> ClusterState:
    return ClusterState(to_objects([*NODES, PLACED, *pods]), kubernetes_version=version)


def test_changes_are_counted_by_cause_with_the_pods() -> None:
    result = check(state_of(with_pod_level_requests("x"), with_pod_level_requests("y"), PLAIN), "1.38")
    assert list(as_text(result)) == [
        "4 pods judged as if waiting: 2 decisions differ",
        "2 pods get another node because pod-level requests count in the score: default/x, default/y",
        "note: decided with Kubernetes 1.38, DRAFractionalCapacityRange=true",
        "",
        "POD        BEFORE  AFTER  CAUSE",
        "default/x  b       a      pod-level requests count in the score",
        "default/y  b       a      pod-level requests count in the score",
    ]
    assert result.to_dict()["decided"] == {"pod": 4}
    assert [each["pod"] for each in result.to_dict()["changed"]] == ["default/x", "default/y"]


def test_nothing_changes_under_the_version_of_the_snapshot() -> None:
    result = check(state_of(with_pod_level_requests("x"), version="v1.38.0"), "1.38")
    assert list(as_text(result)) == [
        "2 pods judged as if waiting: no decision differs",
        "note: under 1.38, nothing differs from the snapshot's version",
    ]


@pytest.mark.parametrize(
    ("target", "cause"),
    [
        pytest.param("1.38", "pod-level requests count in the score", id="one change suffices"),
        pytest.param("1.38,StorageCapacityScoring=false", "pod-level requests count in the score", id="beside a gate"),
    ],
)
def test_the_cause_is_the_change_without_which_the_decision_would_stay(target: str, cause: str) -> None:
    (changed,) = check(state_of(with_pod_level_requests("x")), target).changed
    assert (changed.what, changed.cause) == ("get another node", cause)
    assert cause != SEVERAL


def test_every_behaviour_has_a_text() -> None:
    assert upgrade._BECAUSE.keys() == {field.name for field in fields(Behaviours)}

"""The default selector: a pod's replicas, selected by its services and controller."""

from __future__ import annotations

from typing import Any

import pytest

from extender.framework.topology import default_selector
from extender.model.selectors import EVERYTHING
from tests.builders import PodBuilder, make_pod, make_service
from tests.framework.cluster import pod_info, table_of

LABELS = {"app": "web", "tier": "front", "rev": "1"}
BY_REV = {"matchExpressions": [{"key": "rev", "operator": "In", "values": ["1", "2"]}]}


def controller(kind: str, selector: Any) -> dict[str, Any]:
    return {"kind": kind, "metadata": {"name": "c", "namespace": "default"}, "spec": {"selector": selector}}


def owned(kind: str, api_version: str = "apps/v1") -> PodBuilder:
    return make_pod("p").label(LABELS).owner(kind, "c", api_version=api_version)


# Pods that tell the selectors apart.
FRONT = {"app": "web", "tier": "front"}
SECOND = {"app": "web", "rev": "2"}
THIRD = {"app": "web", "rev": "3"}


@pytest.mark.parametrize(
    ("pod", "objects", "found"),
    [
        pytest.param(
            make_pod("p").label(LABELS), [make_service("s", {"app": "web"})], [True, True, True], id="a service"
        ),
        pytest.param(
            make_pod("p").label(LABELS),
            [make_service("s", {"app": "web"}), make_service("t", {"tier": "front"})],
            [True, False, False],
            id="two services",
        ),
        pytest.param(owned("ReplicaSet"), [controller("ReplicaSet", BY_REV)], [False, True, False], id="ReplicaSet"),
        pytest.param(owned("StatefulSet"), [controller("StatefulSet", BY_REV)], [False, True, False], id="StatefulSet"),
        pytest.param(
            owned("ReplicationController", "v1"),
            [controller("ReplicationController", {"rev": "2"})],
            [False, True, False],
            id="ReplicationController",
        ),
        pytest.param(
            owned("ReplicaSet"),
            [controller("ReplicaSet", BY_REV), make_service("s", {"tier": "front"})],
            [False, False, False],
            id="a service and a controller: both must match",
        ),
    ],
)
def test_replicas(pod: PodBuilder, objects: list[dict[str, Any]], found: list[bool]) -> None:
    selector = default_selector(pod_info(pod.obj()), table_of(*objects))
    assert [selector.matches(labels) for labels in (FRONT, SECOND, THIRD)] == found


@pytest.mark.parametrize(
    ("pod", "objects"),
    [
        pytest.param(make_pod("p").label(LABELS), [], id="nothing known"),
        pytest.param(make_pod("p").label(LABELS), [make_service("s", {"app": "db"})], id="a service of others"),
        pytest.param(owned("ReplicaSet"), [], id="a controller that is not known"),
        pytest.param(owned("ReplicaSet"), [controller("ReplicaSet", None)], id="a controller without a selector"),
        pytest.param(owned("Job", "batch/v1"), [controller("ReplicaSet", BY_REV)], id="a controller of another kind"),
        pytest.param(owned("ReplicaSet", "apps/v1beta1"), [controller("ReplicaSet", BY_REV)], id="of another version"),
    ],
)
def test_no_services_or_controllers_give_no_selector(pod: PodBuilder, objects: list[dict[str, Any]]) -> None:
    assert default_selector(pod_info(pod.obj()), table_of(*objects)) == EVERYTHING

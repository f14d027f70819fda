"""The requests of a pod: containers, sidecars, overhead, pod level and status."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from extender.model.pod import Pod
from extender.model.requests import NONZERO_DEFAULTS, nonzero_requests, pod_requests
from tests.builders import make_pod

GIB = 2**30


def pod(obj: dict[str, Any]) -> Pod:
    return msgspec.convert(obj, Pod)


def container(name: str, always: bool = False, **requests: str) -> dict[str, Any]:
    return {"name": name, "resources": {"requests": requests}, **({"restartPolicy": "Always"} if always else {})}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param(
            {"containers": [container("a", cpu="1"), container("b", cpu="500m")]}, 1500, id="containers add up"
        ),
        pytest.param(
            {"containers": [container("a", cpu="0.5m"), container("b", cpu="0.5m")]}, 1, id="rounded after the sum"
        ),
        pytest.param(
            {
                "containers": [container("a", cpu="1")],
                "initContainers": [container("i", cpu="3"), container("j", cpu="2")],
            },
            3000,
            id="the largest init container, if it asks for more",
        ),
        pytest.param(
            {"containers": [container("a", cpu="1")], "initContainers": [container("s", True, cpu="2")]},
            3000,
            id="a sidecar runs beside the containers",
        ),
        pytest.param(
            {
                "containers": [container("a", cpu="1")],
                "initContainers": [container("s", True, cpu="2"), container("i", cpu="3")],
            },
            5000,
            id="an init container runs beside the sidecars before it",
        ),
        pytest.param(
            {
                "containers": [container("a", cpu="1")],
                "initContainers": [container("i", cpu="3"), container("s", True, cpu="2")],
            },
            3000,
            id="but not beside those after it",
        ),
        pytest.param({"containers": [container("a", cpu="1")], "overhead": {"cpu": "250m"}}, 1250, id="overhead"),
        pytest.param(
            {
                "containers": [container("a", cpu="1")],
                "resources": {"requests": {"cpu": "4"}},
                "overhead": {"cpu": "1"},
            },
            5000,
            id="pod-level requests stand for the containers', overhead comes on top",
        ),
        pytest.param({"containers": [{"name": "a"}]}, 0, id="nothing asked"),
        pytest.param({"containers": None, "initContainers": None}, 0, id="nulls"),
    ],
)
def test_cpu(spec: dict[str, Any], expected: int) -> None:
    assert pod_requests(pod({"metadata": {"name": "p"}, "spec": spec})).get("cpu", 0) == expected


def resized(**status: Any) -> Pod:
    obj = make_pod("p").req(cpu="1").node("n").obj()
    name = obj["spec"]["containers"][0]["name"]
    conditions = status.pop("conditions", None)
    obj["status"] = {"containerStatuses": [{"name": name, **status}], "conditions": conditions}
    return pod(obj)


@pytest.mark.parametrize(
    ("placed", "expected"),
    [
        pytest.param(resized(allocatedResources={"cpu": "2"}), 2000, id="more is allocated"),
        pytest.param(resized(resources={"requests": {"cpu": "3"}}), 3000, id="more is in use"),
        pytest.param(resized(allocatedResources={"cpu": "500m"}), 1000, id="less is allocated than asked"),
        pytest.param(
            resized(
                allocatedResources={"cpu": "500m"},
                conditions=[{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}],
            ),
            500,
            id="a resize that can never be does not count",
        ),
    ],
)
def test_placed_pods_count_with_what_the_kubelet_allocated(placed: Pod, expected: int) -> None:
    assert pod_requests(placed, placed=True)["cpu"] == expected


def test_scores_count_defaults_for_containers_without_requests() -> None:
    two = pod(make_pod("p").req(cpu="1").container().obj())
    requests = pod_requests(two, placed=True)
    assert nonzero_requests(two, requests) == (1100, 2 * 200 * 2**20)
    assert pod_requests(two, NONZERO_DEFAULTS)["cpu"] == 1100


def test_pod_level_requests_replace_the_defaults() -> None:
    whole = pod(make_pod("p").pod_level_req(cpu="2").obj())
    requests = pod_requests(whole, placed=True)
    assert nonzero_requests(whole, requests) == (2000, 200 * 2**20)


def test_extended_resources_and_huge_pages() -> None:
    asked = pod(make_pod("p").req({"example.com/gpu": "2", "hugepages-2Mi": "4Mi", "memory": "1Gi"}).obj())
    assert pod_requests(asked) == {"example.com/gpu": 2, "hugepages-2Mi": 4 * 2**20, "memory": GIB}

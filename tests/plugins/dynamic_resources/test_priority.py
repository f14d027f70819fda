"""DynamicResources, Score: nodes that have earlier alternatives of a prioritized list are preferred."""

from __future__ import annotations

import pytest

from extender.plugins.dynamic_resources import DynamicResourcesScore
from tests.builders import (
    Object,
    make_alternative,
    make_claim,
    make_device,
    make_device_class,
    make_node,
    make_pod,
    make_prioritized_list,
    make_request,
    make_resource_slice,
    make_result,
    with_allocation,
)
from tests.framework.cluster import scores

GPU = "gpu.example.com"
MODELS = {"best": "h100", "good": "a100", "poor": "t4"}
CLUSTER = [
    *(make_device_class(model, f'device.attributes["{GPU}"].model == "{model}"') for model in MODELS.values()),
    *(make_node(name).obj() for name in MODELS),
    *(make_resource_slice(name, GPU, make_device("gpu", {"model": model})) for name, model in MODELS.items()),
]
LIST = make_claim(
    "c", make_prioritized_list("r", *(make_alternative(f"on-{model}", model) for model in MODELS.values()))
)
POD = make_pod("p").resource_claim("c")


@pytest.mark.parametrize(
    ("claims", "raw", "normalised"),
    [
        pytest.param(
            [LIST], {"best": 8, "good": 7, "poor": 6}, {"best": 100, "good": 87, "poor": 75}, id="the sooner the better"
        ),
        pytest.param([make_claim("c", make_request("r", "h100"))], {}, {}, id="no list"),
    ],
)
def test_scores(claims: list[Object], raw: dict[str, int], normalised: dict[str, int]) -> None:
    pod = POD.obj()
    assert scores(DynamicResourcesScore(), pod, *CLUSTER, *claims, raw=True) == raw
    assert scores(DynamicResourcesScore(), pod, *CLUSTER, *claims) == normalised


def test_nodes_without_the_devices_score_nothing() -> None:
    """Another pod may have been allocated them between filter and prioritize."""
    taken = with_allocation(make_claim("other", make_request("device", "h100")), make_result("best", "gpu"))
    assert scores(DynamicResourcesScore(), POD.obj(), *CLUSTER, LIST, taken, raw=True) == {
        "best": 0,
        "good": 7,
        "poor": 6,
    }


def test_allocated_claims_score_on_every_node() -> None:
    had = with_allocation(
        make_claim("had", make_prioritized_list("r", make_alternative("x", "t4"), make_alternative("y", "t4"))),
        make_result("elsewhere", "gpu") | {"request": "r/y"},
    )
    pod = make_pod("p").resource_claim("c").resource_claim("had").obj()
    assert scores(DynamicResourcesScore(), pod, *CLUSTER, LIST, had, raw=True) == {"best": 15, "good": 14, "poor": 13}
    alone = make_pod("p").resource_claim("had").obj()
    assert set(scores(DynamicResourcesScore(), alone, *CLUSTER, had).values()) == {0}


def test_pods_without_claims_have_no_scores() -> None:
    assert scores(DynamicResourcesScore(), make_pod("p").obj(), *CLUSTER) == {}

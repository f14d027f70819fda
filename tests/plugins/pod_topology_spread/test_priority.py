"""PodTopologySpread, Score: raw scores and their normalisation equal upstream's."""

from __future__ import annotations

from math import log
from typing import Any

import pytest

from extender.model.pod import TopologySpreadConstraint
from extender.plugins.pod_topology_spread import PodTopologySpreadScore
from tests.builders import HOSTNAME, ZONE, PodBuilder, make_node, make_pod, make_service
from tests.framework.cluster import scores

APP = {"app": "web"}
A1, A2, B1 = (make_node(name).zone(f"z{name[0]}").obj() for name in ("a1", "a2", "b1"))
BARE = make_node("bare").obj()
SERVICE = make_service("s", APP)


def web(*names: str) -> list[dict[str, Any]]:
    return [make_pod(f"{name}-{i}").label(APP).node(name).obj() for i, name in enumerate(names)]


def pod() -> PodBuilder:
    return make_pod("p").label(APP)


def worth(pods: int, domains: int, max_skew: int = 1) -> float:
    return pods * log(domains + 2) + max_skew - 1


@pytest.mark.parametrize(
    ("pod", "objects", "raw"),
    [
        pytest.param(
            pod().spread(ZONE, soft=True, labels=APP),
            [A1, A2, B1, *web("a1", "a2", "a2", "b1")],
            {"a1": worth(3, 2), "a2": worth(3, 2), "b1": worth(1, 2)},
            id="zones",
        ),
        pytest.param(
            pod().spread(HOSTNAME, max_skew=4, soft=True, labels=APP),
            [A1, A2, B1, *web("a2", "a2", "b1")],
            {"a1": worth(0, 3, 4), "a2": worth(2, 3, 4), "b1": worth(1, 3, 4)},
            id="nodes",
        ),
        pytest.param(
            pod().spread(ZONE, soft=True, labels=APP).spread(HOSTNAME, soft=True, labels=APP),
            [A1, A2, B1, BARE, *web("a2", "a2", "b1", "bare")],
            {
                "a1": worth(2, 2) + worth(0, 3),
                "a2": worth(2, 2) + worth(2, 3),
                "b1": worth(1, 2) + worth(1, 3),
                "bare": -1,
            },
            id="both; a node without all keys is ignored",
        ),
        pytest.param(
            pod(),
            [A1, B1, BARE, SERVICE, *web("a1", "a1", "bare")],
            {
                "a1": worth(2, 3, 3) + worth(2, 3, 5),
                "b1": worth(0, 3, 3) + worth(0, 3, 5),
                "bare": worth(1, 3, 3),
            },
            id="by the system's defaults a node without a zone counts",
        ),
        pytest.param(
            pod(),
            [A1, BARE, make_node("odd").zone("").obj(), SERVICE, *web("a1", "bare")],
            {"a1": worth(1, 3, 3) + worth(1, 2, 5), "bare": worth(1, 3, 3), "odd": worth(0, 3, 3) + worth(1, 2, 5)},
            id="nodes without a zone count to the one whose name is empty",
        ),
        pytest.param(
            pod().node_selector({ZONE: "zb"}).spread(ZONE, soft=True, labels=APP),
            [A1, A2, B1, *web("a1", "b1")],
            {"a1": worth(0, 2), "a2": worth(0, 2), "b1": worth(1, 2)},
            id="nodes that the pod may not use count nothing",
        ),
    ],
)
def test_raw(pod: PodBuilder, objects: list[dict[str, Any]], raw: dict[str, float]) -> None:
    assert scores(PodTopologySpreadScore(), pod.obj(), *objects, raw=True) == {
        name: round(sum_) for name, sum_ in raw.items()
    }


@pytest.mark.parametrize(
    ("objects", "want"),
    [
        pytest.param([A1, B1, *web("a1", "a1", "b1")], {"a1": 33, "b1": 100}, id="fewer is better"),
        pytest.param([A1, B1], {"a1": 100, "b1": 100}, id="none anywhere"),
        pytest.param([A1, B1, BARE, *web("a1")], {"a1": 0, "b1": 100, "bare": 0}, id="ignored nodes get nothing"),
        pytest.param([BARE], {"bare": 0}, id="nothing but ignored nodes"),
    ],
)
def test_normalised(objects: list[dict[str, Any]], want: dict[str, int]) -> None:
    assert scores(PodTopologySpreadScore(), pod().spread(ZONE, soft=True, labels=APP).obj(), *objects) == want


@pytest.mark.parametrize(
    ("pod", "objects"),
    [
        pytest.param(pod(), [A1, B1, *web("a1")], id="nothing selects the replicas"),
        pytest.param(pod().spread(ZONE, labels=APP), [A1, B1, SERVICE, *web("a1")], id="hard constraints only"),
    ],
)
def test_it_does_not_apply(pod: PodBuilder, objects: list[dict[str, Any]]) -> None:
    assert scores(PodTopologySpreadScore(), pod.obj(), *objects) == {}


def test_default_constraints_of_the_configuration_ignore_nodes_without_their_keys() -> None:
    by_zone = TopologySpreadConstraint(max_skew=1, topology_key=ZONE, when_unsatisfiable="ScheduleAnyway")
    objects = [A1, B1, BARE, SERVICE, *web("a1")]
    assert scores(PodTopologySpreadScore((by_zone,)), pod().obj(), *objects) == {"a1": 0, "b1": 100, "bare": 0}

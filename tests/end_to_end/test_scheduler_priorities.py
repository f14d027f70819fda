"""The loop's priorities: upstream's end-to-end tests of priorities, on the real API server.

Sources: test/e2e/scheduling/priorities.go, ubernetes_lite.go.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from tests.builders import HOSTNAME, PAUSE_IMAGE, ZONE, Builder, NodeBuilder, Object, PodBuilder, expression, node_term
from tests.builders.workloads import make_service
from tests.end_to_end.scheduling import Scene, asking, sized
from tests.stock.waiting import wait_until

pytestmark = pytest.mark.stock

WEB = {"app": "web"}
OTHERS = tuple(f"other-{i}" for i in range(5))


def best() -> NodeBuilder:
    return sized("best", "4")


def others() -> list[NodeBuilder]:
    return [sized(name, "4") for name in OTHERS]


def on_others(name: str, cpu: str = "100m") -> list[PodBuilder]:
    """A pod on every node but the best."""
    return [asking(f"{name}-{node}", cpu).node(node) for node in OTHERS]


def pod() -> PodBuilder:
    return asking("p", "100m")


SSD = node_term(expression("disk", "In", "ssd"))


@pytest.mark.parametrize(
    ("given", "asked"),
    [
        pytest.param(
            [best(), *others(), *(each.label(WEB) for each in on_others("web")), asking("plain", "200m").node("best")],
            pod().anti_affinity(HOSTNAME, weight=100, labels=WEB),
            id="away from pods that it would rather avoid",
        ),
        pytest.param(
            [best(), *others(), asking("web", "100m").label(WEB).node("best")],
            pod().affinity(HOSTNAME, weight=100, labels=WEB),
            id="near pods that it would rather have",
        ),
        pytest.param(
            [best().taint("a", "1", "PreferNoSchedule"), *(n.taint("b", "1", "PreferNoSchedule") for n in others())],
            pod().toleration("a", "1", effect="PreferNoSchedule"),
            id="taints that it tolerates",
        ),
        pytest.param(
            [best().label(disk="ssd"), *(node.label(disk="hdd") for node in others())],
            pod().prefer_node(50, SSD),
            id="node affinity",
        ),
        pytest.param(
            [best().zone("a"), *(n.zone("b") for n in others()), *(each.label(WEB) for each in on_others("web"))],
            pod().label(WEB).spread(ZONE, soft=True, labels=WEB),
            id="the zone with the fewest of its kind",
        ),
        pytest.param([best(), *others(), *on_others("load", "2")], pod(), id="the least allocated"),
        pytest.param(
            [
                *(sized(name, "4").capacity(memory="4Gi") for name in ("best", *OTHERS)),
                asking("memory", "10m").req(memory="2Gi").node("best"),
                *(load.req(memory="10Mi") for load in on_others("cpu", "2")),
            ],
            asking("p", "1").req(memory="10Mi"),
            id="cpu and memory in balance",
        ),
        pytest.param([best().image(PAUSE_IMAGE, size_bytes=900_000_000), *others()], pod(), id="its image is there"),
    ],
)
def test_a_pod_goes_to_the_best_node(scene: Scene, given: Sequence[Builder | Object], asked: PodBuilder) -> None:
    scene.given(*given)
    scene.create(asked)
    assert scene.place_of("p") == "best"


def test_the_pods_of_a_service_spread_over_zones_unasked(scene: Scene) -> None:
    zone_of = {f"n{i}": f"z{i % 3}" for i in range(6)}
    scene.given(make_service("web", WEB), *(sized(name, "4").zone(zone) for name, zone in zone_of.items()))
    scene.create(*(asking(f"p{i}", "100m").label(WEB) for i in range(9)))
    assert wait_until(lambda: len(scene.placed()) == 9)
    assert Counter(zone_of[node] for node in scene.placed().values()) == {"z0": 3, "z1": 3, "z2": 3}

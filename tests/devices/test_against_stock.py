"""Random claims on random pools, compared with the stock scheduler's own plugin."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from extender.plugins.dynamic_resources import DynamicResourcesFilter, DynamicResourcesScore
from tests.builders import Object, make_node, make_pod
from tests.devices.strategies import CLASSES, NODES, claims, rules, slices, taken
from tests.framework.cluster import refusals, scores
from tests.stock.oracle import Oracle

pytestmark = [pytest.mark.stock, pytest.mark.slow]


def unlike(item: Object) -> tuple[str, str]:
    return item["kind"], item["metadata"]["name"]


@settings(
    max_examples=300,
    phases=[Phase.generate, Phase.shrink],
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(
    claimed=st.one_of(st.tuples(claims("c0")), st.tuples(claims("c0"), claims("c1"))),
    offered=st.lists(slices(), max_size=4, unique_by=unlike),
    others=st.lists(st.one_of(taken(), taken(), rules()), max_size=3, unique_by=unlike),
)
def test_pods_get_devices_on_the_nodes_where_kube_scheduler_finds_them(
    oracle: Oracle, claimed: Sequence[Object], offered: list[Object], others: list[Object]
) -> None:
    pod = make_pod("p").resource_claim("c0")
    for claim in claimed[1:]:
        pod.resource_claim(claim["metadata"]["name"])
    nodes = [make_node(name).zone(f"z{number % 2 + 1}").obj() for number, name in enumerate(NODES)]
    objects = [*CLASSES, *nodes, *claimed, *offered, *others]
    stock = oracle.answer(objects, pod.obj())
    assert "error" not in stock
    ours = refusals(DynamicResourcesFilter(), pod.obj(), *objects)
    found = {name: {"code": r.code.title, "plugin": r.plugin, "reasons": [*r.reasons]} for name, r in ours.items()}
    assert found == {name: status for name, status in stock["filter"].items() if status["code"] != "Success"}
    fitting = {name: 2 * score for name, score in _scores(pod.obj(), objects, ours.keys()).items()}
    assert fitting == {name: by_plugin["DynamicResources"] for name, by_plugin in (stock.get("scores") or {}).items()}


def _scores(pod: Object, objects: list[Object], refused: object) -> dict[str, int]:
    """Returns the scores of the feasible nodes; 0 if the priority gives none."""
    assert isinstance(refused, type({}.keys()))
    feasible = [name for name in NODES if name not in refused]
    kept = [each for each in objects if each["kind"] != "Node" or each["metadata"]["name"] in feasible]
    return dict.fromkeys(feasible, 0) | scores(DynamicResourcesScore(), pod, *kept)

"""InterPodAffinity, Score: weights of the pod's terms and of others', and their normalisation."""

from __future__ import annotations

from typing import Any

import pytest

from extender.plugins.inter_pod_affinity import InterPodAffinityScore
from tests.builders import HOSTNAME, ZONE, PodBuilder, make_namespace, make_node, make_pod
from tests.framework.cluster import scores

WEB, DB = {"app": "web"}, {"app": "db"}
NODES = [make_node(name).zone(f"z{name[0]}").obj() for name in ("a1", "a2", "b1")] + [make_node("bare").obj()]


def standing(node: str, labels: dict[str, str], namespace: str = "default") -> PodBuilder:
    return make_pod(f"on-{node}", namespace).label(labels).node(node)


def scored(rule: InterPodAffinityScore, pod: PodBuilder, *placed: PodBuilder, raw: bool = True) -> dict[str, int]:
    namespaces = [make_namespace("prod", env="prod")]
    return scores(rule, pod.obj(), *NODES, *namespaces, *(each.obj() for each in placed), raw=raw)


@pytest.mark.parametrize(
    ("pod", "placed", "raw"),
    [
        pytest.param(
            make_pod("p").affinity(ZONE, weight=10, labels=DB),
            [standing("a1", DB), standing("a1", DB).uid("2"), standing("b1", DB)],
            {"a1": 20, "a2": 20, "b1": 10, "bare": 0},
            id="each pod adds the weight to its zone",
        ),
        pytest.param(
            make_pod("p").anti_affinity(HOSTNAME, weight=10, labels=DB),
            [standing("a1", DB)],
            {"a1": -10, "a2": 0, "b1": 0, "bare": 0},
            id="anti-affinity takes it off",
        ),
        pytest.param(
            make_pod("p").affinity(ZONE, weight=10, labels=DB).anti_affinity(ZONE, weight=4, labels=WEB),
            [standing("a1", DB), standing("a2", WEB), standing("bare", DB)],
            {"a1": 6, "a2": 6, "b1": 0, "bare": 0},
            id="terms add up",
        ),
        pytest.param(
            make_pod("p").affinity(ZONE, weight=10, labels=DB, namespaceSelector={"matchLabels": {"env": "prod"}}),
            [standing("a1", DB), standing("b1", DB, "prod")],
            {"a1": 0, "a2": 0, "b1": 10, "bare": 0},
            id="selected namespaces",
        ),
        pytest.param(
            make_pod("p").label(WEB),
            [
                standing("a1", DB).affinity(ZONE, weight=8, labels=WEB),
                standing("b1", DB).anti_affinity(HOSTNAME, weight=3, labels=WEB),
            ],
            {"a1": 8, "a2": 8, "b1": -3, "bare": 0},
            id="preferences of others",
        ),
        pytest.param(
            make_pod("p").label(WEB),
            [standing("a1", DB).affinity(ZONE, labels=WEB), standing("b1", DB).anti_affinity(HOSTNAME, labels=WEB)],
            {"a1": 1, "a2": 1, "b1": 0, "bare": 0},
            id="a required affinity of others weighs one; required anti-affinity is no matter of preference",
        ),
        pytest.param(
            make_pod("p").label(WEB), [standing("a1", DB).affinity(ZONE, weight=8, labels=DB)], {}, id="nothing"
        ),
    ],
)
def test_raw(pod: PodBuilder, placed: list[PodBuilder], raw: dict[str, int]) -> None:
    assert scored(InterPodAffinityScore(), pod, *placed) == raw


@pytest.mark.parametrize(
    ("rule", "pod", "raw"),
    [
        pytest.param(
            InterPodAffinityScore(40), make_pod("p").label(WEB), {"a1": 43, "a2": 43}, id="hardPodAffinityWeight"
        ),
        pytest.param(InterPodAffinityScore(0), make_pod("p").label(WEB), {"a1": 3, "a2": 3}, id="of 0"),
        pytest.param(
            InterPodAffinityScore(1, ignore_preferred_terms_of_existing_pods=True),
            make_pod("p").label(WEB),
            {},
            id="ignored",
        ),
        pytest.param(
            InterPodAffinityScore(1, ignore_preferred_terms_of_existing_pods=True),
            make_pod("p").label(WEB).affinity(ZONE, weight=5, labels=DB),
            {"a1": 9, "a2": 9},
            id="not ignored where the pod has preferences itself",
        ),
    ],
)
def test_arguments(rule: InterPodAffinityScore, pod: PodBuilder, raw: dict[str, int]) -> None:
    other = standing("a1", DB).affinity(ZONE, labels=WEB).affinity(ZONE, weight=3, labels=WEB)
    assert {name: sum_ for name, sum_ in scored(rule, pod, other).items() if sum_} == raw


@pytest.mark.parametrize(
    ("placed", "want"),
    [
        pytest.param([standing("a1", WEB)], {"a1": 0, "a2": 100, "b1": 100, "bare": 100}, id="below zero"),
        pytest.param(
            [standing("a1", DB), standing("a2", DB), standing("a2", DB).uid("2"), standing("b1", WEB)],
            {"a1": 66, "a2": 100, "b1": 0, "bare": 33},
            id="between the least and the most, rounded down",
        ),
        pytest.param([], {"a1": 0, "a2": 0, "b1": 0, "bare": 0}, id="no differences"),
    ],
)
def test_normalised(placed: list[PodBuilder], want: dict[str, int]) -> None:
    pod = make_pod("p").affinity(HOSTNAME, weight=1, labels=DB).anti_affinity(HOSTNAME, weight=1, labels=WEB)
    assert scored(InterPodAffinityScore(), pod, *placed, raw=False) == want


def test_preferences_of_pods_on_unknown_nodes_do_not_count() -> None:
    ghost: dict[str, Any] = scored(
        InterPodAffinityScore(), make_pod("p").label(WEB), standing("ghost", DB).affinity(ZONE, weight=9, labels=WEB)
    )
    assert set(ghost.values()) == {0}

"""InterPodAffinity, Filter: affinity, anti-affinity, and that of placed pods; reasons in upstream's words."""

from __future__ import annotations

from typing import Any

import pytest

from extender.framework.status import unresolvable, unschedulable
from extender.plugins.inter_pod_affinity import InterPodAffinityFilter
from tests.builders import HOSTNAME, ZONE, PodBuilder, expression, make_namespace, make_node, make_pod
from tests.framework.cluster import refusals

NAME = "InterPodAffinity"
LACKING = unresolvable(NAME, "node(s) didn't match pod affinity rules")
CLASHING = unschedulable(NAME, "node(s) didn't match pod anti-affinity rules")
REFUSED = unschedulable(NAME, "node(s) didn't satisfy existing pods anti-affinity rules")

WEB, DB = {"app": "web"}, {"app": "db"}
NODES = [
    make_node("a1").zone("za").obj(),
    make_node("a2").zone("za").obj(),
    make_node("b1").zone("zb").obj(),
    make_node("bare").obj(),
]
NAMESPACES = [make_namespace("default"), make_namespace("prod", env="prod"), make_namespace("dev", env="dev")]


def standing(node: str, labels: dict[str, str], namespace: str = "default") -> PodBuilder:
    return make_pod(f"on-{node}", namespace).label(labels).node(node)


def refused_by(pod: PodBuilder, *placed: PodBuilder) -> dict[str, Any]:
    return refusals(InterPodAffinityFilter(), pod.obj(), *NODES, *NAMESPACES, *(each.obj() for each in placed))


def everywhere(refusal: Any, *but: str) -> dict[str, Any]:
    return {name: refusal for name in ("a1", "a2", "b1", "bare") if name not in but}


@pytest.mark.parametrize(
    ("pod", "placed", "refused"),
    [
        pytest.param(
            make_pod("p").affinity(ZONE, labels=DB),
            [standing("a1", DB)],
            everywhere(LACKING, "a1", "a2"),
            id="in the zone",
        ),
        pytest.param(
            make_pod("p").affinity(HOSTNAME, labels=DB),
            [standing("a1", DB)],
            everywhere(LACKING, "a1"),
            id="on the node",
        ),
        pytest.param(
            make_pod("p").affinity(ZONE, labels=DB),
            [standing("a1", DB).deleted()],
            everywhere(LACKING, "a1", "a2"),
            id="a terminating pod will do",
        ),
        pytest.param(make_pod("p").affinity(ZONE, labels=DB), [], everywhere(LACKING), id="no pod there"),
        pytest.param(
            make_pod("p").label(WEB).affinity(ZONE, labels=WEB), [], {"bare": LACKING}, id="the first of its group"
        ),
        pytest.param(
            make_pod("p").label(WEB).affinity(ZONE, labels=WEB),
            [standing("bare", WEB)],
            {"bare": LACKING},
            id="still the first: the other is in no domain",
        ),
        pytest.param(
            make_pod("p").label(WEB).affinity(ZONE, labels=WEB),
            [standing("b1", WEB)],
            everywhere(LACKING, "b1"),
            id="the second goes to the first",
        ),
        pytest.param(
            make_pod("p").label(WEB).affinity(ZONE, labels=WEB).affinity(ZONE, labels=DB),
            [],
            everywhere(LACKING),
            id="not the first: it does not match all of its terms",
        ),
        pytest.param(
            make_pod("p").affinity(ZONE, labels=DB).affinity(HOSTNAME, labels={"tier": "back"}),
            [
                standing("a1", DB | {"tier": "back"}),
                standing("b1", DB).uid("x"),
                standing("b1", {"tier": "back"}).uid("y"),
            ],
            everywhere(LACKING, "a1"),
            id="one pod must match all terms",
        ),
        pytest.param(
            make_pod("p").affinity(ZONE, labels=DB),
            [standing("a1", DB, "prod")],
            everywhere(LACKING),
            id="own namespace",
        ),
        pytest.param(
            make_pod("p").affinity(ZONE, labels=DB, namespaces=["prod"]),
            [standing("a1", DB, "prod")],
            everywhere(LACKING, "a1", "a2"),
            id="a named namespace",
        ),
        pytest.param(
            make_pod("p").affinity(ZONE, labels=DB, namespaceSelector={"matchLabels": {"env": "prod"}}),
            [standing("a1", DB, "dev"), standing("b1", DB, "prod")],
            everywhere(LACKING, "b1"),
            id="selected namespaces",
        ),
        pytest.param(
            make_pod("p").affinity(ZONE, labels=DB, namespaceSelector={}),
            [standing("a1", DB, "never-heard-of")],
            everywhere(LACKING, "a1", "a2"),
            id="an empty namespace selector selects all, known or not",
        ),
        pytest.param(
            make_pod("p").affinity(
                ZONE, labels=DB, namespaceSelector={"matchExpressions": [expression("env", "DoesNotExist")]}
            ),
            [standing("a1", DB, "never-heard-of"), standing("b1", DB)],
            everywhere(LACKING, "b1"),
            id="any other selects among those that are known",
        ),
    ],
)
def test_affinity(pod: PodBuilder, placed: list[PodBuilder], refused: dict[str, Any]) -> None:
    assert refused_by(pod, *placed) == refused


@pytest.mark.parametrize(
    ("pod", "placed", "refused"),
    [
        pytest.param(
            make_pod("p").anti_affinity(ZONE, labels=DB),
            [standing("a1", DB)],
            {"a1": CLASHING, "a2": CLASHING},
            id="nowhere in the zone; a node in no zone will do",
        ),
        pytest.param(
            make_pod("p").anti_affinity(HOSTNAME, labels=DB), [standing("a1", DB)], {"a1": CLASHING}, id="node"
        ),
        pytest.param(make_pod("p").anti_affinity(ZONE, labels=DB), [standing("a1", WEB)], {}, id="no such pod"),
        pytest.param(
            make_pod("p").anti_affinity(ZONE, labels=DB).anti_affinity(HOSTNAME, labels=WEB),
            [standing("a1", DB), standing("b1", WEB)],
            {"a1": CLASHING, "a2": CLASHING, "b1": CLASHING},
            id="one term is enough",
        ),
        pytest.param(
            make_pod("p").affinity(ZONE, labels=DB).anti_affinity(HOSTNAME, labels=DB),
            [standing("a1", DB)],
            {"a1": CLASHING, "b1": LACKING, "bare": LACKING},
            id="with it, but not beside it",
        ),
        pytest.param(
            make_pod("p").affinity(ZONE, labels=DB).anti_affinity(HOSTNAME, labels=WEB),
            [standing("a1", WEB)],
            everywhere(LACKING),
            id="an unmet affinity is reported before a violated anti-affinity",
        ),
    ],
)
def test_anti_affinity(pod: PodBuilder, placed: list[PodBuilder], refused: dict[str, Any]) -> None:
    assert refused_by(pod, *placed) == refused


@pytest.mark.parametrize(
    ("pod", "placed", "refused"),
    [
        pytest.param(
            make_pod("p").label(WEB),
            [standing("a1", DB).anti_affinity(ZONE, labels=WEB)],
            {"a1": REFUSED, "a2": REFUSED},
            id="in its zone",
        ),
        pytest.param(
            make_pod("p").label(WEB), [standing("bare", DB).anti_affinity(ZONE, labels=WEB)], {}, id="it is in no zone"
        ),
        pytest.param(
            make_pod("p", "dev").label(WEB),
            [standing("a1", DB).anti_affinity(ZONE, labels=WEB)],
            {},
            id="other namespace",
        ),
        pytest.param(
            make_pod("p", "prod").label(WEB),
            [standing("a1", DB).anti_affinity(HOSTNAME, namespaceSelector={"matchLabels": {"env": "prod"}})],
            {"a1": REFUSED},
            id="the pod's namespace is selected",
        ),
        pytest.param(
            make_pod("p", "never-heard-of").label(WEB),
            [
                standing("a1", DB).anti_affinity(
                    HOSTNAME, namespaceSelector={"matchExpressions": [expression("env", "DoesNotExist")]}
                )
            ],
            {"a1": REFUSED},
            id="a namespace that is not known has no labels",
        ),
        pytest.param(
            make_pod("p").label(WEB).anti_affinity(HOSTNAME, labels=DB),
            [standing("a1", DB).anti_affinity(ZONE, labels=WEB)],
            {"a1": CLASHING, "a2": REFUSED},
            id="the pod's own terms are reported first",
        ),
    ],
)
def test_anti_affinity_of_others(pod: PodBuilder, placed: list[PodBuilder], refused: dict[str, Any]) -> None:
    assert refused_by(pod, *placed) == refused


def test_a_nominated_pods_anti_affinity_counts_if_the_predicate_applies() -> None:
    nominated = make_pod("n").nominated("b1").priority(5).anti_affinity(HOSTNAME, labels=WEB)
    refusing = standing("a1", DB).anti_affinity(HOSTNAME, labels=WEB)
    assert refused_by(make_pod("p").label(WEB), nominated, refusing) == {"a1": REFUSED, "b1": REFUSED}
    assert refused_by(make_pod("p").label(WEB), nominated) == {}, "upstream skips the plugin then"

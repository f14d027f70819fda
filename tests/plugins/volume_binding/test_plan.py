"""The plan for a chosen node agrees with the filter."""

from __future__ import annotations

from extender.framework.status import Refusal
from extender.plugins.volume_binding import VolumePlan, plan_volumes
from tests.builders import (
    ZONE,
    Object,
    expression,
    make_node,
    make_pod,
    make_pv,
    make_pvc,
    make_storage_class,
    node_term,
)
from tests.framework.cluster import pod_info, table_of

NODES = [make_node("a").zone("z0").obj(), make_node("b").zone("z1").obj()]
CLASS = make_storage_class("s", allowedTopologies=[{"matchLabelExpressions": [{"key": ZONE, "values": ["z0"]}]}])
HERE = [node_term(expression(ZONE, "In", "z0"))]


def planned(node: str, pod: Object, *objects: Object) -> tuple[dict[str, str], list[str]] | Refusal:
    """Returns (claim -> volume, claims to provision)."""
    table = table_of(*NODES, CLASS, *objects)
    plan = plan_volumes(pod_info(pod), table, table.nodes.row_of[node])
    if isinstance(plan, Refusal):
        return plan
    return {claim.name: volume.name for claim, volume in plan.bind}, [claim.name for claim in plan.provision]


def test_each_claim_is_bound_or_provisioned() -> None:
    pod = make_pod("p").pvc("bound").pvc("small").pvc("large").obj()
    claims = [
        make_pvc("bound", volume="v0"),
        make_pvc("large", storage_class="s", storage="3Gi"),
        make_pvc("small", storage_class="s", storage="1Gi"),
    ]
    volumes = [make_pv("v0", claim="default/bound"), make_pv("v1", storage_class="s", storage="2Gi", node_terms=HERE)]
    assert planned("a", pod, *claims, *volumes) == ({"small": "v1"}, ["large"])
    assert isinstance(planned("b", pod, *claims, *volumes), Refusal)


def test_the_smallest_volume_that_fits() -> None:
    volumes = [make_pv(f"v{size}", storage_class="s", storage=f"{size}Gi") for size in (5, 2, 1, 3)]
    claim = make_pvc("c", storage_class="s", storage="1500Mi")
    assert planned("b", make_pod("p").pvc("c").obj(), claim, *volumes) == ({"c": "v2"}, [])


def test_a_volume_reserved_for_the_claim_is_preferred_to_smaller_ones() -> None:
    volumes = [make_pv("kept", storage_class="s", storage="9Gi", claim="default/c"), make_pv("v", storage_class="s")]
    assert planned("b", make_pod("p").pvc("c").obj(), make_pvc("c", storage_class="s"), *volumes) == ({"c": "kept"}, [])


def test_nothing_to_do() -> None:
    table = table_of(*NODES)
    assert plan_volumes(pod_info(make_pod("p").obj()), table, 0) == VolumePlan()

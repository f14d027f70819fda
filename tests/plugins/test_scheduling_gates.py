"""SchedulingGates: pods that are not ready to be scheduled."""

from __future__ import annotations

from extender.framework.status import unresolvable
from extender.plugins.scheduling_gates import SchedulingGates
from tests.builders import make_node, make_pod
from tests.framework.cluster import refusals


def test_gates_keep_a_pod_from_every_node() -> None:
    nodes = [make_node("a").obj(), make_node("b").obj()]
    gated = make_pod("p").gate("example.com/one").gate("example.com/two").obj()
    refusal = unresolvable("SchedulingGates", "waiting for scheduling gates: [example.com/one example.com/two]")
    assert refusals(SchedulingGates(), gated, *nodes) == {"a": refusal, "b": refusal}
    assert refusals(SchedulingGates(), make_pod("p").obj(), *nodes) == {}

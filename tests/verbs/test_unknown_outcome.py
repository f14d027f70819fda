"""filter and preempt for a pod that may be bound already: its own place is free for it, and no pod is evicted."""

from __future__ import annotations

from math import inf

import msgspec
import pytest

from extender.cache.cache import Cache
from extender.errors import OutcomeUnknown
from extender.model.node import Node
from extender.runtime.ports import Telemetry
from extender.verbs.bind import Bind
from extender.verbs.filter import ELSEWHERE, Filter
from extender.verbs.preempt import Preempt
from extender.verbs.verb import Confirmation
from tests.builders import NodeBuilder, Object, PodBuilder, make_node, make_pod
from tests.verbs.cluster import PROFILES, FakeBinder, answer, args, binding, cache_of, preemption_args, tell

NODES = [make_node(name).allocatable(cpu="2", memory="4Gi", pods="10").obj() for name in ("n", "m")]
LESSER = make_pod("lesser").uid("lesser").req(cpu="2").node("m").obj()
PORT, FULL = make_pod("p").host_port(80), make_pod("p").req(cpu="2").priority(100)


def without_answer(pod: Object, *others: Object) -> tuple[Cache, Bind]:
    """A cache, and the bind of the pod to n, whose first Binding got no answer."""
    cache = cache_of(*NODES, pod, *others)
    binder = FakeBinder(OutcomeUnknown("the connection ended"))
    bind = Bind(cache, PROFILES, binder, Telemetry(), confirmation=Confirmation(cache, lambda _: None))
    assert answer(bind, binding(pod, "n"))["Error"]
    return cache, bind


@pytest.mark.parametrize("made", [pytest.param(FULL, id="room"), pytest.param(PORT, id="host port")])
def test_filter_leaves_the_one_node_where_a_repeated_bind_can_succeed(made: PodBuilder) -> None:
    pod = made.obj()
    cache, bind = without_answer(pod)
    result = answer(Filter(cache, PROFILES, Telemetry()), args(pod, names=["m", "n"]))
    assert (result["NodeNames"], result["FailedNodes"]) == (["n"], {"m": ELSEWHERE})
    assert answer(bind, binding(pod, "n")) == {"Error": ""}


@pytest.mark.parametrize(
    ("changed", "asked", "left"),
    [
        pytest.param(None, ["m"], ["m"], id="the scheduler has turned it down"),
        pytest.param(make_node("n").allocatable(cpu="1", memory="4Gi", pods="10"), ["m", "n"], ["m"], id="it shrank"),
    ],
)
def test_filter_judges_the_other_nodes_where_that_one_will_not_do(
    changed: NodeBuilder | None, asked: list[str], left: list[str]
) -> None:
    pod = FULL.obj()
    cache, _ = without_answer(pod)
    if changed is not None:
        tell(cache, [changed.obj()])
    assert answer(Filter(cache, PROFILES, Telemetry()), args(pod, names=asked))["NodeNames"] == left


def test_filter_judges_the_other_nodes_if_that_one_was_deleted() -> None:
    pod = FULL.obj()
    cache, _ = without_answer(pod)
    cache.deleted("Node", msgspec.convert(NODES[0], Node))
    assert answer(Filter(cache, PROFILES, Telemetry()), args(pod, names=["m", "n"]))["NodeNames"] == ["m"]


def test_no_pod_is_evicted_elsewhere_while_the_pod_is_assumed() -> None:
    pod = FULL.obj()
    cache, _ = without_answer(pod, LESSER)
    preempt, asked = Preempt(cache, PROFILES), preemption_args(pod, {"m": ["lesser"]})
    assert answer(preempt, asked) == {"NodeNameToMetaVictims": {}}
    cache.deleted("Node", msgspec.convert(NODES[0], Node))
    assert answer(preempt, asked) == {"NodeNameToMetaVictims": {}}
    assert cache.expire([pod["metadata"]["uid"]], inf) == ["default/p"]
    assert answer(preempt, asked)["NodeNameToMetaVictims"].keys() == {"m"}

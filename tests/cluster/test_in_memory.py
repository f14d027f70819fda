"""Binding without an API server: refused and reported as by the real one."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from extender.cache.cache import Cache
from extender.cluster.in_memory import InMemoryCluster
from extender.errors import Conflict, NotFound
from extender.model.kinds import KINDS
from extender.model.pod import Pod
from extender.runtime.clock import ManualClock
from extender.runtime.ports import Binding, Telemetry
from tests.builders import make_node, make_pod


def started(*objects: dict[str, Any]) -> tuple[InMemoryCluster, Cache]:
    cache = Cache(ManualClock(), Telemetry())
    cluster = InMemoryCluster([msgspec.convert(obj, KINDS[obj["kind"]].type) for obj in objects], cache)
    cluster.start()
    return cluster, cache


P = make_pod("p").uid("u").annotation({"mine": "1"})


def test_the_cache_receives_every_object_and_every_bind() -> None:
    cluster, cache = started(make_node("n").obj(), P.obj())
    assert (cache.size().nodes, cache.size().pods) == (1, 1)
    cluster.bind(Binding("default", "p", "u", "n"))
    placement = cache.placement("u")
    assert placement is not None
    assert placement.node_name == "n"
    assert isinstance(placement.info.pod, Pod)
    assert placement.info.pod.annotations == {"mine": "1"}
    cluster.bind(Binding("default", "p", "u", "n"))


@pytest.mark.parametrize(
    ("pod", "uid", "error", "message"),
    [
        pytest.param(make_pod("other"), "u", NotFound, "not found", id="not there"),
        pytest.param(P, "old", Conflict, "UID in precondition: old", id="recreated"),
        pytest.param(make_pod("p").uid("u").node("m"), "u", Conflict, 'already assigned to node "m"', id="elsewhere"),
        pytest.param(make_pod("p").uid("u").deleted(), "u", Conflict, "is being deleted", id="terminating"),
        pytest.param(make_pod("p").uid("u").gate("g"), "u", Conflict, "schedulingGates", id="gated"),
    ],
)
def test_a_bind_that_the_api_server_would_refuse_is_refused(
    pod: Any, uid: str, error: type[Exception], message: str
) -> None:
    cluster, _ = started(make_node("n").obj(), make_node("m").obj(), pod.obj())
    with pytest.raises(error, match=message):
        cluster.bind(Binding("default", "p", uid, "n"))

"""Other extenders are plugged in."""

from __future__ import annotations

import pytest

from extender.app.loop import extenders_of, sent_whole
from extender.cache.cache import Cache
from extender.errors import ExtenderRefused
from extender.model.extender_config import ExtenderConfig
from extender.runtime.clock import ManualClock
from extender.runtime.ports import Binding, Telemetry
from extender.scheduler.other_extenders import ExtenderBinder, Extenders
from tests.builders import make_node, make_pod
from tests.framework.cluster import pod_info, table_of
from tests.scheduler.fake_extender import FakeExtender
from tests.verbs.cluster import FakeBinder

BY_NAME, WHOLE = ExtenderConfig("http://a", node_cache_capable=True), ExtenderConfig("http://b")


@pytest.mark.parametrize(
    ("configs", "kinds"),
    [
        pytest.param([], set(), id="none"),
        pytest.param([BY_NAME], {"Pod"}, id="by name"),
        pytest.param([BY_NAME, WHOLE], {"Pod", "Node"}, id="one without a cache"),
    ],
)
def test_what_is_kept_whole(configs: list[ExtenderConfig], kinds: set[str]) -> None:
    assert sent_whole(configs) == kinds


def test_two_that_prioritize_are_asked_at_the_same_time() -> None:
    """Each answers once the other was asked too."""
    table = table_of(make_node("a").obj(), make_node("b").obj())
    scores = [{"Host": "a", "Score": 1}]
    with FakeExtender(prioritize=scores) as one, FakeExtender(prioritize=scores) as other:
        one.verbs["prioritize"] = lambda _: scores if other.was_asked() else None
        other.verbs["prioritize"] = lambda _: scores if one.was_asked() else None
        configs = [
            ExtenderConfig(fake.url, prioritize_verb="prioritize", weight=1, node_cache_capable=True)
            for fake in (one, other)
        ]
        total = extenders_of(configs).prioritize(pod_info(make_pod("p").obj()), table, table.nodes.rows)
    assert total.tolist() == [20, 0]


def test_the_pod_that_is_bound_is_the_assumed_one() -> None:
    cache, bound = Cache(ManualClock(), Telemetry()), FakeBinder()
    pod = pod_info(make_pod("p").obj())
    cache.changed("Node", table_of(make_node("n").obj()).nodes.objects[0])  # type: ignore[arg-type]  # there is one
    cache.assume(pod, "n")
    with FakeExtender(bind={}) as fake:
        extenders = extenders_of([ExtenderConfig(fake.url, bind_verb="bind")])
        binder = ExtenderBinder(bound, extenders, cache.placement)
        binder.bind(Binding("default", "p", pod.uid, "n"))
        binder.bind(Binding("default", "other", "another", "n"))
        assert [request["PodName"] for request in fake.requests("bind")] == ["p"]
        with pytest.raises(ExtenderRefused, match="cannot write the annotations of Bind rules \\(slot\\)"):
            binder.bind(Binding("default", "p", pod.uid, "n", (("slot", "1"),)))
        assert len(fake.requests("bind")) == 1
    assert [uid for uid, _ in bound.bound] == ["another"]
    ExtenderBinder(bound, Extenders(), cache.placement).bind(Binding("default", "p", pod.uid, "n"))
    assert [uid for uid, _ in bound.bound] == ["another", pod.uid]

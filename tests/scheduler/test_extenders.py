"""Other extenders under the loop's scheduling cycle: real HTTP, the real engine, made-up answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, nullcontext
from random import Random
from typing import Any

import pytest

from extender.cache.pod_states import PodPlacement, PodState
from extender.cluster.election.lease import Fence, LeaderBinder
from extender.cluster.http_extender import HttpExtender
from extender.engine.decide import SchedulingCycle
from extender.engine.decision import Chosen, Failure
from extender.errors import Conflict, ExtenderError, ExtenderRefused, ExtenderUnanswered
from extender.framework.profile import DEFAULT_LIMITS, Profile
from extender.model.extender_config import ExtenderConfig
from extender.plugins.node_resources_fit import NodeResourcesFitFilter
from extender.plugins.node_unschedulable import NodeUnschedulable
from extender.runtime.ports import Binding, Nominating
from extender.runtime.unsettled import UnsettledWrites
from extender.scheduler.other_extenders import Extender, ExtenderBinder, Extenders
from extender.table import Table
from extender.table.features import VERSIONS
from tests.builders import Object, PodBuilder, make_node, make_pod
from tests.framework.cluster import pod_info, table_of
from tests.scheduler.fake_extender import FakeExtender, all_pass, passing
from tests.verbs.cluster import FakeBinder

GPU = "example.com/gpu"
PROFILE = Profile("test", (NodeUnschedulable(), NodeResourcesFitFilter()), (), preemption=DEFAULT_LIMITS)
VERBS = ("filter", "prioritize", "preempt", "bind")

Start = Callable[..., FakeExtender]


class Started:
    """Extenders that were started, in order, and what the cycle knows of them."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self.configured: list[Extender] = []
        self.fakes: list[FakeExtender] = []

    def add(self, verbs: Mapping[str, Any], **fields: Any) -> FakeExtender:
        fake = self._stack.enter_context(FakeExtender(**verbs))
        named = {f"{verb}_verb": verb for verb in VERBS if verb in verbs}
        config = ExtenderConfig(fake.url, **{"node_cache_capable": True, "weight": 1, **named, **fields})
        self.configured.append(Extender(config, HttpExtender(config).post))
        self.fakes.append(fake)
        return fake

    def decide(self, pod: PodBuilder, table: Table) -> Chosen | Failure:
        return SchedulingCycle(PROFILE, Random(0), Extenders(self.configured)).schedule_pod(pod_info(pod.obj()), table)


@pytest.fixture
def started() -> Iterator[Started]:
    with ExitStack() as stack:
        yield Started(stack)


def nodes(*names: str) -> list[Any]:
    return [make_node(name).capacity(cpu="1", pods="10").obj() for name in names]


def node_of(decided: Chosen | Failure) -> str:
    assert isinstance(decided, Chosen), decided
    return decided.node_name


def unfit(decided: Chosen | Failure) -> Failure:
    assert isinstance(decided, Failure), decided
    return decided


# ---- filter


def test_each_is_asked_about_what_the_one_before_it_let_pass(started: Started) -> None:
    first = started.add({"filter": passing("b", "c", a="no")})
    second = started.add({"filter": passing("c")})
    table = table_of(*nodes("a", "b", "c"), make_node("d").unschedulable().obj())
    assert node_of(started.decide(make_pod("p"), table)) == "c"
    assert [request["NodeNames"] for request in (*first.requests("filter"), *second.requests("filter"))] == [
        ["a", "b", "c"],
        ["b", "c"],
    ]


def test_no_extender_is_asked_once_no_node_is_left(started: Started) -> None:
    first = started.add({"filter": passing(a="no")})
    second = started.add({"filter": all_pass})
    started.decide(make_pod("p"), table_of(*nodes("a")))
    assert (len(first.asked), len(second.asked)) == (1, 0)


ALL = "0/2 nodes are available: "


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        pytest.param(passing(a="busy", b="busy"), f"{ALL}2 busy.", id="failed"),
        pytest.param({"FailedAndUnresolvableNodes": {"a": "broken"}}, f"{ALL}1 broken.", id="unresolvable"),
        pytest.param({"NodeNames": []}, ALL.rstrip(), id="silence"),
        pytest.param(
            {"FailedNodes": {"a": "busy", "b": "busy"}, "FailedAndUnresolvableNodes": {"a": "broken"}},
            f"{ALL}1 broken, 1 busy.",
            id="in both maps",
        ),
    ],
)
def test_what_is_held_against_nodes(started: Started, answer: Any, message: str) -> None:
    started.add({"filter": answer})
    turned_down = unfit(started.decide(make_pod("p"), table_of(*nodes("a", "b"))))
    assert turned_down.message.partition(" preemption:")[0] == message
    assert turned_down.rejection.unschedulable == {"Extender"}
    assert not turned_down.rejection.unresolvable  # any event is worth a try
    assert turned_down.reason == "Unschedulable"


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        pytest.param({"Error": "database down"}, "database down", id="an error"),
        pytest.param(passing("c"), "filter lets c pass, which is not in the request", id="a stranger"),
        pytest.param(b"<html>", "the answer: JSON is malformed", id="no JSON"),
        pytest.param(b"", "the answer: Input data was truncated", id="nothing"),
    ],
)
@pytest.mark.parametrize("ignorable", [False, True])
def test_a_failing_filter(started: Started, answer: Any, message: str, ignorable: bool) -> None:
    started.add({"filter": answer}, ignorable=ignorable)
    decided = started.decide(make_pod("p"), table_of(*nodes("a")))
    if ignorable:
        assert node_of(decided) == "a"
        return
    assert message in unfit(decided).message
    assert unfit(decided).reason == "SchedulerError"


def test_status_500_fails_the_pod(started: Started) -> None:
    fake = started.add({"filter": all_pass})
    fake.status = 500
    assert (
        unfit(started.decide(make_pod("p"), table_of(*nodes("a")))).message
        == f"{fake.url}/filter answered with status 500"
    )


def test_whole_nodes_where_they_are_not_cached(started: Started) -> None:
    def answer(request: Any) -> Any:
        return {"Nodes": {"items": [{"metadata": {"name": "b"}}]}, "NodeNames": ["a"]}  # names were not asked about

    fake = started.add({"filter": answer}, node_cache_capable=False)
    table = table_of(*nodes("a", "b"))
    assert node_of(started.decide(make_pod("p"), table)) == "b"
    (request,) = fake.requests("filter")
    assert request["NodeNames"] is None
    assert [node["metadata"]["name"] for node in request["Nodes"]["items"]] == ["a", "b"]
    assert request["Nodes"]["items"][0]["status"]["allocatable"]["cpu"] == "1"


def test_a_nominated_node_is_asked_about_alone_first(started: Started) -> None:
    fake = started.add({"filter": lambda request: passing(*(set(request["NodeNames"]) - {"b"}))})
    table = table_of(*nodes("a", "b"))
    assert node_of(started.decide(make_pod("p").nominated("b"), table)) == "a"
    assert [request["NodeNames"] for request in fake.requests("filter")] == [["b"], ["a", "b"]]


# ---- managed resources


@pytest.mark.parametrize(
    ("pod", "asked"),
    [
        pytest.param(make_pod("p").req({GPU: "1"}), True, id="requests"),
        pytest.param(make_pod("p").limit({GPU: "1"}), True, id="limits"),
        pytest.param(
            make_pod("p").spec(initContainers=[{"name": "i", "resources": {"requests": {GPU: "1"}}}]), True, id="init"
        ),
        pytest.param(make_pod("p").req({"example.com/other": "1"}), False, id="another"),
        pytest.param(make_pod("p"), False, id="none"),
    ],
)
def test_only_pods_that_ask_for_what_it_manages(started: Started, pod: PodBuilder, asked: bool) -> None:
    fake = started.add({"filter": all_pass, "prioritize": []}, managed_resources=frozenset({GPU}))
    resources = {"cpu": "1", "pods": "10", GPU: "1", "example.com/other": "1"}
    started.decide(pod, table_of(*(make_node(name).capacity(resources).obj() for name in ("a", "b"))))
    assert [verb for verb, _ in fake.asked] == (["filter", "prioritize"] if asked else [])


# ---- prioritize


def scores(**by_node: int) -> list[dict[str, Any]]:
    return [{"Host": node, "Score": score} for node, score in by_node.items()]


@pytest.mark.parametrize(
    ("answers", "weights", "best"),
    [
        pytest.param([scores(a=1, b=2)], [1], "b", id="one"),
        pytest.param([scores(a=1, b=2), scores(a=2, b=0)], [1, 1], "a", id="sum"),
        pytest.param([scores(a=1, b=2), scores(a=2, b=0)], [3, 1], "b", id="weights"),
        pytest.param([scores(b=1, x=9)], [1], "b", id="a node that was not asked about"),
        pytest.param([scores(a=-5, b=-4)], [1], "b", id="negative"),
        pytest.param([scores(a=1, b=2), b"broken"], [1, 1], "b", id="one fails"),
        pytest.param([scores(b=2**62), scores(b=2**62)], [100, 100], "b", id="no overflow"),
    ],
)
def test_scores_are_weighed_and_added(started: Started, answers: list[Any], weights: list[int], best: str) -> None:
    for answer, weight in zip(answers, weights, strict=True):
        started.add({"prioritize": answer}, weight=weight)
    assert node_of(started.decide(make_pod("p"), table_of(*nodes("a", "b")))) == best


def test_a_score_weighs_ten_times_against_plugins(started: Started) -> None:
    fake = started.add({"prioritize": scores(a=3)}, weight=2)
    table = table_of(*nodes("a", "b"))
    total = Extenders(started.configured).prioritize(pod_info(make_pod("p").obj()), table, table.nodes.rows)
    assert (total.tolist(), fake.requests("prioritize")[0]["NodeNames"]) == ([60, 0], ["a", "b"])


def test_one_node_needs_no_scores(started: Started) -> None:
    fake = started.add({"prioritize": scores(a=1)})
    started.decide(make_pod("p"), table_of(*nodes("a")))
    assert fake.asked == []


def test_those_that_prioritize_are_asked_side_by_side(started: Started) -> None:
    for answer in (scores(a=1, b=2), scores(a=9, b=1)):
        started.add({"prioritize": answer})
    table = table_of(*nodes("a", "b"))
    with ThreadPoolExecutor(2) as pool:
        total = Extenders(started.configured, pool.map).prioritize(
            pod_info(make_pod("p").obj()), table, table.nodes.rows
        )
    assert total.tolist() == [100, 30]


# ---- preempt


def full_nodes() -> Table:
    """Nodes a and b, each full of one lesser pod; that on b costs less to evict."""
    victims = [
        make_pod("va").req(cpu="1").priority(5).node("a").obj(),
        make_pod("vb").req(cpu="1").priority(1).node("b").obj(),
    ]
    return table_of(*nodes("a", "b"), *victims)


def meta(**uids: list[str]) -> dict[str, Any]:
    """An answer to preempt: victims by UID."""
    return {"NodeNameToMetaVictims": {node: {"Pods": [{"UID": uid} for uid in of]} for node, of in uids.items()}}


VA, VB = "pod-default-va", "pod-default-vb"


@pytest.mark.parametrize("names", [True, False])
def test_candidates_are_offered_and_what_is_left_is_chosen_from(started: Started, names: bool) -> None:
    fake = started.add({"preempt": meta(a=[VA])}, node_cache_capable=names)
    decided = unfit(started.decide(make_pod("p").req(cpu="1").priority(10), full_nodes()))
    assert (decided.nominated_node, decided.preemption and decided.preemption.victims[0].uid) == ("a", VA)
    (request,) = fake.requests("preempt")
    offered = request["NodeNameToMetaVictims" if names else "NodeNameToVictims"]
    assert request["NodeNameToVictims" if names else "NodeNameToMetaVictims"] is None
    assert offered.keys() == {"a", "b"}
    assert offered["a"]["NumPDBViolations"] == 0
    (victim,) = offered["a"]["Pods"]
    assert (victim["UID"] if names else victim["metadata"]["uid"]) == VA


@pytest.mark.parametrize(
    ("answers", "node", "message"),
    [
        pytest.param([meta(a=[VA], b=[VB])], "b", "", id="all stay"),
        pytest.param([meta(a=[VA], b=[VB]), meta(a=[VA])], "a", "", id="the next one drops some"),
        pytest.param([{}], None, "preemption: no candidate node for preemption", id="none stays"),
        pytest.param(
            [
                {
                    "NodeNameToMetaVictims": {
                        "a": {"Pods": [{"UID": VA}]},
                        "b": {"Pods": [{"UID": VB}], "NumPDBViolations": 1},
                    }
                }
            ],
            "a",
            "",
            id="its count of violations",
        ),
        pytest.param([meta(c=[VA])], None, "preempt names node c, which does not exist", id="no such node"),
        pytest.param([meta(a=[VB])], None, f"a victim with UID {VB!r}, which is not on node a", id="no such victim"),
        pytest.param([meta(a=[])], None, "preempt gives no victims for node a", id="no victims"),
        pytest.param([b"?"], None, "JSON is malformed", id="no JSON"),
    ],
)
def test_what_is_made_of_candidates(started: Started, answers: list[Any], node: str | None, message: str) -> None:
    for answer in answers:
        started.add({"preempt": answer})
    decided = unfit(started.decide(make_pod("p").req(cpu="1").priority(10), full_nodes()))
    assert decided.preemption is None if node is None else decided.preemption is not None
    assert decided.nominated_node == (Nominating.KEEP if node is None else node)
    assert message in decided.message


@pytest.mark.parametrize(
    ("answer", "node"),
    [
        pytest.param(b"?", "b", id="it fails"),
        pytest.param(meta(a=[VA], b=[]), "a", id="a node without victims"),
    ],
)
def test_preemption_goes_on_without_those_that_may_be_ignored(started: Started, answer: Any, node: str) -> None:
    started.add({"preempt": answer}, ignorable=True)
    assert unfit(started.decide(make_pod("p").req(cpu="1").priority(10), full_nodes())).nominated_node == node


def test_after_an_empty_answer_no_extender_is_asked(started: Started) -> None:
    started.add({"preempt": {}})
    later = started.add({"preempt": meta(a=[VA])})
    started.decide(make_pod("p").req(cpu="1").priority(10), full_nodes())
    assert later.asked == []


def test_nodes_that_only_an_extender_turned_down_have_no_victims(started: Started) -> None:
    """No eviction changes what the plugins see (upstream before kubernetes#135486)."""
    started.add({"filter": passing(a="busy", b="busy"), "preempt": meta(a=[VA])})
    table = table_of(*nodes("a", "b"), make_pod("va").req(cpu="500m").priority(1).node("a").obj())
    decided = unfit(started.decide(make_pod("p").req(cpu="500m").priority(10), table))
    assert (decided.preemption, decided.nominated_node) == (None, Nominating.CLEAR)
    assert [verb for verb, _ in started.fakes[0].asked] == ["filter"]


LESSER = make_pod("va").req(cpu="500m").priority(1).node("a").obj()
SINCE_1_38 = VERSIONS["1.38"].features


def licensed(started: Started, *answers: Any, names: bool = True) -> Failure:
    """Decides about a pod that an extender refuses on node a, where it fits beside the lesser pod va."""
    started.add({"filter": passing(a="no licence", b="no licence")})
    for answer in answers:
        started.add({"preempt": answer}, node_cache_capable=names)
    table = table_of(*nodes("a", "b"), LESSER, features=SINCE_1_38)
    return unfit(started.decide(make_pod("p").req(cpu="500m").priority(10), table))


@pytest.mark.parametrize("names", [True, False])
def test_since_1_38_an_extender_may_add_victims_to_a_node_that_needs_none(started: Started, names: bool) -> None:
    decided = licensed(started, meta(a=[]), meta(a=[VA]), names=names)
    assert decided.nominated_node == "a"
    assert decided.preemption is not None
    assert [victim.uid for victim in decided.preemption.victims] == [VA]
    key = "NodeNameToMetaVictims" if names else "NodeNameToVictims"
    no_pods: list[Object] | None = [] if names else None
    for fake in started.fakes[1:]:
        assert [request[key] for request in fake.requests("preempt")] == [
            {"a": {"Pods": no_pods, "NumPDBViolations": 0}}
        ]


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        pytest.param([meta(a=[])], "preemption: no candidate node for preemption", id="it stays without victims"),
        pytest.param([{}], "preemption: no candidate node for preemption", id="it is left out"),
        pytest.param(
            [meta(a=[VA]), meta(a=[])], "preempt gives no victims for node a", id="the next one takes the victims away"
        ),
        pytest.param([meta(b=[])], "preempt gives no victims for node b", id="an empty node that was not asked"),
        pytest.param(
            [], "preemption: 0/2 nodes are available: 2 No preemption victims found for incoming pod.", id="none"
        ),
    ],
)  # fmt: skip
def test_since_1_38_a_node_without_victims_is_not_nominated(started: Started, answers: list[Any], message: str) -> None:
    decided = licensed(started, *answers)
    assert decided.preemption is None
    assert message in decided.message


# ---- bind


@pytest.mark.parametrize(
    ("answer", "fields", "error", "by_us"),
    [
        pytest.param({}, {}, None, False, id="it binds"),
        pytest.param({"Error": "no"}, {}, ExtenderRefused, False, id="it refuses"),
        pytest.param(b"?", {}, ExtenderUnanswered, False, id="it may have bound"),
        pytest.param({"Error": "no"}, {"ignorable": True}, None, True, id="it refuses, and may be ignored"),
        pytest.param({}, {"managed_resources": frozenset({GPU})}, None, True, id="it is not interested"),
    ],
)
def test_bind(started: Started, answer: Any, fields: Any, error: type[ExtenderError] | None, by_us: bool) -> None:
    started.add({"filter": all_pass})  # binds nothing
    fake, bound = started.add({"bind": answer}, **fields), FakeBinder()
    pod = pod_info(make_pod("p", "shop").obj())
    placements = {pod.uid: PodPlacement(pod, "a", PodState.ASSUMED)}
    binder = ExtenderBinder(bound, Extenders(started.configured), placements.get)
    if error is None:
        binder.bind(Binding("shop", "p", pod.uid, "a"))
    else:
        with pytest.raises(error):
            binder.bind(Binding("shop", "p", pod.uid, "a"))
    assert bound.bound == ([(pod.uid, "a")] if by_us else [])
    if "managed_resources" not in fields:
        assert fake.requests("bind") == [{"PodName": "p", "PodNamespace": "shop", "PodUID": pod.uid, "Node": "a"}]


@pytest.mark.parametrize(
    ("answers", "error", "is_settled"),
    [
        pytest.param([{"Error": "no"}], ExtenderRefused, True, id="refused in its answer"),
        pytest.param([404], ExtenderRefused, True, id="refused by its status"),
        pytest.param([500], ExtenderUnanswered, False, id="an error after which it may have bound"),
        pytest.param([500, {"Error": "no"}], ExtenderUnanswered, False, id="passed over, and the next one refuses"),
        pytest.param([500, {}], None, True, id="passed over, and the next one binds"),
    ],
)
def test_only_a_bind_that_every_extender_refused_is_settled_at_once(
    started: Started, answers: list[Any], error: type[ExtenderError] | None, is_settled: bool
) -> None:
    for number, answer in enumerate(answers, 1):
        fake = started.add({"bind": answer}, ignorable=number < len(answers))
        fake.status = answer if isinstance(answer, int) else 200
    pod, writes = pod_info(make_pod("p", "shop").obj()), UnsettledWrites(10.0)
    writes.vouch()
    binder = ExtenderBinder(
        FakeBinder(), Extenders(started.configured), {pod.uid: PodPlacement(pod, "a", PodState.ASSUMED)}.get
    )
    with pytest.raises(error) if error else nullcontext():
        LeaderBinder(binder, Fence(writes, lambda: 1)).bind(Binding("shop", "p", pod.uid, "a"))
    assert writes.nothing_unsettled() is is_settled


def test_a_bind_that_an_ignored_extender_may_have_made_is_not_refused_by_a_conflict(started: Started) -> None:
    started.add({"bind": {}}, ignorable=True).status = 500
    pod, ours = pod_info(make_pod("p", "shop").obj()), FakeBinder(Conflict("pod p is already assigned to node a", 409))
    placements = {pod.uid: PodPlacement(pod, "a", PodState.ASSUMED)}
    with pytest.raises(ExtenderUnanswered):
        ExtenderBinder(ours, Extenders(started.configured), placements.get).bind(Binding("shop", "p", pod.uid, "a"))


def test_a_pod_that_is_gone_is_left_to_the_api_server(started: Started) -> None:
    fake, bound = started.add({"bind": {}}), FakeBinder()
    ExtenderBinder(bound, Extenders(started.configured), lambda _: None).bind(Binding("default", "p", "uid", "a"))
    assert (bound.bound, fake.asked) == ([("uid", "a")], [])

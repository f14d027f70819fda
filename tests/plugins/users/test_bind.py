"""@bind: what a rule may return, what is checked before the pod is assumed, and that no pod is bound without it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from extender import Cluster, Handle, Node, NodeInfo, Pod, bind, reserve
from extender.errors import BindingFailed
from extender.framework.annotations import choose_annotations
from extender.framework.profile import Profiles
from extender.plugins.registry import default_profile
from extender.plugins.users.rule_calls import LiveHost, OfflineHost
from extender.policy.library import Library
from extender.policy.loading import read
from extender.runtime.clock import ManualClock, TimeLimit
from extender.runtime.ports import Telemetry
from extender.verbs.bind import Bind
from tests.builders import make_node, make_pod
from tests.framework.cluster import pod_info, table_of
from tests.plugins.users.failures import Remembered
from tests.scheduler.world import NAME, World
from tests.verbs.cluster import FakeBinder, answer, binding, cache_of

NODE = make_node("n").allocatable(cpu="4", memory="4Gi", pods="10")
POD = make_pod("p").uid("p")
KEY = "example.com/slot"


def returning(value: object) -> Any:
    @bind
    def pick(pod: Pod, node: Node) -> Any:
        if isinstance(value, Exception):
            raise value
        return value

    return pick


def chosen(*answers: object, pod: Any = POD) -> Mapping[str, str]:
    """What rules with these answers choose together."""
    rules = [returning(each).rule(f"rule{number}", {}, Remembered()) for number, each in enumerate(answers)]
    table = table_of(NODE.obj())
    return dict(choose_annotations(rules, pod_info(pod.obj()), table.nodes.row_of["n"], table))


@pytest.mark.parametrize(
    ("answers", "annotations"),
    [
        pytest.param([None], {}, id="nothing"),
        pytest.param([{}], {}, id="an empty dict"),
        pytest.param([{KEY: "1"}], {KEY: "1"}, id="one"),
        pytest.param([{KEY: ""}], {KEY: ""}, id="an empty value"),
        pytest.param([{"Example.COM/slot": "1"}], {"Example.COM/slot": "1"}, id="capitals"),
        pytest.param([{KEY: "1"}, {"b": "2"}], {KEY: "1", "b": "2"}, id="of two rules"),
        pytest.param([{KEY: "1"}, {KEY: "1"}], {KEY: "1"}, id="two rules that agree"),
        pytest.param([{KEY: "x" * (3072 - len(KEY))}], {KEY: "x" * (3072 - len(KEY))}, id="the longest"),
    ],
)
def test_what_a_rule_may_choose(answers: list[object], annotations: Mapping[str, str]) -> None:
    assert chosen(*answers) == annotations


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        pytest.param([{"a b": "1"}], "annotation 'a b' is not a key: expected NAME or DOMAIN/NAME", id="a space"),
        pytest.param([{"": "1"}], "annotation '' is not a key", id="an empty key"),
        pytest.param([{"x" * 64: "1"}], "is not a key", id="a long key"),
        pytest.param([{KEY: "x" * 3072}], "chose annotations of 3088 bytes; a Binding may have 3072", id="too large"),
        pytest.param([{KEY: "ä" * 1600}], "chose annotations of 3216 bytes", id="counted in bytes"),
        pytest.param([{KEY: 1}], "an annotation must be a pair of texts, not 'example.com/slot': 1", id="a number"),
        pytest.param([{KEY: "\ud800"}], "has characters that cannot be encoded", id="a surrogate"),
        pytest.param([True], "must return a dict of annotations, None, False or a reason, not True", id="True"),
        pytest.param([ValueError("no")], "ValueError: no", id="an exception"),
    ],
)
def test_what_is_not_an_annotation_is_refused_with_the_name_of_the_rule(answers: list[object], message: str) -> None:
    with pytest.raises(BindingFailed, match=re.escape(message)) as raised:
        chosen(*answers)
    assert str(raised.value).startswith('running Bind plugin "rule0": ')
    assert raised.value.plugin == ""


def test_two_rules_cannot_choose_different_values() -> None:
    text = f"""running Bind plugin "rule1": chose '2' for the annotation {KEY}, for which an earlier rule chose '1'"""
    with pytest.raises(BindingFailed, match=re.escape(text)):
        chosen({KEY: "1"}, {KEY: "2"})


def test_a_pod_with_too_many_annotations_is_refused() -> None:
    pod = make_pod("p").annotation({"own": "x" * 262_000})
    with pytest.raises(BindingFailed, match="the API server stores at most 262144"):
        chosen({KEY: "y" * 200}, pod=pod)


def test_a_rejection_names_the_rule_for_the_queue() -> None:
    for given, reason in (("no slot", "no slot"), (False, "rejected by rule0")):
        with pytest.raises(BindingFailed) as raised:
            chosen(given)
        assert (str(raised.value), raised.value.plugin) == (reason, "rule0")


def rules_of(*decorated: Any, host: Any = None) -> Any:
    built = [each.rule(each.__name__, {}, host or OfflineHost()) for each in decorated]
    return replace(default_profile(), bind=built)


def scheduled(name: str) -> Any:
    return make_pod(name).uid(name).scheduler(NAME)


def node_in_loop() -> Any:
    return make_node("n").capacity(cpu="4", memory="4Gi", pods="10").allocatable(cpu="4", memory="4Gi", pods="10")


def test_a_later_rule_and_reserve_see_the_choice() -> None:
    seen: list[str | None] = []

    @bind
    def first(pod: Pod, node: NodeInfo) -> dict[str, str]:
        return {KEY: str(len(node.pods))}

    @bind
    def second(pod: Pod, node: Node, *, handle: Handle) -> None:
        seen.append(pod.annotations.get(KEY))

    @reserve
    def take(pod: Pod, node: Node) -> None:
        seen.append(pod.annotations.get(KEY))

    profile = replace(rules_of(first, second), permit=[take.rule("take", {}, OfflineHost())])
    world = World(node_in_loop(), scheduled("a"), scheduled("b"), profile=profile)
    world.settle()
    assert seen == ["0", "0", "1", "1"]
    assert [world.pod(name).annotations for name in "ab"] == [{KEY: "0"}, {KEY: "1"}]


def test_a_pod_that_the_rule_rejects_waits_for_an_event() -> None:
    @bind
    def pick(pod: Pod, node: Node) -> dict[str, str] | str:
        return {KEY: "1"} if "slots" in node.labels else "the node has no slot"

    world = World(node_in_loop(), scheduled("p"), profile=rules_of(pick))
    world.settle()
    assert world.conditions[-1][:3] == ("p", "Unschedulable", "0/1 nodes are available: 1 the node has no slot.")
    world.put(node_in_loop().label(slots="8"))
    world.pass_time(20)
    assert world.node_of("p") == "n"


def test_a_rule_that_fails_lets_no_pod_be_bound() -> None:
    rule = returning(KeyError("slot"))
    world = World(node_in_loop(), scheduled("p"), profile=rules_of(rule, host=Remembered()))
    world.settle()
    assert world.node_of("p") == ""
    assert world.conditions[-1][2].startswith('running Bind plugin "pick": test_bind.py:')


def test_a_failing_rule_is_not_ignored() -> None:
    def nothing(*_: object) -> Any:
        return None

    clock = ManualClock()
    host = LiveHost(Telemetry(), clock, TimeLimit(clock, 4), nothing, nothing, nothing, ignores_failures=True)
    world = World(node_in_loop(), scheduled("p"), profile=rules_of(returning(KeyError("slot")), host=host))
    world.settle()
    assert world.node_of("p") == ""


def webhook(rule: Any, *objects: Any) -> tuple[FakeBinder, Bind]:
    binder = FakeBinder()
    return binder, Bind(cache_of(*objects), Profiles([rules_of(rule)]), binder, Telemetry())


@pytest.mark.parametrize("known", [True, False])
def test_a_webhook_that_does_not_know_the_cluster_binds_nothing(known: bool) -> None:
    binder, verb = webhook(returning({KEY: "1"}), NODE.obj(), *([POD.obj()] if known else []))
    result = verb.allow_all(verb.decode(binding(POD.obj(), "n")))
    assert "Bind rules cannot choose what to bind it with" in result.error
    assert binder.bound == []


def test_the_webhook_names_the_reason() -> None:
    binder, verb = webhook(returning("no slot"), NODE.obj(), POD.obj())
    assert answer(verb, binding(POD.obj(), "n"))["Error"] == "no slot"
    assert binder.bound == []


def test_the_policy_names_the_rule_under_bind() -> None:
    document = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"plugins": {"bind": {"enabled": [{"name": "pick"}]}}}],
    }
    (profile,) = read(document, Library(rules={"pick": returning({KEY: "1"})})).profiles
    assert [rule.name for rule in profile.bind] == ["pick"]
    assert profile.unsupported == ()


def test_explain_says_what_the_rule_says() -> None:
    cluster = Cluster.from_objects([NODE.obj()], Profiles([rules_of(returning("no slot"))]))
    decision = cluster.decide(POD.obj())
    assert (decision.feasible, decision.message) == ([], "0/1 nodes are available: 1 no slot.")
    assert decision.refusals["n"].plugin == "pick"


def test_simulate_places_pods_with_their_choices() -> None:
    @bind
    def pick(pod: Pod, node: NodeInfo) -> dict[str, str] | str:
        taken = {other.annotations.get(KEY) for other in node.pods}
        free = [slot for slot in "01" if slot not in taken]
        return {KEY: free[0]} if free else "no slot is free"

    pods = [make_pod(name).uid(name).obj() for name in "abc"]
    cluster = Cluster.from_objects([NODE.obj(), *pods], Profiles([rules_of(pick)]))
    result = cluster.simulate()
    assert [placement.pod for placement in result.placements] == ["default/a", "default/b"]
    assert "no slot is free" in str(result.remaining)

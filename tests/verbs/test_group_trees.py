"""filter and bind for members of groups with a parent: the whole tree is planned, and bound together."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest

from extender.model.node import Node
from tests.builders import Object, make_composite_pod_group, make_pod, make_pod_group
from tests.stock.waiting import wait_until
from tests.verbs.cluster import TREES, tell
from tests.verbs.test_group_plans import Webhook, node, nominated
from tests.verbs.test_group_quorum import LONG, SHORT, Binds, binds

NAMES = ["n0", "n1", "n2", "n3"]
RACK = {"topology": [{"key": "rack"}]}


def child(name: str, size: int = 2, minimum: int | None = None, *, cpu: str = "4", **spec: Any) -> list[Object]:
    """A child group of `tree` and its members, of which it needs all by default; each member fills a node."""
    group = make_pod_group(name, minimum or size, parentCompositePodGroupName="tree", **spec)
    return [group, *pods(name, size, cpu)]


def pods(name: str, size: int = 2, cpu: str = "4", priority: int = 0) -> list[Object]:
    made = (make_pod(f"{name}{i}").uid(f"{name}{i}") for i in range(size))
    return [pod.req(cpu=cpu).priority(priority).group(name).obj() for pod in made]


def webhook_of(*objects: Object, nodes: list[Object] | None = None, **options: Any) -> Webhook:
    return Webhook(*([node(name) for name in NAMES] if nodes is None else nodes), *objects, features=TREES, **options)


BOTH = make_composite_pod_group("tree", 2)
ANY = make_composite_pod_group("tree")


def test_each_member_of_a_tree_gets_a_node_of_its_own() -> None:
    webhook = webhook_of(BOTH, *child("a"), *child("b"))
    answered = [webhook.ask(pod, NAMES) for pod in (*pods("a"), *pods("b"))]
    assert sorted(name for names in answered for name in names) == NAMES
    assert webhook.telemetry.planned == {"placed": 1}


def test_no_member_gets_a_node_if_the_tree_needs_a_child_that_does_not_fit() -> None:
    webhook = webhook_of(BOTH, *child("a", 2), *child("b", 3))
    reason = (
        "minCount (2) cannot be satisfied: 1 scheduled, 0 remaining (b2: 0/4 nodes are available: 4 Insufficient cpu.)"
    )
    answered = [webhook.reasons(pod, NAMES) for pod in (*pods("a"), *pods("b", 3))]
    assert answered == [dict.fromkeys(NAMES, reason)] * 5
    assert webhook.telemetry.planned == {"refused": 1}


def test_a_child_that_does_not_fit_is_refused_and_takes_no_room_from_the_others() -> None:
    webhook = webhook_of(ANY, *child("a", 5), *child("b", 4))
    reason = (
        "minCount (5) cannot be satisfied: 4 scheduled, 0 remaining (a4: 0/4 nodes are available: 4 Insufficient cpu.)"
    )
    assert [webhook.reasons(pod, NAMES) for pod in pods("a", 5)] == [dict.fromkeys(NAMES, reason)] * 5
    answered = [webhook.ask(pod, NAMES) for pod in pods("b", 4)]
    assert sorted(name for names in answered for name in names) == NAMES
    assert webhook.telemetry.dropped == {}


def test_a_child_with_too_few_pods_is_refused_for_that() -> None:
    webhook = webhook_of(ANY, *child("a", 1, 2), *child("b", 1))
    assert webhook.ask(pods("b")[0], NAMES)
    reason = "pod group is unschedulable, minCount (2) cannot be satisfied: 0 scheduled, 1 remaining"
    assert webhook.reasons(pods("a")[0], NAMES) == dict.fromkeys(NAMES, reason)


def test_a_child_below_a_group_that_fails_is_refused() -> None:
    inner = make_composite_pod_group("an-inner", 2, parentCompositePodGroupName="tree")
    below = [make_pod_group(name, 1, parentCompositePodGroupName="an-inner") for name in "ab"]
    webhook = webhook_of(ANY, inner, *below, *pods("a", 1), *pods("b", 1, "5"), *child("c", 4))
    reason = "minCount (2) cannot be satisfied: 1 scheduled, 0 remaining"
    assert webhook.reasons(pods("a")[0], NAMES) == dict.fromkeys(NAMES, reason)
    answered = [webhook.ask(pod, NAMES) for pod in pods("c", 4)]
    assert sorted(name for names in answered for name in names) == NAMES


def test_the_nominations_of_a_child_that_is_passed_over_keep_no_room() -> None:
    group, *members = child("a", 5)
    other = make_pod("other").uid("other").req(cpu="4").obj()
    webhook = webhook_of(ANY, group, *(nominated(pod, "n0") for pod in members), *child("b", 1), other)
    assert webhook.ask(other, NAMES) == NAMES[1:]
    webhook.ask(members[0], NAMES)
    assert webhook.ask(other, NAMES) == NAMES


def test_a_child_that_has_its_nodes_already_counts() -> None:
    bound = [make_pod(f"a{i}").uid(f"a{i}").req(cpu="4").group("a").node(f"n{i}").obj() for i in range(2)]
    webhook = webhook_of(BOTH, child("a")[0], *bound, *child("b"))
    answered = [webhook.ask(pod, NAMES) for pod in pods("b")]
    assert sorted(name for names in answered for name in names) == NAMES[2:]


def test_only_the_member_whose_node_is_not_offered_gets_another_node() -> None:
    webhook = webhook_of(BOTH, *child("a", 1), *child("b", 2))
    webhook.ask(pods("a", 1)[0], NAMES)
    planned = webhook.observed.plans[0]
    free = next(name for name in NAMES if name not in planned.nodes)
    assert webhook.ask(pods("b")[0], [free]) == [free]
    assert webhook.ask(pods("b")[1], NAMES) == [planned.node_of("b1")]
    assert webhook.telemetry.dropped == {"node": 1}


def test_the_rest_of_a_tree_is_planned_again_around_the_answers() -> None:
    """b0 may use only the node planned for b1, which moves."""
    members = pods("b")[0], pods("b", cpu="3")[1]
    webhook = webhook_of(BOTH, *child("a", 1), child("b")[0], *members)
    (first,) = webhook.ask(pods("a", 1)[0], NAMES)
    taken = webhook.observed.plans[0].node_of("b1")
    assert taken is not None
    assert webhook.ask(members[0], [taken]) == [taken]
    (last,) = webhook.ask(members[1], NAMES)
    assert len({first, taken, last}) == 3


def test_a_changed_parent_ends_the_plan() -> None:
    webhook = webhook_of(BOTH, *child("a", 2), *child("b", 3))
    assert webhook.ask(pods("a")[0], NAMES) == []
    tell(webhook.cache, [ANY])
    assert len(webhook.ask(pods("a")[1], NAMES)) == 1
    assert webhook.telemetry.dropped == {"changed": 1}


def test_a_second_pass_plans_the_tree_again() -> None:
    webhook = webhook_of(BOTH, *child("a", 2), *child("b", 3))
    assert webhook.ask(pods("a")[0], NAMES) == []
    tell(webhook.cache, [node("n4")])
    assert len(webhook.ask(pods("a")[0], [*NAMES, "n4"])) == 1
    assert webhook.telemetry.dropped == {"asked_again": 1}


def test_members_are_judged_one_by_one_while_a_parent_is_missing() -> None:
    webhook = webhook_of(*child("a", 5))
    assert webhook.ask(pods("a", 5)[0], NAMES) == NAMES


def test_a_tree_is_planned_where_pods_of_a_lower_priority_than_its_root_leave() -> None:
    lesser = [make_pod(f"v{i}").uid(f"v{i}").req(cpu="4").priority(5).node(name).obj() for i, name in enumerate(NAMES)]
    root = make_composite_pod_group("tree", 2, priority=10)
    groups = [child(name)[0] for name in "ab"]
    waiting = [pod for name in "ab" for pod in pods(name, priority=10)]
    webhook = webhook_of(root, *groups, *waiting, *lesser)
    assert sorted(name for pod in waiting for name in webhook.ask(pod, NAMES)) == NAMES


RACKS = [node(f"{rack}{i}", rack=rack) for rack in "xyz" for i in range(2)]
IN_RACK = {rack: [f"{rack}0", f"{rack}1"] for rack in "xyz"}


def test_all_children_are_planned_in_the_domain_in_which_the_scheduler_tries_the_root() -> None:
    tree = make_composite_pod_group("tree", 2, schedulingConstraints=RACK)
    webhook = webhook_of(tree, *child("a", 1), *child("b", 1, cpu="3"), nodes=RACKS)
    for rack, names in IN_RACK.items():
        answered = [webhook.ask(pod, names) for pod in (*pods("a", 1), *pods("b", 1, "3"))]
        assert sorted(name for names in answered for name in names) == names, rack


def test_a_child_gets_nodes_in_one_of_the_domains_in_which_the_scheduler_tries_it() -> None:
    """kube-scheduler tries each child in all racks, and then takes the best rack; the plan leaves it one."""
    children = [child(name, schedulingConstraints=RACK) for name in "ab"]
    webhook = webhook_of(BOTH, *children[0], *children[1], nodes=RACKS)
    for _ in range(2):
        chosen = []
        for name in "ab":
            tried = {rack: [webhook.ask(pod, names) for pod in pods(name)] for rack, names in IN_RACK.items()}
            [(rack, answered)] = [(rack, answered) for rack, answered in tried.items() if any(answered)]
            assert sorted(name for names in answered for name in names) == IN_RACK[rack]
            chosen.append(rack)
        assert len({*chosen}) == 2
    assert webhook.telemetry.planned == {"placed": 2}
    assert webhook.telemetry.dropped == {"asked_again": 1}


def test_a_tree_that_does_not_fit_in_one_domain_of_its_root_is_planned_in_the_next() -> None:
    """kube-scheduler tries each child in all racks of one zone, and then in all of the next."""
    zone = {"topology": [{"key": "zone"}]}
    tree = make_composite_pod_group("tree", 2, schedulingConstraints=zone)
    children = [child(name, schedulingConstraints=RACK) for name in "ab"]
    first = [node("x0", rack="x", zone="1"), node("x1", rack="x", zone="1"), node("y0", rack="y", zone="1")]
    second = [node(f"{rack}{i}", rack=rack, zone="2") for rack in "vw" for i in range(2)]
    webhook = webhook_of(tree, *children[0], *children[1], nodes=[*first, *second])
    assert [webhook.ask(pods("a")[0], names) for names in (["x0", "x1"], ["y0"])] == [[], []]
    tried = [webhook.ask(pod, [f"{rack}0", f"{rack}1"]) for name in "ab" for rack in "vw" for pod in pods(name)]
    assert sorted(name for names in tried for name in names) == ["v0", "v1", "w0", "w1"]
    assert webhook.telemetry.planned == {"refused": 1, "placed": 1}


def test_a_member_whose_node_is_not_offered_moves_within_the_rack_of_its_child() -> None:
    children = [child(name, 1, schedulingConstraints=RACK) for name in "ab"]
    third = [node(f"{rack}2", rack=rack) for rack in "xyz"]
    webhook = webhook_of(BOTH, *children[0], *children[1], nodes=[*RACKS, *third])
    webhook.ask(pods("a", 1)[0], IN_RACK["x"])
    planned = webhook.observed.plans[0]
    rack = (planned.node_of("b0") or "")[0]
    free = next(name for name in (*IN_RACK[rack], f"{rack}2") if name not in planned.nodes)
    assert webhook.ask(pods("b", 1)[0], [free]) == [free]


def test_a_member_that_the_plan_leaves_out_gets_no_node_in_another_rack_than_its_siblings() -> None:
    """Otherwise kube-scheduler could place the child in that rack, with this member alone."""
    pair = [make_pod_group("a", parentCompositePodGroupName="tree", schedulingConstraints=RACK), *pods("a", 3)]
    webhook = webhook_of(ANY, *pair, nodes=RACKS)
    answered = {rack: [webhook.ask(pod, names) for pod in pods("a", 3)] for rack, names in IN_RACK.items()}
    assert sorted(sum(map(len, answered[rack])) for rack in IN_RACK) == [0, 0, 2]


def test_a_member_whose_node_is_deleted_moves_within_the_rack_of_its_child() -> None:
    full = [make_pod(name).uid(name).req(cpu="4").node(name).obj() for name in IN_RACK["x"]]
    webhook = webhook_of(ANY, *child("a", 1, schedulingConstraints=RACK), *full, nodes=RACKS)
    (pod,) = pods("a", 1)
    assert webhook.ask(pod, IN_RACK["x"]) == []
    planned = webhook.observed.plans[0].node_of("a0")
    assert planned is not None
    webhook.cache.deleted("Node", msgspec.convert(node(planned), Node))
    remaining = [name for name in IN_RACK[planned[0]] if name != planned]
    assert webhook.ask(pod, remaining) == remaining


# ---- bind


@contextmanager
def bind_of(*objects: Object, seconds: float = LONG) -> Iterator[Binds]:
    with binds(*objects, seconds=seconds, features=TREES) as webhook:
        yield webhook


def small(name: str, size: int = 2, minimum: int | None = None) -> list[Object]:
    return child(name, size, minimum, cpu="500m")


def test_the_members_of_all_children_are_bound_once_the_tree_has_what_it_needs() -> None:
    (_, *first), (_, *second) = small("a"), small("b")
    with bind_of(BOTH, *small("a"), *small("b")) as webhook:
        calls = [webhook.begin(pod, "n0") for pod in (*first, second[0])]
        assert wait_until(lambda: webhook.waiting() == {"a0", "a1", "b0"})
        assert webhook.binder.bound == []
        assert webhook.bind(second[1], "n1") == ""
        assert [call.result() for call in calls] == [""] * 3
        assert len(webhook.binder.bound) == 4


def test_a_child_without_room_refuses_the_members_of_a_tree_that_needs_it() -> None:
    (_, *first), (_, *second) = small("a"), child("b", 1)
    with bind_of(BOTH, *small("a"), *child("b", 1)) as webhook:
        calls = [webhook.begin(pod, "n0") for pod in first]
        assert wait_until(lambda: webhook.waiting() == {"a0", "a1"})
        assert webhook.bind(second[0], "n1") == "n1 no longer fits: Insufficient cpu"
        reason = (
            "1 of 2 child groups that composite pod group default/tree needs are missing because others cannot be bound"
        )
        assert [call.result() for call in calls] == [reason] * 2
        assert (webhook.binder.bound, webhook.assumed()) == ([], set())
        assert webhook.telemetry.refused_members == [("unfit", 2)]


def test_a_child_is_bound_while_another_that_is_not_needed_waits() -> None:
    (_, *first), (_, *second) = small("a"), small("b")
    with bind_of(ANY, *small("a"), *small("b")) as webhook:
        waiting = webhook.begin(second[0], "n0")
        assert wait_until(lambda: webhook.waiting() == {"b0"})
        assert [call.result() for call in [webhook.begin(pod, "n1") for pod in first]] == ["", ""]
        assert not waiting.done()
        assert webhook.bind(second[1], "n0") == ""
        assert waiting.result() == ""


def test_a_child_that_cannot_be_bound_is_refused_while_another_waits() -> None:
    (_, *first), (_, *second) = small("a"), small("b")
    with bind_of(ANY, *small("a"), *small("b")) as webhook:
        lost, waiting = webhook.begin(first[0], "n0"), webhook.begin(second[0], "n0")
        assert wait_until(lambda: webhook.waiting() == {"a0", "b0"})
        webhook.delete(first[1])
        assert webhook.bind(second[1], "n1") == ""
        assert waiting.result() == ""
        reason = "1 of 2 members that pod group default/a needs are missing because others cannot be bound"
        assert lost.result() == reason


@pytest.mark.parametrize(
    ("bound", "reason"),
    [
        (["a0"], "1 of 2 members that pod group default/a needs are missing after 2 s"),
        (["a0", "a1"], "1 of 2 child groups that composite pod group default/tree needs are missing after 2 s"),
    ],
)
def test_a_refusal_names_the_lowest_group_that_lacks_something(bound: list[str], reason: str) -> None:
    (_, *first) = small("a")
    with bind_of(BOTH, *small("a"), *small("b"), seconds=2.0) as webhook:
        calls = [webhook.begin(pod, "n0") for pod in first if pod["metadata"]["name"] in bound]
        assert reason in [call.result() for call in calls]
        assert (webhook.binder.bound, webhook.assumed()) == ([], set())


def test_children_without_a_minimum_wait_for_each_other_if_the_tree_needs_both() -> None:
    groups = [make_pod_group(name, parentCompositePodGroupName="tree") for name in "ab"]
    with bind_of(BOTH, *groups, *pods("a", 1, "1"), *pods("b", 1, "1")) as webhook:
        first = webhook.begin(pods("a")[0], "n0")
        assert wait_until(lambda: webhook.waiting() == {"a0"})
        assert not first.done()
        assert webhook.bind(pods("b")[0], "n1") == ""
        assert first.result() == ""


def test_a_child_that_is_bound_counts() -> None:
    bound = [make_pod(f"a{i}").uid(f"a{i}").req(cpu="500m").group("a").node("n0").obj() for i in range(2)]
    (_, *second) = small("b")
    with bind_of(BOTH, small("a")[0], *bound, *small("b")) as webhook:
        assert [call.result() for call in [webhook.begin(pod, "n1") for pod in second]] == ["", ""]


def test_members_wait_while_the_parent_of_their_group_is_missing() -> None:
    (_, *first) = small("a")
    with bind_of(*small("a"), seconds=SHORT) as webhook:
        reason = "pod group default/a or a group above it does not exist after 0.05 s"
        assert webhook.bind(first[0], "n0") == reason
        assert (webhook.binder.bound, webhook.assumed()) == ([], set())


def test_members_whose_parent_appears_are_bound_with_the_next_one() -> None:
    (_, *first) = small("a")
    with bind_of(*small("a")) as webhook:
        waiting = webhook.begin(first[0], "n0")
        assert wait_until(lambda: webhook.waiting() == {"a0"})
        tell(webhook.cache, [ANY])
        assert webhook.bind(first[1], "n0") == ""
        assert waiting.result() == ""


def test_a_child_that_was_refused_can_be_bound_while_another_still_waits() -> None:
    (_, *first), (_, *second) = small("a"), small("b")
    with bind_of(ANY, *small("a"), *small("b")) as webhook:
        waiting = webhook.begin(second[0], "n0")
        lost = webhook.begin(first[0], "n0")
        assert wait_until(lambda: webhook.waiting() == {"a0", "b0"})
        assert webhook.bind(first[1], "deleted") != ""
        assert lost.result() != ""
        again = webhook.begin(first[0], "n0")
        assert wait_until(lambda: webhook.waiting() == {"a0", "b0"})
        assert webhook.bind(first[1], "n1") == ""
        assert again.result() == ""
        assert webhook.bind(second[1], "n1") == ""
        assert waiting.result() == ""


def test_only_whole_gangs_are_bound_when_no_more_members_of_the_tree_may_wait() -> None:
    three = make_composite_pod_group("tree", 3)
    (_, *first), (_, *second) = small("a"), small("b")
    with binds(three, *small("a"), *small("b"), *small("c"), most_waiting=3, features=TREES, seconds=3.0) as webhook:
        waiting = webhook.begin(second[0], "n1")
        assert wait_until(lambda: webhook.waiting() == {"b0"})
        assert [call.result() for call in [webhook.begin(pod, "n0") for pod in first]] == ["", ""]
        assert waiting.result() != ""
        assert sorted(webhook.binder.bound) == [("a0", "n0"), ("a1", "n0")]


def test_as_many_members_of_a_tree_wait_as_may_wait() -> None:
    (_, *first) = small("a")
    with binds(BOTH, *small("a"), *small("b"), most_waiting=2, features=TREES) as webhook:
        assert [call.result() for call in [webhook.begin(pod, "n0") for pod in first]] == ["", ""]

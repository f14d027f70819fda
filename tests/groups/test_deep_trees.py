"""Trees of groups that are deeper than kube-scheduler allows are refused, and no walk of a tree recurses."""

from __future__ import annotations

import msgspec
import pytest

from extender.groups import Composite, GroupDecision, GroupStatus, Leaf, MemberDecision, Tree, decide_group
from extender.groups.decision import leaf_decisions
from extender.groups.group_tree import (
    excess,
    groups_of,
    leaves,
    path_to,
    reaches_minimum,
    reaching,
    shortfall,
    viable,
    with_leaves,
)
from extender.model.pod_groups import MAX_TREE_DEPTH, CompositePodGroup, GroupName, PodGroup
from extender.table import PodInfo, Table, Trial
from extender.table.labels import Rows
from tests.builders import make_composite_pod_group, make_pod, make_pod_group
from tests.queue.queueing import info

DEEP = 5_000


def chain(levels: int) -> Tree:
    """Returns a tree of so many levels: composites, one below the other, and a PodGroup with one waiting pod."""
    tree: Tree = Leaf(msgspec.convert(make_pod_group("leaf", 1), PodGroup), [info(make_pod("p"))])
    for number in reversed(range(levels - 1)):
        composite = make_composite_pod_group(f"c{number}", 1)
        tree = Composite(msgspec.convert(composite, CompositePodGroup), [tree])
    return tree


def decide_one(info: PodInfo, rows: Rows | None) -> MemberDecision:
    return MemberDecision("n")


def test_a_tree_of_thousands_of_levels_is_walked() -> None:
    tree = chain(DEEP)
    (leaf,) = leaves(tree)
    uids = [info.uid for info in leaf.waiting]
    assert len(list(groups_of(tree))) == len(path_to(tree, "default/leaf")) == DEEP
    assert viable(tree, uids) == uids
    assert reaching(tree, lambda _: uids) == uids
    assert not reaches_minimum(tree)
    assert shortfall(chain(200), "default/leaf", lambda _: ()) == (leaf.group, 1)
    assert next(leaves(with_leaves(tree, lambda each: Leaf(each.group, ())))).waiting == ()
    failed = GroupDecision(tree, GroupStatus.ERROR, ("no",))
    assert [decision.text for decision in leaf_decisions(failed)] == ["no"]


@pytest.mark.parametrize("levels", [MAX_TREE_DEPTH + 1, DEEP])
def test_a_tree_with_too_many_levels_is_refused_in_kube_schedulers_words(levels: int) -> None:
    decision = decide_group(chain(levels), Trial(Table()), decide_one)
    assert decision.status is GroupStatus.ERROR
    place = "PodGroup default/leaf" if levels == MAX_TREE_DEPTH + 1 else f"CompositePodGroup default/c{MAX_TREE_DEPTH}"
    assert decision.text.startswith(f"exceeded maximum hierarchy depth at {place}: ")


def test_a_tree_of_as_many_levels_as_kube_scheduler_allows_is_not_too_deep() -> None:
    assert excess(chain(MAX_TREE_DEPTH)) is None
    assert excess(chain(MAX_TREE_DEPTH + 1)) == GroupName("PodGroup", "default/leaf")

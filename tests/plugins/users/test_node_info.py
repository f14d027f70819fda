"""A rule of (pod, NodeInfo) gets each node with its pods and totals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from extender.engine import Engine
from extender.framework.profile import Profile, Profiles
from extender.framework.rules import Priority
from extender.plugins.users.predicate import predicate
from extender.plugins.users.priority import priority
from extender.plugins.users.rule_calls import OfflineHost
from extender.table.node_info import NodeInfo
from tests.builders import make_node, make_pod
from tests.framework.cluster import pod_info, refusals, scores, table_of

if TYPE_CHECKING:
    import extender
    from extender import Pod

NODES = [make_node(name).obj() for name in ("empty", "full")]
OTHERS = [make_pod(f"web-{i}").label(app="web").priority(i).node("full").obj() for i in range(2)]
POD = make_pod("web-9").label(app="web").priority(5).obj()


@predicate(sees_pods=True)
def at_most(pod: Pod, node: NodeInfo, *, most: int) -> bool:
    return node.pods.count({"app": pod.labels["app"]}) < most


@priority
def emptiest(pod: Pod, node: extender.NodeInfo) -> int:
    return 100 - 10 * len(node.pods)


def test_a_predicate_sees_the_pods_of_each_node() -> None:
    rule = at_most.rule("at_most", {"most": 2}, OfflineHost())
    assert refusals(rule, POD, *NODES, *OTHERS).keys() == {"full"}


def test_a_priority_sees_the_pods_of_each_node() -> None:
    rule: Priority = emptiest.rule("emptiest", {}, OfflineHost())
    assert scores(rule, POD, *NODES, *OTHERS) == {"empty": 100, "full": 80}


def test_preemption_asks_again_without_the_victims() -> None:
    rule = at_most.rule("at_most", {"most": 2}, OfflineHost())
    engine = Engine(table_of(NODES[1], *OTHERS), Profiles([Profile("p", [rule], ())]))
    found = engine.preempt(pod_info(POD).pod)
    assert found.nominated_node == "full"
    assert [victim.pod.name for victim in found.candidates["full"].victims] == ["web-0"]


def test_a_rule_may_be_annotated_with_the_class_itself() -> None:
    def rule(pod: Any, node: Any) -> bool:
        return True

    rule.__annotations__["node"] = NodeInfo  # as in a module without postponed annotations
    assert predicate(rule).wants_pods


def test_only_a_rule_that_asks_for_pods_makes_them() -> None:
    def plain(pod: Any, node: Any) -> bool:
        return True

    assert [predicate(plain).wants_pods, at_most.wants_pods, emptiest.wants_pods] == [False, True, True]

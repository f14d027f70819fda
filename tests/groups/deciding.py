"""Decides about groups of API objects with the default profile; ties between nodes and placements go to the first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import msgspec

from extender.engine.decide import SchedulingCycle
from extender.engine.group_members import decides_members
from extender.groups import Composite, DecideOne, GroupDecision, GroupRules, Leaf, MemberDecision, Tree, decide_group
from extender.model.pod_groups import CompositePodGroup, PodGroup
from extender.plugins.registry import default_profile
from extender.table import PodInfo, Table, Trial
from extender.table.labels import Rows
from tests.builders import Object, make_node, make_pod
from tests.framework.cluster import pod_info, table_of

BY_PLACEMENTS = GroupRules(by_placements=True)


def node(name: str, cpu: int = 4, **labels: str) -> Object:
    return make_node(name).allocatable(cpu=str(cpu), memory="32Gi", pods="110").label(labels).obj()


def members(group: str, count: int, cpu: str = "1", first: int = 0) -> list[Object]:
    return [make_pod(f"{group}-{i}").group(group).req(cpu=cpu).obj() for i in range(first, first + count)]


def tree(*objects: Object) -> Tree:
    """Builds the tree of the groups among the objects, with the pods as their members; it has one root."""
    children: defaultdict[str | None, list[Object]] = defaultdict(list)
    for each in objects:
        if each["kind"] in ("PodGroup", "CompositePodGroup"):
            children[each["spec"].get("parentCompositePodGroupName")].append(each)
    pods = [pod_info(each) for each in objects if each["kind"] == "Pod"]

    def built(each: Object) -> Tree:
        if each["kind"] == "CompositePodGroup":
            composite = msgspec.convert(each, CompositePodGroup)
            return Composite(composite, [built(child) for child in children[composite.name]])
        group = msgspec.convert(each, PodGroup)
        own = [info for info in pods if info.pod.group_key == group.key]
        waiting = [info for info in own if not info.pod.node_name]
        return Leaf(group, waiting, [info.uid for info in own if info.pod.node_name])

    (root,) = children[None]
    return built(root)


def decided(*objects: Object, rules: GroupRules = GroupRules()) -> GroupDecision:  # noqa: B008  it is frozen
    """Returns the decision about the only root group among the objects, in the cluster of all of them."""
    table = table_of(*objects)
    return decide_group(tree(*objects), Trial(table), deciding(table), rules)


def deciding(table: Table) -> DecideOne:
    return decides_members(SchedulingCycle(default_profile()).decide_member, table)


def failing(uid: str, decide_one: DecideOne) -> DecideOne:
    """Decides as `decide_one` does, except that one member ends in an error."""

    def decide(info: PodInfo, rows: Rows | None) -> MemberDecision:
        return MemberDecision(None, "boom", is_error=True) if info.uid == uid else decide_one(info, rows)

    return decide


def nodes_of(decision: GroupDecision) -> dict[str, str]:
    """Returns pod name -> node of the members that are placed."""
    return {uid.removeprefix("pod-default-"): name for uid, name in decision.placed.items()}


def keys(infos: Iterable[PodInfo]) -> list[str]:
    return [info.pod.name for info in infos]

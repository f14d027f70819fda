"""Counts how many whole gangs fit. Each gang is a copy of the PodGroup with `minCount` members."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from extender.groups import Leaf
from extender.model.pod import Pod, PodSchedulingGroup
from extender.model.pod_groups import PodGroup, PodGroupStatus
from extender.offline.claims.sharing import without_group
from extender.offline.explain.explanation import Explanation, Reason
from extender.offline.groups.outcomes import fitting_placed, nodes_in
from extender.offline.state import ClusterState
from extender.table import PodInfo
from extender.table.podinfo import twin

ALONE = "its PodGroup is not a gang of this cluster, so its pods are counted one by one"


class GangCapacity(msgspec.Struct, frozen=True, rename="camel"):
    """The number of whole gangs of one template that fit.

    Attributes:
        size: the number of pods of each gang.
        count: the number of gangs.
        topology_key: the node label that all pods of a gang must share; None if there is no such constraint.
        by_domain: value of the label `topology_key` -> the number of gangs; empty if there is no constraint.
    """

    size: int
    count: int
    topology_key: str | None
    by_domain: Mapping[str, int]


def gang_capacity(state: ClusterState, gang: PodGroup, by_node: Mapping[str, int]) -> GangCapacity:
    """Returns how many gangs the pods in `by_node` form; with a topology constraint, each gang is in one domain."""
    key, size = gang.topology_key, gang.min_count
    pods: Counter[str] = Counter()
    if key is not None:
        for name, count in by_node.items():
            pods[state.node(name).labels[key]] += count
    by_domain = {domain: count // size for domain, count in sorted(pods.items())}
    return GangCapacity(size, sum(by_node.values()) // size, key, by_domain)


def gangs_of(state: ClusterState, pods: Mapping[str, Pod]) -> dict[str, PodGroup]:
    """Returns {template name: PodGroup} for the templates whose pods belong to a gang."""
    groups = {name: state.objects.get(PodGroup, pod.group_key) for name, pod in pods.items() if pod.group_key}
    return {name: group for name, group in groups.items() if group and group.is_gang and group.parent_key is None}


def counted_in(gang: PodGroup) -> str:
    return f"its pods are counted in whole gangs of {gang.min_count}"


def copy_of_gang(state: ClusterState, gang: PodGroup, infos: Sequence[PodInfo], number: int) -> Leaf:
    """Adds a copy of the PodGroup `gang` to the cluster; returns the copy with these pods as its waiting members."""
    name = f"{gang.name}-{number}"
    metadata = replace(gang.metadata, name=name, uid=f"capacity/{gang.namespace}/{name}")
    copied = replace(gang, metadata=metadata, status=PodGroupStatus())
    state.add(copied)
    membership = PodSchedulingGroup(pod_group_name=name)
    return Leaf(copied, [twin(info, info.pod.with_spec(scheduling_group=membership)) for info in infos])


def lacking(state: ClusterState, leaf: Leaf) -> list[Reason]:
    """Returns the reasons why nodes refuse the first member that does not fit; empty if all members fit."""
    with fitting_placed(state, state.engine.decide_group(leaf, enforces_gangs=False)) as refused:
        if refused is None:
            return []
        pod = without_group(refused.info.pod, state.table)
        return Explanation(state, pod, nodes=nodes_in(state, refused.domains)).reasons

"""Restricts a group to the nodes of one topology domain, and scores the domains that can take it.

Sources: upstream plugins TopologyPlacementGenerator, PodGroupPodsCount, and NodeResourcesFit.ScorePlacement.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from extender.groups.group_tree import Tree, members_needed, scheduled_members, waiting_members
from extender.model.requests import is_scalar
from extender.plugins.node_resources_scores import CPU_AND_MEMORY, ResourceWeights
from extender.table import PodInfo, Table
from extender.table.labels import ABSENT, Rows
from extender.table.node_columns import CPU, MEMORY, NONZERO_CPU, NONZERO_MEMORY, PODS

NO_PLACEMENTS = "no feasible placements found"
_MOST_POINTS = 100
_COUNTED_AS = {CPU: NONZERO_CPU, MEMORY: NONZERO_MEMORY}  # a pod without requests counts with default amounts


@dataclass(frozen=True, slots=True)
class TopologyPlacement:
    """A topology domain where a group may be placed. `rows` are the nodes of the domain; None means all nodes."""

    name: str
    rows: Rows | None


@dataclass(frozen=True, slots=True)
class PlacementScoring:
    """The weights with which a profile scores placements. A score with the weight 0 does not count.

    Attributes:
        resources: the resources that NodeResourcesFit counts, with their weights.
    """

    pods_count_weight: int = 1
    resources_weight: int = 1
    resources: ResourceWeights = CPU_AND_MEMORY


DEFAULT_SCORING = PlacementScoring()


def domains(tree: Tree, table: Table, rows: Rows | None) -> list[TopologyPlacement] | str:
    """Returns the topology domains where the group may be placed, sorted by name; or an error message.

    Only nodes among `rows` are used. A group without a topology constraint has one placement, with all of these nodes.
    If members are on nodes already, only their domain is possible. Upstream tries the domains in random order.
    """
    key = tree.group.topology_key
    if key is None:
        return [TopologyPlacement("", rows)]
    column = table.nodes.labels[key]
    required = _domain_of_scheduled(tree, table, key)
    if isinstance(required, str):
        return f"cannot determine domain for already scheduled pods: {required}"
    possible = table.nodes.rows if rows is None else rows
    ids = column.ids[possible]
    wanted = np.unique(ids[ids != ABSENT]) if required is None else np.intersect1d(ids, [required])
    found = [TopologyPlacement(column.values[domain], possible[ids == domain]) for domain in wanted.tolist()]
    if table.features.behaviours.empty_labels_are_no_domain:
        found = [placement for placement in found if placement.name]
    return sorted(found, key=lambda placement: placement.name)


def _domain_of_scheduled(tree: Tree, table: Table, key: str) -> int | str | None:
    """Returns the id of the domain in which members already run; None if no member runs; or an error message."""
    column, pods = table.nodes.labels[key], table.pods
    domain: int | None = None
    for uid in scheduled_members(tree):
        if (slot := pods.slot_of.get(uid)) is None:  # the pod was deleted after the group's members were counted
            continue
        row, pod = int(pods.row[slot]), pods.info(slot).pod.key
        if not table.nodes.present[row]:
            return f'getting node for pod {pod}: nodeinfo not found for node name "{table.nodes.names[row]}"'
        if (found := int(column.ids[row])) == ABSENT:
            return f"no topology domain found for pod {pod}"
        if table.features.behaviours.empty_labels_are_no_domain and not column.values[found]:
            return f"empty topology domain found for pod {pod}"
        if domain is not None and found != domain:
            return f"more than 1 domain found for pod group: {column.values[domain]}, {column.values[found]}"
        domain = found
    return domain


def large_enough(tree: Tree, placements: Sequence[TopologyPlacement], table: Table) -> list[TopologyPlacement]:
    """Returns the domains that may hold as many members as the group needs, by a sum over the nodes of each domain.

    Each node counts with as many members as it could hold if all of them were as small as the smallest in each
    resource. Devices may provide other resources, so only CPU, memory and the number of pods are compared.
    """
    infos, needed, nodes = waiting_members(tree), members_needed(tree), table.nodes
    if not infos or needed <= 0:
        return list(placements)
    vectors = [nodes.vector(info.footprint) for info in infos]
    free = np.maximum(nodes.allocatable - nodes.requested, 0)
    places = free[PODS]
    for resource in (CPU, MEMORY):
        if smallest := min(int(vector[resource]) for vector in vectors):
            places = np.minimum(places, free[resource] // smallest)
    return [each for each in placements if places[nodes.rows if each.rows is None else each.rows].sum() >= needed]


def total_scores(
    tree: Tree, proposed: Sequence[tuple[TopologyPlacement, Sequence[PodInfo]]], table: Table, scoring: PlacementScoring
) -> list[int]:
    """Returns the score that each placement in `proposed` would have if it took the members listed beside it."""
    counts = [len(scheduled_members(tree)) + len(infos) for _, infos in proposed]
    most = max(*counts, 1)  # at least 1, because all counts are 0 if there is no minimum and no member fits
    sums: dict[int, NDArray[np.int64]] = {}  # most placements would take the same list of members
    for _, infos in proposed:
        if id(infos) not in sums:
            none = np.zeros(len(table.nodes.requested), np.int64)
            sums[id(infos)] = sum((table.nodes.vector(info.footprint) for info in infos), none)
    return [
        scoring.pods_count_weight * (count * _MOST_POINTS // most)
        + scoring.resources_weight * _use_of_resources(table, placement, sums[id(infos)], scoring.resources)
        for count, (placement, infos) in zip(counts, proposed, strict=True)
    ]


def _use_of_resources(
    table: Table, placement: TopologyPlacement, members: NDArray[np.int64], weights: ResourceWeights
) -> int:
    """Returns the percentage of the domain's resources that is in use once pods that take `members` are placed there.

    This is the score MostAllocated, applied to all nodes of the domain together.
    """
    nodes = table.nodes
    rows = nodes.rows if placement.rows is None else placement.rows
    points, weight_sum = 0, 0
    for resource, weight in weights:
        offered = nodes.resources.get(resource)
        if offered is None:
            continue
        counted = _COUNTED_AS.get(offered, offered)
        allocatable = int(nodes.allocatable[offered, rows].sum())
        if allocatable == 0 or (is_scalar(resource) and not members[counted]):
            continue
        requested = int(nodes.requested[counted, rows].sum() + members[counted])
        points += min(requested, allocatable) * _MOST_POINTS // allocatable * weight
        weight_sum += weight
    return points // weight_sum if weight_sum else 0

"""Gives rules a view of one node with its pods and totals (upstream framework.NodeInfo).

The objects are created only if a rule uses them: once for each node, and again after the node or one of its pods has
changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import cast

import numpy as np

from extender.model.node import Node, Taint
from extender.model.pod import Pod
from extender.model.selectors import selector_from_labels
from extender.table.journal import MOST_FOLLOWED, NODES, RESOURCES, Cursor, Journal
from extender.table.labels import IntColumn, Rows
from extender.table.matches import Matches, PodCountQuery
from extender.table.node_columns import DERIVED, PODS, NodeColumns, image_sizes
from extender.table.pod_columns import PodColumns
from extender.table.podinfo import lazy_attribute


class PodCounts:
    """Counts, on each node, the pods that have certain labels. Caches the last count, because rules repeat it."""

    def __init__(self, matches: Matches) -> None:
        self._matches = matches
        self._last: tuple[dict[str, str], str | None, IntColumn] | None = None

    def forget(self) -> None:
        """Drops the stored result of `by_node`. Call it when pods may have changed."""
        self._last = None

    def by_node(self, labels: Mapping[str, str], namespace: str | None) -> IntColumn:
        """Returns the number of pods on each row that have all these labels: int64[row].

        `namespace`: None means all namespaces.
        """
        if self._last is None or self._last[1] != namespace or self._last[0] != labels:
            namespaces = None if namespace is None else frozenset((namespace,))
            query = PodCountQuery(namespaces, selector_from_labels(labels))
            self._last = dict(labels), namespace, self._matches.count(query).by_node
        return self._last[2]


class NodePods(Collection[Pod]):
    """The pods on one node, including pods that are assumed there or are being deleted."""

    def __init__(self, pods: list[Pod], counts: PodCounts, row: int) -> None:
        self._pods = pods
        self._counts = counts
        self._row = row

    def __iter__(self) -> Iterator[Pod]:
        return iter(self._pods)

    def __len__(self) -> int:
        return len(self._pods)

    def __contains__(self, pod: object) -> bool:
        return pod in self._pods

    def count(self, labels: Mapping[str, str], namespace: str | None = None) -> int:
        """Returns the number of pods that have all these labels. `namespace`: None means all namespaces.

        It is faster than a loop over the pods, because it takes the same time for any number of pods.
        """
        return int(self._counts.by_node(labels, namespace)[self._row])

    def count_owned_by(self, uid: str) -> int:
        """Returns the number of pods whose controller has this UID."""
        return self._by_owner[uid]

    @lazy_attribute
    def _by_owner(self) -> Counter[str]:
        return Counter(owner.uid for pod in self._pods if (owner := pod.controller) is not None)


class NodeInfo:
    """A node with its pods and totals. A rule may use a NodeInfo only until the rule returns.

    Attributes:
        node: the node itself.
        pods: the pods on the node.
    """

    def __init__(self, node: Node, pods: NodePods, nodes: NodeColumns, row: int) -> None:
        self.node = node
        self.pods = pods
        self._nodes = nodes
        self._row = row

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def labels(self) -> Mapping[str, str]:
        return self.node.labels

    @property
    def annotations(self) -> Mapping[str, str]:
        return self.node.annotations

    @property
    def taints(self) -> Collection[Taint]:
        return self.node.taints

    @lazy_attribute
    def requested(self) -> Mapping[str, int]:
        """The sum of the pods' requests by resource: cpu in millicores, memory and storage in bytes.

        The resource `pods` is the number of pods.
        """
        return self._amounts(self._nodes.requested)

    @lazy_attribute
    def allocatable(self) -> Mapping[str, int]:
        """The resources that pods on the node may request in total, in the same units as `requested`."""
        return self._amounts(self._nodes.allocatable)

    @lazy_attribute
    def images(self) -> Mapping[str, int]:
        """The sizes in bytes of the images on the node, by name."""
        return image_sizes(self.node)

    def _amounts(self, matrix: IntColumn) -> Mapping[str, int]:
        column = matrix[:, self._row].tolist()
        resources = self._nodes.resources.items()
        return {name: column[index] for name, index in resources if index == PODS or index not in DERIVED}


class NodeInfos:
    """The NodeInfo of each node of a table. `at` updates the NodeInfos before it returns them."""

    def __init__(self, nodes: NodeColumns, pods: PodColumns, matches: Matches, journal: Journal) -> None:
        self._nodes = nodes
        self._pods = pods
        self._counts = PodCounts(matches)
        self._node_changes = Cursor(journal, NODES, RESOURCES)
        self._pod_changes = Cursor(pods.changes, RESOURCES)
        self._infos: list[NodeInfo | None] = []

    def at(self, rows: Rows) -> list[NodeInfo]:
        """Returns the NodeInfo of the node on each row; every row must have a node."""
        self._refresh()
        infos = self._infos
        return cast("list[NodeInfo]", [infos[row] for row in rows.tolist()])

    def _refresh(self) -> None:
        self._counts.forget()
        nodes = self._node_changes.read()
        pods = self._pod_changes.read()
        if nodes is None or pods is None or len(nodes) + len(pods) > MOST_FOLLOWED:
            self._infos = self._all()
            return
        self._infos += [None] * (self._nodes.capacity - len(self._infos))
        for row in {*nodes, *pods}:
            slots = self._pods.on(row)
            self._infos[row] = self._info(row, [info.pod for info in self._pods.at(slots)])

    def _all(self) -> list[NodeInfo | None]:
        slots = np.flatnonzero(self._pods.row >= 0)
        slots = slots[np.argsort(self._pods.row[slots], kind="stable")]
        pods = [info.pod for info in self._pods.at(slots)]
        ends = np.searchsorted(self._pods.row[slots], np.arange(self._nodes.capacity), "right").tolist()
        starts = [0, *ends]
        return [self._info(row, pods[starts[row] : end]) for row, end in enumerate(ends)]

    def _info(self, row: int, pods: list[Pod]) -> NodeInfo | None:
        if not self._nodes.present[row]:
            return None
        return NodeInfo(self._nodes.node(row), NodePods(pods, self._counts, row), self._nodes, row)

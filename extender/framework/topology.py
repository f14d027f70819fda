"""Counts pods by topology domain, and derives the selector by which a pod's replicas are spread over domains.

A domain is the set of nodes that have the same value of one label. The selector is that of the services and controllers
that select the pod. Source: upstream plugins/helper DefaultSelector.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from extender.model.meta import LabelSelector, OwnerReference
from extender.model.selectors import EVERYTHING, Selector, compile_selector, selector_from_labels
from extender.model.workloads import ReplicaSet, ReplicationController, StatefulSet
from extender.table import HypotheticalRemovals, PodInfo, Table
from extender.table.labels import ABSENT, BoolColumn, IntColumn, LabelColumn, Rows, mask_of

HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"


def summed_by_domain(column: LabelColumn, by_node: IntColumn, domain: Rows | None = None) -> IntColumn:
    """Returns the sum of `by_node` over the nodes of each domain: int64[len(column)].

    Nodes without the label belong to no domain, so the sum for ABSENT, the id of a missing label, is 0.

    Args:
        by_node: int64[row]: the values to add up.
        domain: intp[row]: the domain of each node; ABSENT leaves a node out. By default, the ids of the column.
    """
    ids = column.ids if domain is None else domain
    counted = (by_node != 0).nonzero()[0]  # usually few
    sums = np.zeros(len(column), np.int64)
    np.add.at(sums, ids[counted], by_node[counted])
    sums[ABSENT] = 0
    return sums


def domains_in(column: LabelColumn, domain: Rows) -> BoolColumn:
    """Returns bool[len(column)]: True for each id that occurs in `domain`. ABSENT counts as an id, too."""
    return mask_of(len(column), domain)


@dataclass(frozen=True, slots=True)
class DomainCounts:
    """The number of matching pods in each domain of a topology key.

    Attributes:
        domain: intp[row]: the domain of each node.
        pods: int64[domain]: the number of matching pods.
        leaving: returns how many matching pods each node loses if the given pods are removed: int64[row].
    """

    domain: Rows
    pods: IntColumn
    leaving: Callable[[HypotheticalRemovals], IntColumn]

    def around(self, rows: Rows) -> IntColumn:
        """Returns the number of matching pods in the domain of each node in `rows`; 0 for a node without a domain."""
        pods: IntColumn = self.pods[self.domain[rows]]
        return pods

    def removed(self, rows: Rows, gone: HypotheticalRemovals) -> IntColumn:
        """Returns the number of matching pods in `gone` on each node in `rows`; 0 for a node without a domain."""
        removed: IntColumn = np.where(self.domain[rows] == ABSENT, 0, self.leaving(gone)[rows])
        return removed


def services_labels(pod: PodInfo, table: Table) -> dict[str, str]:
    """Returns the labels by which the pod's services select it."""
    services = table.services.selecting(pod.group)
    return {key: value for service in services for key, value in (service.spec.selector or {}).items()}


def default_selector(pod: PodInfo, table: Table) -> Selector:
    """Returns the combined selectors of the pod's services and controller; EVERYTHING if the pod has neither."""
    labels = services_labels(pod, table)
    owner = pod.pod.controller
    if owner is None:
        return selector_from_labels(labels) if labels else EVERYTHING
    key = f"{pod.pod.namespace}/{owner.name}"
    if (owner.api_version, owner.kind) == ("v1", "ReplicationController"):
        controller = table.objects.get(ReplicationController, key)
        labels.update((controller.spec.selector or {}) if controller else {})
    replicas = _label_selector_of(owner, key, table)
    selector = selector_from_labels(labels)
    return selector.with_requirements(*compile_selector(replicas).requirements) if replicas else selector


def _label_selector_of(owner: OwnerReference, key: str, table: Table) -> LabelSelector | None:
    match owner.api_version, owner.kind:
        case "apps/v1", "ReplicaSet":
            controller: ReplicaSet | StatefulSet | None = table.objects.get(ReplicaSet, key)
        case "apps/v1", "StatefulSet":
            controller = table.objects.get(StatefulSet, key)
        case _:
            return None
    return controller.spec.selector if controller else None

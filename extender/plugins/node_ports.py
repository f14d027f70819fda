"""NodePorts: two pods on a node must not use the same host port. Source: upstream plugin nodeports."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from extender.framework.cluster_events import Action, Change, Resource
from extender.framework.plugin import FILTER, PRE_FILTER, Arguments, Plugin
from extender.framework.queueing_hints import Interest, Interests, Reads, has_place
from extender.framework.rules import Check, PerNode, Verdict
from extender.framework.status import unschedulable
from extender.table import HypotheticalRemovals, PodInfo, Table
from extender.table.labels import IntColumn, Rows
from extender.table.pod_columns import conflicts_between
from extender.table.podinfo import HostPort

NAME = "NodePorts"
REFUSAL = unschedulable(NAME, "node(s) didn't have free ports for the requested pod ports")


@dataclass(frozen=True, slots=True)
class NodePorts(PerNode):
    """Refuses nodes where another pod uses a host port that the pod requests."""

    name: str = NAME

    def prepare(self, pod: PodInfo, table: Table) -> Check | None:
        return _NodePortsCheck(pod.host_ports, table) if pod.host_ports else None


@dataclass(slots=True, eq=False)
class _NodePortsCheck(Check):
    sees_pods = True
    sees_own_pods_only = True

    _ports: Sequence[HostPort]
    _table: Table

    def refuse(self, rows: Rows) -> Verdict:
        taken = [row for _, rows_of_port in self._table.ports.conflicting(self._ports) for row in rows_of_port]
        return [(np.isin(rows, taken), REFUSAL)]

    def filter_with_pods_removed(self, rows: Rows, gone: HypotheticalRemovals) -> Verdict:
        balance = gone.sum_by_row(self, lambda: self._conflicts_of(gone.initial), lambda: self._balance(gone))
        return [(balance[rows] < 0, REFUSAL)]

    def _conflicts_of(self, slots: Rows) -> IntColumn:
        """Returns the number of port conflicts with each of the pods in `slots`: int64[slot]."""
        conflicts = np.zeros(len(self._table.pods.row), np.int64)
        conflicts[slots] = [conflicts_between(self._ports, info.host_ports) for info in self._table.pods.at(slots)]
        return conflicts

    def _balance(self, gone: HypotheticalRemovals) -> IntColumn:
        """Returns minus the number of port conflicts on each node before any pod is removed: int64[row].

        The caller adds the conflicts of removed pods, so 0 means that no conflict remains. If two pods use one port,
        removing either frees the port, because upstream keeps a node's ports as a set.
        """
        pods = self._table.pods
        balance = np.zeros(self._table.nodes.capacity, np.int64)
        remaining = {(row, port) for port, rows in self._table.ports.conflicting(self._ports) for row in rows}
        for row, info in zip(pods.row[gone.initial].tolist(), pods.at(gone.initial), strict=True):
            if info.host_ports:
                remaining.difference_update((row, port) for port in info.host_ports)
                balance[row] -= conflicts_between(self._ports, info.host_ports)
        for row, _ in remaining:
            balance[row] -= 1
        for info, row in gone.nominated.pairs():
            balance[row] -= conflicts_between(self._ports, info.host_ports)
        return balance


def ports_are_freed(pod: PodInfo, change: Change) -> bool:
    """Returns True if a pod left its node and used a port that this pod requests."""
    return has_place(change.old) and conflicts_between(pod.host_ports, change.old.host_ports) > 0


def ports_of_the_pod(change: Change) -> list[str]:
    """Returns the deleted pod's host ports as text. The queue looks up the waiting pods that request one of them."""
    return _port_numbers(change.old)


def _port_numbers(pod: PodInfo) -> list[str]:
    return [f"{port.port}" for port in pod.host_ports]


def _ports(pod: PodInfo) -> Hashable:
    return pod.host_ports


PLUGIN = Plugin(
    NAME,
    Arguments,
    lambda _: NodePorts(),
    needs=((FILTER, PRE_FILTER),),
    interests=Interests(
        (
            Interest(
                Resource.ASSIGNED_POD, Action.DELETE, ports_are_freed, Reads(_ports, _port_numbers), ports_of_the_pod
            ),
            Interest(Resource.NODE, Action.ADD),
        )
    ),
)

"""Finds the claims that must be allocated for a pod on each node, and the devices for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from extender.devices.allocations import FITS, AllocationFailure, Allocations, devices_of
from extender.devices.allocator.allocator import UNTIMED, NodeTimeLimit
from extender.devices.extended_resources import with_requests
from extender.devices.pod_claims import NAME, PodDeviceClaims
from extender.framework.rules import Verdict
from extender.framework.status import Code, Refusal, failed, unresolvable
from extender.model.devices import DeviceClass, ResourceClaim
from extender.model.node import Node
from extender.table import Table
from extender.table.labels import BoolColumn, Rows

STALE = unresolvable(NAME, "cannot schedule extended resource claim")
UNFIT = unresolvable(NAME, "cannot fit resource")


@dataclass(frozen=True, slots=True, eq=False)
class NodeGroup:
    """A group of nodes on which the same claims must be allocated for a pod.

    Attributes:
        mask: bool[n]: True for the rows in the group.
        claims: the claims to allocate.
        allocations: the devices for these claims on each node.
        limit: the time limit for the search on each node.
    """

    mask: BoolColumn
    claims: tuple[ResourceClaim, ...]
    allocations: Allocations
    limit: NodeTimeLimit

    def verdict(self, rows: Rows) -> Iterator[tuple[BoolColumn, Refusal]]:
        """Yields (mask, refusal) for each reason why nodes cannot provide the devices; the mask is bool[n].

        `rows` has n rows of the table. Rows outside this group are not refused.
        """
        outcomes = np.full(len(rows), FITS, np.intp)
        outcomes[self.mask] = self.allocations.outcomes(rows[self.mask], self.limit)
        for index in np.unique(outcomes[outcomes != FITS]).tolist():
            yield outcomes == index, self._refusal(self.allocations.failures[index])

    def _refusal(self, failure: AllocationFailure) -> Refusal:
        text = failure.text if failure.claim is None else f"claim {self.claims[failure.claim].key}{failure.text}"
        if failure.code is Code.ERROR:
            return failed(NAME, f'running "{NAME}" filter plugin: {text}')
        return unresolvable(NAME, text)


class NodeClaims:
    """The claims that must be allocated for one pod on each of n rows.

    Attributes:
        groups: the nodes on which claims must be allocated, grouped by claims; each node is in at most one group.
        refused: the nodes that cannot provide the pod's extended resources; no group contains them.
    """

    def __init__(self, claims: PodDeviceClaims, table: Table, rows: Rows, limit: NodeTimeLimit = UNTIMED) -> None:
        self._claims = claims
        self._table = table
        self._rows = rows
        self._limit = limit._replace(decision=table.deadline)
        self.groups: list[NodeGroup] = []
        self.refused: Verdict = ()
        if claims.special is not None:
            self._place_extended(claims.special)
        elif claims.to_allocate:
            self._add(np.ones(len(rows), np.bool_), claims.to_allocate)

    def delegated(self) -> dict[str, DeviceClass]:
        """Returns the extended resources that devices must provide on the first row, and their device classes.

        These are the resources that no device plugin offers there. Call this only if there is a single row.
        """
        return {name: cls for name, cls in self._claims.backed.items() if not self._allocatable(name)[0]}

    def _add(self, mask: BoolColumn, claims: Sequence[ResourceClaim]) -> None:
        if mask.any():
            self.groups.append(NodeGroup(mask, tuple(claims), devices_of(self._table).allocations(claims), self._limit))

    def _place_extended(self, special: ResourceClaim) -> None:
        # An earlier attempt created the claim, possibly for another node, so the pod cannot use it.
        if special.requests:
            self.refused = [(np.ones(len(self._rows), np.bool_), STALE)]
            return
        unfit = np.zeros(len(self._rows), np.bool_)
        for name in self._claims.unbacked:
            unfit |= ~self._offered(name)
        self.refused = [(unfit, UNFIT)]
        # Each node needs devices for the resources that no device plugin offers there.
        combination = np.zeros(len(self._rows), np.int64)
        for bit, name in enumerate(self._claims.backed):
            combination |= (self._allocatable(name) == 0).astype(np.int64) << bit
        for code in np.unique(combination[~unfit]).tolist():
            classes = {name: c for bit, (name, c) in enumerate(self._claims.backed.items()) if code >> bit & 1}
            if classes or self._claims.user:
                own = with_requests(special, self._claims.pod, classes)
                pending = [own] if special.allocation is None else []
                self._add((combination == code) & ~unfit, [*self._claims.to_allocate, *pending])

    def _allocatable(self, resource: str) -> Rows:
        index = self._table.nodes.resources.get(resource)
        nothing: Rows = np.zeros(len(self._rows), np.int64)
        return nothing if index is None else self._table.nodes.allocatable[index][self._rows]

    def _offered(self, resource: str) -> BoolColumn:
        """Returns bool[n]: True if the node lists the resource, even with an amount of 0."""
        offered = self._table.nodes.facts(_offered_names)
        having = np.array([resource in names for names in offered.values], np.bool_)
        mask: BoolColumn = having[offered.ids[self._rows]]
        return mask


def _offered_names(node: Node) -> frozenset[str]:
    return frozenset(node.allocatable)

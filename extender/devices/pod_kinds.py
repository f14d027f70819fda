"""Learns the typical pods of a cluster from the pods on its nodes, for policies such as FGD."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

import msgspec

from extender.devices.device_columns import DeviceColumns
from extender.devices.device_nodes import WHOLE
from extender.devices.device_requests import claim_data
from extender.devices.device_scores import Step, steps_of
from extender.devices.pod_claims import (
    claim_for,
    class_behind,
    existing_claims,
    may_be_backed,
    sharing_group,
    with_requests,
)
from extender.devices.typical_pods import Kind, TypicalPods, most_frequent
from extender.framework.status import Refusal
from extender.model.devices import DeviceClass, ResourceClaim
from extender.table import PodInfo, Table
from extender.table.journal import RESOURCES, Cursor

_RENEWED = 20
"""The typical pods are learned again when one in so many pods has changed."""
_MILLI_STEP = 20
_MOST_KINDS = 128
_MOST_SPECS = 4096


class PodKinds:
    """Counts the kinds of pods on the nodes of a table. A change costs the pods of the nodes that changed."""

    def __init__(self, table: Table, columns: DeviceColumns) -> None:
        self._table = table
        self._columns = columns
        self._changed_pods = Cursor(table.pods.changes, RESOURCES)
        self._changed_requests = Cursor(table.journal, RESOURCES)
        self._changed_claims = Cursor(table.journal, ResourceClaim.__name__, DeviceClass.__name__)
        self._of_row: dict[int, dict[str, tuple[PodInfo, Kind]]] = {}  # by UID
        self._counts: Counter[Kind] = Counter()
        self._pods = 0  # the sum of the counts, which would take long to add up if all pods differ
        self._unresolved: set[int] = set()
        self._devices_of_spec: dict[bytes, Kind] = {}
        self._classes = 0
        self._changes = 0  # pods that came or left since the typical pods were learned
        self._typical = TypicalPods({})

    def typical(self) -> TypicalPods:
        """Returns the typical pods; the same object as before while less than a twentieth of the pods has changed.

        New typical pods change the fragmentation of every node, so learning from each pod would cost as much as a
        decision without kept columns.
        """
        self._refresh()
        if self._changes and self._changes * _RENEWED >= self._pods:
            self._changes = 0
            by_frequency = sorted(self._counts.items(), key=lambda item: (-item[1], *item[0][:3], sorted(item[0][3])))
            self._typical = TypicalPods(most_frequent(dict(by_frequency[:_MOST_KINDS])))
        return self._typical

    def _refresh(self) -> None:
        """Counts the pods again on the nodes that changed."""
        pods, requests = self._changed_pods.read(), self._changed_requests.read()
        claims_changed = self._changed_claims.advance()
        rows = None if pods is None or requests is None else {*pods, *requests}
        if len(self._columns.classes) != self._classes:  # a claim may be able to use the new devices
            self._classes = len(self._columns.classes)
            self._devices_of_spec.clear()
            rows = None
        if rows is None:
            self._counts.clear()
            self._pods = 0
            self._of_row.clear()
            self._unresolved.clear()
            by_row: defaultdict[int, list[PodInfo]] = defaultdict(list)
            pods_of_all = self._table.pods
            for slot in pods_of_all.slot_of.values():
                by_row[int(pods_of_all.row[slot])].append(pods_of_all.info(slot))
            for row, infos in by_row.items():
                self._count(row, infos)
            self._changes += 1  # also if no pod is left
            return
        if claims_changed:
            rows |= self._unresolved
        for row in rows:
            self._count(row, self._table.pods.at(self._table.pods.on(row)))

    def _count(self, row: int, infos: Iterable[PodInfo]) -> None:
        """Replaces what was counted on the node in this row."""
        before = self._of_row.get(row, {})
        known = before if row not in self._unresolved else {}
        self._unresolved.discard(row)
        now: dict[str, tuple[PodInfo, Kind]] = {}
        self._of_row[row] = now
        for info in infos:
            same = known.get(info.uid)
            now[info.uid] = same if same and same[0] is info else (info, self._kind(info, row))
        for pod in before.keys() - now.keys():
            self._add(before[pod][1], -1)
        for pod, (_, kind) in now.items():
            if pod not in before:
                self._add(kind, 1)
            elif before[pod][1] != kind:
                self._add(before[pod][1], -1)
                self._add(kind, 1)

    def _add(self, kind: Kind, pods: int) -> None:
        self._changes += 1
        self._pods += pods
        self._counts[kind] += pods
        if not self._counts[kind]:
            del self._counts[kind]

    def _kind(self, info: PodInfo, row: int) -> Kind:
        """Returns the kind of the pod. Its CPU is rounded, because pods that are almost alike are of one kind."""
        cpu = _rounded(info.requests.get("cpu", 0))
        kinds = [self._devices(claim) for claim in self._claims(info, row)]
        asking = [kind for kind in kinds if kind[2]]
        if not asking:
            return cpu, 0, 0, frozenset()
        if len(asking) > 1:
            return cpu, WHOLE, sum(kind[2] for kind in asking), asking[0][3]
        _, milli, count, models = asking[0]
        return cpu, milli, count, models

    def _claims(self, info: PodInfo, row: int) -> list[ResourceClaim]:
        objects = self._table.objects
        group = sharing_group(info.pod, self._table)
        claims = existing_claims(info.pod, lambda key: objects.get(ResourceClaim, key), group)
        if isinstance(claims, Refusal):
            self._unresolved.add(row)
            return []
        classes = {
            name: device_class
            for name, amount in info.requests.items()
            if amount and may_be_backed(name) and (device_class := class_behind(name, self._table)) is not None
        }
        return [*claims, with_requests(claim_for(info.pod), info.pod, classes)] if classes else claims

    def _devices(self, claim: ResourceClaim) -> Kind:
        """Returns what the claim asks for, as the kind of a pod without CPU."""
        key = msgspec.json.encode((claim.spec.devices.requests, claim.spec.devices.constraints))
        kind = self._devices_of_spec.get(key)
        if kind is None:
            if len(self._devices_of_spec) >= _MOST_SPECS:
                self._devices_of_spec.clear()
            by_meaning = self._table.features.behaviours.attributes_fail_when_read
            data = claim_data(0, claim, self._table.objects.all(DeviceClass), by_meaning=by_meaning)
            kind = self._devices_of_spec[key] = _devices_of(steps_of(self._columns, (data,)))
        return kind


def _devices_of(steps: list[Step]) -> Kind:
    if not steps:
        return 0, 0, 0, frozenset()
    if len(steps) > 1:
        return 0, WHOLE, sum(step.devices for step in steps), steps[0].models
    milli = int(steps[0].sizes[steps[0].sizes > 0].min())
    return 0, -(-milli // _MILLI_STEP) * _MILLI_STEP, steps[0].devices, steps[0].models


def _rounded(cpu: int) -> int:
    """Rounds up to two digits: 11908 -> 12000."""
    step: int = 10 ** max(0, len(str(cpu)) - 2)
    return -(-cpu // step) * step

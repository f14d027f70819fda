"""Applies device policies to a pod's claims: scores nodes, and finds the devices on one node that policies like best.

A claim is a sequence of steps, each of which takes one share or some whole devices. A policy sees one step at a time,
with the devices of the steps before it in use. `PodKinds` learns the typical pods, which policies such as FGD know,
from the pods on the nodes.

The search for the best devices is the allocator's, so that every rule about devices is the same. It tries devices in
the order of their scores instead of their positions, and continues after it has found devices for all claims, until
none can be better or the budget is spent. Under the policy FirstFit all scores are equal, so that the result is
kube-scheduler's.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

import msgspec
import numpy as np

from extender.devices import pod_claims
from extender.devices.allocator import UNTIMED, Allocator, DeviceResults, Search
from extender.devices.device_columns import NO_SLOT, DeviceColumns, Layout
from extender.devices.device_nodes import WHOLE, Bools, DeviceAsk, DeviceNodes, Ints
from extender.devices.device_requests import AllocationError, ClaimsToAllocate, RequestData, claim_data
from extender.devices.device_totals import AllocatedState
from extender.devices.inventory import PoolDevice, Views
from extender.devices.policies import MAX_SCORE, NEVER, BestPolicy, Weighted, best_devices, total
from extender.devices.typical_pods import Kind, TypicalPods, most_frequent
from extender.framework.status import Refusal
from extender.model.devices import DeviceClass, ResourceClaim
from extender.table import PodInfo, Table
from extender.table.filing import adjust, cached
from extender.table.journal import RESOURCES, Cursor
from extender.table.labels import Rows

_MOST_STEPS = 8
_RENEWED = 20
"""The typical pods are learned again when one in so many pods has changed."""
_MILLI_STEP = 20
_MOST_KINDS = 128
_MOST_SPECS = 4096
_BUDGET = 200
"""Choices of devices, after which the best that was found is taken."""


class Step(NamedTuple):
    """A share of one device, or some whole devices, for one request.

    Attributes:
        sizes: int64[class]: the thousandths that it takes of a slot of each class; 0 if it cannot use the slot.
        models: the models that it can use; empty if it can use every model of the cluster.
    """

    sizes: Ints
    devices: int
    models: frozenset[str] = frozenset()

    def asks(self, cpu: int = 0, memory: int = 0) -> list[DeviceAsk]:
        """Returns the step as policies know it, once for each size that it has; CPU and memory come in addition."""
        sizes = np.unique(self.sizes[self.sizes > 0]).tolist()
        return [DeviceAsk(cpu, memory, size, self.devices, self.models) for size in sizes]


def steps_of(columns: DeviceColumns, claims: ClaimsToAllocate) -> list[Step]:
    """Returns the steps of the claims. Requests for all devices, and with admin access, have none."""
    requests = (alternatives for claim in claims for alternatives in claim.requests)
    return [step for alternatives in requests for step in _steps(columns, alternatives)][:_MOST_STEPS]


def _steps(columns: DeviceColumns, alternatives: Iterable[RequestData]) -> Iterator[Step]:
    """Yields the steps of the first alternative that any device of the cluster satisfies."""
    for request in alternatives:
        sizes = columns.sizes(request)
        if request.takes_all or request.admin or not sizes.any():
            continue
        usable = {slots.model for slots, size in zip(columns.classes, sizes, strict=True) if size}
        all_models = {slots.model for slots in columns.classes if slots.samples}
        step = Step(sizes, request.count, frozenset() if usable == all_models else frozenset(usable))
        if request.count > 1 and (sizes[sizes > 0] < WHOLE).any():
            yield from [step._replace(devices=1)] * request.count
        else:
            yield step
        return


Taken = Callable[[int], Ints]
"""Returns, for a step, the slot that it takes on each row: int64[n]; the step is given by its index."""


def score_rows(
    columns: DeviceColumns,
    rows: Rows,
    steps: Sequence[Step],
    resources: tuple[int, int],
    parts: Sequence[Weighted],
    taken: Taken | None = None,
) -> Ints:
    """Returns int64[n]: the weighted mean of the policies' scores, 0 to 100, on rows that can take the pod.

    `resources`: the CPU and memory that the pod requests. `taken`: None if a step takes the best slot.
    """
    # Copying most rows costs more than scoring the others, too.
    span = np.arange(rows[0], rows[-1] + 1)
    sees_all = taken is None and 2 * len(rows) > len(span)
    seen = span if sees_all else rows
    nodes, classes = columns.nodes.view(seen), columns.class_of[slice(span[0], span[-1] + 1) if sees_all else rows]
    sums = np.zeros((len(parts), len(seen)), np.int64)
    scored = _ScoredNodes(nodes, classes, parts)
    for index, step in enumerate(steps):
        asks = step.asks() if index else step.asks(*resources)
        sums += scored.score(step, asks, taken and taken(index), is_followed=index + 1 < len(steps))
    if len(steps) > 1:
        sums //= len(steps)
    if not steps:
        for column, part in zip(sums, parts, strict=True):
            raw = part.policy.score(nodes, DeviceAsk(*resources))
            column[:] = raw if raw.ndim == 1 else raw[:, 0]
    if len(rows) < len(seen):
        sums = sums[:, rows - rows[0]]
    scores: Ints = total(parts, list(sums), np.ones(len(rows), np.bool_))
    if (weights := sum(part.weight for part in parts)) > 1:
        scores //= weights
    limited: Ints = np.minimum(np.maximum(scores, 0), MAX_SCORE)  # much faster than clip()
    return limited


@dataclass(slots=True)
class _ScoredNodes:
    """The nodes that one pod is scored on, step by step; `classes`, intp[row, slot], has the class of each slot."""

    nodes: DeviceNodes
    classes: Rows
    parts: Sequence[Weighted]

    def score(self, step: Step, asks: Sequence[DeviceAsk], taken: Ints | None, *, is_followed: bool) -> Ints:
        """Returns int64[part, n]: the scores of a step. If another follows, the slots of this one are then in use."""
        nodes = self.nodes
        wanted, fitting = self._fitting(step, asks)
        columns = np.zeros((len(self.parts), len(nodes.free)), np.int64)
        slots = np.zeros(len(nodes.free), np.intp)
        highest = np.full(len(nodes.free), NEVER)
        for ask in asks:
            fits = fitting if len(asks) == 1 else fitting & (wanted == ask.milli)
            rows = np.flatnonzero(fits.any(axis=1) if ask.count == 1 else np.count_nonzero(fits, axis=1) >= ask.count)
            if not len(rows):
                continue
            by_part, best = self._score_ask(ask, rows, fits, taken, is_followed)
            if len(asks) > 1:
                sums = np.array([part.weight for part in self.parts]) @ by_part
                better = np.flatnonzero(sums > highest[rows])
                rows, by_part, best = rows[better], by_part[:, better], best[better]
                highest[rows] = sums[better]
            columns[:, rows] = by_part
            slots[rows] = best
        if is_followed:
            self._take(fitting, wanted, step.devices, slots)
        return columns

    def _score_ask(
        self, ask: DeviceAsk, rows: Rows, fits: Bools, taken: Ints | None, is_followed: bool
    ) -> tuple[Ints, Ints]:
        """Returns the scores on these rows, int64[part, n], and the slots that give them, int64[n].

        The slots may all be 0 if no step follows, because then nothing reads them.
        """
        nodes, parts = self.nodes, self.parts
        is_most = 2 * len(rows) > len(nodes.free)  # then scoring all rows is faster than copying some
        if not is_most:
            nodes, fits, taken = nodes.view(rows), fits[rows], None if taken is None else taken[rows]
        slots = np.zeros(len(fits), np.int64)
        scores: list[Ints] = []
        if taken is None and not is_followed and sum(isinstance(part.policy, BestPolicy) for part in parts) == 1:
            policies = [part.policy for part in parts]
            scores = [
                policy.best(nodes, ask, fits) if isinstance(policy, BestPolicy) else policy.score(nodes, ask)
                for policy in policies
            ]
        if not scores or any(each.ndim == 2 for each in scores):
            scores = [part.policy.score(nodes, ask) for part in parts]
            slots = best_devices(nodes, fits, scores, parts) if taken is None else taken
        by_part = np.array([each if each.ndim == 1 else each[np.arange(len(slots)), slots] for each in scores])
        if is_most and len(rows) < len(slots):
            return by_part[:, rows], slots[rows]
        return by_part, slots

    def _fitting(self, step: Step, asks: Sequence[DeviceAsk]) -> tuple[Ints, Bools]:
        """Returns what the step takes of each slot, int64[row, slot], and True where so much is free."""
        free = self.nodes.free
        if len(asks) == 1 and step.sizes[NO_SLOT + 1 :].all():  # a slot that does not exist has nothing free
            milli = np.full(1, asks[0].milli)
            return np.broadcast_to(milli, free.shape), free >= milli
        wanted = step.sizes.take(self.classes.T).T
        return wanted, (wanted > 0) & (free >= wanted)

    def _take(self, fitting: Bools, wanted: Ints, count: int, slots: Rows) -> None:
        """Takes the devices of one step: the slots, or the first ones that fit if there are several."""
        if count == 1:
            fitting = fitting & (np.arange(fitting.shape[1]) == slots[:, np.newaxis])
        taken = fitting & (np.cumsum(fitting, axis=1) <= count)
        self.nodes.free = self.nodes.free - np.where(taken, wanted, 0)
        self.nodes.touch()


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
        self._devices_of_spec: OrderedDict[bytes, Kind] = OrderedDict()
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
        adjust(self._counts, kind, pods)

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
        group = pod_claims.sharing_group(info.pod, self._table)
        claims = pod_claims.existing_claims(info.pod, lambda key: objects.get(ResourceClaim, key), group)
        if isinstance(claims, Refusal):
            self._unresolved.add(row)
            return []
        classes = pod_claims.backed_resources(info, self._table)
        if not classes:
            return claims
        return [*claims, pod_claims.with_requests(pod_claims.claim_for(info.pod), info.pod, classes)]

    def _devices(self, claim: ResourceClaim) -> Kind:
        """Returns what the claim asks for, as the kind of a pod without CPU."""
        key = msgspec.json.encode((claim.spec.devices.requests, claim.spec.devices.constraints))
        return cached(self._devices_of_spec, key, lambda: self._kind_of_claim(claim), _MOST_SPECS)

    def _kind_of_claim(self, claim: ResourceClaim) -> Kind:
        by_meaning = self._table.features.behaviours.attributes_fail_when_read
        data = claim_data(0, claim, self._table.objects.all(DeviceClass), by_meaning=by_meaning)
        return _devices_of(steps_of(self._columns, (data,)))


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


class _BudgetSpentError(Exception):
    pass


class _Scored(NamedTuple):
    """The candidates of a request in the order in which they are tried: their positions and scores."""

    positions: Sequence[int]
    scores: Sequence[int]

    @property
    def differs(self) -> bool:
        return self.scores[0] != self.scores[-1] if self.scores else False


class BestDevices(Allocator):
    """One search on one node. `resources`: the CPU and memory that the pod requests."""

    def __init__(
        self,
        claims: ClaimsToAllocate,
        views: Views,
        allocated: AllocatedState,
        columns: DeviceColumns,
        row: int,
        resources: tuple[int, int],
        parts: Sequence[Weighted],
    ) -> None:
        super().__init__(claims, views, allocated, UNTIMED)
        self._columns = columns
        self._row = row
        self._resources = resources
        self._parts = parts
        self._layout: Layout | None = columns.layout_of(row)
        self._orders: dict[RequestData, _Scored] = {}
        self._sum = 0
        self._differing = 0
        self._best_sum = 0

    def find(self) -> DeviceResults | None:
        """Returns the devices of each claim; None if the budget ends before any are found."""
        if self._layout is None:
            return None
        with suppress(_BudgetSpentError, AllocationError):
            self.run()
        return self._found

    def _accepts(self) -> bool:
        if self._found is None or self._sum > self._best_sum:
            super()._accepts()
            self._best_sum = self._sum
        # The first devices found are the best if the policy had a preference at one choice only.
        return self._differing <= 1

    def _check_time(self) -> None:
        super()._check_time()
        if self._steps > _BUDGET:
            raise _BudgetSpentError

    def _any_of(  # the base class stops early by `wanted`
        self,
        index: int,
        request: RequestData,
        got: int,
        start: int,
        wanted: int,  # noqa: ARG002  see above
    ) -> Search:
        """Tries each candidate from `start` on, in the order that was made for the request's first device."""
        if not got:
            self._orders[request] = self._order(request)
        order = self._orders[request]
        self._differing += order.differs
        for place in range(start, len(order.positions)):
            candidate = self._candidates[order.positions[place]]
            if self._allocating.in_use(request, candidate[0]) or not self._is_selectable(request, candidate):
                continue
            self._sum += order.scores[place]
            try:
                yield from self._with(index, request, got, candidate, place + 1)
            finally:
                self._sum -= order.scores[place]
        self._differing -= order.differs

    def _order(self, request: RequestData) -> _Scored:
        """Returns the candidates that are free, the best first; of equals, the first in kube-scheduler's order."""
        free = self._free()
        scored: list[tuple[int, int]] = []
        by_size: dict[int, Ints] = {}
        for position in range(len(self._candidates)):
            slot, size = self._place(request, self._candidates[position][0])
            if size and free[slot] >= size:
                if size not in by_size:
                    by_size[size] = self._scores(free, size, request.count)
                scored.append((-int(by_size[size][slot]), position))
        scored.sort()
        return _Scored([position for _, position in scored], [-score for score, _ in scored])

    def _place(self, request: RequestData, device: PoolDevice) -> tuple[int, int]:
        """Returns the device's slot, and the thousandths of it that the request takes; 0 if it cannot use it."""
        assert self._layout is not None
        slot, part = self._layout.place_of.get(device.id, (0, 0))
        if not part:
            return 0, 0
        number = self._layout.classes[slot]
        if not device.counters:  # all devices of the class are of one size
            return slot, int(self._columns.sizes(request)[number])
        return slot, self._columns.size(request, device, part, self._columns.classes[number].resource)

    def _free(self) -> Ints:
        """Returns int64[slot]: the thousandths that the claims leave free with the devices chosen so far."""
        free: Ints = self._columns.nodes.free[self._row].copy()
        for results in self._allocating.results:
            for result in results:
                slot, size = self._place(result.request, result.device)
                free[slot] -= size
        return free

    def _scores(self, free: Ints, size: int, count: int) -> Ints:
        """Returns int64[slot]: the weighted sum of the policies' scores for a device of this size on each slot."""
        nodes = self._columns.nodes.take(np.array([self._row]))
        if not np.array_equal(nodes.free[0], free):
            nodes.free[0] = free
            nodes.touch()
        ask = DeviceAsk(*self._resources, size, count if size == WHOLE else 1)
        scores = [part.weight * part.policy.score(nodes, ask)[0] for part in self._parts]
        by_slot = [each for each in scores if each.ndim]
        result: Ints = np.sum(by_slot, axis=0) if by_slot else -free
        return result

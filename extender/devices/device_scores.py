"""Scores nodes for a pod by device policies: translates claims into what policies know, and back.

A claim is a sequence of steps, each of which takes one share or some whole devices. A policy sees one step at a time,
with the devices of the steps before it in use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from extender.devices.device_columns import DeviceColumns
from extender.devices.device_requests import ClaimsToAllocate, RequestData
from extender.devices.policies.device_nodes import WHOLE, Bools, DeviceAsk, DeviceNodes, Ints
from extender.devices.policies.policy import MAX_SCORE, NEVER, Weighted, best_devices, total
from extender.table.labels import Rows

_MOST_STEPS = 8


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
    for index, step in enumerate(steps):
        sums += _score_step(
            nodes,
            classes,
            step,
            resources if not index else (0, 0),
            parts,
            taken and taken(index),
            index + 1 < len(steps),
        )
    if steps:
        sums //= len(steps)
    else:
        for column, part in zip(sums, parts, strict=True):
            raw = part.policy.score(nodes, DeviceAsk(*resources))
            column[:] = raw if raw.ndim == 1 else raw[:, 0]
    if sees_all:
        sums = sums[:, rows - rows[0]]
    weights = sum(part.weight for part in parts)
    scores: Ints = (total(parts, list(sums), np.ones(len(rows), np.bool_)) // weights).clip(0, MAX_SCORE)
    return scores


def _score_step(
    nodes: DeviceNodes,
    classes: Rows,
    step: Step,
    resources: tuple[int, int],
    parts: Sequence[Weighted],
    taken: Ints | None,
    is_followed: bool,
) -> Ints:
    """Returns int64[part, n]: the scores of one step. If another follows, the slots of this one are then in use."""
    wanted = step.sizes[classes]
    fitting = (wanted > 0) & (nodes.free >= wanted)
    asks = step.asks(*resources)
    columns = np.zeros((len(parts), len(nodes.free)), np.int64)
    highest = np.full(len(nodes.free), NEVER)
    slots = np.zeros(len(nodes.free), np.intp)
    for ask in asks:
        fits = fitting if len(asks) == 1 else fitting & (wanted == ask.milli)
        rows = np.flatnonzero(np.count_nonzero(fits, axis=1) >= ask.count)
        if not len(rows):
            continue
        is_most = 2 * len(rows) > len(nodes.free)
        some, fits = (nodes, fits) if is_most else (nodes.view(rows), fits[rows])
        scores = [part.policy.score(some, ask) for part in parts]
        best = best_devices(some, fits, scores, parts) if taken is None else taken if is_most else taken[rows]
        by_part = np.array([each if each.ndim == 1 else each[np.arange(len(best)), best] for each in scores])
        if is_most:
            best, by_part = best[rows], by_part[:, rows]
        sums = np.array([part.weight for part in parts]) @ by_part
        better = sums > highest[rows]
        highest[rows[better]] = sums[better]
        columns[:, rows[better]] = by_part[:, better]
        slots[rows[better]] = best[better]
    if is_followed:
        _take(nodes, fitting, wanted, step.devices, slots)
    return columns


def _take(nodes: DeviceNodes, fitting: Bools, wanted: Ints, count: int, slots: Rows) -> None:
    """Takes the devices of one step: the slots, or the first ones that fit if there are several."""
    if count == 1:
        fitting = fitting & (np.arange(fitting.shape[1]) == slots[:, np.newaxis])
    taken = fitting & (np.cumsum(fitting, axis=1) <= count)
    nodes.free = nodes.free - np.where(taken, wanted, 0)
    nodes.touch()

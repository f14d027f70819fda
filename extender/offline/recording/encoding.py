"""The calls, changes and attempts that the recorder is told, and the lines that are written of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from extender.cache.changes import NODE, Present, Updates
from extender.cache.placements import PodPlacement
from extender.cache.pod_states import PodState
from extender.extender_v1.encoding import encode
from extender.extender_v1.types import NULL, ExtenderArgs, ExtenderFilterResult, HostPriorityList
from extender.model.documents import WHOLE
from extender.model.meta import Object
from extender.offline.recording.lines import (
    AttemptLine,
    CallLine,
    CheckpointLine,
    Line,
    NodeNumbers,
    NodesLine,
    ObjectLine,
    as_digits,
    as_ranges,
)
from extender.scheduler.scheduling_cycle import Chosen, Unfit
from extender.table import PodInfo

_ENCODE = msgspec.json.Encoder().encode
_WHOLE = tuple(WHOLE.values())


class LineEncoder:
    """The state of one recording: what is there by now, and the numbers of the nodes of the file at hand.

    Each method yields the lines of one thing that the recorder was told, one as a rule; in the order of the telling.
    """

    def __init__(self) -> None:
        self._present: dict[tuple[str, str], tuple[int, Present]] = {}
        self._numbers = NodeNumbers()
        self._order: Sequence[str] | None = None
        self._order_written = False
        self._moment = 0

    def begin_file(self, at: float) -> Iterator[Line]:
        """Yields the lines that another file begins with: all that is there."""
        self._numbers, self._order_written = NodeNumbers(), False
        if self._present:
            yield CheckpointLine(at=at, moment=self._moment, objects=len(self._present))
        for (kind, key), (_, present) in list(self._present.items()):
            yield _object_line(at, self._moment, kind, key, present)

    def change(self, at: float, moment: int, kind: str, key: str, present: Present) -> Iterator[Line]:
        """Yields what the cache has noted. `present` None: the object is gone."""
        self._keep(moment, kind, key, present)
        yield _object_line(at, moment, kind, key, present)

    def checkpoint(self, at: float, moment: int, updates: Updates, dropped: int) -> Iterator[Line]:
        """Yields everything there is, after so many changes were dropped."""
        self._present.clear()
        yield CheckpointLine(at=at, moment=moment, objects=len(updates), dropped=dropped)
        for kind, key, present in updates:
            yield from self.change(at, moment, kind, key, present)

    def _keep(self, moment: int, kind: str, key: str, present: Present) -> None:
        self._moment = moment
        if present is None:
            self._present.pop((kind, key), None)
        else:
            self._present[kind, key] = moment, present

    def call(
        self, at: float, moment: int, verb: str, outcome: str, request: Any, result: Any, error: str
    ) -> Iterator[Line]:
        """Yields a verb's call; `result` is its answer, None where there is none but `error`."""
        line = CallLine(at=at, moment=moment, verb=verb, result=outcome, error=error)
        if hasattr(request, "pod"):
            line.pod = _raw(request.pod)
        if isinstance(request, ExtenderArgs):
            try:
                numbers = self._numbers.of(request.names)
            except KeyError:  # as a rule all have a number: to look them up is most of the work
                yield from self._naming(at, request.names)
                numbers = self._numbers.of(request.names)
            line.nodes, line.whole = as_ranges(np.unique(numbers)), request.node_names is None
            line.outside = self._outside(request, moment)
        elif line.pod != NULL:
            line.request = msgspec.Raw(_ENCODE(dict(request.victims)))
        else:
            line.request = msgspec.Raw(_ENCODE(request))
        if isinstance(result, ExtenderFilterResult):
            line.refused = self._by_reason(result.failed_nodes)
            line.unresolvable = self._by_reason(result.failed_and_unresolvable_nodes)
            line.error = line.error or result.error
        elif isinstance(result, HostPriorityList):
            hosts = numbers if result.hosts is request.names else self._numbers.of(result.hosts)
            line.scores = as_digits(result.scores[hosts.argsort()])
        elif result is not None:
            line.answer = msgspec.Raw(encode(result))
        yield line

    def _outside(self, request: ExtenderArgs, moment: int) -> list[msgspec.Raw]:
        """Returns the whole nodes of the request that the decision may not have known."""
        if request.node_names is not None:
            return []
        known = ((node, self._present.get((NODE, node.name))) for node in request.nodes or ())
        return [_raw(node.node) for node, kept in known if kept is None or kept[0] > moment]

    def _by_reason(self, refused: Mapping[str, str]) -> dict[str, str]:
        nodes: dict[str, list[str]] = {}
        for name, reason in refused.items():
            nodes.setdefault(reason, []).append(name)
        return {reason: as_ranges(np.unique(self._numbers.of(names))) for reason, names in nodes.items()}

    def attempt(
        self,
        at: float,
        moment: int,
        info: PodInfo,
        order: Sequence[str] | None,
        draws: list[tuple[int, int]],
        decided: Chosen | Unfit,
    ) -> Iterator[Line]:
        """Yields the loop's attempt. `order`: the names of the table's nodes in its order; None: as before."""
        line = AttemptLine(at=at, moment=moment, pod=_raw(info.pod), draws=draws)
        if order is not None:
            self._order, self._order_written = order, False
        if self._order is not None and not self._order_written:
            yield from self._naming(at, self._order)
            line.order, self._order_written = as_ranges(self._numbers.of(self._order)), True
        if isinstance(decided, Chosen):
            line.node = decided.node_name
        else:
            line.message, line.plugins = decided.message, sorted(decided.rejection.rules)
            if (plan := decided.preemption) is not None:
                line.nominated_node, line.victims = plan.node_name, [victim.pod.key for victim in plan.victims]
        yield line

    def _naming(self, at: float, names: Sequence[str]) -> Iterator[Line]:
        if unknown := self._numbers.unknown(names):
            self._numbers.add(unknown)
            yield NodesLine(at=at, names=unknown)


def _object_line(at: float, moment: int, kind: str, key: str, present: Present) -> ObjectLine:
    line = ObjectLine(at=at, moment=moment, kind=kind, key=key)
    if isinstance(present, PodPlacement):
        line.object, line.node = _raw(present.info.pod), present.node_name
        line.assumed = present.state is not PodState.ADDED
    elif isinstance(present, PodInfo):
        line.object = _raw(present.pod)
    elif present is not None:
        line.object = _raw(present)
    return line


def _raw(obj: Object) -> msgspec.Raw:
    """Returns the object's JSON, with the fields that something reads and no others."""
    known: Any = msgspec.structs.replace(obj, document=b"") if isinstance(obj, _WHOLE) else obj
    return msgspec.Raw(_ENCODE(known))

"""Passes changes of the cache, calls, attempts and their random numbers to the recorder."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from random import Random

from extender.cache.changes import Changes, Current, Updates
from extender.extender_v1.messages import ExtenderArgs, ExtenderPreemptionArgs
from extender.groups import GroupDecision, GroupStatus, Tree
from extender.groups.group_preemption import GroupPreemption
from extender.groups.group_tree import waiting_members
from extender.model.pod import Pod
from extender.offline.recording.lines import EventLine
from extender.offline.recording.recorder import Recorder
from extender.scheduler.scheduler_ports import EventType
from extender.scheduler.scheduling_cycle import Chosen, Failure
from extender.table import PodInfo, Table
from extender.table.labels import Rows
from extender.verbs.group_planning import Plan, PlanRequest

_POD_BYTES, _NAME_BYTES = 2000, 60
_MOST_BITS = 64


class RecordedChanges(Changes):
    """A cache's journal that also passes each change to the recorder. Hold the cache's lock to use it."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder
        self._reader = threading.local()

    @property
    def moment_read(self) -> int:
        """The number of the last change in the table that this thread borrowed most recently; 0 if none."""
        return int(getattr(self._reader, "moment", 0))

    def note(self, kind: str, key: str, present: Current) -> None:
        super().note(kind, key, present)
        self._recorder.change(self.now, kind, key, present, self.all)

    def since(self, cursor: int) -> Updates | None:
        # called when a table is borrowed, and when a bind looks for changes since its check
        self._reader.moment = self.now
        return super().since(cursor)


class RecordedRandom(Random):
    """Remembers the random numbers that are drawn, until the attempt that drew them is recorded."""

    def __init__(self) -> None:
        super().__init__()
        self._draws: list[tuple[int, int]] = []

    def getrandbits(self, bits: int, /) -> int:
        number = super().getrandbits(bits)
        if bits <= _MOST_BITS:  # longer numbers become parts of names and influence no decision
            self._draws.append((bits, number))
        return number

    def take_draws(self) -> list[tuple[int, int]]:
        """Returns the numbers drawn since the last call."""
        draws = self._draws
        self._draws = []
        return draws


class RecordingObserver:
    """Passes every call and attempt to the recorder; implements CallObserver, AttemptObserver and PlanObserver.

    Args:
        changes: the journal of the cache on which decisions are made.
        random: the source of the scheduling cycles' random numbers; None if there are no such cycles.
    """

    def __init__(self, recorder: Recorder, changes: RecordedChanges, random: RecordedRandom | None = None) -> None:
        self._recorder = recorder
        self._changes = changes
        self._random = random
        self._rows: Rows | None = None
        self._answering = threading.local()

    def called(self, verb: str, outcome: str, request: object, result: object, error: str = "") -> None:
        at, moment, plan = self._recorder.now(), self._changes.moment_read, self._take_plan()
        self._recorder.put(
            at,
            lambda encoder: encoder.call(at, moment, verb, outcome, request, result, error, plan),
            _size_bytes(request),
        )

    def answered_from(self, plan: Plan) -> None:
        self._answering.plan = plan.number

    def _take_plan(self) -> int:
        """Returns the number of the plan from which this thread has answered the call; 0 if there is none."""
        plan = int(getattr(self._answering, "plan", 0))
        self._answering.plan = 0
        return plan

    def plan_begins(self) -> None:
        if self._random is not None:  # a plan that ended in an error may have left some
            self._random.take_draws()

    def planned(self, plan: Plan, request: PlanRequest, table: Table) -> None:
        order, draws = self._changed_order(table), self._random.take_draws() if self._random else []
        at, moment, answered = self._recorder.now(), self._changes.moment_read, list(plan.answered)
        size_bytes = _attempt_bytes(order, len(request.waiting)) + _NAME_BYTES * len(request.call.names)
        was_put = self._recorder.put(
            at, lambda encoder: encoder.plan(at, moment, order, draws, plan, request, answered), size_bytes
        )
        self._rows = table.nodes.rows if was_put else None

    def attempted(self, info: PodInfo, table: Table, decided: Chosen | Failure) -> None:
        order, draws = self._changed_order(table), self._random.take_draws() if self._random else []
        at, moment = self._recorder.now(), self._changes.moment_read
        was_put = self._recorder.put(
            at, lambda encoder: encoder.attempt(at, moment, info, order, draws, decided), _attempt_bytes(order, 1)
        )
        self._rows = table.nodes.rows if was_put else None

    def group_attempted(self, table: Table, decision: GroupDecision, preemption: GroupPreemption) -> None:
        self._group_attempted(table, decision, preemption.victims, is_failed=False)

    def group_failed(self, table: Table, tree: Tree, message: str) -> None:
        self._group_attempted(table, GroupDecision(tree, GroupStatus.ERROR, (message,)), (), is_failed=True)

    def _group_attempted(
        self, table: Table, decision: GroupDecision, victims: Sequence[PodInfo], *, is_failed: bool
    ) -> None:
        order, draws = self._changed_order(table), self._random.take_draws() if self._random else []
        at, moment = self._recorder.now(), self._changes.moment_read
        was_put = self._recorder.put(
            at,
            lambda encoder: encoder.group(at, moment, order, draws, decision, victims, is_failed=is_failed),
            _attempt_bytes(order, len(waiting_members(decision.tree))),
        )
        self._rows = table.nodes.rows if was_put else None

    def _changed_order(self, table: Table) -> list[str] | None:
        """Returns the names of the nodes in the order of the rows; None if it is the order of the last attempt."""
        rows = table.nodes.rows  # the table makes a new array of rows when a node is added or deleted
        return table.nodes.names_of(rows) if rows is not self._rows else None

    def event_recorded(self, pod: Pod, kind: EventType, reason: str, note: str) -> None:
        line = EventLine(at=self._recorder.now(), pod=pod.key, type=kind, reason=reason, note=note)
        self._recorder.put(line.at, lambda _: iter((line,)), len(note) + _NAME_BYTES)


def _attempt_bytes(order: list[str] | None, pods: int) -> int:
    return _POD_BYTES * pods + len(order or ()) * _NAME_BYTES


def _size_bytes(request: object) -> int:
    """Returns the approximate memory that a request and its answer take until they are written."""
    if isinstance(request, ExtenderArgs):
        nodes = sum(len(node.raw) for node in request.nodes) if request.nodes else 0
        return _POD_BYTES + nodes + 2 * _NAME_BYTES * len(request.names)
    if isinstance(request, ExtenderPreemptionArgs):
        return _POD_BYTES * (1 + sum(len(victims.uids) for victims in request.victims.values()))
    return _NAME_BYTES

"""Passes changes of the cache, calls, attempts and their random numbers to the recorder."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from random import Random

from extender.cache.changes import Changes, Current, Updates
from extender.engine.decision import Chosen, Failure
from extender.extender_v1.messages import ExtenderArgs, ExtenderPreemptionArgs
from extender.groups import GroupDecision, GroupStatus, Tree
from extender.groups.group_preemption import GroupPreemption
from extender.groups.group_tree import waiting_members
from extender.model.pod import Pod
from extender.recording.encoder import DecisionHead, LineEncoder
from extender.recording.lines import EventLine, Line
from extender.recording.recorder import Recorder
from extender.scheduler.scheduler_ports import EventType
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
        """The number of the last change that this thread has read from the journal; 0 if it has read nothing."""
        return int(getattr(self._reader, "moment", 0))

    def note(self, kind: str, key: str, present: Current) -> None:
        super().note(kind, key, present)
        self._recorder.change(self.now, kind, key, present, self.all)

    def since(self, cursor: int) -> Updates | None:
        # This is called when a table is brought up to date, and when a bind looks for changes since its check.
        self._reader.moment = self.now
        return super().since(cursor)


class RecordedRandom(Random):
    """Remembers the random numbers that are drawn, until the attempt that drew them is recorded."""

    def __init__(self) -> None:
        super().__init__()
        self._draws: list[tuple[int, int]] = []

    def getrandbits(self, bits: int, /) -> int:
        number = super().getrandbits(bits)
        if bits <= _MOST_BITS:  # longer numbers only become parts of generated names, and influence no decision
            self._draws.append((bits, number))
        return number

    def take_draws(self) -> list[tuple[int, int]]:
        """Returns the random numbers drawn since the last call, each as (number of bits, random number)."""
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
        """Returns the number of the plan from which filter answered the thread's last call, and forgets the number.

        Returns 0 if filter used no plan for a pod group.
        """
        plan = int(getattr(self._answering, "plan", 0))
        self._answering.plan = 0
        return plan

    def plan_begins(self) -> None:
        if self._random is not None:  # forgets the random numbers of an earlier plan that failed
            self._random.take_draws()

    def planned(self, plan: Plan, request: PlanRequest, table: Table) -> None:
        members, names = len(waiting_members(request.tree)), len(request.call.names) + len(plan.members)
        self._put(table, members, lambda encoder, head: encoder.plan(head, plan, request), names)

    def attempted(self, info: PodInfo, table: Table, decided: Chosen | Failure) -> None:
        self._put(table, 1, lambda encoder, head: encoder.attempt(head, info, decided))

    def group_attempted(self, table: Table, decision: GroupDecision, preemption: GroupPreemption) -> None:
        members, victims = len(waiting_members(decision.tree)), preemption.victims
        self._put(table, members, lambda encoder, head: encoder.group(head, decision, victims))

    def group_failed(self, table: Table, tree: Tree, message: str) -> None:
        decision = GroupDecision(tree, GroupStatus.ERROR, (message,))
        members = len(waiting_members(tree))
        self._put(table, members, lambda encoder, head: encoder.group(head, decision, (), is_failed=True))

    def _put(
        self,
        table: Table,
        pods: int,
        lines_of: Callable[[LineEncoder, DecisionHead], Iterator[Line]],
        names: int = 0,
    ) -> None:
        """Passes a decision to the recorder; estimates the memory for it from the number of `pods` and of `names`."""
        rows = table.nodes.rows  # the table makes a new array of rows when a node is added or deleted
        order = table.nodes.names_of(rows) if rows is not self._rows else None
        draws = self._random.take_draws() if self._random else []
        head = DecisionHead(self._recorder.now(), self._changes.moment_read, order, draws)
        size_bytes = _POD_BYTES * pods + _NAME_BYTES * (names + len(order or ()))
        was_put = self._recorder.put(head.at, lambda encoder: lines_of(encoder, head), size_bytes)
        self._rows = rows if was_put else None

    def event_recorded(self, pod: Pod, kind: EventType, reason: str, note: str) -> None:
        line = EventLine(at=self._recorder.now(), pod=pod.key, type=kind, reason=reason, note=note)
        self._recorder.put(line.at, lambda _: iter((line,)), len(note) + _NAME_BYTES)


def _size_bytes(request: object) -> int:
    """Returns the approximate memory that a request and its answer take until they are written."""
    if isinstance(request, ExtenderArgs):
        nodes = sum(len(node.raw) for node in request.nodes) if request.nodes else 0
        return _POD_BYTES + nodes + 2 * _NAME_BYTES * len(request.names)
    if isinstance(request, ExtenderPreemptionArgs):
        return _POD_BYTES * (1 + sum(len(victims.uids) for victims in request.victims.values()))
    return _NAME_BYTES

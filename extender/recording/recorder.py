"""Writes recordings: the observers of a process queue entries without delay, and a separate thread writes them."""

from __future__ import annotations

import errno
import gzip
import logging
import os
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from io import BufferedWriter
from pathlib import Path
from random import Random
from typing import BinaryIO

import msgspec

from extender.cache.changes import Changes, Current, Updates
from extender.engine.decision import Chosen, Failure
from extender.extender_v1.messages import ExtenderArgs, ExtenderPreemptionArgs
from extender.groups import GroupDecision, GroupStatus, Tree
from extender.groups.group_preemption import GroupPreemption
from extender.groups.group_tree import waiting_members
from extender.model.pod import Pod
from extender.model.redaction import Redaction
from extender.recording.lines import (
    FORMAT_VERSION,
    MOST_LINE_BYTES,
    DecisionHead,
    DroppedLine,
    EventLine,
    HeaderLine,
    Line,
    LineEncoder,
    RecordedSettings,
    encode_line,
)
from extender.runtime.clock import Clock
from extender.runtime.threads import Ticker
from extender.scheduler.scheduler_ports import EventType
from extender.table import PodInfo, Table
from extender.table.labels import Rows
from extender.verbs.group_planning import Plan, PlanRequest

FILES = 4
MOST_TEXT_BYTES = 512 * 1024 * 1024
"""The largest uncompressed size of a file without its first checkpoint. Readers accept twice as much."""
WRITE_SECONDS = 0.25
LIMIT_BYTES = 64 * 1024 * 1024
CHANGE_BYTES = 500  # the memory of a waiting change, without its object, which the cache keeps anyway
RETRY_SECONDS = 60.0
_AT_ONCE = 16
_COMPRESSION = 1
_GZIP, _OF_GZIP = b"\x1f\x8b", 16
_HEAD, _HEAD_BYTES = b'{"line":"header",', 4096
IN_THE_WAY = "it is not a recording and would be overwritten later: move it away, or record to another file"
_PRIVATE = 0o600  # only the owner may read a recording, because it shows what runs in the cluster
Dropped = Callable[[str, int], object]
LinesOf = Callable[[LineEncoder], Iterator[Line]]
"""A function that makes the lines of an entry; it is called when the entry is written."""
CHANGE, DECISION = "change", "decision"
"""The kinds of entries that may be dropped."""
_log = logging.getLogger(__name__)
_POD_BYTES, _NAME_BYTES = 2000, 60
_MOST_BITS = 64


class RotatingFiles:
    """Writes lines to files that the caller rotates by `begin`; together they take about `limit_bytes`.

    Args:
        path: the current file, compressed if its name ends in .gz. Older files get .1, .2 and .3 appended.
    """

    def __init__(self, path: Path, limit_bytes: int) -> None:
        self.path = path
        self._limit_bytes = max(limit_bytes // FILES, 1)
        self._text_bytes = 0
        self._file: BinaryIO | None = None
        self._lines: BinaryIO | gzip.GzipFile | None = None

    @property
    def is_open(self) -> bool:
        return self._lines is not None

    @property
    def is_full(self) -> bool:
        """True if the file or its uncompressed text has reached its limit, so that `begin` should be called."""
        if self._file is None:
            return False
        return self._file.tell() >= self._limit_bytes or self._text_bytes >= MOST_TEXT_BYTES

    def others(self) -> list[str]:
        """Returns the files that are not recordings, but would be overwritten when the recording rotates.

        Raises:
            OSError: a file cannot be read.
        """
        paths = map(self._numbered, range(FILES))
        return [str(path) for path in paths if path.exists() and not _is_recording(path)]

    def begin(self, *, keep: bool = True) -> None:
        """Begins a new file and renames the older files; with keep=False, overwrites the current file instead.

        Raises:
            OSError: the file cannot be created, or a file that is not a recording would be overwritten.
        """
        self.close()
        if keep and (others := self.others()):
            raise FileExistsError(errno.EEXIST, IN_THE_WAY, others[0])
        for number in range(FILES - 1, 0, -1) if keep else ():
            older, newer = self._numbered(number), self._numbered(number - 1)
            if newer.exists():
                newer.replace(older)
        file = BufferedWriter(os.fdopen(os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _PRIVATE), "wb", 0))
        self._text_bytes = 0
        self._file = self._lines = file
        if self.path.suffix == ".gz":
            self._lines = gzip.GzipFile(fileobj=file, mode="wb", compresslevel=_COMPRESSION)

    def write(self, lines: Iterable[bytes]) -> None:
        """Appends the lines to the current file. Raises OSError if the file cannot be written."""
        assert self._lines is not None
        for line in lines:
            self._lines.write(line + b"\n")
            self._text_bytes += len(line)

    def reset_count(self) -> None:
        """Resets the count of bytes of text, because the checkpoint at the start of a file does not count."""
        self._text_bytes = 0

    def flush(self) -> None:
        """Flushes all lines to the file, so that they survive the process. Raises OSError if this is not possible."""
        if self._lines is not None and self._file is not None:
            self._lines.flush()
            self._file.flush()

    def close(self) -> None:
        """Closes the current file, if a file is open. Raises OSError if its last lines cannot be written."""
        lines, file = self._lines, self._file
        self._lines = None
        self._file = None
        if lines is not None and file is not None:
            try:
                lines.close()
            finally:
                file.close()

    def _numbered(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}") if number else self.path


def _is_recording(path: Path) -> bool:
    """Returns True if the file begins like a recording, even if only a part of its header was written."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        data = file.read(_HEAD_BYTES)
    if data[: len(_GZIP)] == _GZIP:
        try:
            data = zlib.decompressobj(zlib.MAX_WBITS | _OF_GZIP).decompress(data)
        except zlib.error:
            return False
    return _HEAD.startswith(data[: len(_HEAD)])


@dataclass(eq=False)
class Recorder:
    """Queues entries until they are written. An entry is a change, a call, an attempt or an event.

    Callers never wait for the disk or for space in the queue: if the queue is full, entries are dropped and counted.
    After changes were dropped, the whole cluster is written again, so that the recording is correct from then on.

    Args:
        dropped: called with a kind, "change" or "decision", and the number of dropped entries of this kind.
        limit_bytes: the approximate memory that waiting entries may take.
        redaction: replaces names in objects by hashes. Only for processes that record no calls or attempts.
    """

    files: RotatingFiles
    settings: RecordedSettings
    version: str
    clock: Clock
    dropped: Dropped = lambda _kind, _count: None
    limit_bytes: int = LIMIT_BYTES
    redaction: Redaction | None = None

    def __post_init__(self) -> None:
        # The waiting entries and their sizes. A dict has settings that change for all later entries.
        self._entries: deque[tuple[LinesOf | dict[str, str], int]] = deque()
        self._lock = threading.Lock()
        self._waiting_bytes = 0
        self._lost_changes = 0
        self._lost_decisions = 0
        self._encoder = LineEncoder(self.redaction)
        self._failed_at: float | None = None
        self._is_broken = False  # True if the current file ends in the middle of an entry
        self._ticker = Ticker("recorder", WRITE_SECONDS, self.write)
        self.revive = self._ticker.revive

    def start(self) -> None:
        """Starts the writing thread. Call it in the worker process, because threads do not survive a fork."""
        self._ticker.start()

    def stop(self) -> None:
        """Stops the writing thread, writes the remaining entries and closes the file."""
        self._ticker.stop()
        self.write()
        self._close()

    @property
    def path(self) -> str:
        return str(self.files.path)

    def put(self, at: float, lines_of: LinesOf, size_bytes: int) -> bool:
        """Queues a call, an attempt or an event. Returns False if the queue is full and the entry is dropped."""
        with self._lock:
            if self._waiting_bytes + size_bytes > self.limit_bytes:
                self._lost_decisions += 1
                return False
            if self._lost_decisions:
                line = DroppedLine(at=at, entries=self._lost_decisions)
                self._append(lambda _: iter((line,)), 0)
                self._report_dropped(DECISION, self._lost_decisions)
                self._lost_decisions = 0
            self._append(lines_of, size_bytes)
        return True

    def change(self, moment: int, kind: str, key: str, present: Current, everything: Callable[[], Updates]) -> None:
        """Queues a change of the cache; one thread at a time may call it.

        `everything` returns the whole cluster. The recorder calls this function after it has dropped changes.
        """
        at = self.clock.now()
        with self._lock:
            is_full = self._waiting_bytes + CHANGE_BYTES > self.limit_bytes
            if is_full or (self._lost_changes and self._waiting_bytes >= self.limit_bytes // 2):
                self._lost_changes += 1
            elif self._lost_changes:
                updates, lost = everything(), self._lost_changes
                self._append(lambda encoder: encoder.checkpoint(at, moment, updates, lost), CHANGE_BYTES)
                self._report_dropped(CHANGE, self._lost_changes)
                self._lost_changes = 0
            else:
                self._append(lambda encoder: encoder.change(at, moment, kind, key, present), CHANGE_BYTES)

    def settings_changed(self, **changed: str) -> None:
        """Begins another file, whose header has these fields of `RecordedSettings`, for all later entries."""
        with self._lock:
            self._append(changed, 0)

    def write(self) -> None:
        """Writes the waiting entries. After a failure, writes nothing for a minute; then begins the file again."""
        if self._failed_at is not None and self.clock.monotonic() - self._failed_at < RETRY_SECONDS:
            return
        try:
            self._write()
        except OSError as error:
            path = error.filename or self.path
            _log.error("recording interrupted until the file can be written file=%s reason=%r", path, error.strerror)
            self._failed_at = self.clock.monotonic()
            self._is_broken = self.files.is_open
            self._close()

    def _write(self) -> None:
        if not self.files.is_open or self.files.is_full:
            self._begin_file()
            self._failed_at = None
            self._is_broken = False
        for _ in range(len(self._entries)):
            with self._lock:
                entry, size_bytes = self._entries.popleft()
                self._waiting_bytes -= size_bytes
            if isinstance(entry, dict):
                self.settings = msgspec.structs.replace(self.settings, **entry)
                self._begin_file()
            else:
                self._put_lines(entry(self._encoder))
        self.files.flush()

    def _begin_file(self) -> None:
        self.files.begin(keep=not self._is_broken)
        at = self.clock.now()
        header = HeaderLine(at=at, version=FORMAT_VERSION, extender=self.version, settings=self.settings)
        self.files.write([encode_line(header)])
        self._put_lines(self._encoder.begin_file(at))
        self.files.reset_count()

    def _put_lines(self, lines: Iterable[Line]) -> None:
        for number, line in enumerate(lines, 1):
            text = encode_line(line)
            if len(text) < MOST_LINE_BYTES:
                self.files.write([text])
            else:
                self._report_dropped(DECISION, 1)
                self.files.write([encode_line(DroppedLine(at=line.at, entries=1))])
            if number % _AT_ONCE == 0:
                time.sleep(0)  # gives up the GIL, so that other threads can run

    def _append(self, entry: LinesOf | dict[str, str], size_bytes: int) -> None:
        self._entries.append((entry, size_bytes))
        self._waiting_bytes += size_bytes

    def _report_dropped(self, kind: str, count: int) -> None:
        self.dropped(kind, count)
        _log.warning(
            "entries not recorded, because they came too fast or were too large kind=%s entries=%d", kind, count
        )

    def _close(self) -> None:
        try:
            self.files.close()
        except OSError as error:
            _log.error("closing the recording failed file=%s reason=%r", self.path, error.strerror)


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
        at, moment, plan = self._recorder.clock.now(), self._changes.moment_read, self._take_plan()
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
        head = DecisionHead(self._recorder.clock.now(), self._changes.moment_read, order, draws)
        size_bytes = _POD_BYTES * pods + _NAME_BYTES * (names + len(order or ()))
        was_put = self._recorder.put(head.at, lambda encoder: lines_of(encoder, head), size_bytes)
        self._rows = rows if was_put else None

    def event_recorded(self, pod: Pod, kind: EventType, reason: str, note: str) -> None:
        line = EventLine(at=self._recorder.clock.now(), pod=pod.key, type=kind, reason=reason, note=note)
        self._recorder.put(line.at, lambda _: iter((line,)), len(note) + _NAME_BYTES)


def _size_bytes(request: object) -> int:
    """Returns the approximate memory that a request and its answer take until they are written."""
    if isinstance(request, ExtenderArgs):
        nodes = sum(len(node.raw) for node in request.nodes) if request.nodes else 0
        return _POD_BYTES + nodes + 2 * _NAME_BYTES * len(request.names)
    if isinstance(request, ExtenderPreemptionArgs):
        return _POD_BYTES * (1 + sum(len(victims.uids) for victims in request.victims.values()))
    return _NAME_BYTES

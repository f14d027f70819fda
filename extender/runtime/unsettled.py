"""Records writes to the API server whose outcome is unknown ("unsettled"), and finds out their outcome.

The records are in memory that outlives the worker process that sent the writes. One rule holds for this process, for
the next leader and after a restart: no other pod gets the resources or devices that a write reserves, until the API
server's state shows the outcome of the write. This state must be read after the deadline of the write.

    in flight ---- answered: done or refused -------------------------------> forgotten
        '--- no answer, or the worker was killed ---> unsettled --- settled ----'
                                                         ^
    writes of an earlier process, without records -------'

The deadline of a write is `settle_seconds` after the last moment at which its sender may have sent it. The write cannot
arrive later. It is settled once the cache shows everything that the API server had at some moment after the deadline. A
Binding is also settled once the watch shows that the pod is on its node or was deleted.

`UnsettledWrites` keeps the records, and decides nothing. `Settlement` finds out the outcome of the writes. They are
used in this way:

- Every write is sent in a `with` block of `noted`.
- A Lease is released only if `nothing_unsettled`.
- A candidate that takes over the Lease records whether writes of the last holder may be in flight
  (`expect_predecessors`, `vouch`).
- After a start, and as a new leader, a process decides nothing until `Settlement.caught_up`.
"""

from __future__ import annotations

import logging
import mmap
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf
from struct import Struct
from typing import NamedTuple, Protocol

import msgspec

from extender.errors import ClusterError, Refused
from extender.runtime.clock import Clock, SystemClock
from extender.runtime.ports import LONG_AGO, Binding

SLOTS = 2048
_RETRY_SECONDS = 1.0
_SLOT_BYTES = 4096
# The room in a slot for the annotations of a Binding: the names of pod and node, and the UID, take at most 700 bytes.
MOST_ANNOTATION_BYTES = 3072
_RECORDS: msgspec.msgpack.Decoder[Binding | str] = msgspec.msgpack.Decoder(Binding | str)
_FREE, _IN_FLIGHT, _UNKNOWN = 0, 1, 2
_HEAD = Struct("<BHd")  # a slot's state, text length and deadline; the state, one byte, is written last
_DEADLINE = Struct("<d")
_DEADLINE_OFFSET = 3
# The byte after the slots is 1 if earlier processes may have writes in flight. The deadline of these writes follows.
_PREDECESSORS_OFFSET = SLOTS * _SLOT_BYTES
_LEASE_OFFSET = _PREDECESSORS_OFFSET + 1 + _DEADLINE.size
_LEASE_VERSION = Struct("<Q")

_log = logging.getLogger(__name__)

Reconciliation = Callable[[], Callable[[], bool]]
"""Reads the API server's state. The returned function returns True once the cache shows all of this state.

However late the watch is, the function returns True in the end, because a watch that is too late is followed by a new
list. Raises ClusterError.
"""


class UnsettledWrite(NamedTuple):
    """A write whose outcome is unknown. It cannot arrive after `deadline`, in monotonic seconds."""

    write: Binding | str
    deadline: float


class UnsettledWrites:
    """Stores the writes that are in flight or have an unknown outcome, in memory that outlives the worker process.

    Create it in the master process, before the fork. One worker at a time uses it, and calls `take_over` first.

    The processes of one machine share a monotonic clock, so the deadlines stay valid after a worker has ended.
    """

    def __init__(self, settle_seconds: float, clock: Clock | None = None) -> None:
        self._settle_seconds = settle_seconds
        self._clock = clock or SystemClock()
        self._memory = mmap.mmap(-1, _LEASE_OFFSET + _LEASE_VERSION.size)
        self._free = list(range(SLOTS))  # needs no lock, because `pop` and `append` of a list are atomic
        self._unknown: dict[int, UnsettledWrite] = {}
        self.expect_predecessors(self._clock.monotonic() + settle_seconds)

    # ---- writes of this process

    @contextmanager
    def noted(self, write: Binding | str) -> Iterator[None]:
        """Records the write while the `with` block sends it, and keeps the record if the outcome is unknown.

        Args:
            write: a Binding, or the method and path of another call.

        Raises:
            Refused: there is no memory left for the record, so the write is not sent (status 503).
        """
        slot = self._note(write)
        try:
            yield
        except Refused:
            self._forget(slot)
            raise
        except BaseException:  # whatever the error is, the write may have been sent
            self._keep(slot, write, self._clock.monotonic() + self._settle_seconds)
            raise
        self._forget(slot)

    def unknown(self) -> list[UnsettledWrite]:
        """Returns the writes of this worker and of earlier workers whose outcome is unknown."""
        return list(self._unknown.values())

    def has_unknown(self, prefix: str) -> bool:
        """Returns True if the outcome of a call is unknown whose method and path begin like this."""
        return any(isinstance(entry.write, str) and entry.write.startswith(prefix) for entry in self.unknown())

    def nothing_unsettled(self) -> bool:
        """Returns True if the outcome of every write of this process and its predecessors is known."""
        return len(self._free) == SLOTS and self.predecessors_until is None

    # ---- writes of an earlier process, or of another leader

    @property
    def predecessors_until(self) -> float | None:
        """The time until which writes of an earlier process may still arrive; None once their outcome is known."""
        if not self._memory[_PREDECESSORS_OFFSET]:
            return None
        deadline: float = _DEADLINE.unpack_from(self._memory, _PREDECESSORS_OFFSET + 1)[0]
        return deadline

    @property
    def predecessors_end(self) -> float:
        """The time from which no earlier process sends anything: `settle_seconds` before `predecessors_until`."""
        until = self.predecessors_until
        return LONG_AGO if until is None else until - self._settle_seconds

    def expect_predecessors(self, until: float) -> None:
        """Records that writes of a predecessor may arrive until `until`, in monotonic seconds."""
        _DEADLINE.pack_into(self._memory, _PREDECESSORS_OFFSET + 1, max(until, self.predecessors_until or LONG_AGO))
        self._memory[_PREDECESSORS_OFFSET] = 1

    def vouch(self) -> None:
        """Records that no write of a predecessor is in flight."""
        self._memory[_PREDECESSORS_OFFSET] = 0

    @property
    def lease_version(self) -> int:
        """The version of the Lease that this process saw last; 0 if it does not know the Lease's history."""
        version: int = _LEASE_VERSION.unpack_from(self._memory, _LEASE_OFFSET)[0]
        return version

    @lease_version.setter
    def lease_version(self, version: int) -> None:
        _LEASE_VERSION.pack_into(self._memory, _LEASE_OFFSET, version)

    def take_over(self) -> list[Binding]:
        """Returns an earlier worker's Bindings whose outcome is unknown; the caller assumes their pods.

        The earlier worker's other writes reserve nothing on a node. This process only waits until these writes can no
        longer arrive (see `predecessors_until`).
        """
        self._free.clear()
        for slot in reversed(range(SLOTS)):
            state, length, deadline = _HEAD.unpack_from(self._memory, slot * _SLOT_BYTES)
            if state == _FREE:
                self._free.append(slot)
                continue
            if state == _IN_FLIGHT:
                deadline = self._clock.monotonic() + self._settle_seconds
            self._keep(slot, self._read(slot, length), deadline)
        unknown = self.unknown()
        if deadlines := [entry.deadline for entry in unknown if not isinstance(entry.write, Binding)]:
            self.expect_predecessors(max(deadlines))
        return [entry.write for entry in unknown if isinstance(entry.write, Binding)]

    # ---- outcomes

    def settle(self, asked_at: float) -> None:
        """Forgets the writes whose deadlines had passed at `asked_at`.

        Args:
            asked_at: a moment in monotonic seconds. The cache must show everything that the API server had then.
        """
        for slot, entry in list(self._unknown.items()):
            if entry.deadline <= asked_at:
                self._settled(slot)
        if (self.predecessors_until or LONG_AGO) <= asked_at:
            self.vouch()

    def settle_shown(self, is_shown: Callable[[Binding], bool]) -> None:
        """Forgets the Bindings whose outcome the watch has shown."""
        for slot, entry in list(self._unknown.items()):
            if isinstance(entry.write, Binding) and is_shown(entry.write):
                self._settled(slot)

    # ---- memory

    def _note(self, write: Binding | str) -> int:
        text = msgspec.msgpack.encode(write)
        if len(text) > _SLOT_BYTES - _HEAD.size:
            raise Refused("write not sent: its names are too long to be recorded", 503)
        try:
            slot = self._free.pop()
        except IndexError:
            raise Refused(f"write not sent: {SLOTS} earlier writes have no known outcome yet", 503) from None
        start = slot * _SLOT_BYTES
        text_start = start + _HEAD.size
        _HEAD.pack_into(self._memory, start, _FREE, len(text), inf)
        self._memory[text_start : text_start + len(text)] = text
        self._memory[start] = _IN_FLIGHT
        return slot

    def _read(self, slot: int, length: int) -> Binding | str:
        start = slot * _SLOT_BYTES + _HEAD.size
        return _RECORDS.decode(self._memory[start : start + length])

    def _keep(self, slot: int, write: Binding | str, deadline: float) -> None:
        start = slot * _SLOT_BYTES
        _DEADLINE.pack_into(self._memory, start + _DEADLINE_OFFSET, deadline)
        self._memory[start] = _UNKNOWN
        self._unknown[slot] = UnsettledWrite(write, deadline)

    def _settled(self, slot: int) -> None:
        if self._unknown.pop(slot, None) is not None:  # another thread may have removed it first
            self._forget(slot)

    def _forget(self, slot: int) -> None:
        self._memory[slot * _SLOT_BYTES] = _FREE
        self._free.append(slot)


class Evidence(Protocol):
    """Says what the cache shows about the outcome of writes."""

    def nothing_waits(self) -> bool:
        """Returns True if all pods have nodes and all claims have devices, so a late write could change nothing."""

    def shows(self, binding: Binding) -> bool:
        """Returns True if the watch has shown that the pod is on a node or was deleted, so the Binding is settled."""


class Settlement:
    """Finds out the outcome of unsettled writes by reading the API server's state.

    Any thread may call its methods. Only one at a time reads from the API server.
    """

    def __init__(self, writes: UnsettledWrites, reconcile: Reconciliation, evidence: Evidence, clock: Clock) -> None:
        self.writes = writes
        self._reconcile = reconcile
        self._evidence = evidence
        self._clock = clock
        # The thread that reads from the API server holds this lock. Other threads do not wait for it.
        self._asking = threading.Lock()
        self._shown_at = LONG_AGO  # the cache shows everything that the API server had at this time
        self._asked_at = LONG_AGO
        self._retry_at = LONG_AGO
        self._is_shown: Callable[[], bool] | None = None  # the reconciliation in progress
        self._looked_until: float | None = None  # the value of `predecessors_until` when `look` last checked it

    def waiting_for(self) -> str | None:
        """Returns why this process must not place pods yet; None once the outcome of all earlier writes is known."""
        until = self.writes.predecessors_until
        if until is None:
            return None
        seconds_left = until - self._clock.monotonic()
        if seconds_left > 0:
            return f"writes of an earlier process may still arrive for {seconds_left:.0f} s"
        return "waiting until the cache shows what an earlier process has written"

    def look(self) -> None:
        """Ends the wait for writes of earlier processes if all pods have nodes and all claims have devices.

        A late write could then change nothing. Call this once the cache shows everything that the API server had when
        the last earlier process ended. While an earlier process may still decide, this does nothing.
        """
        until = self.writes.predecessors_until
        has_ended = self.writes.predecessors_end <= self._clock.monotonic()
        if until is not None and until != self._looked_until and has_ended:
            self._looked_until = until
            if self._evidence.nothing_waits():
                self.writes.vouch()

    def caught_up(self, since: float) -> bool:
        """Returns True if the cache shows all writes made before `since`, and all writes of earlier processes.

        `since` is in monotonic seconds. Reads from the API server if necessary. The caller repeats the call until it
        returns True.
        """
        if not self._shows(since):
            return False
        self.look()
        until = self.writes.predecessors_until
        return until is None or self._shows(until)

    def advance(self) -> None:
        """Forgets the recorded writes whose outcome the cache shows, also those of earlier workers.

        Call it about once a second while the watches run.
        """
        if not self.writes.unknown():
            return
        self.writes.settle_shown(self._evidence.shows)
        now = self._clock.monotonic()
        due = [entry.deadline for entry in self.writes.unknown() if entry.deadline <= now]
        if due:
            self._shows(max(due))

    def _shows(self, moment: float) -> bool:
        """Returns True if the cache shows all that the API server had at `moment`. Asks the API server if needed."""
        if self._shown_at < moment <= self._clock.monotonic() and self._asking.acquire(blocking=False):
            try:
                self._ask()
            except ClusterError as error:
                _log.warning("outcome of earlier writes not known, asking again reason=%r", str(error))
            finally:
                self._asking.release()
        return self._shown_at >= moment

    def _ask(self) -> None:
        """Begins a reconciliation, or goes on with the last one, until the cache shows all of its state.

        A reconciliation is never given up for a newer one. Otherwise a watch that is always late would confirm none.
        """
        if self._is_shown is None:
            now = self._clock.monotonic()
            if now < self._retry_at:
                return
            self._retry_at = now + _RETRY_SECONDS
            self._is_shown = self._reconcile()
            self._retry_at = LONG_AGO
            self._asked_at = now
        if self._is_shown():
            self._is_shown = None
            self._shown_at = self._asked_at
            self.writes.settle(self._asked_at)

"""Bindings under way, in memory that outlives a crash of the worker process that sends them.

Nobody knows what becomes of them then, so the worker that takes its place counts their pods where they were to go.
"""

from __future__ import annotations

import mmap
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from extender.errors import OutcomeUnknown
from extender.runtime.ports import Binder, Binding

_SLOTS, _SLOT_BYTES, _LENGTH_BYTES = 512, 1024, 2
KEPT_SECONDS = 60.0  # a Binding of unknown outcome may arrive late, though not for ever


class BindingInFlight(NamedTuple):
    """A Binding whose outcome is not known; `since` is in monotonic seconds."""

    binding: Binding
    since: float


class BindingsInFlight:
    """To be made before the fork; one worker at a time uses it.

    Attributes:
        taken_over: another worker has used it before this one.
    """

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, _SLOTS * _SLOT_BYTES + 1)
        self._lock = threading.Lock()
        self._free = deque(range(_SLOTS))
        self.taken_over = False

    def take_over(self) -> list[BindingInFlight]:
        """Returns what the worker before has left, and empties it; to be called once, in the worker."""
        self.taken_over, self._memory[-1] = bool(self._memory[-1]), 1
        left = [self._read(slot) for slot in self._free]
        for slot in self._free:
            self._clear(slot)
        oldest = time.monotonic() - KEPT_SECONDS
        return [each for each in left if each is not None and each.since > oldest]

    @contextmanager
    def noted(self, under_way: BindingInFlight) -> Iterator[None]:
        """Notes the Binding for the block; one of unknown outcome stays noted until its slot is needed."""
        with self._lock:
            slot = self._free.popleft() if self._free else None
        if slot is not None:
            self._write(slot, under_way)
        unknown = False
        try:
            yield
        except OutcomeUnknown:
            unknown = True
            raise
        finally:
            if slot is not None:
                if not unknown:
                    self._clear(slot)
                with self._lock:
                    self._free.append(slot)

    def _write(self, slot: int, under_way: BindingInFlight) -> None:
        data = "\0".join([*under_way.binding, str(under_way.since)]).encode()
        at = slot * _SLOT_BYTES
        self._clear(slot)  # of what an unknown outcome has left, and half of this, nobody could read anything
        if len(data) <= _SLOT_BYTES - _LENGTH_BYTES:
            self._memory[at + _LENGTH_BYTES : at + _LENGTH_BYTES + len(data)] = data
            self._memory[at : at + _LENGTH_BYTES] = len(data).to_bytes(_LENGTH_BYTES)  # last: now it is whole

    def _read(self, slot: int) -> BindingInFlight | None:
        at = slot * _SLOT_BYTES
        length = int.from_bytes(self._memory[at : at + _LENGTH_BYTES])
        if not length:
            return None
        data = self._memory[at + _LENGTH_BYTES : at + _LENGTH_BYTES + length]
        *binding, since = data.decode().split("\0")
        return BindingInFlight(Binding(*binding), float(since))

    def _clear(self, slot: int) -> None:
        at = slot * _SLOT_BYTES
        self._memory[at : at + _LENGTH_BYTES] = bytes(_LENGTH_BYTES)


class NotedBinder:
    """A ports.Binder that notes what is under way."""

    def __init__(self, binder: Binder, in_flight: BindingsInFlight) -> None:
        self._binder, self._in_flight = binder, in_flight

    def bind(self, binding: Binding) -> None:
        with self._in_flight.noted(BindingInFlight(binding, time.monotonic())):
            self._binder.bind(binding)

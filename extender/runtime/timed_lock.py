"""A lock that tells how long each of its callers has waited for it."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager

from extender.runtime.clock import Clock
from extender.runtime.ports import Telemetry


class TimedLock:
    """Not reentrant. `lock("assume")` is a context manager that holds it on behalf of the caller so named.

    The managers are made once a caller and hold nothing: a decision takes the lock a dozen times, and what
    contextlib makes of a generator costs more than the lock.
    """

    def __init__(self, clock: Clock, telemetry: Telemetry) -> None:
        self._clock, self._telemetry = clock, telemetry
        self._lock = threading.Lock()
        self._held_by: dict[str, _Held] = {}

    def __call__(self, caller: str) -> AbstractContextManager[None]:
        held = self._held_by.get(caller)
        if held is None:
            held = self._held_by[caller] = _Held(self._lock, self._clock, self._telemetry, caller)
        return held


class _Held(AbstractContextManager[None]):
    __slots__ = ("_caller", "_clock", "_lock", "_telemetry")

    def __init__(self, lock: threading.Lock, clock: Clock, telemetry: Telemetry, caller: str) -> None:
        self._lock, self._clock, self._telemetry, self._caller = lock, clock, telemetry, caller

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            begin = self._clock.monotonic()
            self._lock.acquire()
            self._telemetry.lock_waited(self._caller, self._clock.monotonic() - begin)

    def __exit__(self, *_error: object) -> None:
        self._lock.release()

"""One CPU for all threads of a process: they take turns for the interpreter, and so can use no more than one.

Left to itself the kernel spreads them over all CPUs. Where these are busy, each turn begins with a wait for the next
thread's CPU, while the interpreter stands still, and with caches that hold what another process has just used. And it
has a thread that is woken by the API server interrupt the one that decides, only to wait for the interpreter.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from extender.runtime.clock import Clock

MORE_ROOM = 0.25
"""For how much more of the time another CPU must have been free: whoever moves leaves warm caches behind."""

_PROCESSOR = 39
"""The number of the field in /proc/thread-self/stat that tells the CPU; the name, which may hold spaces, is the 2nd."""

_log = logging.getLogger(__name__)


class LinuxCpus:
    """The CPUs of a machine, and the threads of this process on them; each method raises OSError.

    By proc(5), sched_setaffinity(2) and sched(7).
    """

    def __init__(self) -> None:
        self._ticks_a_second = os.sysconf("SC_CLK_TCK")

    def allowed(self) -> frozenset[int]:
        """Returns the CPUs that this thread may run on."""
        return frozenset(os.sched_getaffinity(0))

    def current(self) -> int:
        """Returns the CPU that this thread runs on."""
        after_the_name = Path("/proc/thread-self/stat").read_text().rpartition(")")[2].split()
        return int(after_the_name[_PROCESSOR - 3])

    def idle_seconds(self) -> Mapping[int, float]:
        """Returns for how long each CPU has been idle so far."""
        lines = [line.split() for line in Path("/proc/stat").read_text().splitlines()]
        each = [(line[0].removeprefix("cpu"), int(line[4])) for line in lines if line[0].startswith("cpu")]
        return {int(number): ticks / self._ticks_a_second for number, ticks in each if number}

    def used_seconds(self) -> float:
        """Returns for how long this process has run so far."""
        return time.process_time()

    def keep_to(self, cpus: Iterable[int]) -> None:
        """Has all threads, and those that they start, run on these CPUs only."""
        for thread in _threads():
            with suppress(ProcessLookupError):  # it has ended
                os.sched_setaffinity(thread, cpus)

    def prefer_this_thread(self) -> None:
        """Has no other thread interrupt this one: they run when it waits, or has had its turn."""
        for thread in _threads():
            if thread != threading.get_native_id():
                with suppress(OSError):  # it has ended; or it may not be done here, and all are equal as before
                    os.sched_setscheduler(thread, os.SCHED_BATCH, os.sched_param(0))


def _threads() -> list[int]:
    return [int(thread.name) for thread in Path("/proc/self/task").iterdir()]


class OneCpu:
    """Keeps the process to one CPU, from `settle` on, and to another one once others use that one.

    Where that cannot be done its threads run anywhere.
    """

    def __init__(self, cpus: LinuxCpus, clock: Clock) -> None:
        self._cpus, self._clock = cpus, clock
        self._allowed: frozenset[int] = frozenset()
        self._seen: _Reading | None = None

    def settle(self) -> None:
        """Keeps to the CPU that this thread runs on, where the others that have begun do not interrupt it."""
        try:
            self._allowed = self._cpus.allowed()
            self._cpus.prefer_this_thread()
            if len(self._allowed) > 1:
                self._cpus.keep_to([self._cpus.current()])
                self._seen = self._read()
        except (OSError, AttributeError) as error:  # AttributeError: no Linux
            self._let_go(error)

    def look(self) -> None:
        """Moves to the CPU that was idle for longest since the last call, if this process had less of its own."""
        if (before := self._seen) is None:
            return
        try:
            self._seen = now = self._read()
            idle = {cpu: idle - before.idle.get(cpu, idle) for cpu, idle in now.idle.items() if cpu in self._allowed}
            quietest = max(idle, key=idle.__getitem__, default=now.cpu)
            room_here = idle.get(now.cpu, 0.0) + now.used - before.used
            if idle.get(quietest, 0.0) > room_here + MORE_ROOM * (now.at - before.at):
                self._cpus.keep_to([quietest])
        except OSError as error:
            self._let_go(error)

    def _read(self) -> _Reading:
        cpus = self._cpus
        return _Reading(self._clock.monotonic(), cpus.current(), cpus.idle_seconds(), cpus.used_seconds())

    def _let_go(self, error: Exception) -> None:
        self._seen = None
        _log.info("threads run on any CPU, for they cannot be kept to one: %s", error)
        with suppress(OSError, AttributeError):
            self._cpus.keep_to(self._allowed)


class _Reading(NamedTuple):
    at: float
    cpu: int
    idle: Mapping[int, float]
    used: float

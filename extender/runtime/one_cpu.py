"""Keeps all threads of the process on one CPU, because the GIL lets only one of them run at a time.

By default, the kernel spreads the threads over all CPUs. If the CPUs are busy, a switch to another thread must first
wait for that thread's CPU, whose caches hold another process's data. The kernel also interrupts the thread that decides
when data arrives for another thread. The interruption is useless, because the other thread must then wait for the GIL.
The policy SCHED_BATCH prevents these interruptions.

Measured in November 2026 with `make bench-cluster` (1,500 pods of `varied`, 1,000 nodes, a busy machine of two CPUs,
alternating runs, medians of the CPU time per pod): 1.00 ms on one CPU and 1.33 ms on any (cheaper in 8 of 9 pairs);
1.48 ms with SCHED_BATCH and 1.68 ms without, in a busier hour (cheaper in 8 of 10 pairs).
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
"""The threads move to another CPU only if its idle time is longer by this fraction of the time since the last look.

A move has a cost, because the caches of the new CPU are cold.
"""

_PROCESSOR = 39
"""The position of the CPU's number among the fields of /proc/thread-self/stat, counted from 1."""

_log = logging.getLogger(__name__)


class LinuxCpus:
    """The CPUs of the machine, and the threads of this process; see proc(5), sched_setaffinity(2) and sched(7).

    Every method may raise OSError.
    """

    def __init__(self) -> None:
        self._ticks_per_second = os.sysconf("SC_CLK_TCK")

    def allowed(self) -> frozenset[int]:
        """Returns the CPUs that this thread may run on."""
        return frozenset(os.sched_getaffinity(0))

    def current(self) -> int:
        """Returns the CPU that this thread runs on."""
        fields_from_third = Path("/proc/thread-self/stat").read_text().rpartition(")")[2].split()
        return int(fields_from_third[_PROCESSOR - 3])

    def idle_seconds(self) -> Mapping[int, float]:
        """Returns how long each CPU has been idle since the machine started."""
        lines = [line.split() for line in Path("/proc/stat").read_text().splitlines()]
        idle_ticks = [(line[0].removeprefix("cpu"), int(line[4])) for line in lines if line[0].startswith("cpu")]
        return {int(number): ticks / self._ticks_per_second for number, ticks in idle_ticks if number}

    def used_seconds(self) -> float:
        """Returns the seconds of CPU time that this process has used."""
        return time.process_time()

    def keep_to(self, cpus: Iterable[int]) -> None:
        """Restricts all current and later threads of this process to these CPUs."""
        for thread in _threads():
            with suppress(ProcessLookupError):  # the thread has ended in the meantime
                os.sched_setaffinity(thread, cpus)

    def prefer_this_thread(self) -> None:
        """Keeps other threads from interrupting this thread: they run when it waits or its time slice ends."""
        for thread in _threads():
            if thread != threading.get_native_id():
                with suppress(OSError):  # the thread has ended, or the system does not permit this
                    os.sched_setscheduler(thread, os.SCHED_BATCH, os.sched_param(0))


def _threads() -> list[int]:
    return [int(thread.name) for thread in Path("/proc/self/task").iterdir()]


class OneCpu:
    """Keeps the process on one CPU after `settle`, and moves it if other processes need that CPU.

    If the system does not let the process choose a CPU, the threads run on any CPU.
    """

    def __init__(self, cpus: LinuxCpus, clock: Clock) -> None:
        self._cpus = cpus
        self._clock = clock
        self._allowed: frozenset[int] = frozenset()
        self._last_reading: _Reading | None = None  # None while the threads may run on any CPU

    def settle(self) -> None:
        """Moves all threads to the CPU of the calling thread. The other threads then do not interrupt this thread."""
        try:
            self._allowed = self._cpus.allowed()
            self._cpus.prefer_this_thread()
            if len(self._allowed) > 1:
                self._cpus.keep_to([self._cpus.current()])
                self._last_reading = self._read()
        except (OSError, AttributeError) as error:  # an AttributeError means that the system is not Linux
            self._release(error)

    def look(self) -> None:
        """Moves all threads to the CPU that was idle longest since the last call, if the gain is worth the move."""
        before = self._last_reading
        if before is None:
            return
        try:
            now = self._read()
            self._last_reading = now
            idle = {cpu: idle - before.idle.get(cpu, idle) for cpu, idle in now.idle.items() if cpu in self._allowed}
            quietest = max(idle, key=idle.__getitem__, default=now.cpu)
            available_here = idle.get(now.cpu, 0.0) + now.used - before.used
            if idle.get(quietest, 0.0) > available_here + MORE_ROOM * (now.at - before.at):
                self._cpus.keep_to([quietest])
        except OSError as error:
            self._release(error)

    def _read(self) -> _Reading:
        cpus = self._cpus
        return _Reading(self._clock.monotonic(), cpus.current(), cpus.idle_seconds(), cpus.used_seconds())

    def _release(self, error: Exception) -> None:
        self._last_reading = None
        _log.info("threads not kept on one CPU reason=%r", str(error))
        with suppress(OSError, AttributeError):
            self._cpus.keep_to(self._allowed)


class _Reading(NamedTuple):
    """The seconds that each CPU has been idle, and the CPU seconds that this process has used, read at time `at`."""

    at: float
    cpu: int
    idle: Mapping[int, float]
    used: float

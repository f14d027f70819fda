"""Tunes a process: garbage collection, memory that is given back, and the CPU of its threads.

Memory. By default, a process grows as long as requests arrive, for three reasons (mallopt(3), malloc_trim(3)):

- glibc raises its mmap threshold to the size of the largest block that was freed, up to 32 MiB. So after one request
  body of that size, later bodies are stored in the heap.
- glibc returns only the pages at the end of a heap. An object that was created after a body, and lives longer, keeps
  the body's pages from being returned.
- glibc has up to eight heaps per core. A thread cannot use the free blocks of another thread's heap.

After 120,000 randomly changed requests of four clients, 151 MiB were resident by default, 140 with `limit`, and 124
with `limit` and `give_back`.

One CPU. The GIL lets only one thread run at a time, but by default, the kernel spreads the threads over all CPUs. If
the CPUs are busy, a switch to another thread must first wait for that thread's CPU, whose caches hold another process's
data. The kernel also interrupts the thread that decides when data arrives for another thread. The interruption is
useless, because the other thread must then wait for the GIL. The policy SCHED_BATCH prevents these interruptions.

Measured in November 2026 with `make bench-cluster` (1,500 pods of `varied`, 1,000 nodes, a busy machine of two CPUs,
alternating runs, medians of the CPU time per pod): 1.00 ms on one CPU and 1.33 ms on any (cheaper in 8 of 9 pairs);
1.48 ms with SCHED_BATCH and 1.68 ms without, in a busier hour (cheaper in 8 of 10 pairs).
"""

from __future__ import annotations

import ctypes
import gc
import logging
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from importlib.metadata import metadata, version
from importlib.resources import files
from pathlib import Path
from typing import Final, NamedTuple

from extender.runtime.clock import Clock

# A full collection would stop every call while it visits all long-lived objects, so the third number disables it.
# Collecting the youngest 5,000 objects takes 1 or 2 ms. Objects that survive are visited once more, 25,000 at a time.
# With 100,000 at a time, a collection took up to 110 ms while lists were read, because listed objects all survive.
GC_THRESHOLDS: Final = (5_000, 5, 1_000_000_000)
COLLECT_SECONDS: Final = 0.2
"""The seconds between two calls of `collect_young`.

While a list is read, a call visits 40,000 objects in 10 ms.
"""
MAPPED_FROM_BYTES: Final = 128 * 1024
KEPT_FREE_BYTES: Final = 4 * 1024 * 1024
GIVE_BACK_SECONDS: Final = 2.0
"""The seconds between two calls of `give_back`. A call takes 0.1 ms if nothing is free, 2 ms under load.

The first call after the lists of 50,000 nodes takes 30 ms.
"""
MAPPED_FROM_BYTES_PER_NODE: Final = 160
"""Arrays of up to this many bytes per node stay in the heap. An array of a few resources is smaller.

A decision creates a hundred such arrays. If they were mapped and unmapped, the kernel would clear their pages each
time. That would take more than half of the time of a decision on 50,000 nodes.
"""
WINDOW_SECONDS: Final = 300.0
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_MADV_COLLAPSE = 25
_PRIVATE = re.compile(r"(\w+)-(\w+) rw-p \w+ 00:00 .*\nSize: +(\d+) kB(?:\n.*){2}\nRss: +(\d+) kB")


def _c_library() -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL(None)
    except TypeError:  # raised on Windows, where only commands that read files can run
        return None


_CLIBRARY: Final = _c_library()


class CollectionPauses:
    """Measures the pauses of the garbage collector after `start`, and keeps the longest of the last minutes.

    It keeps two numbers: the longest pause in the current `WINDOW_SECONDS`, and the longest in the `WINDOW_SECONDS`
    before.
    """

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self._now = now
        self._began_at = 0.0
        self._window = 0
        self._longest_seconds = 0.0
        self._longest_before_seconds = 0.0

    @property
    def longest_seconds(self) -> float:
        """The longest pause of the garbage collector in the last five to ten minutes."""
        self._turn(self._now())
        return max(self._longest_seconds, self._longest_before_seconds)

    def start(self) -> None:
        """Starts to measure. A second call does nothing."""
        if self._note not in gc.callbacks:
            gc.callbacks.append(self._note)

    def _note(self, phase: str, _info: object) -> None:
        # This takes no lock, because a collection may start while the same thread already holds the lock.
        now = self._now()
        if phase == "start":
            self._began_at = now
        else:
            self._turn(now)
            self._longest_seconds = max(self._longest_seconds, now - self._began_at)

    def _turn(self, now: float) -> None:
        """Begins a new window of `WINDOW_SECONDS` if the current one is over."""
        window = int(now // WINDOW_SECONDS)
        if window != self._window:
            self._longest_before_seconds = self._longest_seconds if window == self._window + 1 else 0.0
            self._longest_seconds = 0.0
            self._window = window


PAUSES: Final = CollectionPauses()


def collect_young() -> None:
    """Collects the young objects before there are too many of them.

    Python starts a collection only when many more objects were created than freed. In a cache that replaces old objects
    with new ones, the two numbers stay close. For example, a new list of 200,000 pods left 1.5 million young objects,
    and the next collection, during a call, stopped every thread for 0.3 s.
    """
    gc.collect(1)


def limit(nodes: int = 0) -> bool:
    """Limits this process to one heap, and keeps arrays with one row per node in the heap instead of mmap.

    Returns False if the C library has no mallopt.
    """
    mallopt = getattr(_CLIBRARY, "mallopt", None)
    if mallopt is None:
        return False
    mapped_from_bytes = max(MAPPED_FROM_BYTES, MAPPED_FROM_BYTES_PER_NODE * nodes)
    kept_free_bytes = max(KEPT_FREE_BYTES, 4 * mapped_from_bytes)
    options = {_M_ARENA_MAX: 1, _M_MMAP_THRESHOLD: mapped_from_bytes, _M_TRIM_THRESHOLD: kept_free_bytes}
    return all(mallopt(option, value) for option, value in options.items())


def give_back() -> None:
    """Returns the free pages of the heap to the kernel. Does nothing if the C library has no malloc_trim."""
    trim = getattr(_CLIBRARY, "malloc_trim", None)
    if trim is not None:
        trim(ctypes.c_size_t(KEPT_FREE_BYTES))


def use_huge_pages() -> None:
    """Moves the memory that is in use to pages of 2 MiB, if the kernel can do so (Linux 6.1).

    A decision reads a few bytes in thousands of places. With small pages, the CPU must look up the physical address of
    each place again after another process has used the CPU. Measured in November 2026, in 600 decisions of `varied` on
    5,000 nodes on a busy machine, six alternating runs of each: 0.81 ms of CPU per decision with huge pages, 0.95 ms
    with small pages (medians; cheaper in 5 of 6 pairs).
    """
    madvise = getattr(_CLIBRARY, "madvise", None)
    if madvise is None:
        return
    try:
        parts = _PRIVATE.findall(Path("/proc/self/smaps").read_text())
    except OSError:  # only Linux has this file
        return
    for begin, end, size, resident in parts:
        if 4 * int(resident) > 3 * int(size):  # mostly unused areas, such as stacks, are skipped
            first, length = int(begin, 16), int(end, 16) - int(begin, 16)
            madvise(ctypes.c_void_p(first), ctypes.c_size_t(length), _MADV_COLLAPSE)


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


DISTRIBUTION = "podseat"
_UNKNOWN = "unknown"


def product_version() -> str:
    """Returns the version of the installed distribution."""
    return version(DISTRIBUTION)


def documentation_address() -> str:
    """Returns the address of the documentation; "" if the package was built without one (PROJECT_URL)."""
    named = [text.partition(", ") for text in metadata(DISTRIBUTION).get_all("Project-URL") or ()]
    return next((address for name, _, address in named if name == "Documentation"), "")


def product_commit() -> str:
    """Returns the commit that was built, abbreviated; "unknown" if it was not built from a git checkout."""
    try:
        node = files("extender").joinpath("runtime/commit.txt").read_text()  # setuptools-scm writes g1a2b3c4d5
    except FileNotFoundError:
        return _UNKNOWN
    return node.removeprefix("g") if node.startswith("g") else _UNKNOWN

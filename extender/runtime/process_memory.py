"""Limits the pauses of garbage collection, and gives the memory of past requests back to the kernel.

By default, a process grows as long as requests arrive, for three reasons (mallopt(3), malloc_trim(3)):

- glibc raises its mmap threshold to the size of the largest block that was freed, up to 32 MiB. So after one request
  body of that size, later bodies are stored in the heap.
- glibc returns only the pages at the end of a heap. An object that was created after a body, and lives longer, keeps
  the body's pages from being returned.
- glibc has up to eight heaps per core. A thread cannot use the free blocks of another thread's heap.

After 120,000 randomly changed requests of four clients, 151 MiB were resident by default, 140 with `limit`, and 124
with `limit` and `give_back`.
"""

from __future__ import annotations

import ctypes
import gc
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

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

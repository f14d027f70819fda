"""Memory: how long collections of garbage hold every thread up, and a heap that gives back what requests took.

Left to itself glibc raises the size from which a block is mapped, and so given back, to that of the largest one freed,
up to 32 MiB. Once a body of that size was read the next ones come from the heap, where whatever outlives them holds
their pages. It also has eight heaps a core, each with holes that no thread of another heap fills, and gives back no
pages but those at a heap's end. So what requests leave in their holes grows for as long as requests come (mallopt(3),
malloc_trim(3)); tried with 120,000 mutated requests of four clients: 151 MiB resident as it is, 124 with these limits
and what is free given back, and 140 with the limits alone.
"""

from __future__ import annotations

import ctypes
import gc
import re
import time
from pathlib import Path
from typing import Final

# Objects that live long are many, and a full collection visits all of them while every call waits. One of the youngest
# 5,000 takes a millisecond or two. What survives is visited once more, 25,000 together: while a list is read or tables
# are made all of it does, and 100,000 together took up to 110 ms, 2.5 million 200. The last number stands for never.
GC_THRESHOLDS: Final = (5_000, 5, 1_000_000_000)
COLLECT_SECONDS: Final = 0.2
"""In so long a relist makes 40,000 objects that stay, which take 10 ms."""
MAPPED_FROM_BYTES: Final = 128 * 1024
KEPT_FREE_BYTES: Final = 4 * 1024 * 1024
GIVE_BACK_SECONDS: Final = 2.0
"""It takes 0.1 ms where nothing was freed, 2 under load, and 30 for all that a restart of 50,000 nodes has left. In ten
seconds 500 requests a second touched 11 MiB of holes again."""
MAPPED_FROM_BYTES_A_NODE: Final = 160
"""What an array of some resources takes for each node, with room to spare; a decision makes a hundred such arrays.

Were they mapped, or given back one by one, the kernel would clear their pages each time: of a cluster of 50,000 nodes
that is more than half of a decision.
"""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_MADV_COLLAPSE = 25
_CLIBRARY: Final = ctypes.CDLL(None)
_PRIVATE = re.compile(r"(\w+)-(\w+) rw-p \w+ 00:00 .*\nSize: +(\d+) kB(?:\n.*){2}\nRss: +(\d+) kB")


class CollectionPauses:
    """Watches the garbage collector of the process from `start` on.

    Attributes:
        longest_seconds: the longest of its pauses so far.
    """

    def __init__(self) -> None:
        self.longest_seconds = self._began_at = 0.0

    def start(self) -> None:
        """Begins to watch; once is enough."""
        if self._note not in gc.callbacks:
            gc.callbacks.append(self._note)

    def _note(self, phase: str, _info: object) -> None:
        # Nothing that takes a lock: a collection may come while this very thread holds it.
        now = time.perf_counter()
        if phase == "start":
            self._began_at = now
        else:
            self.longest_seconds = max(self.longest_seconds, now - self._began_at)


PAUSES: Final = CollectionPauses()


def collect_young() -> None:
    """Collects what came since the last time, or soon there would be too much of it.

    Python collects once so many objects more came than went, of whatever age. Where new versions take the place of old
    ones, as in a cache, it never comes to that: 200,000 pods that were listed anew left 1.5 million young objects, and
    the next collection, in the midst of a call, stopped every thread for 0.3 s.
    """
    gc.collect(1)


def limit(nodes: int = 0) -> bool:
    """Sets the limits for this process: one heap, and nothing mapped beside bodies but what is no array of the nodes.

    Returns False under other C libraries, which have no such heap.
    """
    mallopt = getattr(_CLIBRARY, "mallopt", None)
    if mallopt is None:
        return False
    mapped_from_bytes = max(MAPPED_FROM_BYTES, MAPPED_FROM_BYTES_A_NODE * nodes)
    kept_free_bytes = max(KEPT_FREE_BYTES, 4 * mapped_from_bytes)
    options = {_M_ARENA_MAX: 1, _M_MMAP_THRESHOLD: mapped_from_bytes, _M_TRIM_THRESHOLD: kept_free_bytes}
    return all(mallopt(option, value) for option, value in options.items())


def give_back() -> None:
    """Gives the kernel every page of the heap that holds nothing; does nothing under other C libraries."""
    trim = getattr(_CLIBRARY, "malloc_trim", None)
    if trim is not None:
        trim(ctypes.c_size_t(KEPT_FREE_BYTES))


def use_huge_pages() -> None:
    """Moves the parts of memory that are in use to pages of 2 MiB where the kernel can do so (Linux 6.1).

    A decision reads a few bytes in thousands of places. Where other processes have had the processor meanwhile, it
    waits not only for each of them but for the address of each small page too: that is 4 to 11 % of its time.
    """
    try:
        parts = _PRIVATE.findall(Path("/proc/self/smaps").read_text())
    except OSError:  # another kernel
        return
    for begin, end, size, resident in parts:
        if 4 * int(resident) > 3 * int(size):  # not the stacks of threads
            first, length = int(begin, 16), int(end, 16) - int(begin, 16)
            _CLIBRARY.madvise(ctypes.c_void_p(first), ctypes.c_size_t(length), _MADV_COLLAPSE)

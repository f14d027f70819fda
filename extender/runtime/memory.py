"""Memory: how long collections of garbage hold every thread up, and a heap that gives back what large bodies took.

Left to itself glibc raises the size from which a block is mapped, and so given back, to that of the largest one freed,
up to 32 MiB. Once a body of that size was read the next ones come from the heap, where whatever outlives them holds
their pages: the resident memory swings and grows. Tried with a hundred pods of 1 MiB and a body of 25 MiB, four times
over: 101, 124, 124, 124 MiB resident after each time as it is, 93, 94, 94, 94 with these limits (mallopt(3)).
"""

from __future__ import annotations

import ctypes
import gc
import time
from typing import Final

MAPPED_FROM_BYTES: Final = 1024 * 1024
KEPT_FREE_BYTES: Final = 4 * 1024 * 1024
MAPPED_FROM_BYTES_A_NODE: Final = 160
"""What an array of some resources takes for each node, with room to spare; a decision makes a hundred such arrays.

Were they mapped, or given back one by one, the kernel would clear their pages each time: of a cluster of 50,000 nodes
that is more than half of a decision.
"""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


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


def limit(nodes: int = 0) -> bool:
    """Sets the limits for this process, so that nothing but bodies is mapped beside the arrays of that many nodes.

    Returns False under other C libraries, which have no such heap.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    mapped_from_bytes = max(MAPPED_FROM_BYTES, MAPPED_FROM_BYTES_A_NODE * nodes)
    kept_free_bytes = KEPT_FREE_BYTES // MAPPED_FROM_BYTES * mapped_from_bytes
    return bool(mallopt(_M_MMAP_THRESHOLD, mapped_from_bytes) and mallopt(_M_TRIM_THRESHOLD, kept_free_bytes))

"""Threads that do one piece of work after another."""

from __future__ import annotations

from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import Generic, TypeVar

T = TypeVar("T")
_MOST_PARKED, _PARKED_SECONDS = 4, 10.0


class ParkedThreads(Generic[T]):
    """Calls `work` with each item in a thread of its own; a thread that is done waits for a while for the next item.

    A scheduler that binds several pods at once dials anew for most of them, for it keeps no more than two idle
    connections to a host; and to start a thread costs as much as to answer a bind.
    """

    def __init__(self, work: Callable[[T], object], name: str) -> None:
        self._work, self._name = work, name
        self._lock = Lock()
        self.parked = 0  # how many threads wait for an item
        self._items: SimpleQueue[T] = SimpleQueue()

    def take(self, item: T) -> None:
        """Works on `item` at once, whatever else is under way. Raises RuntimeError where no thread can be started."""
        with self._lock:
            if self.parked:
                self.parked -= 1
                self._items.put(item)
                return
        Thread(target=self._live, args=(item,), name=self._name, daemon=True).start()

    def _live(self, item: T) -> None:
        while True:
            self._work(item)
            with self._lock:
                if self.parked == _MOST_PARKED:
                    return
                self.parked += 1
            try:
                item = self._items.get(timeout=_PARKED_SECONDS)
            except Empty:
                with self._lock:
                    if self.parked:
                        self.parked -= 1
                        return
                item = self._items.get()  # put for this thread in the last moment

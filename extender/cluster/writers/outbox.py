"""Writes that must not hold anybody up: they wait for a thread of their own, and what is outdated is never sent."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from extender.cluster.writers.pacing import TokenBucket
from extender.errors import ClusterError, NotFound
from extender.runtime.clock import Clock

logger = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Outbox(Generic[K, V]):
    """One write waits for each key at most, the oldest goes first, and `bucket` sets the pace."""

    def __init__(
        self, name: str, write: Callable[[V], object], bucket: TokenBucket, clock: Clock, capacity: int
    ) -> None:
        self._name, self._write, self._bucket, self._clock = name, write, bucket, clock
        self._capacity = capacity
        self._waiting: OrderedDict[K, V] = OrderedDict()
        self._writing: K | None = None
        self._changed = threading.Condition()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def put(self, key: K, merged: Callable[[V | None], V]) -> None:
        """Has `merged(what waits under the key)` written; dropped where more wait than can."""
        with self._changed:
            if key not in self._waiting and len(self._waiting) >= self._capacity:
                return
            self._waiting[key] = merged(self._waiting.get(key))
            self._changed.notify_all()

    def withdraw(self, key: K) -> None:
        """Takes back what waits under the key, and waits until nothing of it is being written."""
        with self._changed:
            self._waiting.pop(key, None)
            self._changed.wait_for(lambda: self._writing != key)

    def start(self) -> None:
        """Begins to write."""
        self._thread.start()

    def stop(self, timeout_seconds: float) -> None:
        """Ends after the write under way; what still waits is not written."""
        self._stopping.set()
        with self._changed:
            self._changed.notify_all()
        self._thread.join(timeout_seconds)

    def _run(self) -> None:
        while (value := self._take()) is not None:
            try:
                self._write(value)
            except NotFound:
                pass  # What it was about is gone.
            except ClusterError as error:
                logger.warning("%s: %s", self._name, error)
            except Exception:  # a fault in one write must not end all others
                logger.exception("%s", self._name)

    def _take(self) -> V | None:
        """Returns the next to write, once it is its turn; None at the end."""
        while True:
            with self._changed:
                self._writing = None
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._waiting or self._stopping.is_set())
            # It stays in the box until then, so that it can still be brought up to date, or withdrawn.
            self._stopping.wait(self._bucket.reserve(self._clock.monotonic()))
            with self._changed:
                if self._stopping.is_set():
                    return None
                if self._waiting:
                    self._writing, value = self._waiting.popitem(last=False)
                    return value

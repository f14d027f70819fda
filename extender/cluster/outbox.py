"""Queues writes to the API server, one per key such as a pod's UID, and sends them in the background.

The rate of calls is limited, so that they do not overload the API server.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

import msgspec

from extender.errors import ClusterError, NotFound, Refused
from extender.runtime.clock import Clock
from extender.runtime.fibers import in_thread
from extender.runtime.ports import Binder, Binding, Check, always

_YIELDED_TURNS = 9
_TOO_MANY_REQUESTS = 429
_MOST_TRIES = 11
_RETRY_AFTER_SECONDS = 1.0  # the API server's eviction API always sends this Retry-After
logger = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
MOST_TRIES = 10
FIRST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 10.0


class TokenBucket:
    """Limits the rate of calls: `reserve` returns how long a caller must wait (client-go's flowcontrol).

    Up to `burst` calls in a row need not wait; by default, as many calls as are allowed in one second.
    """

    def __init__(self, per_second: float, burst: int | None = None) -> None:
        self._seconds_per_turn = 1.0 / per_second
        self._burst = burst or max(1, int(per_second))
        self._lock = threading.Lock()
        self._paid_until = float("-inf")

    def reserve(self, now: float) -> float:
        """Reserves a turn for one call; returns how many seconds the caller must wait for this turn.

        `now` is in monotonic seconds.
        """
        with self._lock:
            full = now - self._burst * self._seconds_per_turn
            self._paid_until = max(self._paid_until, full) + self._seconds_per_turn
            return max(0.0, self._paid_until - now)


class YieldingBucket(TokenBucket):
    """A bucket that allows only a tenth of its rate while `is_urgent()` is True.

    Attributes:
        is_urgent: returns True while other calls are more urgent; the owner sets it.
    """

    def __init__(self, per_second: float, burst: int | None = None) -> None:
        super().__init__(per_second, burst)
        self.is_urgent: Callable[[], bool] = lambda: False

    def reserve(self, now: float) -> float:
        for _ in range(_YIELDED_TURNS if self.is_urgent() else 0):
            super().reserve(now)
        return super().reserve(now)


class PacedBinder:
    """A ports.Binder that binds at a limited rate, and repeats a bind that the API server answers with 429.

    It repeats a bind as often as client-go does, and after the same pauses. Without a repetition, the pod would go back
    to the queue, and would wait longer there.
    """

    def __init__(
        self, binder: Binder, bucket: TokenBucket, clock: Clock, sleep: Callable[[float], object] = time.sleep
    ) -> None:
        self._binder = binder
        self._bucket = bucket
        self._clock = clock
        self._sleep = sleep

    def bind(self, binding: Binding, check: Check = always) -> None:
        for tries_left in reversed(range(_MOST_TRIES)):
            self._wait(self._bucket.reserve(self._clock.monotonic()))
            try:
                self._binder.bind(binding, check)
                return
            except Refused as error:
                if error.status != _TOO_MANY_REQUESTS or not tries_left:
                    raise
            self._wait(_RETRY_AFTER_SECONDS)

    def _wait(self, seconds: float) -> None:
        if seconds:
            in_thread(lambda: self._sleep(seconds))


# gc=False, because thousands of entries may wait, and none is in a reference cycle.
class _Entry(msgspec.Struct, Generic[V], frozen=True, gc=False):
    value: V
    tries: int = 0


class Outbox(Generic[K, V]):
    """Values that a thread writes in the background: one value per key, the oldest first, at the rate of `bucket`.

    A write that fails temporarily is repeated with the newest value of its key. After a failure, nothing is written
    during a pause. Each failure makes the next pause longer, until a write succeeds.

    Args:
        join: called with the queued value and a newer value of one key; returns the value to write instead of both.
        dropped: called with the outbox's name for each write that is dropped, because too many wait or because it has
            failed `MOST_TRIES` times.
    """

    def __init__(
        self,
        name: str,
        write: Callable[[V], object],
        join: Callable[[V, V], V],
        bucket: TokenBucket,
        clock: Clock,
        capacity: int,
        dropped: Callable[[str], object] = lambda _: None,
    ) -> None:
        self._name = name
        self._write = write
        self._join = join
        self._bucket = bucket
        self._clock = clock
        self._capacity = capacity
        self._dropped = dropped
        self._waiting: OrderedDict[K, _Entry[V]] = OrderedDict()
        self._writing: K | None = None
        self._withdrawn = False  # True if the write in progress must not be repeated
        self._failures = 0  # how many writes have failed in a row
        self._changed = threading.Condition()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def put(self, key: K, value: V) -> None:
        """Queues the value, joined with the value that is already queued for the key, if any.

        Drops the value if too many keys have queued values.
        """
        with self._changed:
            waiting = self._waiting.get(key)
            if waiting is None and len(self._waiting) >= self._capacity:
                self._dropped(self._name)
                return
            self._waiting[key] = _Entry(self._join(waiting.value, value), waiting.tries) if waiting else _Entry(value)
            self._changed.notify_all()

    def waiting(self) -> int:
        """Returns the number of waiting writes."""
        return len(self._waiting)

    def withdraw(self, key: K) -> None:
        """Drops the waiting write of the key. If a write of the key is in flight, waits until it ends."""
        with self._changed:
            self._waiting.pop(key, None)
            if self._writing != key:
                return
            self._withdrawn = True
        in_thread(lambda: self._wait_for(key))

    def _wait_for(self, key: K) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._writing != key)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_seconds: float) -> None:
        """Stops the thread. Waits at most `timeout_seconds` for the write in flight. Queued writes are not sent."""
        self._stopping.set()
        with self._changed:
            self._changed.notify_all()
        self._thread.join(timeout_seconds)

    def _run(self) -> None:
        while (write := self._take()) is not None:
            key, entry = write
            try:
                self._write(entry.value)
                self._failures = 0
            except NotFound:
                pass  # the object was deleted, so there is nothing to write
            except ClusterError as error:
                self._failed(key, entry, error)
            except Exception:  # an error in one write must not end the thread
                logger.exception("write failed outbox=%s", self._name)

    def _failed(self, key: K, entry: _Entry[V], error: ClusterError) -> None:
        # A 5xx means that the server is unreachable or fails, or that this process does not lead.
        is_final = isinstance(error, Refused) and error.status < 500 and error.status != _TOO_MANY_REQUESTS
        if is_final or entry.tries + 1 >= MOST_TRIES:
            logger.warning("write dropped outbox=%s reason=%r", self._name, str(error))
            self._dropped(self._name)
            return
        logger.debug("write failed, repeating it outbox=%s reason=%r", self._name, str(error))
        with self._changed:
            if not self._withdrawn:
                newer = self._waiting.get(key)
                value = self._join(entry.value, newer.value) if newer else entry.value
                self._waiting[key] = _Entry(value, entry.tries + 1)
        self._failures += 1

    def _pause_seconds(self) -> float:
        if not self._failures:
            return 0.0
        return float(min(FIRST_PAUSE_SECONDS * 2 ** min(self._failures - 1, 16), LONGEST_PAUSE_SECONDS))

    def _take(self) -> tuple[K, _Entry[V]] | None:
        """Waits until the next write may be sent, and returns it; returns None once the outbox is stopped."""
        while True:
            with self._changed:
                self._writing = None
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._waiting or self._stopping.is_set())
            # The write stays in the queue during this wait, so that it can still be updated or withdrawn.
            self._stopping.wait(self._bucket.reserve(self._clock.monotonic()) + self._pause_seconds())
            with self._changed:
                if self._stopping.is_set():
                    return None
                if self._waiting:
                    key, entry = self._waiting.popitem(last=False)
                    self._writing = key
                    self._withdrawn = False
                    return key, entry

"""`threading`, `queue.SimpleQueue`, `Future`, `time` for tasks: what modules find under these names while simulated."""

from __future__ import annotations

import atexit
import concurrent.futures
import gc
import pkgutil
import queue
import random
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from random import Random
from types import SimpleNamespace
from typing import Any

from extender.runtime.clock import SystemClock
from tests.simulation.tasks import Process, ProcessClock, Simulation, Task

LIFELESS = Process("lifeless")


class Primitives:
    """The classes, bound to one simulation."""

    def __init__(self, simulation: Simulation) -> None:
        def bound(kind: Callable[..., Any]) -> Callable[..., Any]:
            return lambda *args, **kwargs: kind(simulation, *args, **kwargs)

        self.threading = SimpleNamespace(
            Lock=bound(Lock),
            RLock=bound(Lock),
            Condition=bound(Condition),
            Event=bound(Event),
            Semaphore=bound(Semaphore),
            Thread=bound(Thread),
            current_thread=lambda: SimpleNamespace(name=simulation.current.name if simulation.current else "hub"),
            main_thread=lambda: None,
        )
        self.simple_queue, self.future = bound(SimpleQueue), bound(Future)
        self.time = SimpleNamespace(
            sleep=simulation.sleep,
            time=lambda: self._clock(simulation).now(),
            monotonic=lambda: self._clock(simulation).monotonic(),
            perf_counter=lambda: self._clock(simulation).monotonic(),
            CLOCK_BOOTTIME=time.CLOCK_BOOTTIME,
            clock_gettime=lambda _: self._clock(simulation).boot(),
        )

        self.random = SimpleNamespace(Random=lambda *seed: Random(*(seed or (simulation.random.random(),))))
        self.gc = SimpleNamespace(freeze=lambda: None, set_threshold=lambda *_: None, callbacks=[])
        self.atexit = SimpleNamespace(register=lambda _: None, unregister=lambda _: None)

    @contextmanager
    def installed(self, stand_ins: Mapping[str, object]) -> Iterator[None]:
        """The real modules that are loaded use these instead of threads, for as long as the block lasts.

        `stand_ins`: what else they find under a name: {"extender.app.serve.KubeClient": ...}.
        """
        instead: dict[Any, object] = {
            random: self.random,
            gc: self.gc,
            atexit: self.atexit,
            threading: self.threading,
            threading.Lock: self.threading.Lock,
            time: self.time,
            queue.SimpleQueue: self.simple_queue,
            concurrent.futures.Future: self.future,
        }
        modules = [module for name, module in sys.modules.items() if name.startswith("extender.")]
        changes: list[tuple[object, str, object, object]] = [
            (module, name, value, instead[value])
            for module in modules
            for name, value in vars(module).items()
            if any(value is real for real in instead)
        ]
        for path, stand_in in stand_ins.items():
            owner_path, _, name = path.rpartition(".")
            owner = pkgutil.resolve_name(owner_path)
            changes.append((owner, name, getattr(owner, name), stand_in))
        for name, stand_in in (("now", self.time.time), ("monotonic", self.time.monotonic)):  # bound as it is loaded
            changes.append((SystemClock, name, vars(SystemClock)[name], staticmethod(stand_in)))
        for owner, name, _, stand_in in changes:
            setattr(owner, name, stand_in)
        try:
            yield
        finally:
            for owner, name, value, _ in changes:
                setattr(owner, name, value)

    def _clock(self, simulation: Simulation) -> ProcessClock:
        return ProcessClock(simulation, simulation.current.process if simulation.current else LIFELESS)


class _Waiters:
    """Tasks that wait for one thing."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self._tasks: deque[Task] = deque()

    def park(self, seconds: float | None) -> bool:
        task = self.simulation.current
        assert task is not None, "only a task can wait"
        self._tasks.append(task)
        self.simulation.park(seconds)
        if task not in self._tasks:
            return True  # perhaps at the very moment at which its time was over
        self._tasks.remove(task)
        return False

    def wake(self, most: int = 1) -> None:
        while self._tasks and most:
            self.simulation.wake(self._tasks.popleft())
            most -= 1

    def __len__(self) -> int:
        return len(self._tasks)


class Lock:
    """A lock; outside of all tasks it can be acquired only while no task holds it."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation, self._waiters = simulation, _Waiters(simulation)
        self._held = False

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        self._simulation.point()
        while self._held:
            if not blocking or not self._waiters.park(timeout if timeout >= 0 else None):
                return False
        self._held = True
        return True

    def release(self) -> None:
        self._held = False
        self._waiters.wake()

    def locked(self) -> bool:
        return self._held

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class Condition:
    def __init__(self, simulation: Simulation, lock: Lock | None = None) -> None:
        self._simulation, self._lock, self._waiters = simulation, lock or Lock(simulation), _Waiters(simulation)

    def __enter__(self) -> bool:
        return self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        self._lock.release()
        try:
            return self._waiters.park(timeout)
        finally:
            self._lock.acquire()

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        task = self._simulation.current
        assert timeout == 0 or task is not None
        deadline = None if timeout is None else self._simulation.now + timeout
        while not (found := predicate()):
            left = None if deadline is None else deadline - self._simulation.now
            if left is not None and left <= 0:
                return predicate()
            self.wait(left)
        return found

    def notify(self, n: int = 1) -> None:
        self._waiters.wake(n)

    def notify_all(self) -> None:
        self._waiters.wake(len(self._waiters))


class Event:
    def __init__(self, simulation: Simulation) -> None:
        self._simulation, self._waiters = simulation, _Waiters(simulation)
        self._set = False

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        self._waiters.wake(len(self._waiters))

    def clear(self) -> None:
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        if not self._set:
            self._waiters.park(timeout)
        return self._set


class Semaphore:
    def __init__(self, simulation: Simulation, value: int = 1) -> None:
        self._simulation, self._waiters, self._value = simulation, _Waiters(simulation), value

    def acquire(self) -> bool:
        self._simulation.point()
        while not self._value:
            self._waiters.park(None)
        self._value -= 1
        return True

    def release(self) -> None:
        self._value += 1
        self._waiters.wake()


class SimpleQueue:
    def __init__(self, simulation: Simulation) -> None:
        self._simulation, self._waiters = simulation, _Waiters(simulation)
        self._items: deque[Any] = deque()

    def put(self, item: Any) -> None:
        self._items.append(item)
        self._waiters.wake()

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        self._simulation.point()
        while not self._items:
            if not block or not self._waiters.park(timeout):
                raise queue.Empty
        return self._items.popleft()

    def empty(self) -> bool:
        return not self._items

    def qsize(self) -> int:
        return len(self._items)


class Future:
    def __init__(self, simulation: Simulation) -> None:
        self._done, self._result = Event(simulation), None

    def set_result(self, result: Any) -> None:
        self._result = result
        self._done.set()

    def result(self) -> Any:
        self._done.wait()
        return self._result


class Thread:
    def __init__(
        self,
        simulation: Simulation,
        *,
        target: Callable[..., object],
        args: tuple[Any, ...] = (),
        name: str = "thread",
        daemon: bool = True,
    ) -> None:
        self._simulation, self._run, self.name = simulation, lambda: target(*args), name
        self._task: Task | None = None

    def start(self) -> None:
        current = self._simulation.current
        assert current is not None, "threads are begun by tasks"
        self._task = self._simulation.spawn(current.process, self.name, self._run)

    def is_alive(self) -> bool:
        return self._task is not None and not self._task.over

    def join(self, timeout: float | None = None) -> None:
        if self._task is not None and not self._task.over:
            current = self._simulation.current
            assert current is not None
            self._task.ends.append(current)
            self._simulation.park(timeout)
            if current in self._task.ends:
                self._task.ends.remove(current)

"""Virtual time and simulated processes: tasks in one thread, of which the seed says who goes on when."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from random import Random
from typing import Any

from greenlet import greenlet  # type: ignore[import-untyped,unused-ignore]  # its stubs are a package of their own

from extender.runtime.clock import Moment

YIELDS = 0.1
LONGEST_YIELD_SECONDS = 0.05
_HISTORY = 400


class Killed(BaseException):
    """The process of this task is no more."""


class Violation(AssertionError):
    """An invariant does not hold."""


@dataclass(eq=False)
class Process:
    """A process: tasks that live and die as one, with a clock of their own.

    Attributes:
        rate: seconds of its monotonic clock in a true second.
        skew: what its wall clock is ahead, in seconds.
        ending: it was asked to end.
        paused_until: it stands still until then (SIGSTOP), in true seconds.
        suspended_until: its machine is suspended until then, in true seconds.
        suspended_seconds: for how long its monotonic clock has stood still, with its machine.
        boot_lost_seconds: for how much of that its boot clock has, too.
        facts: what the simulation wants to know of it.
    """

    name: str
    rate: float = 1.0
    skew: float = 0.0
    born_at: float = 0.0
    alive: bool = True
    ending: bool = False
    paused_until: float = 0.0
    suspended_until: float = 0.0
    suspended_seconds: float = 0.0
    boot_lost_seconds: float = 0.0
    tasks: list[Task] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)


class Task:
    """A thread of a process."""

    def __init__(self, simulation: Simulation, process: Process, name: str, run: Callable[[], object]) -> None:
        self.process, self.name = process, name
        self.over = False
        self.ends: list[Task] = []
        self.ticket: object = None
        self.greenlet = greenlet(lambda _: simulation._run(self, run), parent=simulation.hub)


class Simulation:
    """A heap of what is to happen, in the order of time; at the same time in an order by lot."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now = 0.0
        self.current: Task | None = None
        self.history: deque[str] = deque(maxlen=_HISTORY)
        self.echo = False
        self.yields = YIELDS
        self.steps = 0
        self._heap: list[tuple[float, float, int, Callable[[], object]]] = []
        self._made = self._parked = 0
        self.hub = greenlet.getcurrent()
        self._error: BaseException | None = None

    # ---- events

    def after(self, seconds: float, action: Callable[[], object]) -> None:
        """Has `action` done then; it must not wait for anything."""
        self._made += 1
        heappush(self._heap, (self.now + seconds, self.random.random(), self._made, action))

    def run(self, seconds: float, after_each: Callable[[], object] = lambda: None) -> None:
        """Lets that much time pass; raises what a task has raised."""
        end = self.now + seconds
        while self._heap and self._heap[0][0] <= end:
            self.now, _, _, action = heappop(self._heap)
            self.steps += 1
            action()
            after_each()
            self.raise_error()
        self.now = end

    def raise_error(self) -> None:
        """Raises what has gone wrong so far."""
        if self._error is not None:
            raise self._error

    def tell(self, line: str) -> None:
        """Notes what happens, for the search of the cause."""
        entry = f"{self.now:9.3f} {line}"
        self.history.append(entry)
        if self.echo:
            print(entry)

    def fail(self, why: str) -> None:
        """An invariant does not hold: `run` raises it, whatever the code under test makes of exceptions."""
        self._error = self._error or Violation(why)

    # ---- tasks

    def spawn(self, process: Process, name: str, run: Callable[[], object], delay_seconds: float = 0.0) -> Task:
        """Begins a thread."""
        task = Task(self, process, name, run)
        process.tasks = [each for each in process.tasks if not each.over]
        process.tasks.append(task)
        self.after(delay_seconds, lambda: self._resume(task, None, woken=True))
        return task

    def park(self, seconds: float | None = None) -> bool:
        """The current task waits until it is woken, or for so long by its own clock; whether it was woken."""
        task = self._awake()
        self._parked += 1
        task.ticket = ticket = object()
        if seconds is not None:
            self._set_alarm(task, ticket, max(seconds, 0.0) / task.process.rate)
        woken: bool = self.hub.switch()
        self._awake()
        return woken

    def _set_alarm(self, task: Task, ticket: object, seconds: float) -> None:
        before = task.process.suspended_seconds

        def ring() -> None:
            if suspended := task.process.suspended_seconds - before:  # the clock of the alarm stood still
                self._set_alarm(task, ticket, suspended)
            else:
                self._resume(task, ticket, woken=False)

        self.after(seconds, ring)

    def suspend(self, process: Process, seconds: float, *, boot_clock_stops: bool) -> None:
        """Its machine sleeps for so long, and its clocks with it."""
        process.suspended_until = max(process.suspended_until, self.now + seconds)
        process.paused_until = max(process.paused_until, process.suspended_until)
        process.suspended_seconds += seconds
        process.boot_lost_seconds += seconds * boot_clock_stops

    def wake(self, task: Task) -> None:
        """A parked task goes on, in its turn."""
        ticket = task.ticket
        self.after(0.0, lambda: self._resume(task, ticket, woken=True))

    def sleep(self, seconds: float) -> None:
        self.park(seconds)

    def point(self) -> None:
        """A point at which the current task may have to wait for others, as a thread may anywhere."""
        if self.current is None:
            return
        self._awake()
        if self.random.random() < self.yields:
            self.park(self.random.choice((0.0, 0.0, self.random.uniform(0, LONGEST_YIELD_SECONDS))))

    def undisturbed(self, look: Callable[[], object]) -> None:
        """Has the current task look at things that only make sense together: again, if it had to wait in between."""
        yields, self.yields = self.yields, 0.0
        try:
            while True:
                error, before = self._error, self._parked
                look()
                if self._parked == before:
                    return
                self._error = error
        finally:
            self.yields = yields

    def kill(self, process: Process) -> None:
        """Ends a process at once, wherever its threads are; not from one of these."""
        process.alive = False
        for task in process.tasks:
            if task.greenlet and not task.over:
                self._enter(task, lambda task=task: task.greenlet.throw(Killed))  # type: ignore[misc]  # bound here
        process.tasks = []

    def _awake(self) -> Task:
        task = self.current
        assert task is not None, "only a task can wait"
        if not task.process.alive:
            raise Killed
        return task

    def _resume(self, task: Task, ticket: object, *, woken: bool) -> None:
        process = task.process
        if task.over or not process.alive or task.ticket is not ticket:
            return
        if process.paused_until > self.now:
            self.after(process.paused_until - self.now, lambda: self._resume(task, ticket, woken=woken))
            return
        task.ticket = object()
        self._enter(task, lambda: task.greenlet.switch(woken))

    def _enter(self, task: Task, go: Callable[[], object]) -> None:
        before, self.current = self.current, task
        try:
            go()
        finally:
            self.current = before

    def _run(self, task: Task, run: Callable[[], object]) -> None:
        try:
            run()
        except Killed:
            pass
        except BaseException as error:  # the hub raises it, whatever it is
            self._error = self._error or error
        task.over = True
        for other in task.ends:
            self.wake(other)


class ProcessClock:
    """An extender.runtime.clock.Clock of one process."""

    EPOCH = 1_790_000_000.0

    def __init__(self, simulation: Simulation, process: Process) -> None:
        self._simulation, self._process = simulation, process

    def now(self) -> float:
        return self.EPOCH + self._simulation.now + self._process.skew

    def monotonic(self) -> float:
        return self._since_boot(self._process.suspended_seconds)

    def boot(self) -> float:
        return self._since_boot(self._process.boot_lost_seconds)

    def moment(self) -> Moment:
        return Moment(self.monotonic(), self.boot(), self.now())

    def _since_boot(self, lost_seconds: float) -> float:
        process = self._process
        return 1000.0 + process.rate * (self._simulation.now - process.born_at - lost_seconds)

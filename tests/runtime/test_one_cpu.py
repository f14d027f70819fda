"""A process stays on one CPU, and moves if others need it."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

import pytest

from extender.runtime.clock import ManualClock, SystemClock
from extender.runtime.process import LinuxCpus, OneCpu


class FakeCpus(LinuxCpus):
    """Four CPUs, of which this process may use three. `refuses` names the calls that fail."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.kept_to = frozenset({0, 1, 2})
        self.running_on = 1
        self.idle = dict.fromkeys(range(4), 0.0)
        self.used = 0.0
        self.refuses = False
        self.prefers_one = False

    def allowed(self) -> frozenset[int]:
        return self.kept_to

    def current(self) -> int:
        return self.running_on

    def idle_seconds(self) -> Mapping[int, float]:
        return dict(self.idle)

    def used_seconds(self) -> float:
        return self.used

    def keep_to(self, cpus: Iterable[int]) -> None:
        wanted = frozenset(cpus)
        if self.refuses and len(wanted) == 1:
            raise PermissionError("not permitted")
        self.kept_to = wanted
        if self.running_on not in wanted:
            self.running_on = min(wanted)

    def prefer_this_thread(self) -> None:
        self.prefers_one = True

    def let_pass(self, seconds: float, *, used: float, idle: Mapping[int, float]) -> None:
        self._clock.advance(seconds)
        self.used += used
        for cpu, idle_for in idle.items():
            self.idle[cpu] += idle_for


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def cpus(clock: ManualClock) -> FakeCpus:
    return FakeCpus(clock)


@pytest.fixture
def settled(cpus: FakeCpus, clock: ManualClock) -> OneCpu:
    one = OneCpu(cpus, clock)
    one.settle()
    assert cpus.kept_to == {1}
    assert cpus.prefers_one
    return one


@pytest.mark.parametrize(
    ("used", "idle", "then_on"),
    [
        pytest.param(1.0, {0: 1.0, 2: 1.0}, 1, id="all of it is its own use"),
        pytest.param(0.3, {0: 0.5, 1: 0.7, 2: 1.0}, 1, id="no other process uses it"),
        pytest.param(0.1, {0: 0.5, 2: 0.9}, 2, id="others use it, and the last is quietest"),
        pytest.param(0.5, {0: 0.2, 2: 0.1}, 1, id="others use all"),
        pytest.param(0.5, {0: 0.7, 2: 0.6}, 1, id="hardly more room elsewhere"),
        pytest.param(0.1, {0: 0.5, 3: 1.0}, 0, id="the quietest is not allowed"),
    ],
)
def test_it_moves_to_a_cpu_with_more_idle_time(
    cpus: FakeCpus, settled: OneCpu, used: float, idle: Mapping[int, float], then_on: int
) -> None:
    cpus.let_pass(1.0, used=used, idle=idle)
    settled.look()
    assert cpus.kept_to == {then_on}


def test_it_compares_idle_times_since_the_last_look(cpus: FakeCpus, settled: OneCpu) -> None:
    cpus.let_pass(10.0, used=10.0, idle={0: 10.0, 2: 10.0})
    settled.look()
    cpus.let_pass(1.0, used=0.1, idle={0: 0.9})
    settled.look()
    assert cpus.kept_to == {0}


def test_a_cpu_that_is_switched_on_later_is_compared_from_then_on(cpus: FakeCpus, clock: ManualClock) -> None:
    del cpus.idle[2]
    one = OneCpu(cpus, clock)
    one.settle()
    cpus.idle[2] = 100.0
    cpus.let_pass(1.0, used=0.1, idle={})
    one.look()
    assert cpus.kept_to == {1}
    cpus.let_pass(1.0, used=0.1, idle={2: 1.0})
    one.look()
    assert cpus.kept_to == {2}


def test_if_its_cpu_is_taken_away_it_runs_on_any(cpus: FakeCpus, settled: OneCpu) -> None:
    cpus.refuses = True
    cpus.let_pass(1.0, used=0.0, idle={2: 1.0})
    settled.look()
    assert cpus.kept_to == {0, 1, 2}


def test_without_the_right_to_choose_it_runs_on_any(cpus: FakeCpus, clock: ManualClock) -> None:
    cpus.refuses = True
    one = OneCpu(cpus, clock)
    one.settle()
    cpus.let_pass(1.0, used=0.0, idle={2: 1.0})
    one.look()
    assert cpus.kept_to == {0, 1, 2}


def test_on_a_single_cpu_it_still_prefers_the_deciding_thread(cpus: FakeCpus, clock: ManualClock) -> None:
    cpus.kept_to = frozenset({1})
    one = OneCpu(cpus, clock)
    one.settle()
    cpus.let_pass(1.0, used=0.0, idle={2: 1.0})
    one.look()
    assert cpus.kept_to == {1}
    assert cpus.prefers_one


def test_linux_restricts_running_threads_and_those_that_they_start() -> None:
    real = LinuxCpus()
    allowed = real.allowed()
    found: list[frozenset[int]] = []
    begin, go_on = threading.Event(), threading.Event()

    def note() -> None:
        begin.set()
        go_on.wait(60)
        found.append(real.allowed())
        child = threading.Thread(target=lambda: found.append(real.allowed()))
        child.start()
        child.join()

    thread = threading.Thread(target=note)
    thread.start()
    begin.wait(60)
    try:
        OneCpu(real, SystemClock()).settle()
        go_on.set()
        thread.join()
        here, on = real.allowed(), real.current()
    finally:
        real.keep_to(allowed)
    assert here == {on}
    assert found == [here, here]


def test_linux_keeps_running_threads_from_interrupting_this_one() -> None:
    begin, go_on = threading.Event(), threading.Event()

    def wait() -> None:
        begin.set()
        go_on.wait(60)

    thread = threading.Thread(target=wait)
    thread.start()
    begin.wait(60)
    before = os.sched_getscheduler(0)
    try:
        LinuxCpus().prefer_this_thread()
        assert os.sched_getscheduler(thread.native_id or 0) == os.SCHED_BATCH
        assert os.sched_getscheduler(0) == before
    finally:
        go_on.set()
        for each in Path("/proc/self/task").iterdir():
            with suppress(OSError):
                os.sched_setscheduler(int(each.name), before, os.sched_param(0))
        thread.join()


def test_linux_reports_idle_times() -> None:
    real = LinuxCpus()
    assert real.allowed() <= real.idle_seconds().keys()
    assert real.current() in real.allowed()
    assert real.used_seconds() > 0

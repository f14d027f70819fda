"""Writes of unknown outcome: what is noted, what outlives a worker that is killed, and what settles it."""

from __future__ import annotations

import mmap
import multiprocessing
import os
import signal
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, suppress
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from extender.errors import ClusterError, OutcomeUnknown, Refused
from extender.runtime.clock import ManualClock
from extender.runtime.ports import LONG_AGO, Binding
from extender.runtime.unsettled import SLOTS, Settlement, UnsettledWrites

FORK = multiprocessing.get_context("fork")
SECONDS = 10.0
EVICTION = "DELETE /api/v1/namespaces/default/pods/victim"
NO_ANSWER = OutcomeUnknown("no answer")


def binding(uid: str, namespace: str = "default") -> Binding:
    return Binding(namespace, f"pod-{uid}", uid, "n1")


def written(writes: UnsettledWrites, write: Binding | str, error: Exception | None = None) -> None:
    with suppress(OutcomeUnknown, Refused, ZeroDivisionError), writes.noted(write):
        if error is not None:
            raise error


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def writes(clock: ManualClock) -> UnsettledWrites:
    """Those of a process whose predecessors are settled."""
    made = UnsettledWrites(SECONDS, clock)
    made.vouch()
    return made


# ---- notes


@pytest.mark.parametrize(
    ("error", "left"),
    [
        pytest.param(None, [], id="done"),
        pytest.param(Refused("no", 409), [], id="refused"),
        pytest.param(NO_ANSWER, ["a"], id="no answer"),
        pytest.param(ZeroDivisionError(), ["a"], id="a defect"),
    ],
)
def test_a_write_is_unsettled_if_nothing_says_what_became_of_it(
    writes: UnsettledWrites, error: Exception | None, left: list[str]
) -> None:
    written(writes, binding("a"), error)
    assert [each.write for each in writes.unknown()] == [binding(uid) for uid in left]
    assert writes.nothing_unsettled() is not bool(left)


def test_a_write_under_way_is_unsettled(writes: UnsettledWrites) -> None:
    with writes.noted(EVICTION):
        assert not writes.nothing_unsettled()
    assert writes.nothing_unsettled()


def test_later_writes_do_not_overwrite_the_note_of_one_of_unknown_outcome(writes: UnsettledWrites) -> None:
    written(writes, binding("unknown"), NO_ANSWER)
    for number in range(3 * SLOTS):
        written(writes, binding(str(number)))
    assert [each.write for each in writes.unknown()] == [binding("unknown")]


def test_a_write_that_cannot_be_noted_is_not_sent(writes: UnsettledWrites, clock: ManualClock) -> None:
    for number in range(SLOTS):
        written(writes, binding(str(number)), NO_ANSWER)
    sent = []
    with pytest.raises(Refused, match="no known outcome yet"), writes.noted(binding("one more")):
        sent.append("one more")
    assert (sent, len(writes.unknown())) == ([], SLOTS)
    clock.advance(SECONDS)
    writes.settle(clock.monotonic())
    with writes.noted(binding("one more")):
        sent.append("one more")
    assert sent == ["one more"]


def test_a_write_with_names_that_no_server_lets_in_is_not_sent(writes: UnsettledWrites) -> None:
    with pytest.raises(Refused, match="too long"), writes.noted(binding("u", namespace="n" * 5000)):
        pytest.fail("it was sent")
    assert writes.nothing_unsettled()


def test_the_longest_names_of_kubernetes_can_be_noted(writes: UnsettledWrites) -> None:
    longest = Binding("s" * 63, "p" * 253, "u" * 36, "n" * 253)
    written(writes, longest, NO_ANSWER)
    assert writes.take_over() == [longest]


# ---- settling


def test_only_a_state_read_after_the_deadline_settles_a_write(writes: UnsettledWrites, clock: ManualClock) -> None:
    written(writes, binding("a"), NO_ANSWER)
    deadline = clock.monotonic() + SECONDS
    writes.settle(deadline - 0.1)
    assert not writes.nothing_unsettled()
    writes.settle(deadline)
    assert writes.nothing_unsettled()


def test_the_watch_settles_a_binding_and_nothing_else(writes: UnsettledWrites) -> None:
    for write in (binding("shown"), binding("not shown"), EVICTION):
        written(writes, write, NO_ANSWER)
    writes.settle_shown(lambda each: each.uid == "shown")
    assert [each.write for each in writes.unknown()] == [binding("not shown"), EVICTION]


def test_predecessors_are_expected_until_the_latest_of_their_deadlines(clock: ManualClock) -> None:
    writes = UnsettledWrites(SECONDS, clock)
    start = clock.monotonic()
    assert (writes.predecessors_until, writes.nothing_unsettled()) == (start + SECONDS, False)
    writes.expect_predecessors(start + 3)
    assert writes.predecessors_until == start + SECONDS
    writes.settle(start + SECONDS)
    assert writes.nothing_unsettled()
    assert writes.predecessors_until is None


# ---- workers that are killed


def in_a_worker(work: Callable[[], object]) -> None:
    """Runs it in a process of its own, which is killed in the end."""

    def life() -> None:
        work()
        os.kill(os.getpid(), signal.SIGKILL)

    worker = FORK.Process(target=life)
    worker.start()
    worker.join()
    assert worker.exitcode == -signal.SIGKILL


def killed_within(writes: UnsettledWrites, *under_way: Binding | str) -> None:
    """A worker is killed while it sends these writes."""

    def work() -> None:
        writes.take_over()
        with ExitStack() as stack:
            for each in under_way:
                stack.enter_context(writes.noted(each))
            os.kill(os.getpid(), signal.SIGKILL)

    in_a_worker(work)


@pytest.mark.parametrize("deaths", [1, 2, 3])
def test_what_was_under_way_as_a_worker_was_killed_is_unsettled_in_each_worker_after_it(
    writes: UnsettledWrites, clock: ManualClock, deaths: int
) -> None:
    killed_within(writes, binding("a"), binding("b"))
    for _ in range(deaths - 1):
        in_a_worker(writes.take_over)
    assert sorted(writes.take_over()) == [binding("a"), binding("b")]
    assert not writes.nothing_unsettled()
    clock.advance(SECONDS)
    writes.settle(clock.monotonic())
    assert writes.nothing_unsettled()


def test_the_deadline_of_a_write_does_not_begin_again_with_each_worker(
    writes: UnsettledWrites, clock: ManualClock
) -> None:
    killed_within(writes, binding("a"))
    in_a_worker(writes.take_over)
    clock.advance(SECONDS)
    writes.take_over()
    writes.settle(clock.monotonic())
    assert writes.nothing_unsettled()


@pytest.mark.parametrize(
    ("error", "left"),
    [
        pytest.param(None, [], id="done"),
        pytest.param(Refused("no", 409), [], id="refused"),
        pytest.param(NO_ANSWER, [binding("a")], id="no answer"),
    ],
)
def test_a_worker_finds_what_had_ended_before_only_if_nothing_says_how(
    writes: UnsettledWrites, error: Exception | None, left: list[Binding]
) -> None:
    def work() -> None:
        writes.take_over()
        written(writes, binding("a"), error)

    in_a_worker(work)
    assert writes.take_over() == left


def test_an_eviction_under_way_as_a_worker_was_killed_is_waited_for(
    writes: UnsettledWrites, clock: ManualClock
) -> None:
    killed_within(writes, EVICTION)
    assert writes.take_over() == []
    assert writes.predecessors_until == clock.monotonic() + SECONDS


def test_unsettled_predecessors_are_remembered_after_a_worker_dies(clock: ManualClock) -> None:
    writes = UnsettledWrites(SECONDS, clock)
    in_a_worker(writes.take_over)
    writes.take_over()
    assert writes.predecessors_until == clock.monotonic() + SECONDS
    writes.vouch()
    in_a_worker(lambda: writes.expect_predecessors(clock.monotonic() + 1))
    assert writes.predecessors_until == clock.monotonic() + 1


class Fatal(mmap.mmap):
    """Memory whose process is killed once the text of a note is written, before its state is."""

    armed = False

    def __setitem__(self, at: Any, data: Any) -> None:
        super().__setitem__(at, data)
        if self.armed and isinstance(at, slice):
            os.kill(os.getpid(), signal.SIGKILL)


def test_a_note_that_was_half_written_as_the_worker_was_killed_is_left_out(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mmap, "mmap", Fatal)
    writes = UnsettledWrites(SECONDS, clock)

    def work() -> None:
        writes.take_over()
        written(writes, binding("long" * 9))
        monkeypatch.setattr(Fatal, "armed", True)
        written(writes, binding("u"))

    in_a_worker(work)
    assert writes.take_over() == []


class Workers(RuleBasedStateMachine):
    """Any sequence of writes, deaths and readings: a write is unsettled until a reading after its deadline."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.writes = UnsettledWrites(SECONDS, self.clock)
        self.writes.vouch()
        self.expected: dict[Binding, float] = {}
        self.notes: list[AbstractContextManager[None]] = []
        self.number = 0

    @rule(error=st.sampled_from([None, Refused("no", 409), NO_ANSWER]))
    def a_write_ends(self, error: Exception | None) -> None:
        self.number += 1
        written(self.writes, binding(str(self.number)), error)
        if error is NO_ANSWER:
            self.expected[binding(str(self.number))] = self.clock.monotonic() + SECONDS

    @rule()
    def a_worker_is_killed_within_a_write(self) -> None:
        self.number += 1
        self.notes.append(self.writes.noted(binding(str(self.number))))
        self.notes[-1].__enter__()  # and never left
        self.writes.take_over()
        self.expected[binding(str(self.number))] = self.clock.monotonic() + SECONDS

    @rule(seconds=st.sampled_from([0.1, 3.0, SECONDS]))
    def time_passes(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @precondition(lambda self: self.expected)
    @rule(ago=st.sampled_from([0.0, 1.0, 5.0]))
    def a_reading_is_shown(self, ago: float) -> None:
        asked_at = self.clock.monotonic() - ago
        self.writes.settle(asked_at)
        self.expected = {each: deadline for each, deadline in self.expected.items() if deadline > asked_at}

    @invariant()
    def what_is_unsettled_is_noted(self) -> None:
        assert {each.write for each in self.writes.unknown()} == self.expected.keys()
        assert self.writes.nothing_unsettled() is not bool(self.expected)


TestWorkers = Workers.TestCase
TestWorkers.settings = settings(max_examples=30, stateful_step_count=30)


# ---- settlement


class Server:
    """An API server, and a cache: which readings were asked for, and whether the cache shows them."""

    def __init__(self) -> None:
        self.asked = 0
        self.shown = True
        self.waits = True
        self.error: ClusterError | None = None
        self.bound: set[str] = set()

    def reconcile(self) -> Callable[[], bool]:
        self.asked += 1
        if self.error is not None:
            raise self.error
        return lambda: self.shown

    def nothing_waits(self) -> bool:
        return not self.waits

    def shows(self, binding: Binding) -> bool:
        return binding.uid in self.bound


@pytest.fixture
def server() -> Server:
    return Server()


def settlement(server: Server, writes: UnsettledWrites, clock: ManualClock) -> Settlement:
    return Settlement(writes, server.reconcile, server, clock)


def new_leader(server: Server, clock: ManualClock) -> tuple[Settlement, float]:
    """A process that has just won the lease of another, and when; writes of the other may arrive for `SECONDS`."""
    writes, won_at = UnsettledWrites(SECONDS, clock), clock.monotonic()
    return settlement(server, writes, clock), won_at


def test_a_start_waits_until_the_cache_shows_a_state_from_after_the_last_deadline(
    server: Server, clock: ManualClock
) -> None:
    it = settlement(server, UnsettledWrites(SECONDS, clock), clock)
    assert not it.caught_up(LONG_AGO)
    assert it.waiting_for() == "writes of an earlier process may still arrive for 10 s"
    clock.advance(SECONDS - 1)
    assert (it.caught_up(LONG_AGO), server.asked) == (False, 0)  # a state of now would say nothing
    server.shown = False
    clock.advance(1)
    assert not it.caught_up(LONG_AGO)
    assert it.waiting_for() == "waiting until the cache shows what an earlier process has written"
    server.shown = True
    assert it.caught_up(LONG_AGO)
    assert (it.waiting_for(), server.asked) == (None, 1)


def test_a_start_does_not_wait_if_nothing_waits_that_could_be_written_about(server: Server, clock: ManualClock) -> None:
    it = settlement(server, UnsettledWrites(SECONDS, clock), clock)
    server.waits = False
    it.look()
    assert (it.waiting_for(), server.asked) == (None, 0)


def test_a_new_leader_does_not_wait_if_nothing_waits_that_could_be_written_about(
    server: Server, clock: ManualClock
) -> None:
    it, won_at = new_leader(server, clock)
    server.waits = False
    assert it.caught_up(won_at)


def test_while_the_last_leader_may_still_decide_a_new_one_waits_although_nothing_waits(
    server: Server, clock: ManualClock
) -> None:
    it, won_at = new_leader(server, clock)
    server.waits = False
    it.writes.expect_predecessors(won_at + 5 + SECONDS)
    it.look()
    assert it.waiting_for() == f"writes of an earlier process may still arrive for {5 + SECONDS:.0f} s"
    clock.advance(5)
    assert it.writes.predecessors_end == clock.monotonic()
    assert it.caught_up(it.writes.predecessors_end)


def test_what_waits_later_does_not_make_a_start_wait_nor_what_ends_shorten_it(
    server: Server, clock: ManualClock
) -> None:
    it = settlement(server, UnsettledWrites(SECONDS, clock), clock)
    it.look()
    server.waits = False  # the pod is gone by now, but its claim may be written
    it.look()
    assert it.waiting_for() is not None


def test_a_new_leader_looks_only_at_a_cache_that_shows_all_from_before_it_won(
    server: Server, clock: ManualClock
) -> None:
    it, won_at = new_leader(server, clock)
    server.waits = server.shown = False
    assert not it.caught_up(won_at)
    server.waits = server.shown = True  # the watch was behind
    assert not it.caught_up(won_at)
    clock.advance(SECONDS)
    assert it.caught_up(won_at)
    assert server.asked == 2


def test_a_failed_question_is_asked_again_a_second_later(server: Server, clock: ManualClock) -> None:
    it = settlement(server, UnsettledWrites(0.0, clock), clock)
    server.error = OutcomeUnknown("no answer")
    assert not it.caught_up(clock.monotonic())
    server.error = None
    assert (it.caught_up(clock.monotonic()), server.asked) == (False, 1)
    clock.advance(1.0)
    assert it.caught_up(clock.monotonic())


def test_a_state_is_awaited_for_as_long_as_the_cache_takes_to_show_it(server: Server, clock: ManualClock) -> None:
    """A newer question instead would be answered as late: with a watch that is always behind, none ever would."""
    it = settlement(server, UnsettledWrites(0.0, clock), clock)
    server.shown = False
    since = clock.monotonic()
    for _ in range(60):
        assert not it.caught_up(since)
        clock.advance(1.0)
    server.shown = True
    assert (it.caught_up(since), server.asked) == (True, 1)


def test_a_process_settles_its_own_writes_after_their_deadlines(
    server: Server, writes: UnsettledWrites, clock: ManualClock
) -> None:
    it = settlement(server, writes, clock)
    written(writes, EVICTION, NO_ANSWER)
    it.advance()
    assert not writes.nothing_unsettled()
    clock.advance(SECONDS)
    it.advance()
    assert (writes.nothing_unsettled(), server.asked) == (True, 1)


def test_a_binding_that_the_watch_shows_is_settled_without_a_question(
    server: Server, writes: UnsettledWrites, clock: ManualClock
) -> None:
    it = settlement(server, writes, clock)
    written(writes, binding("a"), NO_ANSWER)
    server.bound.add("a")
    it.advance()
    assert (writes.nothing_unsettled(), server.asked) == (True, 0)


def test_new_unknown_outcomes_do_not_keep_a_question_from_its_end(
    server: Server, writes: UnsettledWrites, clock: ManualClock
) -> None:
    it = settlement(server, writes, clock)
    written(writes, EVICTION, NO_ANSWER)
    clock.advance(1)
    written(writes, EVICTION, NO_ANSWER)
    clock.advance(SECONDS - 1)
    server.shown = False
    it.advance()
    clock.advance(1)
    server.shown = True
    it.advance()
    assert (len(writes.unknown()), server.asked) == (1, 1)
    it.advance()
    assert (len(writes.unknown()), server.asked) == (0, 2)

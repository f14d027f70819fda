"""Bindings that a worker leaves as it is killed."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest

from extender.errors import OutcomeUnknown, Refused
from extender.runtime.bindings_in_flight import KEPT_SECONDS, BindingInFlight, BindingsInFlight
from extender.runtime.ports import Binding

FORK = multiprocessing.get_context("fork")


def binding(uid: str, since: float | None = None, namespace: str = "default") -> BindingInFlight:
    where = Binding(namespace, f"pod-{uid}", uid, "n1")
    return BindingInFlight(where, time.monotonic() if since is None else since)


def in_a_worker(work: Callable[[], object]) -> None:
    """Runs it in a process of its own that is killed in the end."""

    def life() -> None:
        work()
        os.kill(os.getpid(), signal.SIGKILL)

    worker = FORK.Process(target=life)
    worker.start()
    worker.join()
    assert worker.exitcode == -signal.SIGKILL


def left_by(work: Callable[[BindingsInFlight], object]) -> list[str]:
    """The UIDs that the worker after it is told of."""
    in_flight = BindingsInFlight()

    def first() -> None:
        assert (in_flight.take_over(), in_flight.taken_over) == ([], False)
        work(in_flight)

    in_a_worker(first)
    left = in_flight.take_over()
    assert in_flight.taken_over
    return sorted(each.binding.uid for each in left)


def dying_within(in_flight: BindingsInFlight, *bindings: BindingInFlight) -> None:
    with ExitStack() as stack:
        for each in bindings:
            stack.enter_context(in_flight.noted(each))
        os.kill(os.getpid(), signal.SIGKILL)


def with_outcome(in_flight: BindingsInFlight, uid: str, error: Exception | None) -> None:
    try:
        with in_flight.noted(binding(uid)):
            if error is not None:
                raise error
    except (OutcomeUnknown, Refused):
        pass


def test_what_was_under_way_is_left() -> None:
    long_ago = binding("old", time.monotonic() - KEPT_SECONDS - 1)
    assert left_by(lambda it: dying_within(it, binding("a"), binding("b"), long_ago)) == ["a", "b"]


@pytest.mark.parametrize(
    ("error", "left"),
    [
        pytest.param(None, [], id="bound"),
        pytest.param(Refused("no", 409), [], id="refused"),
        pytest.param(OutcomeUnknown("no answer"), ["a"], id="unknown"),
    ],
)
def test_what_has_ended_is_left_only_where_nobody_knows_how(error: Exception | None, left: list[str]) -> None:
    assert left_by(lambda it: with_outcome(it, "a", error)) == left


def test_more_than_can_be_noted_are_bound_all_the_same() -> None:
    def work(in_flight: BindingsInFlight) -> None:
        for number in range(2000):
            with_outcome(in_flight, str(number), OutcomeUnknown("no answer"))
        dying_within(in_flight, *[binding("last")] * 600)

    assert "last" in left_by(work)


def test_one_that_was_being_noted_where_another_had_been_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def work(in_flight: BindingsInFlight) -> None:
        with_outcome(in_flight, "long" * 9, OutcomeUnknown("no answer"))
        monkeypatch.setattr(in_flight, "_memory", Fatal(in_flight._memory))
        for _ in range(2000):
            with_outcome(in_flight, "u", None)

    assert left_by(work) == []


class Fatal:
    """Memory whose process is killed once a note is written, and before its length is."""

    def __init__(self, memory: Any) -> None:
        self._memory = memory

    def __setitem__(self, at: slice, data: bytes) -> None:
        self._memory[at] = data
        if len(data) > 2 and at.start < 10:  # a note, and in the first place
            os.kill(os.getpid(), signal.SIGKILL)


def test_a_binding_that_is_too_long_to_note_is_left_out() -> None:
    assert left_by(lambda it: dying_within(it, binding("u", namespace="n" * 2000))) == []

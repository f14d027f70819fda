"""The queue used by several threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from extender.framework.cluster_events import ASSIGNED_POD_DELETE, Change
from extender.framework.status import NO_REJECTION
from extender.plugins.registry import INTERESTS
from extender.queue import priority_queue
from extender.queue.entries import QueuedPod, Tier
from extender.queue.heaps import Backoff
from extender.queue.priority_queue import PriorityQueue
from extender.runtime.clock import ManualClock
from tests.builders import make_pod
from tests.queue.queueing import QueueRecorder, info, refused

WAIT_SECONDS = 60.0
LEFT = Change(ASSIGNED_POD_DELETE, info(make_pod("left").node("n1")))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def queue(clock: ManualClock) -> PriorityQueue:
    return PriorityQueue(QueueRecorder(), clock, INTERESTS)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


def test_pop_waits_for_a_pod(queue: PriorityQueue, pool: ThreadPoolExecutor) -> None:
    popped = pool.submit(queue.pop, WAIT_SECONDS)
    queue.add(info("p"))
    pod = popped.result(WAIT_SECONDS)
    assert pod is not None
    assert pod.info.pod.name == "p"


def test_pop_returns_a_pod_that_is_given_back(queue: PriorityQueue, pool: ThreadPoolExecutor) -> None:
    queue.add(info("p"))
    pod = queue.pop()
    assert isinstance(pod, QueuedPod)
    queue.add_unschedulable(pod, refused("NodeResourcesFit"))
    popped = pool.submit(queue.pop, WAIT_SECONDS)
    assert queue.move(LEFT) == 1
    assert popped.result(WAIT_SECONDS) is pod


def test_pop_returns_a_pod_when_its_backoff_ends(
    queue: PriorityQueue, pool: ThreadPoolExecutor, clock: ManualClock
) -> None:
    queue.add(info("p"))
    pod = queue.pop()
    assert isinstance(pod, QueuedPod)
    assert queue.add_unschedulable(pod, NO_REJECTION) is Tier.BACKOFF
    popped = pool.submit(queue.pop, WAIT_SECONDS)
    clock.advance(2.0)
    queue.flush_backoff()
    assert popped.result(WAIT_SECONDS) is pod


@pytest.mark.parametrize(
    "move",
    [
        pytest.param(lambda queue: queue.move(LEFT), id="an event"),
        pytest.param(lambda queue: queue.wake("NodeResourcesFit"), id="a rule's wake"),
        pytest.param(lambda queue: queue.rules_changed(INTERESTS), id="other rules"),
    ],
)
def test_pods_can_be_popped_while_many_pods_are_moved(
    move: Callable[[PriorityQueue], object], pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pauses are long, so that a busy machine lets the other thread take the lock in one of them."""
    part = 20
    monkeypatch.setattr(priority_queue, "PART", part)
    monkeypatch.setattr(priority_queue, "YIELD_SECONDS", 0.05)
    queue = PriorityQueue(QueueRecorder(), ManualClock(), INTERESTS, backoff=Backoff(max_seconds=0))
    for number in range(20 * part):
        queue.add(info(f"p{number}"))
        if isinstance(pod := queue.pop(), QueuedPod):
            queue.add_unschedulable(pod, refused("NodeResourcesFit"))

    def left_when_popped() -> int:
        assert queue.pop(WAIT_SECONDS)
        return queue.pending()["unschedulable"]

    left = pool.submit(left_when_popped)
    move(queue)
    assert 0 < left.result(WAIT_SECONDS) < 20 * part
    assert queue.pending()["unschedulable"] == 0


def test_pop_gives_up_in_time(queue: PriorityQueue) -> None:
    assert queue.pop(timeout_seconds=0.0) is None


def test_close_ends_every_pop(queue: PriorityQueue, pool: ThreadPoolExecutor) -> None:
    waiting = [pool.submit(queue.pop) for _ in range(4)]
    queue.close()
    assert [each.result(WAIT_SECONDS) for each in waiting] == [None] * 4
    queue.add(info("p"))
    assert queue.pop() is None


def test_every_pod_is_popped_by_one_thread_and_none_is_lost(queue: PriorityQueue, pool: ThreadPoolExecutor) -> None:
    pods, scheduled, lock = 400, [], threading.Lock()

    def schedule() -> None:
        while isinstance(pod := queue.pop(), QueuedPod):
            if pod.attempts == 1:
                queue.add_unschedulable(pod, refused("NodeResourcesFit"))
                queue.move(LEFT)
                continue
            with lock:
                scheduled.append(pod.uid)
                if len(scheduled) == pods:
                    queue.close()
            queue.done(pod.uid)

    workers = [pool.submit(schedule) for _ in range(4)]
    for number in range(pods):
        queue.add(info(f"p{number}"))
    for worker in workers:
        worker.result(WAIT_SECONDS)
    assert sorted(scheduled) == sorted(info(f"p{number}").uid for number in range(pods))
    assert queue.pending() == {tier.value: 0 for tier in Tier}
    assert queue.pods_in_flight() == []

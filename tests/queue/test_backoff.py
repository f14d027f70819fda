"""The length of a backoff, the order in which pods leave it, and the heap, compared with a sorted list."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from extender.queue.entries import QueuedPod
from extender.queue.heaps import Backoff, BackoffQueue, Heap
from tests.builders import make_pod
from tests.queue.queueing import info, refused

NEVER = -math.inf


def pod(name: str = "p", at: float = 0.0, *, refusals: int = 1, errors: int = 0, priority: int = 0) -> QueuedPod:
    queued = QueuedPod(info(make_pod(name).priority(priority)), timestamp=at)
    queued.unschedulable_count, queued.consecutive_errors = refusals, errors
    queued.rejection = refused() if errors else refused("NodeResourcesFit")
    return queued


@pytest.mark.parametrize(
    ("count", "seconds"),
    [
        pytest.param(0, 0, id="never tried"),
        pytest.param(1, 1, id="first"),
        pytest.param(2, 2, id="doubled"),
        pytest.param(3, 4, id="doubled again"),
        pytest.param(4, 8, id="and again"),
        pytest.param(5, 10, id="the maximum"),
        pytest.param(100_000, 10, id="after very many attempts"),
    ],
)
def test_the_backoff_doubles_up_to_the_maximum(count: int, seconds: float) -> None:
    assert Backoff().duration_seconds(count) == seconds


@pytest.mark.parametrize(
    ("backoff", "waiting", "expiry"),
    [
        pytest.param(Backoff(), pod(at=100.4), 101.0, id="ends with its window"),
        pytest.param(Backoff(), pod(at=100.4, refusals=3), 104.0, id="by rejections"),
        pytest.param(Backoff(), pod(at=100.0, refusals=5, errors=1), 101.0, id="only errors count after an error"),
        pytest.param(Backoff(), pod(refusals=0), NEVER, id="not rejected yet"),
        pytest.param(Backoff(max_seconds=0), pod(), NEVER, id="switched off"),
        pytest.param(Backoff(initial_seconds=30), pod(at=5), 15.0, id="initial above the maximum"),
    ],
)
def test_the_backoff_ends_with_its_window(backoff: Backoff, waiting: QueuedPod, expiry: float) -> None:
    assert backoff.expires_at(waiting) == expiry


@pytest.mark.parametrize(
    ("now", "over"),
    [
        pytest.param(101.0, False, id="in the window before"),
        pytest.param(101.99, False, id="at the end of that window"),
        pytest.param(102.0, True, id="in the next window"),
    ],
)
def test_a_backoff_has_ended_when_its_window_has_passed(now: float, over: bool) -> None:
    assert Backoff().is_over(pod(at=100.7), now) is over


def test_pods_of_one_window_come_out_by_priority_and_then_by_time() -> None:
    queue = BackoffQueue(Backoff())
    for waiting in (
        pod("later window", 101.0, priority=9),
        pod("low", 100.1, priority=1),
        pod("high", 100.9, priority=5),
        pod("early", 100.2, priority=5),
    ):
        queue.add(waiting)
    popped = [queue.pop() for _ in range(4)]
    assert [each.info.pod.name for each in popped if each] == ["early", "high", "low", "later window"]


def test_a_pod_after_an_error_is_not_popped_before_its_backoff_ends() -> None:
    queue = BackoffQueue(Backoff())
    queue.add(pod(at=100.0, errors=1))
    assert not queue.can_pop
    assert queue.pop() is None
    assert len(queue) == 1
    assert [each.info.pod.name for each in queue.pop_completed(102.0)] == ["p"]
    assert len(queue) == 0


def test_only_pods_whose_backoff_has_ended_are_flushed() -> None:
    queue = BackoffQueue(Backoff())
    for name, refusals in (("one", 1), ("two", 2), ("four", 3)):
        queue.add(pod(name, 100.0, refusals=refusals))
    assert [each.info.pod.name for each in queue.pop_completed(103.0)] == ["one", "two"]
    assert [each.info.pod.name for each in queue] == ["four"]


def test_a_pod_whose_backoff_is_long_does_not_hold_up_pods_after_an_error() -> None:
    queue = BackoffQueue(Backoff())
    queue.add(pod("long", 100.0, errors=4))
    queue.add(pod("short", 100.0, errors=1))
    assert [each.info.pod.name for each in queue.pop_completed(102.0)] == ["short"]


PODS = {name: info(name) for name in ("a", "b", "c", "d", "e", "f")}


class HeapMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.heap = Heap(lambda pod: (pod.timestamp,))
        self.held: dict[str, tuple[float, int, QueuedPod]] = {}
        self.arrivals = 0

    @rule(name=st.sampled_from(sorted(PODS)), key=st.integers(0, 3))
    def add(self, name: str, key: int) -> None:
        self.arrivals += 1
        pod = QueuedPod(PODS[name], timestamp=key)
        self.heap.add(pod)
        self.held[pod.uid] = (key, self.arrivals, pod)

    @rule(name=st.sampled_from(sorted(PODS)))
    def remove(self, name: str) -> None:
        uid = PODS[name].uid
        expected = self.held.pop(uid, None)
        assert self.heap.remove(uid) is (expected[2] if expected else None)

    @rule()
    def pop(self) -> None:
        first = min(self.held.values(), key=lambda held: held[:2], default=None)
        assert self.heap.pop() is (first[2] if first else None)
        if first:
            del self.held[first[2].uid]

    @invariant()
    def holds_what_it_should(self) -> None:
        first = min(self.held.values(), key=lambda held: held[:2], default=None)
        assert self.heap.peek() is (first[2] if first else None)
        assert len(self.heap) == len(self.held)
        assert {pod.uid: pod for pod in self.heap} == {uid: held[2] for uid, held in self.held.items()}
        assert all(self.heap.get(info.uid) is self.held.get(info.uid, (0, 0, None))[2] for info in PODS.values())


TestHeap = HeapMachine.TestCase


def test_a_pod_whose_order_cannot_be_computed_is_not_in_the_heap() -> None:
    order: Mapping[float, tuple[float, ...]] = {1.0: (1.0,)}
    heap = Heap(lambda pod: order[pod.timestamp])
    heap.add(QueuedPod(PODS["a"], timestamp=1.0))
    with pytest.raises(KeyError):
        heap.add(QueuedPod(PODS["b"], timestamp=2.0))
    assert [pod.uid for pod in heap] == [PODS["a"].uid]
    assert len(heap) == 1


def test_a_heap_does_not_grow_when_a_pod_is_updated_again_and_again() -> None:
    heap = Heap(lambda pod: (pod.timestamp,))
    for turn in range(10_000):
        heap.add(QueuedPod(PODS["a"], timestamp=turn))
    assert len(heap) == 1
    assert len(heap._entries) < 100
    assert heap.pop() is not None
    assert heap.pop() is None


@dataclass
class Key:
    """A sort key that counts how often keys are compared."""

    value: int
    comparisons: ClassVar[int] = 0

    def __lt__(self, other: Key) -> bool:
        Key.comparisons += 1
        return self.value < other.value


def test_adding_a_pod_does_not_sort_all_pods_again() -> None:
    heap = Heap(lambda pod: (Key(int(pod.timestamp)),))
    Key.comparisons = 0
    for number in range(1000):
        heap.add(QueuedPod(info(f"p{number}"), timestamp=number))
    assert Key.comparisons <= 1000

"""The heap compared with a list that is sorted before each pop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from extender.queue.backoff import Heap
from extender.queue.entries import QueuedPod
from tests.queue.queueing import info

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

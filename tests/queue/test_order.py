"""The order of the queue may be another than PrioritySort, and may change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from extender.plugins.registry import INTERESTS
from extender.queue.entries import Entity
from extender.queue.heaps import priority_sort
from extender.queue.priority_queue import PriorityQueue
from extender.runtime.clock import ManualClock
from tests.builders import make_pod
from tests.queue.queueing import QueueRecorder, info


class Ordered:
    """A queue of pods named 0, 1, ..., sorted by the key of each name."""

    def __init__(self, keys: list[tuple[float, ...]]) -> None:
        self.keys = keys
        clock = ManualClock()
        self.queue = PriorityQueue(QueueRecorder(), clock, INTERESTS, order=self.order)
        for name in range(len(keys)):
            clock.advance(1)
            self.queue.add(info(make_pod(str(name))))

    def order(self, pod: Entity) -> tuple[Any, ...]:
        return (self.keys[int(pod.info.pod.name)], *priority_sort(pod))

    def popped(self) -> list[int]:
        pods: Iterator[Entity] = iter(lambda: self.queue.pop(0), None)
        return [int(pod.info.pod.name) for pod in pods]


KEYS = st.lists(st.lists(st.floats(allow_nan=False), max_size=3).map(tuple), max_size=12)


@given(KEYS)
def test_pods_are_popped_in_a_total_order_and_equal_ones_as_they_came(keys: list[tuple[float, ...]]) -> None:
    assert Ordered(keys).popped() == sorted(range(len(keys)), key=lambda name: keys[name])


@given(KEYS)
def test_a_new_order_holds_for_pods_that_are_already_in_the_queue(keys: list[tuple[float, ...]]) -> None:
    ordered = Ordered([(0.0,)] * len(keys))
    ordered.keys = keys
    ordered.queue.rules_changed(INTERESTS)
    assert ordered.popped() == sorted(range(len(keys)), key=lambda name: keys[name])

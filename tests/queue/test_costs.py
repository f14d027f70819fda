"""The deciding thread is shared: tenants whose attempts cost much wait for others, and still get their turn."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.framework.status import NO_REJECTION
from extender.queue.entries import QueuedPod, Tier
from extender.queue.heaps import FIRST_SLICE_SECONDS, LAST_SLICE_SECONDS
from extender.queue.priority_queue import PriorityQueue
from extender.runtime.clock import ManualClock
from tests.builders import make_pod
from tests.queue.queueing import QueueRecorder, info

CHEAP = 0.001


@dataclass
class Loop:
    """The loop's thread: pops pods, spends their time, and binds them or gives them back."""

    def __post_init__(self) -> None:
        self.clock = ManualClock()
        self.queue = PriorityQueue(QueueRecorder(), self.clock, {})

    def add(self, name: str, tenant: str, priority: int = 0) -> None:
        self.clock.advance(0.0001)
        self.queue.add(info(make_pod(name, tenant).uid(name).priority(priority)))

    def attempt(self, cost: dict[str, float], next_arrival: float = inf) -> str:
        """Tries the next pod for the seconds that its tenant costs, until it gives way; returns its name."""
        pod = self.queue.pop(0)
        if pod is None:
            self.clock.advance(0.1)
            self.queue.flush_backoff()
            return ""
        assert isinstance(pod, QueuedPod)
        needed, granted = cost[pod.info.pod.namespace], self.queue.slice_seconds(pod)
        others_at = 0.0 if self.queue.others_wait(pod) else next_arrival - self.clock.monotonic()
        seconds = min(needed, max(granted, others_at))
        gives_way = seconds < needed
        self.clock.advance(seconds)
        self.queue.spent(pod, seconds, gave_way=gives_way)
        if needed > CHEAP:
            self.queue.add_unschedulable(pod, NO_REJECTION)
        else:
            self.queue.done(pod.uid)
        return pod.info.pod.name


def test_cheap_attempts_keep_kube_schedulers_order() -> None:
    loop = Loop()
    for number in range(20):
        loop.add(f"p{number}", f"tenant-{number % 3}", priority=number % 2)
    names = [loop.attempt(dict.fromkeys(("tenant-0", "tenant-1", "tenant-2"), CHEAP)) for _ in range(20)]
    assert names == [f"p{number}" for number in (*range(1, 20, 2), *range(0, 20, 2))]


def test_others_of_any_priority_go_before_a_tenant_that_took_long() -> None:
    loop, cost = Loop(), {"shop": CHEAP, "costly": 0.3}
    loop.add("known", "shop")
    assert loop.attempt(cost) == "known"
    for number in range(3):
        loop.add(f"costly-{number}", "costly", priority=9)
    assert loop.attempt(cost) == "costly-0"
    loop.add("normal", "shop")
    assert [loop.attempt(cost), loop.attempt(cost)] == ["normal", "costly-1"]


def test_a_pod_that_took_long_backs_off_in_proportion() -> None:
    loop = Loop()
    loop.add("costly-0", "costly")
    loop.attempt({"costly": 4.0})
    loop.clock.advance(30)
    loop.queue.flush_backoff()
    assert [each.pod.name for each in loop.queue.pods()[Tier.BACKOFF]] == ["costly-0"]
    loop.clock.advance(8)
    loop.queue.flush_backoff()
    assert [each.pod.name for each in loop.queue.pods()[Tier.ACTIVE]] == ["costly-0"]


def test_an_attempt_gives_way_to_a_tenant_that_one_pause_made_costly() -> None:
    loop = Loop()
    loop.add("paused", "shop")
    loop.attempt({"shop": 0.2})
    loop.add("costly-0", "costly")
    loop.clock.advance(5)
    pod = loop.queue.pop(0)
    assert pod is not None
    assert not loop.queue.others_wait(pod)
    loop.add("normal", "shop")
    assert loop.queue.others_wait(pod)


def test_a_tenant_is_not_interrupted_for_its_own_pods_or_for_other_costly_tenants() -> None:
    loop, cost = Loop(), {"a": 2.0, "b": 2.0}
    for number in range(2):
        loop.add(f"a-{number}", "a")
        loop.add(f"b-{number}", "b")
    assert [loop.attempt(cost), loop.attempt(cost)] == ["a-0", "b-0"]
    pod = loop.queue.pop(0)
    assert pod is not None
    assert not loop.queue.others_wait(pod)


def test_deleted_pods_that_were_set_aside_are_gone() -> None:
    loop, cost = Loop(), {"shop": CHEAP, "costly": 0.3}
    for number in range(3):
        loop.add(f"costly-{number}", "costly")
    loop.attempt(cost)
    loop.add("normal", "shop")
    assert loop.attempt(cost) == "normal"  # nothing else: costly-1 and costly-2 are set aside
    loop.queue.delete("costly-1")
    assert [each.pod.name for each in loop.queue.pods()[Tier.ACTIVE]] == ["costly-2"]
    loop.queue.delete("costly-2")
    assert loop.queue.pods()[Tier.ACTIVE] == []


@given(
    tenants=st.lists(st.sampled_from([0.15, 0.5, 1.5]), min_size=1, max_size=3),
    pods=st.integers(1, 4),
    priority=st.integers(0, 2),
    every=st.sampled_from([0.1, 0.4]),
)
@settings(max_examples=5)
def test_normal_pods_wait_a_slice_at_most_and_costly_tenants_get_their_turn(
    tenants: list[float], pods: int, priority: int, every: float
) -> None:
    loop = Loop()
    cost = {"shop": CHEAP, **{f"costly-{index}": seconds for index, seconds in enumerate(tenants)}}
    loop.add("first", "shop")
    loop.attempt(cost)
    for tenant in cost.keys() - {"shop"}:
        for number in range(pods):
            loop.add(f"{tenant}-{number}", tenant, priority)
    # Each tenant is tried once before its costs are known; until then others may wait for all of them.
    while any(
        not loop.queue._tiers.costs.is_costly(tenant, loop.clock.monotonic()) for tenant in cost.keys() - {"shop"}
    ):
        loop.attempt(cost)
    waits: list[float] = []
    arrived: dict[str, float] = {}
    tried: dict[str, int] = dict.fromkeys(cost, 0)
    ends_at = loop.clock.monotonic() + 60
    due = loop.clock.monotonic()
    while loop.clock.monotonic() < ends_at:
        while due <= loop.clock.monotonic():
            name = f"normal-{len(waits) + len(arrived)}"
            arrived[name] = due
            loop.add(name, "shop")
            due += every
        name = loop.attempt(cost, due)
        if name in arrived:
            waits.append(loop.clock.monotonic() - arrived.pop(name))
        elif name:
            tried[name.rpartition("-")[0]] += 1
    assert all(count for tenant, count in tried.items() if tenant != "shop"), tried
    assert max(waits) < 2 * LAST_SLICE_SECONDS


@pytest.mark.parametrize(
    ("times", "seconds"), [(0, FIRST_SLICE_SECONDS), (1, LAST_SLICE_SECONDS), (9, LAST_SLICE_SECONDS)]
)
def test_the_slice_grows_each_time_a_pod_gives_way(times: int, seconds: float) -> None:
    loop = Loop()
    loop.add("p", "t")
    pod = loop.queue.pop(0)
    assert pod is not None
    pod.times_given_way = times
    assert loop.queue.slice_seconds(pod) == seconds

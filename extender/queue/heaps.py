"""Implements the heaps of the queue: pods and groups that may be tried now, and those that back off.

The deciding thread is shared between tenants, and a tenant is a namespace. While every attempt takes less than
CHEAP_SECONDS, pods are popped in kube-scheduler's order. After an attempt that takes longer, the queue is held for
COST_TIMES as long. During the hold, the pods of tenants whose attempts are cheap go before all others, whatever their
priority is; the others get the time that is left. After the hold, the tenant that has waited longest for its turn gets
one attempt, before pods of its own and lower priorities. So costly tenants together hold at most a tenth of the thread
while others wait, and each of them gets its turn.

Source: upstream backend/queue/backoff_queue.go (KEP-5142: ordering windows, popping while idle). Upstream has no costs.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

from extender.queue.entries import Entity

Order = Callable[[Entity], tuple[Any, ...]]
"""Returns the sort key of a pod or group; the keys must be comparable with each other."""
_SLACK = 64
WINDOW_SECONDS = 1.0
"""The length of a window. Backoffs that end in the same window end together: the queue is flushed once per window."""
_ENOUGH_DOUBLINGS = 62
COST_TIMES = 9.0
MAX_COST_SECONDS = 60.0
CHEAP_SECONDS = 0.1
COSTLY_SECONDS = 60.0
"""A tenant counts as costly for this long after its last costly attempt."""
FIRST_SLICE_SECONDS = 0.25
LAST_SLICE_SECONDS = 0.5
_MANY_TENANTS = 10_000


def priority_sort(pod: Entity) -> tuple[Any, ...]:
    """Returns the sort key of upstream's PrioritySort: higher priority first, then earlier timestamp."""
    return -pod.priority, pod.timestamp


class _Member(NamedTuple):
    """A pod or group in a heap, with the number of its latest push; heap entries with an older number are outdated."""

    push: int
    pod: Entity


class Heap:
    """Pods and groups sorted by `order`. Pods with the same key are sorted by their arrival.

    Removing a pod leaves its entry in the heap, and `peek` skips the entry later. This is cheaper than sorting the heap
    again.
    """

    def __init__(self, order: Order) -> None:
        self._order = order
        self._entries: list[tuple[tuple[Any, ...], int, str]] = []
        self._pods: dict[str, _Member] = {}
        self._pushes = 0

    def __len__(self) -> int:
        return len(self._pods)

    def __iter__(self) -> Iterator[Entity]:
        return (member.pod for member in self._pods.values())

    def get(self, uid: str) -> Entity | None:
        member = self._pods.get(uid)
        return member.pod if member else None

    def add(self, pod: Entity) -> None:
        """Adds the pod or group. If the heap contains it already, sorts it again by its current key.

        If `order` raises an error, this method raises it too, and leaves the heap unchanged.
        """
        order = self._order(pod)
        self._pushes += 1
        self._pods[pod.uid] = _Member(self._pushes, pod)
        heapq.heappush(self._entries, (order, self._pushes, pod.uid))
        if len(self._entries) > 2 * len(self._pods) + _SLACK:
            self._compact()

    def remove(self, uid: str) -> Entity | None:
        member = self._pods.pop(uid, None)
        return member.pod if member else None

    def peek(self) -> Entity | None:
        """Returns the first pod or group without removing it; None if the heap is empty."""
        while self._entries:
            _, push, uid = self._entries[0]
            member = self._pods.get(uid)
            if member and member.push == push:
                return member.pod
            heapq.heappop(self._entries)
        return None

    def pop(self) -> Entity | None:
        """Removes and returns the first pod or group; returns None if the heap is empty."""
        pod = self.peek()
        return self.remove(pod.uid) if pod else None

    def _compact(self) -> None:
        """Removes the entries of pods and groups that were removed or pushed again."""
        self._entries = [
            (order, push, uid)
            for order, push, uid in self._entries
            if (member := self._pods.get(uid)) and member.push == push
        ]
        heapq.heapify(self._entries)


@dataclass(frozen=True, slots=True)
class Backoff:
    """Computes a pod's backoff, which doubles with each rejection, or with each consecutive error.

    The longest backoff of a group grows with the square root of its size. After a costly attempt (see `Costs`), the
    backoff lasts at least COST_TIMES as long as the attempt. If `max_seconds` is 0, no pod backs off.
    """

    initial_seconds: float = 1.0
    max_seconds: float = 10.0

    def duration_seconds(self, count: int, size: int = 1) -> float:
        """Returns how long a group of `size` pods backs off after `count` rejections or errors."""
        if not count:
            return 0.0
        return min(self.max_seconds * math.sqrt(size), self.initial_seconds * 2.0 ** min(count - 1, _ENOUGH_DOUBLINGS))

    def expires_at(self, pod: Entity) -> float:
        """Returns when the backoff ends, rounded down to the start of a window; -inf if there is no backoff."""
        count = pod.consecutive_errors or pod.unschedulable_count
        if not count or not self.max_seconds:
            return -math.inf
        seconds = self.duration_seconds(count, pod.backoff_size)
        return _window(pod.timestamp + max(seconds, min(COST_TIMES * pod.cost_seconds, MAX_COST_SECONDS)))

    def is_over(self, pod: Entity, now: float) -> bool:
        """Returns True if the backoff ended in an earlier window than `now`."""
        return self.expires_at(pod) < _window(now)


class BackoffQueue:
    """The pods and groups that back off. Pods whose attempt ended in an error have a separate heap.

    A rejected pod may be popped before its backoff ends, if no pod is active. After an error, a pod must wait until its
    backoff ends, because the error may come from an overloaded server. After a costly attempt it must wait, too.
    """

    def __init__(self, backoff: Backoff, order: Order = priority_sort) -> None:
        self._backoff = backoff
        self._rejected = Heap(lambda pod: (backoff.expires_at(pod), *order(pod)))
        self._failed = Heap(lambda pod: (backoff.expires_at(pod),))

    def __len__(self) -> int:
        return len(self._rejected) + len(self._failed)

    def __iter__(self) -> Iterator[Entity]:
        return chain(self._rejected, self._failed)

    def get(self, uid: str) -> Entity | None:
        return self._rejected.get(uid) or self._failed.get(uid)

    def add(self, pod: Entity) -> None:
        """Adds the pod or group. If the queue contains it already, sorts it again by its current backoff."""
        (self._rejected if pod.rejection.rules and not pod.cost_seconds else self._failed).add(pod)

    def remove(self, uid: str) -> Entity | None:
        return self._rejected.remove(uid) or self._failed.remove(uid)

    @property
    def can_pop(self) -> bool:
        """True if there is a pod or group that may be tried before its backoff ends."""
        return bool(self._rejected)

    def pop(self) -> Entity | None:
        """Removes and returns the rejected pod or group whose backoff ends first; returns None if there is none."""
        return self._rejected.pop()

    def pop_completed(self, now: float) -> Iterator[Entity]:
        """Removes and yields each pod or group whose backoff has ended."""
        for heap in (self._rejected, self._failed):
            while (pod := heap.peek()) and self._backoff.is_over(pod, now):
                heap.pop()
                yield pod


def _window(seconds: float) -> float:
    return seconds // WINDOW_SECONDS * WINDOW_SECONDS


def tenant_of(entity: Entity) -> str:
    """Returns the tenant that a pod or group belongs to: its namespace."""
    return entity.info.pod.namespace


class Costs:
    """Remembers the cost of each tenant's attempts. Times are in monotonic seconds."""

    def __init__(self) -> None:
        self._cheap: dict[str, None] = {}  # the tenants whose last attempt was cheap
        self._costly: dict[str, float] = {}  # tenant -> when its last costly attempt ended, plus its share of the hold
        self._slow: set[str] = set()  # the costly tenants whose last costly attempt took more than a slice
        self._held_until = 0.0

    def record(self, tenant: str, seconds: float, now: float, *, gave_way: bool = False) -> None:
        """Records the cost of an attempt that has just ended."""
        if seconds < CHEAP_SECONDS:
            if not self.is_costly(tenant, now):
                self._costly.pop(tenant, None)
                self._slow.discard(tenant)
                self._cheap[tenant] = None
        else:
            self._cheap.pop(tenant, None)
            self._costly[tenant] = self._held_until = now + COST_TIMES * seconds
            if gave_way or seconds > FIRST_SLICE_SECONDS:
                self._slow.add(tenant)
            else:
                self._slow.discard(tenant)
        for tenants in (self._cheap, self._costly):
            if len(tenants) > _MANY_TENANTS:
                del tenants[oldest := next(iter(tenants))]
                self._slow.discard(oldest)

    def is_costly(self, tenant: str, now: float) -> bool:
        return now < self._costly.get(tenant, now) + COSTLY_SECONDS and tenant in self._costly

    def is_slow(self, tenant: str, now: float) -> bool:
        """Returns True if the tenant is costly, and its last costly attempt did not end within a slice."""
        return tenant in self._slow and self.is_costly(tenant, now)

    def is_cheap(self, tenant: str) -> bool:
        """Returns True if the tenant's last attempt was cheap. A tenant that has not been tried yet is not cheap."""
        return tenant in self._cheap

    def is_held(self, now: float) -> bool:
        """Returns True if cheap tenants go first, because a costly attempt has ended a short time ago."""
        return now < self._held_until

    def turn(self, tenant: str) -> float:
        """Returns the key by which costly tenants take turns; 0 for a tenant that had no costly attempt."""
        return self._costly.get(tenant, 0.0)

    def slice_seconds(self, entity: Entity, now: float) -> float:
        """Returns how long an attempt may take before it gives way to others.

        The slice doubles each time. It is short for a tenant whose costs are unknown while others wait for their turn,
        because many such tenants may come at once.
        """
        tenant = tenant_of(entity)
        if self.is_held(now) and not (entity.times_given_way or self.is_cheap(tenant) or self.is_costly(tenant, now)):
            return CHEAP_SECONDS
        return min(FIRST_SLICE_SECONDS * 2.0 ** min(entity.times_given_way, 8), LAST_SLICE_SECONDS)


class ActiveQueue:
    """The pods and groups that are ready to be tried, in the order that `order` and the costs of their tenants give.

    Entities that have to let others go first are set aside, one heap for each tenant, when `pop` comes across them.
    """

    def __init__(self, order: Order, costs: Costs) -> None:
        self._order = order
        self._costs = costs
        self._ready = Heap(order)
        self._set_aside: dict[str, Heap] = {}
        self._tenants: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._ready) + sum(map(len, self._set_aside.values()))

    def __iter__(self) -> Iterator[Entity]:
        for heap in (self._ready, *self._set_aside.values()):
            yield from heap

    def get(self, uid: str) -> Entity | None:
        if (entity := self._ready.get(uid)) is not None or not self._set_aside:
            return entity
        return next((entity for heap in self._set_aside.values() if (entity := heap.get(uid)) is not None), None)

    def add(self, entity: Entity) -> None:
        """Adds the pod or group. If the queue contains it already, sorts it again by its current key."""
        before = self.get(entity.uid)
        if before is None or self._ready.get(entity.uid) is not None:
            self._ready.add(entity)
        else:
            self._set_aside[tenant_of(entity)].add(entity)
        if before is None:
            self._tenants[tenant_of(entity)] += 1

    def remove(self, uid: str) -> Entity | None:
        entity = self._ready.remove(uid)
        if entity is None and (entity := self.get(uid)) is not None:
            self._take(tenant_of(entity), uid)
        if entity is not None:
            self._count_out(entity)
        return entity

    def pop(self, now: float) -> Entity | None:
        """Removes and returns the next pod or group; returns None if there is none."""
        is_held = self._costs.is_held(now)
        while (first := self._ready.peek()) is not None and is_held and not self._costs.is_cheap(tenant_of(first)):
            self._ready.remove(first.uid)
            self._set_aside.setdefault(tenant_of(first), Heap(self._order)).add(first)
        entity = first
        if self._set_aside and (first is None or not is_held):
            tenant = min(self._set_aside, key=self._costs.turn)
            waiting = self._set_aside[tenant].peek()
            if waiting is not None and (first is None or waiting.priority >= first.priority):
                entity = waiting
        return None if entity is None else self.remove(entity.uid)

    def others_wait(self, entity: Entity, now: float) -> bool:
        """Returns True if another tenant waits whose attempts end within a slice, as far as is known.

        A pause of the process may make one attempt of any tenant costly. It must not wait for whole attempts of others.
        """
        own = tenant_of(entity)
        return any(tenant != own and not self._costs.is_slow(tenant, now) for tenant in self._tenants)

    def _take(self, tenant: str, uid: str) -> None:
        heap = self._set_aside[tenant]
        heap.remove(uid)
        if not heap:
            del self._set_aside[tenant]

    def _count_out(self, entity: Entity) -> None:
        tenant = tenant_of(entity)
        self._tenants[tenant] -= 1
        if not self._tenants[tenant]:
            del self._tenants[tenant]

"""A kind of change to a pod, and its steps from small to large.

A kind can be lifted altogether (`lifted`), which shows whether it stands in the way; its `steps` are then tried in
order. A step that is named first is the smallest of its kind: whatever is less does not do on any node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from typing import Any, NamedTuple, Protocol

from msgspec.structs import replace

from extender.model.pod import Pod
from extender.offline.state import ClusterState
from extender.table.labels import Rows

Apply = Callable[[Pod], Pod]
Fits = Callable[[Pod], Rows]

_MOST_ELEMENTS = 6


class Step(NamedTuple):
    """A change to the pod. `size`: how many terms it touches; of requests, which part of them it gives up."""

    text: str
    size: float
    apply: Apply


class PodChange(Protocol):
    """A kind of change to a pod."""

    kind: str

    def lifted(self, pod: Pod) -> Pod | None:
        """The pod without all of the kind's demands; None: it has none."""
        ...

    def steps(self, pod: Pod, state: ClusterState, fits: Fits) -> Iterator[Step]:
        """Steps in ascending size; `fits` gives the rows that can take a pod."""
        ...


def with_spec(pod: Pod, **fields: Any) -> Pod:
    """The pod with these fields of its spec."""
    return replace(pod, spec=replace(pod.spec, **fields))


def subsets(elements: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """Every choice of the elements but the empty one, small ones first; of very many, single ones and all of them."""
    if len(elements) > _MOST_ELEMENTS:
        yield from ([each] for each in elements)
        yield elements
        return
    for size in range(1, len(elements) + 1):
        yield from (list(chosen) for chosen in combinations(elements, size))

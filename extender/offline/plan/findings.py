"""The limits and the result of a search for a plan, and what makes one plan better than another."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from extender.offline.plan.trial import DirectedMove, Move
from extender.offline.what_if.simulation import Eviction

Progress = Callable[[str], None]

MOST_MOVES = 20
SEARCH_SECONDS = 10.0


class Score(NamedTuple):
    """The quality of a plan; the better one is greater.

    Attributes:
        placed: how many of the pods to place have a node at the end, by priority, from the highest.
        moves: minus the number of moves.
    """

    placed: tuple[int, ...]
    moves: int


class Side(NamedTuple):
    """The side effects of a plan; of two plans with equal scores, the one with the greater is taken.

    Attributes:
        disrupted: minus the priorities of the evicted pods, the highest priority first. So of equally many evictions,
            those are best that evict the fewest pods of the highest priority, then of the next, and so on.
        fragmentation: minus the mean, for CPU and memory, of the fragmentation that `simulate` prints.
    """

    disrupted: tuple[int, ...]
    fragmentation: float


@dataclass(frozen=True, slots=True)
class CarriedOut:
    """A plan that has been carried out on a copy of the cluster.

    Attributes:
        steps: the moves as they were asked for.
        placed: the pods to place that have a node at the end -> the node.
    """

    moves: Sequence[Move]
    steps: Sequence[DirectedMove]
    placed: Mapping[str, str]
    score: Score
    side: Side


@dataclass(slots=True)
class Findings:
    """The result of a search, also of one that was interrupted.

    Attributes:
        plan: the best plan found, which may have no moves; None if not even the scheduler may act without a move.
        unmoved: how many pods are placed without a move, by priority as in `Score`.
        levels: the priorities of the pods to place, from the highest, and how many of them are to be placed.
        at_most: no plan places more pods, by priority: the first number that differs from a plan's is the larger one.
        bound: no plan that places as much as is known to be possible has fewer moves; 0 if nothing is known.
        proof: why no plan can place everything; None if that is not proved.
        is_complete: True if the search has ended because there is nothing left to try: no plan is better. Without a
            proof, an arrangement of the pods that places more exists, but no order of evictions leads to it.
        is_interrupted: True if a signal has ended the search; `plan` is the best plan until then.
        is_out_of_time: True if the search has ended because its time was over.
        refusal: why the first eviction was refused that was tried and refused.
        is_gentlest: True if all plans that place as much with as few moves were compared, so that none of them disrupts
            fewer pods of high priority, or as few and leaves less fragmentation.
        preempted: the pods that the scheduler preempts before any move.
        kept: reason -> the number of pods that no plan may evict for it.
        movable: the number of pods that a plan may evict.
    """

    plan: CarriedOut | None = None
    unmoved: Sequence[int] = ()
    levels: Mapping[int, int] = field(default_factory=dict)
    at_most: Sequence[int] = ()
    bound: int = 0
    proof: str | None = None
    is_complete: bool = False
    is_interrupted: bool = False
    is_out_of_time: bool = False
    refusal: str | None = None
    is_gentlest: bool = False
    preempted: Sequence[Eviction] = ()
    kept: dict[str, int] = field(default_factory=dict)
    movable: int = 0

    @property
    def places_all(self) -> bool:
        """True if the plan places every pod that was to be placed."""
        return self.plan is not None and self.plan.score.placed == tuple(self.levels.values())

    @property
    def moves(self) -> Sequence[Move]:
        """The moves of the plan; none without a plan."""
        return self.plan.moves if self.plan is not None else ()


@dataclass(frozen=True, slots=True)
class SearchLimits:
    """The limits of a search.

    Attributes:
        seconds: when to stop with the best plan so far.
        moves: the most moves of a plan.
        uses_solver: False to use the heuristic only, as if no solver were installed.
        compared: how many sets of evictions to try at most, to find a plan that is as good and gentler.
        tries: how many plans to carry out at most; None for any number. If it is given, the search is short: it directs
            no pod to a node.
    """

    seconds: float = SEARCH_SECONDS
    moves: int = MOST_MOVES
    uses_solver: bool = True
    compared: int = 0
    tries: int | None = None

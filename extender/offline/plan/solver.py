"""Solves the relaxed problem with HiGHS, an optional dependency that only this module imports.

HiGHS was chosen over OR-Tools because it is a tenth of the size and needs nothing but NumPy; docs/plan.md has figures.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import pairwise

from extender.offline.plan.model import RelaxedProblem
from extender.table import PodInfo

MISSING = "no solver is installed (pip install 'podseat[plan]'), so there may be a plan with fewer moves"
_MOST_RANKS = 9
_COUNTED_MOVES = 200
_POLL_SECONDS = 0.02
_Row = tuple[dict[int, float], float, float]
"""Coefficients by column, lower and upper bound."""


def is_installed() -> bool:
    return find_spec("highspy") is not None


@dataclass(frozen=True, slots=True)
class Solution:
    """The cheapest evictions that satisfy the relaxed problem and have not been excluded.

    Attributes:
        evicted: the pods to evict.
        bound: no plan that has not been excluded has fewer moves.
        is_best: True if the solver has proved that no cheaper evictions satisfy the problem.
    """

    evicted: Sequence[PodInfo]
    bound: int
    is_best: bool


@dataclass(frozen=True, slots=True)
class Unsolved:
    """The time ended before a solution was found. No plan that has not been excluded has fewer than `bound` moves."""

    bound: int


class Solver:
    """A relaxed problem in HiGHS, from which solutions can be excluded one after another.

    The columns are: for each class and node, a binary number for each pod that may be evicted, and the number of new
    pods of the class on each node. A pod of high priority costs more, but always less than one more eviction.
    """

    def __init__(self, problem: RelaxedProblem, seed: int) -> None:
        import highspy

        self._highspy = highspy
        self._model = highspy.Highs()
        for option, value in (
            ("output_flag", False),
            ("random_seed", seed % 2**31),
            ("threads", 1),
            ("mip_rel_gap", 0.0),
            ("mip_abs_gap", 0.5),
        ):
            self._model.setOptionValue(option, value)
        self._model.HandleKeyboardInterrupt = True
        priorities = sorted({info.priority for each in problem.classes for _, info in each.all_movers})
        ranks = {priority: rank * _MOST_RANKS // len(priorities) for rank, priority in enumerate(priorities)}
        self._most_rank = max(ranks.values(), default=0)
        self._unit = 1 + self._most_rank * _COUNTED_MOVES
        self._costs: list[float] = []
        self._uppers: list[float] = []
        self._evictions: dict[tuple[int, int], list[int]] = {}
        """(class, node) -> the columns of its evictions; the first is 1 if at least one pod leaves, and so on."""
        self._arrivals: list[dict[int, int]] = []
        freed = problem.freed()
        self._classes = problem.classes
        for number, pods in enumerate(problem.classes):
            for place, infos in pods.movers.items():
                cost = self._unit + ranks[infos[0].priority]
                self._evictions[number, place] = [self._column(cost, 1) for _ in infos]
            total = pods.targets + sum(map(len, pods.movers.values()))
            fitting = [p for p in pods.allowed.tolist() if (freed[:, p] >= pods.takes).all()]
            self._arrivals.append({place: self._column(0, total) for place in fitting})
        self._pass(list(self._rows(problem)))

    def _column(self, cost: float, upper: int) -> int:
        self._costs.append(cost)
        self._uppers.append(upper)
        return len(self._costs) - 1

    def _rows(self, problem: RelaxedProblem) -> Iterator[_Row]:
        """Yields the constraints: every pod that leaves or waits arrives somewhere, and no node holds too much."""
        present: list[list[int]] = [[] for _ in problem.nodes]
        for number, pods in enumerate(self._classes):
            flow = dict.fromkeys(self._arrivals[number].values(), 1.0)
            for place in pods.movers:
                columns = self._evictions[number, place]
                flow |= dict.fromkeys(columns, -1.0)
                yield from (({one: 1.0, following: -1.0}, 0.0, math.inf) for one, following in pairwise(columns))
            yield flow, pods.targets, pods.targets
            for place in sorted(self._arrivals[number].keys() | pods.movers.keys()):
                present[place].append(number)
        for place, numbers in enumerate(present):
            if any(place in self._arrivals[number] for number in numbers):
                yield from self._resource_rows(problem, place, numbers)
        for (port, place), used in problem.ports.items():
            users = [number for number in present[place] if port in self._classes[number].first.host_ports]
            row = self._change(place, dict.fromkeys(users, (1, 1)))
            if any(value > 0 for value in row.values()):
                yield row, -math.inf, max(1 - used, 0)

    def _resource_rows(self, problem: RelaxedProblem, place: int, numbers: Sequence[int]) -> Iterator[_Row]:
        """Yields a constraint for each resource of a node, divided by the greatest common divisor of all amounts."""
        for index, free in enumerate(problem.free[:, place].tolist()):
            classes = [(number, self._classes[number]) for number in numbers]
            amounts = {number: (int(pods.takes[index]), int(pods.frees[index])) for number, pods in classes}
            unit = math.gcd(*(amount for pair in amounts.values() for amount in pair)) or 1
            row = self._change(
                place, {number: (takes // unit, frees // unit) for number, (takes, frees) in amounts.items()}
            )
            if any(value > 0 for value in row.values()):
                yield row, -math.inf, free // unit

    def _change(self, place: int, amounts: Mapping[int, tuple[int, int]]) -> dict[int, float]:
        """Returns the coefficients of what arrives on a node minus what leaves it; class -> (takes, frees)."""
        row: dict[int, float] = {}
        for number, (takes, frees) in amounts.items():
            if takes and place in self._arrivals[number]:
                row[self._arrivals[number][place]] = takes
            if frees:
                row |= dict.fromkeys(self._evictions.get((number, place), ()), -float(frees))
        return row

    def _pass(self, rows: Sequence[_Row]) -> None:
        import numpy as np

        highspy = self._highspy
        lp = highspy.HighsLp()
        lp.num_col_ = len(self._costs)
        lp.num_row_ = len(rows)
        lp.col_cost_ = np.array(self._costs, float)
        lp.col_lower_ = np.zeros(len(self._costs))
        lp.col_upper_ = np.array(self._uppers, float)
        lp.integrality_ = [highspy.HighsVarType.kInteger] * len(self._costs)
        scales = [max(map(abs, row.values()), default=1.0) for row, _, _ in rows]
        scales = [scale if scale > 1e4 else 1.0 for scale in scales]
        lp.row_lower_ = np.array([lower / scale for (_, lower, _), scale in zip(rows, scales, strict=True)])
        lp.row_upper_ = np.array([upper / scale for (_, _, upper), scale in zip(rows, scales, strict=True)])
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_ = np.cumsum([0, *(len(row) for row, _, _ in rows)])
        lp.a_matrix_.index_ = np.array([column for row, _, _ in rows for column in row], np.int32)
        values = [value / scale for (row, _, _), scale in zip(rows, scales, strict=True) for value in row.values()]
        lp.a_matrix_.value_ = np.array(values, float)
        self._model.passModel(lp)

    def solve(self, seconds: float) -> Solution | Unsolved | None:
        """Returns the cheapest evictions that are not excluded; None if it is proved that there are none."""
        model, statuses = self._model, self._highspy.HighsModelStatus
        model.setOptionValue("time_limit", model.getRunTime() + max(seconds, 0.01))
        self._run()
        status, info = model.getModelStatus(), model.getInfo()
        if status == statuses.kInfeasible:
            return None
        bound = self._moves_of(info.mip_dual_bound)
        if info.primal_solution_status != self._highspy.SolutionStatus.kSolutionStatusFeasible:
            return Unsolved(bound)
        values = model.getSolution().col_value
        evicted: list[PodInfo] = []
        for (number, place), columns in self._evictions.items():
            count = sum(round(values[column]) for column in columns)
            evicted += self._classes[number].movers[place][:count]
        is_best = status == statuses.kOptimal
        return Solution(evicted, max(bound, len(evicted)) if is_best else bound, is_best)

    def _run(self) -> None:
        """Solves in another thread, so that signals reach the main thread: Ctrl-C, and the limit of a question."""
        thread = self._model.startSolve()
        try:
            while thread.is_alive():
                thread.join(_POLL_SECONDS)
        except BaseException:
            self._model.cancelSolve()
            raise

    def _moves_of(self, cost: float) -> int:
        """Returns the least number of evictions of a solution that costs at least `cost`."""
        if not math.isfinite(cost) or cost <= 0:
            return 0
        return math.ceil(cost / (self._unit + self._most_rank) - 1e-6)

    def exclude(self, evicted: Sequence[PodInfo]) -> None:
        """Excludes a solution, and all that evict as many pods of each class from each node."""
        import numpy as np

        keys = {info.pod.key for info in evicted}
        columns, values, ones = [], [], 0
        for (number, place), of_place in self._evictions.items():
            count = sum(info.pod.key in keys for info in self._classes[number].movers[place])
            if count:
                columns.append(of_place[count - 1])
                values.append(-1.0)
                ones += 1
            if count < len(of_place):
                columns.append(of_place[count])
                values.append(1.0)
        self._model.addRow(1.0 - ones, math.inf, len(columns), np.array(columns, np.int32), np.array(values))

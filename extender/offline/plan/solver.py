"""Solves the relaxed problem with HiGHS, an optional dependency that only this module imports.

HiGHS was chosen over OR-Tools because it is a tenth of the size and needs nothing but NumPy; docs/plan.md has figures.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from extender.offline.plan.arithmetic import least_moves
from extender.offline.plan.model import UNREACHABLE, Ints, RelaxedProblem
from extender.table import PodInfo

MISSING = (
    "no solver is installed (pip install 'podseat[plan]'): only a heuristic has searched, so there may be a better plan"
)
_MOST_RANKS = 9
_COUNTED_MOVES = 200
_MOST_COUNTED = 8
_POLL_SECONDS = 0.02
_SHARE_OF_EVERYTHING = 0.4
"""The part of the time for placing everything, before less is tried."""
_Row = tuple[dict[int, float], float, float]
"""Coefficients by column, lower and upper bound."""


def is_installed() -> bool:
    return find_spec("highspy") is not None


def part_of(left_seconds: Callable[[], float], share: float = 1.0, most: float = math.inf) -> Callable[[], float]:
    """Returns how much is left of a part of the time that is left now, of at most `most` seconds."""
    now = left_seconds()
    end = now - min(now * share, most)
    return lambda: left_seconds() - end


@dataclass(frozen=True, slots=True)
class Solution:
    """The best evictions that satisfy the relaxed problem and have not been excluded.

    Attributes:
        evicted: the pods to evict.
        homes: pod to evict -> the node to which it goes in the relaxed problem, if only few nodes can take it.
        placed: how many of the pods to place have room then, by priority, from the highest.
        bound: no plan that places as many has fewer moves.
        is_best: True if the solver has proved that no evictions are better.
    """

    evicted: Sequence[PodInfo]
    homes: Mapping[str, str]
    placed: Sequence[int]
    bound: int
    is_best: bool


@dataclass(frozen=True, slots=True)
class Unsolved:
    """The time ended before a solution was found. No plan that places everything has fewer than `bound` moves."""

    bound: int


class Solver:
    """A relaxed problem in HiGHS, from which solutions can be excluded one after another.

    The columns are: for each class and node, a binary number for each pod that may be evicted; the number of new pods
    of the class on each node; and the number of pods to place that have room. If the problem is asked for as a whole, a
    pod of high priority costs more, but always less than one more eviction.

    Else all pods cost the same, which is proved sooner, and what cannot matter for `most_moves` evictions is left out:
    a node if more evictions than that would be needed to make room on it for a pod that has to go somewhere; for an
    evicted pod on another node than those of the pods to place, these evictions come on top of theirs. And the class of
    an evicted pod is left out if it has room on so many nodes that each pod of a plan can have one of its own.

    Args:
        levels: the priorities of the pods to place, from the highest.
        most_moves: the most evictions; None for any number.
        is_whole: True to leave nothing out. Otherwise solutions with evictions that make no room are missing, which
            matters only once a solution is excluded: the scheduler's other rules may need such an eviction.
        places_all: True if only solutions matter that place everything, so that more can be left out. Then ask `solve`
            for nothing else.
        has_first_move: True to leave solutions out in which no evicted pod goes to a node that has room for it before
            the first eviction. So pods that could only change places at the same moment do not.
    """

    def __init__(
        self,
        problem: RelaxedProblem,
        levels: Iterable[int],
        seed: int,
        most_moves: int | None = None,
        *,
        is_whole: bool = True,
        places_all: bool = False,
        has_first_move: bool = False,
    ) -> None:
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
        self._problem = problem
        self._classes = problem.classes
        priorities = sorted({info.priority for each in problem.classes for _, info in each.all_movers})
        self._ranks = {priority: rank * _MOST_RANKS // len(priorities) for rank, priority in enumerate(priorities)}
        self._most_rank = max(self._ranks.values(), default=0) if is_whole else 0
        self._unit = 1 + self._most_rank * _COUNTED_MOVES
        self._costs: list[float] = []
        self._uppers: list[float] = []
        self._evictions: dict[tuple[int, int], list[int]] = {}
        """(class, node) -> the columns of its evictions; the first is 1 if at least one pod leaves, and so on."""
        self._arrivals: dict[int, dict[int, int]] = {}
        self._placed: dict[int, int] = {}
        """class -> the column of the number of its pods to place that have room."""
        self._fewest: dict[int, Ints] = {}
        """class whose arrivals are counted -> how many evictions make room for one of its pods: int64[node]."""
        self.fits_all: bool | None = None
        """False if it is proved that not all pods have room at once; None if that is not known."""
        self._is_relaxed = False
        self._start: NDArray[np.float64] | None = None
        self.most: list[int] = []
        """How many pods have room at most, by priority, as far as the last call of `solve` has proved it."""
        most = UNREACHABLE - 1 if is_whole or most_moves is None else most_moves
        self._add_columns(most, is_whole=is_whole, places_all=places_all)
        rows = list(self._rows(most_moves))
        every_eviction = dict.fromkeys(itertools.chain(*self._evictions.values()), 1.0)
        rows.append((every_eviction, 0, math.inf if most_moves is None else most_moves))
        self._levels: list[tuple[int, dict[int, float]]] = []
        """For each priority of the pods to place, from the highest: a row, and the columns of what is placed."""
        for level in levels:
            columns = {self._placed[n]: 1.0 for n in self._placed if self._classes[n].first.priority == level}
            self._levels.append((len(rows), columns))
            rows.append((columns, 0, math.inf))
        if has_first_move:
            rows.append(self._first_move())
        self._pass(rows)
        for column in self._placed.values():
            self._model.changeColBounds(column, self._uppers[column], self._uppers[column])

    def _column(self, cost: float, upper: int) -> int:
        self._costs.append(cost)
        self._uppers.append(upper)
        return len(self._costs) - 1

    def _add_columns(self, most: int, *, is_whole: bool, places_all: bool) -> None:
        problem = self._problem
        freed = problem.freed()
        near = self._near(most, is_whole=is_whole, places_all=places_all)
        useful = np.any([(self._fewest[number] > 0) & each for number, each in near.items()], axis=0)
        for number, pods in enumerate(self._classes):
            may_leave = is_whole or number not in near or near[number].any()
            for place, infos in pods.movers.items():
                if (is_whole or useful[place]) and may_leave:
                    cost = self._unit + min(self._ranks[infos[0].priority], self._most_rank)
                    self._evictions[number, place] = [self._column(cost, 1) for _ in infos]
        for number in sorted(near):
            pods = self._classes[number]
            total = pods.targets + sum(len(self._evictions.get((number, place), ())) for place in pods.movers)
            places = pods.allowed[near[number][pods.allowed]]
            fitting = places[(freed[:, places] >= pods.takes[:, np.newaxis]).all(axis=0)].tolist()
            self._arrivals[number] = {place: self._column(0, total) for place in fitting}
            if pods.targets:
                self._placed[number] = self._column(0, pods.targets)

    def _near(self, most: int, *, is_whole: bool, places_all: bool) -> dict[int, NDArray[np.bool_]]:
        """Returns the nodes on which pods may arrive, for each class whose arrivals are counted.

        A pod to place may arrive where at most `most` evictions are needed for it; if all are to be placed, together
        with those that the others of its class need at least. What is left of `most` after these evictions may make
        room for the pods that are evicted from its node, elsewhere, and what is spent there is not left for the pods
        that leave these nodes in turn.
        """
        problem, near = self._problem, dict[int, NDArray[np.bool_]]()
        if is_whole:
            self._fewest = {number: problem.fewest(pods) for number, pods in enumerate(self._classes)}
            return {number: fewest < UNREACHABLE for number, fewest in self._fewest.items()}
        needed = np.full(len(problem.nodes), UNREACHABLE)
        least_of_all = 0
        for number, pods in enumerate(self._classes):
            if pods.targets:
                if places_all:
                    least = least_moves(problem, pods, most + 1)
                    fewest = least.on_node[0]
                    problem.improve(fewest, np.flatnonzero(least.with_node() <= most).tolist(), pods, most, 1)
                    total = least.with_node()
                    least_of_all = max(least_of_all, least.total[-1])
                else:
                    total = fewest = problem.fewest(pods)
                    problem.improve(fewest, np.flatnonzero(fewest <= most).tolist(), pods, most, 1)
                self._fewest[number] = fewest
                near[number] = total <= most
                needed = np.minimum(needed, np.where(fewest > 0, total, UNREACHABLE))
        is_target = needed <= most
        targets = sum(each.targets for each in self._classes)
        # An evicted pod goes beside a pod to place only if another node has evictions, too: its own.
        is_shared = is_target if targets > 1 else needed < most
        arriving = targets + 2 * most
        left = np.where(is_target, most - np.maximum(needed, least_of_all), -1)
        leaving = [number for number, each in enumerate(self._classes) if problem.places_with_room(each) < arriving]
        budgets: dict[int, int] = {}
        is_growing = bool((left >= 0).any())
        while is_growing:
            is_growing = False
            for number in leaving:
                budget = max((int(left[place]) for place in self._classes[number].movers), default=-1)
                if budget <= budgets.get(number, -1):
                    continue
                budgets[number], is_growing = budget, True
                if number not in self._fewest:
                    self._fewest[number] = problem.fewest(self._classes[number])
                fewest = self._fewest[number]
                reached = (fewest <= budget) | (is_shared & (fewest < most))
                near[number] = near.get(number, False) | reached
                spent = np.where((fewest > 0) & (fewest <= budget), budget - fewest, -1)
                left = np.maximum(left, spent)
        return near

    def _rows(self, most_moves: int | None) -> Iterator[_Row]:
        """Yields the constraints: every pod that leaves or waits arrives somewhere, and no node holds too much."""
        problem = self._problem
        present: list[list[int]] = [[] for _ in problem.nodes]
        for (number, place), columns in self._evictions.items():
            yield from (({one: 1.0, following: -1.0}, 0.0, math.inf) for one, following in pairwise(columns))
            present[place].append(number)
        for number, arrivals in self._arrivals.items():
            pods = self._classes[number]
            flow = dict.fromkeys(arrivals.values(), 1.0)
            for place in pods.movers:
                flow |= dict.fromkeys(self._evictions.get((number, place), ()), -1.0)
            if pods.targets:
                flow[self._placed[number]] = -1.0
            yield flow, 0, 0
            for place in arrivals:
                if (number, place) not in self._evictions:
                    present[place].append(number)
        for place in sorted({place for arrivals in self._arrivals.values() for place in arrivals}):
            yield from self._resource_rows(problem, place, present[place])
        on_node: dict[int, list[int]] = {}
        for (_, place), columns in self._evictions.items():
            on_node.setdefault(place, []).extend(columns)
        for number in self._arrivals:
            yield from self._shares(number, on_node, UNREACHABLE if most_moves is None else most_moves)
        yield from self._port_rows(problem, present)

    def _first_move(self) -> _Row:
        """Returns the constraint that an evicted pod goes where it has room now, if anything is placed."""
        row: dict[int, float] = {}
        for number, arrivals in self._arrivals.items():
            if self._classes[number].movers:
                with_room = set(self._problem.with_room(self._classes[number]).tolist())
                row |= {column: 1.0 for place, column in arrivals.items() if place in with_room}
        most = sum(self._uppers[column] for column in self._placed.values())
        for column in self._placed.values():
            row[column] = -1.0 / max(most, 1)
        return row, 0.0, math.inf

    def _port_rows(self, problem: RelaxedProblem, present: Sequence[Sequence[int]]) -> Iterator[_Row]:
        for (port, place), used in problem.ports.items():
            users = [number for number in present[place] if port in self._classes[number].first.host_ports]
            row = self._change(place, dict.fromkeys(users, (1, 1)))
            if any(value > 0 for value in row.values()):
                yield row, -math.inf, max(1 - used, 0)

    def _shares(self, number: int, on_node: Mapping[int, Sequence[int]], most: int) -> Iterator[_Row]:
        """Yields, for each node, how many evictions each arriving pod of the class needs at least.

        Integers satisfy it anyway, but without it the solver may spread a pod over many nodes, and proves little.
        """
        pods, fewest = self._classes[number], self._fewest[number]
        count = pods.targets + min(most, sum(map(len, pods.movers.values())))
        if count <= _MOST_COUNTED:
            others = [self._problem.fewest(pods, many) for many in range(2, count + 1)]
            for many, needed in enumerate(others if pods.targets else (), start=2):
                reachable = [place for place in self._arrivals[number] if needed[place] <= most]
                self._problem.improve(needed, reachable, pods, most, many)
            shares = np.min([fewest, *(needed / many for many, needed in enumerate(others, start=2))], axis=0)
            for place, column in self._arrivals[number].items():
                if shares[place] > 0:
                    row = dict.fromkeys(on_node.get(place, ()), 1.0)
                    yield {**row, column: -float(shares[place])}, 0.0, math.inf

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
            if takes and place in self._arrivals.get(number, ()):
                row[self._arrivals[number][place]] = takes
            if frees:
                row |= dict.fromkeys(self._evictions.get((number, place), ()), -float(frees))
        return row

    def _pass(self, rows: Sequence[_Row]) -> None:
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

    def solve(
        self,
        left_seconds: Callable[[], float],
        at_least: Sequence[int] | None,
        observe: Callable[[Solution], None] = lambda _: None,
    ) -> Solution | Unsolved | None:
        """Returns the best evictions that are not excluded; None if there are none.

        The best place the most pods of the highest priority, then of the next, and so on; and among these, they are
        the cheapest. The first attempt is to place everything.

        Args:
            at_least: how many pods a known plan places, by priority; None to try only to place everything.
            observe: called with solutions that place as much as possible, but not with the fewest evictions.
        """
        if not self._is_relaxed:
            share = 1.0 if at_least is None or self.fits_all else _SHARE_OF_EVERYTHING
            found = self._cheapest(part_of(left_seconds, share))
            if isinstance(found, Solution) or (found is not None and share == 1.0):
                self.fits_all = self.fits_all or isinstance(found, Solution) or None
                return found
            self.fits_all = None if found is not None else False
        if at_least is None:
            return None
        if not self._is_relaxed:
            self._is_relaxed = True
            for column in self._placed.values():
                self._model.changeColBounds(column, 0, self._uppers[column])
        if len(self.most) == len(self._levels) and (found := self._cheapest(left_seconds)) is not None:
            return found
        return self._most_by_priority(left_seconds, at_least, observe)

    def _most_by_priority(
        self, left_seconds: Callable[[], float], at_least: Sequence[int], observe: Callable[[Solution], None]
    ) -> Solution | Unsolved | None:
        for row, _ in self._levels:
            self._model.changeRowBounds(row, 0, math.inf)
        is_better = False
        self.most = []
        for (row, columns), known in zip(self._levels, at_least, strict=True):
            if not is_better:
                self._model.changeRowBounds(row, known + 1, math.inf)
            most = self._most(columns, left_seconds, observe)
            if most is None and not is_better:
                most = known
            if most is None or most < 0:
                return Unsolved(0)
            self.most.append(most)
            self._model.changeRowBounds(row, most, math.inf)
            is_better = is_better or most > known
        return self._cheapest(left_seconds)

    def start_at(self, homes: Mapping[str, str], placements: Mapping[str, str]) -> None:
        """Gives the solver a solution to begin with: pods to evict and to place -> their nodes."""
        values = np.zeros(len(self._costs))
        place_of = {name: place for place, name in enumerate(self._problem.nodes)}
        for number, pods in enumerate(self._classes):
            arriving = [placements[info.pod.key] for info in pods.waiting if info.pod.key in placements]
            if number in self._placed:
                values[self._placed[number]] = len(arriving)
            for place, infos in pods.movers.items():
                leaving = [homes[info.pod.key] for info in infos if info.pod.key in homes]
                arriving += leaving
                values[self._evictions.get((number, place), [])[: len(leaving)]] = 1
            for name in arriving:
                column = self._arrivals.get(number, {}).get(place_of[name])
                if column is not None:
                    values[column] += 1
        self._start = values

    def _set_start(self) -> None:
        if self._start is not None:
            solution = self._highspy.HighsSolution()
            solution.col_value = self._start.tolist()
            self._model.setSolution(solution)

    def _most(
        self, columns: Mapping[int, float], left_seconds: Callable[[], float], observe: Callable[[Solution], None]
    ) -> int | None:
        """Returns how many of the pods have room at once; None if nothing is left, -1 if the time ended before."""
        self._set_costs(dict.fromkeys(columns, -1.0))
        self._run(left_seconds)
        status, statuses = self._model.getModelStatus(), self._highspy.HighsModelStatus
        info = self._model.getInfo()
        most = round(-info.objective_function_value) if status == statuses.kOptimal else -1
        if info.primal_solution_status == self._highspy.SolutionStatus.kSolutionStatusFeasible:
            values = list(self._model.getSolution().col_value)
            self._start = np.array(values)
            observe(self._read(values, 0, is_best=False))
        self._set_costs(dict(enumerate(self._costs)))  # forgets the status
        return None if status == statuses.kInfeasible else most

    def _set_costs(self, costs: Mapping[int, float]) -> None:
        count = len(self._costs)
        values = np.zeros(count)
        values[list(costs)] = list(costs.values())
        self._model.changeColsCost(count, np.arange(count, dtype=np.int32), values)

    def _cheapest(self, left_seconds: Callable[[], float]) -> Solution | Unsolved | None:
        """Returns the cheapest evictions that satisfy the rows; None if none do."""
        model, statuses = self._model, self._highspy.HighsModelStatus
        self._set_start()
        self._run(left_seconds)
        status, info = model.getModelStatus(), model.getInfo()
        if status == statuses.kInfeasible:
            return None
        bound = self._moves_of(info.mip_dual_bound)
        if info.primal_solution_status != self._highspy.SolutionStatus.kSolutionStatusFeasible:
            return Unsolved(bound)
        return self._read(model.getSolution().col_value, bound, is_best=status == statuses.kOptimal)

    def _read(self, exact: Iterable[float], bound: int, *, is_best: bool) -> Solution:
        values = [round(value) for value in exact]
        evicted: list[PodInfo] = []
        for (number, place), columns in self._evictions.items():
            count = sum(values[column] for column in columns)
            evicted += self._classes[number].movers[place][:count]
        placed = [sum(values[column] for column in columns) for _, columns in self._levels]
        bound = max(bound, len(evicted)) if is_best else bound
        return Solution(evicted, self._homes(evicted, values), placed, bound, is_best)

    def _homes(self, evicted: Sequence[PodInfo], values: Sequence[int]) -> dict[str, str]:
        """Returns the nodes to which evicted pods go; a pod gets its own node only if there is no other for it."""
        keys = {info.pod.key for info in evicted}
        homes: dict[str, str] = {}
        for number, arrivals in self._arrivals.items():
            names = [self._problem.nodes[p] for p, column in arrivals.items() for _ in range(values[column])]
            for _, info in self._classes[number].all_movers:
                if info.pod.key in keys and names:
                    chosen = next((name for name in names if name != info.pod.node_name), names[0])
                    names.remove(chosen)
                    homes[info.pod.key] = chosen
        return homes

    def _run(self, left_seconds: Callable[[], float]) -> None:
        """Solves in another thread, so that signals reach the main thread: Ctrl-C, and the limit of a question.

        HiGHS limits the time of each run, although its own run time is the sum of all runs.
        """
        self._model.setOptionValue("time_limit", max(left_seconds(), 0.01))
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

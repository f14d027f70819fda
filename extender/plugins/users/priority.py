"""@priority: a function that says how good a node is for a pod."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import ParamSpec, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from extender.errors import DeadlineExceeded
from extender.framework.rules import MAX_SCORE, Priority, RowScorer, Scorer
from extender.plugins.users.failures import RuleFailures, is_ctrl_c
from extender.plugins.users.function import BoundFunction, RuleFunction
from extender.plugins.users.unanswered import answer_of
from extender.table import PodInfo, Table
from extender.table.labels import Rows

P = ParamSpec("P")
R = TypeVar("R")
Floats = NDArray[np.float64]


class PriorityFunction(RuleFunction[P, R]):
    """A function made a priority by `@priority`."""

    def __init__(self, function: Callable[P, R], normalise: bool) -> None:
        super().__init__(function)
        self.normalise = normalise

    def rule(self, name: str, arguments: Mapping[str, object], failures: RuleFailures) -> Priority:
        """The priority as the engine runs it; `arguments` are valid already."""
        return CustomPriority(name, BoundFunction(self.function, arguments), self.columns, self.normalise, failures)


@overload
def priority(function: Callable[P, R], /) -> PriorityFunction[P, R]: ...
@overload
def priority(*, normalise: bool = False) -> Callable[[Callable[P, R]], PriorityFunction[P, R]]: ...
def priority(
    function: Callable[P, R] | None = None, /, *, normalise: bool = False
) -> PriorityFunction[P, R] | Callable[[Callable[P, R]], PriorityFunction[P, R]]:
    """Makes the function a priority.

    One of (pod, node) answers a number, one of (pod, table, rows) a number for each row; more is better.

    Args:
        normalise: the numbers may be of any size and sign; the worst node gets 0 and the best 100 (all 0 where there is
            no difference). Without it they are meant to be 0..100, and cut off there.

    Where the function raises, or answers anything else for any node, it has no opinion on the pod.
    """
    if function is not None:
        return PriorityFunction(function, normalise)
    return lambda decorated: PriorityFunction(decorated, normalise)


@dataclass(frozen=True, slots=True)
class CustomPriority:
    """A user's priority with its name and arguments."""

    name: str
    function: BoundFunction
    columns: bool
    normalise: bool
    failures: RuleFailures

    def prepare(self, pod: PodInfo, table: Table, rows: Rows) -> Scorer | None:
        try:
            answers = answer_of(self.name, partial(self._answers, pod, table, rows), table.deadline)
            numbers = _numbers(answers, len(rows))
            points = (_spread(numbers) if self.normalise else numbers).clip(0, MAX_SCORE)
            return RowScorer(lambda _: np.rint(points).astype(np.int64))  # asked by now: it may have no opinion
        except DeadlineExceeded:
            raise
        except BaseException as error:
            if is_ctrl_c(error):
                raise
            self.failures.failed(self.name, error)
            return None

    def _answers(self, pod: PodInfo, table: Table, rows: Rows) -> object:
        if self.columns:
            return self.function(pod, table, rows)
        answers, deadline, rest = [], table.deadline, f"the rest of {self.name}"
        for row in rows.tolist():
            deadline.check(rest)
            answers.append(self.function(pod.pod, table.nodes.node(row)))
        return answers


def _shown(answer: object) -> str:
    """Returns what was answered; of nodes, one after another, for the first that got no number."""
    answers = answer if isinstance(answer, list) else []
    return reprlib.repr(next((each for each in answers if np.asarray(each).dtype.kind not in "biuf"), answer))


def _numbers(answer: object, rows: int) -> Floats:
    column = np.asarray(answer)
    if column.dtype.kind not in "biuf" or column.shape != (rows,):
        raise TypeError(f"a priority answers a number for each of {rows} nodes, not {_shown(answer)}")
    numbers = column.astype(np.float64)
    if not np.isfinite(numbers).all():
        raise ValueError("a priority answers finite numbers")
    return numbers


def _spread(numbers: Floats) -> Floats:
    worst = numbers.min(initial=np.inf)
    with np.errstate(over="ignore"):
        width = numbers.max(initial=-np.inf) - worst
    if len(numbers) == 0 or width == 0:
        return np.zeros(len(numbers))
    if width == np.inf:
        raise ValueError("a priority answers numbers that are not endlessly far apart")
    # Divided first: a number near the largest float must not overflow.
    spread: Floats = (numbers - worst) / width * MAX_SCORE
    return spread

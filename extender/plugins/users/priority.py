"""@priority and @device_priority: turn functions into rules that say how good a node, or its devices, are for a pod."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import ParamSpec, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from extender.devices.device_nodes import DeviceAsk, DeviceNodes, Ints
from extender.devices.policies import DevicePolicy, UserPolicy
from extender.framework.plugin import SCORE
from extender.framework.rules import MAX_SCORE, Priority, RowScorer, Scorer
from extender.plugins.users.function import BoundFunction, CustomRule, RuleFunction, as_decorator, nodes_at
from extender.plugins.users.handle import RuleHost
from extender.plugins.users.rule_calls import checked
from extender.runtime.clock import Deadline
from extender.table import PodInfo, Table
from extender.table.labels import Rows

P = ParamSpec("P")
R = TypeVar("R", covariant=True)
Floats = NDArray[np.float64]
DEVICE_POLICY = "devicePolicy"
"""Where such a function runs. It is not an extension point: the plugin DeviceScoring calls its policies."""


class PriorityFunction(RuleFunction[P, R]):
    """A function that `@priority` turned into a priority."""

    point = SCORE

    def __init__(self, function: Callable[P, R], normalise: bool) -> None:
        super().__init__(function)
        self.normalise = normalise

    def rule(self, name: str, arguments: Mapping[str, object], host: RuleHost) -> Priority:
        """Returns the priority that the engine runs with these arguments, which must be valid."""
        return CustomPriority(name, self, arguments, host, self.normalise)


@overload
def priority(function: Callable[P, R], /) -> PriorityFunction[P, R]: ...
@overload
def priority(*, normalise: bool = False) -> Callable[[Callable[P, R]], PriorityFunction[P, R]]: ...
def priority(
    function: Callable[P, R] | None = None, /, *, normalise: bool = False
) -> PriorityFunction[P, R] | Callable[[Callable[P, R]], PriorityFunction[P, R]]:
    """Turns the function into a priority.

    A function of (pod, node) returns a number. A function of (pod, table, rows) returns a number for each row. Higher
    numbers are better.

    Args:
        normalise: True if the numbers may have any range. The worst node then scores 0 and the best 100, or all score 0
            if they are equal. If False, numbers are clipped to 0..100.

    If the function raises or returns anything else for any node, the rule is ignored for this pod.
    """
    return as_decorator(lambda decorated: PriorityFunction(decorated, normalise), function)


@dataclass(frozen=True, slots=True)
class CustomPriority(CustomRule):
    """A user's priority, with its name and arguments."""

    normalise: bool

    def prepare(self, pod: PodInfo, table: Table, rows: Rows) -> Scorer | None:
        return self.outlived(partial(self._scorer, pod, table, rows), None)

    def _scorer(self, pod: PodInfo, table: Table, rows: Rows) -> Scorer:
        deadline = self.host.limited(table.deadline)
        answers = self.answer_of(partial(self._answers, pod, table, rows, deadline), deadline)
        numbers = _numbers(answers, len(rows))
        points = (_spread(numbers) if self.normalise else numbers).clip(0, MAX_SCORE)
        # The scores are computed here and not in the scorer, because `prepare` must return None if the rule fails.
        scores = np.rint(points).astype(np.int64)
        return RowScorer(lambda _: scores)

    def _answers(self, pod: PodInfo, table: Table, rows: Rows, deadline: Deadline) -> object:
        function = self.function(pod.pod, table)
        if self.decorated.columns:
            return function(pod, table, rows)
        nodes = nodes_at(rows, table, self.decorated.wants_pods)
        return [function(pod.pod, node) for node in checked(nodes, deadline, f"the rest of {self.name}")]


def _shown(answer: object) -> str:
    """Returns the answer of a user's priority as text for an error message.

    If the answer is a list with an element that is not a number, only the first such element is shown.
    """
    answers = answer if isinstance(answer, list) else []
    return reprlib.repr(next((item for item in answers if np.asarray(item).dtype.kind not in "biuf"), answer))


def _numbers(answer: object, rows: int) -> Floats:
    column = np.asarray(answer)
    if column.dtype.kind not in "biuf" or column.shape != (rows,):
        raise TypeError(f"a priority must return a number for each of {rows} nodes, not {_shown(answer)}")
    numbers = column.astype(np.float64)
    if not np.isfinite(numbers).all():
        raise ValueError("a priority must return finite numbers")
    return numbers


def _spread(numbers: Floats) -> Floats:
    worst = numbers.min(initial=np.inf)
    with np.errstate(over="ignore"):
        width = numbers.max(initial=-np.inf) - worst
    if len(numbers) == 0 or width == 0:
        return np.zeros(len(numbers))
    if width == np.inf:
        raise ValueError("a priority must return numbers whose difference is finite")
    # Divides first, because a number near the largest float would overflow.
    spread: Floats = (numbers - worst) / width * MAX_SCORE
    return spread


class DevicePriorityFunction(RuleFunction[P, R]):
    """A function that `@device_priority` turned into a device policy."""

    forms: Mapping[int, str] = {2: "(nodes, ask)"}
    point = DEVICE_POLICY

    def __init__(self, function: Callable[P, R], normalise: bool) -> None:
        super().__init__(function)
        if self.wants_handle:
            raise TypeError(f"{self.__name__} cannot have a handle: a device policy does not know the pod")
        self.normalise = normalise

    def rule(self, name: str, arguments: Mapping[str, object], host: RuleHost) -> CustomDevicePriority:
        """Returns the policy for DeviceScoring and experiments; `arguments` must be valid."""
        return CustomDevicePriority(name, self, arguments, host, self.normalise)


@overload
def device_priority(function: Callable[P, R], /) -> DevicePriorityFunction[P, R]: ...
@overload
def device_priority(*, normalise: bool = False) -> Callable[[Callable[P, R]], DevicePriorityFunction[P, R]]: ...
def device_priority(
    function: Callable[P, R] | None = None, /, *, normalise: bool = False
) -> DevicePriorityFunction[P, R] | Callable[[Callable[P, R]], DevicePriorityFunction[P, R]]:
    """Turns the function into a device policy, for `policies` of DeviceScoring and of experiments.

    A function of (nodes, ask) returns a number for each node, or for each node and device if devices differ. Higher
    numbers are better. Fractions are cut off.

    Args:
        normalise: True if the numbers may have any range. The worst node that fits then scores 0 and the best 100. If
            False, DeviceScoring counts numbers below 0 as 0, and numbers above 100 as 100.

    If the function raises or returns anything else, all nodes and devices score 0 for this pod.
    """
    return as_decorator(lambda decorated: DevicePriorityFunction(decorated, normalise), function)


@dataclass(frozen=True, slots=True)
class CustomDevicePriority(CustomRule):
    """A user's device policy, with its name and arguments."""

    normalise: bool

    def __hash__(self) -> int:
        return hash((self.name, self.decorated))  # a dict, like `given`, has no hash

    @property
    def policy(self) -> UserPolicy:
        """The policy as it is; its errors are raised."""
        return UserPolicy(self.name, BoundFunction(self.decorated.function, self.given), self.normalise)

    def on(self, table: Table) -> DevicePolicy:
        """Returns the policy for one pod on the table: with the decision's deadline, and outliving its own errors."""
        return _Guarded(self, self.policy, table)


@dataclass(slots=True)
class _Guarded:
    """A user's policy for one pod. After a failure that the process ignores, it scores 0 for the rest of the pod."""

    rule: CustomDevicePriority
    policy: UserPolicy
    table: Table
    repeats: bool = True
    is_off: bool = False  # it has failed, or this decision leaves it out

    @property
    def name(self) -> str:
        return self.rule.name

    @property
    def rescales(self) -> bool:
        return self.policy.rescales

    def score(self, nodes: DeviceNodes, ask: DeviceAsk) -> Ints:
        def answer() -> Ints:
            deadline = self.rule.host.limited(self.table.deadline)
            return self.rule.answer_of(partial(self.policy.score, nodes, ask), deadline)

        scores = None if self.is_off else self.rule.outlived(answer, None)
        self.is_off = scores is None
        return np.zeros(len(nodes.free), np.int64) if scores is None else scores

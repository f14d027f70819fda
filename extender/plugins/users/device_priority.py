"""@device_priority: turns a function into a policy that scores nodes and their devices for a pod."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import ParamSpec, TypeVar, overload

import numpy as np

from extender.devices.policies.device_nodes import DeviceAsk, DeviceNodes, Ints
from extender.devices.policies.policy import DevicePolicy, UserPolicy
from extender.errors import DeadlineExceeded
from extender.plugins.users.function import BoundFunction, CustomRule, RuleFunction
from extender.plugins.users.handle import RuleHost
from extender.table import Table

DEVICE_POLICY = "devicePolicy"
"""Where such a function runs. It is not an extension point: the plugin DeviceScoring calls its policies."""
P = ParamSpec("P")
R = TypeVar("R", covariant=True)


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
    if function is not None:
        return DevicePriorityFunction(function, normalise)
    return lambda decorated: DevicePriorityFunction(decorated, normalise)


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
        """Returns the policy for decisions on the table: with their deadline, and outliving its own errors."""
        return _Guarded(self, self.policy, table)


@dataclass(frozen=True, slots=True)
class _Guarded:
    """A user's policy that scores 0 if it fails, as far as the process ignores that."""

    rule: CustomDevicePriority
    policy: UserPolicy
    table: Table
    repeats: bool = True

    @property
    def name(self) -> str:
        return self.rule.name

    @property
    def rescales(self) -> bool:
        return self.policy.rescales

    def score(self, nodes: DeviceNodes, ask: DeviceAsk) -> Ints:
        if not self.rule.is_left_out:
            try:
                deadline = self.rule.host.limited(self.table.deadline)
                return self.rule.answer_of(partial(self.policy.score, nodes, ask), deadline)
            except DeadlineExceeded as error:
                if not self.rule.ignores_late(error):
                    raise
            except BaseException as error:
                self.rule.report(error)
        return np.zeros(len(nodes.free), np.int64)

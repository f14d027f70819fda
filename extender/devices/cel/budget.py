"""Limits an evaluation to the cost that the API server allows and to the decision's deadline.

Source of the costs: cel-go interpreter/runtimecost.go and cost.go. The API server rejects expressions whose estimated
cost is too high. Claims that are read from a file have not passed this check, so the cost is counted here.
"""

from __future__ import annotations

from extender.devices.cel.values import EvaluationError
from extender.runtime.clock import Deadline

MAX_COST = 1_000_000  # upstream CELSelectorExpressionMaxCost
_UNITS_BETWEEN_CHECKS = 10_000  # the deadline is checked after this many units, about every ten milliseconds


class CostBudget:
    """The cost that an evaluation may still use.

    Attributes:
        left: the remaining units.
    """

    __slots__ = ("_checked_at", "_deadline", "left")

    def __init__(self, deadline: Deadline) -> None:
        self.left = self._checked_at = MAX_COST
        self._deadline = deadline

    def spend(self, units: int = 1) -> None:
        """Subtracts `units` from the remaining cost.

        Raises:
            EvaluationError: fewer than `units` are left.
            DeadlineExceeded: the decision's deadline has passed.
        """
        self.left -= units
        if self.left < 0:
            raise EvaluationError("operation cancelled: actual cost limit exceeded")
        if self._checked_at - self.left >= _UNITS_BETWEEN_CHECKS:
            self._checked_at = self.left
            self._deadline.check("a CEL selector was evaluated")

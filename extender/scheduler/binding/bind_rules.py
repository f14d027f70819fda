"""Runs users' PreBind rules as a Reservation, so that a rejection is handled like a failed write."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from extender.errors import BindingFailed
from extender.framework.permit import BindRule, Permits
from extender.model.pod import Pod
from extender.scheduler.scheduling_cycle import Chosen
from extender.table import PodInfo


@dataclass(frozen=True, slots=True)
class PreBindRules:
    """Makes the PreBind of each pod that has PreBind rules. It reserves nothing; the rules run at `PreBind.write`.

    Attributes:
        rules_of: returns the PreBind rules of the pod's profile.
    """

    rules_of: Callable[[Pod], Sequence[BindRule]]
    permits: Permits

    def reserve(self, pod: PodInfo, chosen: Chosen) -> PreBind | None:
        rules = self.rules_of(pod.pod)
        return PreBind(pod.pod, chosen.node_name, rules, self.permits) if rules else None


@dataclass(slots=True, eq=False)
class PreBind:
    """The PreBind rules for one pod on one node; see Reservation."""

    pod: Pod
    node_name: str
    rules: Sequence[BindRule]
    permits: Permits
    plugin: str = "PreBind rules"
    timeout_seconds: float = 0.0

    def take(self) -> None:
        """Does nothing, because the rules run just before the pod is bound."""

    def write(self) -> None:
        """Runs the rules. Raises BindingFailed if a rule rejects the pod."""
        node = self.permits.node(self.node_name)
        for rule in self.rules:
            rule.run(self.pod, node, self.permits)

    def undo(self) -> None:
        """Does nothing: to undo what a PreBind rule did, the user writes a Reserve rule with `unreserve`."""

    def ready(self) -> bool:
        return True

    def overdue(self) -> BindingFailed:
        return BindingFailed("rejected due to timeout")

"""Tries the rules of a changed policy on real pods before the policy is adopted.

A rule that imports without an error may still raise for every pod, and would then stop all placement. So the new rules
first decide the newest placed pods and the pending pods. Only rules without effects are tried, so none of Reserve,
Permit, PreBind and PostBind.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from heapq import nlargest
from itertools import islice
from typing import Final

from extender.cache.cache import Cache
from extender.config.settings import Command
from extender.engine.decide import SchedulingCycle, Scope
from extender.errors import BindingFailed, ConfigurationError, DeadlineExceeded
from extender.framework.profile import Profile, Profiles, WeightedPriority
from extender.framework.status import Refusal, unschedulable
from extender.plugins.users import OfflineHost, custom_rules
from extender.plugins.users.bind import CustomBind
from extender.plugins.users.function import CustomRule, place_of
from extender.plugins.users.post_filter import CustomPostFilter
from extender.plugins.users.predicate import CustomPredicate
from extender.plugins.users.priority import CustomPriority
from extender.plugins.users.queueing import CustomPreEnqueue, CustomQueueSort
from extender.plugins.users.rule_calls import described
from extender.policy.policy import Policy
from extender.runtime.clock import Clock, Deadline
from extender.table import PodInfo, Table

BUDGET_SECONDS: Final = 3.0
"""No further pod is tried after this time, because the trial takes CPU time from the decisions of the process."""
MAX_CALL_SECONDS: Final = 4.0
"""The time limit of the rules for one pod, if decisions have a longer limit or none."""
_PLACED_PODS = 20
_WHOLE_NODES = 100
_BIND_NODES = 20


@dataclass(frozen=True, slots=True)
class PolicyTrial:
    """Compares the rules of a new policy with those in force.

    Attributes:
        profiles: the profiles in force.
        decision_seconds: the time limit of a decision; 0 for none.
    """

    command: Command
    cache: Cache
    profiles: Profiles
    clock: Clock
    decision_seconds: float

    def check(self, policy: Policy) -> None:
        """Raises ConfigurationError if a new rule fails for a pod that the policy in force decides."""
        new = policy.scheduler_profiles()
        if not any(True for _ in custom_rules(new.all)):
            return
        ends_at = self.clock.monotonic() + BUDGET_SECONDS
        for pod in self._pods():
            for describes_nodes in (False, True) if self.command == "serve" else (False,):
                failure = self._failure(new.of(pod.pod), pod, describes_nodes)
                if failure and not self._failure(self.profiles.of(pod.pod), pod, describes_nodes):
                    call = ", if a call describes nodes that the cluster does not have" if describes_nodes else ""
                    raise ConfigurationError(
                        [f"{failure} (tried with the pod {pod.pod.key}{call}, which the policy in force decides)"]
                    )
            if self.clock.monotonic() >= ends_at:
                return

    def _pods(self) -> Iterator[PodInfo]:
        """Yields the newest placed pods and all pending pods, first one pod of each controller."""
        with self.cache.snapshot("policy trial") as table:
            pods = nlargest(_PLACED_PODS, table.pods, key=lambda info: info.pod.metadata.created_seconds)
        pods += self.cache.overview().unplaced
        by_owner = {owner.uid if (owner := info.pod.controller) else info.uid: info for info in reversed(pods)}
        first = {info.uid: info for info in reversed(by_owner.values())}
        yield from first.values()
        yield from (info for info in pods if info.uid not in first)

    def _failure(self, profile: Profile, pod: PodInfo, describes_nodes: bool) -> str | None:
        """Returns how a rule of the profile fails for the pod; None if all of them answer.

        Args:
            describes_nodes: True to judge nodes as if the call described them as whole objects, and the cache did not
                know them. Such nodes have no pods, and there are no other objects.
        """
        seconds = min(self.decision_seconds or MAX_CALL_SECONDS, MAX_CALL_SECONDS)
        rule: CustomRule | None = None
        try:
            with self.cache.snapshot("policy trial", Deadline(self.clock, seconds)) as cached:
                table = _only_nodes(cached) if describes_nodes else cached
                for rule in custom_rules([profile]):
                    _try(replace(rule, host=OfflineHost()), pod, table)
        except DeadlineExceeded as error:
            return str(error)
        except Exception as error:  # a user's rule may raise any exception
            place = place_of(rule.decorated.function) if rule is not None else ""
            return f"{rule.name if rule is not None else pod.pod.key} fails: {described(error, place)}"
        return None


def _try(rule: CustomRule, pod: PodInfo, table: Table) -> None:
    """Calls the rule, on all nodes of the table. Raises the error of the rule."""
    match rule:
        case CustomPredicate():
            _decide(replace(_NO_RULES, predicates=[rule]), pod, table)
        case CustomPriority():
            _decide(replace(_NO_RULES, priorities=[WeightedPriority(rule)]), pod, table)
        case CustomPostFilter():
            _decide(replace(_NO_RULES, predicates=[_RefuseAll()], post_filter=[rule]), pod, table)
        case CustomBind():
            with suppress(BindingFailed), table.hypothetically(removed=[pod.uid]):  # the rule may refuse the pod
                for row in table.nodes.rows[:_BIND_NODES].tolist():
                    rule.choose(pod, row, table)
        case CustomPreEnqueue():
            rule.refuse(pod, table)
        case CustomQueueSort():
            rule.key(pod)


def _decide(profile: Profile, pod: PodInfo, table: Table) -> None:
    with table.hypothetically(removed=[pod.uid]):
        decision = SchedulingCycle(profile).decide(pod, table, scope=Scope.EVERYTHING)
    if decision.cause is not None:
        raise decision.cause


class _RefuseAll:
    """A predicate that refuses every node, so that a PostFilter rule is called."""

    name = "PolicyTrial"

    def prepare(self, _pod: PodInfo, _table: Table) -> Refusal:
        return unschedulable(self.name, "node(s) were refused, to try this rule")


_NO_RULES = Profile("policy trial", (), (), preemption=None, reserving=frozenset())


def _only_nodes(table: Table) -> Table:
    """Returns a table with some of the nodes and nothing else, like that of filter for nodes outside the cache."""
    nodes = Table(table.features)
    nodes.deadline = table.deadline
    for row in islice(table.nodes.rows.tolist(), _WHOLE_NODES):
        nodes.set_node(table.nodes.node(row))
    return nodes

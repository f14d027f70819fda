"""@post_filter: turns a function into a rule that proposes a node for a pod that fits on no node."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import ParamSpec, TypeVar

from extender.errors import DeadlineExceeded
from extender.framework.plugin import POST_FILTER
from extender.framework.rules import PostFilter, Proposal
from extender.plugins.users.function import CustomRule, RuleFunction
from extender.plugins.users.handle import RuleHost
from extender.plugins.users.rule_calls import sendable
from extender.table import PodInfo, Table

P = ParamSpec("P")
R = TypeVar("R", covariant=True)


@dataclass(frozen=True, slots=True)
class Nominate:
    """The answer of a PostFilter rule that nominates a node for the pod, because the pod will fit there soon.

    From then on, other pods of the same or a lower priority leave room for the pod on that node.
    """

    node_name: str


class PostFilterFunction(RuleFunction[P, R]):
    """A function that `@post_filter` turned into a PostFilter rule."""

    forms: Mapping[int, str] = {2: "(pod, refused)"}
    point = POST_FILTER

    def rule(self, name: str, arguments: Mapping[str, object], host: RuleHost) -> PostFilter:
        """Returns the rule for the engine; `arguments` must be valid."""
        return CustomPostFilter(name, self, arguments, host)


def post_filter(function: Callable[P, R]) -> PostFilterFunction[P, R]:
    """Turns the function into a rule of PostFilter, which runs in `extender schedule` for a pod that fits on no node.

    The function takes (pod, refused). `refused` maps the name of each node to its reasons. The function returns
    `Nominate(node)`, None, or a reason why it cannot help, which is added to the pod's message. Rules run in the order
    of the profile, and before preemption, which runs only if no rule nominates the pod. A nominated pod is tried again
    after an event that may help it, as after a preemption.

    If the function raises or returns anything else, the rule is ignored for this pod.
    """
    return PostFilterFunction(function)


@dataclass(frozen=True, slots=True)
class CustomPostFilter(CustomRule):
    """A user's PostFilter rule, with its name and arguments."""

    def propose(self, pod: PodInfo, refused: Mapping[str, str], table: Table) -> Proposal:
        """Returns what the function proposes, see PostFilter.propose."""
        if self.is_left_out:
            return Proposal()
        function = self.function(pod.pod, table)
        try:
            return self._proposal(
                self.answer_of(partial(function, pod.pod, refused), self.host.limited(table.deadline)), table
            )
        except DeadlineExceeded as error:
            if self.ignores_late(error):
                return Proposal()
            raise
        except BaseException as error:
            self.report(error)
            return Proposal()

    def _proposal(self, answer: object, table: Table) -> Proposal:
        if answer is None:
            return Proposal()
        if isinstance(answer, str):
            return Proposal(reason=sendable(answer))
        if not isinstance(answer, Nominate):
            raise TypeError(f"a rule of {POST_FILTER} must return Nominate(node), a reason or None, not {answer!r}")
        if not table.nodes.has(answer.node_name):
            raise ValueError(f"there is no node {answer.node_name!r}")
        return Proposal(answer.node_name)

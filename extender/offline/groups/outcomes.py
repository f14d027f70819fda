"""Lists the outcome of a group's decision for each member, in the order in which the members are tried."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from extender.groups import Composite, GroupDecision, GroupStatus
from extender.model.meta import Object
from extender.offline.state import ClusterState
from extender.table import PodInfo


@dataclass(frozen=True, slots=True)
class MemberOutcome:
    """The outcome for one waiting member.

    Attributes:
        node_name: the node that takes the member; None if the member fits on no node or is not tried.
        message: why the member gets no node.
        reserved: the member's volumes and claims, as they will be once the member is on the node.
        domains: topology key -> the domain in which the decision tried the member.
    """

    info: PodInfo
    node_name: str | None
    message: str = ""
    reserved: Sequence[Object] = ()
    domains: Mapping[str, str] = field(default_factory=dict)


def member_outcomes(decision: GroupDecision, domains: Mapping[str, str] | None = None) -> Iterator[MemberOutcome]:
    """Yields the outcome of each waiting member; `domains` has the topology domains chosen for parents of the group."""
    tree, domains = decision.tree, domains or {}
    if tree.group.topology_key is not None and decision.placement:
        domains = {**domains, tree.group.topology_key: decision.placement}
    if isinstance(tree, Composite):
        for child in tree.children:
            untried = GroupDecision(child, GroupStatus.UNSCHEDULABLE, decision.reasons)
            yield from member_outcomes(decision.children.get(child.group.key, untried), domains)
        return
    for info in tree.waiting:
        member = decision.members.get(info.uid)
        if member is None:
            yield MemberOutcome(info, None, decision.text, domains=domains)
        else:
            yield MemberOutcome(info, member.node_name, member.message, member.reserved, domains)


def admits_all(decision: GroupDecision) -> bool:
    """Returns True if every waiting member finds a node."""
    return decision.is_success and all(outcome.node_name is not None for outcome in member_outcomes(decision))


@contextmanager
def fitting_placed(state: ClusterState, decision: GroupDecision) -> Iterator[MemberOutcome | None]:
    """Places the members for which the decision has a node, until the `with` block ends.

    Yields the first member without a node; None if every member has a node.
    """
    outcomes = list(member_outcomes(decision))
    placed = [(outcome.info, outcome.node_name) for outcome in outcomes if outcome.node_name is not None]
    reserved = [obj for outcome in outcomes for obj in outcome.reserved]
    with state.engine.suppose(objects=reserved, place=placed):
        yield next((outcome for outcome in outcomes if outcome.node_name is None), None)


def nodes_in(state: ClusterState, domains: Mapping[str, str]) -> list[str] | None:
    """Returns the nodes that are in all of `domains`; None, which means all nodes, if `domains` is empty."""
    if not domains:
        return None
    return [node.name for node in state.nodes() if all(node.labels.get(key) == value for key, value in domains.items())]

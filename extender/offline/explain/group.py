"""Explains a pod group: how many members find a node together, what the next one lacks, what would admit all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from random import Random
from typing import Any

from extender.errors import UnknownPod
from extender.groups import Composite, GroupDecision, GroupRules, Leaf, MemberDecision, decide_group
from extender.groups.decision import leaf_decisions
from extender.groups.placements import domains
from extender.groups.tree import scheduled_members, waiting_members
from extender.offline.explain.changes.groups import group_changes
from extender.offline.explain.changes.suggestion import SuggestedChange
from extender.offline.explain.explanation import Explanation
from extender.offline.groups.verdict import GroupVerdict, GroupVerdicts, decide
from extender.offline.state import ClusterState
from extender.scheduler.group_members import decides_members
from extender.scheduler.scheduling_cycle import SchedulingCycle
from extender.table import PodInfo
from extender.table.labels import Rows
from extender.table.trial import Trial


@dataclass(frozen=True, slots=True)
class DomainOffer:
    """The room that one topology domain offers to a group.

    Attributes:
        domain: the topology domain, such as a zone.
        nodes: the number of its nodes.
        placed: the number of waiting members that find a node there together.
        message: why the next member finds none; empty if all do.
    """

    domain: str
    nodes: int
    placed: int
    message: str


class GroupExplanation:
    """The answer to "why is this group pending, or where would it be placed".

    Attributes:
        verdict: the decision about the group, or what keeps a scheduler from trying it.
        placed: pod -> the node on which it would be placed, if as many members are placed as fit.
        refused: why the first member that finds no node is refused, judged with those before it in place; None if all
            members find a node, or if none is tried.
    """

    def __init__(self, state: ClusterState, verdict: GroupVerdict) -> None:
        self._state = state
        self.verdict = verdict
        self.placed: dict[str, str] = {}
        self.refused: Explanation | None = None
        if verdict.tree is not None and verdict.decision is not None:
            self._judge(decide(state, verdict.tree, enforces_gangs=False))

    def __repr__(self) -> str:
        return f"GroupExplanation({self.name}: {self.message})"

    @property
    def name(self) -> str:
        """The kind and the key of the group, such as `PodGroup ml/train`."""
        return f"{self.verdict.kind} {self.verdict.key}"

    @property
    def waiting(self) -> int:
        """The number of members without a node."""
        return len(self._waiting)

    @property
    def scheduled(self) -> int:
        """The number of members on a node."""
        return len(scheduled_members(self.verdict.tree)) if self.verdict.tree is not None else 0

    @property
    def fits(self) -> bool:
        """True if a scheduler would place the group now."""
        return self.verdict.fits

    @property
    def message(self) -> str:
        """The verdict in one sentence."""
        if self.verdict.decision is None:
            return self.verdict.text
        found = f"{len(self.placed)} of {self.waiting} waiting members find a node"
        if self.verdict.decision.is_success:
            return found
        return f"none of its members is placed, because only {found}" if self.placed else self.verdict.text

    @property
    def policy(self) -> str:
        """The terms of the group: its policy, its topology and its priority."""
        tree = self.verdict.tree
        if tree is None:
            return ""
        unit = "child groups" if isinstance(tree, Composite) else "members"
        needs = f"gang of at least {tree.group.min_count} {unit}" if tree.group.is_gang else "basic"
        within = f", within one {tree.group.topology_key}" if tree.group.topology_key else ""
        return f"{needs}{within}, priority {tree.group.priority}"

    @cached_property
    def domains(self) -> list[DomainOffer]:
        """The room in each domain of the topology constraint, the best first; empty if there is no constraint."""
        tree = self.verdict.tree
        if not isinstance(tree, Leaf) or tree.group.topology_key is None or self.verdict.decision is None:
            return []
        placements = domains(tree, self._state.table, None)
        if isinstance(placements, str):
            return []
        offers = [self._offer(tree, placement.name, placement.rows) for placement in placements]
        return sorted(offers, key=lambda offer: (-offer.placed, offer.domain))

    @cached_property
    def changes(self) -> list[SuggestedChange]:
        """The changes that would admit all waiting members, each decided again, the smallest first."""
        tree = self.verdict.tree
        if tree is None or self.verdict.decision is None or self.fits:
            return []
        return group_changes(self._state, tree, len(self.placed))

    def to_dict(self, *, changes: bool = True) -> dict[str, Any]:
        """Returns the documented form, ready for JSON: see docs/pod-groups.md."""
        return {
            "group": self.verdict.key,
            "groupKind": self.verdict.kind,
            "policy": self.policy,
            "fits": self.fits,
            "message": self.message,
            "verdict": self.verdict.text,
            "scheduled": self.scheduled,
            "waiting": self.waiting,
            "placed": self.placed,
            "pending": {info.pod.key: self.verdict.failures.get(info.uid, "") for info in self._waiting},
            "refused": self.refused.to_dict(changes=False) if self.refused is not None else None,
            "domains": [asdict(offer) for offer in self.domains],
            "changes": [change.to_dict() for change in self.changes] if changes else [],
        }

    @property
    def _waiting(self) -> list[PodInfo]:
        return waiting_members(self.verdict.tree) if self.verdict.tree is not None else []

    def _judge(self, best: GroupDecision) -> None:
        """Fills in which members find a node, and explains why the first other one finds none."""
        assert self.verdict.tree is not None
        infos = {info.uid: info for info in self._waiting}
        self.placed = {infos[uid].pod.key: node for uid, node in best.placed.items()}
        with first_refused(self._state, best) as info:
            if info is not None:
                self.refused = Explanation(self._state, info.pod.with_spec(scheduling_group=None))

    def _offer(self, leaf: Leaf, domain: str, rows: Rows | None) -> DomainOffer:
        table = self._state.table
        profile = self._state.profiles.of(leaf.waiting[0].pod)
        decide_one = decides_members(SchedulingCycle(profile, Random(0)), table)  # noqa: S311  breaks ties

        def within(info: PodInfo, _rows: Rows | None) -> MemberDecision:
            return decide_one(info, rows)

        decision = decide_group(leaf, Trial(table), within, GroupRules(enforces_gangs=False))
        message = next((member.message for member in decision.members.values() if member.node_name is None), "")
        return DomainOffer(domain, len(rows) if rows is not None else 0, len(decision.placed), message)


def explain_group(state: ClusterState, kind: str, key: str) -> GroupExplanation:
    """Explains the root of the group of this kind and key. Raises UnknownPod if the cluster has no such group."""
    groups = GroupVerdicts(state)
    found = groups.membership.root_named(kind, key)
    if found is None:
        raise UnknownPod(f"no {kind} {key} in this cluster")
    return GroupExplanation(state, groups.of_root(found))


@contextmanager
def first_refused(state: ClusterState, best: GroupDecision) -> Iterator[PodInfo | None]:
    """Yields the first member that finds no node, with those before it on their nodes in the block."""
    refused: PodInfo | None = None
    before: list[tuple[PodInfo, str]] = []
    for leaf in leaf_decisions(best):
        for info in leaf.tree.waiting if isinstance(leaf.tree, Leaf) else ():
            node = leaf.members[info.uid].node_name
            if node is not None:
                before.append((info, node))
            elif refused is None:
                refused = info
    with state.engine.suppose(place=before):
        yield refused

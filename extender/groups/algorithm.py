"""Decides about a tree of pod groups, one member after the other.

For each member, the members before it count as being on their nodes already. Source: upstream schedule_one_podgroup.go
(podGroupSchedulingDefaultAlgorithm, podGroupSchedulingPlacementAlgorithm, compositePodGroupSchedulingDefaultAlgorithm),
and PlacementFeasible of GangScheduling.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from extender.errors import DeadlineExceeded
from extender.framework.profile import Profile
from extender.groups.decision import UNSCHEDULABLE_GROUP, GroupDecision, GroupStatus, MemberDecision
from extender.groups.group_tree import Composite, Leaf, Tree, excess, too_deep, waiting_members
from extender.groups.topology_placements import (
    DEFAULT_SCORING,
    NO_PLACEMENTS,
    PlacementScoring,
    TopologyPlacement,
    domains,
    large_enough,
    total_scores,
)
from extender.model.requests import is_scalar
from extender.plugins.node_resources_fit import NAME as NODE_RESOURCES_FIT
from extender.plugins.node_resources_scores import NodeResourcesFitScore
from extender.table import PodInfo, Trial
from extender.table.features import Behaviours
from extender.table.labels import Rows

NONE_PLACED = "no pods were schedulable"
NONE_PLACED_THERE = "nominated placement is feasible but no pending pod was scheduled"


class DecideOne(Protocol):
    """Decides about one member without changing the table. `rows` are the nodes to consider; None means all nodes."""

    def __call__(self, info: PodInfo, rows: Rows | None, /) -> MemberDecision: ...


Choose = Callable[[Sequence[GroupDecision]], GroupDecision]
"""Chooses one of several equally good decisions about a group, for example with Random.choice."""


class PlacementObserver:
    """Observes the attempts to place a group in topology domains. This base class observes nothing."""

    def generated(self, tree: Tree, count: int) -> None:
        """Observes the number of domains in which the group may be placed. Called before they are tried."""

    def evaluate(self, tree: Tree, decide: Callable[[], GroupDecision]) -> GroupDecision:  # noqa: ARG002  an observer's
        """Calls `decide`, which tries the group in one domain, and returns the decision."""
        return decide()


UNOBSERVED = PlacementObserver()


@dataclass(frozen=True, slots=True)
class GroupRules:
    """The settings of a profile that affect how groups are scheduled.

    Attributes:
        enforces_gangs: True if the profile has GangScheduling; otherwise a group succeeds with any number of members.
        by_placements: True if each topology domain is tried for a group (the gate TopologyAwareWorkloadScheduling).
        scoring: the weights that score the topology domains.
        checks_requests: True if the profile has the filter of NodeResourcesFit.
        percentage_of_placements_to_score: see Profile.
    """

    enforces_gangs: bool = True
    by_placements: bool = False
    scoring: PlacementScoring = DEFAULT_SCORING
    checks_requests: bool = False
    percentage_of_placements_to_score: int = 0

    @classmethod
    def of(cls, profile: Profile, *, by_placements: bool) -> GroupRules:
        fits = (each.priority for each in profile.priorities if isinstance(each.priority, NodeResourcesFitScore))
        scoring = next((PlacementScoring(resources=fit.resources) for fit in fits), DEFAULT_SCORING)
        checks_requests = any(predicate.name == NODE_RESOURCES_FIT for predicate in profile.predicates)
        percentage = profile.percentage_of_placements_to_score
        return cls(profile.enforces_gangs, by_placements, scoring, checks_requests, percentage)

    @classmethod
    def beside_scheduler(cls, profile: Profile, *, by_placements: bool) -> GroupRules:
        """Returns the rules for the webhook: every profile enforces gangs, as in kube-scheduler."""
        return replace(cls.of(profile, by_placements=by_placements), enforces_gangs=True)


DEFAULT_RULES = GroupRules()


def _first(decisions: Sequence[GroupDecision]) -> GroupDecision:
    return decisions[0]


def decide_group(
    root: Tree,
    trial: Trial,
    decide_one: DecideOne,
    rules: GroupRules = DEFAULT_RULES,
    choose: Choose = _first,
    observer: PlacementObserver = UNOBSERVED,
    rows: Rows | None = None,
) -> GroupDecision:
    """Decides about the whole tree of groups, and undoes all changes to `trial` before it returns.

    Args:
        trial: a table of the cluster, whose changes can be undone.
        decide_one: decides about one member on the trial's table.
        choose: chooses between placements with the same score. If every placement refuses the group, chooses the
            refusal to report. Upstream chooses at random.
        rows: the nodes to consider; None means all nodes.

    Raises what `decide_one` raises.
    """
    if (deepest := excess(root)) is not None:  # the attempt below calls itself once for each level
        return GroupDecision(root, GroupStatus.ERROR, (too_deep(deepest),))
    mark = trial.mark()
    try:
        for info in waiting_members(root):  # upstream ignores the nominations of members while it schedules their group
            trial.withdraw(info.uid)
        decision = _Attempt(root, trial, decide_one, rules, choose, observer).decide(root, rows)
    finally:
        trial.revert(mark)
    names_groups = trial.table.features.behaviours.failures_name_the_group
    if decision.is_success and not decision.placed:  # all members have a node already, or the group is empty
        reason = NONE_PLACED if names_groups else UNSCHEDULABLE_GROUP
        decision = replace(decision, status=GroupStatus.UNSCHEDULABLE, reasons=(reason,))
    return replace(decision, names_groups=names_groups)


@dataclass(slots=True)
class _Feasibility:
    """Counts the scheduled members, or child groups, and compares the count with the group's minimum.

    If `names_groups`, its reasons are in the words of kube-scheduler 1.38.
    """

    minimum: int
    remaining: int
    scheduled: int
    names_groups: bool
    unschedulable: int = 0

    def count(self, *, scheduled: bool) -> None:
        """Records that one more member, or child group, was tried."""
        self.remaining -= 1
        self.scheduled += scheduled
        self.unschedulable += not scheduled

    def is_lost(self) -> bool:
        """Returns True if too few members, or child groups, remain for the group to reach its minimum."""
        return self.remaining + self.scheduled < self.minimum

    def verdict(self) -> tuple[GroupStatus, tuple[str, ...]]:
        """Returns the group's status, and the reasons if the group is unschedulable."""
        if self.scheduled >= self.minimum:
            return GroupStatus.SCHEDULED, ()
        outcome = "cannot be satisfied" if self.is_lost() else "is not yet satisfied"
        if self.names_groups:
            threshold = f"scheduling policy's minimum threshold ({self.minimum}) {outcome}"
            counts = f"{self.scheduled} scheduled, {self.unschedulable} unschedulable, {self.remaining} not-evaluated"
            return GroupStatus.UNSCHEDULABLE, (f"{threshold}: {counts}",)
        text = f"minCount ({self.minimum}) {outcome}: {self.scheduled} scheduled, {self.remaining} remaining"
        return GroupStatus.UNSCHEDULABLE, (text,) if self.is_lost() else (UNSCHEDULABLE_GROUP, text)


@dataclass(frozen=True, slots=True)
class _Attempt:
    """One attempt to schedule a tree. The members that it places stay on their nodes in `trial`."""

    root: Tree
    trial: Trial
    decide_one: DecideOne
    rules: GroupRules
    choose: Choose
    observer: PlacementObserver

    def decide(self, tree: Tree, rows: Rows | None) -> GroupDecision:
        """Decides about the group on these nodes. If the group succeeds, its placed members stay on the table."""
        return self._by_placements(tree, rows) if self.rules.by_placements else self._on(tree, rows)

    def _on(self, tree: Tree, rows: Rows | None) -> GroupDecision:
        mark = self.trial.mark()
        decision = self._leaf(tree, rows) if isinstance(tree, Leaf) else self._composite(tree, rows)
        if not decision.is_success:
            self.trial.revert(mark)
        return decision

    def _leaf(self, leaf: Leaf, rows: Rows | None) -> GroupDecision:
        feasibility = self._feasibility(leaf.group.min_count, len(leaf.waiting), len(leaf.scheduled))
        if feasibility.is_lost():
            status, reasons = feasibility.verdict()
            return GroupDecision(leaf, status, self._as_unschedulable(*reasons))
        members: dict[str, MemberDecision] = {}
        for info in leaf.waiting:
            member = members[info.uid] = self.decide_one(info, rows)
            if member.is_error:
                reason = f"failed to schedule other pod from a pod group: {member.message}"
                return GroupDecision(leaf, GroupStatus.ERROR, (reason,), members)
            if member.node_name is not None:
                self._place(info, member, member.node_name)
            feasibility.count(scheduled=member.node_name is not None)
            if feasibility.is_lost():
                break
        return GroupDecision(leaf, *feasibility.verdict(), members)

    def _composite(self, composite: Composite, rows: Rows | None) -> GroupDecision:
        feasibility = self._feasibility(composite.group.min_count, len(composite.children), 0)
        children: dict[str, GroupDecision] = {}
        for child in composite.children:
            if feasibility.is_lost():
                break
            decision = children[child.group.key] = self.decide(child, rows)
            if decision.status is GroupStatus.ERROR:
                if not self._names_groups:
                    reason = f"composite pod group evaluation failed due to child error: {decision.cause}"
                    return GroupDecision(composite, GroupStatus.ERROR, (reason,))
                name, child_name = composite.group.name, child.group.name
                failed = f'composite pod group "{name}" evaluation failed due to child "{child_name}" error'
                return GroupDecision(composite, GroupStatus.ERROR, (f"{failed}: {decision.cause}",), children=children)
            feasibility.count(scheduled=decision.is_success)
        return GroupDecision(composite, *feasibility.verdict(), children=children)

    def _by_placements(self, tree: Tree, rows: Rows | None) -> GroupDecision:
        """Tries to place the group in each topology domain, and returns the decision with the highest score.

        Upstream tries every domain, or since 1.38 as many as it draws at random until enough of them take the group.
        Here the domains are sorted by the score they would have with all members. The search ends at the first domain
        that takes all members, because no later domain can score higher.
        """
        placements = domains(tree, self.trial.table, rows)
        if isinstance(placements, str):
            return GroupDecision(tree, GroupStatus.ERROR, (placements,))
        if not placements:
            return GroupDecision(tree, GroupStatus.UNSCHEDULABLE, (NO_PLACEMENTS,))
        is_observed = isinstance(tree, Leaf) or self._behaviours.composite_placements_are_counted
        observer = self.observer if is_observed else UNOBSERVED
        observer.generated(tree, len(placements))
        if (nominated := self._nominated(tree, placements)) is None:
            return self._best_placement(tree, placements, None, observer)
        decision = observer.evaluate(tree, partial(self._on_trial, tree, nominated))
        if decision.placed or decision.status is GroupStatus.ERROR:
            self._place_all(decision)
            return decision
        return self._best_placement(tree, placements, (nominated, decision), observer)

    def _best_placement(
        self,
        tree: Tree,
        placements: Sequence[TopologyPlacement],
        nominated: tuple[TopologyPlacement, GroupDecision] | None,
        observer: PlacementObserver,
    ) -> GroupDecision:
        """Returns the decision with the highest score; `nominated` is a placement that has been tried in vain."""
        others = [placement for placement in placements if nominated is None or placement is not nominated[0]]
        tried: list[tuple[TopologyPlacement, GroupDecision]] = []
        enough = self._enough(placements)
        for placement in self._most_promising_first(tree, self._large_enough(tree, others)):
            try:
                decision = observer.evaluate(tree, partial(self._on_trial, tree, placement))
            except DeadlineExceeded:
                if any(earlier.is_success for _, earlier in tried):
                    break  # the best placement so far is better than none
                raise
            if decision.status is GroupStatus.ERROR:
                return decision
            tried.append((placement, decision))
            enough -= decision.is_success
            if self._is_unsurpassed(decision) or not enough:
                break
        feasible = [(placement, decision) for placement, decision in tried if decision.is_success]
        if not feasible:
            first = self.choose([decision for _, decision in tried]) if nominated is None else nominated[1]
            return self._no_placement(first, len(placements))
        best = self._best(tree, feasible)
        self._place_all(best)
        return best

    def _nominated(self, tree: Tree, placements: Sequence[TopologyPlacement]) -> TopologyPlacement | None:
        """Returns the only placement with nominated nodes of the members, which an earlier preemption has emptied.

        As in upstream, a group below another one has no such placement.
        """
        if not self._behaviours.nominated_placement_first or tree is not self.root or not isinstance(tree, Leaf):
            return None
        row_of = self.trial.table.nodes.row_of
        rows = {row_of.get(info.pod.status.nominated_node_name, -1) for info in tree.waiting} - {-1}
        matching = [each for each in placements if rows and (each.rows is None or rows & set(each.rows.tolist()))]
        return matching[0] if len(matching) == 1 else None

    def _enough(self, placements: Sequence[TopologyPlacement]) -> int:
        """Returns how many placements that take the group end the search (upstream numFeasiblePlacementsToFind)."""
        if not self._behaviours.enough_placements_end_the_search:
            return len(placements)
        all_rows = self.trial.table.nodes.rows
        nodes = sum(len(all_rows if each.rows is None else each.rows) for each in placements)
        percentage = self.rules.percentage_of_placements_to_score or max(5, 100 - nodes * 9 // 500)
        return max(1, len(placements) * percentage // 100)

    def _on_trial(self, tree: Tree, placement: TopologyPlacement) -> GroupDecision:
        mark = self.trial.mark()
        try:
            decision = self._on(tree, placement.rows)
        finally:
            self.trial.revert(mark)
        return replace(decision, placement=placement.name)

    def _large_enough(self, tree: Tree, placements: Sequence[TopologyPlacement]) -> Sequence[TopologyPlacement]:
        """Returns the placements without those that cannot hold the group by a sum of its requests.

        If there is no other placement, the first is returned, so that its members say why they do not fit.
        """
        if len(placements) <= 1 or not (self.rules.enforces_gangs and self.rules.checks_requests):
            return placements
        return large_enough(tree, placements, self.trial.table) or placements[:1]

    def _most_promising_first(self, tree: Tree, placements: Sequence[TopologyPlacement]) -> Iterator[TopologyPlacement]:
        """Yields the placements, sorted by the score they would have with all members, the highest first.

        `choose` decides the order of placements with the same score.
        """
        if len(placements) <= 1:
            yield from placements
            return
        waiting = waiting_members(tree)
        proposed = [(placement, waiting) for placement in placements]
        totals = total_scores(tree, proposed, self.trial.table, self.rules.scoring)
        by_total: dict[int, dict[str, TopologyPlacement]] = {}
        for total, placement in zip(totals, placements, strict=True):
            by_total.setdefault(total, {})[placement.name] = placement
        for _, ties in sorted(by_total.items(), reverse=True):
            if_chosen = {name: GroupDecision(tree, GroupStatus.SCHEDULED, placement=name) for name in ties}
            while if_chosen:
                name = self.choose(list(if_chosen.values())).placement
                del if_chosen[name]
                yield ties[name]

    def _is_unsurpassed(self, decision: GroupDecision) -> bool:
        """Returns True if no placement that is tried later can have a higher score than this decision.

        The placements are sorted by their scores with all members. Therefore no later placement can beat a decision
        that places all members. Scores for extended resources are an exception. They count only if a placed member
        requests the resource, and may be higher with fewer members.
        """
        takes_all = decision.is_success and len(decision.placed) == len(waiting_members(decision.tree))
        return takes_all and not any(is_scalar(resource) for resource, _ in self.rules.scoring.resources)

    def _best(self, tree: Tree, feasible: Sequence[tuple[TopologyPlacement, GroupDecision]]) -> GroupDecision:
        if len(feasible) == 1:
            return feasible[0][1]
        infos = {info.uid: info for info in waiting_members(tree)}
        proposed = [(placement, [infos[uid] for uid in decision.placed]) for placement, decision in feasible]
        totals = total_scores(tree, proposed, self.trial.table, self.rules.scoring)
        ties = [decision for (_, decision), total in zip(feasible, totals, strict=True) if total == max(totals)]
        return self.choose(ties)

    def _no_placement(self, first: GroupDecision, placements: int) -> GroupDecision:
        """Returns the decision about a group that no placement can take, with the reason that the first one gave.

        The first one may take the group without placing another member; then this is the reason.
        """
        cause = NONE_PLACED_THERE if first.is_success else first.cause
        reason = f"0/{placements} placements are available, first placement status: {cause}"
        return replace(first, status=GroupStatus.UNSCHEDULABLE, reasons=self._as_unschedulable(reason))

    def _as_unschedulable(self, *reasons: str) -> tuple[str, ...]:
        return reasons if self._names_groups else (UNSCHEDULABLE_GROUP, *reasons)

    @property
    def _behaviours(self) -> Behaviours:
        return self.trial.table.features.behaviours

    @property
    def _names_groups(self) -> bool:
        return self._behaviours.failures_name_the_group

    def _place(self, info: PodInfo, member: MemberDecision, node_name: str) -> None:
        for obj in member.reserved:
            self.trial.set_object(obj)
        self.trial.place(info.annotated(member.annotations), node_name)

    def _place_all(self, decision: GroupDecision) -> None:
        """Places the members on their nodes again, so that groups decided later see them."""
        if not decision.is_success:
            return
        for child in decision.children.values():
            self._place_all(child)
        for info in decision.tree.waiting if isinstance(decision.tree, Leaf) else ():
            member = decision.members.get(info.uid)
            if member is not None and member.node_name is not None:
                self._place(info, member, member.node_name)

    def _feasibility(self, minimum: int, remaining: int, scheduled: int) -> _Feasibility:
        minimum = minimum if self.rules.enforces_gangs else 0
        return _Feasibility(minimum, remaining, scheduled, self._names_groups)

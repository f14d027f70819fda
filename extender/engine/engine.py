"""Answers questions about pods on one table: the door to the engine for offline answers, pages and users' code.

`Engine.decide` returns a `Decision` that examines every node. `Engine.suppose` changes the table for the length of a
`with` block. The callers need not know how rules, scores and preemption are run.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import numpy as np

from extender.engine.decide import FIRST, RandomNumbers, SchedulingCycle, Scope
from extender.engine.decision import Chosen, Decision, Failure, IntArray
from extender.engine.group_members import NOT_TRIED, GroupSchedulingCycle, MemberJudge
from extender.errors import ExtenderError, MalformedCluster, MalformedQuantity, RuleFailed, RuleHangs, RuleUnanswered
from extender.framework.find_fit import FITS, Fit, awaited_pods, outside, prepare
from extender.framework.profile import Profiles
from extender.framework.status import Refusal
from extender.groups import Composite, GroupDecision, GroupRules, GroupStatus, Tree
from extender.groups.group_preemption import GroupPreemption
from extender.groups.group_tree import leaves, waiting_members
from extender.model.meta import Object
from extender.model.pod import Pod
from extender.model.pod_groups import SchedulingGroup
from extender.plugins import details
from extender.preemption.evaluator import Preemption
from extender.runtime.clock import INTERRUPTIONS, NO_LIMIT, TimeLimit, note_subject
from extender.table import PodInfo, Table, Trial
from extender.table.labels import Rows


class DecisionLimit:
    """Limits the time of each decision. No decision starts while a user's rule from an earlier decision still runs.

    Attributes:
        time: the limit, which starts again for each decision.
        unanswered: the last rule that exceeded the limit, or None. The rule may still be running.
    """

    def __init__(self, time: TimeLimit = NO_LIMIT) -> None:
        self.time = time
        self.unanswered: RuleUnanswered | None = None

    @contextmanager
    def begin(self, table: Table) -> Iterator[None]:
        """Limits the time of the `with` block.

        Raises DeadlineExceeded if the block takes too long, or if the rule in `unanswered` still runs.
        """
        late = self.unanswered
        if late is not None and late.has_returned is not None and not late.has_returned():
            raise RuleUnanswered(f"{late} yet")
        try:
            with table.until(self.time.begin()):
                yield
        except RuleUnanswered as error:
            self.unanswered = error
            raise


class Engine:
    """Decides about pods on one table. One thread at a time may use it.

    A pod that is on a node is judged as if it were waiting. Every method that decides raises:
        MalformedCluster: the pod has a malformed quantity.
        RuleFailed: a user's rule raised.
        DeadlineExceeded: the limit has passed.
    """

    def __init__(
        self, table: Table, profiles: Profiles, limit: DecisionLimit | None = None, random: RandomNumbers = FIRST
    ) -> None:
        """
        Args:
            random: chooses between equally good nodes and topology domains; by default the first is chosen.
        """
        self.table = table
        self.profiles = profiles
        self.limit = limit or DecisionLimit()
        self._random = random
        self._judge = MemberJudge(random)

    def decide(self, pod: Pod | PodInfo, nodes: Iterable[str] | None = None) -> Decision:
        """Filters and scores the nodes for the pod, tries preemption if none can take it, and returns the decision.

        By default, all nodes are considered.
        """
        info = self._waiting(pod)
        with self._deciding(info):
            decision = self._cycle(info).decide(info, self.table, self._rows(nodes), Scope.EVERYTHING)
            if decision.cause is not None:
                raise decision.cause
        return decision

    def attempt(self, info: PodInfo) -> Chosen | Failure:
        """Decides about a waiting pod as the scheduling loop does, which examines no more nodes than it needs."""
        with self._within_limit(info.pod):
            return self._cycle(info).decide(info, self.table).outcome

    def decide_group(self, tree: Tree, *, enforces_gangs: bool = True, rows: Rows | None = None) -> GroupDecision:
        """Decides about all waiting members of a group together.

        Each topology domain is tried if a group has a topology constraint or the root is a CompositePodGroup.

        Args:
            enforces_gangs: if False, as many members as fit are placed.
            rows: the nodes to consider; None means all nodes.
        """
        if not waiting_members(tree):
            return GroupDecision(tree, GroupStatus.SCHEDULED)
        with self._within_limit(tree.group):
            return self._group(tree, enforces_gangs=enforces_gangs).decide(rows)

    def preempt_for_group(self, decision: GroupDecision) -> GroupPreemption:
        """Returns the pods to evict for the root group of this decision; NOT_TRIED if it was not refused."""
        if decision.status is not GroupStatus.UNSCHEDULABLE or not waiting_members(decision.tree):
            return NOT_TRIED
        with self._within_limit(decision.tree.group):
            return self._group(decision.tree).preempt(decision)

    def feasible(
        self, pod: Pod | PodInfo, nodes: Iterable[str] | None = None, *, despite_errors: bool = False
    ) -> list[str]:
        """Returns those of the nodes that can take the pod, without scoring them; `nodes=None` means all nodes.

        If a filter ends in an error on any node, the result is empty, unless `despite_errors` is True.
        """
        info = self._waiting(pod)
        with self._deciding(info):
            fit, feasible = self._cycle(info).filter(info, self.table, self._rows(nodes))
        return self.table.nodes.names_of(fit.feasible if despite_errors else feasible)

    def preempt(self, pod: Pod | PodInfo, nodes: Iterable[str] | None = None) -> Preemption:
        """Returns which pods preemption would evict for the pod, even if the pod's profile has no preemption.

        Preemption tries `nodes`, by default all nodes on which an eviction may help.
        """
        info = self._waiting(pod)
        cycle = self._cycle(info)
        with self._deciding(info):
            fit, _ = cycle.filter(info, self.table, self.table.nodes.rows)
            return cycle.preempt(info, self.table, fit, None if nodes is None else self._rows(nodes))

    def filter_by(self, plugin: str, pod: Pod | PodInfo, nodes: Iterable[str]) -> dict[str, Refusal]:
        """Runs one filter of the pod's profile; returns the refusal of each node that it refuses, by node name.

        Pods that are nominated to the nodes are not counted. If the filter restricts the pod to certain nodes in
        advance (upstream PreFilterResult), the pod's own nominated node is allowed too, because the scheduler checks
        it alone.
        """
        info, rows = self._waiting(pod), self._rows(nodes)
        fit = Fit(rows)
        for predicate in self.profiles.of(info.pod).predicates:
            if predicate.name != plugin:
                continue
            with self._deciding(info):
                prepared = predicate.prepare(info, self.table)
                if isinstance(prepared, Refusal):
                    fit.refuse(np.arange(len(rows)), prepared)
                elif prepared is not None:
                    fit.refuse_all(None, prepared.refuse(rows))
                    if prepared.only is not None:
                        remaining = np.flatnonzero(fit.cause == FITS)
                        only = prepared.only | {info.pod.status.nominated_node_name}
                        fit.refuse_all(remaining, outside(only, [plugin], self.table, rows[remaining]))
        return {self.table.nodes.names[row]: refusal for row, refusal in fit.refused()}

    def awaited_on(self, node_name: str, pod: Pod | PodInfo) -> list[PodInfo]:
        """Returns the pods that are nominated to the node and for which `pod` must leave room there."""
        info, row = self._waiting(pod), self.table.nodes.row_of[node_name]
        return awaited_pods(self.profiles.of(info.pod), info, self.table).by_row().get(row, [])

    def filters(self, pod: Pod | PodInfo) -> list[str]:
        """Returns the names of the filters in the pod's profile, in the order in which they run."""
        return [predicate.name for predicate in self.profiles.of(self._waiting(pod).pod).predicates]

    def disabled_filters(self, pod: Pod | PodInfo) -> Sequence[str]:
        """Returns the names of the filters that the pod's profile disables."""
        return self.profiles.of(self._waiting(pod).pod).disabled_filters

    def detail(self, plugin: str, reason: str, pod: Pod | PodInfo, nodes: Iterable[str]) -> str:
        """Returns the numbers behind the `reason` with which a plugin refused these nodes; "" if there are none."""
        info = self._waiting(pod)
        with self._deciding(info):
            awaited = awaited_pods(self.profiles.of(info.pod), info, self.table)
            return details.detail(plugin, reason, info, self.table, self._rows(nodes), awaited)

    def free_for(self, pod: Pod | PodInfo, resource: str, nodes: Iterable[str]) -> IntArray:
        """Returns how much of a resource each node has free, minus what nominated pods will take: int64[len(nodes)]."""
        info, rows = self._waiting(pod), self._rows(nodes)
        index = self.table.nodes.resources.get(resource)
        if index is None:
            return np.zeros(len(rows), np.int64)
        columns = self.table.nodes
        awaited = awaited_pods(self.profiles.of(info.pod), info, self.table).taken(index, columns.capacity)
        with self.suppose(remove=[info]):
            free: IntArray = columns.allocatable[index] - columns.requested[index] - awaited
            return free[rows]

    def depends_on_resources_only(self, pod: Pod | PodInfo) -> bool:
        """Returns True if other pods can keep this pod from a node only by using up the node's resources."""
        info = self._waiting(pod)
        with self._deciding(info):
            checks = prepare(self.profiles.of(info.pod), info, self.table).checks
        return all(check.sees_resources_only or not check.sees_pods for _, check in checks)

    @contextmanager
    def suppose(
        self,
        *,
        place: Iterable[tuple[PodInfo, str]] = (),
        remove: Iterable[PodInfo] = (),
        objects: Iterable[Object] = (),
    ) -> Iterator[None]:
        """Changes the table for the length of a `with` block, then undoes the changes in reverse order.

        The changes are made in this order: objects, removals, placements. They are undone even if the block raises, or
        if one of them cannot be made. Blocks may be nested. A supposed pod counts exactly as a real one does.

        Args:
            place: pairs of a pod and the name of its new node. A pod that is on another node is moved.
            remove: pods to remove from their nodes; their nominations are removed, too.
            objects: nodes and objects of other kinds to add or replace. A Pod among them is placed on its node.
        """
        trial = Trial(self.table)
        try:
            for obj in objects:
                trial.set_object(obj)
            for info in remove:
                trial.take_away(info.uid)
            for info, node_name in place:
                trial.place(info, node_name)
            yield
        finally:
            trial.revert()

    @contextmanager
    def _deciding(self, info: PodInfo) -> Iterator[None]:
        """Runs the block within the time limit of a decision, as if the pod were on no node."""
        with self._within_limit(info.pod), self.table.hypothetically(removed=[info.uid]):
            yield

    @contextmanager
    def _within_limit(self, subject: Pod | SchedulingGroup) -> Iterator[None]:
        """Runs the block within the time limit. An error names the subject, or the user's rule that caused it."""
        try:
            with self.limit.begin(self.table):
                yield
        except INTERRUPTIONS as error:
            kind = "pod" if isinstance(subject, Pod) else type(subject).__name__
            note_subject(error, f"{kind} {subject.key}")
            raise
        except Exception:
            with quantities_of(subject), rule_errors():
                raise

    def _waiting(self, pod: Pod | PodInfo) -> PodInfo:
        """Returns the pod without its node name, so that it is judged like a waiting pod."""
        info = PodInfo(pod) if isinstance(pod, Pod) else pod
        placed = info.uid in self.table.pods.slot_of
        return PodInfo(info.pod.placed_on("")) if placed and info.pod.node_name else info

    def _rows(self, nodes: Iterable[str] | None) -> Rows:
        if nodes is None:
            return self.table.nodes.rows
        return np.array([self.table.nodes.row_of[name] for name in nodes], np.intp)

    def _group(self, tree: Tree, *, enforces_gangs: bool = True) -> GroupSchedulingCycle:
        profile = self.profiles.of(waiting_members(tree)[0].pod)
        by_placements = isinstance(tree, Composite) or any(leaf.group.topology_key for leaf in leaves(tree))
        rules = GroupRules.of(profile, by_placements=by_placements)
        rules = rules if enforces_gangs else replace(rules, enforces_gangs=False)
        decides = partial(self._judge, profile, self.table)
        return GroupSchedulingCycle(tree, Trial(self.table), decides, profile, rules, self._choose)

    def _choose(self, decisions: Sequence[GroupDecision]) -> GroupDecision:
        return decisions[self._random.randrange(len(decisions))]

    def _cycle(self, info: PodInfo) -> SchedulingCycle:
        return self._judge.cycle(self.profiles.of(info.pod))


@contextmanager
def quantities_of(obj: Object) -> Iterator[None]:
    """Turns a MalformedQuantity in the `with` block into a MalformedCluster, whose message names the object."""
    try:
        yield
    except MalformedQuantity as error:
        raise MalformedCluster(f"{type(obj).__name__} {obj.key}: {error}") from None


@contextmanager
def rule_errors() -> Iterator[None]:
    """Turns an exception of a user's rule in the `with` block into a RuleFailed, whose message names the rule."""
    try:
        yield
    except ExtenderError:
        raise
    except RuleHangs as error:
        raise RuleFailed(str(error)) from None
    except Exception as error:
        if not (notes := "; ".join(getattr(error, "__notes__", ()))):
            raise
        place = traceback.extract_tb(error.__traceback__)[-1]
        message = " ".join(f"{type(error).__name__}: {error}".split())
        raise RuleFailed(
            f"{notes.removeprefix('in ')} raised {message} ({place.filename}, line {place.lineno})"
        ) from error

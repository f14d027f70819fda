"""Explains a pod group: how many members fit together, what stops the next one, what would help, and who is evicted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from extender.engine.group_members import NOT_TRIED, with_reasons
from extender.errors import UnknownPod
from extender.groups import Composite, GroupDecision, GroupStatus, Tree
from extender.groups.group_preemption import GroupPreemption, idle_claims
from extender.groups.group_tree import leaves, scheduled_members, waiting_members
from extender.groups.topology_placements import domains
from extender.model.pod_groups import PodGroup
from extender.offline import rendering
from extender.offline.answers import CauseCode, Documented
from extender.offline.claims import without_group
from extender.offline.explain.explanation import Explanation
from extender.offline.explain.group_changes import (
    created_group_changes,
    decide_children,
    group_changes,
    obstacle_changes,
    without_own_topology,
    without_topology,
)
from extender.offline.explain.search import violated_budgets
from extender.offline.explain.suggestion import ChangeDocument, SuggestedChange, change_document
from extender.offline.groups import (
    GroupKind,
    GroupVerdict,
    GroupVerdicts,
    MissingGroup,
    admits_all,
    fitting_placed,
    member_outcomes,
    nodes_in,
)
from extender.offline.remarks import remarks_on
from extender.offline.state import ClusterState
from extender.runtime.clock import known_so_far
from extender.runtime.text import counted, did_you_mean, nearest
from extender.table import PodInfo
from extender.table.labels import Rows


class EvictedUnit(Documented, frozen=True):
    """Pods that are evicted together.

    Attributes:
        pods: the node from which each pod is evicted.
        group: the PodGroup that is evicted as a whole (`disruptionMode: all`); None for a single pod.
    """

    pods: Mapping[str, str]
    group: str | None = None


class GroupEvictions(Documented, frozen=True):
    """The evictions with which preemption would make room for a group.

    Attributes:
        units: the evicted units, the most important first; empty if the victims are leaving already.
        violated_budgets: the PodDisruptionBudgets that do not allow all of these evictions.
        nominated: the node where each member fits once the victims have left.
        message: the outcome in kube-scheduler's words.
    """

    units: Sequence[EvictedUnit]
    violated_budgets: Sequence[str]
    nominated: Mapping[str, str]
    message: str


def _units(state: ClusterState, victims: Sequence[PodInfo]) -> list[EvictedUnit]:
    units: dict[str, EvictedUnit] = {}
    for info in victims:
        group = state.objects.get(PodGroup, info.pod.group_key) if info.pod.group_key is not None else None
        whole = group.key if group is not None and group.is_disrupted_whole else None
        name = f"group {whole}" if whole is not None else f"pod {info.pod.key}"
        pods = units[name].pods if name in units else {}
        units[name] = EvictedUnit({**pods, info.pod.key: info.pod.node_name}, whole)
    return list(units.values())


class DomainOffer(Documented, frozen=True):
    """The part of a group that fits into one topology domain.

    Attributes:
        domain: the topology domain, such as a zone.
        nodes: the number of its nodes.
        placed: the number of waiting members that fit into the domain together.
        message: why the next member does not fit into the domain; empty if all fit.
    """

    domain: str
    nodes: int
    placed: int
    message: str


class ChildGroup(Documented, frozen=True):
    """The outcome for one child of a CompositePodGroup, with the members of earlier children on their nodes.

    Attributes:
        kind, key: the kind of the child group, and its `namespace/name`.
        fits: True if the child group would be scheduled.
        scheduled, waiting: the number of members with and without a node.
        message: why the child group would not be scheduled; empty if it would be.
    """

    kind: GroupKind
    key: str
    fits: bool
    scheduled: int
    waiting: int
    message: str


class GroupExplained(Documented, frozen=True):
    """The reason why a pod group is pending, or the nodes of its members.

    Attributes:
        causes: the causes, the most important first.
        verdict: the decision in the words of kube-scheduler, without preemption.
        scheduler_message: the message that kube-scheduler writes into the group's condition; empty if it writes none.
        placed: the node of each pod in the placement that fits as many members as possible.
        pending: the reason why each pod is not placed.
        refused: the first member without a node, as an Explanation.
        domain: KEY=VALUE of the topology domain that `placed` and `refused` are about; empty without a topology
            constraint.
        evictions: the pods that preemption would evict for the group.
    """

    group: str
    group_kind: GroupKind
    policy: str
    fits: bool
    message: str
    causes: Sequence[CauseCode]
    verdict: str
    scheduler_message: str
    scheduled: int
    waiting: int
    placed: Mapping[str, str]
    pending: Mapping[str, str]
    refused: dict[str, Any] | None
    domain: str
    domains: Sequence[DomainOffer]
    child_groups: Sequence[ChildGroup]
    evictions: GroupEvictions | None
    changes: Sequence[ChangeDocument]
    notes: Sequence[str]


class GroupExplanation:
    """The answer to "why is this group pending, or where would it be placed".

    Attributes:
        verdict: the decision about the group, or the reason why no scheduler tries it.
        placed: pod -> its node, if as many members as fit were placed.
        refused: explains why the first member without a node finds none, with the members in `placed` on their nodes;
            None if every member finds a node, or if no scheduler tries the group.
        domain: the topology domain in which `placed` and `refused` were decided, as KEY=VALUE; "" if there is no such
            domain.
    """

    def __init__(self, state: ClusterState, groups: GroupVerdicts, verdict: GroupVerdict) -> None:
        self._state = state
        self._groups = groups
        self.verdict = verdict
        self.placed: dict[str, str] = {}
        self.refused: Explanation | None = None
        self.domain = ""
        if verdict.tree is not None and verdict.decision is not None:
            self._judge(state.engine.decide_group(verdict.tree, enforces_gangs=False))

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
        """The number of members that have a node."""
        return len(scheduled_members(self.verdict.tree)) if self.verdict.tree is not None else 0

    @property
    def fits(self) -> bool:
        """True if a scheduler would place the group now."""
        return self.verdict.fits

    @property
    def message(self) -> str:
        """The verdict in one sentence."""
        decision = self.verdict.decision
        if decision is None or decision.status is GroupStatus.ERROR:
            return self.verdict.text
        if not self.waiting:
            return "no member waits for a node"
        if (key := self._missing_topology_key) is not None:
            return f"no node has the label {key}, by which its topology constraint divides the nodes"
        if not self.placed and not decision.is_success:
            return f"none of its {counted(self.waiting, 'waiting member')} finds a node"
        found = f"{len(self.placed)} of {self.waiting} waiting members find a node"
        if self.domain:
            found += f" in {self.domain}"
        if self.verdict.fits:
            return found
        if self.child_groups:
            fitting = sum(child.fits for child in self.child_groups)
            found = f"{fitting} of {counted(len(self.child_groups), 'child group')} fit; {found}"
        return found if decision.is_success else f"none of its members is placed, because only {found}"

    @property
    def policy(self) -> str:
        """The group's policy, topology and priority as text, such as `gang of at least 4 members, priority 0`."""
        tree = self.verdict.tree
        if tree is None:
            return ""
        unit = "child groups" if isinstance(tree, Composite) else "members"
        needs = f"gang of at least {tree.group.min_count} {unit}" if tree.group.is_gang else "basic"
        within = f", all within one {tree.group.topology_key}" if tree.group.topology_key else ""
        return f"{needs}{within}, priority {tree.group.priority}"

    @property
    def notes(self) -> list[str]:
        """Remarks on the waiting members, such as that another scheduler places them."""
        return remarks_on(self._state, [info.pod for info in self._waiting])

    @cached_property
    def causes(self) -> list[CauseCode]:
        """The codes of the reasons why the group waits, the most important first; [FITS] if all members fit."""
        if self.verdict.obstacle is not None:
            return [self.verdict.obstacle.code]
        if self.fits or not self.waiting:
            return [CauseCode.FITS]
        of_member = [reason.code for reason in self.refused.reasons] if self.refused is not None else []
        causes = [CauseCode.TOPOLOGY, *of_member] if self._topology_decides else of_member
        return list(dict.fromkeys(causes)) or [CauseCode.NO_VERDICT]

    @property
    def blocker(self) -> str:
        """The reason why the first member without a node finds none; `message` if no member is refused."""
        if self.refused is None or not self.refused.reasons:
            return self.message
        first = self.refused.reasons[0]
        return f"{first.reason} ({first.detail})" if first.detail else first.reason

    @cached_property
    def scheduler_message(self) -> str:
        """The message of the group's condition, as kube-scheduler writes it; empty if it would write none."""
        tree, decision = self.verdict.tree, self.verdict.decision
        if tree is None or decision is None or decision.is_success:
            return ""
        if decision.status is not GroupStatus.UNSCHEDULABLE:
            return decision.text
        profile = self._state.profiles.of(waiting_members(tree)[0].pod)
        idle = idle_claims(decision, profile, self._state.table)
        return with_reasons(decision, self._preemption, idle).text

    @cached_property
    def evictions(self) -> GroupEvictions | None:
        """The pods that preemption would evict for the group; None if it would evict none."""
        preemption = self._preemption
        if not preemption.helps:
            return None
        names = {info.uid: info.pod.key for info in self._waiting}
        nominated = {names[uid]: node for uid, node in preemption.nominated.items()}
        violated = violated_budgets(self._state, preemption.victims)
        return GroupEvictions(_units(self._state, preemption.victims), violated, nominated, preemption.text)

    @cached_property
    def domains(self) -> list[DomainOffer]:
        """The number of members that fit into each domain of the topology constraint, the best domain first.

        Empty without a topology constraint.
        """
        tree = self.verdict.tree
        if tree is None or tree.group.topology_key is None or self.verdict.decision is None or not self.waiting:
            return []
        placements = domains(tree, self._state.table, None)
        if isinstance(placements, str):
            return []
        offers = [self._offer(tree, placement.name, placement.rows) for placement in placements]
        return sorted(offers, key=lambda offer: (-offer.placed, offer.domain))

    @cached_property
    def child_groups(self) -> list[ChildGroup]:
        """The outcome for each child group of a CompositePodGroup; empty for a PodGroup.

        Every child is tried, even if the group can no longer reach its minimum.
        """
        tree = self.verdict.tree
        if not isinstance(tree, Composite) or self.verdict.decision is None:
            return []
        decision = decide_children(self._state, tree)
        return [_child_group(child, decision.children.get(child.group.key)) for child in tree.children]

    @cached_property
    def changes(self) -> list[SuggestedChange]:
        """The changes after which all waiting members would be placed, the smallest first; each has been tried."""
        if self.fits or self._state.nodes_unread:
            return []
        with known_so_far(lambda: f"the search for changes has not ended, but the verdict is known: {self.message}"):
            return self._found_changes()

    def _found_changes(self) -> list[SuggestedChange]:
        verdict = self.verdict
        if verdict.tree is None:
            missing = self._groups.membership.root_named(verdict.kind, verdict.key)
            # A group of a circle, or below too many others, exists, but no scheduler would try its tree.
            if not isinstance(missing, MissingGroup) or missing.is_circular or missing.is_too_high:
                return []
            return created_group_changes(self._state, self._groups.membership, missing)
        if not self.waiting:  # every member that exists has a node; the group lacks pods
            return []
        if verdict.obstacle is not None:
            return obstacle_changes(self._state, verdict.tree, verdict.obstacle)
        return group_changes(self._state, verdict.tree)

    def to_dict(self, *, changes: bool = True) -> dict[str, Any]:
        """Returns the documented form, ready for JSON: see docs/pod-groups.md."""
        return GroupExplained(
            group=self.verdict.key,
            group_kind=self.verdict.kind,
            policy=self.policy,
            fits=self.fits,
            message=self.message,
            causes=self.causes,
            verdict=self.verdict.text,
            scheduler_message=self.scheduler_message,
            scheduled=self.scheduled,
            waiting=self.waiting,
            placed=self.placed,
            pending={info.pod.key: self.verdict.failures.get(info.uid, "") for info in self._waiting},
            refused=self.refused.to_dict(changes=False) if self.refused is not None else None,
            domain=self.domain,
            domains=self.domains,
            child_groups=self.child_groups,
            evictions=self.evictions,
            changes=[change_document(change) for change in self.changes] if changes else [],
            notes=self.notes,
        ).to_dict()

    def _repr_html_(self) -> str:
        return rendering.part("group.html", self.to_dict())

    def to_html(self, *, changes: bool = True) -> str:
        """Returns the answer as a web page in one self-contained file."""
        return rendering.file("group.html", self.to_dict(changes=changes))

    @property
    def _waiting(self) -> list[PodInfo]:
        return waiting_members(self.verdict.tree) if self.verdict.tree is not None else []

    @property
    def _missing_topology_key(self) -> str | None:
        """The topology key of the group, if no node has a label with this key; else None."""
        tree = self.verdict.tree
        key = tree.group.topology_key if tree is not None else None
        return key if not self.domains else None

    @property
    def _topology_decides(self) -> bool:
        """True if all members would fit without the topology constraints."""
        tree = self.verdict.tree
        if tree is None or not any(each.group.topology_key for each in (tree, *leaves(tree))):
            return False
        return admits_all(self._state.engine.decide_group(without_topology(tree)))

    @cached_property
    def _preemption(self) -> GroupPreemption:
        decision = self.verdict.decision
        return NOT_TRIED if decision is None else self._state.engine.preempt_for_group(decision)

    def _judge(self, best: GroupDecision) -> None:
        """Sets `placed`, `refused` and `domain` from `best`, a decision that places as many members as fit."""
        outcomes = list(member_outcomes(best))
        self.placed = {each.info.pod.key: each.node_name for each in outcomes if each.node_name is not None}
        with fitting_placed(self._state, best) as refused:
            if refused is not None:
                pod = without_group(refused.info.pod, self._state.table)
                explanation = Explanation(self._state, pod, nodes=nodes_in(self._state, refused.domains))
                self.refused = None if explanation.decision.feasible else explanation
        shown = refused or next(iter(outcomes), None)
        self.domain = ", ".join(f"{key}={value}" for key, value in shown.domains.items()) if shown else ""

    def _offer(self, tree: Tree, domain: str, rows: Rows | None) -> DomainOffer:
        decision = self._state.engine.decide_group(without_own_topology(tree), enforces_gangs=False, rows=rows)
        outcomes = list(member_outcomes(decision))
        message = next((outcome.message for outcome in outcomes if outcome.node_name is None), "")
        placed = sum(outcome.node_name is not None for outcome in outcomes)
        return DomainOffer(domain, len(rows) if rows is not None else 0, placed, message)


def explain_group(state: ClusterState, kind: str, key: str) -> GroupExplanation:
    """Explains the group, or the root group above it if it has a parent.

    Raises:
        UnknownPod: the cluster has no such group.
    """
    groups = GroupVerdicts(state)
    found = groups.membership.root_named(kind, key)
    if found is None:
        names = {each: each.partition("/")[2] for each in state.objects.of_kind(kind)}
        near = nearest(key.partition("/")[2], names.values())
        similar = [each for each, name in names.items() if name in near]
        raise UnknownPod(f"no {kind} {key} in this cluster{did_you_mean(similar)}")
    return GroupExplanation(state, groups, groups.of_root(found))


def _child_group(tree: Tree, decision: GroupDecision | None) -> ChildGroup:
    """Describes the decision about a child group.

    The message is about the first member without a node, because the decision tries no members after it.
    """
    fits = decision is not None and decision.is_success
    waiting = len(waiting_members(tree))
    outcomes = list(member_outcomes(decision)) if decision is not None else []
    refused = next((outcome for outcome in outcomes if outcome.node_name is None), None)
    message = ""
    if not fits and refused is not None:
        placed = sum(outcome.node_name is not None for outcome in outcomes)
        own, _, _ = refused.message.partition(" preemption: ")
        message = f"only {placed} of {waiting} waiting members find a node: {own}"
    return ChildGroup(type(tree.group).__name__, tree.group.key, fits, len(scheduled_members(tree)), waiting, message)

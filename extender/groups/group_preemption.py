"""Finds what a whole group needs to fit: pods to evict anywhere in the cluster, or device claims to release.

Pods that must be evicted together form a unit. All units of lower priority are removed, the group is scheduled once,
and then as many units as possible are put back. Source: upstream podgrouppreemption.go (Preempt,
selectVictimsOnDomain), FilterVictimsWithPDBViolation.

If a group fits nowhere, its idle claims are released, so that the group may get other devices. Source: upstream
DynamicResources.PodGroupPostFilter.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from extender.devices.plan import ClaimsOfVictims, deallocated, idle_claim, take_devices, unavailable_claims
from extender.devices.pod_claims import NAME, PodDeviceClaims, group_claims, pod_device_claims
from extender.framework.find_fit import Fit, find_fit
from extender.framework.profile import Profile
from extender.groups.decision import GroupDecision, GroupStatus, MemberDecision
from extender.groups.group_tree import Leaf, Tree, waiting_members
from extender.model.devices import ResourceClaim
from extender.model.pod_groups import GroupName
from extender.model.workloads import PodDisruptionBudget
from extender.preemption.candidates import Disruption, UnitKind, disruption_of, evictable, tie_key
from extender.preemption.evaluator import NEVER, WAITS_FOR_DEVICES, pod_terminating_by_preemption
from extender.table import PodInfo, Table, Trial
from extender.table.features import FeatureGates
from extender.table.labels import Rows

Prefer = Callable[[Rows], Rows]
"""Takes the rows that can take a member, and returns those among which the best one is chosen."""
DecidePreferring = Callable[[Prefer | None], GroupDecision]
"""Decides about a whole tree. None means that all rows that can take a member are compared."""
_Cost = tuple[int, Sequence[tuple[int, int]], Sequence[tuple[UnitKind, int]]]
"""Of victims: the violations of budgets; (priority, number of pods), the highest first; (kind, number of pods) each."""
_NO_COST: _Cost = (0, [], [])

ONGOING = "ongoing preemption on nominated nodes"
NO_VICTIMS = "No preemption victims found for incoming preemptor"


@dataclass(frozen=True, slots=True)
class GroupPreemption:
    """The outcome of a group's preemption.

    Attributes:
        text: the outcome in kube-scheduler's words.
        helps: True if the group fits once the victims have left.
        is_final: True if the search ends PodGroupPostFilter, because no pod has a lower priority (until 1.37).
        is_error: True if an error ended the search.
        victims: the pods to evict, the most important first; empty if the victims are leaving already.
        nominated: UID of a member -> the node where the member fits once the victims have left.
        pdb_violations: the number of victims whose eviction violates a PodDisruptionBudget.
        disruptions: kind of victim -> the number of victims: pod, podgroup or compositepodgroup. Pods that are evicted
            together count once.
    """

    text: str
    helps: bool = False
    is_final: bool = False
    is_error: bool = False
    victims: Sequence[PodInfo] = ()
    nominated: Mapping[str, str] = field(default_factory=dict)
    pdb_violations: int = 0
    disruptions: Mapping[str, int] = field(default_factory=dict)

    @property
    def code(self) -> str:
        """The status code that PodGroupPostFilter returns in kube-scheduler."""
        if self.helps:
            return "Success"
        if self.is_error:
            return "Error"
        return "UnschedulableAndUnresolvable" if self.is_final else "Unschedulable"

    @property
    def has_searched(self) -> bool:
        """True unless the search was skipped: the group must not preempt, or earlier evictions will do.

        Since 1.38, it is also skipped if there are no victims.
        """
        skipped = (NEVER, ONGOING, WAITS_FOR_DEVICES)
        return self.text not in skipped and (self.is_final or self.text != NO_VICTIMS)


@dataclass(frozen=True, slots=True)
class VictimUnit:
    """Pods that are evicted together: a single pod, or all pods of a group with `disruptionMode: all`.

    Attributes:
        pods: pairs of a pod and the name of its node.
        priority: see `Disruption`.
    """

    pods: Sequence[tuple[PodInfo, str]]
    priority: int
    kind: UnitKind = UnitKind.POD

    def importance(self, table: Table) -> tuple[object, ...]:
        """Returns the sort key: the most important unit comes first, and ties are sorted by the first pod's tie key."""
        started = min(info.started_seconds for info, _ in self.pods)
        return -self.priority, -self.kind, -len(self.pods), started, tie_key(self.pods[0][0], table)


def preempt_for_group(root: Tree, trial: Trial, decide: DecidePreferring, profile: Profile) -> GroupPreemption:
    """Finds the pods to evict for a group that was refused; undoes all changes to `trial` before it returns.

    `decide` decides about the whole tree on the trial's table. Its exceptions are passed on.
    """
    members, behaviours = waiting_members(root), trial.table.features.behaviours
    priority = root.group.priority
    is_ongoing = _is_ongoing(members, trial.table, priority)
    if is_ongoing and behaviours.ongoing_preemption_comes_first:
        return GroupPreemption(ONGOING, helps=True)
    if _must_not_preempt(root, members, trial.table.features):
        return GroupPreemption(NEVER)
    if is_ongoing:
        return GroupPreemption(ONGOING, helps=True)
    claims = ClaimsOfVictims(trial.table) if profile.device_preemption else None
    mark = trial.mark()
    try:
        if claims is not None and _fits_once_deallocated(claims.left_behind, trial, decide):
            return GroupPreemption(WAITS_FOR_DEVICES, helps=True)
        units = victim_units(trial.table, priority)
        if not units:
            return GroupPreemption(NO_VICTIMS, is_final=not behaviours.no_victims_is_unschedulable)
        return _select(members, units, claims, trial, decide, profile)
    finally:
        trial.revert(mark)


def _fits_once_deallocated(claims: Sequence[ResourceClaim], trial: Trial, decide: DecidePreferring) -> bool:
    """Deallocates these claims in `trial`. Returns True if there are some, and the group fits without an eviction."""
    for claim in claims:
        trial.set_object(deallocated(claim))
    return bool(claims) and decide(None).is_success


def _must_not_preempt(root: Tree, members: Iterable[PodInfo], features: FeatureGates) -> bool:
    """Returns True if the group must not preempt, because its preemption policy is Never.

    If the feature gate for policies of groups is off, or the group has no policy, the group must not preempt if any
    member has the policy Never.
    """
    if features.pod_group_preemption_policy and root.group.spec.preemption_policy:
        return root.group.spec.preemption_policy == "Never"
    return any(info.pod.spec.preemption_policy == "Never" for info in members)


def _is_ongoing(members: Iterable[PodInfo], table: Table, priority: int) -> bool:
    """Returns True if pods of lower priority are leaving a node to which a member is nominated."""
    rows = {table.nodes.row_of.get(info.pod.status.nominated_node_name, -1) for info in members} - {-1}
    pods = (info for row in rows for info in table.pods.at(table.pods.on(row)))
    return any(
        disruption_of(info, table).priority < priority and pod_terminating_by_preemption(info.pod) for info in pods
    )


def victim_units(table: Table, priority: int) -> list[VictimUnit]:
    """Returns the pods and groups that are on nodes and have a lower priority than `priority`."""
    slots = evictable(table, np.flatnonzero(table.pods.row >= 0), priority)
    singles: list[VictimUnit] = []
    whole: dict[GroupName, list[tuple[PodInfo, str]]] = defaultdict(list)
    disruptions: dict[GroupName, Disruption] = {}
    for slot, info in zip(slots.tolist(), table.pods.at(slots), strict=True):
        row = int(table.pods.row[slot])
        placed = info, table.nodes.names[row]
        of = disruption_of(info, table)
        if not table.nodes.present[row]:
            continue
        if of.whole is None:
            singles.append(VictimUnit([placed], of.priority, of.kind))
        else:
            whole[of.whole].append(placed)
            disruptions[of.whole] = of
    together = [VictimUnit(pods, disruptions[name].priority, disruptions[name].kind) for name, pods in whole.items()]
    return [*singles, *together]


def _select(
    members: Sequence[PodInfo],
    units: Sequence[VictimUnit],
    claims: ClaimsOfVictims | None,
    trial: Trial,
    decide: DecidePreferring,
    profile: Profile,
) -> GroupPreemption:
    ordered = sorted(units, key=lambda unit: unit.importance(trial.table))
    violating = _violating(ordered, trial.table)
    for unit in ordered:
        for info, _ in unit.pods:
            trial.take_away(info.uid)
    for claim in claims.freed_by([info.uid for unit in ordered for info, _ in unit.pods]) if claims else ():
        trial.set_object(deallocated(claim))
    for info in members:  # Upstream ignores the nominations of members while it schedules their group.
        trial.withdraw(info.uid)
    ranks_nodes = trial.table.features.behaviours.preemption_ranks_nodes
    decision = decide(_EvictionCosts(ordered, violating, members, trial.table).cheapest if ranks_nodes else None)
    if not decision.is_success:
        return GroupPreemption(decision.text, is_error=decision.status is GroupStatus.ERROR)
    nominated = decision.placed
    placed = [info for info in members if info.uid in nominated]
    reprieve = _Reprieve(trial, profile, placed, decision.tried, claims)
    by_turn = sorted(ordered, key=lambda unit: id(unit) not in violating)
    leaving = {id(unit) for unit in by_turn if not reprieve.stays(unit)}
    evicted = [unit for unit in (by_turn if ranks_nodes else ordered) if id(unit) in leaving]
    victims = [info for unit in evicted for info, _ in unit.pods]
    return GroupPreemption(
        f"found a placement for podgroup, preempting {len(victims)} victims",
        helps=True,
        victims=victims,
        nominated=nominated,
        pdb_violations=sum(violating.get(id(unit), 0) for unit in evicted),
        disruptions=Counter(unit.kind.entity for unit in evicted),
    )


def _violating(ordered: Sequence[VictimUnit], table: Table) -> dict[int, int]:
    """Returns how many evictions in each unit would violate a PodDisruptionBudget, by `id(unit)`.

    A budget allows a number of disruptions. The units use them up in the order of `ordered`, the most important unit
    first.
    """
    budgets = table.objects.all(PodDisruptionBudget)
    allowed = {key: budget.status.disruptions_allowed for key, budget in budgets.items()}

    def violates(info: PodInfo) -> bool:
        for key in table.budgets.covering(info.group) if allowed else ():
            if info.pod.name in (budgets[key].status.disrupted_pods or ()):
                continue
            allowed[key] -= 1
            if allowed[key] < 0:
                return True
        return False

    counts = {id(unit): sum(violates(info) for info, _ in unit.pods) for unit in ordered}
    return {unit: count for unit, count in counts.items() if count}


class _EvictionCosts:
    """Compares nodes by the victims that must leave if another member is placed there (upstream RankNodes).

    Once a member is on a node, all victims there are lost, and so are the pods elsewhere that leave with them. They
    cost nothing more.

    Args:
        ordered: all victims, the most important first.
        violating: see `_violating`.
        members: the members that the table may show on nodes.
    """

    def __init__(
        self, ordered: Sequence[VictimUnit], violating: Mapping[int, int], members: Sequence[PodInfo], table: Table
    ) -> None:
        self._violating = violating
        self._members = members
        self._table = table
        self._on_row: dict[int, list[VictimUnit]] = defaultdict(list)
        for unit in ordered:
            for row in {table.nodes.row_of[node] for _, node in unit.pods}:
                self._on_row[row].append(unit)
        self._costs = {row: self._cost(on_row) for row, on_row in self._on_row.items()}

    def cheapest(self, rows: Rows) -> Rows:
        """Returns the rows on which another member costs the least important victims."""
        pods = self._table.pods
        slots = [slot for info in self._members if (slot := pods.slot_of.get(info.uid)) is not None]
        lost = {id(unit): unit for row in set(pods.row[slots].tolist()) for unit in self._on_row.get(row, ())}
        changed = {self._table.nodes.row_of[node] for unit in lost.values() for _, node in unit.pods}
        left = {row: self._cost([unit for unit in self._on_row[row] if id(unit) not in lost]) for row in changed}
        costs = [left.get(row) or self._costs.get(row) or _NO_COST for row in rows.tolist()]
        least = min(costs)
        cheapest: Rows = rows[[cost == least for cost in costs]]
        return cheapest

    def _cost(self, units: Sequence[VictimUnit]) -> _Cost:
        """Returns the cost of these victims, the most important first (upstream CompareVictimSets)."""
        pods = Counter[int]()
        for unit in units:
            pods[unit.priority] += len(unit.pods)
        violations = sum(self._violating.get(id(unit), 0) for unit in units)
        return violations, sorted(pods.items(), reverse=True), [(unit.kind, len(unit.pods)) for unit in units]


class _Reprieve:
    """Decides which victims can stay. A victim can stay if all members of the group still fit beside it.

    Args:
        members: the members that are to be placed, in the order in which they are tried.
        decisions: the decision about each member, by UID.
        claims: the claims that the evictions free; None if the group does not preempt for devices.
    """

    def __init__(
        self,
        trial: Trial,
        profile: Profile,
        members: Sequence[PodInfo],
        decisions: Mapping[str, MemberDecision],
        claims: ClaimsOfVictims | None,
    ) -> None:
        self._claims = claims
        self._trial = trial
        self._profile = profile
        self._members = members
        self._decisions = decisions
        self._see_other_nodes = any(map(_sees_other_nodes, members))
        self._on_node: dict[str | None, list[PodInfo]] = defaultdict(list)
        for info in members:
            self._on_node[decisions[info.uid].node_name].append(info)

    def stays(self, unit: VictimUnit) -> bool:
        """Returns True if the pods of the unit can stay, because all members still fit.

        Pods that can stay are put back on their nodes in the trial, so that later calls see them. Pods that affect no
        member are not put back, because a cluster may have very many of them.
        """
        affected = self._affected(unit)
        if not affected:
            return True
        mark = self._trial.mark()
        for info, node in unit.pods:
            self._trial.place(info, node)
            for claim in self._claims.used_by(info.uid) if self._claims else ():
                self._trial.set_object(claim)
        if self._fit(affected):
            return True
        self._trial.revert(mark)
        return False

    def _affected(self, unit: VictimUnit) -> Sequence[PodInfo]:
        """Returns the members that might no longer fit if the unit stays.

        These are the members on the nodes of the unit. If a member or a pod of the unit has a rule about other nodes,
        such as pod affinity, these are all members.
        """
        if self._see_other_nodes or any(_sees_other_nodes(info) for info, _ in unit.pods):
            return self._members
        return [info for node in {node for _, node in unit.pods} for info in self._on_node.get(node, ())]

    def _fit(self, members: Sequence[PodInfo]) -> bool:
        """Returns True if each member fits on its node while the members before it are in place."""
        mark = self._trial.mark()
        try:
            return all(self._fits(info) for info in members)
        finally:
            self._trial.revert(mark)

    def _fits(self, info: PodInfo) -> bool:
        decision, table = self._decisions[info.uid], self._trial.table
        assert decision.node_name is not None
        row = np.array([table.nodes.row_of[decision.node_name]], np.intp)
        if not len(find_fit(self._profile, info, table, row).feasible):
            return False
        for obj in decision.reserved:
            if self._claims is None or not isinstance(obj, ResourceClaim):
                self._trial.set_object(obj)
        if self._claims is not None:  # a pod that stays may have the devices of the decision, so others are taken
            take_devices(self._trial, [info], int(row[0]))
        self._trial.place(info.annotated(decision.annotations), decision.node_name)
        return True


def _sees_other_nodes(info: PodInfo) -> bool:
    spec = info.pod.spec
    return bool(
        spec.affinity or spec.topology_spread_constraints or info.claims or spec.resource_claims or info.attachables
    )


MEMBERS_DONE = "deallocation and deletion of ResourceClaims completed"
GROUP_DEALLOCATED = "deallocation of PodGroup ResourceClaim completed"
GROUP_UNRESERVED = "ResourceClaim unreserved for PodGroup"


class IdleClaims(NamedTuple):
    """Claims that a refused group should release, because no pod uses them.

    Attributes:
        text: the outcome in kube-scheduler's words; "" if the group keeps its claims.
        deallocate: the claims whose devices are released; claims created for extended resources are deleted.
        unreserve: the claim that keeps its devices but is no longer reserved for the group; None if there is none.
    """

    text: str = ""
    deallocate: Sequence[ResourceClaim] = ()
    unreserve: ResourceClaim | None = None


LEFT_ALONE = IdleClaims()


def idle_claims(decision: GroupDecision, profile: Profile, table: Table) -> IdleClaims:
    """Returns the claims that a refused group should release. `table` shows the cluster before the decision.

    As in upstream, a tree of groups keeps its claims, and so does a group with a topology constraint.
    """
    tree = decision.tree
    is_constrained = table.features.topology_aware_workload_scheduling and tree.group.topology_key is not None
    if NAME not in profile.reserving or not isinstance(tree, Leaf) or is_constrained:
        return LEFT_ALONE
    tried = [info for info in tree.waiting if info.uid in decision.members]
    fits = [(info, fit) for info in tried if (fit := _fit(info, profile, table)) is not None]
    idle = [claim for info, fit in fits if (claim := idle_claim(info, table, fit)) is not None]
    own = {claim.uid: claim for claim in idle}
    if len(idle) == len(tried) or tree.scheduled or not table.features.group_claims:
        return IdleClaims(MEMBERS_DONE, list(own.values()))
    return _of_group(tree, fits, list(own.values()), table)


def _fit(info: PodInfo, profile: Profile, table: Table) -> Fit | None:
    """Returns the nodes on which the member would fit without the rest of its group.

    Returns None if none of the member's claims has devices, because the member can then release nothing.
    """
    claims = pod_device_claims(info, table)
    if not isinstance(claims, PodDeviceClaims) or all(claim.allocation is None for claim in claims.all):
        return None
    return find_fit(profile, info, table, table.nodes.rows)


def _of_group(
    leaf: Leaf, fits: Iterable[tuple[PodInfo, Fit]], own: Sequence[ResourceClaim], table: Table
) -> IdleClaims:
    """Returns which claims of one PodGroup and its members should be released.

    The claims in `own` belong to members and always lose their devices. A claim of the group loses its devices if a
    member cannot use them. If there is no such claim, the first claim that is reserved for the group loses this
    reservation, but keeps its devices.
    """
    uid = leaf.group.uid
    taken = {claim.uid for claim in own}
    for info, fit in fits:
        for claim in unavailable_claims(info, table, fit):
            if claim.is_only_for(uid) and claim.uid not in taken:
                return IdleClaims(GROUP_DEALLOCATED, [*own, claim])
    reserved = next(_reserved(leaf, table), None)
    return IdleClaims(GROUP_UNRESERVED if reserved is not None else MEMBERS_DONE, own, reserved)


def _reserved(leaf: Leaf, table: Table) -> Iterator[ResourceClaim]:
    """Yields the allocated claims of the group that are reserved for the group."""
    for claim in group_claims(leaf.group, table):
        if claim.allocation is not None and claim.is_reserved_for(leaf.group.uid):
            yield claim

"""Runs a preemption: checks if the pod may preempt, finds victims on nodes in a dry run, and picks the best node.

It also writes the message for a pod that fits on no node, in kube-scheduler's words. Source: upstream
preemption.Evaluator, DefaultPreemption, framework.FitError.

The dry run selects victims on all nodes at once: it removes all potential victims, then reprieves as many as possible.
In each round, every node gets one of its pods back. If the preemptor no longer fits on a node, that pod is removed
again. Source: upstream DefaultPreemption.SelectVictimsOnNode.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from extender.devices.pod_claims import NAME as DEVICES
from extender.framework.find_fit import FITS, Fit, Prepared, awaited_pods, run
from extender.framework.profile import ALL_NODES, CandidateLimits, Profile
from extender.framework.rules import Check, Predicate, Verdict
from extender.framework.status import Code, Refusal
from extender.model.pod import PREEMPTED_CONDITION, PREEMPTED_REASON, Pod
from extender.preemption.candidates import (
    NO_VICTIMS,
    Candidates,
    VictimColumns,
    evictable,
    potential_victims,
)
from extender.table import HypotheticalRemovals, PodInfo, Table
from extender.table.labels import BoolColumn, Rows, mask_of

NEVER = "not eligible due to preemptionPolicy=Never."
WAITS_FOR_VICTIMS = "not eligible due to a terminating pod on the nominated node."
WAITS_FOR_DEVICES = "not eligible because devices that suffice are being deallocated."
NOT_HELPFUL = "Preemption is not helpful for scheduling"
_SLOT_BITS = 32
NO_UIDS: Mapping[str, Sequence[str]] = {}
NO_NODES = "no nodes available to schedule pods"
NO_VICTIMS_FOUND = "No preemption victims found for incoming pod"


@dataclass(frozen=True, slots=True)
class Preemption:
    """The outcome of a preemption.

    Attributes:
        candidates: the possible nodes, by name.
        nominated_node: the best of the possible nodes; None if there are no candidates.
        reason: the reason why there are no candidates, in kube-scheduler's words; None if there are candidates.
        without_victims: the nodes with pods of lower priority where no pod has to go, because only other extenders
            refuse the pod. They may choose victims there (since Kubernetes 1.38; before, empty).
    """

    candidates: Candidates
    nominated_node: str | None
    reason: str | None
    without_victims: Sequence[str] = ()


class ProcessedPreemption(NamedTuple):
    """The result of correcting the victims that kube-scheduler chose.

    Nodes that are not in the table, and nodes where no eviction helps, are left out.

    Attributes:
        candidates: the nodes with the victims that must leave them.
        feasible: the names of nodes that can take the pod without any victim, according to the table.
    """

    candidates: Candidates
    feasible: list[str]


def preempt(
    profile: Profile,
    pod: PodInfo,
    table: Table,
    fit: Fit,
    limits: CandidateLimits = ALL_NODES,
    offset: int = 0,
    rows: Rows | None = None,
    spared: Mapping[str, Sequence[str]] = NO_UIDS,
) -> Preemption:
    """Finds the pods to evict so that `pod` fits (upstream Evaluator.Preempt).

    Args:
        fit: the result of the pod's last attempt; only nodes that were refused as Unschedulable are tried.
        offset: the index among these nodes where the dry run starts; it matters only if `limits` end the search.
        rows: the nodes to try, of those refused as Unschedulable; None means all of them.
        spared: node name -> UIDs of pods there that must stay. Pods that can only be evicted together with them stay,
            too.
    """
    reason = pod_ineligible_to_preempt_others(pod, table, fit)
    if reason is None and profile.device_preemption and _waits_for_devices(profile, pod, table, fit):
        reason = WAITS_FOR_DEVICES
    if reason is not None:
        return Preemption(Candidates(table, NO_VICTIMS), None, reason)
    rows = np.roll(fit.with_code(Code.UNSCHEDULABLE) if rows is None else rows, -offset)
    victims, needless = _dry_run_preemption(profile, pod, table, rows, limits.enough(len(rows)), spared)
    candidates = Candidates(table, victims)
    without_victims = table.nodes.names_of(needless) if table.features.behaviours.candidates_without_victims else ()
    return Preemption(candidates, candidates.best, None if candidates else NOT_HELPFUL, without_victims)


def process_preemption(
    profile: Profile,
    pod: PodInfo,
    table: Table,
    offered: Mapping[str, Sequence[str]],
    unconfirmed: Mapping[str, Sequence[str]] = NO_UIDS,
) -> ProcessedPreemption:
    """Corrects the victims that kube-scheduler has chosen for `pod` (upstream ProcessPreemption).

    If the pod fits on a node once the offered victims leave, the victims that need not leave are dropped. Otherwise,
    new victims are selected among all pods of lower priority on the node.

    Args:
        offered: node name -> UIDs of the victims that kube-scheduler has chosen.
        unconfirmed: node name -> UIDs of pods that kube-scheduler may not know. Only those that are also in `offered`
            can become victims. Pods that can only be evicted together with the other ones stay, too.

    Raises:
        DeadlineExceeded: the time limit of `table` has passed.
    """
    rows = _known_rows(table, offered)
    potential = potential_victims(pod, table, rows)
    among_offered = _is_offered(table, potential, offered)
    dry_run = DryRun(profile, pod, table)
    table.deadline.check("the dry run with the given victims")
    fitting = dry_run.rows_that_fit(rows, potential.only(among_offered))
    suffices = np.isin(potential.rows, fitting)
    table.deadline.check("the search for victims that may stay")
    fewer, _ = dry_run.select_victims(potential.only(suffices & among_offered))
    table.deadline.check("the choice of other victims")
    spared = potential.whole_units(_is_listed(table, potential, unconfirmed) & ~among_offered)
    other, _ = dry_run.select_victims(potential.only(~suffices & ~spared))
    feasible = np.setdiff1d(fitting, fewer.rows).tolist()
    return ProcessedPreemption(Candidates(table, fewer.joined(other)), [table.nodes.names[row] for row in feasible])


def rows_without_lower_priority(profile: Profile, pod: PodInfo, table: Table, rows: Rows) -> Rows:
    """Returns the rows of nodes that can take the pod once all pods of lower priority have left the node."""
    return DryRun(profile, pod, table).rows_that_fit(rows, potential_victims(pod, table, rows))


def pod_ineligible_to_preempt_others(pod: PodInfo, table: Table, fit: Fit) -> str | None:
    """Returns why the pod may not preempt others, or None if it may (upstream PodEligibleToPreemptOthers)."""
    if pod.pod.spec.preemption_policy == "Never":
        return NEVER
    row = table.nodes.row_of.get(pod.pod.status.nominated_node_name, -1)
    victims_help = row >= 0 and row in fit.with_code(Code.UNSCHEDULABLE)
    if not victims_help:
        return None
    leaving = table.pods.at(leaving_victims(table, row, pod.priority))
    return WAITS_FOR_VICTIMS if any(pod_terminating_by_preemption(info.pod) for info in leaving) else None


def _waits_for_devices(profile: Profile, pod: PodInfo, table: Table, fit: Fit) -> bool:
    """Returns True if devices that suffice become free without an eviction.

    Their pods have left, but the API server still shows their claims as allocated. More evictions would be needless.
    """
    of_devices = [cause for cause, refusal in enumerate(fit.refusals) if refusal.plugin == DEVICES]
    rows = np.intersect1d(fit.with_code(Code.UNSCHEDULABLE), fit.rows[np.isin(fit.cause, of_devices)])
    return len(rows) > 0 and len(DryRun(profile, pod, table, narrowed=False).rows_that_fit(rows, NO_VICTIMS)) > 0


def leaving_victims(table: Table, row: int, priority: int) -> Rows:
    """Returns the slots of the node's terminating pods that a preemptor of this priority may evict."""
    slots = table.pods.on(row)
    return evictable(table, slots[table.pods.terminating[slots]], priority)


def pod_terminating_by_preemption(pod: Pod) -> bool:
    """Returns True if the pod was evicted and is still terminating (upstream PodTerminatingByPreemption)."""
    target = next((c for c in pod.status.conditions or () if c.type == PREEMPTED_CONDITION), None)
    return pod.terminating and target is not None and (target.status, target.reason) == ("True", PREEMPTED_REASON)


def _dry_run_preemption(
    profile: Profile, pod: PodInfo, table: Table, rows: Rows, enough: int, spared: Mapping[str, Sequence[str]]
) -> tuple[VictimColumns, Rows]:
    """Returns the victims on the rows where evictions help, and the rows where none is needed.

    Stops once it has found `enough` rows where evictions help. The pod is tried on all of `rows`. PreFilter may exclude
    the row of the nominated node, but no other of these rows.
    """
    dry_run = DryRun(profile, pod, table, narrowed=False)
    victims, needless = NO_VICTIMS, np.zeros(0, np.intp)
    for begin in range(0, len(rows), max(enough, 1)):
        nodes = victims.num_nodes
        if nodes >= enough and nodes > victims.only(victims.violating).num_nodes:
            break
        potential = potential_victims(pod, table, rows[begin : begin + enough])
        if spared:
            potential = potential.only(~potential.whole_units(_is_listed(table, potential, spared)))
        chosen, fitting = dry_run.select_victims(potential)
        victims = victims.joined(chosen) if begin else chosen
        has_victims = mask_of(table.nodes.capacity, chosen.rows)
        needless = np.concatenate((needless, fitting[~has_victims[fitting]]))
    return victims, needless


def _known_rows(table: Table, names: Mapping[str, object]) -> Rows:
    nodes = table.nodes
    rows = np.array([nodes.row_of[name] for name in names if name in nodes.row_of], np.intp)
    present: Rows = rows[nodes.present[rows]]
    return present


def _is_offered(table: Table, potential: VictimColumns, offered: Mapping[str, Sequence[str]]) -> BoolColumn:
    """Returns bool[n]: True for each potential victim that kube-scheduler has chosen for the same node.

    `offered`: node name -> UIDs of the victims that kube-scheduler has chosen.
    """
    pods, row_of = table.pods, table.nodes.row_of
    pairs = [
        (row_of[node] << _SLOT_BITS) + slot
        for node, uids in offered.items()
        for slot in (pods.slot_of.get(uid, -1) for uid in uids)
        if slot >= 0 and node in row_of
    ]
    return np.isin((potential.rows << _SLOT_BITS) + potential.slots, pairs)


def _is_listed(table: Table, potential: VictimColumns, uids_by_node: Mapping[str, Sequence[str]]) -> BoolColumn:
    """Returns bool[n]: True for each potential victim whose UID is listed in `uids_by_node`, under any node."""
    slot_of = table.pods.slot_of
    slots = [slot_of[uid] for uids in uids_by_node.values() for uid in uids if uid in slot_of]
    return np.isin(potential.slots, slots) if slots else np.zeros(len(potential.slots), np.bool_)


def fit_message(fit: Fit) -> str:
    """Returns a message such as `0/8 nodes are available: 3 Insufficient cpu, 5 node(s) had untolerated taint(s).`

    If a check ended in an error, the whole attempt has failed, and the message is that of the first error.
    """
    if (error := fit.error) is not None:
        text = ", ".join(error.reasons)
        return text if text.startswith("running ") else f"running {error.plugin}: {text}"
    if fit.refused_at_once:
        return f"{_none_of(len(fit.rows))}: {', '.join(fit.refusals[0].reasons)}."
    counts: Counter[str] = Counter()
    for refusal, rows in zip(fit.refusals, rows_per_refusal(fit), strict=True):
        counts.update({reason: rows for reason in refusal.reasons if rows})
    return _histogram(len(fit.rows), counts)


def preemption_message(fit: Fit, preemption: Preemption, pod: PodInfo, table: Table) -> str:
    """Returns what preemption did, or why it nominated no node. The sentence follows `fit_message` in the condition.

    Source: upstream DefaultPreemption.PostFilter, Evaluator.Preempt.

    For nodes where pods could be evicted, but that would refuse the pod even then, the text has the reasons why they
    refuse the pod now.
    Upstream has the reasons that would remain after the evictions. The two are usually the same: a node that lacks cpu
    after all evictions lacks cpu now, too.
    """
    if (node := preemption.nominated_node) is not None:
        victims = len(preemption.candidates[node].victims)
        return f"preemption: found a potential placement for pod on node {node}, preempting {victims} victims"
    if preemption.reason != NOT_HELPFUL:
        return f"preemption: {preemption.reason}"
    with_victims = table.pods.row[evictable(table, np.flatnonzero(table.pods.row >= 0), pod.priority)]
    needless = [table.nodes.row_of[node] for node in preemption.without_victims]
    without_victims = ~np.isin(fit.rows, with_victims) | np.isin(fit.rows, needless)
    counts: Counter[str] = Counter()
    for cause, refusal in enumerate(fit.refusals):
        refused = fit.cause == cause
        if not refusal.may_be_preempted:
            counts[NOT_HELPFUL] += int(refused.sum())
            continue
        counts[NO_VICTIMS_FOUND] += int((refused & without_victims).sum())
        counts.update(dict.fromkeys(refusal.reasons, int((refused & ~without_victims).sum())))
    return f"preemption: {_histogram(len(fit.rows), +counts)}"


def rows_per_refusal(fit: Fit) -> list[int]:
    """Returns how many rows each of `fit.refusals` refuses."""
    counts: list[int] = np.bincount(fit.cause[fit.cause >= 0], minlength=len(fit.refusals)).tolist()
    return counts


def _none_of(nodes: int) -> str:
    return f"0/{nodes} nodes are available"


def _histogram(nodes: int, counts: Counter[str]) -> str:
    parts = ", ".join(sorted(f"{rows} {reason}" for reason, rows in counts.items()))
    return f"{_none_of(nodes)}: {parts}." if parts else f"{_none_of(nodes)}:"


class _PodDependent(NamedTuple):
    """A predicate that depends on placed pods, and its check.

    The check is None if the predicate refuses every node before any pod is removed.
    """

    predicate: Predicate
    check: Check | None

    def filter_with_pods_removed(self, rows: Rows, removals: HypotheticalRemovals) -> Verdict | None:
        return self.check.filter_with_pods_removed(rows, removals) if self.check else None

    @property
    def sees_own_pods_only(self) -> bool:
        return self.check is not None and self.check.sees_own_pods_only


class DryRun:
    """Checks if one pod would fit on nodes if some of their pods were removed.

    Other pods may be nominated to a node. Those with the same or a higher priority may or may not arrive, so the pod
    must fit with them and without them. Checks that depend only on the node's own pods cover both cases at once. The
    other checks run a second time for each node with such pods. Predicates that do not apply to the pod are prepared
    only once (upstream Skip).

    Args:
        narrowed: False to try nodes even if PreFilter excludes them (upstream SelectVictimsOnNode runs Filter only).
    """

    def __init__(self, profile: Profile, pod: PodInfo, table: Table, *, narrowed: bool = True) -> None:
        self._narrowed = narrowed
        self._pod = pod
        self._table = table
        self._fixed = Prepared()
        self._dependent: list[_PodDependent] = []
        for predicate in profile.predicates:
            self._prepare(predicate)
        self._awaited = awaited_pods(profile, pod, table)
        self._cross_node = [rule.predicate for rule in self._dependent if not rule.sees_own_pods_only]
        self._nominated = self._awaited.by_row() if self._cross_node else {}

    def rows_that_fit(self, rows: Rows, victims: VictimColumns) -> Rows:
        """Returns the rows where the pod fits once the victims have left."""
        rows = rows[self._may_help(rows)]
        fitting: Rows = rows[self._fits(rows, self._removals(victims))]
        return fitting

    def select_victims(self, potential: VictimColumns) -> tuple[VictimColumns, Rows]:
        """Returns the victims, as few as possible, and the rows of all nodes that fit without the `potential` victims.

        Only nodes where evictions make the pod fit have victims. Pods that a PodDisruptionBudget protects are reprieved
        first, and other pods after them. In both cases, the most important pods come first.
        """
        removals = self._removals(potential)
        rows = potential.rows[potential.begins()[:-1]]
        rows = rows[self._may_help(rows)]
        rows = rows[self._fits(rows, removals)]
        removed = potential.only(mask_of(self._table.nodes.capacity, rows)[potential.rows])
        return removed.without(self._reprieved(removed, removals)), rows

    def _prepare(self, predicate: Predicate) -> None:
        check = predicate.prepare(self._pod, self._table)
        if isinstance(check, Refusal):
            if check.may_be_preempted:
                self._dependent.append(_PodDependent(predicate, None))
            else:
                self._fixed.refusal = check
        elif check is not None:
            if check.only is not None and self._narrowed:
                self._fixed.narrow(predicate.name, check.only)
            if check.sees_pods:
                self._dependent.append(_PodDependent(predicate, check))
            else:
                self._fixed.checks.append((predicate.name, check))

    def _removals(self, victims: VictimColumns) -> HypotheticalRemovals:
        own = victims.on_own_node(self._table)
        return HypotheticalRemovals(self._table, victims.slots[own], self._awaited)

    def _may_help(self, rows: Rows) -> BoolColumn:
        """Returns bool[len(rows)]: True if the row passes the checks whose verdict no eviction can change."""
        may_help: BoolColumn = run(self._fixed, self._table, rows).cause == FITS
        return may_help

    def _reprieved(self, removed: VictimColumns, removals: HypotheticalRemovals) -> BoolColumn:
        """Returns bool[n]: True for each of the `removed` pods that can stay, because the preemptor fits beside it."""
        may_stay = np.flatnonzero(~removed.whole_units(self._must_go(removed, removals)))
        pods = removed.only(may_stay)
        begins = pods.unit_begins()
        rows, violating = pods.rows[begins[:-1]], np.logical_or.reduceat(pods.violating, begins[:-1])
        unit = np.repeat(np.arange(len(rows)), np.diff(begins))
        own = np.flatnonzero(pods.on_own_node(self._table))
        own_begins = np.searchsorted(own, begins)
        stays = np.zeros(len(rows), np.bool_)

        def put_back(units: Rows) -> None:
            """Puts units back, and removes those again whose node then refuses the preemptor."""
            positions = units if pods.unit is None else own[_ranges(own_begins[units], own_begins[units + 1])]
            slots = pods.slots[positions]
            removals.reprieve(slots)
            stays[units] = self._fits(rows[units], removals)
            removals.remove(slots[~stays[unit[positions]]])

        remaining = np.arange(len(rows))
        if not self._cross_node:  # pods cannot help each other, so each unit of a node may stay if all may
            put_back(remaining)
            remaining = np.flatnonzero(~stays)
        for of_round in _rounds(rows[remaining], violating[remaining]):
            put_back(remaining[of_round])
        reprieved = np.zeros(len(removed.slots), np.bool_)
        reprieved[may_stay] = stays[unit]
        return reprieved

    def _must_go(self, removed: VictimColumns, removals: HypotheticalRemovals) -> BoolColumn:
        """Returns bool[n]: True for each of the `removed` pods beside which the preemptor cannot fit in any case.

        Such pods need no round.
        """
        own = removed.on_own_node(self._table)
        must_go = np.zeros(len(removed.slots), np.bool_)
        for rule in self._dependent:
            refused = rule.check.refuse_beside(removed.slots[own], removals) if rule.check else None
            if refused is not None:
                must_go[own] |= refused
        return must_go

    def _fits(self, rows: Rows, removals: HypotheticalRemovals) -> BoolColumn:
        """Returns bool[n]: True for nodes that pass all checks about pods once the removed pods have left."""
        fits = np.ones(len(rows), np.bool_)
        one_by_one: list[Predicate] = []
        for rule in self._dependent:
            verdict = rule.filter_with_pods_removed(rows, removals)
            if verdict is None:
                one_by_one.append(rule.predicate)
            for mask, _ in verdict or ():
                fits &= ~mask
        if one_by_one:
            fits = self._fits_one_by_one(one_by_one, rows, fits, removals, with_nominated=False)
        if self._nominated:
            to_check = fits & np.isin(rows, list(self._nominated))
            with_nominated = self._fits_one_by_one(self._cross_node, rows, to_check, removals, with_nominated=True)
            fits &= ~to_check | with_nominated
        return fits

    def _fits_one_by_one(
        self,
        predicates: Sequence[Predicate],
        rows: Rows,
        to_check: BoolColumn,
        removals: HypotheticalRemovals,
        *,
        with_nominated: bool,
    ) -> BoolColumn:
        """Returns bool[len(rows)]: True if `to_check`, bool[len(rows)], is True and all predicates accept the row.

        The predicates are prepared again for each row.
        """
        fits = np.zeros(len(rows), np.bool_)
        removed = _by_row(self._table, removals.slots)
        for position in np.flatnonzero(to_check).tolist():
            row = int(rows[position])
            nominated = self._nominated[row] if with_nominated else ()
            with self._table.hypothetically(placed=[(info, self._table.nodes.names[row]) for info in nominated]):
                fits[position] = all(self._passes(predicate, row, removed.get(row, [])) for predicate in predicates)
        return fits

    def _passes(self, predicate: Predicate, row: int, removed: Sequence[int]) -> bool:
        """Returns True if the predicate accepts the node on `row` without the pods in the `removed` slots."""
        rows = np.array([row], np.intp)
        check = predicate.prepare(self._pod, self._table)
        if isinstance(check, Check):
            removals = HypotheticalRemovals(self._table, np.array(removed, np.intp))
            verdict = check.filter_with_pods_removed(rows, removals)
            if verdict is not None:
                return _accepts_all(verdict)
        with self._table.hypothetically(removed=[self._table.pods.info(slot).uid for slot in removed]):
            check = predicate.prepare(self._pod, self._table)
            return check is None or (isinstance(check, Check) and _accepts_all(check.refuse(rows)))


def _rounds(rows: Rows, violating: BoolColumn) -> Iterator[Rows]:
    """Yields the indices of the units to put back in each round: at most one unit on each node.

    Units whose eviction violates a budget come first. `rows`, intp[unit], has the row of each unit's node.
    """
    # The sort is stable, so more important pods and groups stay before less important ones.
    order = np.lexsort((~violating, rows)) if violating.any() else np.argsort(rows, kind="stable")
    begins = np.flatnonzero(np.diff(rows[order], prepend=-1))
    units_on_node = np.diff(begins, append=len(rows))
    for nth in range(units_on_node.max(initial=0)):
        yield order[begins[units_on_node > nth] + nth]


def _ranges(begins: Rows, ends: Rows) -> Rows:
    """Returns the numbers begins[0] to ends[0] - 1, then begins[1] to ends[1] - 1, and so on, in one array."""
    sizes = ends - begins
    before = np.cumsum(sizes) - sizes
    ranges: Rows = np.repeat(begins - before, sizes) + np.arange(sizes.sum())
    return ranges


def _accepts_all(verdict: Verdict) -> bool:
    return not any(mask.any() for mask, _ in verdict)


def _by_row(table: Table, slots: Rows) -> dict[int, list[int]]:
    """Returns a dict: row of a node -> the slots of the pods on that node."""
    by_row: dict[int, list[int]] = {}
    for slot, row in zip(slots.tolist(), table.pods.row[slots].tolist(), strict=True):
        by_row.setdefault(row, []).append(slot)
    return by_row

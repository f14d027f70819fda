"""Explains one pod: whether it fits, why nodes refuse it, what would help, and how the best node is chosen.

The choice is explained by the scores of the two best nodes, or by why preemption chose its node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from extender.engine import Decision
from extender.engine.decision import Chosen
from extender.model.devices import ResourceClaim
from extender.model.meta import Object
from extender.model.pod import Pod
from extender.model.pod_volumes import claims_of
from extender.model.storage import PersistentVolumeClaim
from extender.offline import remarks, rendering
from extender.offline.answers import CauseCode, Documented, code_of, frame
from extender.offline.claims import admit_new
from extender.offline.explain.claim_changes import all_of, preempted_devices
from extender.offline.explain.search import suggested_changes
from extender.offline.explain.suggestion import ChangeDocument, SuggestedChange, change_document
from extender.offline.groups import GroupVerdict, GroupVerdicts
from extender.offline.manifests.templates import Workload
from extender.offline.nodes import all_nodes, chosen_devices, left_over, names
from extender.offline.remarks import SchedulerCondition, WrittenEvent
from extender.offline.state import ClusterState
from extender.preemption.candidates import Candidate
from extender.runtime.clock import known_so_far
from extender.runtime.text import aligned
from extender.table import PodInfo

if TYPE_CHECKING:
    import pandas as pd

_MOST_EXAMPLES = 5


class Reason(Documented, frozen=True):
    """One reason why nodes refuse the pod, and the nodes that refuse it for this reason.

    Attributes:
        code: the kind of reason, which stays the same if the scheduler's words change.
        plugin: the plugin that refused; empty if these nodes were ruled out before any filter ran.
        reason: the reason in the scheduler's words.
        nodes: the number of nodes with this reason.
        detail: the numbers behind the reason, such as what is requested and what is free.
        final: True if evicting pods from these nodes would not help.
        examples: the names of some of these nodes.
    """

    code: CauseCode
    plugin: str
    reason: str
    nodes: int
    detail: str
    final: bool
    examples: Sequence[str]


class RefusedNode(Documented, frozen=True):
    """The refusal of the pod by one node.

    Attributes:
        code: Unschedulable if evicting pods may help, else UnschedulableAndUnresolvable or Error.
    """

    plugin: str
    code: str
    reasons: Sequence[str]


class PreemptionCandidate(Documented, frozen=True):
    """A node on which preemption could make room, and the pods that it would evict there."""

    victims: Sequence[str]
    num_pdb_violations: int = msgspec.field(name="numPDBViolations")


class PreemptionOutcome(Documented, frozen=True):
    """The nodes on which preemption could make room, and the one that it would choose."""

    candidates: Mapping[str, PreemptionCandidate]
    nominated_node: str | None
    decided_by: str
    reason: str | None


class Explained(Documented, frozen=True):
    """The reason why a pod is pending, or its best nodes.

    Attributes:
        message: the verdict in the words of kube-scheduler.
        condition: what the pod's scheduler wrote, if it contradicts the verdict.
        devices: the devices that its claims get on the chosen node, as `driver/pool/device`.
        plan: the command that searches for moves of other pods, if such moves may let the pod run; else null.
        moves: the number of moves of a plan that a short search has carried out on a copy of the cluster; null if it
            has found none.
        least_moves: no plan has fewer moves, as far as sums show it; null without `plan`.
    """

    pod: str
    fits: bool
    message: str
    condition: SchedulerCondition | None
    notes: Sequence[str]
    feasible: Sequence[str]
    best: Sequence[str]
    nodes: Mapping[str, RefusedNode]
    reasons: Sequence[Reason]
    scores: Mapping[str, Mapping[str, int]]
    total: Mapping[str, int]
    waterfall: Waterfall | None
    preemption: PreemptionOutcome
    changes: Sequence[ChangeDocument]
    devices: Sequence[str] = ()
    plan: str | None = None
    moves: int | None = None
    least_moves: int | None = None


class KnownMoves(NamedTuple):
    """The answer of a short search for moves that let a pod run.

    Attributes:
        enough: the number of moves of a plan that was carried out; None if none was found.
        least: no plan has fewer moves.
    """

    enough: int | None
    least: int


MoveSearch = Callable[[ClusterState, str], KnownMoves | None]
"""Searches for moves that let the pod `namespace/name` run; returns None if it proves that there are none."""


@dataclass(frozen=True, slots=True)
class FilterVerdict:
    """The verdict of one filter about one node.

    Attributes:
        plugin: the name of the filter.
        reasons: why it refuses the node; empty if it accepts the node.
        detail: the numbers behind the first reason.
        is_disabled: True if the policy disables the filter, and the plugin's preFilter does not refuse the node.
        passes_pre_filter: True if the filter is disabled, but the plugin's preFilter ran and accepts the node.
    """

    plugin: str
    reasons: tuple[str, ...] = ()
    detail: str = ""
    is_disabled: bool = False
    passes_pre_filter: bool = False

    @property
    def text(self) -> str:
        """The verdict in words, as commands print it."""
        if self.reasons:
            return ", ".join(self.reasons)
        if self.passes_pre_filter:
            return "passes preFilter; not checked at filter: the policy disables it there"
        return "not checked: the policy disables it" if self.is_disabled else "passes"


class Explanation:
    """The answer to "why is this pod pending, or where would it be placed".

    The pod is judged when the explanation is created. Only `changes` is computed later, when it is first read, for the
    cluster as it is at that time.

    Attributes:
        pod: the pod that was judged; a pod that is on a node is judged as if it were waiting.
        message: the verdict in the words of kube-scheduler.
        reasons: the reasons why nodes refuse the pod, the most frequent first.
        decision: the engine's decision about the pod on every node.
        notes: remarks for people: scheduling gates, another scheduler, a nomination, defaults that were filled in.
        is_excluded: True if no scheduler tries the pod at all; a note says why.
        group: the verdict on the pod's group; None if the pod has no group, or does not wait for a node.
        is_known: False if there is no verdict: the nodes could not be read, and the pod's own fields do not give one.
    """

    def __init__(
        self,
        state: ClusterState,
        pod: Pod,
        notes: Sequence[str] = (),
        groups: GroupVerdicts | None = None,
        nodes: Sequence[str] | None = None,
        find_moves: MoveSearch = lambda state, key: KnownMoves(None, 1),  # noqa: ARG005  it searches nothing
    ) -> None:
        """Judges the pod on `nodes` (None: all nodes). `groups` caches the verdicts on pod groups.

        `find_moves` is `offline.plan.plan.find_moves`, which builds on this module; without it, `moves` has no number.
        """
        self._state = state
        self._find_moves = find_moves
        self._is_bound = bool(pod.node_name)
        self.decision = state.engine.decide(pod, nodes)
        self.pod = self.decision.pod
        own_notes, is_excluded = status_notes(pod, state)
        self.is_excluded = is_excluded
        self._runs_unscheduled = False
        if remarks.names_its_node(pod, state) and not state.nodes_unread:
            objection = remarks.kubelet_objection(pod, state)
            binding = f"spec.nodeName binds it to {pod.node_name} without a scheduler"
            own_notes.append(f"{binding}, but {objection}" if objection else binding)
            self._runs_unscheduled = objection is None
            self.is_excluded = self.is_excluded or not self._runs_unscheduled
        self.notes = [*own_notes, *_about_devices(state, self.decision), *notes]
        self.is_known = not state.nodes_unread or bool(own_message(pod)) or self.is_excluded
        self.reasons = _reasons(self.decision, state)
        self.message = self.decision.message
        self.group = _group_of(pod, state, groups)
        if self.group is not None:
            is_success = self.group.decision is not None and self.group.decision.is_success
            outcome = "which would be scheduled now" if is_success else self.group.text
            self.notes.append(f"it is scheduled with {self.group.kind} {self.group.key}: {outcome}")
            self.message = self.group.failures.get(pod.uid, self.message)
        if state.nodes_unread:
            self.message = own_message(pod) or "no verdict: no scheduler has written one into the pod's conditions"

    def __repr__(self) -> str:
        return f"Explanation({self.pod.key}: {self.message})"

    @property
    def fits(self) -> bool:
        """True if a scheduler would place the pod now, or if the node in its spec.nodeName would run it.

        If the nodes could not be read, only a bound pod fits.
        """
        placed = (self._state.nodes_unread and self._is_bound) or self._runs_unscheduled
        waits = self.group is not None and self.pod.uid in self.group.failures
        return bool(self.decision.feasible or placed) and not self.is_excluded and not waits

    @cached_property
    def condition(self) -> SchedulerCondition | None:
        """The condition that the pod's scheduler wrote, if it contradicts the verdict; else None."""
        if self.is_excluded or self._state.nodes_unread:
            return None
        return remarks.contradicting(written_about(self.pod, self._state), self.message, fits=self.fits)

    @cached_property
    def changes(self) -> list[SuggestedChange]:
        """The changes that would let the pod run, the smallest first; empty if the pod fits already."""
        if self.decision.feasible or not self.decision.nodes:
            return []
        with known_so_far(lambda: f"the search for changes has not ended, but the verdict is known: {self.message}"):
            return suggested_changes(self._state, self.pod)

    @property
    def plan(self) -> str | None:
        """The command that searches for moves of other pods that let this pod run; None if none seem to help."""
        return None if self.moves is None else f"extender plan {self.pod.key}"

    @cached_property
    def moves(self) -> KnownMoves | None:
        """The result of a short search for moves of other pods that let this pod run; None if none seem to help.

        There is a search if the removal of pods with a controller would let the pod run, the cluster has room in total,
        and the scheduler would not preempt a pod.
        """
        waits = self.pod.key in self._state.infos and not (self._is_bound or self.is_excluded or self.group)
        preempts = self.decision.preemption is not None and self.decision.preemption.nominated_node is not None
        if not waits or preempts or not may_help(self._state, self.pod, self.changes):
            return None
        return self._find_moves(self._state, self.pod.key)

    @cached_property
    def waterfall(self) -> Waterfall | None:
        """The scores of the two best nodes, plugin by plugin; None if scores do not decide.

        Scores do not decide if no node fits, or if the pod can run on its nominated node. Among nodes with the same
        total, the first by name is the winner. The runner-up is the best node with a lower total.
        """
        decision = self.decision
        if not decision.feasible or decision.nominated is not None:
            return None
        totals = decision.total.tolist()
        order = sorted(range(len(totals)), key=lambda position: (-totals[position], decision.feasible[position]))
        best = order[0]
        lower = [position for position in order if totals[position] < totals[best]]
        second = lower[0] if lower else None
        lines = {}
        for name, score in decision.scores.items():
            winner, runner_up = int(score.weighted[best]), 0 if second is None else int(score.weighted[second])
            lines[name] = ScoreLine(score.weight, winner, runner_up, winner - runner_up)
        return Waterfall(
            decision.feasible[best],
            totals[best],
            len(order) - len(lower),
            None if second is None else decision.feasible[second],
            None if second is None else totals[second],
            dict(sorted(lines.items(), key=lambda item: (-abs(item[1].difference), item[0]))),
        )

    @cached_property
    def preemption_decided_by(self) -> str:
        """The reason why preemption chose its node over the others; empty if there was no choice."""
        preemption = self.decision.preemption
        if preemption is None or preemption.nominated_node is None or len(preemption.candidates) < 2:
            return ""
        remaining, reason = list(preemption.candidates.values()), _EQUAL
        for rule, cost in _RULES:
            lowest = min(map(cost, remaining))
            cheapest = [candidate for candidate in remaining if cost(candidate) == lowest]
            if len(cheapest) < len(remaining):
                reason = rule
            remaining = cheapest
        return reason

    def on_node(self, name: str) -> list[FilterVerdict]:
        """Returns every filter's verdict about the node, not only the first refusal. Raises UnknownNode."""
        self._state.node(name)
        engine = self._state.engine
        disabled = engine.disabled_filters(self.pod)
        verdicts = [self._verdict(plugin, name, is_disabled=plugin in disabled) for plugin in engine.filters(self.pod)]
        listed = {verdict.plugin for verdict in verdicts}
        return verdicts + [FilterVerdict(plugin, is_disabled=True) for plugin in disabled if plugin not in listed]

    def _verdict(self, plugin: str, name: str, *, is_disabled: bool) -> FilterVerdict:
        engine = self._state.engine
        nominated = [(info, name) for info in engine.awaited_on(name, self.pod)]
        refusal = engine.filter_by(plugin, self.pod, [name]).get(name)
        if refusal is None and nominated:
            with engine.suppose(place=nominated):
                refusal = engine.filter_by(plugin, self.pod, [name]).get(name)
        if refusal is None:
            return FilterVerdict(plugin, is_disabled=is_disabled, passes_pre_filter=is_disabled)
        detail = engine.detail(plugin, refusal.reasons[0], self.pod, [name])
        return FilterVerdict(plugin, refusal.reasons, detail)

    def to_dict(self, *, changes: bool = True) -> dict[str, Any]:
        """Returns the documented form, ready for JSON: see docs/why-pending.md."""
        decision = self.decision
        moves = self.moves if changes else None
        return Explained(
            pod=self.pod.key,
            fits=self.fits,
            message=self.message,
            condition=self.condition,
            notes=self.notes,
            feasible=decision.feasible,
            best=decision.best,
            nodes=refusals(decision),
            reasons=self.reasons,
            scores=weighted_scores(decision),
            total=totals(decision),
            waterfall=self.waterfall,
            preemption=self._preemption_outcome(),
            changes=[change_document(change) for change in self.changes] if changes else [],
            devices=chosen_devices(self.decision.outcome),
            plan=self.plan if changes else None,
            moves=moves.enough if moves else None,
            least_moves=moves.least if moves else None,
        ).to_dict()

    def _preemption_outcome(self) -> PreemptionOutcome:
        result = self.decision.preemption
        candidates = result.candidates if result else {}
        return PreemptionOutcome(
            {node: PreemptionCandidate(victims(each), each.num_pdb_violations) for node, each in candidates.items()},
            result.nominated_node if result else None,
            self.preemption_decided_by,
            result.reason if result else "",
        )

    def to_frame(self) -> pd.DataFrame:
        """Returns a DataFrame with a row for each node: node, fits, total, plugin, reasons, and scores.PLUGIN.

        `plugin` and `reasons` say what refuses the node. Raises ExtenderError if pandas is not installed.
        """
        decision = self.decision
        total, scores = totals(decision), weighted_scores(decision)
        columns = ("node", "fits", "total", "plugin", "reasons", "scores")
        rows = []
        for name in decision.nodes:
            refusal = decision.refusals.get(name)
            refused = (refusal.plugin, "; ".join(refusal.reasons)) if refusal else (None, None)
            cells = (name, name in total, total.get(name), *refused, scores.get(name, {}))
            rows.append(dict(zip(columns, cells, strict=True)))
        return frame(rows, columns[:-1])

    def _repr_html_(self) -> str:
        condition = written_about(self.pod, self._state)
        return rendering.part("pod.html", self.to_dict(), nodes=None, written=condition, events=())

    def to_html(self, *, changes: bool = True, events: Sequence[WrittenEvent] = ()) -> str:
        """Returns a page with a map of the nodes, in one self-contained file. `events` are shown too."""
        nodes, condition = all_nodes(self._state), written_about(self.pod, self._state)
        return rendering.file("pod.html", self.to_dict(changes=changes), nodes=nodes, written=condition, events=events)


def _about_devices(state: ClusterState, decision: Decision) -> Iterator[str]:
    """Yields notes on the devices that the pod gets, or on those that evictions free and that are left over."""
    if devices := chosen_devices(decision.outcome):
        assert isinstance(decision.outcome, Chosen)
        yield f"fits on {all_of(names(devices))} of node {decision.outcome.node_name}"
    yield from preempted_devices(state, decision)
    if not devices and decision.pod.spec.resource_claims:
        yield from map(str, left_over(state))


def written_about(pod: Pod, state: ClusterState) -> SchedulerCondition | None:
    """Returns the condition in which the pod's scheduler refuses the pod; None if it has not written one."""
    return remarks.written(pod, pod.spec.scheduler_name or state.profiles.names[0])


def explain_workload(state: ClusterState, workload: Workload) -> Explanation:
    """Explains the first pod of a workload, on a copy of the cluster in which the pod's claims exist."""
    with_claims, admitted = admit_new(state, workload)
    return Explanation(with_claims, admitted.pod, admitted.notes)


def _group_of(pod: Pod, state: ClusterState, groups: GroupVerdicts | None) -> GroupVerdict | None:
    is_waiting = pod.key in state.infos and not pod.node_name and not pod.terminating
    if pod.group_key is None or not is_waiting or state.nodes_unread:
        return None
    return (groups or GroupVerdicts(state)).of(pod)


def status_notes(pod: Pod, state: ClusterState) -> tuple[list[str], bool]:
    """Returns (notes, is_excluded): notes on the pod's status, and True if no scheduler tries the pod at all."""
    notes = []
    if pod.terminating:
        notes.append("it is being deleted: no scheduler tries it again")
    if pod.finished:
        notes.append(f"it has finished ({pod.status.phase}): no scheduler tries it again")
    if pod.spec.scheduling_gates:
        gates = ", ".join(gate.name for gate in pod.spec.scheduling_gates)
        notes.append(f"it is gated by {gates}: no scheduler tries it until its scheduling gates are removed")
    is_excluded = bool(notes)
    if scheduler := remarks.other_scheduler(pod, state):
        judged = "" if state.nodes_unread else f"; it is judged here by the rules of {state.profiles.names[0]}"
        notes.append(f"its schedulerName is {scheduler}{judged}")
    if pod.group_key is not None and pod.key not in state.infos:
        text = f"it is a member of PodGroup {pod.group_key}, and judged alone"
        notes.append(f"{text}; `extender simulate -f` places whole groups")
    if pod.node_name and state.node_of(pod) is not None and not state.nodes_unread:
        notes.append(f"it is bound to {_node_text(pod.node_name, state)}, and judged as if it were not")
    if pod.node_name:
        notes += [f"it has a node, so no scheduler can help it: {text}" for text in remarks.blocked_containers(pod)]
    if nominated := pod.status.nominated_node_name:
        is_tried = state.nodes_unread or state.has_node(nominated)
        outcome = "which the scheduler tries first" if is_tried else "so the scheduler tries the other nodes"
        notes.append(f"it is nominated to {_node_text(nominated, state)}, {outcome}")
    if not state.nodes_unread:
        notes += [*remarks.differences(state, [pod]), *_missing_claim_kinds(pod, state)]
    return notes, is_excluded


def _node_text(name: str, state: ClusterState) -> str:
    return name if state.nodes_unread or state.has_node(name) else f"{name}, a node that does not exist"


def _missing_claim_kinds(pod: Pod, state: ClusterState) -> Iterator[str]:
    """Yields a note for each kind of claim that the pod uses, if the cluster has no claim of this kind.

    Such claims may exist in reality, but not in the file from which the cluster was read.
    """
    devices = "resourceclaims,resourceclaimtemplates,resourceslices,deviceclasses"
    kinds: Sequence[tuple[object, type[Object], str]] = (
        (claims_of(pod), PersistentVolumeClaim, "pv,pvc,sc"),
        (pod.spec.resource_claims, ResourceClaim, devices),
    )
    for used, kind, resources in kinds:
        if used and not state.objects.all(kind):
            text = f"there are no {kind.__name__}s in this cluster; if it was read from a file, add {resources} to the"
            yield f"{text} `kubectl get` that writes it"


def own_message(pod: Pod) -> str:
    """Returns the verdict that the pod's own fields give: its node, or the scheduler's message; "" if neither.

    This is all that can be said if the cluster's nodes cannot be read. The message is that of the condition
    PodScheduled.
    """
    if pod.node_name:
        return f"it is bound to {pod.node_name}"
    scheduled = remarks.pod_scheduled(pod)
    return (scheduled.message or scheduled.reason) if scheduled else ""


def _reasons(decision: Decision, state: ClusterState) -> list[Reason]:
    """Returns the reasons why nodes refuse the pod, the most frequent first."""
    nodes_by_reason: dict[tuple[str, str], list[str]] = {}
    helpful: set[tuple[str, str]] = set()
    for refusal, nodes in decision.refused_nodes:
        for text in refusal.reasons:
            nodes_by_reason.setdefault((refusal.plugin, text), []).extend(nodes)
            if refusal.may_be_preempted:
                helpful.add((refusal.plugin, text))
    position = {name: i for i, name in enumerate(decision.nodes)} if nodes_by_reason else {}
    reasons = []
    for (plugin, text), nodes in nodes_by_reason.items():
        nodes.sort(key=position.__getitem__)
        explaining = plugin or next(iter(decision.limited_by), "")
        detail = state.engine.detail(explaining, text, decision.pod, nodes)
        code = code_of(plugin, text)
        reasons.append(
            Reason(code, plugin, text, len(nodes), detail, (plugin, text) not in helpful, nodes[:_MOST_EXAMPLES])
        )
    return sorted(reasons, key=lambda reason: (-reason.nodes, reason.reason))


def reason_table(reasons: Iterable[Reason]) -> Iterator[str]:
    """Yields lines of text: a table of the reasons."""
    rows = [(str(reason.nodes), reason.reason, reason.detail) for reason in reasons]
    return aligned([("NODES", "REASON", "DETAIL"), *rows])


# ---- the parts of a decision, ready for JSON


def refusals(decision: Decision) -> dict[str, RefusedNode]:
    """Returns the refusals by node."""
    return {
        node: RefusedNode(refusal.plugin, refusal.code.title, refusal.reasons)
        for node, refusal in decision.refusals.items()
    }


def weighted_scores(decision: Decision) -> dict[str, dict[str, int]]:
    """Returns, for each node, the points that each plugin adds to its total."""
    by_plugin = {plugin: score.weighted.tolist() for plugin, score in decision.scores.items()}
    return {
        node: {plugin: weighted[i] for plugin, weighted in by_plugin.items()}
        for i, node in enumerate(decision.feasible)
    }


def totals(decision: Decision) -> dict[str, int]:
    """Returns the total of each node: the sum of the points of all plugins."""
    return dict(zip(decision.feasible, decision.total.tolist(), strict=True))


def victims(candidate: Candidate) -> list[str]:
    """Returns the keys of the pods that preemption would evict, the most important first."""
    return [victim.pod.key for victim in candidate.victims]


def may_help(state: ClusterState, pod: Pod, changes: Sequence[SuggestedChange]) -> bool:
    """Returns True if pods stand in the way that a controller would recreate, and there is room for all pods in total.

    A plan may still have to keep these pods, because of a budget or an annotation for example.
    """
    for change in changes:
        victims = [state.infos[key].pod for key in change.removed]
        if victims and all(each.node_name and each.controller and not each.terminating for each in victims):
            return _has_room_in_total(state, PodInfo(pod))
    return False


def _has_room_in_total(state: ClusterState, info: PodInfo) -> bool:
    """Returns True if all nodes together have free what the pod requests; moves do not change that sum."""
    nodes = state.table.nodes
    rows, needed = nodes.rows, nodes.vector(info.footprint)
    indices = np.flatnonzero(needed)
    free = nodes.allocatable[indices][:, rows] - nodes.requested[indices][:, rows]
    return bool((np.maximum(free, 0).sum(axis=1) >= needed[indices]).all())


class ScoreLine(Documented, frozen=True):
    """One plugin's scores for the best node and the next best node.

    Attributes:
        weight: the plugin's weight, by which the points are already multiplied.
        winner: the points of the best node.
        runner_up: the points of the next best node; 0 if there is none.
        difference: the points by which this plugin prefers the winner; negative if it prefers the runner-up.
    """

    weight: int
    winner: int
    runner_up: int
    difference: int


class Waterfall(Documented, frozen=True):
    """The scores of the best node and the next best, plugin by plugin, the greatest difference first.

    Attributes:
        winner: the best node.
        total: the sum of its points.
        ties: the number of nodes with the highest total; the scheduler picks one of these at random.
        runner_up: the best node with a lower total; None if all nodes have the same total.
        runner_up_total: the sum of the runner-up's points; None if there is no runner-up.
        plugins: plugin -> its points for both nodes.
    """

    winner: str
    total: int
    ties: int
    runner_up: str | None
    runner_up_total: int | None
    plugins: Mapping[str, ScoreLine]


# The (reason, cost) of each rule, in the order of upstream pickOneNodeForPreemption. The lowest cost wins.
_RULES: Sequence[tuple[str, Callable[[Candidate], float]]] = (
    ("it violates the fewest PodDisruptionBudgets", lambda candidate: candidate.num_pdb_violations),
    ("its most important victim has the lowest priority", lambda candidate: candidate.victims[0].priority),
    (
        "the sum of its victims' priorities is the lowest",
        lambda candidate: sum(victim.priority + 2**31 for victim in candidate.victims),
    ),
    ("it has the fewest victims", lambda candidate: len(candidate.victims)),
    ("its most important victim started last", lambda candidate: -candidate.victims[0].started_seconds),
)
_EQUAL = "it comes first among equal nodes"

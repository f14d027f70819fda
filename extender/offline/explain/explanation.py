"""Everything about one pod: verdict, reasons in numbers, what would help, the choice between nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from extender.framework.rules import Predicate
from extender.framework.status import Refusal
from extender.model.pod import Pod
from extender.offline.decision import Decision, fit_of
from extender.offline.explain.changes import SuggestedChange, pod_changes
from extender.offline.explain.choice import Waterfall, decided_by, waterfall
from extender.offline.explain.cluster_changes import CLAIMS, claim_and_pod_changes, cluster_changes
from extender.offline.explain.details import detail
from extender.offline.html import rendering
from extender.offline.nodes import all_nodes
from extender.offline.state import ClusterState, rule_errors
from extender.preemption import Candidate
from extender.scheduler import diagnosis
from extender.table import PodInfo
from extender.table.labels import Rows

_MOST_EXAMPLES = 5


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason, over all nodes that gave it.

    Attributes:
        plugin: who said so; empty: plugins have named the nodes that can do at all, and these were none of them.
        reason: in the scheduler's words.
        nodes: how many nodes gave it; `examples` are some of them.
        detail: the numbers behind it.
        final: no eviction would help.
    """

    plugin: str
    reason: str
    nodes: int
    detail: str
    final: bool
    examples: Sequence[str]

    def to_dict(self) -> dict[str, Any]:
        """{"plugin", "reason", "nodes", "detail", "final", "examples": [node, ...]}."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class FilterVerdict:
    """One filter's verdict on one node by itself. `reasons` are empty where it lets the pod pass."""

    plugin: str
    reasons: tuple[str, ...] = ()
    detail: str = ""


class Explanation:
    """The answer to "why does this pod wait, or where would it go".

    Everything is decided when the explanation is made, but for `changes`, which are looked for when first read, in the
    cluster as it is then.

    Attributes:
        pod: as it was judged.
        decision: the engine's own.
        notes: what is to be known first: gates, another scheduler, a nomination, defaults that were filled in.
        held: whether a note says that no scheduler tries the pod at all, whatever the nodes.
        is_known: False where nodes may not be read, and nothing about the pod itself gives a verdict either.
    """

    def __init__(self, state: ClusterState, pod: Pod, notes: Sequence[str] = ()) -> None:
        self._state = state
        self.decision, self._bound = state.decide(pod), bool(pod.node_name)
        self.pod = self.decision.pod
        status, self.held = status_notes(pod, state)
        self.notes = [*status, *notes]
        self.is_known = True
        with state.table.hypothetically(removed=[self.pod.uid]):
            self.reasons = _reasons(self.decision, state)
            self.message = _message(self.decision, state)
        if state.nodes_unread:
            word = own_word(pod)
            self.message, self.is_known = (
                word or "no verdict: no scheduler has written one into its conditions",
                bool(word) or self.held,
            )

    def __repr__(self) -> str:
        return f"Explanation({self.pod.key}: {self.message})"

    @property
    def fits(self) -> bool:
        """True if a scheduler would place the pod now; without nodes: if one has."""
        placed = self._state.nodes_unread and self._bound
        return bool(self.decision.feasible or placed) and not self.held

    @cached_property
    def changes(self) -> list[SuggestedChange]:
        """The changes that would let the pod run, the smallest first, each decided again; none where it fits."""
        if self.decision.feasible or not len(self._state.table.nodes.rows):
            return []
        of_pod, of_cluster = list(pod_changes(self._state, self.pod)), list(cluster_changes(self._state, self.pod))
        found = of_pod + of_cluster
        if not of_pod and not any(change.kind in CLAIMS for change in of_cluster):
            found += claim_and_pod_changes(self._state, self.pod)
        return sorted(found, key=lambda change: change.size)

    @cached_property
    def waterfall(self) -> Waterfall | None:
        """The winner beside the runner-up; None where no node can take the pod."""
        return waterfall(self.decision)

    @cached_property
    def preemption_decided_by(self) -> str:
        """The rule that chose between the nodes to preempt on; empty without a choice."""
        return decided_by(self.decision.preemption) if self.decision.preemption else ""

    def on_node(self, name: str) -> list[FilterVerdict]:
        """Returns every filter's verdict on the node, not the first refusal alone. Raises UnknownNode."""
        self._state.node(name)
        rows = self._state.rows_of([name])
        profile, info = self._state.profile(self.pod), self._state.as_if_waiting(self.pod)
        with rule_errors(), self._state.table.hypothetically(removed=[info.uid]):
            verdicts = []
            for predicate in profile.predicates:
                refusal = _alone(predicate, self._state, info, rows)
                told = detail(refusal.plugin, refusal.reasons[0], info, self._state.table, rows) if refusal else ""
                verdicts.append(FilterVerdict(predicate.name, refusal.reasons if refusal else (), told))
            return verdicts

    def to_dict(self, *, changes: bool = True) -> dict[str, Any]:
        """The documented form: see docs/why-pending.md. It is ready for JSON."""
        made = self.decision
        return {
            "pod": self.pod.key,
            "fits": self.fits,
            "message": self.message,
            "notes": list(self.notes),
            "feasible": made.feasible,
            "best": made.best,
            "nodes": refusals(made),
            "reasons": [reason.to_dict() for reason in self.reasons],
            "scores": weighted_scores(made),
            "total": totals(made),
            "waterfall": self.waterfall.to_dict() if self.waterfall else None,
            "preemption": preemption(made, self.preemption_decided_by),
            "changes": [change.to_dict() for change in self.changes] if changes else [],
        }

    def _repr_html_(self) -> str:
        return rendering.part("pod.html", self.to_dict(), nodes=None)

    def to_html(self, *, changes: bool = True) -> str:
        """Returns a page with a map of the nodes, in one file that needs no other."""
        return rendering.file("pod.html", self.to_dict(changes=changes), nodes=all_nodes(self._state))


def status_notes(pod: Pod, state: ClusterState) -> tuple[list[str], bool]:
    """Returns what the pod's own state says before any node is asked, and whether no scheduler tries it for that."""
    notes = []
    if pod.terminating:
        notes.append("it is being deleted: no scheduler tries it any more")
    if pod.finished:
        notes.append(f"it has finished ({pod.status.phase}): no scheduler tries it any more")
    if pod.spec.scheduling_gates:
        gates = ", ".join(gate.name for gate in pod.spec.scheduling_gates)
        notes.append(f"it is gated by {gates}: no scheduler tries it until its scheduling gates are removed")
    held = bool(notes)
    name, known = pod.spec.scheduler_name, state.profiles.names
    if name and name not in known:
        judged = "" if state.nodes_unread else f", judged here by the rules of {known[0]}"
        notes.append(f"it is for the scheduler {name}{judged}")
    if pod.node_name and pod.uid in state.table.pods.slot_of and not state.nodes_unread:
        notes.append(f"it is bound to {pod.node_name}, and judged as if it were not")
    if pod.status.nominated_node_name:
        notes.append(f"it is nominated to {pod.status.nominated_node_name}, where it waits for room")
    return notes, held


def own_word(pod: Pod) -> str:
    """Returns where the pod is bound, or what its scheduler has written into its conditions; empty: nothing."""
    if pod.node_name:
        return f"it is bound to {pod.node_name}"
    found = next((each for each in pod.status.conditions or () if each.type == "PodScheduled"), None)
    return (found.message or found.reason) if found else ""


def _message(decision: Decision, state: ClusterState) -> str:
    """The verdict as the scheduler writes it into the pod's condition, or where the pod would go."""
    if decision.feasible:
        return f"{len(decision.feasible)}/{len(decision.nodes)} nodes are available"
    if not decision.nodes:
        return diagnosis.NO_NODES
    told = diagnosis.fit_message(fit_of(decision))
    if decision.preemption is not None:
        info = state.as_if_waiting(decision.pod)
        told += f" {diagnosis.preemption_message(fit_of(decision), decision.preemption, info, state.table)}"
    return told.strip()


def _reasons(decision: Decision, state: ClusterState) -> list[Reason]:
    fit, info, table = fit_of(decision), state.as_if_waiting(decision.pod), state.table
    by_reason: dict[tuple[str, str], tuple[list[Rows], bool]] = {}
    for index, refusal in enumerate(fit.refusals):
        rows = fit.rows[fit.cause == index]
        for reason in refusal.reasons if len(rows) else ():
            found, final = by_reason.setdefault((refusal.plugin, reason), ([], True))
            found.append(rows)
            by_reason[refusal.plugin, reason] = found, final and not refusal.may_be_preempted
    made = []
    for (plugin, reason), (parts, final) in by_reason.items():
        rows = np.sort(np.concatenate(parts))
        names = table.nodes.names_of(rows[:_MOST_EXAMPLES])
        told = detail(plugin or (fit.narrowed_by[0] if fit.narrowed_by else ""), reason, info, table, rows)
        made.append(Reason(plugin, reason, len(rows), told, final, names))
    return sorted(made, key=lambda each: (-each.nodes, each.reason))


def _alone(predicate: Predicate, state: ClusterState, info: PodInfo, rows: Rows) -> Refusal | None:
    with state.deciding():
        made = predicate.prepare(info, state.table)
        if made is None or isinstance(made, Refusal):
            return made
        for mask, refusal in made.refuse(rows):
            if mask.any():
                return refusal
    return None


# ---- the parts of a decision, ready for JSON


def refusals(decision: Decision) -> dict[str, dict[str, Any]]:
    """Node -> {"plugin", "code", "reasons"}."""
    return {
        node: {"plugin": refusal.plugin, "code": refusal.code.title, "reasons": list(refusal.reasons)}
        for node, refusal in decision.refusals.items()
    }


def weighted_scores(decision: Decision) -> dict[str, dict[str, int]]:
    """Node -> plugin -> what it adds to the total."""
    by_plugin = {plugin: score.weighted.tolist() for plugin, score in decision.scores.items()}
    return {
        node: {plugin: weighted[i] for plugin, weighted in by_plugin.items()}
        for i, node in enumerate(decision.feasible)
    }


def totals(decision: Decision) -> dict[str, int]:
    """Node -> the sum over all plugins."""
    return dict(zip(decision.feasible, decision.total.tolist(), strict=True))


def preemption(decision: Decision, by_rule: str = "") -> dict[str, Any]:
    """Returns the candidates with their victims, the node chosen and by which rule, or the reason for none."""
    made = decision.preemption
    candidates = made.candidates if made else {}
    return {
        "candidates": {
            node: {"victims": victims(each), "numPDBViolations": each.num_pdb_violations}
            for node, each in candidates.items()
        },
        "nominatedNode": made.nominated_node if made else None,
        "decidedBy": by_rule,
        "reason": made.reason if made else "",
    }


def victims(candidate: Candidate) -> list[str]:
    """The keys of the pods that would go, the most important first."""
    return [victim.pod.key for victim in candidate.victims]

"""An Explanation for a terminal: short by default, node by node if asked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from extender.offline.explain.choice import Waterfall
from extender.offline.explain.explanation import Explanation, FilterVerdict, totals, victims, weighted_scores
from extender.offline.text import Cells, aligned, listed, printable

MOST_CHANGES = 5
_MOST_SCORES = 6


def summary(explanation: Explanation, *, changes: bool = True) -> Iterator[str]:
    """The verdict, what is to be known first, the reasons with their numbers, and what would help."""
    yield printable(f"pod {explanation.pod.key}: {explanation.message}")
    yield from (printable(f"note: {note}") for note in explanation.notes)
    if explanation.waterfall is not None:
        yield from _winner(explanation.waterfall)
    if explanation.reasons:
        yield ""
        head = ("NODES", "REASON", "DETAIL")
        yield from aligned([head, *((str(each.nodes), each.reason, each.detail) for each in explanation.reasons)])
    yield from _preemption(explanation)
    if changes and explanation.decision.nodes and not explanation.decision.feasible:
        yield from _changes(explanation)


def nodes(explanation: Explanation) -> Iterator[str]:
    """Every node: those that can take the pod with their scores, the best first; then the others with reasons."""
    for part in (_feasible(explanation), _refused(explanation), _candidates(explanation)):
        if len(part) > 1:
            yield ""
            yield from aligned(part)


def one_node(name: str, verdicts: Sequence[FilterVerdict]) -> Iterator[str]:
    """Every filter's verdict on one node."""
    yield ""
    lines = [(each.plugin, ", ".join(each.reasons) or "passes", each.detail) for each in verdicts]
    yield from aligned([("FILTER", f"ON {name}", "DETAIL"), *lines])


def _winner(choice: Waterfall) -> Iterator[str]:
    tied = f", like {choice.ties - 1} more, of which the scheduler takes any" if choice.ties > 1 else ""
    yield printable(f"it would go to {choice.winner} with {choice.total} points{tied}")
    if choice.runner_up:
        told = [f"{each.plugin} {each.difference:+}" for each in choice.lines if each.difference]
        yield printable(
            f"{choice.runner_up} is next with {choice.runner_up_total}: {listed(told, _MOST_SCORES)} for the winner"
        )


def _preemption(explanation: Explanation) -> Iterator[str]:
    made = explanation.decision.preemption
    if made is None or made.nominated_node is None:
        return
    candidate = made.candidates[made.nominated_node]
    yield ""
    yield printable(f"preemption: {listed(victims(candidate), 5)} would leave {made.nominated_node} for it")
    if explanation.preemption_decided_by:
        yield printable(
            f"of {len(made.candidates)} nodes where that would do it has {explanation.preemption_decided_by}"
        )


def _changes(explanation: Explanation) -> Iterator[str]:
    yield ""
    if not explanation.changes:
        yield "no single change was found that would let it run: see --nodes, or --node NAME for one node"
        return
    yield "what would let it run, the smallest first, each decided again:"
    head = ("CHANGE", "OPENS")
    shown = explanation.changes[:MOST_CHANGES]
    yield from aligned([head, *((each.text, _opened(each.nodes)) for each in shown)])
    if len(explanation.changes) > len(shown):
        yield f"and {len(explanation.changes) - len(shown)} more: see -o json"


def _opened(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{len(names)} nodes: {listed(names)}"


def _feasible(explanation: Explanation) -> list[Cells]:
    decision = explanation.decision
    total, weighted = totals(decision), weighted_scores(decision)
    head = ["NODE", "TOTAL", *decision.scores]
    by_total = sorted(decision.feasible, key=lambda node: (-total[node], node))
    return [head, *([node, str(total[node]), *map(str, weighted[node].values())] for node in by_total)]


def _refused(explanation: Explanation) -> list[Cells]:
    lines: list[Cells] = [("NODE", "REFUSED BY", "EVICTIONS", "REASONS")]
    for node, refusal in sorted(explanation.decision.refusals.items()):
        evictions = "may help" if refusal.may_be_preempted else "cannot help"
        lines.append((node, refusal.plugin, evictions, ", ".join(refusal.reasons)))
    return lines


def _candidates(explanation: Explanation) -> list[Cells]:
    lines: list[Cells] = [("CANDIDATE", "PDB VIOLATIONS", "VICTIMS")]
    made = explanation.decision.preemption
    for node, candidate in sorted(made.candidates.items()) if made else ():
        lines.append((node, str(candidate.num_pdb_violations), ", ".join(victims(candidate))))
    return lines

"""A Decision in words: a table for people, a form for JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from extender.offline.decision import Decision
from extender.preemption import Candidate, Preemption

Cells = Sequence[str]


def as_json(decision: Decision) -> dict[str, Any]:
    """The whole decision, ready for JSON.

    {"pod": "namespace/name", "feasible": [node, ...], "best": [node, ...],
     "refusals": {node: {"plugin", "code", "reasons": [...]}},
     "scores": {node: {plugin: {"raw", "normalised", "weight", "weighted"}}}, "total": {node: number},
     "preemption": {"candidates": {node: {"victims": [...], "numPDBViolations"}}, "nominatedNode": node or null}}
    """
    return {
        "pod": decision.pod.key,
        "feasible": decision.feasible,
        "best": decision.best,
        "refusals": refusals(decision),
        "scores": _scores(decision),
        "total": totals(decision),
        "preemption": preemption(decision),
    }


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


def preemption(decision: Decision) -> dict[str, Any]:
    """Who would have to go on which node, and the node that would be chosen."""
    if decision.preemption is None:
        return {"candidates": {}, "nominatedNode": None}
    candidates = {
        node: {"victims": _victims(candidate), "numPDBViolations": candidate.num_pdb_violations}
        for node, candidate in decision.preemption.candidates.items()
    }
    return {"candidates": candidates, "nominatedNode": decision.preemption.nominated_node}


def as_text(decision: Decision) -> Iterator[str]:
    """Lines for a terminal: feasible nodes, the best first; then the others with reasons; then preemption."""
    yield _printable(f"pod {decision.pod.key}: {len(decision.feasible)} of {len(decision.nodes)} nodes can take it")
    for part in (_feasible(decision), _refused(decision), _candidates(decision)):
        if len(part) > 1:
            yield ""
            yield from _aligned(part)
    if decision.preemption:
        yield ""
        yield _printable(_outcome(decision.preemption))


def _scores(decision: Decision) -> dict[str, dict[str, dict[str, int]]]:
    by_plugin = {
        plugin: (score.weight, score.raw.tolist(), score.normalised.tolist(), score.weighted.tolist())
        for plugin, score in decision.scores.items()
    }
    return {
        node: {
            plugin: {"raw": raw[i], "normalised": normalised[i], "weight": weight, "weighted": weighted[i]}
            for plugin, (weight, raw, normalised, weighted) in by_plugin.items()
        }
        for i, node in enumerate(decision.feasible)
    }


def _feasible(decision: Decision) -> list[Cells]:
    total, weighted = totals(decision), weighted_scores(decision)
    head = ["NODE", "TOTAL", *decision.scores]
    by_total = sorted(decision.feasible, key=lambda node: (-total[node], node))
    return [head, *([node, str(total[node]), *map(str, weighted[node].values())] for node in by_total)]


def _refused(decision: Decision) -> list[Cells]:
    lines: list[Cells] = [("NODE", "REFUSED BY", "EVICTIONS", "REASONS")]
    for node, refusal in sorted(decision.refusals.items()):
        evictions = "may help" if refusal.may_be_preempted else "cannot help"
        lines.append((node, refusal.plugin, evictions, ", ".join(refusal.reasons)))
    return lines


def _candidates(decision: Decision) -> list[Cells]:
    lines: list[Cells] = [("CANDIDATE", "PDB VIOLATIONS", "VICTIMS")]
    candidates = decision.preemption.candidates if decision.preemption else {}
    for node, candidate in sorted(candidates.items()):
        lines.append((node, str(candidate.num_pdb_violations), ", ".join(_victims(candidate))))
    return lines


def _outcome(preemption: Preemption) -> str:
    if preemption.nominated_node:
        return f"preemption would choose {preemption.nominated_node}"
    return f"no preemption: {preemption.reason}"


def _victims(candidate: Candidate) -> list[str]:
    return [victim.pod.key for victim in candidate.victims]


def _aligned(lines: Sequence[Cells]) -> Iterator[str]:
    shown = [[_printable(cell) for cell in line] for line in lines]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    for line in shown:
        yield "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()


def _printable(text: str) -> str:
    """Objects come from anyone: what could move the cursor is shown as an escape."""
    return text if text.isprintable() else text.encode("unicode_escape").decode("ascii")

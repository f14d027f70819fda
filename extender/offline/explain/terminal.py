"""Prints an Explanation as text for a terminal: a summary, or node by node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from extender.offline.explain.explanation import (
    Explanation,
    FilterVerdict,
    KnownMoves,
    Waterfall,
    reason_table,
    totals,
    victims,
    weighted_scores,
)
from extender.offline.explain.group import EvictedUnit, GroupExplanation
from extender.offline.explain.suggestion import SuggestedChange
from extender.runtime.text import age_of, aligned, counted, listed, printable, section

MOST_CHANGES = 5
_MOST_SCORES = 6
_MOST_VICTIMS = 5


def summary(explanation: Explanation, *, changes: bool = True) -> Iterator[str]:
    """Yields lines of text: the verdict, the notes, the reasons with their numbers, and the suggested changes."""
    yield printable(f"pod {explanation.pod.key}: {explanation.message}")
    if (condition := explanation.condition) is not None:
        yield printable(f"but {condition}{_ago(condition.since)}")
    yield from (printable(f"note: {note}") for note in explanation.notes)
    if explanation.decision.nominated is not None:
        yield printable(f"would be placed on {explanation.decision.nominated}, because it is nominated to it")
    if explanation.waterfall is not None and (explanation.group is None or explanation.fits):
        yield from _winner(explanation.waterfall)
    if explanation.reasons:
        yield ""
        if explanation.group is not None:
            yield "as if it were in no group:"
        yield from reason_table(explanation.reasons)
        if sum(reason.nodes for reason in explanation.reasons) > len(explanation.decision.nodes):
            yield "a node can have several reasons"
    yield from _preemption(explanation)
    if changes and explanation.decision.nodes and not explanation.decision.feasible:
        yield from _changes(explanation.changes)
        if explanation.moves is not None:
            yield printable(f"{_effect_of(explanation.moves)}: {explanation.plan}")
    if (group := explanation.group) is not None and not group.fits:
        namespace, _, name = group.key.partition("/")
        yield printable(f"for the whole group: extender explain {namespace}/{group.kind.lower()}/{name}")


def _effect_of(moves: KnownMoves) -> str:
    """Returns a text such as `2 moves of other pods would let it run`."""
    if moves.enough is not None:
        return f"{counted(moves.enough, 'move')} of other pods would let it run"
    return f"{f'{moves.least} or more moves' if moves.least > 1 else 'moves'} of other pods may let it run too"


def _ago(since: str | None) -> str:
    return f", written {age_of(datetime.fromisoformat(since), datetime.now(UTC))} ago" if since else ""


def group_summary(explanation: GroupExplanation, *, changes: bool = True) -> Iterator[str]:
    """Yields lines of text about a pod group: the verdict, the first member that does not fit, and what would help."""
    names_itself = explanation.message.startswith(explanation.name)
    yield printable(explanation.message if names_itself else f"{explanation.name}: {explanation.message}")
    if explanation.policy:
        counts = f"{explanation.scheduled} scheduled, {explanation.waiting} waiting"
        yield printable(f"note: {explanation.policy}; {counts}")
    yield from (printable(f"note: {note}") for note in explanation.notes)
    if explanation.scheduler_message:
        yield printable(f"note: the scheduler's message is: {explanation.scheduler_message}")
    children = [
        (f"{child.kind} {child.key}", str(child.scheduled), str(child.waiting), child.message or "fits")
        for child in explanation.child_groups
    ]
    yield from section(("CHILD GROUP", "SCHEDULED", "WAITING", "VERDICT"), children)
    domains = [
        (offer.domain, str(offer.nodes), f"{offer.placed} of {explanation.waiting}", offer.message)
        for offer in explanation.domains
    ]
    yield from section(("DOMAIN", "NODES", "MEMBERS THAT FIT", "WHY NO MORE"), domains)
    yield from _next_member(explanation)
    nodes = sorted(Counter(explanation.placed.values()).items())
    yield from section(("NODE", "MEMBERS THAT FIT"), [(node, str(count)) for node, count in nodes])
    yield from _evictions(explanation)
    if changes and not explanation.fits:
        yield from _changes(explanation.changes, "admit the whole group")


def _next_member(explanation: GroupExplanation) -> Iterator[str]:
    refused = explanation.refused
    if refused is None:
        return
    yield ""
    where = f" in {explanation.domain}" if explanation.domain else ""
    others = f"with {counted(len(explanation.placed), 'member')} placed{where}, " if explanation.placed else ""
    yield printable(f"{others}{refused.pod.key} finds no node: {_without_preemption(refused.message)}")
    yield from reason_table(refused.reasons)


def _without_preemption(message: str) -> str:
    """Removes the part about preemption from a member's message, because a member does not preempt alone."""
    return message.partition(" preemption: ")[0]


def _evictions(explanation: GroupExplanation) -> Iterator[str]:
    evictions = explanation.evictions
    if evictions is None:
        return
    yield ""
    if not evictions.units:
        yield printable(f"preemption: {evictions.message}; the group waits until the evicted pods have left")
        return
    yield printable(f"preemption: would evict {listed([_unit(unit) for unit in evictions.units], _MOST_VICTIMS)}")
    if evictions.violated_budgets:
        yield printable(f"this violates PodDisruptionBudget {listed(evictions.violated_budgets, _MOST_VICTIMS)}")


def _unit(unit: EvictedUnit) -> str:
    if unit.group is not None:
        return f"the whole PodGroup {unit.group} ({counted(len(unit.pods), 'pod')})"
    return " and ".join(f"{pod} from {node}" for pod, node in unit.pods.items())


def nodes(explanation: Explanation) -> Iterator[str]:
    """Yields lines of text: tables of the nodes that fit, nodes that refuse, and candidates for preemption."""
    decision = explanation.decision
    total, weighted = totals(decision), weighted_scores(decision)
    best_first = sorted(decision.feasible, key=lambda node: (-total[node], node))
    feasible = ([node, str(total[node]), *map(str, weighted[node].values())] for node in best_first)
    yield from section(("NODE", "TOTAL", *decision.scores), feasible)
    refused = [
        (node, each.plugin, "may help" if each.may_be_preempted else "cannot help", ", ".join(each.reasons))
        for node, each in sorted(decision.refusals.items())
    ]
    yield from section(("NODE", "REFUSED BY", "EVICTIONS", "REASONS"), refused)
    candidates = [
        (node, str(each.num_pdb_violations), ", ".join(victims(each)))
        for node, each in sorted(decision.preemption.candidates.items() if decision.preemption else ())
    ]
    yield from section(("CANDIDATE", "PDB VIOLATIONS", "VICTIMS"), candidates)


def one_node(name: str, verdicts: Sequence[FilterVerdict]) -> Iterator[str]:
    """Yields lines of text: a table with the verdict of every filter about one node."""
    yield ""
    lines = [(verdict.plugin, verdict.text, verdict.detail) for verdict in verdicts]
    yield from aligned([("FILTER", f"VERDICT ON {name}", "DETAIL"), *lines])


def _winner(choice: Waterfall) -> Iterator[str]:
    tied = ""
    if choice.ties > 1:
        tied = f", tied with {counted(choice.ties - 1, 'other node')}; the scheduler picks one at random"
    yield printable(f"would be placed on {choice.winner} ({choice.total} points{tied})")
    if choice.runner_up_total is not None:
        differences = [f"{plugin} {line.difference:+}" for plugin, line in choice.plugins.items() if line.difference]
        yield printable(
            f"runner-up: {choice.runner_up} ({choice.runner_up_total} points); {choice.winner} leads by "
            f"{choice.total - choice.runner_up_total}: {listed(differences, _MOST_SCORES)}"
        )


def _preemption(explanation: Explanation) -> Iterator[str]:
    preemption = explanation.decision.preemption
    if preemption is None or preemption.nominated_node is None:
        return
    candidate = preemption.candidates[preemption.nominated_node]
    yield ""
    yield printable(
        f"preemption: would evict {listed(victims(candidate), _MOST_VICTIMS)} from {preemption.nominated_node}"
    )
    if explanation.preemption_decided_by:
        others = counted(len(preemption.candidates) - 1, "other node")
        yield printable(f"chosen over {others} because {explanation.preemption_decided_by}")


def _changes(changes: Sequence[SuggestedChange], effect: str = "let it run") -> Iterator[str]:
    yield ""
    if not changes:
        hint = ": see --nodes, or --node NAME for one node" if effect == "let it run" else ""
        yield f"no change was found that would {effect}{hint}"
        return
    yield f"any one of these changes would {effect}, the smallest first:"
    printed = changes[:MOST_CHANGES]
    rows = [(change.text, _nodes_text(change.nodes)) for change in printed]
    yield from aligned([("CHANGE", "THEN FITS ON"), *rows])
    if len(changes) > len(printed):
        yield f"and {len(changes) - len(printed)} more: use -o json"


def _nodes_text(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{len(names)} nodes: {listed(names)}"

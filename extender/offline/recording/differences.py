"""Compares a recorded decision with the same decision made again, and finds the causes of differences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from extender.engine.decision import Chosen, Failure
from extender.framework.status import Refusal
from extender.model.pod import Pod
from extender.offline.recording.worlds import World
from extender.recording.encoder import decided_nodes, planned_nodes
from extender.recording.lines import (
    AttemptLine,
    CallLine,
    GroupLine,
    NodeNumbers,
    PlanLine,
    decoded_pod,
    from_digits,
    from_ranges,
)
from extender.verbs.bind import UNFIT
from extender.verbs.group_planning import OTHER_NODE

PASSES = "passes"
_MOST_PLUGINS = 4


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference between a recorded decision and its replay.

    Attributes:
        recorded, replayed: the two outcomes. Each is a reason for refusal, the word `passes`, a score, a node, or
            victims.
        cause: the plugins that cause the difference. If scores differ, the points are added: "NodeResourcesFit +40".
            "" if no plugin is found, for example because both decisions used the same rules.
        nodes: the nodes to which the difference applies; empty if it applies to no node.
    """

    recorded: str
    replayed: str
    cause: str = ""
    nodes: Sequence[str] = field(default_factory=tuple)


def filter_differences(line: CallLine, numbers: NodeNumbers, first: World, second: World) -> Iterator[Difference]:
    """Yields the differences in filter's verdicts on nodes.

    Nodes that have the same recorded verdict and the same replayed verdict share one difference.
    """
    args = second.args(line)
    second.remember(args.pod)
    second.plans.current = line.plan or 0
    answer = second.filter.decide(args)
    recorded = _not_planned(args.names, second.plans.recorded_node(args.pod)) | {
        name: _verdict(reason, final=final)
        for final, refused in ((False, line.refused), (True, line.unresolvable))
        for reason, nodes in refused.items()
        for name in numbers.named(from_ranges(nodes))
    }
    replayed = _not_planned(args.names, answer.best) | {
        name: _verdict(reason, final=final)
        for final, refused in ((False, answer.failed_nodes), (True, answer.failed_and_unresolvable_nodes))
        for name, reason in refused.items()
    }
    by_verdicts: dict[tuple[str, str], list[str]] = {}
    for name in args.names:
        verdicts = recorded.get(name, PASSES), replayed.get(name, PASSES)
        if verdicts[0] != verdicts[1]:
            by_verdicts.setdefault(verdicts, []).append(name)
    for (before, after), names in by_verdicts.items():
        yield Difference(before, after, _refusing(args.pod, names[0], first, second), names)


def prioritize_differences(line: CallLine, first: World, second: World) -> Iterator[Difference]:
    """Yields one difference that lists all nodes whose scores differ.

    The difference shows the scores and the cause for one node: the node whose score changes most.
    """
    args = second.args(line)
    answer = second.prioritize.decide(args)
    recorded, replayed = from_digits(line.scores), answer.scores.tolist()
    changed = {
        name: (before, after)
        for name, before, after in zip(answer.hosts, recorded, replayed, strict=True)
        if before != after
    }
    if not changed:
        return
    names = sorted(changed, key=lambda name: -abs(changed[name][0] - changed[name][1]))
    before, after = changed[names[0]]
    points = _points(args.pod, names[0], first, second, args.names)
    yield Difference(f"score {before} on {names[0]}", f"score {after}", points, names)


def preempt_differences(line: CallLine, second: World) -> Iterator[Difference]:
    """Yields a difference for each node whose victims differ or that only one answer proposes for preemption."""
    answer = second.preempt.decide(second.preemption_args(line)).node_name_to_meta_victims
    recorded = {node: [pod.uid for pod in victims.pods] for node, victims in line.kept_victims().items()}
    replayed = {node: [pod.uid for pod in victims.pods] for node, victims in answer.items()}
    for node in dict.fromkeys((*recorded, *replayed)):
        before, after = recorded.get(node), replayed.get(node)
        if before != after:
            yield Difference(_evicting(before), _evicting(after), "", [node])


def bind_differences(line: CallLine, second: World) -> Iterator[Difference] | None:
    """Compares the check before a bind; returns at most one difference, or None if the check cannot be repeated."""
    binding, error = line.binding(), line.binding_error()
    reason = second.refused_at_bind(binding.pod_uid, binding.node)
    if reason is None:
        return None
    recorded = error.partition(UNFIT)[2] if UNFIT in error else ""
    if recorded == reason:
        return iter(())
    return iter((Difference(recorded or PASSES, reason or PASSES, "", [binding.node]),))


def attempt_differences(line: AttemptLine, first: World, second: World) -> Iterator[Difference]:
    """Yields a difference if the attempt now chooses another node, fails for another reason or evicts other pods."""
    decided = second.attempt(line)
    recorded, replayed = _choice_of(line), _choice(decided)
    if recorded == replayed:
        return
    pod = decoded_pod(line)
    chosen = decided.node_name if isinstance(decided, Chosen) else ""
    cause = ""
    if line.node:
        cause = _refusing(pod, line.node, first, second)
        if not cause and chosen:
            cause = _preferring(pod, line.node, chosen, first, second)
    elif chosen:
        cause = _refusing(pod, chosen, first, second)
    yield Difference(recorded, replayed, cause, [node for node in (line.node, chosen) if node])


def plan_differences(line: PlanLine, second: World) -> Iterator[Difference]:
    """Compares a plan for a group with the recorded plan.

    Yields one difference if only one of the two plans places the group, or if the reasons for refusal differ.
    Otherwise yields a difference for each member whose node differs.
    """
    plan = second.plan(line)
    recorded = _plan_outcome(line.message, emptied=line.emptied)
    replayed = _plan_outcome(plan.refusal.reason if plan.refusal else "", emptied=plan.is_emptied)
    if recorded != replayed:
        yield Difference(recorded, replayed)
        return
    yield from _node_differences(line.placed, planned_nodes(plan))


def group_differences(line: GroupLine, second: World) -> Iterator[Difference]:
    """Compares an attempt to schedule a group with the recorded attempt.

    Yields one difference if the message or the victims differ, otherwise one for each member whose node differs.
    """
    decision, evicted = second.group_attempt(line)
    placed, victims = decided_nodes(decision), [victim.pod.key for victim in evicted]
    recorded = _group_outcome(line.message, line.victims)
    replayed = _group_outcome(decision.text, victims)
    if recorded != replayed:
        yield Difference(recorded, replayed)
        return
    yield from _node_differences(line.placed, placed)


def _node_differences(recorded: Mapping[str, str], replayed: Mapping[str, str]) -> Iterator[Difference]:
    """Yields a difference for each member of a group whose recorded node is not the replayed node."""
    for key in dict.fromkeys((*recorded, *replayed)):
        before, after = recorded.get(key), replayed.get(key)
        if before != after:
            nodes = [node for node in (before, after) if node]
            yield Difference(f"{key}: {before or 'no node'}", f"{key}: {after or 'no node'}", "", nodes)


# ---- the words for a verdict


def _plan_outcome(message: str, *, emptied: bool) -> str:
    return message or ("planned, once pods of lower priority have left" if emptied else "planned")


def _group_outcome(message: str, victims: Sequence[str]) -> str:
    return f"{message} (evicts {', '.join(victims)})" if victims else message or "scheduled"


def _not_planned(names: Sequence[str], best: str) -> dict[str, str]:
    """Returns {node: verdict} for the nodes that filter removes because a plan places the pod on the node `best`.

    Returns {} if `best` is "": then filter keeps every node that passes.
    """
    return {name: OTHER_NODE for name in names if name != best} if best in names else {}


def _verdict(reason: str, *, final: bool) -> str:
    return f"{reason} (no eviction helps)" if final else reason


def _evicting(uids: Sequence[str] | None) -> str:
    return "no candidate" if uids is None else f"evicts {', '.join(uids)}"


def _choice_of(line: AttemptLine) -> str:
    if line.node:
        return line.node
    return _in_words(line.message, line.nominated_node, line.victims)


def _choice(decided: Chosen | Failure) -> str:
    if isinstance(decided, Chosen):
        return decided.node_name
    plan = decided.preemption
    victims = [victim.pod.key for victim in plan.victims] if plan else []
    return _in_words(decided.message, plan.node_name if plan else "", victims)


def _in_words(message: str, nominated_node: str, victims: Sequence[str]) -> str:
    return f"{message} (evicts {', '.join(victims)} from {nominated_node})" if nominated_node else message


# ---- causes


def _refusing(pod: Pod, node: str, first: World, second: World) -> str:
    """Returns the plugins that refuse the node; "" if `first` and `second` give the same verdict on the node."""
    if first is second:
        return ""
    return _differing(first.refusal(pod, node), second.refusal(pod, node))


def _differing(before: Refusal | None, after: Refusal | None) -> str:
    if before == after:
        return ""
    refusals = [refusal for refusal in (before, after) if refusal is not None]
    return ", ".join(dict.fromkeys(refusal.plugin or "PreFilter" for refusal in refusals))


def _points(pod: Pod, node: str, first: World, second: World, names: Sequence[str]) -> str:
    """Returns how much `second` changes each plugin's score of the node, such as "NodeResourcesFit +40"."""
    if first is second:
        return ""
    before, after = first.scores(pod, names), second.scores(pod, names)
    plugins = dict.fromkeys((*before, *after))
    return _listed(
        {plugin: after.get(plugin, {}).get(node, 0) - before.get(plugin, {}).get(node, 0) for plugin in plugins}
    )


def _preferring(pod: Pod, before: str, after: str, first: World, second: World) -> str:
    """Returns how much `second` changes each plugin's preference for node `after` over node `before`.

    "NodeResourcesFit +40" means that the plugin's score for `after`, minus its score for `before`, grows by 40.
    """
    if first is second:
        return ""

    def leads(world: World) -> Mapping[str, int]:
        return {plugin: on.get(after, 0) - on.get(before, 0) for plugin, on in world.scores(pod).items()}

    old, new = leads(first), leads(second)
    return _listed({plugin: new.get(plugin, 0) - old.get(plugin, 0) for plugin in dict.fromkeys((*old, *new))})


def _listed(points: Mapping[str, int]) -> str:
    moved = sorted(((name, by) for name, by in points.items() if by), key=lambda pair: -abs(pair[1]))
    return ", ".join(f"{name} {by:+}" for name, by in moved[:_MOST_PLUGINS])


def as_dict(difference: Difference) -> dict[str, Any]:
    return {
        "recorded": difference.recorded,
        "replayed": difference.replayed,
        "cause": difference.cause or None,
        "nodes": list(difference.nodes),
    }

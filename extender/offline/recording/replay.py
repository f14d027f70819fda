"""Makes every decision of a recording again, on the cluster of that moment, and explains each difference."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from extender.engine import rule_errors
from extender.engine.decision import Chosen, Failure
from extender.errors import ConfigurationError
from extender.framework.status import Refusal
from extender.model.pod import Pod
from extender.offline import rendering
from extender.offline.answers import Documented, frame
from extender.offline.recording.reading import RecordedStep, Recording, decoded_object, naming_step
from extender.offline.recording.worlds import Causes, Consequence, Rules, World, counted_by_cause
from extender.policy.loading import AnyPolicy
from extender.policy.policy import changes
from extender.recording.lines import (
    AttemptLine,
    CallLine,
    CheckpointLine,
    DecisionLine,
    GroupLine,
    NodeNumbers,
    ObjectLine,
    PlanLine,
    decided_nodes,
    decoded_pod,
    from_digits,
    from_ranges,
    planned_nodes,
)
from extender.runtime.clock import LATE, known_so_far
from extender.runtime.text import MOST_ROWS, Cells, aligned, counted, listed, printable, section
from extender.table.features import FeatureGates
from extender.verbs.bind import UNFIT
from extender.verbs.group_planning import OTHER_NODE
from extender.verbs.verb import DECIDED

if TYPE_CHECKING:
    import pandas as pd

PASSES = "passes"
_MOST_PLUGINS = 4
_WHAT: Mapping[type, str] = {AttemptLine: "attempt", GroupLine: "group", PlanLine: "plan"}
BEFORE = "decided before the file begins"
MISSING = "decided on changes that were not recorded"
UNJUDGED = "not judged by any rule"
PLANNED = "asked about a member of a pod group whose plan is not recorded"
UNDECIDED = "ended because a rule did not answer in time"
FAILED = "ended in an error"
EXTENDERS = "other extenders took part, and their answers are not recorded"
Progress = Callable[[int, int], None]
_MOST_NODES = 3
_EVICTS = " (evicts "


class Difference(Documented, frozen=True):
    """One difference between a recorded decision and its replay.

    Attributes:
        recorded, replayed: the two outcomes. Each is a reason for refusal, the word `passes`, a score, a node, or
            victims.
        cause: the plugins that cause the difference. If scores differ, the points are added: "NodeResourcesFit +40".
            None if no plugin is found, for example because both decisions used the same rules.
        nodes: the nodes to which the difference applies; empty if it applies to no node.
    """

    recorded: str
    replayed: str
    cause: str | None = None
    nodes: Sequence[str] = ()


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
            yield Difference(_evicting(before), _evicting(after), None, [node])


def bind_differences(line: CallLine, second: World) -> Iterator[Difference] | None:
    """Compares the check before a bind; returns at most one difference, or None if the check cannot be repeated."""
    binding, error = line.binding(), line.binding_error()
    reason = second.refused_at_bind(binding.pod_uid, binding.node)
    if reason is None:
        return None
    recorded = error.partition(UNFIT)[2] if UNFIT in error else ""
    if recorded == reason:
        return iter(())
    return iter((Difference(recorded or PASSES, reason or PASSES, None, [binding.node]),))


def attempt_differences(line: AttemptLine, first: World, second: World) -> Iterator[Difference]:
    """Yields a difference if the attempt now chooses another node, fails for another reason or evicts other pods."""
    decided = second.attempt(line)
    recorded, replayed = _choice_of(line), _choice(decided)
    if recorded == replayed:
        return
    pod = decoded_pod(line)
    chosen = decided.node_name if isinstance(decided, Chosen) else ""
    cause = None
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
            yield Difference(f"{key}: {before or 'no node'}", f"{key}: {after or 'no node'}", None, nodes)


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
    return f"{message}{_EVICTS}{', '.join(victims)} from {nominated_node})" if nominated_node else message


def _what_changes(line: DecisionLine, differences: Sequence[Difference]) -> str:
    """Returns what changes for the pod or group, as in "3 pods get another node" (see `Consequence`)."""
    if isinstance(line, GroupLine | PlanLine):
        return "are placed otherwise"
    before, after = differences[0].recorded, differences[0].replayed
    if isinstance(line, AttemptLine):
        fit, fits = bool(line.node), len(differences[0].nodes) > bool(line.node)
        if fit or fits:
            return "get another node" if fit and fits else "get a node" if fits else "fit no node"
        return "get other victims" if line.victims or _EVICTS in after else "get another refusal"
    match line.verb:
        case "filter":
            verdicts = {verdict for each in differences for verdict in (each.recorded, each.replayed)}
            return "pass filter on other nodes" if PASSES in verdicts else "get another refusal"
        case "prioritize":
            return "get other scores"
        case "preempt":
            return "get other victims"
        case _:
            return "fit no node" if before == PASSES else "get a node" if after == PASSES else "get another refusal"


# ---- causes


def _refusing(pod: Pod, node: str, first: World, second: World) -> str | None:
    """Returns the plugins that refuse the node; None if `first` and `second` give the same verdict on the node."""
    if first is second:
        return None
    return _differing(first.refusal(pod, node), second.refusal(pod, node))


def _differing(before: Refusal | None, after: Refusal | None) -> str | None:
    if before == after:
        return None
    refusals = [refusal for refusal in (before, after) if refusal is not None]
    return ", ".join(dict.fromkeys(refusal.plugin or "PreFilter" for refusal in refusals))


def _points(pod: Pod, node: str, first: World, second: World, names: Sequence[str]) -> str | None:
    """Returns how much `second` changes each plugin's score of the node, such as "NodeResourcesFit +40"."""

    def points(world: World) -> Mapping[str, int]:
        return {plugin: on.get(node, 0) for plugin, on in world.scores(pod, names).items()}

    return _gained(points, first, second)


def _preferring(pod: Pod, before: str, after: str, first: World, second: World) -> str | None:
    """Returns how much `second` changes each plugin's preference for node `after` over node `before`.

    "NodeResourcesFit +40" means that the plugin's score for `after`, minus its score for `before`, grows by 40.
    """

    def lead(world: World) -> Mapping[str, int]:
        return {plugin: on.get(after, 0) - on.get(before, 0) for plugin, on in world.scores(pod).items()}

    return _gained(lead, first, second)


def _gained(points: Callable[[World], Mapping[str, int]], first: World, second: World) -> str | None:
    """Returns how many points more `second` gives by each plugin, the greatest first; None if there is no change."""
    if first is second:
        return None
    before, after = points(first), points(second)
    gained = {name: after.get(name, 0) - before.get(name, 0) for name in (*before, *after)}
    moved = sorted(((name, by) for name, by in gained.items() if by), key=lambda pair: -abs(pair[1]))
    return ", ".join(f"{name} {by:+}" for name, by in moved[:_MOST_PLUGINS]) or None


class ChangedDecision(Documented, frozen=True):
    """A decision that differs when made again.

    Attributes:
        step: the number of the decision's step in the recording.
        at: when it was made, in seconds since the epoch.
        what: a verb; or "plan", filter's plan for a pod group; or "attempt" or "group", the scheduling loop's decision
            about a pod or a pod group.
        pod: the pod (namespace/name), or the group ("PodGroup ml/train").
        differences: the differences between the recorded decision and the repeated one.
        because: the change of Kubernetes that makes the difference; None if no upgrade is checked.
    """

    step: int
    at: float
    what: str
    pod: str
    differences: Sequence[Difference]
    because: str | None = None


class ReplayResult(Documented, frozen=True):
    """The outcome of a replay.

    Attributes:
        decided: the number of decisions made again, by kind (see `ChangedDecision.what`).
        left_out: the number of decisions that could not be made again, by reason.
        changed: the decisions that differ, in the order of the recording.
        notes: remarks about the recording.
    """

    decided: Mapping[str, int]
    left_out: Mapping[str, int]
    changed: Sequence[ChangedDecision]
    notes: Sequence[str]

    def __repr__(self) -> str:
        return f"ReplayResult({len(self.changed)} of {counted(sum(self.decided.values()), 'decision')} differ)"

    def to_frame(self) -> pd.DataFrame:
        """Returns a DataFrame with a row for each difference: step, at, what, pod, recorded, replayed, cause, nodes.

        Raises ExtenderError if pandas is not installed.
        """
        columns = ("step", "at", "what", "pod", "recorded", "replayed", "cause", "nodes")
        documents = (decision.to_dict() for decision in self.changed)
        return frame(({**each, **one} for each in documents for one in each.pop("differences")), columns)

    def _repr_html_(self) -> str:
        head = ("STEP", "DECISION", "POD", "RECORDED", "REPLAYED", "CAUSE")
        rows = [
            (decision.step, decision.what, decision.pod, one.recorded, one.replayed, one.cause or "")
            for decision in self.changed
            for one in decision.differences
        ]
        title = f"{len(self.changed)} of {sum(self.decided.values())} decisions differ"
        return rendering.part("table.html", {"title": title, "head": head, "rows": rows})


def replay(
    recording: Recording | str | Path,
    policy: AnyPolicy | None = None,
    progress: Progress | None = None,
    *,
    gates: str | None = None,
) -> ReplayResult:
    """Makes every decision of a recording again, each on the cluster as it was at the time of the decision.

    Args:
        policy: other rules to decide by, as the path of a file, as a mapping or as an object; None for the recording's
            own rules, under which nothing should differ. Python modules beside a file are imported if the policy names
            rules in them.
        progress: called with the number of decisions handled so far and the number of all decisions.
        gates: other feature gates to decide by, such as "A=true,B=false". If a version of Kubernetes is among them,
            such as "1.36,A=true", its defaults apply to all gates that were not set.

    Raises:
        MalformedInput: the file is not a recording, or a line in it makes no sense.
        ConfigurationError: a policy has faults, a version or gate is not known, or the recording's policy names a rule
            that is neither in an installed package nor imported for `policy`.
        OSError: a file cannot be read.
    """
    if not isinstance(recording, Recording):
        recording = Recording.load(recording)
    settings, other = recording.header.settings, None
    if policy is not None:
        with _naming(str(policy) if isinstance(policy, str | Path) else "the policy"):
            other = Rules.of_policy(policy, settings)
    with _naming("the recording's policy"):
        own = Rules.of_recording(settings, other)
    if gates is not None:
        other = (other or own).with_gates(gates)
    first = World(own, recording.numbers)
    second = first.under(other) if other else first

    def under(features: FeatureGates) -> World:
        return second.under(second.rules.with_features(features))

    is_upgrade = gates is not None and policy is None
    causes = Causes(own.profiles.features, second.rules.profiles.features, under) if is_upgrade else None
    again = _Replay(recording, first, second, causes)
    result = again.run(progress)
    if gates is None or other is None:
        return result
    changed = changes(own.profiles.features, other.profiles.features)
    note = (
        f"decided again with {changed}"
        if changed
        else f"under {gates}, every feature gate has the same value as in the recording"
    )
    return replace(result, notes=[*counted_by_cause(again.consequences), note, *result.notes])


@contextmanager
def _naming(policy: str) -> Iterator[None]:
    try:
        yield
    except ConfigurationError as error:
        raise ConfigurationError([f"{policy}: {fault}" for fault in error.faults]) from None


class _Replay:
    """Makes each decision of a recording again in `second`, and compares it with the recorded decision.

    `first` has the rules of the recording, and `second` the rules to compare with them. Both are the same World if the
    recording is replayed under its own rules. A plugin that answers differently in `first` causes a difference.

    Args:
        causes: finds the changes of Kubernetes behind the differences; None if no upgrade is checked.
    """

    def __init__(self, recording: Recording, first: World, second: World, causes: Causes[World] | None = None) -> None:
        self._recording = recording
        self._first = first
        self._second = second
        self._causes = causes
        self.consequences: list[tuple[Consequence, str]] = []
        self._keys: set[tuple[str, str]] = set()
        self._decided = Counter[str]()
        self._left_out = Counter[str]()
        self._changed: list[ChangedDecision] = []

    def run(self, progress: Progress | None) -> ReplayResult:
        lines, order = self._recording.lines, self._order()
        total, gaps = sum(isinstance(line, DecisionLine) for line in lines), self._gaps()
        begun = not (lines and isinstance(lines[0], CheckpointLine))
        with known_so_far(lambda: f"{self._decided.total()} of {counted(total, 'decision')} are made again"):
            for number in order:
                line = lines[number]
                if isinstance(line, DecisionLine):
                    missing = any(begin < line.moment < end for begin, end in gaps)
                    self._decide(number, line, MISSING if missing else "" if begun else BEFORE)
                    if progress:
                        progress(self._decided.total() + self._left_out.total(), total)
                else:
                    begun = True
                    self._change(number, line)
        changed = sorted(self._changed, key=lambda decision: decision.step)
        return ReplayResult(dict(self._decided), dict(self._left_out), changed, list(self._notes()))

    def _order(self) -> list[int]:
        """Returns the numbers of changes and decisions by moment; changes come before decisions of the same moment."""
        numbered = [
            (line.moment, isinstance(line, DecisionLine), number)
            for number, line in enumerate(self._recording.lines)
            if isinstance(line, ObjectLine | CheckpointLine | DecisionLine)
        ]
        return [number for _, _, number in sorted(numbered)]

    def _gaps(self) -> list[tuple[int, int]]:
        """Returns the gaps in the recorded changes, each as the numbers of the changes before and after the gap."""
        gaps, last = [], 0
        for line in self._recording.lines:
            if isinstance(line, CheckpointLine) and line.dropped:
                gaps.append((last, line.moment))
            if isinstance(line, ObjectLine | CheckpointLine):
                last = line.moment
        return gaps

    def _change(self, number: int, line: object) -> None:
        if isinstance(line, CheckpointLine):
            for kind, key in self._keys:
                self._first.change(kind, key, None)
            self._keys.clear()
        elif isinstance(line, ObjectLine):
            with naming_step(number):
                present, reference = decoded_object(line), (line.kind, line.key)
            self._keys.discard(reference) if present is None else self._keys.add(reference)
            self._first.change(*reference, present)

    def _decide(self, number: int, line: DecisionLine, obstacle: str) -> None:
        what = line.verb if isinstance(line, CallLine) else _WHAT[type(line)]
        if isinstance(line, AttemptLine) and line.message.startswith(LATE):
            obstacle = obstacle or UNDECIDED
        if isinstance(line, GroupLine) and line.failed:
            obstacle = obstacle or (UNDECIDED if line.message.startswith(LATE) else FAILED)
        with rule_errors(), naming_step(number):
            obstacle = obstacle or (PLANNED if self._lacks_plan(line) else "")
            compared = None if obstacle else self._differences(line, self._first, self._second)
            differences = list(compared or ())
            because = self._because(number, line, differences) if differences else None
        if compared is None:
            self._left_out[obstacle or (UNJUDGED if isinstance(line, CallLine) else EXTENDERS)] += 1
            return
        self._decided[what] += 1
        if differences:
            step = self._recording.steps[number]
            self._changed.append(ChangedDecision(number, step.at, what, step.subject, differences, because))

    def _because(self, number: int, line: DecisionLine, differences: Sequence[Difference]) -> str | None:
        """Returns the change of Kubernetes that makes the difference; None if no upgrade is checked."""
        if self._causes is None:
            return None
        cause = self._causes.of(lambda world: any(self._differences(line, world, world) or ()))
        noun = "group" if isinstance(line, GroupLine | PlanLine) else "pod"
        what = _what_changes(line, differences)
        self.consequences.append((Consequence(noun, what, cause), self._recording.steps[number].subject))
        return cause

    def _differences(self, line: DecisionLine, first: World, second: World) -> Iterator[Difference] | None:
        """Makes the decision again and returns the differences; None if the decision cannot be made again."""
        if isinstance(line, PlanLine):
            return plan_differences(line, second)
        if not isinstance(line, CallLine):
            if first.rules.asks_extenders or second.rules.asks_extenders:
                return None
            if isinstance(line, GroupLine):
                return group_differences(line, second)
            return attempt_differences(line, first, second)
        if line.result != DECIDED:
            return None
        match line.verb:
            case "filter":
                return filter_differences(line, self._recording.numbers, first, second)
            case "prioritize":
                return prioritize_differences(line, first, second)
            case "preempt":
                return preempt_differences(line, second)
            case _:
                return bind_differences(line, second)

    def _lacks_plan(self, line: DecisionLine) -> bool:
        """Returns True if the decision was made from a plan for a pod group, and the recording lacks that plan."""
        if isinstance(line, PlanLine):
            return bool(line.before) and not self._second.plans.has(line.before)
        if not isinstance(line, CallLine) or (line.verb, line.result) != ("filter", DECIDED):
            return False
        if line.plan is not None:
            return bool(line.plan) and not self._second.plans.has(line.plan)
        may_have_plan = self._first.rules.profiles.features.generic_workload
        return may_have_plan and decoded_pod(line).group_key is not None

    def _notes(self) -> Iterator[str]:
        if self._recording.truncated:
            yield "the end of the file is missing: it was read as far as possible"
        missing = sum(line.dropped for line in self._recording.lines if isinstance(line, CheckpointLine))
        if missing:
            yield f"{missing} changes were not recorded, because they came faster than they could be written"


def as_text(result: ReplayResult, *, every: bool = False) -> Iterator[str]:
    """Yields lines of text: the counts, then each difference. The list is shortened unless `every` is True."""
    kinds = ", ".join(f"{count} {what}" for what, count in result.decided.items())
    differ = f"{len(result.changed)} differ" if result.changed else "none differs"
    yield f"{sum(result.decided.values())} decisions repeated{f' ({kinds})' if kinds else ''}: {differ}"
    yield from (f"{count} left out: {why}" for why, count in result.left_out.items())
    yield from (printable(f"note: {note}") for note in result.notes)
    lines: list[Cells] = []
    for decision in result.changed:
        begin = (str(decision.step), _time(decision.at), decision.what, decision.pod)
        lines += [
            (*begin, one.recorded, one.replayed, one.cause or "-", listed(one.nodes, _MOST_NODES) or "-")
            for one in decision.differences
        ]
    head = ("STEP", "TIME", "DECISION", "POD", "RECORDED", "REPLAYED", "CAUSE", "NODES")
    yield from section(head, lines, None if every else MOST_ROWS)


def steps_text(steps: Sequence[RecordedStep]) -> Iterator[str]:
    head = ("STEP", "TIME", "KIND", "ABOUT", "WHAT")
    yield from aligned(
        [head, *((str(step.number), _time(step.at), step.kind, step.subject or "-", step.text) for step in steps)]
    )


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%H:%M:%S.%f")[:-3]

"""Compares decisions about the pods of a snapshot under two versions of Kubernetes, for `extender upgrade-check`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from extender.engine import Decision
from extender.framework.profile import Profiles
from extender.offline.recording.replay import ChangedDecision, Difference, ReplayResult
from extender.offline.recording.worlds import MOST_NAMES, Causes, Consequence, counted_by_cause
from extender.offline.state import ClusterState
from extender.policy.policy import changes, upgraded
from extender.preemption.candidates import Candidate
from extender.runtime.text import MOST_ROWS, counted, listed, printable, section
from extender.table.features import FeatureGates


@dataclass(frozen=True, slots=True)
class UpgradeResult:
    """The outcome of a check of a snapshot.

    Attributes:
        judged: how many pods were judged.
        changed: the pods about which the decisions differ, in the form of a replay, with a step for each.
        consequences: how each of these decisions changes, and for which pod.
    """

    judged: int
    changed: Sequence[ChangedDecision]
    consequences: Sequence[tuple[Consequence, str]]
    notes: Sequence[str]

    def sentences(self, most: int | None = MOST_NAMES) -> Sequence[str]:
        """Returns the counts by cause; see `counted_by_cause`."""
        return counted_by_cause(self.consequences, most)

    def to_dict(self) -> dict[str, Any]:
        """Returns the form of a replay (docs/record-and-replay.md), with a step for each pod that changes."""
        return ReplayResult({"pod": self.judged}, {}, self.changed, [*self.sentences(), *self.notes]).to_dict()


def check(
    state: ClusterState, target: str, progress: Callable[[int, int], None] = lambda _done, _total: None
) -> UpgradeResult:
    """Decides about each pod of the cluster, as if it were waiting, under its own version and under `target`.

    Args:
        target: a version of Kubernetes, feature gates, or both (see `upgraded`).

    Raises:
        ConfigurationError: a version or gate is not known.
    """
    before = state.profiles.features
    after = upgraded(before, target)
    under = cache(partial(_under, state))
    then, now, causes = under(before), under(after), Causes(before, after, under)
    changed: list[ChangedDecision] = []
    consequences: list[tuple[Consequence, str]] = []
    infos = list(state.infos.values())
    for number, info in enumerate(infos, 1):
        one, other = then.engine.decide(info.pod), now.engine.decide(info.pod)
        if _outcome(one) != _outcome(other):
            cause = causes.single(partial(_differs, info.pod.key, _outcome(one)))
            differences = [Difference(_shown(one), _shown(other), cause)]
            changed.append(ChangedDecision(len(changed), 0.0, "pod", info.pod.key, differences, cause))
            consequences.append((Consequence("pod", _what(one, other), cause), info.pod.key))
        progress(number, len(infos))
    difference = changes(before, after)
    note = (
        f"decided with {difference}" if difference else f"under {target}, nothing differs from the snapshot's version"
    )
    return UpgradeResult(len(infos), changed, consequences, [note])


def as_text(result: UpgradeResult, *, every: bool = False) -> Iterator[str]:
    """Yields lines of text: the counts by cause, then each pod. The list is shortened unless `every` is True."""
    number = len(result.changed)
    differ = f"{number} decisions differ" if number > 1 else "1 decision differs" if number else "no decision differs"
    yield f"{counted(result.judged, 'pod')} judged as if waiting: {differ}"
    yield from map(printable, result.sentences(None if every else MOST_NAMES))
    yield from (printable(f"note: {note}") for note in result.notes)
    rows = [
        (each.pod, one.recorded, one.replayed, one.cause or "") for each in result.changed for one in each.differences
    ]
    yield from section(("POD", "BEFORE", "AFTER", "CAUSE"), rows, None if every else MOST_ROWS)


def _under(state: ClusterState, features: FeatureGates) -> ClusterState:
    profiles = state.profiles
    return state.copy(Profiles(profiles.all, features, profiles.extenders, profiles.watch))


def _differs(key: str, outcome: object, state: ClusterState) -> bool:
    return _outcome(state.engine.decide(state.info(key).pod)) != outcome


def _outcome(decision: Decision) -> object:
    """Returns what must be equal for two decisions to be the same: the best nodes, or else where pods are evicted."""
    if decision.feasible:
        return sorted(decision.best)
    eviction = _eviction(decision)
    if eviction is None:
        return sorted((node, refusal.code, refusal.reasons) for node, refusal in decision.refusals.items())
    return eviction.node, [victim.uid for victim in eviction.victims]


def _shown(decision: Decision) -> str:
    if decision.feasible:
        return listed(sorted(decision.best), MOST_NAMES)
    eviction = _eviction(decision)
    if eviction is None:
        return decision.message
    return f"{eviction.node}, evicting {listed([victim.pod.key for victim in eviction.victims], MOST_NAMES)}"


def _what(before: Decision, after: Decision) -> str:
    if before.feasible and after.feasible:
        return "get another node"
    if before.feasible or after.feasible:
        return "fit no node" if before.feasible else "get a node"
    return "get other victims" if _eviction(before) and _eviction(after) else "get another refusal"


def _eviction(decision: Decision) -> Candidate | None:
    """Returns the node that preemption chooses for the pod, with the victims; None if no eviction helps."""
    preemption = decision.preemption
    if preemption is None or preemption.nominated_node is None:
        return None
    return preemption.candidates[preemption.nominated_node]

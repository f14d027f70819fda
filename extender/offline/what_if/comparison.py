"""Compares where pods are placed under two configurations, and which plugins cause the differences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import msgspec

from extender.framework.profile import Profiles
from extender.model.pod import Pod
from extender.offline import rendering
from extender.offline.answers import Documented, frame
from extender.offline.state import ClusterState
from extender.offline.what_if.result import (
    MEASURES,
    GroupCount,
    GroupPlace,
    Simulated,
    SimulationResult,
    by_place,
    group_count,
    simulate_once,
    summary,
)
from extender.offline.what_if.scenario import Scenario
from extender.offline.what_if.simulation import Progress
from extender.runtime.text import MOST_ROWS, Cells, aligned, cut, printable

if TYPE_CHECKING:
    import pandas as pd

_MOST_SCORED = 200
_GROUP_ROWS = {
    GroupPlace.WHOLE: "pod groups whole",
    GroupPlace.PART: "pod groups in part",
    GroupPlace.NONE: "pod groups without a node",
}


class EndState(StrEnum):
    """The state of a pod at the end of a simulation.

    A lost pod was evicted or removed with its node, and no controller recreates it.
    """

    PLACED = "placed"
    PENDING = "pending"
    LOST = "lost"


class Moved(Documented, frozen=True):
    """A pod with different outcomes under two configurations.

    Attributes:
        pod: the pod, as `namespace/name`.
        first, second: the pod's node under each configuration; None unless the pod is placed.
        first_outcome, second_outcome: "placed", "pending" or "lost".
    """

    pod: str
    first: str | None
    first_outcome: EndState
    second: str | None
    second_outcome: EndState


class MovedGroup(Documented, frozen=True):
    """A pod group for which the two configurations place different numbers of members.

    Attributes:
        group: the PodGroup, as `namespace/name`.
        first, second: the counts of its members under each configuration.
    """

    group: str
    first: GroupCount
    second: GroupCount


class Compared(Documented, frozen=True, kw_only=True):
    """The same pods under two configurations, as commands print it.

    Attributes:
        first, second: the two results.
        moved: the pods whose outcomes differ, including pods that only one of the configurations evicts.
        plugins: plugin -> the mean, over the moved pods, of the score of the pod's second node minus the score of its
            first node. Both scores are those of the second configuration before any pod is placed. A pod counts only
            if it fits on both nodes. The larger the value, the more the plugin has moved pods.
        moved_groups: the pod groups for which the two simulations place different numbers of members.
    """

    moved: Sequence[Moved]
    moved_groups: Sequence[MovedGroup]
    plugins: Mapping[str, float]
    first: Simulated
    second: Simulated


class Comparison(Compared, frozen=True, kw_only=True):
    """The results of two simulations of the same pods with the same seed, under two configurations."""

    first: SimulationResult
    second: SimulationResult

    def __repr__(self) -> str:
        return (
            f"Comparison({len(self.moved)} outcomes differ;"
            f" first: {summary(self.first)}; second: {summary(self.second)})"
        )

    def to_dict(self) -> dict[str, Any]:
        """Returns a JSON object with the attributes; "first" and "second" are as in SimulationResult.to_dict."""
        return msgspec.convert(self, Compared, from_attributes=True).to_dict()

    def to_frame(self) -> pd.DataFrame:
        """Returns a DataFrame with a row for each moved pod: pod, first, firstOutcome, second, secondOutcome.

        Raises ExtenderError if pandas is not installed.
        """
        return frame(
            (each.to_dict() for each in self.moved), ("pod", "first", "firstOutcome", "second", "secondOutcome")
        )

    def maps(self, names: Sequence[str]) -> list[tuple[str, Mapping[str, Any]]]:
        """Returns (title, nodes) for three maps: before the simulation, and after it under each configuration.

        `names` are the names of the two configurations.
        """
        after = [
            (f"under {name}", result.moments[1]) for name, result in zip(names, (self.first, self.second), strict=True)
        ]
        return [("before", self.first.moments[0]), *after]

    def _repr_html_(self) -> str:
        return rendering.part("comparison.html", self.to_dict(), names=("first", "second"), choices=(), maps=())

    def to_html(self, names: tuple[str, str] = ("first", "second")) -> str:
        """Returns the comparison as a web page in one self-contained file. `names` name the two configurations."""
        return rendering.file("comparison.html", self.to_dict(), names=names, choices=(), maps=self.maps(names))


def compare(
    state: ClusterState,
    first: Profiles,
    second: Profiles,
    scenario: Scenario,
    seed: int = 0,
    progress: Progress | None = None,
) -> Comparison:
    """Simulates the scenario under both configurations and compares the results. Raises the errors of `simulate`."""
    one, other = (simulate_once(state, scenario, seed, profiles, progress) for profiles in (first, second))
    pods = {**one.pods, **other.pods}
    outcomes = [Moved(key, *_outcome(key, one), *_outcome(key, other)) for key in pods]
    moved = [each for each in outcomes if (each.first, each.first_outcome) != (each.second, each.second_outcome)]
    return Comparison(
        moved=moved,
        moved_groups=_moved_groups(one.groups, other.groups),
        plugins=_decisive_plugins(state.copy(second), moved, pods),
        first=one,
        second=other,
    )


def _moved_groups(first: Sequence[GroupCount], second: Sequence[GroupCount]) -> list[MovedGroup]:
    before, after = ({each.group: each for each in groups} for groups in (first, second))
    both = [
        MovedGroup(key, before.get(key, group_count(key)), after.get(key, group_count(key)))
        for key in sorted(before.keys() | after.keys())
    ]
    return [each for each in both if each.first != each.second]


def _outcome(key: str, result: SimulationResult) -> tuple[str | None, EndState]:
    """Returns the pod's node and its state at the end of a simulation."""
    pod = result.pods.get(key)
    if pod is None:
        return None, EndState.LOST
    return (pod.node_name, EndState.PLACED) if pod.node_name else (None, EndState.PENDING)


def _decisive_plugins(state: ClusterState, moved: Sequence[Moved], pods: Mapping[str, Pod]) -> dict[str, float]:
    """Returns by how much each plugin prefers the second node of a moved pod (see `Comparison.plugins`).

    Args:
        state: the cluster under the second configuration, before any pod is placed.
    """
    sums: Counter[str] = Counter()
    scored = 0
    for outcome in moved[:_MOST_SCORED]:
        nodes = outcome.first, outcome.second
        if nodes[0] is None or nodes[1] is None:
            continue
        decision = state.engine.decide(pods[outcome.pod].placed_on(""))
        if nodes[0] in decision.feasible and nodes[1] in decision.feasible:
            first, second = decision.feasible.index(nodes[0]), decision.feasible.index(nodes[1])
            scored += 1
            for name, score in decision.scores.items():
                sums[name] += int(score.weighted[second]) - int(score.weighted[first])
    means = {name: round(total / scored, 2) for name, total in sums.items() if total} if scored else {}
    return dict(sorted(means.items(), key=lambda item: -abs(item[1])))


def as_text(comparison: Comparison, names: tuple[str, str], *, every: bool = False) -> Iterator[str]:
    """Yields lines of text: the result under each policy, the moved pods, and the plugins that moved the pods.

    If `every` is True, long lists are shown in full.
    """
    both = (comparison.first, comparison.second)
    lines: list[Cells] = [
        ("", *names),
        ("pods placed", *(str(len(result.placements)) for result in both)),
        ("pods pending", *(str(len(result.remaining)) for result in both)),
        ("pods evicted", *(str(len(result.evictions)) for result in both)),
        ("pods lost", *(str(len(result.lost)) for result in both)),
    ]
    if both[0].groups or both[1].groups:
        places = [by_place(result.groups) for result in both]
        lines += [(_GROUP_ROWS[place], *(str(each[place]) for each in places)) for place in GroupPlace]
    for measure, title in MEASURES.items():
        for resource in ("cpu", "memory"):
            shares = (result.after.to_dict()[measure][resource] for result in both)
            lines.append((f"{resource} {title}", *(f"{share:.1%}" for share in shares)))
    yield from aligned(lines)
    yield from (printable(note) for note in _notes(comparison, names))
    yield ""
    if not comparison.moved:
        yield "every pod has the same outcome under both policies"
        return
    if groups := comparison.moved_groups:
        rows = ((each.group, f"{each.first} on a node", f"{each.second} on a node") for each in groups)
        yield from cut([("POD GROUP", *names), *rows], None if every else MOST_ROWS, " groups")
        yield ""
    lines = [
        ("POD", *names),
        *((m.pod, m.first or m.first_outcome, m.second or m.second_outcome) for m in comparison.moved),
    ]
    yield from cut(lines, None if every else MOST_ROWS, " pods")
    if comparison.plugins:
        points = ", ".join(f"{name} {value:+g}" for name, value in comparison.plugins.items())
        yield printable(f"average preference of each plugin for the second node, in points: {points}")


def _notes(comparison: Comparison, names: tuple[str, str]) -> Iterator[str]:
    """Yields the notes of both simulations. A note that only one simulation has begins with its configuration."""
    first, second = comparison.first.notes, comparison.second.notes
    yield from (f"note: {note}" for note in first if note in second)
    yield from (f"note: under {names[0]}, {note}" for note in first if note not in second)
    yield from (f"note: under {names[1]}, {note}" for note in second if note not in first)

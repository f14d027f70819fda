"""Compares where pods are placed under two configurations, and which plugins cause the differences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from extender.framework.profile import Profiles
from extender.offline.html import rendering
from extender.offline.state import ClusterState
from extender.offline.what_if.result import MEASURES, SimulationResult, simulate
from extender.offline.what_if.scenario import Scenario
from extender.offline.what_if.simulation import Progress
from extender.runtime.text import MOST_ROWS, Cells, aligned, cut, printable

_MOST_SCORED = 200


@dataclass(frozen=True, slots=True)
class Moved:
    """A pod that ends on node `first` under one configuration and on `second` under the other; "" means pending."""

    pod: str
    first: str
    second: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """The results of two simulations of the same pods with the same seed, under two configurations.

    Attributes:
        moved: the pods that end on different nodes in the two simulations.
        plugins: plugin -> its score for a moved pod's second node minus its score for the first node, as the mean over
            the moved pods. The scores are those of the second configuration before any pod is placed.
    """

    first: SimulationResult
    second: SimulationResult
    moved: Sequence[Moved]
    plugins: Mapping[str, float]

    def to_dict(self) -> dict[str, Any]:
        """Returns {"first", "second": see SimulationResult, "moved": [{"pod", "first", "second"}], "plugins"}."""
        return {
            "moved": [{"pod": m.pod, "first": m.first or None, "second": m.second or None} for m in self.moved],
            "plugins": dict(self.plugins),
            "first": self.first.to_dict(),
            "second": self.second.to_dict(),
        }

    def maps(self, names: Sequence[str]) -> list[tuple[str, Mapping[str, Any]]]:
        """Returns (title, nodes) for the maps on a page: before, and after under each of the configurations `names`."""
        after = [
            (f"under {name}", result.after.nodes) for name, result in zip(names, (self.first, self.second), strict=True)
        ]
        return [("before", self.first.before.nodes), *after]

    def _repr_html_(self) -> str:
        return rendering.part("comparison.html", self.to_dict(), names=("first", "second"), choices=(), maps=())

    def to_html(self, names: tuple[str, str] = ("first", "second")) -> str:
        """Returns the comparison as a web page in one self-contained file; `names` are those of the configurations."""
        return rendering.file("comparison.html", self.to_dict(), names=names, choices=(), maps=self.maps(names))


def compare(
    state: ClusterState,
    first: Profiles,
    second: Profiles,
    scenario: Scenario,
    seed: int = 0,
    progress: Progress | None = None,
) -> Comparison:
    """Simulates the scenario under both configurations and compares the results. Raises as `simulate` does."""
    results = [simulate(state, scenario, seed, profiles, progress) for profiles in (first, second)]
    nodes = [{placement.pod: placement.node for placement in result.placements} for result in results]
    pods = dict.fromkeys((*nodes[0], *nodes[1], *results[0].remaining, *results[1].remaining))
    outcomes = [Moved(pod, nodes[0].get(pod, ""), nodes[1].get(pod, "")) for pod in pods]
    moved = [outcome for outcome in outcomes if outcome.first != outcome.second]
    return Comparison(results[0], results[1], moved, _decisive_plugins(state.copy(second), moved))


def _decisive_plugins(state: ClusterState, moved: Sequence[Moved]) -> dict[str, float]:
    """Returns plugin -> its weighted score for the second node minus that for the first, as a mean over moved pods."""
    sums: Counter[str] = Counter()
    pods = 0
    for outcome in moved[:_MOST_SCORED]:
        info = state.infos.get(outcome.pod)
        if info is None or not (outcome.first and outcome.second):
            continue
        decision = state.engine.decide(info.pod)
        if outcome.first in decision.feasible and outcome.second in decision.feasible:
            first, second = decision.feasible.index(outcome.first), decision.feasible.index(outcome.second)
            pods += 1
            for name, score in decision.scores.items():
                sums[name] += int(score.weighted[second]) - int(score.weighted[first])
    means = {name: round(total / pods, 2) for name, total in sums.items() if total} if pods else {}
    return dict(sorted(means.items(), key=lambda item: -abs(item[1])))


def as_text(comparison: Comparison, names: tuple[str, str], *, every: bool = False) -> Iterator[str]:
    """Yields lines of text: both outcomes, the moved pods, and the plugins behind that; `every` shows whole lists."""
    both = (comparison.first, comparison.second)
    lines: list[Cells] = [
        ("", *names),
        ("pods placed", *(str(len(result.placements)) for result in both)),
        ("pods left over", *(str(len(result.remaining)) for result in both)),
        ("pods evicted", *(str(len(result.evictions)) for result in both)),
    ]
    for measure, title in MEASURES.items():
        for resource in ("cpu", "memory"):
            shares = (result.after.to_dict()[measure][resource] for result in both)
            lines.append((f"{resource} {title}", *(f"{share:.1%}" for share in shares)))
    yield from aligned(lines)
    yield ""
    if not comparison.moved:
        yield "every pod ends on the same node under both"
        return
    lines = [("POD", *names), *((m.pod, m.first or "pending", m.second or "pending") for m in comparison.moved)]
    yield from cut(lines, None if every else MOST_ROWS, " pods")
    if comparison.plugins:
        points = ", ".join(f"{name} {value:+g}" for name, value in comparison.plugins.items())
        yield printable(f"mean score of the second node minus the first, by plugin: {points}")

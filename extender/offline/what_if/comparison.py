"""The same work under two configurations: the pods that move or stay pending, and the plugins that make it so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from extender.framework.profile import Profiles
from extender.offline.html import rendering
from extender.offline.state import ClusterState
from extender.offline.text import MOST_ROWS, Cells, aligned, cut, printable
from extender.offline.what_if.result import SimulationResult, simulate
from extender.offline.what_if.scenario import Scenario
from extender.offline.what_if.simulation import Progress

_MOST_SCORED = 200


@dataclass(frozen=True, slots=True)
class Moved:
    """A pod whose place differs; empty: it stays pending there."""

    pod: str
    first: str
    second: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two simulations with one seed.

    Attributes:
        moved: the pods that end elsewhere.
        plugins: plugin -> by how much, on average over the pods that moved, it is for the second configuration's node
            and against the first's, by the second configuration, on the cluster as it is at the beginning.
    """

    first: SimulationResult
    second: SimulationResult
    moved: Sequence[Moved]
    plugins: Mapping[str, float]

    def to_dict(self) -> dict[str, Any]:
        """{"first", "second": see SimulationResult, "moved": [{"pod", "first", "second"}], "plugins"}."""
        return {
            "moved": [{"pod": m.pod, "first": m.first or None, "second": m.second or None} for m in self.moved],
            "plugins": dict(self.plugins),
            "first": self.first.to_dict(),
            "second": self.second.to_dict(),
        }

    def maps(self, names: Sequence[str]) -> list[tuple[str, Mapping[str, Any]]]:
        """The nodes before, and after by each configuration, for maps of them on a page."""
        after = [
            (f"by {name}", result.after.nodes) for name, result in zip(names, (self.first, self.second), strict=True)
        ]
        return [("before", self.first.before.nodes), *after]

    def _repr_html_(self) -> str:
        return rendering.part("comparison.html", self.to_dict(), names=("first", "second"), choices=(), maps=())

    def to_html(self, names: tuple[str, str] = ("first", "second")) -> str:
        """Returns the page in one file that needs no other; `names` of the configurations."""
        return rendering.file("comparison.html", self.to_dict(), names=names, choices=(), maps=self.maps(names))


def compare(
    state: ClusterState,
    first: Profiles,
    second: Profiles,
    scenario: Scenario = Scenario(),  # noqa: B008  frozen
    seed: int = 0,
    progress: Progress | None = None,
) -> Comparison:
    """Places the same pods under both configurations. Raises as `simulate` does."""
    results = [simulate(state, scenario, seed, profiles, progress) for profiles in (first, second)]
    homes = [{each.pod: each.node for each in result.placements} for result in results]
    pods = dict.fromkeys((*homes[0], *homes[1], *results[0].remaining, *results[1].remaining))
    moved = [
        Moved(pod, homes[0].get(pod, ""), homes[1].get(pod, ""))
        for pod in pods
        if homes[0].get(pod, "") != homes[1].get(pod, "")
    ]
    return Comparison(results[0], results[1], moved, _decisive(state.copy(second), moved))


def _decisive(state: ClusterState, moved: Sequence[Moved]) -> dict[str, float]:
    """Plugin -> mean weighted score of the second node less that of the first."""
    sums, counted = Counter[str](), 0
    for each in moved[:_MOST_SCORED]:
        info = state.infos.get(each.pod)
        if info is None or not (each.first and each.second):
            continue
        decision = state.decide(info.pod)
        if each.first in decision.feasible and each.second in decision.feasible:
            one, other = decision.feasible.index(each.first), decision.feasible.index(each.second)
            counted += 1
            for name, score in decision.scores.items():
                sums[name] += int(score.weighted[other]) - int(score.weighted[one])
    means = {name: round(total / counted, 2) for name, total in sums.items() if total} if counted else {}
    return dict(sorted(means.items(), key=lambda each: -abs(each[1])))


def as_text(found: Comparison, names: tuple[str, str], *, every: bool = False) -> Iterator[str]:
    """The two outcomes side by side, the pods that differ, and the plugins behind it; `every`: uncut."""
    lines: list[Cells] = [("", *names)]
    both = (found.first, found.second)
    lines.append(("pods placed", *(str(len(each.placements)) for each in both)))
    lines.append(("left over", *(str(len(each.remaining)) for each in both)))
    lines.append(("evicted", *(str(len(each.evictions)) for each in both)))
    for measure in ("utilisation", "imbalance", "zoneImbalance", "fragmentation"):
        for resource in ("cpu", "memory"):
            shares = (each.after.to_dict()[measure][resource] for each in both)
            lines.append((f"{measure} of {resource}", *(f"{share:.1%}" for share in shares)))
    yield from aligned(lines)
    yield ""
    if not found.moved:
        yield "every pod ends on the same node under both"
        return
    lines = [("POD", *names), *((m.pod, m.first or "pending", m.second or "pending") for m in found.moved)]
    yield from cut(lines, None if every else MOST_ROWS)
    if found.plugins:
        told = ", ".join(f"{name} {value:+g}" for name, value in found.plugins.items())
        yield printable(f"scores for the second node against the first, on average: {told}")

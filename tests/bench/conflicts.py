"""`python -m tests.bench.conflicts`: several schedulers share a cluster by optimistic concurrency; how many binds lose.

Each has the engine and a table of its own, and decides one pod a tick. Its bind reaches the cluster `LAG` ticks later,
where it is taken if the node has room for the pod by all filters, as a node's own admission would; whatever comes of it
is seen by all after `LAG` more. A pod whose bind lost is decided on again. The same arguments give the same numbers.
"""

from __future__ import annotations

from argparse import ArgumentParser
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from random import Random
from typing import NamedTuple

import msgspec
import numpy as np

from extender.engine.decide import SchedulingCycle
from extender.engine.decision import Chosen
from extender.framework.find_fit import find_fit
from extender.framework.profile import Profile
from extender.model.node import Node
from extender.model.pod import Pod
from extender.policy.policy import PROVIDERS
from extender.table import PodInfo, Table
from tests.bench.report import Table as ReportTable
from tests.bench.report import publish
from tests.bench.workloads import VARIED, backlog_node, node_name, pods_to_schedule
from tests.builders import make_pod

SCHEDULERS = (1, 2, 4, 8, 16)
NODES, PODS, LAG = 1000, 2000, 5
CHART = Path("docs/images/conflicts.svg")


class Situation(NamedTuple):
    """A cluster to share; `full`: so much of the nodes' room is taken, at random."""

    title: str
    provider: str
    full: float


SITUATIONS = (
    Situation("emptier nodes preferred, half full", "DefaultProvider", 0.5),
    Situation("emptier nodes preferred, 97 % full", "DefaultProvider", 0.97),
    Situation("fuller nodes preferred, half full", "ClusterAutoscalerProvider", 0.5),
)


class _Bind(NamedTuple):
    """A bind on its way, or its outcome; `at`: the tick at which it arrives."""

    at: int
    scheduler: int
    info: PodInfo
    node: str
    taken: bool = True


class _Scheduler:
    def __init__(self, number: int, profile: Profile, table: Table) -> None:
        self.table, self._number = table, number
        self._cycle = SchedulingCycle(profile, Random(number))
        self.waiting: deque[PodInfo] = deque()

    def decide(self, tick: int) -> _Bind | None:
        """Returns the bind of the next pod; None where none waits, or none of them fits by what is seen here."""
        if not self.waiting:
            return None
        info = self.waiting.popleft()
        chosen = self._cycle.schedule_pod(info, self.table)
        if not isinstance(chosen, Chosen):
            self.waiting.append(info)
            return None
        self.table.place(info, chosen.node_name)
        return _Bind(tick + LAG, self._number, info, chosen.node_name)

    def hear(self, outcome: _Bind) -> None:
        """Records the outcome of a bind of any scheduler."""
        if outcome.taken:
            self.table.place(outcome.info, outcome.node)
        elif outcome.scheduler == self._number:
            self.table.take_away(outcome.info.uid)
            self.waiting.append(outcome.info)


@dataclass(frozen=True)
class Outcome:
    """How `schedulers` have shared a cluster; `ticks`: until every pod was bound."""

    situation: str
    schedulers: int
    binds: int
    lost: int
    ticks: int

    @property
    def rate(self) -> float:
        return self.lost / self.binds


def share(situation: Situation, schedulers: int, nodes: int = NODES, pods: int = PODS) -> Outcome:
    """Has that many schedulers bind the pods, which are dealt out to them in turn."""
    profile = PROVIDERS[situation.provider]()
    cluster = _cluster(situation.full, nodes)
    every = [_Scheduler(number, profile, _cluster(situation.full, nodes)) for number in range(schedulers)]
    for number, pod in enumerate(pods_to_schedule(VARIED, pods)):
        every[number % schedulers].waiting.append(_info(pod.obj()))
    sent, recorded = deque[_Bind](), deque[_Bind]()
    binds = lost = bound = tick = 0
    while bound < pods:
        while recorded and recorded[0].at <= tick:
            outcome = recorded.popleft()
            for each in every:
                each.hear(outcome)
        while sent and sent[0].at <= tick:
            bind = sent.popleft()
            taken = _is_taken(bind, profile, cluster)
            binds, lost, bound = binds + 1, lost + (not taken), bound + taken
            recorded.append(bind._replace(at=tick + LAG, taken=taken))
        sent.extend(made for each in every if (made := each.decide(tick)))
        tick += 1
    return Outcome(situation.title, schedulers, binds, lost, tick)


def _is_taken(bind: _Bind, profile: Profile, cluster: Table) -> bool:
    fit = find_fit(profile, bind.info, cluster, np.array([cluster.nodes.row_of[bind.node]], np.intp))
    if len(fit.feasible):
        cluster.place(bind.info, bind.node)
    return bool(len(fit.feasible))


def _cluster(full: float, nodes: int) -> Table:
    table, random = Table(), Random(nodes)
    for number in range(nodes):
        table.set_node(msgspec.convert(backlog_node(number).obj(), Node))
        used = min(max(random.gauss(full, 0.01), 0.0), 0.995)
        taken = make_pod(f"standing-{number}").req(cpu=f"{int(32_000 * used)}m", memory=f"{int(131_072 * used)}Mi")
        table.place(_info(taken.node(node_name(number)).obj()), node_name(number))
    return table


def _info(obj: Mapping[str, object]) -> PodInfo:
    return PodInfo(msgspec.convert(obj, Pod))


# ---- the chart

_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM = 640, 320, 56, 64, 40
_COLOURS = ("#1f77b4", "#d62728", "#2ca02c")


def chart(outcomes: Sequence[Outcome]) -> str:
    """Returns the rates as an SVG: one line a situation, a step to the right for twice as many schedulers."""
    counts = sorted({each.schedulers for each in outcomes})
    highest = max(max(each.rate for each in outcomes), 0.1)
    step, height = (_WIDTH - _LEFT - 24) / max(len(counts) - 1, 1), _HEIGHT - _TOP - _BOTTOM

    def point(each: Outcome) -> tuple[float, float]:
        return _LEFT + step * counts.index(each.schedulers), _TOP + height * (1 - each.rate / highest)

    grid = chain.from_iterable(_grid_line(_TOP + height * (1 - part / 4), highest * part / 4) for part in range(5))
    ticks = [_text(_LEFT + step * at, _HEIGHT - 20, "middle", f"{count}") for at, count in enumerate(counts)]
    lines = chain.from_iterable(
        _line(position, title, [point(each) for each in outcomes if each.situation == title])
        for position, title in enumerate(dict.fromkeys(each.situation for each in outcomes))
    )
    caption = _text(_WIDTH / 2, _HEIGHT - 4, "middle", "schedulers")
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif"'
    background = f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>'
    return "\n".join([f'{head} font-size="12">', background, *grid, *ticks, caption, *lines, "</svg>", ""])


def _grid_line(y: float, rate: float) -> Iterable[str]:
    yield f'<line x1="{_LEFT}" y1="{y:.1f}" x2="{_WIDTH - 24}" y2="{y:.1f}" stroke="#ddd"/>'
    yield _text(_LEFT - 6, y + 4, "end", f"{100 * rate:.0f} %")


def _line(position: int, title: str, points: Sequence[tuple[float, float]]) -> Iterable[str]:
    colour = _COLOURS[position]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>'
    yield from (f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in points)
    yield f'<rect x="{_LEFT}" y="{8 + 17 * position}" width="14" height="4" fill="{colour}"/>'
    yield _text(_LEFT + 20, 14 + 17 * position, "start", f"binds that lose: {title}")


def _text(x: float, y: float, anchor: str, text: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="#333">{text}</text>'


def main() -> None:
    parser = ArgumentParser("python -m tests.bench.conflicts", description=__doc__)
    parser.add_argument("-o", "--output", choices=["markdown", "json"], default="markdown")
    parser.add_argument("--write", metavar="FILE", type=Path, help=f"put the table into this document; and {CHART}")
    options = parser.parse_args()
    table = ReportTable(
        "conflicts", ["binds that lose, times as fast as one", *(f"{number} schedulers" for number in SCHEDULERS)]
    )
    outcomes: list[Outcome] = []
    for situation in SITUATIONS:
        shared = [share(situation, number) for number in SCHEDULERS]
        outcomes += shared
        row = [f"{100 * each.rate:.1f} %, {shared[0].ticks / each.ticks:.1f}" for each in shared]
        table.add([situation.title, *row], {"outcomes": [asdict(each) for each in shared]})
    publish([table], options)
    if options.write:
        CHART.write_text(chart(outcomes))


if __name__ == "__main__":
    main()

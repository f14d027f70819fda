"""`make bench-cluster`: pods bound a second on a real API server, by scheduler and by backlog."""

from __future__ import annotations

import signal
import sys
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median

from tests.bench.device_backlogs import DEVICE_BACKLOGS
from tests.bench.report import Table, add_options, progress, publish
from tests.bench.throughput import FOR_DEVICES, MODES, Throughput, measure
from tests.bench.workloads import (
    BACKLOGS,
    EVICTING,
    GROUPS,
    PREEMPTING,
    PREEMPTION,
    backlog_node,
    preempting_pods,
    standing_pods,
)
from tests.stock.build import Binaries, BuildError, GoMissingError, build
from tests.stock.oracle import Oracle
from tests.stock.process import StartError

_PREEMPTING = ("stock", "names", "full", "loop")  # all that make room

TITLES: Mapping[str, str] = {
    "stock": "stock",
    "noop-names": "no-op in Go, names",
    "names": "ours, names",
    "names-unscored": "ours, without prioritize",
    "names-only": "ours, in-tree plugins off",
    "names-best": "ours, the best name",
    "names-best-only": "ours, the best name, in-tree plugins off",
    "noop-full": "no-op in Go, whole nodes",
    "full": "ours, whole nodes",
    "loop": "own loop",
    "loop-fgd": "own loop, FGD",
    "bind-only": "bindings alone",
    "bind-all": "bindings alone, finalizers",
}


RATIOS: Mapping[str, tuple[str, str]] = {
    "own loop / bindings alone": ("loop", "bind-only"),
    "own loop / stock": ("loop", "stock"),
    "ours, names / no-op in Go, names": ("names", "noop-names"),
}


def ratio_table() -> Table:
    return Table("ratios", ["medians of pairs of runs", *RATIOS])


def ratios_of(rounds: Sequence[Mapping[str, float]]) -> list[str]:
    """Returns the median of each of RATIOS over the rounds, each of which maps a mode to pods bound a second."""
    return [
        _median([each[mode] / each[other] for each in rounds if {mode, other} <= each.keys()], 2)
        for mode, other in RATIOS.values()
    ]


def throughput_table(modes: list[str]) -> Table:
    return Table("throughput", ["pods bound a second", *(TITLES[mode] for mode in modes)])


def preemption_table(modes: list[str]) -> Table:
    return Table("preemption", ["a wave that preempts", *(TITLES[mode] for mode in modes)])


def main() -> None:
    options = _options()
    binaries = build(report=progress)
    workloads, tables = options.workload or [*BACKLOGS, PREEMPTION], []
    if backlogs := [workload for workload in workloads if workload != PREEMPTION]:
        tables += _throughput(binaries, backlogs, options)
    if PREEMPTION in workloads:
        tables.append(_preemption(binaries, options))
    publish(tables, options)


def _throughput(binaries: Binaries, backlogs: list[str], options: Namespace) -> list[Table]:
    modes = options.mode or list(MODES)
    table, ratios = throughput_table(modes), ratio_table()
    for workload in backlogs:
        rounds = [
            [each for mode in modes if (each := _measure(binaries, mode, workload, options)) is not None]
            for _ in range(options.repeat)
        ]
        measured = [each for found in rounds for each in found]
        rates = [_rate([each.pods_per_second for each in measured if each.mode == mode]) for mode in modes]
        record = {"workload": workload, "measured": [asdict(each) for each in measured]}
        table.add([workload, *rates], record)
        by_mode = [{each.mode: each.pods_per_second for each in found} for found in rounds]
        ratios.add([workload, *ratios_of(by_mode)], {"workload": workload, "pods_per_second": by_mode})
    return [table, ratios]


def _preemption(binaries: Binaries, options: Namespace) -> Table:
    """On a cluster without room each pod has to evict one other: so many a second, and so many evicted for each."""
    modes = [mode for mode in options.mode or MODES if mode in _PREEMPTING]
    table = preemption_table(modes)
    found = [_measure(binaries, mode, PREEMPTION, options) for _ in range(options.repeat) for mode in modes]
    measured = [each for each in found if each is not None]
    by_mode = [[each for each in measured if each.mode == mode] for mode in modes]
    record = {"workload": PREEMPTION, "measured": [asdict(each) for each in measured]}
    table.add(["bound a second", *(_rate([each.pods_per_second for each in group]) for group in by_mode)], record)
    least = _least_victims(binaries)
    evicted = [
        f"{sum(each.evicted for each in group) / sum(each.bound for each in group):.2f}" for group in by_mode if group
    ]
    table.add([f"evictions per bound pod (the minimum is {least})", *evicted], {"least_victims": least})
    return table


def _least_victims(binaries: Binaries) -> int:
    """Returns how many pods the stock plugins evict for a pod of the wave: the same for each, for all are alike."""
    nodes = 10
    items = [each.obj() for each in (*map(backlog_node, range(nodes)), *standing_pods(nodes))]
    with Oracle(binaries["oracle"]) as oracle:
        answer = oracle.answer(items, preempting_pods(1)[0].priority(PREEMPTING["value"]).obj())
    return min(len(candidate["pods"]) for candidate in answer["candidates"].values())


def _options() -> Namespace:
    parser = ArgumentParser("python -m tests.bench.cluster", description=__doc__)
    parser.add_argument(
        "--mode",
        action="append",
        choices=[*MODES, *FOR_DEVICES],
        help="may be repeated; default those of pods without devices",
    )
    parser.add_argument(
        "--workload",
        action="append",
        choices=[*BACKLOGS, PREEMPTION, *GROUPS, EVICTING, *DEVICE_BACKLOGS],
        help="may be repeated; default all but those of pod groups and devices",
    )
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=2000)
    parser.add_argument("--seconds", type=int, default=60, help="measure one no longer than that (default 60)")
    parser.add_argument("--repeat", type=int, default=1, help="measure each so often, in turn, and show medians")
    add_options(parser)
    return parser.parse_args()


def _rate(rates: list[float]) -> str:
    return _median(rates, 0)


def _median(values: list[float], digits: int) -> str:
    return f"{median(values):.{digits}f}" if values else "-"


def _measure(binaries: Binaries, mode: str, workload: str, options: Namespace) -> Throughput | None:
    """Returns None, and says why, where it could not be measured: the others still can."""
    progress(f"{workload}, {TITLES[mode]} ...")
    sizes = {"nodes": options.nodes, "pods": options.pods, "seconds": options.seconds}
    with tempfile.TemporaryDirectory() as directory:
        try:
            found = measure(binaries, mode, workload, directory=Path(directory), **sizes)
        except (StartError, OSError) as error:  # TimeoutError is an OSError
            progress(f"  not measured: {error}")
            return None
    spent = ", ".join(f"{name} {milliseconds:.1f}" for name, milliseconds in found.cpu_ms.items())
    progress(f"  {found.pods_per_second:.0f} pods a second, {found.bound} bound; ms of CPU a pod: {spent}")
    return found


if __name__ == "__main__":
    try:
        main()
    except (GoMissingError, BuildError) as error:
        sys.exit(str(error))
    except KeyboardInterrupt:  # the servers were stopped on the way here
        progress("interrupted")
        sys.exit(128 + signal.SIGINT)

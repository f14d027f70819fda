"""`make bench-cluster`: pods bound a second on a real API server, by scheduler and by backlog."""

from __future__ import annotations

import sys
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from statistics import median

from tests.bench.report import Table, add_options, progress, publish
from tests.bench.throughput import MODES, Throughput, measure
from tests.bench.workloads import BACKLOGS
from tests.stock.build import Binaries, BuildError, GoMissingError, build
from tests.stock.process import StartError

TITLES: Mapping[str, str] = {
    "stock": "stock",
    "noop-names": "no-op in Go, names",
    "names": "ours, names",
    "noop-full": "no-op in Go, whole nodes",
    "full": "ours, whole nodes",
    "loop": "own loop",
    "bind-only": "bindings alone",
}


def throughput_table(modes: list[str]) -> Table:
    return Table("throughput", ["pods bound a second", *(TITLES[mode] for mode in modes)])


def main() -> None:
    options = _options()
    binaries = build(report=progress)
    modes = options.mode or list(MODES)
    table = throughput_table(modes)
    for workload in options.workload or BACKLOGS:
        found = [_measure(binaries, mode, workload, options) for _ in range(options.repeat) for mode in modes]
        measured = [each for each in found if each is not None]
        rates = [_rate([each.pods_per_second for each in measured if each.mode == mode]) for mode in modes]
        table.add([workload, *rates], {"workload": workload, "measured": [asdict(each) for each in measured]})
    publish([table], options)


def _options() -> Namespace:
    parser = ArgumentParser("python -m tests.bench.cluster", description=__doc__)
    parser.add_argument("--mode", action="append", choices=MODES, help="may be repeated; default all")
    parser.add_argument("--workload", action="append", choices=BACKLOGS, help="may be repeated; default all")
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=2000)
    parser.add_argument("--seconds", type=int, default=60, help="measure one no longer than that (default 60)")
    parser.add_argument("--repeat", type=int, default=1, help="measure each so often, in turn, and show medians")
    add_options(parser)
    return parser.parse_args()


def _rate(rates: list[float]) -> str:
    return f"{median(rates):.0f}" if rates else "-"


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

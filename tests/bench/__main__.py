"""Prints the whole benchmark as one table in Markdown."""

from __future__ import annotations

import os
import platform
import sys
import tempfile
from pathlib import Path

import numpy as np

from tests.bench import decisions, loop, verbs
from tests.stock.build import BuildError, GoMissingError, build


def main() -> None:
    oracle = build(report=lambda line: print(line, file=sys.stderr))["oracle"]
    print(f"{_machine()}; medians in milliseconds\n")
    print("| one decision over all nodes | nodes | stock (Go) | ours | ours / stock | same answer |")
    print("|---|--:|--:|--:|--:|---|")
    for nodes in (1000, 5000):
        for row in decisions.measured(nodes, oracle):
            same = "yes" if row.same else "NO"
            times = f"{row.stock_ms:.2f} | {row.ours_ms:.2f} | {row.ratio:.2f}"
            print(f"| {row.workload} | {nodes} | {times} | {same} |", flush=True)
    print(f"\n| verb over HTTP, {verbs.NODES} nodes | ours |\n|---|--:|")
    with tempfile.TemporaryDirectory() as directory:
        for title, milliseconds in verbs.measured(Path(directory)):
            print(f"| {title} | {milliseconds:.2f} |", flush=True)
    print("\n| the loop without an API server, 5000 nodes | CPU time a pod |\n|---|--:|")
    for title, microseconds in loop.measured(5000):
        print(f"| {title} | {microseconds / 1000:.2f} |", flush=True)


def _machine() -> str:
    gibibytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    python = f"{platform.python_implementation()} {platform.python_version()}, NumPy {np.__version__}"
    return f"{os.cpu_count()} cores ({_processor()}), {gibibytes:.0f} GiB; {python}"


def _processor() -> str:
    names = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return names[0].partition(":")[2].strip() if names else platform.machine()


if __name__ == "__main__":
    try:
        main()
    except (GoMissingError, BuildError) as error:
        sys.exit(str(error))

"""`make bench`: how long decisions, verbs, the loop (medians in milliseconds) and answers (seconds) take."""

from __future__ import annotations

import gc
import sys
import tempfile
from argparse import ArgumentParser
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path

from extender.runtime.process import GC_THRESHOLDS
from tests.bench import answers, decisions, device_scoring, loop, neighbours, plans, scale, tenants, verbs, waiting
from tests.bench.report import Table, add_options, progress, publish
from tests.stock.build import Binaries, BuildError, GoMissingError, build

NODES = [1000, 5000]


def decisions_table() -> Table:
    header = ["a decision over all nodes", "nodes", "stock (Go)", "ours", "ours / stock", "same nodes, scores, victims"]
    return Table("decisions", header)


def measure_decisions(binaries: Binaries, nodes: list[int]) -> Table:
    table = decisions_table()
    for number in nodes:
        for row in decisions.measured(number, binaries["oracle"]):
            same = f"no, {len(row.differing)} of {decisions.PODS} differ" if row.differing else "yes"
            times = [f"{row.stock_ms:.2f}", f"{row.ours_ms:.2f}", f"{row.ratio:.2f}"]
            table.add([row.workload, str(number), *times, same], asdict(row))
    return table


def verbs_table() -> Table:
    return Table("verbs", ["a call over HTTP", "ours"])


def measure_verbs(binaries: Binaries, nodes: list[int]) -> Table:
    table = verbs_table()
    with tempfile.TemporaryDirectory() as directory:
        for call, milliseconds in verbs.measured(binaries, max(nodes), Path(directory)):
            table.add([call, f"{milliseconds:.2f}"], {"call": call, "ours_ms": milliseconds})
    return table


def loop_table() -> Table:
    return Table("loop", ["a pod in the loop, without an API server", "CPU time"])


def measure_loop(_: Binaries, nodes: list[int]) -> Table:
    table = loop_table()
    for backlog, milliseconds in loop.measured(max(nodes)):
        table.add([backlog, f"{milliseconds:.2f}"], {"backlog": backlog, "cpu_ms": milliseconds})
    return table


def answers_table() -> Table:
    header = ["an answer about a cluster in a file", "target", "seconds", "CPU", "the loop in Go", "times faster"]
    return Table("answers", header)


def measure_answers(binaries: Binaries, nodes: list[int]) -> Table:
    gc.set_threshold(*GC_THRESHOLDS)  # as the commands do
    table = answers_table()
    for row in answers.measured(answers.Sizes(nodes=max(nodes)), binaries["oracle"]):
        stock = [f"{row.stock_seconds:.0f}", f"{row.times_faster:.0f}"] if row.stock_seconds else ["", ""]
        table.add([row.question, row.target, f"{row.seconds:.2f}", f"{row.cpu_seconds:.2f}", *stock], asdict(row))
    return table


def scale_table() -> Table:
    return Table("scale", ["at 50,000 nodes and 200,000 pods", "measured", "target"])


def measure_scale(_: Binaries, __: list[int]) -> Table:
    table = scale_table()
    for figure in scale.measured(scale.NODES_AT_SCALE):
        target = f"{figure.target:g} {figure.unit}"
        table.add([figure.what, f"{figure.value:.4g} {figure.unit}", target], asdict(figure))
    return table


def waiting_table() -> Table:
    few, many = waiting.WAITING
    return Table("waiting", ["CPU time of an event", f"{few:,} pods wait", f"{many:,} pods wait", "woken per event"])


def measure_waiting(_: Binaries, __: list[int]) -> Table:
    table = waiting_table()
    for few, many in zip(*map(list, map(waiting.measured, waiting.WAITING)), strict=True):
        costs = [f"{few.cpu_us:.0f} us", f"{many.cpu_us:.0f} us"]
        table.add([few.event, *costs, f"{many.woken:.3g}"], {"few": asdict(few), "many": asdict(many)})
    return table


def tenants_table() -> Table:
    header = [
        "100 pods of 1 MiB, each of many",
        "nodes",
        "an event",
        "twice the size",
        "decided",
        "another pod decided",
    ]
    return Table("tenants", [*header, "memory / JSON", "memory left"])


def neighbours_table() -> Table:
    header = ["a tenant creates", "nodes", "a normal pod before", "at worst", "normal pods", "tenant's pods bound"]
    return Table("neighbours", header)


def measure_neighbours(_: Binaries, nodes: list[int]) -> Table:
    table = neighbours_table()
    for number in nodes:
        for tenant in neighbours.TENANTS:
            found = neighbours.measured(tenant, number, 15.0)
            times = [f"{found.before_ms:.0f} ms", f"{found.worst_ms:.0f} ms"]
            table.add([tenant, str(number), *times, str(found.arrived), str(found.tenants_bound)], asdict(found))
    return table


def measure_tenants(_: Binaries, nodes: list[int]) -> Table:
    table = tenants_table()
    for number in nodes:
        for cost in tenants.measured(number):
            times = [f"{cost.take_in_ms:.0f} ms", f"x {cost.growth:.1f}", f"{cost.decide_ms:.0f} ms"]
            memory = [f"{cost.beside_ms:.1f} ms", f"{cost.memory_ratio:.0f}", f"{cost.left_percent:.0f} %"]
            table.add([cost.kind, str(number), *times, *memory], asdict(cost))
    return table


def device_scoring_table() -> Table:
    header = ["policy", "nodes of 8 devices", "plain decision", "with the policy", "beyond the plain decision"]
    return Table("device-scoring", header)


def measure_device_scoring(_: Binaries, __: list[int]) -> Table:
    table = device_scoring_table()
    for nodes in device_scoring.NODES:
        for cost in device_scoring.measured(nodes):
            times = [f"{each:.2f} ms" for each in (cost.plain, cost.scored, cost.beyond)]
            table.add([cost.policy, f"{nodes:,}", *times], asdict(cost))
    return table


def plan_table() -> Table:
    header = [
        "plans",
        "CPU time of a search",
        "cases",
        "more pods placed",
        "no plan places more",
        "proved to be the best",
    ]
    return Table("plan", header)


def measure_plans(_: Binaries, __: list[int]) -> Table:
    table = plan_table()
    questions = [
        ("Priority Matters", 1, partial(plans.rebuilt, 24)),
        ("Priority Matters", 10, partial(plans.rebuilt, 24)),
        ("500 nodes, 5,000 pods", 10, partial(plans.large, 500, 100)),
        ("5,000 nodes, 50,000 pods", 10, partial(plans.large, 5000, 2)),
    ]
    for question, seconds, measure in questions:
        found = measure(seconds)
        counts = [str(number) for number in (found.cases, found.improved, found.certified, found.proved)]
        table.add([question, f"{seconds} s", *counts], {"question": question, "seconds": seconds, **asdict(found)})
    return table


PARTS: dict[str, Callable[[Binaries, list[int]], Table]] = {
    "decisions": measure_decisions,
    "verbs": measure_verbs,
    "loop": measure_loop,
    "waiting": measure_waiting,
    "answers": measure_answers,
    "scale": measure_scale,
    "plan": measure_plans,
    "device-scoring": measure_device_scoring,
    "tenants": measure_neighbours,
    "large pods": measure_tenants,
}
# Ten minutes and 8 GiB; ten minutes; two minutes; two minutes; half an hour and 8 GiB.
ON_REQUEST = "scale", "plan", "device-scoring", "tenants", "large pods"


def main() -> None:
    parser = ArgumentParser("python -m tests.bench", description=__doc__)
    parser.add_argument(
        "--part",
        action="append",
        choices=PARTS,
        help=f"measure this part alone; may be repeated (default: all but {', '.join(ON_REQUEST)});"
        " plan takes ten minutes at most",
    )
    parser.add_argument("--nodes", action="append", type=int, help=f"may be repeated (default {NODES})")
    add_options(parser)
    options = parser.parse_args()
    binaries = build(report=progress)
    publish(
        [
            PARTS[part](binaries, options.nodes or NODES)
            for part in options.part or [name for name in PARTS if name not in ON_REQUEST]
        ],
        options,
    )


if __name__ == "__main__":
    try:
        main()
    except (GoMissingError, BuildError) as error:
        sys.exit(str(error))

"""`make bench-webhook`: the webhook under the real scheduler while pods come and go, and what waiting pods cost it."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from argparse import ArgumentParser
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from threading import Event, Thread
from time import monotonic, sleep
from typing import Any

import numpy as np

from tests.bench.report import Table, add_options, progress, publish
from tests.bench.workloads import BACKLOGS, backlog_node, node_name, pods_to_schedule
from tests.builders import make_pod
from tests.running import ONLY_EXTENDER, RunningExtender, extender_entry, serve
from tests.stock.api_client import ApiClient
from tests.stock.build import Binaries, BuildError, GoMissingError, build
from tests.stock.control_plane import ControlPlane

CHURN_PER_SECOND = 200
VERBS = ("filter", "prioritize", "bind")
_LIFE_SECONDS, _TURN_SECONDS, _LEFT_OUT = 5, 0.1, 20
_WAITING_PODS, _SETTLING_SECONDS = 100, 15
_LOCK = "longest wait for the cache's lock, at least"
_WAIT = re.compile(r'extender_lock_wait_seconds_bucket\{caller="(.*?)",le="(.*?)"\} (.*)')
_BINDING = re.compile(r"apiserver_request_duration_seconds_(count|sum)\{(.*)\} (.*)")


@dataclass(frozen=True)
class Latencies:
    """The calls of one verb in milliseconds, from body to answer."""

    call: str
    milliseconds: list[float]

    def quantile(self, share: float) -> float:
        return float(np.quantile(self.milliseconds, share))


@dataclass(frozen=True)
class Calm:
    """The work of each second for pods that fit nowhere while others come and go: calls of filter, CPU."""

    refused_by: str
    calls: float
    scheduler_cpu_ms: float


@contextmanager
def churning(client: ApiClient, nodes: int, per_second: int) -> Iterator[None]:
    """Creates bound pods and deletes them some seconds later: half so many of each a second."""
    stop = Event()
    each_turn = max(1, round(per_second / 2 * _TURN_SECONDS))

    def run() -> None:
        numbers, turns = count(), count(1)
        begin = monotonic()
        with ThreadPoolExecutor(4) as threads:
            while not stop.wait(max(0.0, begin + next(turns) * _TURN_SECONDS - monotonic())):
                new = [next(numbers) for _ in range(each_turn)]
                pods = [make_pod(f"churn-{n}").req(cpu="1m").node(node_name(n % nodes)).obj() for n in new]
                list(threads.map(client.create, pods))
                old = [n - each_turn * round(_LIFE_SECONDS / _TURN_SECONDS) for n in new]
                list(threads.map(lambda n: client.delete("Pod", f"churn-{n}"), [n for n in old if n >= 0]))

    thread = Thread(target=run, name="churn")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def latencies(
    binaries: Binaries,
    workload: str,
    directory: Path,
    *,
    nodes: int,
    pods: int,
    seconds: int,
    churn: int,
    nice: int = 0,
) -> list[Latencies]:
    """Returns the calls of a backlog, those of its first twentieth left out, and what may hold a call up."""
    with ControlPlane(binaries, directory) as plane, _serving(plane, nodes, directory, nice) as extender:
        with plane.scheduler({"extenders": [_entry(extender)]}, verbosity=0), churning(plane.client, nodes, churn):
            before = _bindings(plane.client)
            plane.client.create_many(pod.obj() for pod in pods_to_schedule(workload, pods))
            until = monotonic() + seconds
            while extender.metric('extender_binds_total{result="bound"}') < pods and monotonic() < until:
                sleep(0.5)
            bound, spent_seconds = (now - then for now, then in zip(_bindings(plane.client), before, strict=True))
        found = []
        for verb in VERBS:
            times = [float(call["ms"]) for call in extender.calls(verb)]
            found.append(Latencies(verb, times[len(times) // _LEFT_OUT :]))
        pause_ms = extender.metric("extender_gc_longest_pause_seconds") * 1000
        wait_ms = _longest_wait_ms(extender)
    found.append(Latencies("of bind, the API server's part (mean)", [spent_seconds * 1000 / max(bound, 1)]))
    return [*found, Latencies("longest pause for garbage", [pause_ms]), Latencies(_LOCK, [wait_ms])]


def calm(binaries: Binaries, refused_by: str, directory: Path, *, nodes: int, seconds: int, churn: int) -> Calm:
    """Has pods wait that ask for more than any node has, refused by the scheduler's own plugins or by the extender."""
    profile: dict[str, Any] = {"schedulerName": "default-scheduler"}
    if refused_by == "extender":
        profile["plugins"] = ONLY_EXTENDER
    with ControlPlane(binaries, directory) as plane, _serving(plane, nodes, directory) as extender:
        plane.client.create_many(make_pod(f"waits-{n}").req(cpu="1000").obj() for n in range(_WAITING_PODS))
        configuration = {"extenders": [_entry(extender)], "profiles": [profile]}
        with plane.scheduler(configuration, verbosity=0) as scheduler, churning(plane.client, nodes, churn):
            sleep(_SETTLING_SECONDS)
            calls, cpu_seconds, begin = len(extender.calls("filter")), scheduler.cpu_seconds(), monotonic()
            sleep(seconds)
            passed_seconds = monotonic() - begin
            cpu_ms = (scheduler.cpu_seconds() - cpu_seconds) * 1000
            calls = len(extender.calls("filter")) - calls
    return Calm(refused_by, calls / passed_seconds, cpu_ms / passed_seconds)


@contextmanager
def _serving(plane: ControlPlane, nodes: int, directory: Path, nice: int = 0) -> Iterator[RunningExtender]:
    plane.client.create_many(backlog_node(number).obj() for number in range(nodes))
    with ExitStack() as running:
        os.setpriority(os.PRIO_PROCESS, 0, nice)  # which the extender inherits
        try:
            extender = running.enter_context(serve(plane.kubeconfig, directory, timeout_seconds=120))
        finally:
            os.setpriority(os.PRIO_PROCESS, 0, 0)
        yield extender


def _entry(extender: RunningExtender) -> dict[str, Any]:
    return extender_entry(f"http://127.0.0.1:{extender.port}/scheduler", httpTimeout="10s")


def _bindings(client: ApiClient) -> tuple[float, float]:
    """The number of Bindings that the API server has answered, and the seconds that it took."""
    found = {"count": 0.0, "sum": 0.0}
    for line in str(client.request("GET", "/metrics")).splitlines():
        if (sample := _BINDING.match(line)) and 'subresource="binding"' in sample[2]:
            found[sample[1]] += float(sample[3])
    return found["count"], found["sum"]


def _longest_wait_ms(extender: RunningExtender) -> float:
    """The lower bound of the highest bucket that any wait has fallen into; 0 if no pod has waited."""
    found: list[float] = []
    last: dict[str, tuple[float, float]] = {}
    for line in extender.get("/metrics")[1].splitlines():
        if bucket := _WAIT.match(line):
            caller, bound, number = bucket[1], float(bucket[2]), float(bucket[3])
            below, fewer = last.get(caller, (0.0, 0.0))
            if number > fewer:
                found.append(below)
            last[caller] = bound, number
    return max(found, default=0.0) * 1000


def main() -> None:
    parser = ArgumentParser("python -m tests.bench.webhook", description=__doc__)
    parser.add_argument("--workload", action="append", choices=BACKLOGS, help="may be repeated; default basic, varied")
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=1000)
    parser.add_argument("--seconds", type=int, default=60, help="measure one no longer than that (default 60)")
    parser.add_argument(
        "--nice", type=int, default=0, help="the extender's priority; below 0, which takes root, its threads go first"
    )
    parser.add_argument("--churn", type=int, default=CHURN_PER_SECOND, help="pods that come or go in a second")
    add_options(parser)
    options = parser.parse_args()
    if options.nice < 0 and os.geteuid():
        parser.error("--nice below 0 takes root")
    binaries = build(report=progress)
    sizes = {"nodes": options.nodes, "seconds": options.seconds, "churn": options.churn}
    tables, how = [], f" nice {options.nice}" if options.nice else ""
    for workload in options.workload or ["basic", "varied"]:
        header = [f"{workload}, milliseconds", "calls", "median", "p90", "p99", "longest"]
        table = Table(f"webhook {workload}{how}", header)
        with tempfile.TemporaryDirectory() as directory:
            for each in latencies(binaries, workload, Path(directory), pods=options.pods, nice=options.nice, **sizes):
                times = [f"{each.quantile(share):.2f}" for share in (0.5, 0.9, 0.99, 1)]
                row = (
                    [str(len(each.milliseconds)), *times] if len(each.milliseconds) > 1 else ["", "", "", "", times[-1]]
                )
                table.add([each.call, *row], {"workload": workload, **asdict(each)})
        tables.append(table)
    table = Table(
        "webhook calm",
        [f"{_WAITING_PODS} pods wait, refused by", "filter calls a second", "scheduler, ms of CPU a second"],
    )
    for refused_by in ("the scheduler", "extender"):
        with tempfile.TemporaryDirectory() as directory:
            cost = calm(binaries, refused_by, Path(directory), **sizes)
        table.add([refused_by, f"{cost.calls:.1f}", f"{cost.scheduler_cpu_ms:.0f}"], asdict(cost))
    publish([*tables, table], options)


if __name__ == "__main__":
    try:
        main()
    except (GoMissingError, BuildError) as error:
        sys.exit(str(error))

"""The benchmarks run, on small clusters, and what they compare is equal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.bench import (
    answers,
    conflicts,
    decisions,
    device_scoring,
    loop,
    plans,
    scale,
    tenants,
    verbs,
    waiting,
    webhook,
)
from tests.bench.device_backlogs import DEVICE_BACKLOGS
from tests.bench.throughput import MODES, measure
from tests.bench.workloads import BACKLOGS, DECISIONS, EVICTING, GROUPS, PREEMPTION
from tests.stock.build import Binaries
from tests.stock.waiting import wait_until

pytestmark = pytest.mark.slow


@pytest.mark.stock
def test_both_decide_the_same_on_a_cluster_that_changes(stock_binaries: Binaries) -> None:
    rows = list(decisions.measured(120, stock_binaries["oracle"]))
    assert [row.workload for row in rows] == list(DECISIONS)
    assert [row.differing for row in rows] == [[]] * len(rows)
    assert min(min(row.stock_ms, row.ours_ms, row.ours_cpu_ms) for row in rows) > 0


@pytest.mark.stock
def test_the_verbs_are_called_and_bind(stock_binaries: Binaries, tmp_path: Path) -> None:
    calls = dict(verbs.measured(stock_binaries, 40, tmp_path))
    assert {call.split(",")[0] for call in calls} == {"filter", "prioritize", "preempt", "bind"}
    assert min(calls.values()) > 0


def test_processes_are_measured_while_the_whole_cluster_changes() -> None:
    figures = list(scale.measured(40, seconds=0.2, backlog=100))
    assert {figure.what.split(":")[0] for figure in figures} == {"loop", "webhook"}
    assert min(figure.value for figure in figures) > 0


def test_schedulers_that_share_a_cluster_bind_every_pod_and_lose_where_they_want_the_same() -> None:
    packing = conflicts.SITUATIONS[-1]
    alone, shared, again = (conflicts.share(packing, number, nodes=30, pods=200) for number in (1, 4, 4))
    assert alone.lost == 0
    assert shared == again
    assert shared.lost > 0
    assert shared.binds == shared.lost + 200
    assert conflicts.chart([alone, shared]).count("<circle") == 2


def test_the_loop_places_every_backlog() -> None:
    rows = dict(loop.measured(30, pods=40, waiting=5))
    assert list(rows) == [*BACKLOGS, "basic, 5 pods waiting for room"]
    assert min(rows.values()) > 0


@pytest.mark.parametrize("kind", tenants.KINDS)
def test_what_a_tenant_may_create_comes_is_decided_on_and_goes(kind: str) -> None:
    (cost,) = tenants.measured(30, pods=2, size=20_000, kinds=[kind])
    assert cost.pods == 2
    assert min(cost.take_in_ms, cost.decide_ms, cost.beside_ms, cost.growth) > 0


def test_plans_are_counted() -> None:
    pytest.importorskip("highspy")
    paper = plans.rebuilt(2, 0.5)
    assert paper.cases == 2
    assert paper.improved + paper.certified <= 2
    assert plans.large(40, 2, 5).proved == 2


def test_device_scoring_is_compared_with_the_plain_decision() -> None:
    costs = list(device_scoring.measured(12, pods=3))
    assert [cost.policy for cost in costs] == list(device_scoring.POLICIES)
    assert min(min(cost.plain, cost.scored) for cost in costs) > 0


def test_events_happen_beside_pods_that_wait() -> None:
    costs = {cost.event: cost for cost in waiting.measured(60)}
    assert costs.keys() == waiting.EVENTS.keys()
    assert min(cost.cpu_us for cost in costs.values()) > 0
    assert sum(cost.woken for cost in costs.values()) > 0


@pytest.mark.stock
@pytest.mark.parametrize("mode", MODES)
def test_each_way_of_scheduling_places_a_backlog(stock_binaries: Binaries, tmp_path: Path, mode: str) -> None:
    found = measure(stock_binaries, mode, "varied", nodes=20, pods=40, seconds=60, directory=tmp_path)
    assert found.bound == 40
    assert found.pods_per_second > 0
    assert found.cpu_ms.keys() >= {"scheduler", "apiserver"}


@pytest.mark.stock
@pytest.mark.parametrize("workload", ["basic-groups", "rack-gangs"])
def test_groups_are_placed_as_wholes(stock_binaries: Binaries, tmp_path: Path, workload: str) -> None:
    pods = 3 * GROUPS[workload].members
    found = measure(stock_binaries, "loop", workload, nodes=10, pods=pods, seconds=60, directory=tmp_path)
    assert found.bound == pods


@pytest.mark.stock
@pytest.mark.parametrize("mode", ["loop", "loop-fgd", "bind-only", "bind-all"])
@pytest.mark.parametrize("workload", DEVICE_BACKLOGS)
def test_each_pod_gets_its_device(stock_binaries: Binaries, tmp_path: Path, workload: str, mode: str) -> None:
    found = measure(stock_binaries, mode, workload, nodes=20, pods=20, seconds=60, directory=tmp_path)
    assert found.bound == 20


@pytest.mark.stock
def test_a_gang_evicts_ten_pods_for_each_member(stock_binaries: Binaries, tmp_path: Path) -> None:
    found = measure(stock_binaries, "loop", EVICTING, nodes=6, pods=4, seconds=60, directory=tmp_path)
    assert (found.bound, found.evicted) == (4, 40)


@pytest.mark.stock
def test_each_pod_of_a_wave_evicts_one_that_stands(stock_binaries: Binaries, tmp_path: Path) -> None:
    found = measure(stock_binaries, "loop", PREEMPTION, nodes=10, pods=8, seconds=60, directory=tmp_path)
    assert (found.bound, found.evicted) == (8, 8)


@pytest.mark.stock
def test_the_calls_of_the_webhook_are_timed_while_pods_come_and_go(stock_binaries: Binaries, tmp_path: Path) -> None:
    sizes = {"nodes": 20, "seconds": 60, "churn": 40}
    found = {each.call: each for each in webhook.latencies(stock_binaries, "varied", tmp_path, pods=40, **sizes)}
    assert min(len(found[verb].milliseconds) for verb in webhook.VERBS) >= 38  # the first twentieth is left out
    assert min(found[verb].quantile(0.5) for verb in webhook.VERBS) > 0


def _processes_of(session: int) -> list[str]:
    """Returns the command names of the processes in a session."""
    names = []
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            if os.getsid(int(directory.name)) == session:
                names.append((directory / "comm").read_text().strip())
        except OSError:  # the process has just ended
            continue
    return names


@pytest.mark.stock
@pytest.mark.usefixtures("stock_binaries")
def test_an_interrupted_comparison_stops_its_servers_and_shows_no_traceback(tmp_path: Path) -> None:
    arguments = ("--mode", "bind-only", "--workload", "basic", "--nodes", "20", "--pods", "20000")
    with (tmp_path / "output").open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.bench.cluster", *arguments],
            stdout=output,
            stderr=output,
            start_new_session=True,
            preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # a shell's background jobs ignore it
        )
    try:
        assert wait_until(lambda: "kube-apiserver" in _processes_of(process.pid))
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 128 + signal.SIGINT
    finally:
        process.kill()
    assert wait_until(lambda: not _processes_of(process.pid))
    assert (tmp_path / "output").read_text().splitlines()[-1] == "interrupted"


@pytest.mark.stock
def test_answers_are_given_and_compared_with_the_loop_in_go(stock_binaries: Binaries) -> None:
    rows = list(answers.measured(answers.Sizes(nodes=40, pods=60, replicas=50, pending=5), stock_binaries["oracle"]))
    assert [row.stock_seconds > 0 for row in rows] == [True, True, False, False, False, False, False]
    assert min(row.seconds for row in rows) > 0

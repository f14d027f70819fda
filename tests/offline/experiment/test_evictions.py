"""Evictions of an experiment: pods of a higher priority take the place of others, which arrive again at once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from extender.devices.device_nodes import DeviceAsk, DeviceNodes
from extender.devices.policies import Choice
from extender.errors import ConfigurationError
from extender.offline.experiment.evictions import RunningPod, RunningPods
from extender.offline.experiment.specification import Arrival
from extender.offline.experiment.sweep import as_page, as_text, experiment

PRIORITIES = (0, 3, 5, 10)


def share(milli: int, priority: int) -> Arrival:
    return Arrival(DeviceAsk(cpu=1, milli=milli, count=1), priority=priority)


def running(*pods_on: Sequence[Arrival]) -> RunningPods:
    """Returns nodes with one device each, and the pods on each node, numbered in the order given."""
    cpu = np.full(len(pods_on), 8)
    nodes = DeviceNodes.empty(np.array(["T4"] * len(pods_on)), cpu, cpu, np.ones(len(pods_on), np.int64))
    made = RunningPods(nodes, PRIORITIES)
    placed = [(row, pod) for row, pods in enumerate(pods_on) for pod in pods]
    for number, (row, pod) in enumerate(placed):
        nodes.change(row, pod.ask, (0,))
        made.start(number, RunningPod(pod, Choice(row, (0,))))
    return made


@pytest.mark.parametrize(
    ("preemptor", "expected"),
    [
        pytest.param(share(700, 10), (1, [2, 3]), id="the node whose victims are the least important"),
        pytest.param(share(500, 10), (0, [1]), id="of equal nodes the first, and only the pod that is in the way"),
        pytest.param(share(600, 3), (1, [2, 3]), id="not a pod of a higher priority"),
        pytest.param(share(500, 0), None, id="not a pod of the same priority"),
        pytest.param(share(1000, 0), None, id="none for the lowest priority"),
    ],
)
def test_the_victims(preemptor: Arrival, expected: tuple[int, list[int]] | None) -> None:
    pods = running([share(500, 5), share(500, 0)], [share(450, 0), share(450, 0)])
    assert pods.victims_for(preemptor) == expected


def test_a_pod_that_has_left_is_no_victim() -> None:
    pods = running([share(500, 0), share(500, 0)])
    assert pods.stop(0).arrival == share(500, 0)
    assert pods.victims_for(share(1000, 3)) == (0, [1])


NODES = "sn,cpu_milli,memory_mib,gpu,model\na,8000,8000,1,T4\nb,8000,8000,2,A10\n"
PODS = """\
name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,creation_time,deletion_time
p0,1000,10,1,1000,T4,BE,0,7200
p1,1000,10,2,1000,,LS,0,7200
p2,1000,10,1,1000,,LS,1800,5400
p3,1000,10,0,0,,BE,14400,
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "nodes.csv").write_text(NODES)
    (tmp_path / "pods.csv").write_text(PODS)
    return tmp_path


def written(folder: Path, more: str) -> Path:
    path = folder / "experiment.yaml"
    path.write_text(f"trace: {{nodes: nodes.csv, pods: pods.csv}}\nseeds: {{first: 1, last: 1}}\n{more}\n")
    return path


def test_an_evicted_pod_waits_and_runs_again_from_the_beginning(folder: Path) -> None:
    """p2 evicts p0 after half an hour, and leaves after one and a half; then p0 runs for its two hours."""
    arrivals = "arrivals: {type: recorded, priorities: {LS: 100}}"
    result = experiment(written(folder, f"policies: [BestFit]\n{arrivals}"))
    at = {sample.hours: sample for sample in result.samples}
    states = [(at[hours].evictions, at[hours].pending, at[hours].allocated) for hours in (0.4, 1.0, 1.8, 3.4, 3.6)]
    assert states == [(0, 0, 100.0), (1, 1, 100.0), (1, 0, 100.0), (1, 0, 33.3333), (1, 0, 0.0)]
    assert [line.split()[-1] for line in as_text(result, ["evictions"])] == ["EVICTIONS", "1.0"]
    assert b"pods evicted so far" in as_page(result, ["evictions"], "t")


def test_without_priorities_nothing_is_evicted(folder: Path) -> None:
    [summary] = experiment(written(folder, "policies: [BestFit]\narrivals: {type: recorded}")).policies
    assert summary.evictions == 0


def test_an_evicted_pod_goes_to_another_node_if_it_fits_there(folder: Path) -> None:
    """p0 came to node b because node a was full; the eviction moves it to node a, which is idle by then."""
    pods = PODS.splitlines()[0] + (
        "\nx,1000,10,1,1000,T4,LS,0,900\np0,1000,10,1,500,,BE,360,\np2,1000,10,2,1000,,LS,1800,\n"
    )
    (folder / "pods.csv").write_text(pods)
    arrivals = "arrivals: {type: recorded, priorities: {LS: 100}}"
    last = experiment(written(folder, f"policies: [BestFit]\n{arrivals}")).samples[-1]
    assert (last.evictions, last.pending, last.allocated) == (1, 0, 83.3333)


@pytest.mark.parametrize(
    ("more", "fault"),
    [
        ("arrivals: {priorities: {LSS: 1}}", "arrivals.priorities: no pod of the trace has the qos 'LSS'"),
        ("arrivals: {priorities: {LS: 1}}\ndevices: claims", "arrivals.priorities: expected devices by columns"),
        ("arrivals: {priorities: {LS: high}}", "arrivals.priorities.LS: expected a valid integer, got 'high'"),
    ],
)
def test_faults_have_their_path(folder: Path, more: str, fault: str) -> None:
    path = written(folder, f"policies: [FGD]\n{more}")
    with pytest.raises(ConfigurationError) as raised:
        experiment(path)
    assert list(raised.value.faults) == [f"{path}: {fault}"]

"""Experiments: the file and the trace are checked, runs are repeatable and kept, and pods come and go."""

from __future__ import annotations

import gzip
import json
import os
import sys
from pathlib import Path

import pytest

import extender
from extender.errors import ConfigurationError, ExtenderError
from extender.offline.experiment import sweep
from extender.offline.experiment.run import ExperimentSample, run
from extender.offline.experiment.specification import Experiment, read_openb
from extender.offline.experiment.sweep import as_csv, as_page, as_text, experiment
from tests.cli.commands import extender as command

EXAMPLE = Path(__file__).parents[3] / "examples" / "experiment"
NODES = "sn,cpu_milli,memory_mib,gpu,model\na,8000,8000,1,T4\nb,8000,8000,2,A10\n"
PODS = """\
name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,creation_time,deletion_time
p0,1000,10,1,600,,0,7200
p1,1000,10,1,600,T4,0,3600
p2,1000,10,1,600,T4,1800,7200
p3,1000,10,2,1000,,1800,
"""
SPEC = "trace: {nodes: nodes.csv, pods: pods.csv}\nseeds: {first: 1, last: 2}\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "nodes.csv").write_text(NODES)
    (tmp_path / "pods.csv").write_text(PODS)
    return tmp_path


def written(folder: Path, more: str = "policies: [BestFit]\n") -> Path:
    path = folder / "experiment.yaml"
    path.write_text(SPEC + more)
    return path


def test_the_table_has_a_row_for_each_policy(folder: Path) -> None:
    result = experiment(written(folder, "policies: [FGD, 2*FGD+PWR]\narrivals: {type: inflated, percent: 200}\n"))
    assert [(each.policy, each.runs) for each in result.policies] == [("FGD", 2), ("2*FGD+PWR", 2)]
    last = result.samples[-1]
    assert last.arrived > 200
    assert last.allocated <= 100
    assert as_text(result, ["pending"]).__next__().split() == ["POLICY", "RUNS", "PENDING"]
    assert as_csv(result).decode().splitlines()[0].startswith("policy,seed,hours,arrived,allocated,")
    assert list(result.to_frame().columns)[:2] == ["policy", "seed"]


def test_moves_make_room_when_all_pods_have_arrived(folder: Path) -> None:
    path = folder / "moves.yaml"
    path.write_text(
        f"trace: {{nodes: {EXAMPLE}/nodes.csv, pods: {EXAMPLE}/pods.csv}}\nseeds: {{first: 1, last: 3}}\n"
        "policies: [Random]\narrivals: {type: inflated, percent: 100}\nmoves: [1, 3]\n"
    )
    result = experiment(path)
    [summary] = result.policies
    assert summary.allocated < summary.after_moves["3"]
    assert summary.allocated <= summary.after_moves["1"]
    assert max(sample.moves for sample in result.samples) == 3
    assert next(as_text(result, ["allocated"])).endswith("AFTER 1 MOVE  AFTER 3 MOVES")
    assert as_page(result, ["allocated"], "t").count(b"<svg") == 2


def test_recorded_pods_come_wait_and_leave(folder: Path) -> None:
    """p0 takes the T4 for two hours. p1 waits for it and has it for one hour, then p2."""
    (folder / "pods.csv").write_text(PODS + "p4,1000,10,0,0,,10800,\n")
    result = experiment(written(folder, "policies: [GpuPacking]\narrivals: {type: recorded}\n"))
    at = {sample.hours: sample for sample in result.samples if sample.seed == 1}
    states = [(at[hours].pending, at[hours].allocated) for hours in (0.3, 1.5, 2.4, 3.0)]
    assert states == [(1, 20.0), (2, 86.6667), (1, 86.6667), (0, 86.6667)]


def test_poisson_arrivals_keep_a_steady_load(folder: Path) -> None:
    spec = "policies: [BestFit]\narrivals: {type: poisson, podsPerHour: 2, hours: 200, lifetimeHours: 0.5}\n"
    samples = experiment(written(folder, spec)).samples
    assert len(samples) == 200
    assert samples[-1].arrived > 1000
    assert sum(each.allocated for each in samples) / len(samples) < 60


@pytest.mark.slow
def test_results_do_not_depend_on_the_processes(folder: Path) -> None:
    path = written(folder, "policies: [Random, BestFit]\n")
    alone, together = experiment(path), experiment(path, workers=2)
    assert as_csv(alone) == as_csv(together)
    assert as_page(alone, ["allocated"], "t") == as_page(together, ["allocated"], "t")


def test_kept_runs_are_not_made_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(folder)
    first = experiment(path, folder / "results")
    made: list[tuple[str, int]] = []

    def counted(loaded: Experiment, policy: str, seed: int) -> list[ExperimentSample]:
        made.append((policy, seed))
        return run(loaded, policy, seed)

    monkeypatch.setattr(sweep, "run", counted)
    assert experiment(path, folder / "results") == first
    assert made == []
    (kept, *_) = sorted((folder / "results" / "runs").iterdir())
    kept.write_bytes(kept.read_bytes()[:-9])  # half written
    assert experiment(path, folder / "results") == first
    assert len(made) == 1
    experiment(written(folder, "policies: [BestFit, DotProd]\n"), folder / "results")
    assert made[1:] == [("DotProd", 1), ("DotProd", 2)]
    (folder / "pods.csv").write_text(PODS + "p4,1000,10,0,0,,0,\n")
    experiment(path, folder / "results")
    assert len(made) == 7


def _ended(_path: Path, _policy: str, _seed: int) -> bytes:
    os._exit(1)


@pytest.mark.slow
def test_a_process_that_is_ended_is_reported(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "_run_in_process", _ended)
    with pytest.raises(ExtenderError, match="a process was ended from outside"):
        experiment(written(folder), workers=2)


def test_a_users_policy_is_imported_and_its_change_seen(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.path", [*sys.path])
    source = (
        "from extender import device_priority\n\n@device_priority\ndef alike(nodes, ask):\n    return nodes.devices\n"
    )
    (folder / "policy_of_a_user.py").write_text(source)
    path = written(folder, "policies: ['policy_of_a_user:alike', 'BestFit+2*policy_of_a_user:alike']\n")
    loaded = Experiment.load(path)
    key = loaded.key("policy_of_a_user:alike", 1)
    assert len(experiment(path).policies) == 2
    (folder / "policy_of_a_user.py").write_text(source + "\n")
    assert loaded.key("policy_of_a_user:alike", 1) != key


@pytest.mark.parametrize(
    ("spec", "fault"),
    [
        (
            "policies: [BestFitt]",
            "policies[0]: expected FirstFit, BestFit, DotProd, GpuClustering, GpuPacking, LeastAllocated, FGD,"
            " CpuBalance, PWR, Random, or module:function of your own; got 'BestFitt' (did you mean BestFit?)",
        ),
        ("policies: [FGD, 0*FGD]", "policies[1]: expected a weight from 1 to 100 before *, got '0'"),
        ("policies: [FGD, FGD]", "policies: expected every policy once"),
        ("policies: []", "policies: expected at least 1"),
        (
            "policies: ['nowhere:x']",
            "policies[0]: nowhere:x cannot be imported: ModuleNotFoundError: No module named 'nowhere'",
        ),
        ("policies: [FGD]\nseed: 3", "seed: unknown field (did you mean seeds?)"),
        ("policies: [FGD]\narrivals: {type: recorded, percent: 3}", "arrivals: type recorded takes no percent"),
        ("policies: [FGD]\nmoves: [0]", "moves[0]: expected a value greater than 0, got 0"),
        (
            "policies: [FGD]\narrivals: {type: recorded}\nmoves: [5]",
            "moves: expected arrivals of type inflated, and devices by columns",
        ),
        (
            "policies: [FGD]\nmetrics: [energi]",
            "metrics[0]: expected allocated or fragmentation or pending or evictions or energy",
        ),
    ],
)
def test_a_fault_of_the_file_has_its_path(folder: Path, spec: str, fault: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        Experiment.load(written(folder, spec))
    assert any(each.startswith(f"{folder}/experiment.yaml: {fault}") for each in raised.value.faults), (
        raised.value.faults
    )


@pytest.mark.parametrize(
    ("file", "text", "fault"),
    [
        ("nodes.csv", "sn,cpu_milli\na,1\n", "nodes.csv:1: expected the columns"),
        ("nodes.csv", NODES.replace("8000,8000,1", "x,8000,1"), "nodes.csv:2: cpu_milli: expected a whole number"),
        ("nodes.csv", "sn,cpu_milli,memory_mib,gpu,model\n", "nodes.csv: expected nodes with devices"),
        ("pods.csv", PODS.replace("2,1000", "2,500"), "pods.csv:5: gpu_milli: expected 1000, because several"),
        ("pods.csv", PODS.replace("1,600,,0", "1,0,,0"), "pods.csv:2: gpu_milli: expected 1 to 1000"),
        ("pods.csv", PODS.replace("7200", "soon"), "pods.csv:2: deletion_time: expected seconds, got 'soon'"),
        ("pods.csv", "\x00", "pods.csv"),
    ],
)
def test_a_fault_of_the_trace_has_its_place(folder: Path, file: str, text: str, fault: str) -> None:
    (folder / file).write_text(text)
    with pytest.raises(ExtenderError, match=f"^{folder}/{fault}".replace("(", r"\(")):
        experiment(written(folder))


def test_gzipped_traces_are_read(folder: Path) -> None:
    (folder / "pods.csv.gz").write_bytes(gzip.compress(PODS.encode()))
    assert (
        read_openb(folder / "nodes.csv", folder / "pods.csv.gz").pods
        == read_openb(folder / "nodes.csv", folder / "pods.csv").pods
    )


@pytest.mark.slow
def test_the_shipped_trace_goes_from_import_to_the_page(folder: Path) -> None:
    imported = command("experiment", "import", "--format", "openb", str(folder / "nodes.csv"), str(folder / "pods.csv"))
    assert (imported.returncode, imported.stderr) == (0, "2 nodes, 3 devices, 4 pods\n")
    path = folder / "made.yaml"
    path.write_text(imported.stdout.replace("last: 51", "last: 42"))
    done = command("experiment", str(path), "--workers", "1")
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.split()[0] for line in done.stdout.splitlines()[1:7]] == [
        *("Random", "DotProd", "GpuClustering", "GpuPacking", "BestFit", "FGD")
    ]
    results = folder / "made.results"
    assert (results / "results.html").read_text().count("<svg") == 5
    assert json.loads((results / "results.json").read_text())["kind"] == "Experiment"
    assert Experiment.load(EXAMPLE / "experiment.yaml").trace.capacity == 114_000


def test_names_are_public() -> None:
    assert extender.experiment is experiment


@pytest.mark.slow
def test_claims_are_decided_by_the_engine(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine and the columns agree about the policies that have no ties to break."""
    monkeypatch.setattr("sys.path", [*sys.path])
    (folder / "packs_of_a_user.py").write_text(
        "from extender import device_priority\n\n@device_priority(normalise=True)\ndef packed(nodes, ask):\n"
        "    return 2 * (1000 - nodes.free) + (nodes.models == 'T4')[:, None]\n"
    )
    arrivals = "arrivals: {type: inflated, percent: 200}\n"
    more = f"policies: [BestFit, FGD, FGD+CpuBalance, 'packs_of_a_user:packed']\n{arrivals}"
    columns = experiment(written(folder, more)).policies
    assert experiment(written(folder, f"{more}devices: claims\n")).policies == columns
    result = experiment(
        written(folder, f"policies: [kube-scheduler, FirstFit, 2*FGD+PWR]\n{arrivals}devices: claims\n")
    )
    assert [each.policy for each in result.policies] == ["kube-scheduler", "FirstFit", "2*FGD+PWR"]


def test_claims_leave_with_their_pods(folder: Path) -> None:
    recorded = "policies: [GpuPacking]\narrivals: {type: recorded}\n"
    columns = experiment(written(folder, recorded)).samples
    assert experiment(written(folder, f"{recorded}devices: claims\n")).samples == columns


def test_claims_have_the_policies_of_the_plugin_only(folder: Path) -> None:
    path = written(folder, "policies: [Random, FGD+BestFitt, kube-scheduler]\ndevices: claims\n")
    with pytest.raises(ConfigurationError) as raised:
        Experiment.load(path)
    assert list(raised.value.faults) == [
        f"{path}: policies[0]: devices: claims has no policy Random",
        f"{path}: policies[1]: expected FirstFit, BestFit, DotProd, GpuClustering, GpuPacking, FGD, CpuBalance, PWR,"
        " or module:function of your own; got 'BestFitt' (did you mean BestFit?)",
    ]

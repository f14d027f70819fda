"""`extender upgrade-check`: which decisions of a snapshot or recording another version changes, and why."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from extender.cli.main import cli
from extender.model.kinds import KINDS
from extender.offline.recording.reading import Recording
from extender.offline.recording.replay import as_text as replay_text
from extender.offline.recording.replay import replay
from extender.offline.recording.upgrade import as_text, check
from extender.offline.recording.worlds import BECAUSE, OWN, SEVERAL, Consequence, counted_by_cause
from extender.offline.state import ClusterState
from extender.recording.lines import CallLine
from extender.snapshots.objects import to_objects
from extender.table.features import Behaviours
from tests.builders import ZONE, Object, make_node, make_pod
from tests.offline.recording.recorded import RecordedServer
from tests.scheduler.world import NAME, World

ROOT = Path(__file__).parents[3]

NODES = [
    make_node(name).capacity(cpu=cpu, memory="16Gi", pods="110").label({ZONE: name}).obj()
    for name, cpu in (("a", "16"), ("b", "4"))
]
PLACED = make_pod("placed").req(cpu="9").node("a").obj()
SPREAD = make_pod("spread").spread(ZONE, labelSelector={}).obj()
PLAIN = make_pod("plain").req(cpu="1").obj()


def with_pod_level_requests(name: str) -> Object:
    pod = make_pod(name).obj()
    return {**pod, "spec": {**pod["spec"], "resources": {"requests": {"cpu": "4", "memory": "1Gi"}}}}


def state_of(*pods: Object, version: str = "v1.37.1") -> ClusterState:
    return ClusterState(to_objects([*NODES, PLACED, *pods]), kubernetes_version=version)


def test_changes_are_counted_by_cause_with_the_pods() -> None:
    result = check(state_of(with_pod_level_requests("x"), with_pod_level_requests("y"), PLAIN), "1.38")
    assert list(as_text(result)) == [
        "4 pods judged as if waiting: 2 decisions differ",
        "2 pods get another node because pod-level requests count in the score: default/x, default/y",
        "note: decided with Kubernetes 1.38, DRAFractionalCapacityRange=true",
        "",
        "POD        BEFORE  AFTER  CAUSE",
        "default/x  b       a      pod-level requests count in the score",
        "default/y  b       a      pod-level requests count in the score",
    ]
    assert result.to_dict()["decided"] == {"pod": 4}
    assert [each["pod"] for each in result.to_dict()["changed"]] == ["default/x", "default/y"]


def test_nothing_changes_under_the_version_of_the_snapshot() -> None:
    result = check(state_of(with_pod_level_requests("x"), version="v1.38.0"), "1.38")
    assert list(as_text(result)) == [
        "2 pods judged as if waiting: no decision differs",
        "note: under 1.38, nothing differs from the snapshot's version",
    ]


@pytest.mark.parametrize(
    ("target", "cause"),
    [
        pytest.param("1.38", "pod-level requests count in the score", id="one change suffices"),
        pytest.param("1.38,StorageCapacityScoring=false", "pod-level requests count in the score", id="beside a gate"),
    ],
)
def test_the_cause_is_the_change_without_which_the_decision_would_stay(target: str, cause: str) -> None:
    ((consequence, _),) = check(state_of(with_pod_level_requests("x")), target).consequences
    assert (consequence.what, consequence.cause) == ("get another node", cause)
    assert cause != SEVERAL


def test_every_behaviour_has_a_text() -> None:
    assert BECAUSE.keys() == {field.name for field in fields(Behaviours)}


def recorded_calls(path: Path) -> None:
    """Records what `extender serve` answers under 1.37: filter and prioritize about three pods."""
    server = RecordedServer(path)
    for obj in (*NODES, PLACED):
        server.cache.changed(obj["kind"], msgspec.convert(obj, KINDS[obj["kind"]].type))
    for pod in (with_pod_level_requests("x"), with_pod_level_requests("y"), SPREAD):
        for verb in ("filter", "prioritize"):
            server.ask(verb, {"Pod": pod, "NodeNames": ["a", "b"]})
    server.recorder.stop()


def recorded_attempts(path: Path) -> None:
    """Records what `extender schedule` decides under 1.37 about two pods."""
    world = World(record=path)
    for obj in (*NODES, PLACED):
        world.put(obj)
    for pod in (with_pod_level_requests("x"), SPREAD):
        world.put({**pod, "spec": {**pod["spec"], "schedulerName": NAME}})
        world.settle()
    world.observed.stop()


COUNTS = "pod-level requests count in the score"
SELECTS = "an empty selector of a spread constraint counts all pods"


@pytest.mark.parametrize(
    ("record", "sentences"),
    [
        pytest.param(
            recorded_calls,
            [
                f"2 pods get other scores because {COUNTS}: default/x, default/y",
                f"1 pod passes filter on other nodes because {SELECTS}: default/spread",
            ],
            id="calls of the webhook",
        ),
        pytest.param(recorded_attempts, [f"1 pod gets another node because {COUNTS}: default/x"], id="attempts"),
    ],
)
def test_changes_of_a_recording_are_counted_by_cause(
    record: Callable[[Path], None], sentences: list[str], tmp_path: Path
) -> None:
    record(tmp_path / "recording.jsonl")
    result = replay(tmp_path / "recording.jsonl", gates="1.38")
    assert result.notes[:-1] == sentences
    assert {decision.because for decision in result.changed} <= {COUNTS, SELECTS}
    assert list(replay_text(result))[1 : 1 + len(sentences)] == [f"note: {sentence}" for sentence in sentences]
    assert replay(tmp_path / "recording.jsonl").notes == []


def test_a_recording_of_another_program_differs_without_a_change(tmp_path: Path) -> None:
    recorded_calls(tmp_path / "recording.jsonl")
    recorded = Recording.load(tmp_path / "recording.jsonl")
    lines = [
        msgspec.structs.replace(line, scores="99") if isinstance(line, CallLine) and line.verb == "prioritize" else line
        for line in recorded.lines
    ]
    recording = Recording(recorded.header, lines, recorded.numbers, truncated=False)
    assert {decision.because for decision in replay(recording, gates="1.36").changed} == {OWN}


def test_a_sentence_names_each_pod_once_and_five_at_most() -> None:
    consequence = Consequence("pod", "get a node", "of a reason")
    changed = [(consequence, f"ns/{number}") for number in (*range(6), 0)]
    assert counted_by_cause(changed) == [
        "6 pods get a node because of a reason: ns/0, ns/1, ns/2, ns/3, ns/4 and 1 more"
    ]
    assert counted_by_cause(changed, None)[0].endswith(": ns/0, ns/1, ns/2, ns/3, ns/4, ns/5")


def test_the_readme_shows_what_the_command_prints(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = re.search(r"\$ (extender upgrade-check .*)\n((?:.*\n)*?)```", (ROOT / "README.md").read_text())
    assert shown is not None
    monkeypatch.chdir(ROOT)
    result = CliRunner().invoke(cli, shown[1].split()[1:])
    assert (result.exit_code, result.stdout) == (3, shown[2])

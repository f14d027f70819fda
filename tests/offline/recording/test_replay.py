"""Replays: nothing differs under the rules of the recording; under others each difference has its cause."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from extender.errors import ConfigurationError
from extender.model.kinds import KINDS
from extender.offline.recording.reading import Recording
from extender.offline.recording.replay import MISSING, ReplayResult, replay
from extender.recording.lines import CheckpointLine
from tests.builders import make_node, make_pod
from tests.offline.recording.recorded import RecordedServer, record_timeline
from tests.recordings import Call, Mode, calls_and_events
from tests.verbs.test_recordings import in_order_of_cause

SHIPPED = Path(__file__).parents[2] / "recordings/served.jsonl.gz"
MODES: list[Mode] = ["names", "full"]
NO_TAINTS = "plugins: {filter: {disabled: [{name: TaintToleration}]}}"
FULL_FIRST = """pluginConfig:
  - name: NodeResourcesFit
    args: {scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 1}]}}"""


def calls_of(mode: Mode) -> int:
    return sum(isinstance(entry, Call) for entry in calls_and_events(mode))


def policy(path: Path, profile: str) -> Path:
    head = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n"
    path.write_text(f"{head}- schedulerName: default-scheduler\n  {profile}\n")
    return path


def causes(result: ReplayResult, what: str) -> set[tuple[str, str, str | None]]:
    """(recorded, replayed, cause) of the verb's differences."""
    found = (one for each in result.changed if each.what == what for one in each.differences)
    return {(one.recorded, one.replayed, one.cause) for one in found}


@pytest.mark.parametrize("mode", MODES)
def test_nothing_differs_under_the_rules_of_the_recording(mode: Mode, tmp_path: Path) -> None:
    record_timeline(tmp_path / "recording.jsonl", mode)
    result = replay(tmp_path / "recording.jsonl")
    assert [each.to_dict() for each in result.changed] == []
    assert (sum(result.decided.values()), result.left_out) == (calls_of(mode), {})


def test_nothing_differs_in_the_recording_that_is_shipped() -> None:
    result = replay(SHIPPED)
    assert [each.to_dict() for each in result.changed] == []
    assert (result.decided, result.left_out) == ({"filter": 30, "prioritize": 25, "bind": 30, "preempt": 2}, {})


@pytest.mark.parametrize("mode", MODES)
def test_each_file_of_a_recording_can_be_replayed_alone(mode: Mode, tmp_path: Path) -> None:
    record_timeline(tmp_path / "recording.jsonl", mode, write_every=20, file_bytes=4 * 80_000)
    results = [replay(path) for path in sorted(tmp_path.iterdir())]
    assert 1 < len(results) < 5
    assert all(result.changed == [] for result in results)
    decided = sum(sum(result.decided.values()) for result in results)
    assert decided + sum(sum(result.left_out.values()) for result in results) == calls_of(mode)


def test_a_filter_that_another_policy_lacks_is_the_cause(tmp_path: Path) -> None:
    record_timeline(tmp_path / "recording.jsonl", "names")
    result = replay(tmp_path / "recording.jsonl", policy(tmp_path / "next.yaml", NO_TAINTS))
    assert {each.what for each in result.changed} <= {"filter", "preempt", "prioritize", "bind"}
    recorded = causes(result, "filter")
    assert recorded == set() or {cause for _, _, cause in recorded} == {"TaintToleration"}


def test_a_score_that_another_policy_gives_is_the_cause(tmp_path: Path) -> None:
    record_timeline(tmp_path / "recording.jsonl", "names")
    result = replay(tmp_path / "recording.jsonl", policy(tmp_path / "next.yaml", FULL_FIRST))
    assert {each.what for each in result.changed} == {"prioritize"}
    assert {str(cause).split()[0] for _, _, cause in causes(result, "prioritize")} == {"NodeResourcesFit"}


def test_decisions_on_dropped_changes_are_left_out_and_later_ones_are_not(tmp_path: Path) -> None:
    """Decisions on the missing changes are left out; later ones come out as recorded."""
    server = RecordedServer(tmp_path / "recording.jsonl", limit_bytes=40_000)
    timeline = list(in_order_of_cause("names"))
    for number, entry in enumerate(timeline):
        server.take(entry)
        if number % 60 == 59:
            server.recorder.write()
    server.recorder.stop()
    assert server.dropped
    result = replay(tmp_path / "recording.jsonl")
    assert result.changed == []
    assert sum(result.decided.values()) > 10
    assert set(result.left_out) <= {MISSING}
    dropped = [
        line.dropped for line in Recording.load(tmp_path / "recording.jsonl").lines if isinstance(line, CheckpointLine)
    ]
    assert any(dropped)


def test_a_fault_of_the_policy_is_an_error(tmp_path: Path) -> None:
    record_timeline(tmp_path / "recording.jsonl", "names")
    with pytest.raises(ConfigurationError, match="NodeResourcesFut"):
        replay(
            tmp_path / "recording.jsonl",
            policy(tmp_path / "next.yaml", "plugins: {filter: {enabled: [{name: NodeResourcesFut}]}}"),
        )


def test_a_feature_gate_is_the_cause_of_what_it_changes(tmp_path: Path) -> None:
    server = RecordedServer(tmp_path / "recording.jsonl")
    for kind, obj in (("Node", make_node("n").capacity(cpu="4").obj()), ("Pod", make_pod("p").obj())):
        server.cache.changed(kind, msgspec.convert(obj, KINDS[kind].type))
    needy = make_pod("p").spec(hostNetwork=True, hostUsers=False).obj()
    server.ask("filter", {"Pod": needy, "NodeNames": ["n"]})
    server.recorder.stop()
    assert replay(tmp_path / "recording.jsonl").changed == []
    same = replay(tmp_path / "recording.jsonl", gates="1.36")
    assert (same.changed, same.notes) == (
        [],
        ["decided again with StorageCapacityScoring=false, VolumeLimitScaling=false"],
    )
    result = replay(tmp_path / "recording.jsonl", gates="1.35")
    assert causes(result, "filter") == {
        ("node(s) didn't match Pod's required features (no eviction helps)", "passes", "NodeDeclaredFeatures")
    }

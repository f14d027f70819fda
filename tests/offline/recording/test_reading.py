"""Reading a recording: its steps, the cluster at each of them, and files that are not recordings."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.errors import MalformedCluster
from extender.offline.recording.reading import Recording
from extender.recording.lines import as_ranges, from_ranges
from tests.offline.recording.recorded import RecordedServer, record_timeline
from tests.verbs.test_recordings import in_order_of_cause


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recording") / "recording.jsonl.gz"
    record_timeline(path, "names")
    return path


def standing(server: RecordedServer) -> dict[str, str]:
    """Pod -> node, of those that count somewhere."""
    with server.cache.snapshot("test") as table:
        slots = table.pods.slot_of.values()
        return {table.pods.info(slot).pod.key: table.nodes.names[table.pods.row[slot]] for slot in slots}


def test_the_cluster_at_a_step_is_what_the_cache_held(path: Path, tmp_path: Path) -> None:
    server = RecordedServer(tmp_path / "other.jsonl")
    recording = Recording.load(path)
    for entry in list(in_order_of_cause("names"))[:130]:
        server.take(entry)
    at = server.clock.now()
    step = next(each.number for each in recording.steps if each.at > at)
    objects = list(recording.objects(step))
    with server.cache.snapshot("test") as table:
        assert sorted(obj.name for obj in objects if type(obj).__name__ == "Node") == sorted(table.nodes.row_of)
    found = {obj.key: node for obj in objects if (node := getattr(obj, "node_name", ""))}
    assert found == standing(server)
    assert len(found) > 10


def test_steps_describe_what_happened(path: Path) -> None:
    steps = Recording.load(path).steps
    recorded = [(step.kind, step.subject, step.text) for step in steps]
    assert ("change", "Node node-5", "was created or changed") in recorded
    assert ("change", "default/gpu-0", "is assumed on node-7") in recorded
    assert ("call", "default/low-8", "filter: 4 of 6 nodes remain") in recorded or any(
        kind == "call" and text.startswith("filter: ") for kind, _, text in recorded
    )
    assert [step.number for step in steps] == list(range(len(steps)))
    assert all(step.to_dict()["at"] == step.at for step in steps)


def test_any_step_can_be_asked_in_any_order(path: Path) -> None:
    recording = Recording.load(path)
    last, middle = len(recording.lines), len(recording.lines) // 2
    forwards = [recording.state(number) for number in (0, middle, last)]
    backwards = [recording.state(number) for number in (last, middle, 0)]
    assert forwards == backwards[::-1]
    assert len(forwards[0]) == 0 < len(forwards[1])


def test_the_pod_of_a_call_can_be_decided_in_the_cluster_of_its_step(path: Path) -> None:
    recording = Recording.load(path)
    call = next(step for step in recording.steps if step.text.startswith("filter"))
    pod = recording.pod(call.number)
    assert pod is not None
    assert pod.key == call.subject
    assert recording.cluster(call.number).decide(pod).nodes


def test_a_file_without_its_end_is_read_as_far_as_it_goes(path: Path, tmp_path: Path) -> None:
    for name, data in (("cut.gz", path.read_bytes()[:-40]), ("cut", gzip.decompress(path.read_bytes())[:-40])):
        (tmp_path / name).write_bytes(data)
        cut = Recording.load(tmp_path / name)
        assert cut.truncated
        assert 0 < len(cut.lines) < len(Recording.load(path).lines)


@pytest.mark.parametrize(
    ("text", "recorded"),
    [
        pytest.param("", "this is not a recording", id="empty"),
        pytest.param("kind: Pod\n", "this is not a recording", id="YAML"),
        pytest.param('{"a":' * 100_000, "this is not a recording", id="braces without end"),
        pytest.param('{"line":"dropped","at":1,"entries":2}\n', "this is not a recording", id="no header"),
        pytest.param('{"line":"header","at":1,"version":9,"extender":"9","settings":{"mode":"serve"}}\n', "version 9",
                     id="a version to come"),
        pytest.param('{"line":"header","at":1,"version":1,"extender":"0","settings":{"mode":"serve"}}\nx\n{}\n',
                     "line 2:", id="nonsense in the middle"),
    ],
)  # fmt: skip
def test_a_file_that_is_not_a_recording_is_refused_with_its_name(text: str, recorded: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text(text)
    with pytest.raises(MalformedCluster, match=recorded) as error:
        Recording.load(tmp_path / "file")
    assert str(tmp_path / "file") in str(error.value)


@given(st.lists(st.integers(0, 50)))
def test_ranges_keep_numbers_and_their_order(numbers: list[int]) -> None:
    assert from_ranges(as_ranges(np.array(numbers, np.intp))).tolist() == numbers


def test_a_recording_is_for_its_owner_alone(path: Path) -> None:
    assert path.stat().st_mode & 0o077 == 0


def test_another_file_is_not_overwritten_and_recording_goes_on_once_it_is_moved(tmp_path: Path) -> None:
    path, stranger = tmp_path / "recording.jsonl", tmp_path / "recording.jsonl.3"
    server = RecordedServer(path)
    entries = list(in_order_of_cause("names"))
    for entry in entries[:60]:
        server.take(entry)
    server.recorder.write()
    stranger.write_text("the only copy")
    server.recorder.settings_changed(policy="another policy")
    for moved in (False, True):
        if moved:
            stranger.rename(tmp_path / "aside")
        server.clock.advance(61)
        server.recorder.write()
        server.take(entries[60 + moved])
        assert len(Recording.load(tmp_path / f"recording.jsonl{'.1' if moved else ''}").steps) >= 60
    server.recorder.stop()
    assert (tmp_path / "aside").read_text() == "the only copy"
    assert Recording.load(path).header.settings.policy == "another policy"


def test_another_policy_begins_another_file_with_the_whole_cluster(tmp_path: Path) -> None:
    path = tmp_path / "recording.jsonl"
    server = RecordedServer(path)
    entries = list(in_order_of_cause("names"))
    for entry in entries[:60]:
        server.take(entry)
    server.recorder.settings_changed(policy="another policy")
    for entry in entries[60:130]:
        server.take(entry)
    server.recorder.stop()
    before, after = Recording.load(tmp_path / "recording.jsonl.1"), Recording.load(path)
    assert [each.header.settings.policy for each in (before, after)] == [None, "another policy"]
    found = {obj.key: node for obj in after.objects(len(after.steps) - 1) if (node := getattr(obj, "node_name", ""))}
    assert found == standing(server)

"""Recordings that come from strangers: one clear line each, in bounded memory, and nothing of theirs is run."""

from __future__ import annotations

import gzip
import json
import re
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from extender.app.observation import without_keys
from extender.cache.cache import Cache
from extender.errors import ConfigurationError, ExtenderError, MalformedCluster
from extender.model.node import Node
from extender.model.pod import Pod
from extender.model.redaction import Redaction
from extender.offline.answers import CauseCode
from extender.offline.recording.reading import Recording
from extender.offline.recording.replay import as_text, replay, steps_text
from extender.offline.recording.worlds import Rules
from extender.recording import recorder as recorder_module
from extender.recording.lines import RecordedSettings
from extender.recording.recorder import RecordedChanges, Recorder, RotatingFiles
from extender.runtime.clock import ManualClock
from extender.runtime.ports import Telemetry
from extender.snapshots.objects import to_objects
from tests.builders import make_composite_pod_group, make_node, make_pod, make_pv, make_pvc
from tests.offline.recording.recorded import RecordedServer, record_timeline

pytestmark = pytest.mark.slow

HEADER = {"line": "header", "at": 1, "version": 1, "extender": "0", "settings": {"mode": "serve"}}
NODES = {"line": "nodes", "at": 1, "names": ["a", "b"]}
POD = make_pod("p").uid("u").obj()
CALL = {"line": "call", "at": 1, "moment": 1, "verb": "filter", "pod": POD, "nodes": "0-1"}
CHANGE = {"line": "object", "at": 1, "moment": 1, "kind": "Node", "key": "a", "object": make_node("a").obj()}
RULES = "profiles: [{schedulerName: default-scheduler, plugins: {filter: {enabled: [{name: 'RULE'}]}}}]"
POLICY = f"apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n{RULES}\n"


def written(path: Path, *lines: dict[str, Any], header: dict[str, Any] | None = None) -> Path:
    texts = [json.dumps(line) for line in (header or HEADER, *lines)]
    path.write_text("\n".join(texts) + "\n")
    return path


@pytest.mark.parametrize(
    ("line", "message"),
    [
        pytest.param(
            {**CALL, "nodes": "0-99999999999"}, "nodes 0-99999999999: only 2 nodes are named", id="too many nodes"
        ),
        pytest.param({**CALL, "nodes": "0,0,0"}, "only 2 nodes are named", id="a node again and again"),
        pytest.param({**CALL, "nodes": "1-0"}, "only 2 nodes are named", id="a range that goes down"),
        pytest.param({**CALL, "nodes": "x"}, "invalid literal", id="no number"),
        pytest.param({**CALL, "nodes": "9" * 5000}, "integer string conversion", id="a number of 5,000 digits"),
        pytest.param(
            {**CALL, "refused": {"why": "7"}}, "nodes 7: only 2 nodes are named", id="a refused node without a name"
        ),
        pytest.param({**CALL, "verb": "prioritize", "scores": "a"}, "1 scores for 2 nodes", id="too few scores"),
        pytest.param({**CALL, "verb": "prioritize"}, "0 scores for 2 nodes", id="no scores"),
        pytest.param({**CALL, "verb": "prioritize", "scores": "0z"}, "invalid literal", id="no score"),
        pytest.param({**CALL, "verb": "\x1b[31m"}, "Invalid enum value", id="no verb"),
        pytest.param({**CALL, "at": 1e300}, "Expected `float` <= ", id="a time beyond the calendar"),
        pytest.param({**CALL, "moment": -1}, "Expected `int` >= 0", id="a moment before all others"),
        pytest.param(NODES, "node a is named twice", id="a node named twice"),
    ],
)  # fmt: skip
def test_a_line_that_makes_no_sense_is_refused_with_its_number(
    line: dict[str, Any], message: str, tmp_path: Path
) -> None:
    path = written(tmp_path / "r", NODES, line, CHANGE)
    with pytest.raises(MalformedCluster, match=re.escape(message)) as error:
        Recording.load(path)
    assert str(error.value).startswith(f"{path}: line 3: ")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        pytest.param({**CALL, "pod": 7}, "pod: Expected `object`", id="no pod"),
        pytest.param({key: CALL[key] for key in CALL if key != "pod"}, "pod: ", id="a filter without a pod"),
        pytest.param(
            {**CALL, "pod": make_pod("p").req(cpu="1Gx").obj()}, "", id="a malformed quantity"
        ),
        pytest.param({**CALL, "verb": "bind"}, "request: ", id="a bind without a request"),
        pytest.param({**CALL, "verb": "bind", "request": [1]}, "request: ", id="a bind of a list"),
        pytest.param({**CALL, "verb": "preempt", "request": {"a": 1}}, "request: ", id="victims as a number"),
        pytest.param({**CHANGE, "kind": "\x1b[31m"}, "unknown kind", id="a kind that steers terminals"),
        pytest.param({**CHANGE, "object": "x"}, "", id="a node that is a text"),
        pytest.param({**CHANGE, "key": "b"}, "Node a: is recorded under another key, b", id="another key"),
        pytest.param(
            {**CHANGE, "kind": "Pod", "object": POD},
            "Pod default/p: is recorded under another UID, a",
            id="another UID",
        ),
    ],
)  # fmt: skip
def test_a_step_that_makes_no_sense_is_refused_with_its_number(
    line: dict[str, Any], message: str, tmp_path: Path
) -> None:
    begin = {"line": "checkpoint", "at": 1, "moment": 0, "objects": 0}
    path = written(tmp_path / "r", NODES, begin, line)
    with pytest.raises(ExtenderError, match=f"^step 1: {re.escape(message)}"):
        replay(path)


@pytest.mark.parametrize("levels", [5, 300, 5000])
def test_a_recorded_tree_that_is_too_deep_is_refused(levels: int, tmp_path: Path) -> None:
    groups = [make_composite_pod_group(f"c{level}", 1) for level in range(6)]
    objects = [
        {**CHANGE, "kind": "CompositePodGroup", "key": f"default/c{level}", "object": group}
        for level, group in enumerate(groups)
    ]
    head = "".join(
        f'{{"kind": "CompositePodGroup", "key": "default/c{min(level, 5)}", "children": [' for level in range(levels)
    )
    group = {"line": "group", "at": 1, "moment": 1, "group": "CompositePodGroup default/c0", "tree": "nested"}
    begin = {"line": "checkpoint", "at": 1, "moment": 0, "objects": 0}
    path = written(tmp_path / "r", NODES, begin, *objects, group, CHANGE)
    path.write_text(path.read_text().replace('"nested"', head + "]}" * levels))
    expected = "exceeded maximum hierarchy depth at CompositePodGroup default/c4|maximum recursion depth"
    with pytest.raises(ExtenderError, match=expected):
        replay(path)


def lines_of(path: Path) -> list[Any]:
    return [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]


ODD: tuple[object, ...] = (
    None, True, 0, -1, 1, 7, 100, 2**31, 2**63 - 1, 2**63, 2**70, 0.5, 1e308, "", "\x1b[31m", "9" * 5000, "0-1", "a",
    "10%", "node-1", "1e9", "-1", "a" * 300, "2000-01-01T00:00:00Z", "kubernetes.io/hostname", "In", [], [[]], {},
    {"a": ""},
)  # fmt: skip


def mutated(value: Any, random: Random) -> Any:
    """A copy with one part of it replaced, left out or doubled."""
    if isinstance(value, dict) and value and random.random() < 0.9:
        key = random.choice(list(value))
        if random.random() < 0.1:
            return {name: inner for name, inner in value.items() if name != key}
        return {**value, key: mutated(value[key], random)}
    if isinstance(value, list) and value and random.random() < 0.9:
        index = random.randrange(len(value))
        if random.random() < 0.1:
            return [*value, *value]
        return [*value[:index], mutated(value[index], random), *value[index + 1 :]]
    alike = [odd for odd in ODD if type(odd) is type(value) and odd != value]
    return random.choice(alike if alike and random.random() < 0.9 else ODD)


def uses(path: Path) -> Iterator[object]:
    """Everything that a user may ask about a recording."""
    recording = Recording.load(path)
    yield list(steps_text(recording.steps))
    yield [step.to_dict() for step in recording.steps]
    for number in (0, len(recording.lines) // 2, len(recording.lines)):
        yield recording.cluster(number)
    yield [recording.pod(number) for number in range(len(recording.lines))]
    yield list(as_text(replay(recording), every=True))


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """The first lines of a recording, with all four verbs."""
    path = tmp_path_factory.mktemp("recording") / "r.gz"
    record_timeline(path, "names")
    lines = lines_of(path)
    verbs: dict[str, int] = {}
    for index, line in enumerate(lines):
        verbs.setdefault(line.get("verb", ""), index)
    assert verbs.keys() == {"", "filter", "prioritize", "preempt", "bind"}
    return lines[: max(verbs.values()) + 2]


@pytest.mark.parametrize("seed", range(60))
def test_a_mutated_recording_is_read_or_refused_in_one_line(seed: int, short: list[Any], tmp_path: Path) -> None:
    random = Random(seed)
    index = random.randrange(len(short))
    lines = [*short[:index], mutated(short[index], random), *short[index + 1 :]]
    path = tmp_path / "r"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    try:
        for use in uses(path):
            assert use is not None
    except ExtenderError as error:
        assert len(str(error).splitlines()) == 1, error


# ---- size


@pytest.mark.parametrize(
    ("line", "message"),
    [
        pytest.param(b'{"line":"dropped","at":1,"entries":2}\n', "more than", id="many short lines"),
        pytest.param(b" ", "bytes", id="one long line"),
        pytest.param(
            b'{"line":"attempt","at":1,"moment":1,"pod":{},"draws":[%b[1,1]]}\n' % (b"[1,1]," * 100_000),
            "more than",
            id="many small values",
        ),
    ],
)
def test_a_small_file_that_unpacks_to_much_is_refused_within_limits(line: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "bomb.gz"
    with gzip.open(path, "wb", compresslevel=9) as file:
        file.write(json.dumps(HEADER).encode() + b"\n")
        for _ in range(-(-700_000_000 // (len(line) * (piece := max(1, 1_000_000 // len(line)))))):
            file.write(line * piece)
    run = subprocess.run(
        [sys.executable, "-c", "from extender.cli.main import main; main()", "replay", str(path), "--steps"],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (1536 * 2**20, 1536 * 2**20)),
        timeout=120,
    )
    assert run.returncode == 2, run.stderr
    assert len(run.stderr.splitlines()) == 1
    assert message in run.stderr


def test_states_of_a_long_recording_take_no_more_than_its_lines(tmp_path: Path) -> None:
    """Copies of the state at fixed distances would take the square of its size."""
    nodes = [{**CHANGE, "key": f"n{i}", "moment": i, "object": make_node(f"n{i}").obj()} for i in range(9000)]
    recording = Recording.load(written(tmp_path / "r", *nodes))
    assert [len(recording.state(number)) for number in (0, 1999, 4500, 9000)] == [0, 1999, 4500, 9000]
    assert sum(len(state) for _, state in recording._states) <= len(recording.lines)


# ---- what a recording names is not run


def recorded_under(policy: str, path: Path) -> Path:
    header = {**HEADER, "settings": {"mode": "serve", "policy": policy}}
    return written(path, NODES, header=header)


def test_a_recordings_policy_imports_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "installed_module.py").write_text("raise SystemExit('imported')\n")
    monkeypatch.syspath_prepend(tmp_path)
    path = recorded_under(POLICY.replace("RULE", "installed_module:rule"), tmp_path / "r")
    with pytest.raises(
        ConfigurationError, match="installed_module:rule: a rule is imported only if --policy names the policy"
    ) as error:
        replay(path)
    assert str(error.value).startswith("the recording's policy: ")
    with pytest.raises(ConfigurationError, match="installed_module:rule: a rule is imported only"):
        Rules.of_recording(Recording.load(path).header.settings)
    assert "installed_module" not in sys.modules


def test_a_recordings_rules_are_those_that_the_given_policy_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    rule = "from extender import predicate\n\n@predicate\ndef rule(pod, node):\n    return True\n"
    (tmp_path / "beside_the_policy.py").write_text(rule)
    (tmp_path / "policy.yaml").write_text(POLICY.replace("RULE", "beside_the_policy:rule"))
    own = recorded_under(POLICY.replace("RULE", "beside_the_policy:rule"), tmp_path / "own")
    assert replay(own, tmp_path / "policy.yaml").changed == []
    other = recorded_under(POLICY.replace("RULE", "json:loads"), tmp_path / "other")
    with pytest.raises(ConfigurationError, match="json:loads: a rule is imported only"):
        replay(other, tmp_path / "policy.yaml")


@pytest.mark.parametrize("settings", [{"provider": "x"}, {"scoreScale": "x"}, {"mode": 7}, {"policy": 7}])
def test_a_header_with_wrong_settings_is_not_a_recording(settings: dict[str, Any], tmp_path: Path) -> None:
    path = written(tmp_path / "r", header={**HEADER, "settings": {"mode": "serve", **settings}})
    with pytest.raises(MalformedCluster, match="this is not a recording"):
        replay(path)


@pytest.mark.parametrize(
    "policy",
    [
        pytest.param("kind: ConfigMap\ndata: {}", id="an empty ConfigMap"),
        pytest.param("[" * 100_000, id="brackets"),
        pytest.param("kind: \x1b[31m", id="a kind that steers terminals"),
        pytest.param("kind: KubeSchedulerConfiguration\nprofiles: 7", id="profiles as a number"),
    ],
)
def test_a_policy_that_makes_no_sense_is_a_fault_of_the_recording(policy: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"^the recording.s policy: "):
        replay(recorded_under(policy, tmp_path / "r"))


def nested_config_maps(depth: int) -> str:
    text = "kind: nothing"
    for _ in range(depth):
        text = "kind: ConfigMap\ndata:\n p: |\n" + "".join(f"  {line}\n" for line in text.splitlines())
    return text


@pytest.mark.parametrize("depth", [2, 300])
def test_a_config_map_in_a_config_map_is_a_fault(depth: int, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"^the recording.s policy: "):
        replay(recorded_under(nested_config_maps(depth), tmp_path / "r"))


# ---- what a recording does not hold


APPLIED = {
    "kubectl.kubernetes.io/last-applied-configuration": '{"env": [{"name": "PASSWORD", "value": "secret"}]}',
    "kapp.k14s.io/original": "secret",
    "kopf.zalando.org/last-handled-configuration": "secret",
}


def test_manifests_that_tools_keep_in_annotations_are_not_recorded(tmp_path: Path) -> None:
    server = RecordedServer(tmp_path / "r")
    node = make_node("n1").annotation(APPLIED)
    pod = make_pod("p").uid("u").annotation({**APPLIED, "mine": "is read by a rule"})
    server.cache.changed("Node", msgspec.convert(node.obj(), Node))
    server.cache.changed("Pod", msgspec.convert(pod.node("n1").obj(), Pod))
    asked = make_pod("asked").uid("asked").annotation(APPLIED).obj()
    nodes = {"items": [make_node("n1").annotation(APPLIED).obj(), make_node("new").annotation(APPLIED).obj()]}
    server.ask("filter", {"Pod": asked, "Nodes": nodes})
    victims = {"n1": {"Pods": [pod.obj()], "NumPDBViolations": 0}}
    server.ask("preempt", {"Pod": asked, "NodeNameToVictims": victims})
    server.recorder.stop()
    text = (tmp_path / "r").read_text()
    assert "is read by a rule" in text
    assert "new" in text
    assert "secret" not in text


@pytest.mark.parametrize("nested", [False, True], ids=["a file", "a ConfigMap"])
def test_private_keys_of_a_policy_are_not_recorded(nested: bool) -> None:
    pair = {"certData": "Y2VydA==", "keyData": "c2VjcmV0"}
    policy = json.dumps({"kind": "KubeSchedulerConfiguration", "extenders": [{"tlsConfig": pair}]})
    text = json.dumps({"kind": "ConfigMap", "data": {"p": policy}}) if nested else policy
    recorded = without_keys(text)
    assert "c2VjcmV0" not in recorded
    assert "Y2VydA==" in recorded
    assert without_keys("profiles: [] # a comment stays") == "profiles: [] # a comment stays"


def test_a_redacted_recording_holds_no_names_and_the_same_cluster(tmp_path: Path) -> None:
    clock = ManualClock()
    recorder = Recorder(
        RotatingFiles(tmp_path / "r", 1 << 30), RecordedSettings(mode="record"), "0", clock, redaction=Redaction()
    )
    cache = Cache(clock, Telemetry(), changes=RecordedChanges(recorder))
    node = make_node("secret-node").label(team="secret-team")
    pod = make_pod("secret-pod").namespace("secret-space").uid("secret-uid").req(cpu="1").node("secret-node")
    gone = make_pod("secret-gone").uid("secret-gone").node("secret-node")
    cache.changed("Node", msgspec.convert(node.obj(), Node))
    for each in (pod, gone):
        cache.changed("Pod", msgspec.convert(each.obj(), Pod))
    cache.deleted("Pod", msgspec.convert(gone.obj(), Pod))
    recorder.settings_changed(policy="")
    recorder.stop()
    for path in sorted(tmp_path.iterdir()):
        assert "secret" not in path.read_text()
        recording = Recording.load(path)
        [found] = [obj for obj in recording.objects(len(recording.lines)) if isinstance(obj, Pod)]
        nodes = [obj for obj in recording.objects(len(recording.lines)) if isinstance(obj, Node)]
        assert [found.node_name] == [each.name for each in nodes]
        assert recording.cluster(len(recording.lines)).nodes == [found.node_name]


@pytest.mark.parametrize("claim_first", [False, True])
def test_a_claim_that_a_pod_names_by_two_parts_is_found_in_a_redacted_recording(
    tmp_path: Path, claim_first: bool
) -> None:
    recorder = Recorder(
        RotatingFiles(tmp_path / "r", 1 << 30),
        RecordedSettings(mode="record"),
        "0",
        ManualClock(),
        redaction=Redaction(),
    )
    cache = Cache(ManualClock(), Telemetry(), changes=RecordedChanges(recorder))
    template = {"volumeClaimTemplate": {"spec": make_pvc("any", storage_class="static")["spec"]}}
    pod = make_pod("web").volume("scratch", {"ephemeral": template}).obj()
    claim = make_pvc("web-scratch", storage_class="static", volume="v")
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "web", "uid": pod["metadata"]["uid"], "controller": True}
    claim["metadata"]["ownerReferences"] = [owner]
    volume = make_pv("v", storage_class="static", claim="default/web-scratch")
    objects = to_objects([make_node("n").obj(), volume, *([claim, pod] if claim_first else [pod, claim])])
    for obj in objects:
        cache.changed(type(obj).__name__, obj)
    recorder.stop()
    recording = Recording.load(tmp_path / "r")
    cluster = recording.cluster(len(recording.lines))
    assert cluster.explain_pending()[0].code is CauseCode.FITS


def test_a_line_too_long_to_be_read_is_left_out_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder_module, "MOST_LINE_BYTES", 3000)
    server = RecordedServer(tmp_path / "r")
    server.cache.changed("Node", msgspec.convert(make_node("n1").obj(), Node))
    for name in ("x" * 4000, "fine"):
        server.ask("filter", {"Pod": make_pod("p").uid("u").label(a=name).obj(), "NodeNames": ["n1"]})
    server.recorder.stop()
    steps = Recording.load(tmp_path / "r").steps
    assert [step.kind for step in steps] == ["change", "dropped", "call"]
    assert server.dropped == [("decision", 1)]


def test_a_file_ends_before_it_is_too_large_to_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though it is small on disk; the cluster at its head does not count, or each file would hold nothing else."""
    monkeypatch.setattr(recorder_module, "MOST_TEXT_BYTES", 2000)
    server = RecordedServer(tmp_path / "r.gz")
    for number in range(10):
        server.cache.changed("Node", msgspec.convert(make_node(f"n{number}").obj(), Node))
        server.recorder.write()
    server.recorder.stop()
    assert 1 < len(list(tmp_path.iterdir())) <= 4
    assert len(list(Recording.load(tmp_path / "r.gz").objects(10_000))) == 10

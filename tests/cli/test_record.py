"""`extender record` and `extender replay` from a terminal: what they print, and how they exit."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import pytest

from extender.offline.recording.reading import Recording
from tests.builders import make_node, make_pod
from tests.cli.commands import extender
from tests.cluster.fake_api import NODES, PODS, answer, fake_api

SHIPPED = Path(__file__).parents[1] / "recordings/served.jsonl.gz"


def test_a_clusters_watches_are_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXTENDER_WATCH_KINDS", "Node,Pod")
    path = tmp_path / "recording.jsonl.gz"
    with fake_api(make_node("n").obj()) as api:
        api.put(PODS, make_pod("p").node("n").obj())
        printed = extender("record", str(path), "--kubeconfig", str(api.kubeconfig(tmp_path)), "--seconds", "0.2")
    assert (printed.returncode, printed.stderr) == (0, "")
    assert printed.stdout == f"recorded to {path}; at the end there were 1 node and 1 pod\n"
    steps = [(step.kind, step.subject, step.text) for step in Recording.load(path).steps]
    assert sorted(steps) == [("change", "Node n", "was created or changed"), ("change", "default/p", "is on n")]
    printed = extender("replay", str(path))
    assert (printed.returncode, printed.stdout) == (0, "0 decisions repeated: none differs\n")


@pytest.mark.parametrize("name", ["r.jsonl.gz", "r.jsonl.gz.3"])
@pytest.mark.parametrize("command", ["record", "serve", "schedule"])
def test_a_file_other_than_a_recording_is_not_overwritten(command: str, name: str, tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl.gz"
    (tmp_path / name).write_bytes(gzip.compress(b"the only copy"))
    (tmp_path / "r.jsonl.gz.1").write_bytes(SHIPPED.read_bytes())
    arguments = ["record", str(path)] if command == "record" else [command, "--record", str(path)]
    with fake_api(make_node("n").obj()) as api:
        printed = extender(*arguments, "--kubeconfig", str(api.kubeconfig(tmp_path)))
    assert printed.returncode == 2
    want = "it is not a recording and would be overwritten later: move it away, or record to another file"
    assert printed.stderr == f"error: record: {tmp_path / name}: {want}\n"
    assert {each.name for each in tmp_path.glob("r.*")} == {name, "r.jsonl.gz.1"}
    assert gzip.decompress((tmp_path / name).read_bytes()) == b"the only copy"


def test_kinds_that_may_not_be_listed_are_left_out_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXTENDER_WATCH_KINDS", "Node,Pod,Namespace")
    path = tmp_path / "recording.jsonl.gz"
    with fake_api(make_node("n").obj()) as api:
        config = str(api.kubeconfig(tmp_path))
        api.fail("/api/v1/namespaces", answer(403, "no"))
        printed = extender("record", str(path), "--kubeconfig", config, "--seconds", "0.2")
        assert printed.returncode == 0
        assert printed.stderr == "note: namespaces cannot be listed (403: no): they are left out\n"
        assert printed.stdout == f"recorded to {path}; at the end there were 1 node and 0 pods\n"
        api.fail(NODES, answer(403, "no"))
        printed = extender("record", str(path), "--kubeconfig", config, "--seconds", "0.2")
    assert (printed.returncode, printed.stderr) == (1, "error: nodes cannot be listed (403: no)\n")


def test_the_exit_status_shows_that_decisions_differ(tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("apiVersion: v1\nkind: Policy\npredicates: [{name: HostName}]\npriorities: []\n")
    assert extender("replay", str(SHIPPED)).returncode == 0
    printed = extender("replay", str(SHIPPED), "--policy", str(policy), "-o", "json")
    assert printed.returncode == 3
    changed = json.loads(printed.stdout)["changed"]
    assert all(each["differences"][0]["recorded"] != each["differences"][0]["replayed"] for each in changed)
    assert any("PodTopologySpread" in str(one["cause"]) for each in changed for one in each["differences"])


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        pytest.param(["replay", "none.gz"], "error: none.gz: No such file or directory", id="no file"),
        pytest.param(["replay", "text"], "error: text: this is not a recording", id="no recording"),
        pytest.param(["replay", "served.gz", "--policy", "text"], "error: text: ", id="no policy"),
        pytest.param(["upgrade-check", "cut.gz", "--to", "1.38"], "error: cut.gz: the file is cut off", id="cut off"),
        pytest.param(["record", "r", "--kubeconfig", "none"], "error: kubeconfig: no such file", id="no cluster"),
        pytest.param(["record", "no/r", "--kubeconfig", "text"], "error: record: no such directory", id="no folder"),
    ],
)  # fmt: skip
def test_wrong_input_is_one_line_and_status_2(
    arguments: list[str], error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[2])
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text").write_text("nothing\n")
    (tmp_path / "cut.gz").write_bytes(b"\x1f\x8b")
    shutil.copy(SHIPPED, tmp_path / "served.gz")
    printed = extender(*arguments)
    assert printed.returncode == 2
    assert printed.stderr.startswith(error)
    assert len(printed.stderr.splitlines()) == 1


def test_an_error_line_steers_no_terminal(tmp_path: Path) -> None:
    header = {"line": "header", "at": 1, "version": 1, "extender": "0", "settings": {"mode": "record"}}
    change = {"line": "object", "at": 1, "moment": 1, "kind": "\x1b]0;owned\x07\n", "key": "a", "object": {}}
    path = tmp_path / "r"
    path.write_text(f"{json.dumps(header)}\n{json.dumps(change)}\n")
    ended = extender("replay", str(path))
    assert ended.returncode == 2
    assert ended.stderr == "error: step 0: unknown kind \\x1b]0;owned\\x07\\n\n"


def test_a_redacted_recording_holds_no_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXTENDER_WATCH_KINDS", "Node,Pod")
    path = tmp_path / "recording.jsonl"
    with fake_api(make_node("secret-node").obj()) as api:
        api.put(PODS, make_pod("secret-pod").node("secret-node").label(app="secret-app").obj())
        config = str(api.kubeconfig(tmp_path))
        ended = extender("record", str(path), "--redact", "--kubeconfig", config, "--seconds", "0.2")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "secret" not in path.read_text()
    assert [step.kind for step in Recording.load(path).steps] == ["change", "change"]

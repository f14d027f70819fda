"""`extender view` as a process, and pages written to a file by `-o html`."""

from __future__ import annotations

import http.client
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from extender.cli.processes import EXAMPLE, PENDING
from tests.cli.test_main import extender


def test_view_prints_its_address_and_ends_quietly() -> None:
    command = [sys.executable, "-c", "from extender.cli.main import main; main()", "view", "--port", "0"]
    with subprocess.Popen(
        [*command, "--cluster", str(EXAMPLE)],
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # a shell's job ignores it
    ) as process:
        assert process.stdout is not None
        found = re.search(r"http://127\.0\.0\.1:(\d+)/ui", process.stdout.readline())
        assert found
        connection = http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=30)
        connection.request("GET", "/ui/pending")
        answer = connection.getresponse()
        assert (answer.status, PENDING.encode() in answer.read()) == (200, True)
        connection.close()
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        pytest.param(("--cluster", "nowhere.yaml"), "nowhere.yaml", id="no such file"),
        pytest.param(("--recording", str(EXAMPLE)), "this is not a recording", id="no recording"),
        pytest.param(("--recording", "r", "--cluster", "c"), "give either --recording FILE or a cluster", id="both"),
        pytest.param(("--cluster", str(EXAMPLE), "--with", "nowhere.yaml"), "policy nowhere.yaml", id="no such policy"),
    ],
)
def test_wrong_input_is_one_line(arguments: tuple[str, ...], told: str) -> None:
    done = extender("view", *arguments)
    assert (done.returncode, told in done.stderr, len(done.stderr.splitlines())) == (2, True, 1)


@pytest.mark.parametrize(
    ("arguments", "status", "told"),
    [
        pytest.param(("explain",), 0, "6</a> pending pods", id="all pending pods"),
        pytest.param(("explain", PENDING), 3, "does not fit", id="a pod"),
        pytest.param(("explain", PENDING, "--no-changes"), 3, "does not fit", id="without changes"),
        pytest.param(("simulate", "--drain", "general-a2"), 3, "<h1>Simulation</h1>", id="a simulation"),
        pytest.param(("capacity", "-f", "pod.yaml"), 0, "more pods would fit", id="a capacity"),
        pytest.param(("compare", "--policy", "next.yaml"), 0, "defaults and next.yaml", id="a comparison"),
    ],
)
def test_each_answer_is_written_as_one_file(
    arguments: tuple[str, ...], status: int, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pod.yaml").write_text(
        "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: c, image: i}]}}"
    )
    (tmp_path / "next.yaml").write_text(
        "{apiVersion: kubescheduler.config.k8s.io/v1, kind: KubeSchedulerConfiguration, "
        "profiles: [{schedulerName: default-scheduler}]}"
    )
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    monkeypatch.chdir(tmp_path)
    done = extender(*arguments, "--cluster", str(EXAMPLE), "-o", "html")
    assert (done.returncode, done.stderr) == (status, "")
    assert done.stdout.startswith("<!doctype html>")
    assert told in done.stdout
    assert not re.search(r"""(src|href)=["'](?!#|data:)""", done.stdout)

"""`extender view` as a process, and pages written to a file by `-o html`."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest

from extender.cli.process_commands import EXAMPLE, PENDING
from tests.builders import make_node, make_pod
from tests.cli.commands import extender
from tests.cluster.fake_api import PODS, fake_api
from tests.running import command_running

pytestmark = pytest.mark.processes


@contextmanager
def viewing(*source: str | Path) -> Iterator[Callable[[str], str]]:
    """Runs `extender view`; yields a function that gets a page. At the end, Ctrl-C must end it quietly."""
    command = [sys.executable, "-c", "from extender.cli.main import main; main()", "view", "--port", "0"]
    with command_running([*command, *source], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        found = re.search(r"http://127\.0\.0\.1:(\d+)/ui", process.stdout.readline())
        assert found
        address = f"http://127.0.0.1:{found[1]}"
        yield lambda path: urlopen(address + path, timeout=60).read().decode()
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0


def test_view_prints_its_address_and_ends_quietly() -> None:
    with viewing("--cluster", EXAMPLE) as page:
        assert PENDING in page("/")


def test_view_shows_a_live_cluster(tmp_path: Path) -> None:
    with fake_api(make_node("n").obj()) as api:
        api.put(PODS, make_pod("waiting").obj())
        with viewing("--kubeconfig", api.kubeconfig(tmp_path)) as page:
            assert "default/waiting" in page("/")
            assert "live cluster, 20" in page("/ui/nodes")


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        pytest.param(("--cluster", "nowhere.yaml"), "nowhere.yaml", id="no such file"),
        pytest.param(("--recording", str(EXAMPLE)), "this is not a recording", id="no recording"),
        pytest.param(("--recording", "r", "--cluster", "c"), "give either --recording FILE or a cluster", id="both"),
        pytest.param(("--cluster", str(EXAMPLE), "--with", "nowhere.yaml"), "policy nowhere.yaml", id="no such policy"),
    ],
)
def test_wrong_input_is_one_line(arguments: tuple[str, ...], printed: str) -> None:
    done = extender("view", *arguments)
    assert (done.returncode, printed in done.stderr, len(done.stderr.splitlines())) == (2, True, 1)


@pytest.mark.parametrize(
    ("arguments", "status", "printed"),
    [
        pytest.param(("explain",), 0, "6</a> pending pods", id="all pending pods"),
        pytest.param(("explain", PENDING), 3, "does not fit", id="a pod"),
        pytest.param(("explain", PENDING, "--no-changes"), 3, "does not fit", id="without changes"),
        pytest.param(("simulate", "--drain", "general-a2"), 0, "<h1>Simulation</h1>", id="a simulation"),
        pytest.param(("capacity", "-f", "pod.yaml"), 0, "more pods would fit", id="a capacity"),
        pytest.param(("compare", "--policy", "next.yaml"), 0, "defaults and next.yaml", id="a comparison"),
    ],
)
def test_each_answer_is_written_as_one_file(
    arguments: tuple[str, ...], status: int, printed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pod.yaml").write_text(
        "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: c, image: i}]}}"
    )
    (tmp_path / "next.yaml").write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "profiles: [{schedulerName: default-scheduler}]\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    monkeypatch.chdir(tmp_path)
    done = extender(*arguments, "--cluster", str(EXAMPLE), "-o", "html")
    assert (done.returncode, done.stderr) == (status, "")
    assert done.stdout.startswith("<!doctype html>")
    assert printed in done.stdout
    assert not re.search(r"""(src|href)=["'](?!#|data:)""", done.stdout)

"""The pages about questions: their commands print what is shown on the example cluster, and their Python runs."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest

from tests.cli.commands import extender

ROOT = Path(__file__).parents[1]
PAGES = ("why-pending", "what-if", "plan", "compare", "page", "record-and-replay", "scripting")
APP = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: extra, namespace: shop}
spec:
  selector: {matchLabels: {app: extra}}
  template:
    metadata: {labels: {app: extra}}
    spec:
      containers: [{name: c, image: extra, resources: {requests: {cpu: 500m, memory: 1Gi}}}]
"""
POLICY = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
  pluginConfig:
  - name: NodeResourcesFit
    args: {scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 1}]}}
"""


def blocks(page: str, language: str) -> list[str]:
    text = (ROOT / f"docs/{page}.md").read_text()
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


COMMANDS = [
    (command, shown)
    for page in PAGES
    for block in blocks(page, "console")
    for command, shown in re.findall(r"^\$ extender (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE)
]


INDEX = """
apiVersion: v1
kind: Pod
metadata: {name: index, namespace: shop}
spec:
  nodeSelector: {node.kubernetes.io/instance-type: general-8}
  containers: [{name: c, image: index, resources: {requests: {cpu: 7500m, memory: 8Gi}}}]
"""


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copy(ROOT / "extender/offline/example.yaml", tmp_path / "cluster.yaml")
    shutil.copy(ROOT / "tests/recordings/served.jsonl.gz", tmp_path / "recording.jsonl.gz")
    (tmp_path / "app.yaml").write_text(APP)
    (tmp_path / "index.yaml").write_text(INDEX)
    (tmp_path / "next.yaml").write_text(POLICY)
    (tmp_path / "key").write_text("a secret of 16 bytes or more")
    (tmp_path / "answer.txt").write_text("an answer")
    monkeypatch.syspath_prepend(ROOT)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("directory")
@pytest.mark.parametrize(("command", "shown"), COMMANDS, ids=[command for command, _ in COMMANDS])
def test_a_command_prints_what_is_shown(command: str, shown: str) -> None:
    if command.startswith("plan "):
        pytest.importorskip("highspy", reason="without the solver of `extender plan` it says so instead")
    recorded = extender(*shlex.split(command))
    assert recorded.returncode in (0, 3), recorded.stderr
    printed = [" ".join(line.split()) for line in recorded.stdout.splitlines()]
    lines = [" ".join(line.split()) for line in shown.splitlines() if line not in ("", "...")]
    assert [line for line in lines if line not in printed] == []


@pytest.mark.usefixtures("directory")
@pytest.mark.parametrize("page", ["why-pending", "what-if", "plan", "record-and-replay", "scripting"])
def test_the_python_runs(page: str) -> None:
    (source,) = blocks(page, "python")
    exec(compile(source, page, "exec"), {"__name__": "__main__"})

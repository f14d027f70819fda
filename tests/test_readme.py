"""The README is true: its commands are run, its rules are loaded, its endpoints are all there are."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from extender.app.serve import build
from extender.cli.source_options import DOES_NOT_FIT
from extender.cli.status import FIELDS, table
from extender.config.settings import Settings
from extender.policy.library import Library
from extender.policy.loading import load
from extender.snapshots.files import load as load_cluster
from tests.builders import make_node, make_pod
from tests.cli.commands import extender
from tests.distribution.release import newest_release
from tests.framework.cluster import pod_info, table_of
from tests.plugins.users import examples
from tests.running import EXTENDER
from tests.stock.process import Process, free_port

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
PAGE = (ROOT / "docs/page.md").read_text()
EXAMPLE = ROOT / "extender/offline/example.yaml"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[tuple[str, list[str]]]:
    """Starts what `make run` starts, on a port of its own: its address, and the commands that it says to try."""
    address = f"127.0.0.1:{free_port()}"
    process = Process("demo", [EXTENDER, "demo", "--bind", address], tmp_path / "log")
    try:
        process.wait_until(lambda: "Booting worker" in process.log.read_text())
        subprocess.run(["curl", "-s", "--retry", "20", "--retry-connrefused", f"{address}/readyz"], check=True)
        yield address, [line.strip() for line in process.log.read_text().splitlines() if line.startswith("  ")]
    finally:
        process.stop()


def shell(command: str) -> subprocess.CompletedProcess[str]:
    command = re.sub(r"^(\.venv/bin/)?extender ", f"{EXTENDER} ", command)
    return subprocess.run(command, shell=True, cwd=ROOT, capture_output=True, text=True, check=False)


def test_make_run_starts_the_demo_and_installs_nothing_for_tests() -> None:
    recorded = subprocess.run(
        ["make", "-C", ROOT, "-n", "-W", "setup.cfg", "run"], capture_output=True, text=True, check=True
    )
    assert "extender demo" in recorded.stdout
    assert "--editable .\n" in recorded.stdout
    assert "[test]" not in recorded.stdout


def test_each_command_of_the_demo_works(demo: tuple[str, list[str]]) -> None:
    filtered, bound, explained = (shell(command) for command in demo[1])
    node = json.loads(extender("demo", "bind").stdout)["Node"]
    assert node in json.loads(filtered.stdout)["NodeNames"]
    assert json.loads(bound.stdout) == {"Error": ""}
    assert (explained.returncode, explained.stderr) == (DOES_NOT_FIT, "")


def test_the_call_gets_the_answer_that_is_shown(demo: tuple[str, list[str]]) -> None:
    command, shown = re.findall(r"^\$ (.*\| curl .*)\n((?:.*\n)*?)\n", README, re.MULTILINE)[0]
    answer = json.loads(shell(command.replace("127.0.0.1:8888", demo[0])).stdout)
    names = re.search(r'"NodeNames":(\[.*?\])', shown)
    assert names is not None
    assert answer["NodeNames"] == json.loads(names[1])
    refusals = re.findall(r'"([\w-]+)":"(node\(s\)[^"]*)"', shown)
    assert len(refusals) > 2
    for node, reason in refusals:
        assert {**answer["FailedNodes"], **answer["FailedAndUnresolvableNodes"]}[node] == reason


def test_the_image_has_the_tag_that_the_manifests_ask_for() -> None:
    built = re.search(r"make image IMAGE=registry.example.com/(\S+)", README)
    assert built is not None
    assert built[1] == f"podseat:{newest_release()}"
    kustomizations = [path for path in ROOT.glob("manifests/*/kustomization.yaml") if "images:" in path.read_text()]
    assert kustomizations
    for path in kustomizations:
        images = {image["name"]: image["newTag"] for image in yaml.safe_load(path.read_text())["images"]}
        assert f"podseat:{images['podseat']}" == built[1], path
    chart = yaml.safe_load((ROOT / "charts/podseat/Chart.yaml").read_text())
    assert f"podseat:{chart['appVersion']}" == built[1]


def test_explain_prints_what_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = re.search(r"^\$ \.venv/bin/(extender explain .*)\n((?:.*\n)*?)```", README, re.MULTILINE)
    assert shown is not None
    monkeypatch.chdir(ROOT)
    printed = extender(*shown[1].split()[1:]).stdout.splitlines()
    assert [line for line in shown[2].splitlines() if line not in (*printed, "...")] == []


def test_the_targets_named_are_there() -> None:
    targets = re.findall(r"^\$ make (\w+)", README, re.MULTILINE)
    assert len(targets) > 1
    for target in targets:
        assert subprocess.run(["make", "-C", ROOT, "-n", target], capture_output=True, check=False).returncode == 0


def test_the_rules_shown_are_those_that_are_tested(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "rules", sys)  # so that the module is gone after the test
    del sys.modules["rules"]
    source = "\n".join(block for block in blocks("python") if "Cluster.load" not in block)
    (tmp_path / "rules.py").write_text(source)
    policy = next(block for block in blocks("yaml") if "rules:" in block)
    (profile,) = load(policy, Library()).profiles
    assert profile.predicates[-1].name == "rules:keep_namespace"
    assert (profile.priorities[-1].priority.name, profile.priorities[-1].weight) == ("rules:warm_cache", 5)
    tested = Path(examples.__file__).read_text()
    for rule in re.findall(r"^(@\w+\ndef .*?)(?=^@|\Z)", source, re.MULTILINE | re.DOTALL):
        assert rule.strip() in tested
        assert len(rule.strip().splitlines()) < 10
    payments = pod_info(make_pod("p", "payments").obj())
    table = table_of(make_node("kept").label(team="payments").obj(), make_node("other").obj())
    check = profile.predicates[-1].prepare(payments, table)
    assert check is not None
    assert check.refuse(table.nodes.rows)[0][0].tolist() == [False, True]  # type: ignore[union-attr]  # no refusal outright


def test_the_library_example_runs() -> None:
    example = next(block for block in blocks("python") if "Cluster.load" in block)
    exec(example.replace("cluster.yaml", str(EXAMPLE)), {})


def test_every_page_of_the_site_is_documented() -> None:
    pages = {rule.rule for rule in build(Settings(cluster=EXAMPLE)).url_map.iter_rules() if "/ui/" in rule.rule}
    assert len(pages) > 5
    for path in pages:  # a file, a page, or the same as JSON
        assert path.endswith(("/", ".css", ".js")) or f"`{path.removesuffix('.json')}" in PAGE, path


def test_the_status_shown_is_what_it_prints() -> None:
    shown = re.search(r"^\$ extender status.*\n((?:.*\n)*?)```", README, re.MULTILINE)
    assert shown is not None
    header, *rows = shown[1].splitlines()
    empty = dict.fromkeys(("namespace", "name", "tier", "attempts", "sinceSeconds", "node", "nominatedNode"), "")
    pods = [
        {**empty, "namespace": "shop", "name": "db-0", "tier": "unschedulable", "attempts": 12, "sinceSeconds": 7500.0,
         "refusedBy": ["NodeResourcesFit", "TaintToleration"], "nominatedNode": "general-c3"},
        {**empty, "namespace": "shop", "name": "web-7", "tier": "unschedulable", "attempts": 1, "sinceSeconds": 59.9,
         "refusedBy": ["NodeAffinity"]},
    ]  # fmt: skip
    assert table(pods, FIELDS).splitlines() == [header, *rows]


def test_the_example_has_the_size_that_the_readme_says() -> None:
    assert sum(type(obj).__name__ == "Node" for obj in load_cluster(EXAMPLE)) == 20

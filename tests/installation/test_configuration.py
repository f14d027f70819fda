"""Chart, manifests, pages and commands give kube-scheduler the same configuration, and the doctor has no objection."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from extender.app.cluster_checks import Finding, Level
from extender.app.doctor import check_entry, check_sampling
from extender.cli.main import cli
from extender.cli.process_commands import SCHEDULER_CONFIGURATION
from extender.policy.loading import load_scheduler_configuration
from tests.manifests.rendering import MANIFESTS, NAMES, ROOT

Configuration = dict[str, Any]
OF_THE_PLACE = ("urlPrefix", "enableHTTPS", "tlsConfig", "httpTimeout", "ignorable", "weight")
"""Fields of the entry that depend on where the extender runs and on how its rules count."""
PAGES = ("README.md", "docs/rules.md")


def run(*arguments: str) -> str:
    ended = CliRunner().invoke(cli, arguments, catch_exceptions=False)
    assert ended.exit_code == 0, ended.output
    return ended.output


def on_pages() -> Iterator[tuple[str, Configuration]]:
    for page in PAGES:
        for block in re.findall(r"```yaml\n(.*?)```", (ROOT / page).read_text(), re.DOTALL):
            document = yaml.safe_load(block)
            if isinstance(document, dict) and "extenders" in document:
                yield page, document


def configurations(folder: Path) -> dict[str, Configuration]:
    """Returns source -> configuration, of every source."""
    run("rule", "new", "team_nodes", "--folder", str(folder))
    found = {
        "demo": yaml.safe_load(run("demo", "scheduler", "--bind", "127.0.0.1:8890")),
        "rule new": yaml.safe_load((folder / "kube-scheduler.yaml").read_text()),
        **dict(on_pages()),
    }
    for shape in ("beside", "service"):
        documents = list(yaml.safe_load_all((MANIFESTS / shape / "all.yaml").read_text()))
        (data,) = (
            each["data"]
            for each in documents
            if (each["kind"], each["metadata"]["name"]) == ("ConfigMap", f"{NAMES[shape]}-kube-scheduler")
        )
        found[f"manifests/{shape}"] = yaml.safe_load(data["kube-scheduler.yaml"])
    return found


def comparable(configuration: Configuration) -> Configuration:
    (entry,) = configuration["extenders"]
    return {
        "percentageOfNodesToScore": configuration.get("percentageOfNodesToScore"),
        "entry": {key: value for key, value in entry.items() if key not in OF_THE_PLACE},
    }


def objections(configuration: Configuration) -> list[Finding]:
    """Returns what the doctor has to say against it."""
    policy = load_scheduler_configuration(yaml.safe_dump(configuration).encode())
    (entry,) = policy.extenders
    return [each for each in (*check_entry(entry, None), *check_sampling(policy)) if each.level != Level.OK]


def test_all_of_them_are_the_same(tmp_path: Path) -> None:
    """The manifests are the chart's (tests/manifests/test_chart.py)."""
    found = configurations(tmp_path)
    assert set(found) == {"demo", "rule new", *PAGES, "manifests/beside", "manifests/service"}
    expected = comparable(yaml.safe_load(SCHEDULER_CONFIGURATION))
    assert {source: comparable(each) for source, each in found.items()} == dict.fromkeys(found, expected)


def test_the_doctor_warns_of_none(tmp_path: Path) -> None:
    for source, configuration in configurations(tmp_path).items():
        assert [each.message for each in objections(configuration)] == [], source


@pytest.mark.parametrize("key", ["percentageOfNodesToScore", "nodeCacheCapable", "preemptVerb", "bindVerb"])
def test_the_doctor_misses_each_part(key: str) -> None:
    configuration = yaml.safe_load(SCHEDULER_CONFIGURATION)
    configuration.pop(key, None)
    configuration["extenders"][0].pop(key, None)
    assert [each.level for each in objections(configuration)] == [Level.WARN]

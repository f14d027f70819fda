"""The forge's workflows: what they run are targets that exist here, and what they use is pinned."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from release.krew import manifest
from release.notes import notes
from tests.distribution.release import ROOT, newest_release
from tests.stock.build import Binaries

WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def steps(workflow: Path) -> Iterator[dict[str, Any]]:
    for job in yaml.safe_load(workflow.read_text())["jobs"].values():
        yield from job["steps"]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_every_command_is_a_target_of_the_makefile(workflow: Path) -> None:
    commands = [step["run"] for step in steps(workflow) if "run" in step]
    assert commands
    assert [command for command in commands if command.split()[0] != "make" or command.split()[1] not in TARGETS] == []


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_every_action_is_pinned_to_a_full_version(workflow: Path) -> None:
    actions = [step["uses"] for step in steps(workflow) if "uses" in step]
    assert actions
    assert [
        action for action in actions if not re.fullmatch(r"[\w-]+/[\w-]+@(v\d+\.\d+\.\d+|[0-9a-f]{40})", action)
    ] == []


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_may_only_read_unless_a_job_asks_for_more(workflow: Path) -> None:
    assert yaml.safe_load(workflow.read_text())["permissions"] == {"contents": "read"}


def test_all_supported_versions_of_python_are_tested() -> None:
    (job,) = [yaml.safe_load(path.read_text())["jobs"]["test"] for path in WORKFLOWS if path.stem == "test"]
    classifiers = re.findall(r"Python :: (3\.\d+)$", (ROOT / "setup.cfg").read_text(), re.MULTILINE)
    assert job["strategy"]["matrix"]["python"] == classifiers


@pytest.mark.stock
@pytest.mark.actionlint
def test_actionlint_finds_nothing(stock_binaries: Binaries) -> None:
    ended = subprocess.run(
        [stock_binaries["actionlint"], *WORKFLOWS], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ended.stdout + ended.stderr == ""


@pytest.mark.parametrize("path", sorted((ROOT / ".github").rglob("*.yml")), ids=lambda path: path.name)
def test_every_file_of_the_forge_is_a_mapping(path: Path) -> None:
    assert isinstance(yaml.safe_load(path.read_text()), dict)


def test_the_notes_of_a_release_are_its_part_of_the_changelog() -> None:
    text = notes((ROOT / "CHANGELOG.md").read_text(), newest_release())
    assert text.startswith("### ")
    assert "## [" not in text
    with pytest.raises(ValueError, match=r"expected 9\.9\.9 as the newest release"):
        notes((ROOT / "CHANGELOG.md").read_text(), "9.9.9")


def test_the_krew_manifest_names_each_archive_with_its_digest(tmp_path: Path) -> None:
    archives = [tmp_path / f"podseat-{platform}.tar.gz" for platform in ("darwin-arm64", "linux-amd64")]
    for archive in archives:
        archive.write_bytes(b"")
    plugin = yaml.safe_load(manifest("https://forge.example/podseat", "0.2.0", archives))
    assert plugin["spec"]["version"] == "v0.2.0"
    assert plugin["spec"]["platforms"] == [
        {
            "selector": {"matchLabels": {"os": os, "arch": arch}},
            "uri": f"https://forge.example/podseat/releases/download/v0.2.0/podseat-{os}-{arch}.tar.gz",
            "sha256": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
            "bin": "kubectl-podseat",
        }
        for os, arch in (("darwin", "arm64"), ("linux", "amd64"))
    ]

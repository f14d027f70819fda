"""Every configuration in the docs goes through doctor, `--policy` and `compare`."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from extender.cli.main import cli

ROOT = Path(__file__).parents[2]
PAGES = [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md", ROOT / "charts/podseat/README.md"]
KINDS = ("KubeSchedulerConfiguration", "Policy")
RULES = "from extender import predicate\n\n@predicate\ndef keep_namespace(pod, node):\n    return None\n"
FOR_OFFLINE_COMMANDS = ("tutorial-policy.md", "tutorial-rule.md")
"""Pages whose policies keep the in-tree plugins, because only offline commands use them."""
NEEDS_THE_PLUGIN_OF_THE_PAGE = "adding-a-plugin.md"  # tests/docs/test_adding_a_plugin.py builds it


def configurations() -> Iterator[tuple[str, str, bool]]:
    """Yields the name, the text and whether it is for kube-scheduler, of each configuration in the docs."""
    for page in PAGES:
        blocks = re.findall(r"^( *)```ya?ml\n(.*?)^ *```", page.read_text(), re.MULTILINE | re.DOTALL)
        for number, (indent, block) in enumerate(blocks, 1):
            text = re.sub(f"^{indent}", "", block, flags=re.MULTILINE)
            documents = [each for each in yaml.safe_load_all(text) if isinstance(each, dict)]
            configures = any(document.get("kind") in KINDS for document in documents)
            if configures and page.name != NEEDS_THE_PLUGIN_OF_THE_PAGE:
                yield f"{page.name} {number}", text, any("extenders" in document for document in documents)


CONFIGURATIONS = list(configurations())
SCHEDULERS = [pytest.param(text, id=name) for name, text, has_extenders in CONFIGURATIONS if has_extenders]
POLICIES = [pytest.param(name.split()[0], text, id=name) for name, text, _ in CONFIGURATIONS]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KUBECONFIG", "/nonexistent")
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setitem(sys.modules, "rules", sys)  # so that the module of one page does not stay for the next
    monkeypatch.delitem(sys.modules, "rules")
    shutil.copy(ROOT / "extender/offline/example.yaml", tmp_path / "cluster.yaml")
    return tmp_path


def run(*arguments: str) -> Any:
    return CliRunner().invoke(cli, arguments, catch_exceptions=False)


def findings(*arguments: str) -> list[dict[str, str]]:
    found: list[dict[str, str]] = json.loads(run("doctor", *arguments, "-o", "json").stdout)["findings"]
    return found


def write_rules(folder: Path, page: str) -> None:
    """Writes the module `rules` that the page shows, or one that accepts every pod."""
    path = ROOT / page if (ROOT / page).exists() else ROOT / "docs" / page
    blocks = re.findall(r"```python\n(.*?)```", path.read_text(), re.DOTALL)
    modules = [block for block in blocks if "from extender import" in block and re.search("^@", block, re.MULTILINE)]
    (folder / "rules.py").write_text("\n\n".join(modules) or RULES)


def test_there_are_configurations_of_both_kinds() -> None:
    assert len(SCHEDULERS) >= 2
    assert len(POLICIES) >= 5


@pytest.mark.parametrize("text", SCHEDULERS)
def test_doctor_finds_no_fault_but_the_missing_extender(text: str, folder: Path) -> None:
    (folder / "scheduler.yaml").write_text(text)
    (folder / "rules.py").write_text(RULES)
    (folder / "policy.yaml").write_text({name: text for name, text, _ in CONFIGURATIONS}["webhook-cost.md 2"])
    found = findings("--scheduler-config", str(folder / "scheduler.yaml"), "--policy", str(folder / "policy.yaml"))
    assert {(each["level"], each["check"]) for each in found if each["level"] != "ok"} == {("fail", "reachable")}
    assert "ignorable" in {each["check"] for each in found}


@pytest.mark.parametrize(("page", "text"), POLICIES)
def test_a_policy_is_loaded_and_compared(page: str, text: str, folder: Path) -> None:
    (folder / "policy.yaml").write_text(text)
    write_rules(folder, page)
    policy = ["--policy", str(folder / "policy.yaml")]
    mode = "schedule" if page in FOR_OFFLINE_COMMANDS else "serve"
    found = findings(*policy, "--mode", mode)
    assert [(each["level"], each["check"]) for each in found] == [("ok", "policy")]
    for command in (["explain"], ["simulate"], ["compare"]):
        answer = run(*command, "--cluster", str(folder / "cluster.yaml"), *policy)
        assert answer.exit_code in (0, 3), answer.output

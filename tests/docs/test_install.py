"""Commands that pages about installing, certificates, upgrades and the chart's README give, as far as it can be run."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from extender.cli.main import cli
from extender.config.settings import OPTIONS
from extender.policy.library import Library
from extender.policy.loading import load
from tests.manifests.rendering import CHART, MANIFESTS, ROOT, objects, the
from tests.stock.build import Binaries

PAGES = ("install", "certificates", "second-scheduler", "high-availability", "upgrade", "monitoring")
DOCUMENTS = [*(ROOT / f"docs/{page}.md" for page in PAGES), CHART / "README.md", ROOT / "README.md"]
TEXT = "\n".join(document.read_text() for document in DOCUMENTS)
COMMANDS = sorted(set(re.findall(r"^ *\$ (.+?)(?:  +#.*)?$", TEXT, re.MULTILINE)))


def blocks(document: Path) -> list[Any]:
    return [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", document.read_text(), re.DOTALL)]


@pytest.mark.stock
@pytest.mark.clients
@pytest.mark.parametrize("command", [each for each in COMMANDS if re.match("helm (install|upgrade)", each)])
def test_helm_takes_the_values(stock_binaries: Binaries, command: str) -> None:
    words = shlex.split(command)
    assert words[2:4] == ["extender", str(CHART.relative_to(ROOT))]
    given = [words[index + 1] for index, word in enumerate(words) if word == "--set"]
    values: dict[str, Any] = {}
    for path, _, value in (pair.partition("=") for each in given for pair in each.split(",")):
        *parents, key = path.split(".")
        here = values
        for parent in parents:
            here = here.setdefault(parent, {})
        here[key] = yaml.safe_load(value)
    assert the(objects(stock_binaries, values), "Deployment")


@pytest.mark.parametrize("command", [each.partition("|")[0] for each in COMMANDS if each.startswith("extender certs")])
def test_certs_takes_the_flags(tmp_path: Path, command: str) -> None:
    words = [str(tmp_path) if word == "pki" else word for word in shlex.split(command)[1:]]
    assert CliRunner().invoke(cli, words, catch_exceptions=False).exit_code == 0


def test_the_table_shown_is_what_certs_prints(tmp_path: Path) -> None:
    shown = re.search(r"\$ extender certs pki\n(FILE(?:.*\n)*?)\$", TEXT)
    assert shown is not None
    printed = CliRunner().invoke(cli, ["certs", str(tmp_path)], catch_exceptions=False).output
    assert _undated(printed) == _undated(shown[1])


def _undated(text: str) -> str:
    return re.sub(r"\d{4}-\d\d-\d\d", "DATE", re.sub(r"T\d\d:\d\d:\d\d", "", text))


def test_the_folders_that_are_applied_are_there() -> None:
    paths = re.findall(r"(?:-k|-f) (manifests/\S+?)[\s`,]", TEXT)
    assert paths
    assert [path for path in paths if not (ROOT / path).exists()] == []
    assert (MANIFESTS / "namespace.yaml").exists()


def test_each_shape_fits_on_two_screens() -> None:
    sections = re.split(r"^## ", (ROOT / "docs/install.md").read_text(), flags=re.MULTILINE)
    shapes = [each for each in sections if each.startswith(("Beside:", "Scheduler:", "Service:"))]
    assert len(shapes) == 3
    assert [each.splitlines()[0] for each in shapes if each.count("\n") > 2 * 50] == []


def test_flags_that_are_named_exist() -> None:
    flags = set(re.findall(r"`(--(?:metrics|client|leader)-[\w-]+)", TEXT))
    assert flags
    assert flags <= {option.flag for option in OPTIONS.values()}


@pytest.mark.stock
@pytest.mark.clients
def test_the_rule_in_the_charts_readme_decides(
    stock_binaries: Binaries, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files are mounted beside each other, as the ConfigMap holds them."""
    monkeypatch.setattr(sys, "path", [*sys.path])  # so that other tests do not import this module `rules`
    monkeypatch.setitem(sys.modules, "rules", sys)
    monkeypatch.delitem(sys.modules, "rules")
    (values,) = blocks(CHART / "README.md")
    data = the(objects(stock_binaries, values), "ConfigMap", "extender-policy")["data"]
    for name, text in data.items():
        (tmp_path / name).write_text(text)
    assert (
        load((tmp_path / "policy.yaml").read_text(), Library(folder=str(tmp_path))).profiles[0].name
        == "extender-scheduler"
    )


@pytest.mark.stock
@pytest.mark.clients
def test_the_values_in_the_documents_are_taken(stock_binaries: Binaries) -> None:
    values = next(block for block in blocks(ROOT / "docs/certificates.md") if "metrics" in block)
    assert the(objects(stock_binaries, {"shape": "service", **values}), "ServiceMonitor")

"""The documents hold together: each page stands in mkdocs.yml, each link and anchor leads somewhere, and what they name
of the program (commands, flags, settings, metrics, log lines) is there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from extender.cli.main import cli
from extender.cli.reference import TOPICS
from extender.config.settings import OPTIONS

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("docs/*.md")), ROOT / "README.md"]
PROSE = {path: re.sub(r"^ *```.*?^ *```$", "", path.read_text(), flags=re.MULTILINE | re.DOTALL) for path in PAGES}
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)


class _Loader(yaml.SafeLoader):
    """Reads mkdocs.yml, whose tags name functions of packages that tests do without."""


_Loader.add_multi_constructor("tag:yaml.org,2002:python/name:", lambda _loader, suffix, _node: suffix)


def listed(nav: Any) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    return [page for part in (nav.values() if isinstance(nav, dict) else nav) for page in listed(part)]


def anchors(page: Path) -> set[str]:
    """The anchors of the page's headings, as Python-Markdown and GitHub make them."""
    headings = re.findall(r"^#+ (.+)$", PROSE[page], re.MULTILINE)
    return {re.sub(r"[^\w\s-]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


def test_every_page_stands_in_the_navigation_once() -> None:
    nav = yaml.load((ROOT / "mkdocs.yml").read_text(), _Loader)["nav"]
    assert sorted(listed(nav)) == [page.name for page in PAGES if page.parent == ROOT / "docs"]


@each_page
def test_every_link_and_anchor_leads_somewhere(page: Path) -> None:
    links = [link for link in re.findall(r"\]\(([^)\s]+)\)", PROSE[page]) if "://" not in link]
    lost = []
    for link in links:
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in (anchors(target) if target in PROSE else ())):
            lost.append(link)
    assert lost == []


COMMANDS = sorted(
    {
        (page.name, command.partition(" | ")[0])
        for page in PAGES
        for command in re.findall(
            r"(?:^ *\$ (?:\.venv/bin/)?|`)(extender [a-z][^`\n#>]*)", page.read_text(), re.MULTILINE
        )
    }
)


def test_commands_and_flags_that_are_named_exist() -> None:
    """Also those that no test runs, for they ask a live cluster."""
    assert len(COMMANDS) > 100
    assert [(page, command, unknown) for page, command in COMMANDS if (unknown := unknown_in(command))] == []


def unknown_in(command: str) -> list[str]:
    """Returns the words of a command that name no command and no flag."""
    _, name, *words = command.replace("...", "").rstrip(",;:.").split()
    if name not in cli.commands:
        return [name]
    named = cli.commands[name]
    if isinstance(named, click.Group):
        if (default := getattr(named, "default", "")) and not set(words[:1]) & named.commands.keys():
            words.insert(0, default)
        if words[0] not in named.commands:
            return words[:1]
        named = named.commands[words[0]]
    known = {"--help", *(flag for each in named.params for flag in (*each.opts, *each.secondary_opts))}
    given = [word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)]
    return [flag for flag in given if flag not in known]


def flags(command: click.Command) -> set[str]:
    nested = command.commands.values() if isinstance(command, click.Group) else ()
    own = {flag for each in command.params for flag in (*each.opts, *each.secondary_opts)}
    return own.union(*map(flags, nested))


OTHERS = {"--set", "--wait", "--reset-then-reuse-values", "--server-side", "--pods"}  # helm's, kubectl's, examples'
OTHERS |= {"--dry-run", "--ignore-daemonsets", "--delete-emptydir-data", "--force"}  # kubectl's, too
OTHERS |= {"--help", "--runtime-config", "--kube-scheduler-arg"}  # everybody's, kube-apiserver's, k3s'
OTHERS |= {"--no-hooks", "--values", "--kube-version"}  # helm's, too
OTHERS |= {"--workers", "--threads", "--preload", "--keep-alive", "--http-parser"}  # gunicorn's
OTHERS |= {"--gil", "--native", "--nonblocking"}  # py-spy's
OTHERS |= {"--part", "--nodes", "--workload", "--repeat", "--nice"}  # of make bench, bench-cluster and bench-webhook


@pytest.mark.parametrize(
    "path",
    [*PAGES, ROOT / "extender/app/doctor.py", ROOT / "extender/app/cluster_checks.py"],
    ids=lambda path: path.name,
)
def test_flags_that_are_named_exist(path: Path) -> None:
    """In pages, and in what doctor says is to be done."""
    text = path.read_text() if path.suffix == ".py" else " ".join(re.findall("`[^`]*`", PROSE[path]))
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]*[a-z]", text)) <= flags(cli) | OTHERS


@each_page
def test_metrics_that_are_named_are_served(page: Path) -> None:
    known = {row["METRIC"] for row in TOPICS["metrics"]()}
    assert set(re.findall(r"`((?:extender|scheduler)_[a-z_]+)[`{]", PROSE[page])) <= known


TROUBLESHOOTING = (ROOT / "docs/troubleshooting.md").read_text()
LOGGED = re.findall(r"^\| log \| `(.+?)` \|", TROUBLESHOOTING, re.MULTILINE)


def test_each_log_line_that_is_named_is_written_so() -> None:
    """By the text of the package: whatever a line is made of is in one of its strings."""
    sources = "\n".join(path.read_text() for path in ROOT.glob("extender/**/*.py"))
    parts = [part for line in LOGGED for part in line.split("...") if part.strip(" :")]
    assert LOGGED
    assert [part for part in parts if part.strip() not in sources] == []


@each_page
def test_settings_that_are_named_exist(page: Path) -> None:
    """A setting is named as `leaseDurationSeconds` is: by a key that ends in its unit."""
    keys = {option.key for option in OPTIONS.values()} | {row["ARGUMENT"] for row in TOPICS["plugins"]()}
    keys |= {row["FIELD"] for row in TOPICS["policy"]()}
    keys.add("scheduleTimeoutSeconds")  # of coscheduling's PodGroup
    assert set(re.findall(r"`([a-z][A-Za-z]+Seconds)`", PROSE[page])) <= keys

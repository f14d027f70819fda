"""Every command has the same output option, and the same form of yes-or-no options."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import click
import pytest
import yaml
from click.testing import CliRunner, Result

from extender.cli import output
from extender.cli.main import cli
from extender.cli.output import in_order, path_of, selector_of, template_of
from tests.builders import make_node, make_pod

ROOT = Path(__file__).parents[2]
EXAMPLE = str(ROOT / "extender/offline/example.yaml")
FORMATS = ["table", "wide", "name", "json", "yaml", "jsonpath=TEMPLATE"]


def commands(group: click.Group) -> Iterator[click.Command]:
    for command in group.commands.values():
        if isinstance(command, click.Group):
            yield from commands(command)
        else:
            yield command


OPTIONS = [
    (command, option) for command in commands(cli) for option in command.params if isinstance(option, click.Option)
]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments)


def test_an_option_has_the_form_that_all_commands_share() -> None:
    for command, option in OPTIONS:
        if option.is_flag and option.name not in ("help", "version"):
            negative = [f"--no-{each.removeprefix('--')}" for each in option.opts if each.startswith("--")]
            assert negative == option.secondary_opts, (command.name, option.name)
        if option.name == "output" and command.name != "snapshot":  # which writes a file
            assert str(option.metavar).split("|")[: len(FORMATS)] == FORMATS, command.name


def test_every_format_shows_the_pending_pods(tmp_path: Path) -> None:
    objects = [make_node("n").capacity(cpu="1").obj(), make_pod("web-0").label(app="web").req(cpu="2").obj()]
    (tmp_path / "c.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    listed = ("explain", "--cluster", str(tmp_path / "c.json"), "-o")
    assert "web-0" in run(*listed, "table").stdout
    assert "web-0" in run(*listed, "wide").stdout
    assert run(*listed, "name").stdout == "default/web-0\n"
    assert json.loads(run(*listed, "json").stdout) == yaml.safe_load(run(*listed, "yaml").stdout)
    assert run(*listed, "jsonpath={.pending[*].code}").stdout == "InsufficientResource"


def test_an_unknown_format_and_a_faulty_template_are_wrong_usage() -> None:
    forms = ("jsn", "jsonpath={.a", "jsonpath=")
    unknown, faulty, empty = (run("explain", "--cluster", EXAMPLE, "-o", form) for form in forms)
    assert [each.exit_code for each in (unknown, faulty, empty)] == [2, 2, 2]
    assert "'jsn' is not one of table, wide, name, json, yaml, jsonpath=TEMPLATE, html" in unknown.stderr
    assert "the brace is not closed" in faulty.stderr
    assert "jsonpath= needs a template, such as jsonpath={.name}" in empty.stderr


@pytest.mark.parametrize(
    ("text", "labels", "matches"),
    [
        ("app=web", {"app": "web"}, True),
        ("app==web,tier!=db", {"app": "web"}, True),
        ("app=web,tier!=db", {"app": "web", "tier": "db"}, False),
        ("zone in (a, b)", {"zone": "b"}, True),
        ("zone notin (a,b),app", {"zone": "c", "app": ""}, True),
        ("!app", {"app": "web"}, False),
        ("app=", {"app": ""}, True),
    ],
)
def test_a_selector_is_read_as_kubectl_reads_it(text: str, labels: dict[str, str], matches: bool) -> None:
    assert selector_of(text).matches(labels) is matches


@pytest.mark.parametrize("text", ["", "app=web,", "=web", "app in web", "app in ()x", "a b"])
def test_a_faulty_selector_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected KEY=VALUE"):
        selector_of(text)


def test_the_list_of_pending_pods_is_selected_and_sorted(tmp_path: Path) -> None:
    pods = [
        make_pod(name).label(app=name[0]).req(cpu=cpu).obj() for name, cpu in (("b1", "8"), ("a1", "1"), ("b2", "1"))
    ]
    objects = [make_node("n").capacity(cpu="4").obj(), *pods]
    (tmp_path / "c.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    listed = ("explain", "--cluster", str(tmp_path / "c.json"), "-o", "name")
    assert run(*listed, "--sort-by", ".name").stdout.split() == ["default/a1", "default/b1", "default/b2"]
    assert run(*listed, "-l", "app=b", "--sort-by", "{.available}").stdout.split() == ["default/b1", "default/b2"]
    assert run(*listed, "-l", "app in").exit_code == 2
    assert run("explain", "a1", *listed[1:], "-l", "app=a").exit_code != 0


def test_items_are_sorted_by_number_or_text_and_those_without_a_value_come_last() -> None:
    items: list[dict[str, object]] = [{"n": "x"}, {}, {"n": 10}, {"n": 9}, {"n": None}]
    assert in_order(items, path_of(".n")) == [{"n": 9}, {"n": 10}, {"n": "x"}, {}, {"n": None}]


@pytest.mark.parametrize("is_terminal", [True, False])
def test_control_characters_of_names_do_not_reach_a_terminal(
    is_terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    printed: list[str] = []
    monkeypatch.setattr(output, "answer_stream", lambda: SimpleNamespace(isatty=lambda: is_terminal))
    monkeypatch.setattr(click, "echo", lambda text, **_: printed.append(text))
    document = {"kind": "Explanation", "pod": "shop/\x1b[31mred"}
    output.show(document, output.Output(output.Format.NAME))
    output.show(document, output.Output(output.Format.JSONPATH, template_of("{.pod}{'\\n'}")))
    assert printed == ["shop/\\x1b[31mred", "shop/\\x1b[31mred\n" if is_terminal else "shop/\x1b[31mred\n"]

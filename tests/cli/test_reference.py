"""Whatever a user can set or read stands in the reference, with what it means."""

from __future__ import annotations

import json
import re
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from extender.cli.main import cli
from extender.cli.reference import TOPICS
from extender.config.settings import OPTIONS
from extender.plugins.registry import REGISTRY
from extender.policy import classic
from extender.policy.classic import PolicySpec
from extender.policy.configuration import ConfigurationSpec
from extender.policy.extenders import ExtenderSpec, LegacyExtenderSpec
from extender.web.series import SCHEDULER_SERIES, SERIES


def rows(topic: str) -> list[dict[str, str]]:
    printed = CliRunner().invoke(cli, ["reference", topic, "-o", "json"], catch_exceptions=False)
    assert printed.exit_code == 0
    return list(json.loads(printed.output)["rows"])


def test_settings() -> None:
    listed = rows("settings")
    assert [row["FLAG"] for row in listed] == [option.flag for option in OPTIONS.values()]
    assert all(row["MEANING"] for row in listed)


def test_plugins_and_their_arguments() -> None:
    listed = rows("plugins")
    assert {row["PLUGIN"] for row in listed} == REGISTRY.keys()
    for name, plugin in REGISTRY.items():
        arguments = {row["ARGUMENT"] for row in listed if row["PLUGIN"] == name} - {""}
        fields = plugin.arguments.model_fields.items()
        assert arguments == {field.alias for key, field in fields if key not in ("api_version", "kind")}
    assert all(row["MEANING"] for row in listed if row["ARGUMENT"])


def test_fields_of_policies() -> None:
    listed = rows("policy")
    assert all(row["MEANING"] for row in listed)
    fields = {
        form: {row["FIELD"] for row in listed if row["FORM"] == form}
        for form in ("KubeSchedulerConfiguration", "Policy")
    }
    assert fields["KubeSchedulerConfiguration"] >= {field.alias for field in ConfigurationSpec.model_fields.values()}
    assert fields["Policy"] >= {field.alias for field in PolicySpec.model_fields.values()}
    for form, spec in (("KubeSchedulerConfiguration", ExtenderSpec), ("Policy", LegacyExtenderSpec)):
        assert fields[form] >= {f"extenders[].{field.alias}" for field in spec.model_fields.values()}
    assert "profiles[].plugins.POINT.enabled[].weight" in fields["KubeSchedulerConfiguration"]
    assert "predicates[].argument.serviceAffinity.labels" in fields["Policy"]


def test_all_names_of_the_classic_policy_are_listed() -> None:
    names = {row["NAME"] for row in rows("policy-names")}
    assert names >= classic.PREDICATES.keys() | classic.priorities(1).keys()


def test_metrics() -> None:
    listed = rows("metrics")
    assert [row["METRIC"] for row in listed] == [*SERIES, *SCHEDULER_SERIES]
    assert all(row["MEANING"] for row in listed)


@pytest.mark.parametrize("topic", sorted(TOPICS))
def test_tables_line_up(topic: str) -> None:
    printed = CliRunner().invoke(cli, ["reference", topic])
    header, *lines = printed.output.splitlines()
    assert header.split()
    assert len(lines) == len(rows(topic))


@pytest.mark.parametrize("command", sorted(cli.commands))
def test_every_option_says_what_it_is_for(command: str) -> None:
    printed = CliRunner().invoke(cli, [command, "--help"]).output
    for parameter in cli.commands[command].params:
        if isinstance(parameter, click.Option) and not parameter.hidden:
            choice = isinstance(parameter.type, click.Choice)
            assert parameter.opts[0] in printed
            assert parameter.help or choice, parameter.opts[0]


def test_the_readme_names_every_command_and_topic() -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    for command in cli.commands.keys() - {"version"}:
        assert f"extender {command}" in readme, command
    for topic in TOPICS:
        assert re.search(rf"\b{topic}\b", readme), topic

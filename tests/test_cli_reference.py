"""Whatever a user can set or read stands in the reference, with what it means."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from extender.cli import cli
from extender.engine.policy import classic_names
from extender.engine.registry import IN_TREE
from extender.settings import OPTIONS
from extender.web.metrics import SERIES
from extender.web.scheduler_metrics import SCHEDULER_SERIES


def rows(topic: str) -> list[dict[str, str]]:
    told = CliRunner().invoke(cli, ["reference", topic, "-o", "json"], catch_exceptions=False)
    assert told.exit_code == 0
    return list(json.loads(told.output))


def test_settings() -> None:
    listed = rows("settings")
    assert [row["FLAG"] for row in listed] == [option.flag for option in OPTIONS.values()]
    assert all(row["MEANING"] for row in listed)


def test_plugins_and_their_arguments() -> None:
    listed = rows("plugins")
    assert {row["PLUGIN"] for row in listed} == IN_TREE.keys()
    for name, plugin in IN_TREE.items():
        arguments = {row["ARGUMENT"] for row in listed if row["PLUGIN"] == name} - {""}
        fields = plugin.arguments.model_fields.items()
        assert arguments == {field.alias for key, field in fields if key not in ("api_version", "kind")}


def test_policy_names() -> None:
    names = {row["NAME"] for row in rows("policy-names")}
    assert names >= classic_names.PREDICATES.keys() | classic_names.priorities(1).keys()


def test_metrics() -> None:
    listed = rows("metrics")
    assert [row["METRIC"] for row in listed] == [*SERIES, *SCHEDULER_SERIES]
    assert all(row["MEANING"] for row in listed)


@pytest.mark.parametrize("topic", ["settings", "plugins", "policy-names", "metrics"])
def test_tables_line_up(topic: str) -> None:
    told = CliRunner().invoke(cli, ["reference", topic])
    header, *lines = told.output.splitlines()
    assert header.split()
    assert len(lines) == len(rows(topic))

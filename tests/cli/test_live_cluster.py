"""The options for a live cluster, which are kubectl's."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from extender.cli.main import cli
from tests.builders import make_node, make_pod
from tests.cluster.fake_api import PODS, fake_api

READING = ("serve", "schedule", "doctor", "explain", "simulate", "capacity", "compare", "snapshot", "view", "record")


@pytest.mark.parametrize("command", READING)
def test_every_command_that_reads_a_cluster_has_them(command: str) -> None:
    flags = {flag for parameter in cli.commands[command].params for flag in parameter.opts}
    assert {"--kubeconfig", "--context", "--as", "--as-group"} <= flags


def test_the_files_of_the_environment_are_merged(tmp_path: Path) -> None:
    first = tmp_path / "first"
    first.write_text(json.dumps({"kind": "Config", "apiVersion": "v1", "current-context": "fake"}))
    with fake_api(make_node("n").obj()) as api:
        files = os.pathsep.join(map(str, (first, api.kubeconfig(tmp_path))))
        printed = CliRunner().invoke(cli, ["snapshot", "-o", str(tmp_path / "s.json")], env={"KUBECONFIG": files})
    assert (printed.exit_code, printed.output) == (0, "")
    assert [each["metadata"]["name"] for each in json.loads((tmp_path / "s.json").read_text())["items"]] == ["n"]


@pytest.mark.parametrize("option", ["--context=c", "--as=jo", "--as-group=g"])
def test_they_are_refused_for_a_file(option: str, tmp_path: Path) -> None:
    printed = CliRunner().invoke(cli, ["simulate", "--cluster", str(tmp_path), option])
    assert str(printed.exception) == "--context, --as and --as-group are about a live cluster, not about --cluster"


def test_a_group_is_looked_up_in_the_namespace_of_the_context(tmp_path: Path) -> None:
    with fake_api(make_node("n").obj()) as api:
        config = json.loads(api.kubeconfig(tmp_path).read_text())
        config["contexts"][0]["context"]["namespace"] = "ml"
        (tmp_path / "kubeconfig").write_text(json.dumps(config))
        printed = CliRunner().invoke(cli, ["explain", "podgroup/train", "--kubeconfig", str(tmp_path / "kubeconfig")])
    assert "no PodGroup ml/train" in str(printed.exception)


@pytest.mark.parametrize("may_list", [True, False])
def test_the_page_of_a_pod_shows_its_condition_and_its_events(tmp_path: Path, may_list: bool) -> None:
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/1 nodes: by a rule",
    }
    pod = {**make_pod("p").obj(), "status": {"conditions": [condition]}}
    failed = {"reason": "FailedScheduling", "type": "Warning", "message": "by <a rule>", "metadata": {"name": "e"}}
    with fake_api(make_node("n").obj()) as api:
        api.put(PODS, pod)
        if may_list:
            api.collections["/api/v1/namespaces/default/events"] = {"e": {**failed, "reportingComponent": "stock"}}
        kubeconfig = str(api.kubeconfig(tmp_path))
        printed = CliRunner().invoke(cli, ["explain", "default/p", "-o", "html", "--kubeconfig", kubeconfig])
    assert "Condition PodScheduled by default-scheduler: Unschedulable: 0/1 nodes: by a rule" in printed.stdout
    assert ("<td>stock</td><td>by &lt;a rule&gt;</td>" in printed.stdout) is may_list


def test_a_context_needs_a_kubeconfig() -> None:
    printed = CliRunner().invoke(cli, ["serve", "--context", "c"])
    assert str(printed.exception) == "context: requires kubeconfig, which has the contexts"

"""`extender mcp`, asked over stdio by the SDK's own client.

The SDK is imported in the tests, because that takes a second, and pytest imports this file in each of its workers.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest
import yaml
from click.testing import CliRunner

from extender.cli.main import cli
from tests.builders import make_pod
from tests.cli.test_schemas import check

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "extender/offline/example.yaml"
GROUPS = ROOT / "examples/pod-groups.yaml"
POD = yaml.safe_dump(make_pod("new").req(cpu="1").obj())
POLICY = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
EVIL = f"{POLICY}profiles: [{{plugins: {{score: {{enabled: [{{name: 'os:getcwd'}}]}}}}}}]\n"

Calls = Mapping[str, tuple[str, Mapping[str, Any]]]


def answers(cluster: Path, calls: Calls, *flags: str) -> dict[str, tuple[bool, Any]]:
    """Starts the command, and returns for each call: True if it failed, and its document or message."""
    from mcp import Client, StdioServerParameters
    from mcp.client.stdio import stdio_client

    program = str(Path(sys.executable).parent / "extender")
    arguments = ["mcp", "--cluster", str(cluster), *flags]
    server = StdioServerParameters(command=program, args=arguments, env={**os.environ, "KUBECONFIG": "/nonexistent"})
    answered: dict[str, tuple[bool, Any]] = {}

    async def ask() -> None:
        async with Client(stdio_client(server)) as client:
            listed = await client.list_tools()
            assert all(tool.annotations and tool.annotations.read_only_hint for tool in listed.tools)
            answered["tools"] = False, [tool.name for tool in listed.tools]
            for name, (tool, given) in calls.items():
                result = await client.call_tool(tool, dict(given))
                text = "".join(getattr(part, "text", "") for part in result.content)
                answered[name] = bool(result.is_error), text if result.is_error else result.structured_content

    anyio.run(ask)
    return answered


def test_an_assistant_gets_the_documents_that_the_commands_print(tmp_path: Path) -> None:
    from extender.cli.mcp_server import Tools

    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY)
    calls: Calls = {
        "PendingPods": ("pending_pods", {}),
        "Explanation": ("explain_pod", {"pod": "ml/recommend-7f6d-v4nzs"}),
        "NodeUsage": ("nodes", {}),
        "Simulation": ("simulate", {"drain": ["general-a1"], "manifest": POD, "replicas": 2}),
        "Capacity": ("capacity", {"manifest": POD}),
        "Plan": ("plan", {"empty": ["general-a1"]}),
        "Comparison": ("compare", {"policy": POLICY}),
        "Diagnosis": ("doctor", {}),
    }
    answered = answers(EXAMPLE, calls, "--policy", str(policy))
    assert answered.pop("tools")[1] == [tool.__name__ for tool in Tools.all(Tools.__new__(Tools))]
    for kind, (failed, document) in answered.items():
        assert not failed, document
        assert document["kind"] == kind
        check(document)
    printed = CliRunner().invoke(cli, ["explain", "ml/recommend-7f6d-v4nzs", "--cluster", str(EXAMPLE), "-o", "json"])
    assert answered["Explanation"][1] == json.loads(printed.stdout)
    assert len(answered["Simulation"][1]["placements"]) == 10


@pytest.mark.slow
def test_an_assistant_asks_about_a_group_and_a_pod_to_come() -> None:
    calls: Calls = {
        "group": ("explain_group", {"group": "ml/train"}),
        "new": ("explain_manifest", {"manifest": POD}),
    }
    answered = answers(GROUPS, calls)
    assert answered["group"][1]["kind"] == "GroupExplanation"
    assert answered["new"][1]["pod"] == "default/new"


@pytest.mark.slow
def test_a_faulty_call_gets_the_reason_and_no_code_of_the_assistant_runs() -> None:
    calls: Calls = {
        "unknown pod": ("explain_pod", {"pod": "ml/recommend"}),
        "no manifest": ("explain_manifest", {"manifest": "kind: Nothing"}),
        "faulty policy": ("compare", {"policy": "kind: Polic"}),
        "a policy that imports": ("compare", {"policy": EVIL}),
        "both": ("capacity", {}),
        "scale": ("simulate", {"scale": ["web"]}),
        "kind": ("explain_group", {"group": "ml/train", "kind": "podgroup"}),
        "nodes": ("simulate", {"add_nodes": ["general-a1=x"]}),
        "a digit that is none": ("simulate", {"add_nodes": ["general-a1=²"]}),
        "many digits": ("simulate", {"add_nodes": ["general-a1=" + "9" * 5000]}),
        "many nodes": ("simulate", {"add_nodes": ["general-a1=2147483647"]}),
        "doctor": ("doctor", {}),
        "still there": ("pending_pods", {"namespace": "ml"}),
    }
    answered = answers(EXAMPLE, calls)
    failed = {name: text for name, (is_error, text) in answered.items() if is_error}
    assert set(answered) - set(failed) == {"tools", "still there"}
    assert (
        "did you mean ml/recommend-7f6d-v4nzs, ml/recommend-7f6d-c5tqw or ml/recommend-7f6d-r9xjk?)"
        in failed["unknown pod"]
    )
    assert "did you mean Policy?" in failed["faulty policy"]
    assert "os:getcwd" in failed["a policy that imports"]
    assert "nothing to check" in failed["doctor"]
    assert "general-a1=²: expected NODE=N" in failed["a digit that is none"]
    assert "expected NODE=N" in failed["many digits"]
    assert "expected a number from 0 to 10000" in failed["many nodes"]
    assert "'PodGroup' or 'CompositePodGroup'" in failed["kind"]


def test_long_lists_are_cut_and_their_length_is_said() -> None:
    from extender.cli.mcp_server import MOST_ENTRIES, brief

    document = brief({"kind": "X", "nodes": {str(i): [i] for i in range(100)}, "deep": [{"list": [*range(50)]}]})
    assert (len(document["nodes"]), len(document["deep"][0]["list"])) == (MOST_ENTRIES, MOST_ENTRIES)
    assert document["truncated"] == {"nodes": 100, "deep[0].list": 50}
    assert brief({"short": [1]}) == {"short": [1]}


def test_without_the_package_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("extender.cli.mcp.find_spec", lambda _: None)
    refused = CliRunner().invoke(cli, ["mcp", "--cluster", str(EXAMPLE)])
    assert "pip install 'podseat[mcp]'" in str(refused.exception)

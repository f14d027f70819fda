"""Every document that a command prints has an apiVersion and a kind, and is as the schema of its kind says."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from click.testing import CliRunner

from extender.cli.document_kinds import API_VERSION, DocumentKind, names_in
from extender.cli.main import cli
from extender.cli.schemas import CHECKS, SHAPES, schema
from extender.offline.answers import CauseCode, code_of
from extender.plugins.registry import IN_TREE
from extender.web.answers import Answer
from extender.web.app import PageServer, PrivatePages
from tests.builders import make_node, make_pod
from tests.cli.test_status import PICTURE

ROOT = Path(__file__).parents[2]
GOLDEN = Path(__file__).parent / "golden"
EXAMPLE = str(ROOT / "extender/offline/example.yaml")
GROUPS = str(ROOT / "examples/pod-groups.yaml")
TRACE = ROOT / "examples/experiment"
RECORDING = str(ROOT / "tests/recordings/served.jsonl.gz")
POLICY = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
RULES = "from extender import predicate\n\n@predicate\ndef any_node(pod, node):\n    return True\n"
PENDING = "ml/recommend-7f6d-v4nzs"
DECISIONS = {"pods": [{"pod": "shop/web", "at": 1.0, "what": "filter", "outcome": "ok"}]}
COMMANDS = {
    DocumentKind.EXPLANATION: ["explain", PENDING, "--cluster", EXAMPLE, "--node", "general-a1"],
    DocumentKind.GROUP_EXPLANATION: ["explain", "podgroup/train", "-n", "ml", "--cluster", GROUPS],
    DocumentKind.EXPLANATION_LIST: ["explain", "-f", "{folder}/pods.yaml", "--cluster", EXAMPLE],
    DocumentKind.PENDING_PODS: ["explain", "--cluster", EXAMPLE],
    DocumentKind.DECISIONS: ["explain", "--from", "{server}"],
    DocumentKind.SIMULATION: ["simulate", "--cluster", EXAMPLE, "--drain", "general-a1"],
    DocumentKind.CAPACITY: ["capacity", "--cluster", EXAMPLE, "-f", "{folder}/pods.yaml"],
    DocumentKind.PLAN: ["plan", "-f", "{folder}/big.yaml", "--cluster", EXAMPLE],
    DocumentKind.COMPARISON: ["compare", "--cluster", EXAMPLE, "--policy", "{folder}/policy.yaml"],
    DocumentKind.REPLAY: ["replay", RECORDING],
    DocumentKind.REPLAY_LIST: ["replay", RECORDING, RECORDING, "--steps"],
    DocumentKind.RULE_TRIALS: ["rule", "test", "{folder}/rules_of_schemas.py", "--cluster", EXAMPLE],
    DocumentKind.DIAGNOSIS: ["doctor", "--policy", "{folder}/policy.yaml"],
    DocumentKind.QUEUE: ["status", "--server", "{server}"],
    DocumentKind.CASE_ERROR: ["explain", "--batch"],
    DocumentKind.CERTIFICATES: ["certs", "{folder}/pki"],
    DocumentKind.REFERENCE: ["reference", "endpoints"],
    DocumentKind.EXPERIMENT: ["experiment", "{folder}/experiment.yaml", "--workers", "1"],
}


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """A folder with files, and a server that answers as a scheduler."""
    monkeypatch.setenv("KUBECONFIG", "/nonexistent")
    monkeypatch.setattr(sys, "path", [*sys.path])  # so that the rules here hide no others
    pods = [make_pod(name).req(cpu="1").obj() for name in ("one", "two")]
    (tmp_path / "pods.yaml").write_text(yaml.safe_dump_all(pods))
    big = make_pod("big").req(cpu="7500m").node_selector({"node.kubernetes.io/instance-type": "general-8"})
    (tmp_path / "big.yaml").write_text(yaml.safe_dump(big.obj()))
    (tmp_path / "policy.yaml").write_text(POLICY)
    trace = f"{{nodes: {TRACE}/nodes.csv, pods: {TRACE}/pods.csv}}"
    experiment = f"trace: {trace}\npolicies: [FirstFit]\nseeds: {{first: 1, last: 1}}\n"
    (tmp_path / "experiment.yaml").write_text(experiment)
    (tmp_path / "rules_of_schemas.py").write_text(RULES)
    pages = {
        "/debug/pods": Answer(200, msgspec.json.encode(PICTURE)),
        "/debug/decisions": Answer(200, json.dumps(DECISIONS).encode()),
    }
    served = PrivatePages({path: lambda *_, page=page: page for path, page in pages.items()})
    server = PageServer("127.0.0.1", 0, served)
    server.start()
    yield {"folder": str(tmp_path), "server": f"http://127.0.0.1:{server.port}"}
    server.stop()


def output_of(kind: DocumentKind, places: dict[str, str]) -> Any:
    arguments = [argument.format(**places) for argument in COMMANDS[kind]]
    arguments += [] if "--batch" in arguments else ["-o", "json"]
    return json.loads(CliRunner().invoke(cli, arguments, input="{}\n", catch_exceptions=False).stdout)


def check(document: dict[str, Any]) -> None:
    """Checks a document against the schema of its kind: each key and type, and that no key of the schema is missing."""
    msgspec.convert(document, SHAPES[document["kind"]])
    printed = schema(document["kind"])
    _check_keys(document, printed, printed["$defs"])


def _check_keys(value: Any, part: dict[str, Any], parts: dict[str, Any]) -> None:
    """Follows `value` through the schema. msgspec lets keys with a default be absent, but the schema says what may."""
    if "$ref" in part:
        part = parts[part["$ref"].rpartition("/")[2]]
    if isinstance(value, list):
        for each in value:
            _check_keys(each, part.get("items", {}), parts)
    elif isinstance(value, dict):
        assert value.keys() >= set(part.get("required", ()))
        for key, each in value.items():
            _check_keys(each, part.get("properties", {}).get(key, part.get("additionalProperties", {})), parts)
    if value is not None:
        for choice in part.get("anyOf", ()):
            if choice.get("type") != "null":
                _check_keys(value, choice, parts)


@pytest.mark.parametrize("kind", list(COMMANDS))
def test_an_output_is_as_its_schema_says_and_has_names(kind: DocumentKind, places: dict[str, str]) -> None:
    document = output_of(kind, places)
    assert (document["apiVersion"], document["kind"]) == (API_VERSION, str(kind))
    check(document)
    for key in schema(kind)["required"]:
        with pytest.raises((AssertionError, KeyError, msgspec.ValidationError)):
            check({name: value for name, value in document.items() if name != key})
    names = names_in(document)
    assert names or kind in (DocumentKind.REPLAY, DocumentKind.COMPARISON)
    assert all(isinstance(name, str) and name for name in names)


def golden_documents() -> Iterator[Any]:
    for path in sorted(GOLDEN.glob("*.txt")):
        blocks = re.findall(r"^\{\n.*?^\}$", path.read_text(), re.MULTILINE | re.DOTALL)
        blocks += re.findall(r'^\{"apiVersion".*\}$', path.read_text(), re.MULTILINE)
        yield from (pytest.param(json.loads(block), id=f"{path.stem} {i}") for i, block in enumerate(blocks))


@pytest.mark.parametrize("document", list(golden_documents()))
def test_a_kept_output_is_as_its_schema_says(document: dict[str, Any]) -> None:
    check(document)


def test_every_kind_has_a_schema_with_its_name() -> None:
    assert set(DocumentKind) - COMMANDS.keys() == {DocumentKind.NODE_USAGE}  # tests/cli/test_mcp.py has it
    assert SHAPES.keys() == {str(kind) for kind in DocumentKind}
    for kind in SHAPES:
        assert schema(kind)["properties"]["kind"]["const"] == kind
        assert schema(kind)["properties"]["apiVersion"]["const"] == API_VERSION


def test_reference_prints_a_schema() -> None:
    printed = CliRunner().invoke(cli, ["reference", "schema", "Capacity"])
    assert json.loads(printed.stdout) == schema("Capacity")
    assert CliRunner().invoke(cli, ["reference", "schema"]).exit_code != 0
    assert CliRunner().invoke(cli, ["reference", "log", "Capacity"]).exit_code != 0


def test_every_check_of_doctor_is_a_heading_of_its_page() -> None:
    page = (ROOT / "docs/doctor.md").read_text()
    assert set(CHECKS) == set(re.findall("^## (.*)$", page, re.MULTILINE))


def test_every_plugin_that_refuses_nodes_has_a_code_of_its_own() -> None:
    refusing = [plugin.name for plugin in IN_TREE.values() if plugin.predicate is not None]
    assert [name for name in refusing if code_of(name, "any") is CauseCode.OTHER_PLUGIN] == []
    assert code_of("rules:mine", "any") is CauseCode.OTHER_PLUGIN
    assert code_of("NodeResourcesFit", "Too many pods") is CauseCode.TOO_MANY_PODS


def test_the_code_of_a_cause_stands_beside_its_text(tmp_path: Path) -> None:
    items = [
        make_node("n").capacity(cpu="1").obj(),
        make_pod("large").req(cpu="2").obj(),
        make_pod("small").obj(),
        make_pod("gated").spec(schedulingGates=[{"name": "g"}]).obj(),
    ]
    (tmp_path / "cluster.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    arguments = ["explain", "--cluster", str(tmp_path / "cluster.json"), "-o", "json"]
    pending = json.loads(CliRunner().invoke(cli, arguments).stdout)["pending"]
    assert {pod["name"]: pod["code"] for pod in pending} == {
        "large": "InsufficientResource",
        "small": "Fits",
        "gated": "Excluded",
    }

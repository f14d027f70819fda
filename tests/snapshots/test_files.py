"""Snapshot files as people have them, and as they should not be."""

from __future__ import annotations

import gzip
import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from extender.errors import MalformedCluster
from extender.model.kinds import KINDS
from extender.model.meta import Object
from extender.model.node import Node
from extender.model.pod import Pod
from extender.offline.manifests.admission import companion
from extender.snapshots import files
from extender.snapshots.files import load
from tests.builders import make_node, make_pod

NODE, POD = make_node("n").created("2026-11-21T09:00:00Z").obj(), make_pod("p").node("n").obj()
POD_LIST = {"apiVersion": "v1", "kind": "List", "items": [NODE, POD]}
CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"k": "v"}}


def as_yaml(*documents: Any) -> str:
    return yaml.safe_dump_all(documents)


def without_kind(obj: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in obj.items() if key not in ("kind", "apiVersion")}


def given(objects: list[Object]) -> list[str]:
    """`Kind key` of each object; namespaces that were filled in are not in question here."""
    return [f"{type(obj).__name__} {obj.key}" for obj in objects if type(obj).__name__ != "Namespace"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        pytest.param("c.yaml", as_yaml(NODE, POD), id="documents"),
        pytest.param("c.yaml", as_yaml(POD_LIST), id="a List, as kubectl prints it"),
        pytest.param("c.yaml", as_yaml({**POD_LIST, "metadata": {"resourceVersion": ""}}), id="with metadata"),
        pytest.param("c.yaml", "---\n" + as_yaml(NODE) + "---\n# nothing\n---\n" + as_yaml(POD), id="empty documents"),
        pytest.param(
            "c.yml",
            as_yaml(NODE, {"kind": "PodList", "apiVersion": "v1", "items": [without_kind(POD)]}),
            id="a PodList",
        ),
        pytest.param("c.json", json.dumps(POD_LIST), id="JSON"),
        pytest.param("c", "\n " + json.dumps(POD_LIST), id="JSON of another name"),
        pytest.param("c.yaml", json.dumps(POD_LIST), id="JSON called YAML"),
        pytest.param(
            "c.yaml",
            f"{{apiVersion: v1, kind: List, items: [{json.dumps(NODE)}, {json.dumps(POD)}]}}",
            id="YAML like JSON",
        ),
    ],
)
def test_a_cluster_file_may_have_any_form(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    assert given(load(tmp_path / name)) == ["Node n", "Pod default/p"]


@pytest.mark.parametrize("form", [as_yaml, json.dumps], ids=["YAML", "JSON"])
def test_a_cluster_file_gives_its_nodes_and_pods(tmp_path: Path, form: Any) -> None:
    (tmp_path / "c").write_text(form(POD_LIST).replace("'2026-11-21T09:00:00Z'", "2026-11-21T09:00:00Z"))
    node, pod, *_ = load(tmp_path / "c")
    assert isinstance(node, Node)
    assert isinstance(pod, Pod)
    assert node.metadata.creation_timestamp == datetime(2026, 11, 21, 9, tzinfo=UTC)
    assert node.allocatable["cpu"] == "4"
    assert pod.node_name == "n"


def test_a_directory_is_read_in_the_order_of_names(tmp_path: Path) -> None:
    (tmp_path / "2-pods.json").write_text(json.dumps(POD))
    (tmp_path / "1-nodes.yaml").write_text(as_yaml(NODE))
    (tmp_path / "notes.txt").write_text("[")
    (tmp_path / "more").mkdir()
    assert given(load(tmp_path)) == ["Node n", "Pod default/p"]


@pytest.mark.parametrize("form", [as_yaml, json.dumps], ids=["YAML", "JSON"])
def test_kinds_that_no_rule_reads_are_left_out_in_one_line(
    tmp_path: Path, form: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "extender")
    events = [{"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": f"e{n}"}} for n in range(3)]
    foreign = {**NODE, "apiVersion": "example.com/v1"}
    (tmp_path / "c").write_text(form({**POD_LIST, "items": [NODE, CONFIG_MAP, *events, foreign]}))
    assert given(load(tmp_path / "c")) == ["Node n"]
    messages = [record.getMessage().partition(" kind=")[2] for record in caplog.records]
    assert messages == [
        "ConfigMap version=v1 count=1",
        "Event version=events.k8s.io/v1 count=3",
        "Node version=example.com/v1 count=1",
    ]


def odd(field: str, value: Any) -> dict[str, Any]:
    return {**POD_LIST, "items": [NODE, {**POD, field: value}]}


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        pytest.param("c.yaml", "a: [", "did not find expected", id="no YAML"),
        pytest.param("c.yaml", "just text", "document 1: expected an object", id="text"),
        pytest.param("c.yaml", as_yaml(NODE, [1]), "document 2: expected an object", id="a list of numbers"),
        pytest.param("c.yaml", as_yaml({**POD_LIST, "items": [3]}), "items[0]: expected", id="a number as item"),
        pytest.param("c.yaml", as_yaml(NODE, odd("spec", 5)), "items[1]: spec: expected a mapping, got 5", id="type"),
        pytest.param(
            "c.yaml", as_yaml(odd("spec", {"nodeName": True})), "items[1]: spec.nodeName: expected text", id="path"
        ),
        pytest.param("c.yaml", as_yaml({"kind": "Node", "apiVersion": "v1"}), "metadata.name is missing", id="no name"),
        pytest.param("c.yaml", "[" * 400_000, "nest", id="brackets without end"),  # libyaml may refuse first
        pytest.param("c.json", '{"kind":', "the file is cut off", id="JSON that breaks off"),
        pytest.param(
            "c.json", json.dumps(odd("spec", 5)), "items[1]: spec: expected a mapping, got 5", id="type in JSON"
        ),
        pytest.param("c.json", json.dumps(odd("kind", "")), "", id="no kind in JSON"),
        pytest.param(
            "c.json",
            json.dumps({**POD_LIST, "items": [POD, 3]}),
            "items[1]: the object: expected a mapping, got 3",
            id="a number in JSON",
        ),
        pytest.param(
            "c.json", json.dumps({"kind": "Node", "apiVersion": "v1"}), "name is missing", id="no name in JSON"
        ),
        pytest.param("c.json", '{"kind":"Node","apiVersion":"v1","x":' + "[" * 200_000, "", id="deep JSON"),
        pytest.param("c.json", b'{"kind":"Node","apiVersion":"v1","metadata":{"name":"\xff"}}', "", id="no UTF-8"),
        pytest.param("c.yaml", as_yaml(POD, POD), "Pod default/p is already defined in", id="an object twice"),
        pytest.param("c.yaml", as_yaml(POD, make_pod("q").uid(POD["metadata"]["uid"]).obj()), "UID", id="a UID twice"),
    ],
)
def test_faults_are_named_in_one_line(tmp_path: Path, name: str, text: str | bytes, message: str) -> None:
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(MalformedCluster) as caught:
        load(path)
    assert str(path) in str(caught.value)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("data", "recorded"),
    [
        pytest.param(gzip.compress(as_yaml(NODE).encode())[:-20], "the file is cut off or damaged", id="broken gzip"),
        pytest.param(b"\x7fELF\0\0\1", "not a text file; expected YAML or JSON", id="a program"),
        pytest.param(bytes(range(128, 256)), "not a text file; expected YAML or JSON", id="noise"),
        pytest.param(
            as_yaml(CONFIG_MAP).encode(),
            "the file has 1 ConfigMap, but no node or pod; expected the output of `kubectl",
            id="others",
        ),
        pytest.param(
            json.dumps(CONFIG_MAP).encode(),
            "the file has 1 ConfigMap, but no node or pod; expected",
            id="others in JSON",
        ),
        pytest.param(b" \n", "the file is empty; expected YAML or JSON", id="nothing"),
        pytest.param(b"---\n# all gone\n---\nnull\n", "the file is empty; expected YAML or JSON", id="no document"),
    ],
)
def test_an_unreadable_file_is_refused(data: bytes, recorded: str, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_bytes(data)
    with pytest.raises(MalformedCluster, match=f"c.yaml: {recorded}"):
        load(tmp_path / "c.yaml")


def test_a_directory_without_cluster_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MalformedCluster, match="no file in this directory"):
        load(tmp_path)


def test_a_missing_file_is_refused_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="nowhere"):
        load(tmp_path / "nowhere.yaml")


def test_sizes_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "c.yaml").write_text(as_yaml(NODE))
    monkeypatch.setattr(files, "MOST_YAML_BYTES", 10)
    with pytest.raises(MalformedCluster, match="JSON files may be larger"):
        load(tmp_path / "c.yaml")
    monkeypatch.setattr(files, "MOST_JSON_BYTES", 10)
    with pytest.raises(MalformedCluster, match="bytes are more than the limit of 10"):
        load(tmp_path / "c.yaml")


EXAMPLE = Path(files.__file__).parents[1] / "offline/example.yaml"


def test_the_example_is_whole() -> None:
    objects = load(EXAMPLE)
    of_kind = {name: [obj for obj in objects if type(obj).__name__ == name] for name in KINDS}
    assert len(of_kind["Node"]) == 20
    assert len(of_kind["Pod"]) == 60
    nodes = {node.name for node in of_kind["Node"]}
    pods = [pod for pod in of_kind["Pod"] if isinstance(pod, Pod)]
    assert {pod.node_name for pod in pods} - nodes == {""}
    assert 3 <= sum(not pod.node_name for pod in pods) <= 8
    assert len({(type(obj), obj.uid) for obj in objects}) == len(objects)


def test_generated_names_of_claims_are_as_the_api_server_makes_them() -> None:
    def claim(prefix: str, place: str) -> str:
        spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        made = companion(
            {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"generateName": prefix}, "spec": spec},
            place,
        )
        assert made is not None
        return made.metadata.name

    first, second, long = (
        claim("data-web-", "f: document 1"),
        claim("data-web-", "f: document 2"),
        claim("a" * 253, "f"),
    )
    assert first == claim("data-web-", "f: document 1")
    assert len({first, second, "data-web-0"}) == 3
    assert re.fullmatch("data-web-[bcdfghjklmnpqrstvwxz2456789]{5}", first)
    assert long.startswith("a" * 58)
    assert len(long) == 63

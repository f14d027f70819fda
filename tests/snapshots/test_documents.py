"""A file is split into objects as kubectl does it, whether it is read as a cluster or for -f.

`kubectl apply --dry-run=server` 1.37.1 accepts each of these texts, but for the list in a list.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from extender.cli.source_options import Source
from extender.errors import MalformedCluster
from extender.offline.manifests.templates import read_workloads
from extender.snapshots.files import read_snapshot

SPEC = {"containers": [{"name": "c", "image": "i"}]}
A, B = ({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": SPEC} for name in "ab")
BARE = {"metadata": {"name": "b"}, "spec": SPEC}
SMILE = {**A, "metadata": {"name": "a", "annotations": {"mood": "\U0001f600 a/b"}}}
YAML_B = "apiVersion: v1\nkind: Pod\nmetadata: {name: b}\nspec: {containers: [{name: c, image: i}]}\n"
YAML_A = YAML_B.replace("name: b", "name: a")


def listed(*items: object, kind: str = "List") -> dict[str, object]:
    return {"apiVersion": "v1", "kind": kind, "items": [*items]}


TEXTS = [
    pytest.param(json.dumps(A) + json.dumps(B, indent="\t"), id="JSON after JSON"),
    pytest.param(json.dumps(SMILE) + "\n" + json.dumps(B), id="characters that JSON escapes"),
    pytest.param(json.dumps(A) + "\n---\n" + YAML_B, id="YAML after JSON"),
    pytest.param(YAML_A + "---\n" + json.dumps(B), id="JSON after YAML"),
    pytest.param(json.dumps(listed(A, listed(listed(BARE, kind="PodList")))), id="lists in a list"),
    pytest.param(f"kind: List\nitems: [{json.dumps(A)}, {json.dumps(listed(B))}]", id="lists in a list of YAML"),
    pytest.param(b"\xef\xbb\xbf" + (json.dumps(A) + json.dumps(B)).encode(), id="a byte order mark before JSON"),
    pytest.param(b"\xef\xbb\xbf" + f"{YAML_A}---\n\ufeff{YAML_B}".encode(), id="a byte order mark in each document"),
    pytest.param(json.dumps(listed(A, B)).encode("utf-16"), id="JSON in UTF-16"),
    pytest.param(f"{YAML_A}---\n---\n# nothing\n---\n{YAML_B}...\n".replace("\n", "\r\n"), id="empty documents, CRLF"),
    pytest.param(f"{YAML_A}---\n{YAML_B}".replace("metadata: {", "metadata: {name: x, "), id="a key twice"),
]


@pytest.mark.parametrize("name", ["pods.json", "pods.yaml"])
@pytest.mark.parametrize("text", TEXTS)
def test_a_file_has_the_same_pods_as_a_cluster_and_for_f(text: str | bytes, name: str, tmp_path: Path) -> None:
    data = text.encode() if isinstance(text, str) else text
    (tmp_path / name).write_bytes(data)
    assert [obj.name for obj in read_snapshot(tmp_path / name).objects if type(obj).__name__ == "Pod"] == ["a", "b"]
    found = Source(cluster=tmp_path).workloads([tmp_path / name])
    assert [workload.manifest["metadata"]["name"] for workload in found] == ["a", "b"]


def test_a_note_names_keys_that_occur_twice() -> None:
    notes = list(read_workloads(YAML_A.replace("{name: a}", "{name: x, name: a}").encode(), "app.yaml")[0].notes)
    assert notes == ["app.yaml: a key occurs twice, so the last value counts, as for kubectl: name in line 3"]


def test_the_line_of_a_fault_counts_from_the_beginning_of_the_file(tmp_path: Path) -> None:
    with pytest.raises(MalformedCluster, match=r"app.json: line 3: no anchor x"):
        read_workloads((json.dumps(A) + "\n---\na: *x\n").encode(), "app.json")


def test_a_folder_and_several_files_for_f_are_one_input(tmp_path: Path) -> None:
    folder = tmp_path / "app"
    (folder / "templates").mkdir(parents=True)
    (folder / "a.yaml").write_text(YAML_A)
    (folder / "Chart.yaml").write_text("apiVersion: v2\nname: shop\n")
    (folder / "kustomization.yaml").write_text("resources: [a.yaml]\n")
    (folder / "empty.yaml").write_text("\n")
    (folder / "values.yaml").write_text("kind: DaemonSet\nreplicas: 3\n")
    (folder / "templates" / "web.yaml").write_text("{{ nothing that kubectl would read }}")
    (tmp_path / "class.json").write_text(
        json.dumps({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}})
    )
    (workload,) = Source(cluster=tmp_path).workloads([tmp_path / "class.json", folder])
    assert [obj.name for obj in workload.companions] == ["high"]
    left_out = ", ".join(
        str(folder / name) for name in ("Chart.yaml", "empty.yaml", "kustomization.yaml", "values.yaml")
    )
    assert list(workload.notes) == [f"left out, because they hold no objects: {left_out}"]

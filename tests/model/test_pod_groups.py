"""PodGroups and CompositePodGroups: which fields scheduling reads, and their way through files and snapshots."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from extender.errors import MalformedCluster
from extender.model.meta import Object
from extender.model.pod import Pod
from extender.model.pod_groups import CompositePodGroup, PodGroup
from extender.model.redaction import Redaction
from extender.snapshots.files import load, write_snapshot
from tests.builders import ZONE, make_composite_pod_group, make_pod, make_pod_group, make_priority_class

TREE = (
    make_composite_pod_group("tree", 2, workloadRef={"workloadName": "w", "templateName": "t"}),
    make_pod_group(
        "gang",
        8,
        schedulingConstraints={"topology": [{"key": ZONE}]},
        disruptionMode={"all": {}},
        parentCompositePodGroupName="tree",
    ),
    make_pod("p").group("gang").obj(),
)


def written(path: Path, *objects: dict[str, object]) -> Path:
    path.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": objects}))
    return path


def by_kind(objects: list[Object]) -> dict[str, Object]:
    return {type(obj).__name__: obj for obj in objects}


def test_the_fields_of_a_gang() -> None:
    gang = msgspec.convert(TREE[1], PodGroup)
    assert (gang.is_gang, gang.min_count, gang.topology_key, gang.is_disrupted_whole) == (True, 8, ZONE, True)
    assert (gang.key, gang.parent_key) == ("default/gang", "default/tree")


def test_a_basic_group_needs_one_member() -> None:
    group = msgspec.convert(make_pod_group("g"), PodGroup)
    assert (group.is_gang, group.min_count, group.topology_key, group.parent_key) == (False, 1, None, None)
    assert (group.is_disrupted_whole, group.priority) == (False, 0)


def test_a_composite_group_counts_its_children() -> None:
    tree, basic = (msgspec.convert(make_composite_pod_group("t", count), CompositePodGroup) for count in (2, None))
    assert (tree.is_gang, tree.min_count, basic.is_gang, basic.min_count) == (True, 2, False, 1)


@pytest.mark.parametrize(("pod", "key"), [(TREE[2], "default/gang"), (make_pod("single").obj(), None)])
def test_a_pod_names_its_group(pod: dict[str, object], key: str | None) -> None:
    assert msgspec.convert(pod, Pod).group_key == key


def test_a_snapshot_keeps_groups_and_their_members(tmp_path: Path) -> None:
    objects = load(written(tmp_path / "a.json", *TREE))
    (tmp_path / "b.json").write_bytes(write_snapshot(objects))
    assert by_kind(load(tmp_path / "b.json")) == by_kind(objects)


def test_a_redacted_snapshot_keeps_the_tree_together(tmp_path: Path) -> None:
    (tmp_path / "b.json").write_bytes(write_snapshot(load(written(tmp_path / "a.json", *TREE)), redaction=Redaction()))
    redacted = by_kind(load(tmp_path / "b.json"))
    tree, gang, pod = redacted["CompositePodGroup"], redacted["PodGroup"], redacted["Pod"]
    assert isinstance(tree, CompositePodGroup)
    assert isinstance(gang, PodGroup)
    assert isinstance(pod, Pod)
    assert (pod.group_key, gang.parent_key) == (gang.key, tree.key)
    assert gang.name != "gang"
    assert (gang.min_count, gang.topology_key, gang.is_disrupted_whole) == (8, ZONE, True)


def test_a_group_has_the_priority_of_its_class(tmp_path: Path) -> None:
    group = make_pod_group("g", priorityClassName="high")
    loaded = by_kind(load(written(tmp_path / "a.json", group, make_priority_class("high", 1000))))["PodGroup"]
    assert isinstance(loaded, PodGroup)
    assert loaded.priority == 1000


def test_a_group_of_a_class_that_is_missing_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "a.json", make_pod_group("g", priorityClassName="high"))
    with pytest.raises(MalformedCluster, match="PodGroup default/g: no PriorityClass high is in the cluster"):
        load(path)

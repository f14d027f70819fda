"""Kinds that a policy names for watching: rules read them as plain mappings, from files of every form."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from extender import Cluster, CustomObject, Handle, Node, Pod, predicate
from extender.errors import ConfigurationError
from extender.policy.library import Library
from extender.policy.loading import read
from tests.builders import make_node, make_pod

RACK: dict[str, Any] = {
    "apiVersion": "example.com/v1",
    "kind": "RackPower",
    "metadata": {"name": "rack-1", "labels": {"row": "a"}},
    "spec": {"wattsLeft": 100},
}
OBJECTS = [RACK, make_node("n").label(rack="rack-1").obj(), make_pod("p").annotation({"watts": "150"}).obj()]


@predicate
def within_power(pod: Pod, node: Node, *, handle: Handle) -> str | None:
    rack = handle.objects.get("RackPower", node.labels["rack"])
    if rack is None or int(pod.annotations["watts"]) <= rack.content["spec"]["wattsLeft"]:
        return None
    return "node(s) had no power left in their rack"


def policy(*watch: dict[str, str]) -> dict[str, Any]:
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "watch": list(watch),
        "profiles": [{"plugins": {"filter": {"enabled": [{"name": "power"}]}}}],
    }


def profiles(*watch: dict[str, str]) -> Any:
    return read(policy(*watch), Library(rules={"power": within_power})).scheduler_profiles()


WATCHED = {"apiVersion": "example.com/v1", "kind": "RackPower"}


def written(folder: Path, form: str) -> Path:
    documents = {
        "list.json": json.dumps({"kind": "List", "items": OBJECTS}),
        "own-list.json": json.dumps({"apiVersion": "example.com/v1", "kind": "RackPowerList", "items": [RACK]}),
        "documents.yaml": yaml.safe_dump_all(OBJECTS),
    }
    file = folder / "cluster" / form
    file.parent.mkdir()
    file.write_text(documents[form])
    if form == "own-list.json":
        (file.parent / "others.yaml").write_text(yaml.safe_dump_all(OBJECTS[1:]))
    return file.parent


@pytest.mark.parametrize("form", ["list.json", "own-list.json", "documents.yaml"])
def test_a_rule_reads_a_watched_kind_from_a_file(tmp_path: Path, form: str) -> None:
    cluster = Cluster.load(written(tmp_path, form), profiles(WATCHED))
    decision = cluster.decide(cluster.pod("default/p"))
    assert decision.reasons == {"node(s) had no power left in their rack": 1}


def test_a_rule_reads_a_watched_kind_from_dicts() -> None:
    cluster = Cluster.from_objects(OBJECTS, profiles(WATCHED))
    assert not cluster.decide(cluster.pod("default/p")).feasible


def test_a_kind_that_is_not_watched_is_not_read() -> None:
    cluster = Cluster.from_objects(OBJECTS, profiles())
    assert cluster.decide(cluster.pod("default/p")).feasible == ["n"]


def test_the_whole_object_is_kept_with_its_metadata() -> None:
    seen: list[CustomObject] = []

    @predicate
    def look(pod: Pod, node: Node, *, handle: Handle) -> None:
        seen.extend(handle.objects.list("RackPower", labels={"row": "a"}))

    library = Library(rules={"power": look})
    cluster = Cluster.from_objects(OBJECTS, read(policy(WATCHED), library).scheduler_profiles())
    cluster.decide(cluster.pod("default/p"))
    assert [(rack.key, rack.content) for rack in seen] == [("rack-1", RACK)]


@pytest.mark.parametrize(
    ("watch", "fault"),
    [
        pytest.param([{"kind": "RackPower"}], "watch[0].apiVersion: required", id="no version"),
        pytest.param([{"apiVersion": "v1"}], "watch[0].kind: required", id="no kind"),
        pytest.param([{"apiVersion": "v1", "kind": "Pod"}], "watch[0].kind: Pod is read anyway", id="a known kind"),
        pytest.param([WATCHED, WATCHED], "watch[1].kind: RackPower is watched twice", id="twice"),
        pytest.param(
            [{"apiVersion": "v1", "kind": "a b"}], "watch[0].kind: expected a kind such as RackPower", id="text"
        ),
    ],
)
def test_a_faulty_entry_of_watch_is_named(watch: list[dict[str, str]], fault: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        profiles(*watch)
    assert [text[: len(fault)] for text in refused.value.faults] == [fault]


def test_the_path_of_a_watched_kind_follows_from_its_name_or_is_given() -> None:
    named = {"apiVersion": "example.com/v1", "kind": "RackPolicy", "resource": "rackpolicies"}
    kinds = profiles(WATCHED, named).watch
    assert [kind.path for kind in kinds] == [
        "/apis/example.com/v1/rackpowers",
        "/apis/example.com/v1/rackpolicies",
    ]

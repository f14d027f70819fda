"""The plugin that docs/adding-a-plugin.md walks through works as it says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from extender.framework.cluster_events import Action, Change, ClusterEvent, Resource
from extender.framework.queueing_hints import QueueingHints
from extender.plugins.registry import IN_TREE, INTERESTS
from extender.policy.library import Library
from extender.policy.loading import load
from tests.builders import make_node, make_pod
from tests.framework.cluster import refusals
from tests.queue.queueing import QueueRecorder, info, node

PAGE = (Path(__file__).parents[2] / "docs" / "adding-a-plugin.md").read_text()


def block(language: str) -> str:
    (found,) = re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    return str(found)


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    (tmp_path / "node_maintenance.py").write_text(block("python"))
    monkeypatch.syspath_prepend(tmp_path)
    yield __import__("node_maintenance")
    monkeypatch.delitem(__import__("sys").modules, "node_maintenance")


def test_a_profile_runs_it_with_its_arguments(module: ModuleType) -> None:
    registry = {**IN_TREE, module.NAME: module.PLUGIN}
    (profile,) = load(block("yaml"), Library(registry)).profiles
    rule = next(predicate for predicate in profile.predicates if predicate.name == module.NAME)
    nodes = [make_node("draining").label({"example.com/drain": "soon"}).obj(), make_node("free").obj()]
    assert refusals(rule, make_pod("p").obj(), *nodes) == {"draining": module.REFUSAL}


def test_it_does_not_apply_to_pods_of_daemon_sets(module: ModuleType) -> None:
    draining = make_node("draining").label({"example.com/maintenance": "soon"}).obj()
    assert refusals(module.NodeMaintenance(), make_pod("p").owner("DaemonSet", "agent").obj(), draining) == {}


def test_its_hint_wakes_a_pod_when_the_label_goes(module: ModuleType) -> None:
    hints = QueueingHints({**INTERESTS, module.NAME: module.PLUGIN.interests}, QueueRecorder().rule_failed)
    event = ClusterEvent(Resource.NODE, Action.UPDATE_NODE_LABEL)
    draining, free = node(make_node("n").label({"example.com/drain": "soon"})), node(make_node("n"))
    assert hints.help_from(module.NAME, info("p"), Change(event, draining, free))
    assert not hints.help_from(module.NAME, info("p"), Change(event, free, free))

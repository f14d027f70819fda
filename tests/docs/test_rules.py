"""docs/rules.md: its rules of Reserve and Permit, under its policy."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from extender.framework.rules import Predicate
from extender.plugins.users.rule_calls import OfflineHost
from extender.plugins.volume_binding import BIND_CONFLICT
from extender.policy.library import Library
from extender.policy.loading import load
from tests.builders import expression, make_node, make_pod, make_pv, make_pvc, make_storage_class, node_term
from tests.framework.cluster import refusals
from tests.scheduler.world import NAME, World

PAGE = (Path(__file__).parents[2] / "docs" / "rules.md").read_text()


def block(language: str, heading: str = "## Reserve and Permit") -> str:
    section = re.split("\n#{2,3} ", PAGE.partition(heading)[2])[0]
    found = re.search(rf"```{language}\n(.*?)```", section, re.DOTALL)
    assert found is not None
    return found.group(1)


def test_volume_claims() -> None:
    namespace: dict[str, Any] = {}
    exec(block("python", "### Volume claims"), namespace)
    rule: Predicate = namespace["near_its_data"].rule("near", {}, OfflineHost())
    objects = [make_node(name).label(zone=name).obj() for name in ("a", "b")]
    objects += [make_storage_class("local", provisioner="kubernetes.io/no-provisioner")]
    objects += [make_pv("disk", storage_class="local", node_terms=[node_term(expression("zone", "In", "a"))])]
    objects += [make_pvc("data", storage_class="local")]
    near = make_pod("near").annotation({"shop.example/data": "data"}).obj()
    refused = refusals(rule, near, *objects)
    assert {name: refusal.reasons for name, refusal in refused.items()} == {"b": (BIND_CONFLICT,)}
    assert refusals(rule, make_pod("anywhere").obj(), *objects) == {}


def test_reserve_and_permit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that come before the first wait for it, with their licences; the one without a licence is rejected."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setitem(sys.modules, "rules_of_the_page", sys)  # so that what is imported does not stay
    monkeypatch.delitem(sys.modules, "rules_of_the_page")
    (tmp_path / "rules_of_the_page.py").write_text(block("python"))
    policy = block("yaml").replace("rules:", "rules_of_the_page:").replace("licences: 5", "licences: 2")
    profile = load(policy, Library(folder=str(tmp_path))).profiles[0]
    world = World(make_node("n").allocatable(cpu="9", pods="9"), profile=profile)
    world.put(make_pod("early").uid("early").scheduler(NAME).label(app="paint"))
    world.settle()
    assert world.node_of("early") == ""
    world.put(make_pod("first").uid("first").scheduler(NAME).label(app="paint", role="first"))
    world.settle()
    assert (world.node_of("early"), world.node_of("first")) == ("n", "n")
    world.put(make_pod("third").uid("third").scheduler(NAME))
    world.settle()
    assert world.conditions[-1][:3] == ("third", "Unschedulable", "0/1 nodes are available: 1 no licence was left.")

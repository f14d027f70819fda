"""docs/rules.md: its rules of Reserve and Permit, under its policy."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from extender.policy.library import Library
from extender.policy.loading import load
from tests.builders import make_node, make_pod
from tests.scheduler.world import NAME, World

PAGE = (Path(__file__).parents[2] / "docs" / "rules.md").read_text()
SECTION = PAGE.partition("## Reserve and Permit")[2].partition("\n## ")[0]


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", SECTION, re.DOTALL)
    assert found is not None
    return found.group(1)


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

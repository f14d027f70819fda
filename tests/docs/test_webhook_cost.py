"""The configurations of docs/webhook-cost.md do what the page says."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from extender.policy.library import Library
from extender.policy.loading import load

PAGE = (Path(__file__).parents[2] / "docs" / "webhook-cost.md").read_text()
SCHEDULERS, EXTENDERS = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
RULES = "from extender import predicate\n\n@predicate\ndef keep_namespace(pod, node):\n    return None\n"


def test_the_policy_has_the_users_rule_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rules.py").write_text(RULES)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(sys.modules, "rules", sys)  # so that the module is gone after the test
    del sys.modules["rules"]
    (profile,) = load(EXTENDERS, Library()).profiles
    assert [predicate.name for predicate in profile.predicates] == ["rules:keep_namespace"]
    assert not profile.priorities


def test_the_scheduler_asks_about_pods_with_the_mark_only() -> None:
    policy = load(SCHEDULERS, Library())
    (extender,) = policy.extenders
    assert (extender.filter_verb, extender.preempt_verb) == ("filter", "preempt")
    assert (extender.prioritize_verb, extender.bind_verb) == ("", "")
    assert extender.managed_resources == extender.ignored_resources == {"example.com/ruled"}

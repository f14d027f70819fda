"""docs/devices.md and the README: their policy turns packing on, and the tables of the page are complete."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from extender.plugins.device_scoring import DeviceScoringArgs, PolicyName, TypicalPodSpec, device_scoring_of
from extender.policy.library import Library
from extender.policy.loading import load

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "devices.md").read_text()


@pytest.mark.parametrize("document", ["README.md", "docs/devices.md"])
def test_five_lines_turn_packing_on(document: str) -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", (ROOT / document).read_text(), re.DOTALL)
    [policy] = [each for each in blocks if "DeviceScoring" in each]
    assert len(policy.splitlines()) == 5
    profile = load(policy, Library()).profiles[0]
    scoring = device_scoring_of(profile)
    assert scoring is not None
    assert scoring.policies == (("FGD", 1),)
    [weight] = [each.weight for each in profile.priorities if each.priority is scoring]
    assert weight > sum(each.weight for each in profile.priorities) - weight


def test_the_tables_list_every_policy_and_argument() -> None:
    first = re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)
    arguments = [field.alias for field in DeviceScoringArgs.model_fields.values()][2:]
    assert first == [*get_args(PolicyName), *arguments]
    assert all(f"`{field.alias}`" in PAGE for field in TypicalPodSpec.model_fields.values())

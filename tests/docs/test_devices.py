"""docs/devices.md and the README: their policy turns packing on, and the tables of the page are complete."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from extender.plugins.device_scoring import POLICY_NAMES, DeviceScoringArgs, TypicalPodSpec, device_scoring_of
from extender.policy.library import Library
from extender.policy.loading import load, profiles_of
from tests.builders import make_pod
from tests.cli.commands import extender
from tests.framework.cluster import table_of
from tests.plugins.test_device_scoring import TWO_NODES, chosen_for, memory_claim

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


def test_the_example_of_the_readme_is_placed_as_it_says(tmp_path: Path) -> None:
    readme = (ROOT / "README.md").read_text()
    [shown] = re.findall(
        r"```console\n\$ extender (simulate .*--policy policy.yaml)\n(.*?)\.\.\.\n```", readme, re.DOTALL
    )
    [policy] = [each for each in re.findall(r"```yaml\n(.*?)```", readme, re.DOTALL) if "DeviceScoring" in each]
    (tmp_path / "policy.yaml").write_text(policy)
    cluster = ROOT / "examples" / "devices.yaml"
    assert shown[0] == "simulate --cluster examples/devices.yaml --policy policy.yaml"
    by_default = extender("simulate", "--cluster", str(cluster))
    assert by_default.stdout.startswith("1 pod placed, 2 pending, 0 evicted\n")
    packed = extender("simulate", "--cluster", str(cluster), "--policy", str(tmp_path / "policy.yaml"))
    assert packed.stdout.startswith(shown[1])


def test_the_policy_of_ones_own_is_called_as_the_page_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setitem(sys.modules, "mine", sys)  # so that what is imported does not stay
    monkeypatch.delitem(sys.modules, "mine")
    [source] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    [named] = re.findall(r"`(policies: \[.*mine:.*\])`", PAGE)
    [policy] = [each for each in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL) if "DeviceScoring" in each]
    assert len(source.rstrip().splitlines()) <= 10
    (tmp_path / "mine.py").write_text(source)
    (tmp_path / "policy.yaml").write_text(policy.replace("policies: [{name: FGD}]", named))
    profiles = profiles_of(tmp_path / "policy.yaml")
    assert profiles is not None
    [profile] = profiles.all
    table = table_of(*TWO_NODES, memory_claim("c", "20Gi"))
    pod = make_pod("p").req(cpu="1").resource_claim("c").obj()
    assert chosen_for(pod, table, profile)[0] == "b"


def test_the_tables_list_every_policy_and_argument() -> None:
    first = re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)
    arguments = [field.alias for field in DeviceScoringArgs.model_fields.values()][2:]
    assert first == [*POLICY_NAMES, *arguments]
    assert all(f"`{field.alias}`" in PAGE for field in TypicalPodSpec.model_fields.values())

"""The feature gates after an upgrade of Kubernetes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from extender.errors import ConfigurationError
from extender.policy.kubernetes_versions import DEFAULTS, by_name, changes, upgraded
from extender.table.features import BY_NAME, DEFAULT_FEATURES, FeatureGates

PAGE = Path(__file__).parents[2] / "docs/versions.md"


def test_the_defaults_are_those_that_the_control_planes_have_reported() -> None:
    rows = [re.split(r" *\| *", line.strip("| ")) for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    table = rows[next(i for i, row in enumerate(rows) if row[0] == "gate") :]
    versions = table[0][1:]
    assert versions == list(DEFAULTS)
    for gate, *shown in table[1:]:
        for version, state in zip(versions, shown, strict=True):
            if gate in BY_NAME and state in ("on", "off"):
                assert by_name(upgraded(DEFAULT_FEATURES, version))[gate] is (state == "on"), (gate, version)


def test_a_version_stands_for_its_defaults_and_explicit_gates_stay() -> None:
    assert changes(DEFAULT_FEATURES, upgraded(DEFAULT_FEATURES, "v1.36.3")) == (
        "StorageCapacityScoring=false, VolumeLimitScaling=false"
    )
    own = FeatureGates(node_declared_features=False, generic_workload=True)
    assert upgraded(own, "1.37") == own
    assert changes(own, upgraded(own, "1.36, VolumeLimitScaling=true,GenericWorkload=false")) == (
        "GenericWorkload=false, StorageCapacityScoring=false"
    )


@pytest.mark.parametrize("target", ["", "1.36,1.37", "1.20", "StorageCapacityScorin=true", "NodeDeclaredFeatures", "x"])
def test_an_unknown_version_or_gate_is_refused(target: str) -> None:
    with pytest.raises(ConfigurationError):
        upgraded(DEFAULT_FEATURES, target)

"""The feature gates after an upgrade of Kubernetes."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest

from extender.config.settings import OPTIONS
from extender.errors import ConfigurationError
from extender.policy.configuration import ConfigurationSpec
from extender.policy.loading import read
from extender.policy.policy import by_name, changes, followed, parsed, upgraded
from extender.table.features import BY_NAME, DEFAULT_FEATURES, RELEASED, VERSIONS
from tests.policy.configurations import profile

PAGE = Path(__file__).parents[2] / "docs/versions.md"


def test_the_defaults_are_those_that_the_control_planes_have_reported() -> None:
    rows = [re.split(r" *\| *", line.strip("| ")) for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    table = rows[next(i for i, row in enumerate(rows) if row[0] == "gate") :]
    versions = table[0][1:]
    assert versions == list(VERSIONS)
    for gate, *shown in table[1:]:
        for version, state in zip(versions, shown, strict=True):
            if gate in BY_NAME and state in ("on", "off"):
                assert by_name(upgraded(DEFAULT_FEATURES, version))[gate] is (state == "on"), (gate, version)


def test_a_version_stands_for_its_defaults_and_explicit_gates_stay() -> None:
    base = VERSIONS["1.37"].features
    assert changes(base, upgraded(base, "v1.36.3")) == ("StorageCapacityScoring=false, VolumeLimitScaling=false")
    own = parsed("NodeDeclaredFeatures=false,GenericWorkload=true", base)
    assert upgraded(own, "1.37") == own
    assert changes(own, upgraded(own, "1.36, VolumeLimitScaling=true,GenericWorkload=false")) == (
        "GenericWorkload=false, StorageCapacityScoring=false"
    )
    assert changes(own, upgraded(own, "1.38")) == "Kubernetes 1.38, DRAFractionalCapacityRange=true"


def test_the_version_that_is_followed_without_a_choice_is_the_newest_released() -> None:
    assert VERSIONS[RELEASED].features == DEFAULT_FEATURES
    (line,) = [line for line in PAGE.read_text().splitlines() if line.startswith("4. the newest released one")]
    assert RELEASED in line
    assert {name: version.features.version for name, version in VERSIONS.items()} == {name: name for name in VERSIONS}


def test_settings_and_policies_know_the_same_versions() -> None:
    assert OPTIONS["kubernetes_version"].choices == ("auto", *VERSIONS)
    expected: Any = Literal[*VERSIONS] | None
    assert ConfigurationSpec.model_fields["kubernetes_version"].annotation == expected


def test_a_setting_goes_before_a_policy_and_a_policy_before_the_cluster() -> None:
    policy = read({**profile(), "kubernetesVersion": "1.36", "featureGates": {"VolumeLimitScaling": True}})
    assert policy.features == replace(VERSIONS["1.36"].features, volume_limit_scaling=True)
    assert policy.scheduler_profiles().following("1.38").features == policy.features
    assert parsed("", policy.features, "1.38") == VERSIONS["1.38"].features
    without = read({**profile(), "featureGates": {"VolumeLimitScaling": False}}).scheduler_profiles()
    assert without.features == replace(DEFAULT_FEATURES, volume_limit_scaling=False)
    assert without.following("1.38").features == replace(VERSIONS["1.38"].features, volume_limit_scaling=False)


@pytest.mark.parametrize(
    ("reported", "version", "warning"),
    [
        pytest.param("v1.37.1", "1.37", None, id="as reported"),
        pytest.param("v1.38.2-gke.7", "1.38", None, id="of a provider"),
        pytest.param("v1.36.0+k3s1", "1.36", None, id="of a distribution"),
        pytest.param("v1.41.0", "1.38", "Kubernetes 1.41 is newer than 1.38, and counts as 1.38", id="newer"),
        pytest.param("v1.29.3", "1.35", "Kubernetes 1.29 is older than 1.35, and counts as 1.35", id="older"),
        pytest.param("", RELEASED, f"the cluster does not say its version, so it counts as {RELEASED}", id="unknown"),
    ],
)
def test_a_cluster_counts_as_the_nearest_version(reported: str, version: str, warning: str | None) -> None:
    assert followed(reported) == (version, warning)


@pytest.mark.parametrize(
    ("gates", "version", "fault"),
    [
        pytest.param(
            "PodGroupPreemptionPolicy=true", "1.38", "unrecognized feature gate: PodGroupPreemptionPolicy", id="removed"
        ),
        pytest.param(
            "DRAFractionalCapacityRange=true", "1.36", "unrecognized feature gate: DRAFractionalCapacityRange", id="new"
        ),
        pytest.param(
            "DRADeviceTaints=false",
            "1.38",
            "cannot set feature gate DRADeviceTaints to false, feature is locked to true",
            id="locked",
        ),
        pytest.param(
            "NodeDeclaredFeatures=false",
            "1.37",
            "cannot set feature gate NodeDeclaredFeatures to false, feature is locked to true",
            id="locked, and read by a rule",
        ),
        pytest.param(
            "CompositePodGroup=true", "1.36", "unrecognized feature gate: CompositePodGroup", id="of a later version"
        ),
        pytest.param(
            "TopologyAwareWorkloadScheduling=true", "1.36",
            "TopologyAwareWorkloadScheduling is enabled, but depends on features that are disabled: [GenericWorkload]",
            id="needs a gate that is off",
        ),
        pytest.param(
            "PodGroupPreemptionPolicy=true", "1.37",
            "PodGroupPreemptionPolicy is enabled, but depends on features that are disabled: [GenericWorkload]",
            id="needs a gate that is off, until 1.37",
        ),
        pytest.param(
            "CompositePodGroup=true", "1.38",
            "CompositePodGroup is enabled, but depends on features that are disabled: "
            "[GenericWorkload TopologyAwareWorkloadScheduling]",
            id="needs two gates that are off",
        ),
    ],
)  # fmt: skip
def test_a_gate_that_a_version_cannot_set_is_refused_in_kube_schedulers_words(
    gates: str, version: str, fault: str
) -> None:
    with pytest.raises(ConfigurationError) as raised:
        parsed(gates, version=version)
    assert fault in str(raised.value)
    document = {name: on == "true" for name, _, on in [gates.partition("=")]}
    with pytest.raises(ConfigurationError) as raised:
        read({**profile(), "kubernetesVersion": version, "featureGates": document})
    assert fault in str(raised.value)


def test_a_flag_must_not_switch_off_what_a_gate_of_the_policy_needs() -> None:
    gates = {"GenericWorkload": True, "DRAWorkloadResourceClaims": True}
    policy = read({**profile(), "featureGates": gates})
    with pytest.raises(ConfigurationError, match="DRAWorkloadResourceClaims is enabled, but depends on features"):
        parsed("GenericWorkload=false", policy.features)


def test_a_locked_gate_may_be_set_to_its_value() -> None:
    assert parsed("DRADeviceTaints=true", version="1.38") == VERSIONS["1.38"].features


@pytest.mark.parametrize("target", ["", "1.36,1.37", "1.20", "StorageCapacityScorin=true", "NodeDeclaredFeatures", "x"])
def test_an_unknown_version_or_gate_is_refused(target: str) -> None:
    with pytest.raises(ConfigurationError):
        upgraded(DEFAULT_FEATURES, target)

"""Feature gates: stock's names and defaults, from a policy and from a flag, and the decisions that they change."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from extender.devices.allocations import devices_of
from extender.errors import ConfigurationError
from extender.plugins.node_declared_features import NodeDeclaredFeatures
from extender.plugins.node_volume_limits import NodeVolumeLimits
from extender.plugins.volume_binding import VolumeBindingScore
from extender.policy.loading import read
from extender.policy.policy import parsed
from extender.table.features import BY_NAME, DEFAULT_FEATURES, VERSIONS, FeatureGates
from tests.builders import Object, make_csi_driver, make_node, make_pod, make_pv, make_pvc, make_storage_class
from tests.framework.cluster import pod_info, table_of
from tests.policy.configurations import profile


def test_the_defaults_of_1_37_are_those_of_stock() -> None:
    on = {name for name, field in BY_NAME.items() if getattr(VERSIONS["1.37"].features, field)}
    assert on == {"NodeDeclaredFeatures", "StorageCapacityScoring", "VolumeLimitScaling"}
    assert BY_NAME.keys() - on == {
        "CompositePodGroup",
        "DRAFractionalCapacityRange",
        "DRAWorkloadResourceClaims",
        "GenericWorkload",
        "PodGroupPreemptionPolicy",
        "TopologyAwareWorkloadScheduling",
    }


def test_a_flag_goes_before_the_policy() -> None:
    gates = {"DRAFractionalCapacityRange": True, "VolumeLimitScaling": False}
    policy = read({**profile(), "featureGates": gates})
    assert policy.features == replace(DEFAULT_FEATURES, dra_fractional_capacity_range=True, volume_limit_scaling=False)
    features = parsed("VolumeLimitScaling=True, NodeDeclaredFeatures=false", policy.features)
    assert features == replace(DEFAULT_FEATURES, dra_fractional_capacity_range=True, node_declared_features=False)
    assert parsed("", policy.features) == policy.features


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        pytest.param("StorageCapacityScorin=true", "did you mean StorageCapacityScoring?", id="no such gate"),
        pytest.param(
            "VolumeLimitScaling", "expected VolumeLimitScaling=true or VolumeLimitScaling=false", id="no value"
        ),
        pytest.param("VolumeLimitScaling=1", "got 'VolumeLimitScaling=1'", id="another value"),
    ],
)
def test_what_is_no_gate_is_a_fault(given: str, fault: str) -> None:
    with pytest.raises(ConfigurationError, match="featureGates") as raised:
        parsed(given)
    assert fault in str(raised.value)


def test_a_policys_gates_are_checked() -> None:
    with pytest.raises(ConfigurationError, match="expected a feature gate that can be set here: CompositePodGroup, "):
        read({**profile(), "featureGates": {"AnyVolumeDataSource": True}})


RESTARTS = [{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [1]}}]


@pytest.mark.parametrize("enabled", [pytest.param(True, id="on"), pytest.param(False, id="off")])
def test_node_declared_features(enabled: bool) -> None:
    table = table_of(make_node("n").obj(), features=FeatureGates(node_declared_features=enabled))
    pod = pod_info(make_pod("p").first_container(restartPolicyRules=RESTARTS).obj())
    assert (NodeDeclaredFeatures().prepare(pod, table) is not None) is enabled


@pytest.mark.parametrize("enabled", [pytest.param(True, id="on"), pytest.param(False, id="off")])
def test_storage_capacity_scoring(enabled: bool) -> None:
    objects = [make_node("n").obj(), make_storage_class("late"), make_pvc("c", storage_class="late")]
    table = table_of(*objects, features=FeatureGates(storage_capacity_scoring=enabled))
    scorer = VolumeBindingScore().prepare(pod_info(make_pod("p").pvc("c").obj()), table, table.nodes.rows)
    assert (scorer is not None) is enabled


def driver_that_must_be_installed() -> Object:
    driver: dict[str, Any] = make_csi_driver("d")
    return {**driver, "spec": {**driver.get("spec", {}), "preventPodSchedulingIfMissing": True}}


@pytest.mark.parametrize("enabled", [pytest.param(True, id="on"), pytest.param(False, id="off")])
def test_volume_limit_scaling(enabled: bool) -> None:
    volume = make_pv("v", claim="default/c", source={"csi": {"driver": "d", "volumeHandle": "h"}})
    objects = [make_node("n").obj(), volume, make_pvc("c", volume="v"), driver_that_must_be_installed()]
    table = table_of(*objects, features=FeatureGates(volume_limit_scaling=enabled))
    check = NodeVolumeLimits().prepare(pod_info(make_pod("p").pvc("c").obj()), table)
    assert check is not None
    refused = [refusal for mask, refusal in check.refuse(table.nodes.rows) if mask.any()]
    assert bool(refused) is enabled


def test_the_gate_of_fractional_ranges_reaches_the_allocator() -> None:
    for enabled in (False, True):
        table = table_of(make_node("n").obj(), features=FeatureGates(dra_fractional_capacity_range=enabled))
        assert devices_of(table).allocated.fractional is enabled

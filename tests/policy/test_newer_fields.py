"""Parts of a KubeSchedulerConfiguration that only newer versions of kube-scheduler have."""

from __future__ import annotations

from dataclasses import replace

import pytest
import yaml

from extender.errors import ConfigurationError
from extender.policy.loading import load_scheduler_configuration, read
from extender.table.features import VERSIONS
from tests.builders import Object
from tests.policy.configurations import profile

DEFAULT = profile()


@pytest.mark.parametrize(
    ("document", "fault"),
    [
        pytest.param(
            {**DEFAULT, "percentageOfPlacementsToScore": 50},
            "percentageOfPlacementsToScore: unknown field before Kubernetes 1.38",
            id="a field",
        ),
        pytest.param(
            profile(percentageOfPlacementsToScore=50),
            "profiles[0].percentageOfPlacementsToScore: unknown field before Kubernetes 1.38",
            id="a field of a profile",
        ),
        pytest.param(
            profile(plugins={"placementFeasible": {"enabled": [{"name": "GangScheduling"}]}}),
            "profiles[0].plugins.placementFeasible: unknown field before Kubernetes 1.38",
            id="an extension point",
        ),
        pytest.param(
            profile(plugins={"reserve": {"enabled": [{"name": "DefaultPreemption"}]}}),
            "profiles[0].plugins.reserve.enabled[0].name: DefaultPreemption does not implement the extension point"
            " reserve before Kubernetes 1.38",
            id="a point of a plugin",
        ),
    ],
)  # fmt: skip
def test_a_policy_may_have_the_fields_of_the_version_that_it_follows(document: Object, fault: str) -> None:
    for fields in ({}, {"kubernetesVersion": "1.38"}):
        read({**document, **fields})
    with pytest.raises(ConfigurationError) as refused:
        read({**document, "kubernetesVersion": "1.37"})
    assert refused.value.faults == (fault,)
    with pytest.raises(ConfigurationError) as refused:
        load_scheduler_configuration(yaml.safe_dump(document), VERSIONS["1.37"].features)
    assert refused.value.faults == (fault,)


def test_gang_scheduling_no_longer_runs_at_permit() -> None:
    document = profile(plugins={"permit": {"enabled": [{"name": "GangScheduling"}]}})
    for fields in ({}, {"kubernetesVersion": "1.37"}):
        read({**document, **fields})
    fault = (
        "profiles[0].plugins.permit.enabled[0].name: GangScheduling does not implement the extension point permit since"
        " Kubernetes 1.38"
    )
    with pytest.raises(ConfigurationError) as refused:
        read({**document, "kubernetesVersion": "1.38"})
    assert refused.value.faults == (fault,)
    with pytest.raises(ConfigurationError) as refused:
        load_scheduler_configuration(yaml.safe_dump(document), VERSIONS["1.38"].features)
    assert refused.value.faults == (fault,)


@pytest.mark.parametrize("path", ["", "profiles[0]."])
def test_kube_scheduler_refuses_a_percentage_of_placements_without_its_gate(path: str) -> None:
    fields = {"percentageOfPlacementsToScore": 50}
    document = profile(**fields) if path else {**DEFAULT, **fields}
    features = VERSIONS["1.38"].features
    load_scheduler_configuration(yaml.safe_dump(document), replace(features, topology_aware_workload_scheduling=True))
    with pytest.raises(ConfigurationError) as refused:
        load_scheduler_configuration(yaml.safe_dump(document), features)
    (found,) = refused.value.faults
    assert found.startswith(
        f"{path}percentageOfPlacementsToScore: kube-scheduler refuses it without the feature gate"
        " TopologyAwareWorkloadScheduling"
    )


@pytest.mark.parametrize("percentage", [-1, 101])
def test_the_percentage_of_placements_has_limits(percentage: int) -> None:
    with pytest.raises(ConfigurationError, match="percentageOfPlacementsToScore"):
        read({**DEFAULT, "percentageOfPlacementsToScore": percentage})

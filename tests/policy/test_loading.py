"""A policy's text: YAML or JSON, plain or in a ConfigMap."""

from __future__ import annotations

import json

import pytest

from extender.errors import ConfigurationError
from extender.policy.loading import load

POLICY = {"kind": "Policy", "apiVersion": "v1", "predicates": [{"name": "HostName"}], "priorities": []}
CONFIGURATION = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
  - schedulerName: mine
    percentageOfNodesToScore: 50   # half of them
"""


def config_map(**data: str) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "policy"}, "data": data})


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(json.dumps(POLICY), id="JSON"),
        pytest.param(json.dumps(POLICY).encode(), id="bytes"),
        pytest.param(config_map(**{"policy.cfg": json.dumps(POLICY)}), id="ConfigMap"),
        pytest.param(config_map(notes="see: below", policy=json.dumps(POLICY)), id="the one policy in a ConfigMap"),
        pytest.param(config_map(broken="{", policy=json.dumps(POLICY)), id="next to what is no YAML"),
    ],
)
def test_a_policy_is_found(text: str | bytes) -> None:
    [profile] = load(text).profiles
    assert "NodeName" in [rule.name for rule in profile.predicates]
    assert profile.priorities == []


@pytest.mark.parametrize("text", [CONFIGURATION, config_map(**{"config.yaml": CONFIGURATION})])
def test_a_configuration_is_found(text: str) -> None:
    [profile] = load(text).profiles
    assert (profile.name, profile.percentage_of_nodes_to_score) == ("mine", 50)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        pytest.param("a: b: c", "the document: line 1: mapping values are not allowed", id="no YAML"),
        pytest.param("kind: Policy\nkind: Policy", "the document: line 2: ", id="a key twice"),
        pytest.param("", "kind: expected KubeSchedulerConfiguration or Policy", id="nothing"),
        pytest.param("just text", "kind: expected KubeSchedulerConfiguration or Policy", id="text"),
        pytest.param("kind: 3", "kind: expected KubeSchedulerConfiguration or Policy", id="kind is a number"),
        pytest.param(
            config_map(),
            "data: expected one key with a KubeSchedulerConfiguration or Policy, got no keys",
            id="empty",
        ),
        pytest.param(
            config_map(a="kind: Policy", b="kind: Policy"),
            "data: expected one key with a KubeSchedulerConfiguration or Policy, got 2 of 2 keys",
            id="two policies",
        ),
        pytest.param(config_map(a="kind: Polisy"), "kind: expected ", id="wrong inside"),
    ],
)
def test_what_is_no_policy_says_so(text: str, fault: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load(text)
    [found] = caught.value.faults
    assert found.startswith(fault)

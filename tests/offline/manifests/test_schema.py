"""Objects that users write, held against the fields of the API."""

from __future__ import annotations

import json
from typing import Any

import pytest

from extender.offline.manifests import schema
from tests.builders import make_pod
from tests.offline.manifests.api_fields import api_fields


def test_the_fields_are_those_of_the_client() -> None:
    assert api_fields() == json.loads(json.dumps(schema._fields()))


def pod(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}


@pytest.mark.parametrize(
    ("obj", "fault"),
    [
        pytest.param(pod(nodeselector={}), "spec.nodeselector: unknown field (did you mean nodeSelector?)", id="case"),
        pytest.param(pod(toleration=[]), "spec.toleration: unknown field (did you mean tolerations?)", id="number"),
        pytest.param(
            pod(nodeSelector={"a": True}), "spec.nodeSelector.a: expected text (put it in quotes), got True", id="truth"
        ),
        pytest.param(pod(containers={}), "spec.containers: expected a list, got {}", id="no list"),
        pytest.param(pod(priority="7"), "spec.priority: expected a whole number, got '7'", id="text for a number"),
        pytest.param(
            pod(hostNetwork="yes"), "spec.hostNetwork: expected true or false, got 'yes'", id="text for a truth value"
        ),
        pytest.param(pod(affinity=[]), "spec.affinity: expected a mapping, got []", id="no mapping"),
        pytest.param(
            pod(containers=[{"ports": [{"protocol": "Tcp"}]}]),
            "spec.containers[0].ports[0].protocol: 'Tcp' is not one of TCP, UDP, SCTP (did you mean TCP?)",
            id="choice",
        ),
        pytest.param(
            pod(containers=[{"resources": {"requests": {"cpu": "1 core"}}}]),
            "spec.containers[0].resources.requests.cpu: '1 core' is not a quantity: "
            "expected a number with an optional suffix, like 100m or 2Gi",
            id="quantity",
        ),
        pytest.param(
            pod(containers=[{"resources": {"limits": {"memory": "-1"}}}]),
            "spec.containers[0].resources.limits.memory: must not be negative",
            id="negative",
        ),
        pytest.param(
            pod(topologySpreadConstraints=[{"maxSkew": 1, "topologyKey": "zone"}]),
            "spec.topologySpreadConstraints[0].whenUnsatisfiable: is missing",
            id="missing",
        ),
    ],
)
def test_a_fault_has_its_path(obj: dict[str, Any], fault: str) -> None:
    assert schema.faults("Pod", obj) == [fault]


def test_every_fault_of_an_object_is_reported() -> None:
    assert len(schema.faults("Pod", pod(nodeselector={}, priority="7", containers=[{"imge": "x"}]))) == 3


def test_a_pod_of_the_builders_has_no_fault() -> None:
    made = make_pod("p").req(cpu="1").host_port(80).spread("zone", labels={"a": "b"}).toleration("a").pvc("c").obj()
    assert schema.faults("Pod", made) == []

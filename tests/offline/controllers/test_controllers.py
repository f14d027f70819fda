"""The pods of workloads are those that kube-controller-manager made of them, recorded."""

from __future__ import annotations

import json

import pytest

from tests.builders import Object
from tests.offline.controllers.comparing import ours
from tests.offline.controllers.recording import recorded
from tests.offline.controllers.world import workloads

CASES = recorded()


def test_every_workload_is_recorded() -> None:
    assert [case["object"] for case in CASES] == json.loads(json.dumps(workloads()))


@pytest.mark.parametrize("case", CASES, ids=[case["object"]["metadata"]["namespace"] for case in CASES])
def test_a_workload_gets_the_pods_that_its_controller_makes(case: Object) -> None:
    assert ours(case["object"]) == {"pods": case["pods"], "claims": case["claims"]}

"""What API servers accept of pod groups and claims in one version of Kubernetes, and refuse in another."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from extender.errors import MalformedCluster
from extender.model.devices import ResourceClaim, ResourceClaimTemplate
from extender.model.meta import Object
from extender.model.pod_groups import CompositePodGroup, PodGroup
from extender.offline.manifests.admission import admitted
from tests.builders import make_composite_pod_group, make_pod_group
from tests.framework.cluster import table_of

CRITICAL = msgspec.convert(make_pod_group("g", 1, priorityClassName="system-node-critical"), PodGroup)
WHOLE: dict[str, Any] = {"disruptionMode": {"all": {}}}
NOT_A_GANG = 'spec.disruptionMode: cannot have "all" disruption mode when scheduling policy is other than "gang"'


def test_a_group_may_have_the_priority_of_a_system_class_since_1_38() -> None:
    group = admitted(CRITICAL, table_of().objects, limits_priorities=False)
    assert isinstance(group, PodGroup)
    assert group.priority == 2_000_001_000


def test_before_1_38_the_priority_of_a_group_has_a_maximum() -> None:
    with pytest.raises(MalformedCluster, match=r"spec\.priority: expected at most 1000000000, got 2000001000"):
        admitted(CRITICAL, table_of().objects)


def spec_of(amounts: dict[str, str], *, is_alternative: bool = False) -> dict[str, Any]:
    part = {"deviceClassName": "gpu", "capacity": {"requests": amounts}}
    request = {"firstAvailable": [{"name": "a", **part}]} if is_alternative else {"exactly": part}
    return {"devices": {"requests": [{"name": "r", **request}]}}


def claim(amounts: dict[str, str], *, is_alternative: bool = False) -> ResourceClaim:
    spec = spec_of(amounts, is_alternative=is_alternative)
    return msgspec.convert({"metadata": {"name": "c", "namespace": "default"}, "spec": spec}, ResourceClaim)


def template(amounts: dict[str, str]) -> ResourceClaimTemplate:
    document = {"metadata": {"name": "c", "namespace": "default"}, "spec": {"spec": spec_of(amounts)}}
    return msgspec.convert(document, ResourceClaimTemplate)


REFUSED_SINCE_1_38 = [
    pytest.param(
        claim({"memory": "-1Gi"}),
        "spec.devices.requests[0].exactly.capacity.requests[memory]: expected at least 0, got -1Gi",
        id="a negative amount",
    ),
    pytest.param(
        claim({"gpu.example.com/a/b": "1"}, is_alternative=True),
        "spec.devices.requests[0].firstAvailable[0].capacity.requests: 'gpu.example.com/a/b' is not a capacity:"
        " expected one like memory or example.com/memory",
        id="two slashes, in an alternative",
    ),
    pytest.param(
        template({"my-memory": "1"}),
        "spec.spec.devices.requests[0].exactly.capacity.requests: 'my-memory' is not a capacity:"
        " expected one like memory or example.com/memory",
        id="no identifier, in a template",
    ),
    pytest.param(
        claim({f"m{number}": "1" for number in range(33)}),
        "spec.devices.requests[0].exactly.capacity.requests: expected at most 32, got 33",
        id="too many",
    ),
    pytest.param(msgspec.convert(make_pod_group("g", **WHOLE), PodGroup), NOT_A_GANG, id="a basic group"),
    pytest.param(
        msgspec.convert(make_composite_pod_group("g", **WHOLE), CompositePodGroup), NOT_A_GANG, id="a basic tree"
    ),
]


@pytest.mark.parametrize(("obj", "fault"), REFUSED_SINCE_1_38)
def test_more_objects_are_refused_since_1_38(obj: Object, fault: str) -> None:
    objects = table_of().objects
    admitted(obj, objects)
    with pytest.raises(MalformedCluster) as refused:
        admitted(obj, objects, checks_more=True)
    assert fault in str(refused.value)


@pytest.mark.parametrize(
    "obj",
    [
        pytest.param(claim({"memory": "0", "gpu.example.com/memory": "1Gi"}), id="good names"),
        pytest.param(msgspec.convert(make_pod_group("g", 2, **WHOLE), PodGroup), id="a gang"),
    ],
)
def test_what_is_right_is_admitted_as_before(obj: Object) -> None:
    objects = table_of().objects
    assert admitted(obj, objects, checks_more=True) == admitted(obj, objects)

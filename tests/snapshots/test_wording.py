"""A field of the wrong type is described in plain words: where it is, what was expected, and what is there."""

from __future__ import annotations

from typing import Any

import pytest

from extender.errors import MalformedCluster
from extender.snapshots.objects import to_object
from tests.builders import Object


def node(**fields: Any) -> Object:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, **fields}


def group(spec: Any) -> Object:
    return {"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "metadata": {"name": "g"}, "spec": spec}


def labelled(labels: Any) -> Object:
    return node(metadata={"name": "n", "labels": labels})


def slice_of(attributes: Any) -> Object:
    devices = [{"name": "d", "attributes": attributes}]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": "s"},
        "spec": {"devices": devices},
    }


@pytest.mark.parametrize(
    ("obj", "fault"),
    [
        pytest.param(
            group({"schedulingPolicy": {"gang": {"minCount": "x"}}}),
            "spec.schedulingPolicy.gang.minCount: expected a whole number, got 'x'",
            id="text for a number",
        ),
        pytest.param(group(7), "spec: expected a mapping, got 7", id="number for a mapping"),
        pytest.param(group({"priority": True}), "spec.priority: expected a whole number, got True", id="optional"),
        pytest.param(
            group({"priority": 10**10}),
            "spec.priority: expected a whole number of at most 2147483647, got 10000000000",
            id="too large",
        ),
        pytest.param(
            node(spec={"taints": [{"key": "a"}, {"key": 5}]}),
            "spec.taints[1].key: expected text (put it in quotes), got 5",
            id="in a list",
        ),
        pytest.param(
            labelled({"good": "x", "bad": 1}),
            "metadata.labels.bad: expected text (put it in quotes), got 1",
            id="in a map",
        ),
        pytest.param(
            labelled({5: "x"}), "metadata.labels: expected text as the key (put it in quotes), got 5", id="a key"
        ),
        pytest.param(
            slice_of({"good": {"int": 1}, "bad": {"int": "x"}}),
            "spec.devices[0].attributes.bad.int: expected a whole number, got 'x'",
            id="below a map",
        ),
        pytest.param(
            node(status={"allocatable": {"memory": "1Gi", "cpu": [1]}}),
            "status.allocatable.cpu: expected a quantity, like 100m or 2Gi, got [1]",
            id="quantity",
        ),
        pytest.param(
            node(metadata={"name": "n", "creationTimestamp": "yesterday"}),
            "metadata.creationTimestamp: expected a time, like 2026-11-25T09:00:00Z, got 'yesterday'",
            id="time",
        ),
        pytest.param(
            node(metadata={"name": ["a" * 60]}),
            f"metadata.name: expected text, got ['{'a' * 38}...",
            id="a long value",
        ),
    ],
)
def test_a_wrong_type_is_described(obj: Object, fault: str) -> None:
    with pytest.raises(MalformedCluster) as caught:
        to_object(obj, "cluster.yaml: document 3")
    assert str(caught.value) == f"cluster.yaml: document 3: {fault}"

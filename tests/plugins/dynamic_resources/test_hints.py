"""DynamicResources: the events that may help."""

from __future__ import annotations

from typing import Any

import pytest

from extender.framework.cluster_events import Action, Change, ClusterEvent, Resource
from extender.model.devices import EXTENDED_RESOURCE_CLAIM_ANNOTATION, ResourceClaim
from tests.builders import (
    make_pod,
    make_resource_claim,
)
from tests.plugins.hint_case import helped, read, waiting_for
from tests.queue.queueing import QueueRecorder, info


def device_claim(name: str, *devices: str, allocated: bool = False, reserved: bool = False) -> ResourceClaim:
    results = [{"request": "r", "driver": "gpu", "pool": "n1", "device": device} for device in devices]
    status: dict[str, Any] = {"allocation": {"devices": {"results": results}}} if devices or allocated else {}
    status |= {"reservedFor": [{"resource": "pods", "name": "o", "uid": "o"}]} if reserved else {}
    return read(ResourceClaim, {**make_resource_claim(name, "gpu"), "status": status})


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param(None, device_claim("mine"), True, id="its claim comes"),
        pytest.param(None, device_claim("other"), False, id="another comes"),
        pytest.param(device_claim("mine"), device_claim("mine", allocated=True), True, id="its claim is allocated"),
        pytest.param(device_claim("mine"), device_claim("mine"), False, id="nothing changes"),
        pytest.param(device_claim("other", allocated=True), device_claim("other"), True, id="devices come free"),
        pytest.param(device_claim("other", allocated=True), None, True, id="devices come free by deletion"),
        pytest.param(device_claim("other", "d1", "d2"), device_claim("other", "d2", "d3"), True, id="one comes free"),
        pytest.param(device_claim("other", "d1"), device_claim("other", "d1", "d2"), False, id="one more is taken"),
        pytest.param(device_claim("mine"), None, False, id="its claim goes"),
        pytest.param(device_claim("generated"), device_claim("generated", reserved=True), True, id="a generated claim"),
    ],
)
def test_dynamic_resources(old: ResourceClaim | None, new: ResourceClaim | None, expected: bool) -> None:
    claims = [{"name": "a", "resourceClaimName": "mine"}, {"name": "b", "resourceClaimTemplateName": "t"}]
    statuses = [{"name": "b", "resourceClaimName": "generated"}]
    pod = info(make_pod("p").spec(resourceClaims=claims).status(resourceClaimStatuses=statuses))
    action = Action.ADD if old is None else Action.DELETE if new is None else Action.UPDATE
    assert helped("DynamicResources", pod, Resource.RESOURCE_CLAIM, action, old, new) is expected


def special_claim(*, owner_uid: str | None) -> ResourceClaim:
    """Returns a claim without devices that was created for the extended resources of the pod with this UID."""
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": owner_uid, "controller": True}
    built = make_resource_claim("special", "gpu")
    built["metadata"] |= {
        "annotations": {EXTENDED_RESOURCE_CLAIM_ANNOTATION: "true"},
        "ownerReferences": [owner] if owner_uid else [],
    }
    return read(ResourceClaim, built)


@pytest.mark.parametrize(("owner_uid", "expected"), [("mine", True), ("other", False), (None, False)])
def test_a_deleted_claim_for_extended_resources_wakes_only_its_owner(owner_uid: str | None, expected: bool) -> None:
    claim = special_claim(owner_uid=owner_uid)
    pod = info(make_pod("p").uid("mine"))
    assert helped("DynamicResources", pod, Resource.RESOURCE_CLAIM, Action.DELETE, claim) is expected
    recorded = QueueRecorder()
    queue = waiting_for("DynamicResources", pod, recorded)
    assert queue.move(Change(ClusterEvent(Resource.RESOURCE_CLAIM, Action.DELETE), claim)) == expected
    assert not recorded.failed


@pytest.mark.parametrize(("name", "expected"), [("mine", True), ("other", False)])
def test_a_new_claim_wakes_only_the_pods_that_use_it(name: str, expected: bool) -> None:
    recorded = QueueRecorder()
    pod = info(make_pod("p").spec(resourceClaims=[{"name": "a", "resourceClaimName": "mine"}]))
    queue = waiting_for("DynamicResources", pod, recorded)
    change = Change(ClusterEvent(Resource.RESOURCE_CLAIM, Action.ADD), None, device_claim(name))
    assert (queue.move(change), recorded.failed) == (expected, [])

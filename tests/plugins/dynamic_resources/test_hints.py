"""DynamicResources: the events that may help."""

from __future__ import annotations

from typing import Any

import pytest

from extender.framework.events.cluster_events import Action, Resource
from extender.model.devices.claims import ResourceClaim
from tests.builders import (
    make_pod,
    make_resource_claim,
)
from tests.plugins.hint_case import helped, read
from tests.queue.queueing import info


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

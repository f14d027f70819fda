"""DynamicResources: what devices there are, and who has them. The claims are in `device_claims`."""

from __future__ import annotations

from typing import Any

from tests.builders import ZONE, Builder, Object, expression, node_term
from tests.conformance.draft import Dice, Draft
from tests.conformance.features.device_claims import DRIVER, MODEL, claim_devices

MODELS = ("a100", "h100", "t4")


def add(dice: Dice, draft: Draft) -> None:
    _add_classes(dice, draft)
    for name in draft.node_names:
        if dice.chance(80):
            _add_pool(dice, draft, name)
    if dice.chance(30):
        _add_shared_pool(dice, draft)
    if dice.chance(12):
        rule = {"deviceSelector": {"driver": DRIVER, "device": "gpu-0"}, "taint": _taint(dice)}
        draft.add(_resource("DeviceTaintRule", "maintenance", rule))
    claim_devices(dice, draft)


def _add_classes(dice: Dice, draft: Draft) -> None:
    ours = f'device.driver == "{DRIVER}"'
    large = f'device.capacity["{DRIVER}"].memory.compareTo(quantity("80Gi")) >= 0'
    draft.add(
        _resource("DeviceClass", "gpu", {"selectors": _cel(ours), "extendedResourceName": "example.com/gpu"}),
        _resource("DeviceClass", "large", {"selectors": _cel(ours, large)}),
        _resource("DeviceClass", "any", {}),
    )


def _cel(*expressions: str) -> list[Object]:
    return [{"cel": {"expression": text}} for text in expressions]


def _resource(kind: str, name: str, spec: Object) -> Object:
    return {**Builder("resource.k8s.io/v1", kind, name).obj(), "spec": spec}


def _add_pool(dice: Dice, draft: Draft, node: str) -> None:
    devices = [_device(dice, number) for number in range(dice.count(1, 3))]
    partitioned = dice.chance(15)
    if partitioned:
        for device in devices:
            consumed = {"slices": {"value": dice.one("1", "2")}}
            device["consumesCounters"] = [{"counterSet": "card", "counters": consumed}]
        card = {"name": "card", "counters": {"slices": {"value": dice.one("2", "3")}}}
        draft.add(_slice(f"{node}-counters", node, 2, {"nodeName": node, "sharedCounters": [card]}))
    slices = 2 if partitioned or dice.chance(6) else 1
    draft.add(_slice(f"{node}-gpus", node, slices, {"nodeName": node, "devices": devices}))
    if dice.chance(6):
        old = _slice(f"{node}-old", node, 1, {"nodeName": node, "devices": [_device(dice, 7)]})
        old["spec"]["pool"]["generation"] = 0
        draft.add(old)


def _slice(name: str, pool: str, slices: int, spec: Object) -> Object:
    head = {"driver": DRIVER, "pool": {"name": pool, "generation": 1, "resourceSliceCount": slices}}
    return _resource("ResourceSlice", name, {**head, **spec})


def _add_shared_pool(dice: Dice, draft: Draft) -> None:
    """Devices that several nodes reach."""
    zone = {"nodeSelectorTerms": [node_term(expression(ZONE, "In", "z0"))]}
    devices = [_device(dice, number) for number in range(dice.count(1, 2))]
    reach: Object = dice.one({"nodeSelector": zone}, {"allNodes": True})
    if dice.chance(25):
        reach = {"perDeviceNodeSelection": True}
        for device in devices:
            device.update(dice.one({"nodeName": "n0"}, {"nodeSelector": zone}, {"allNodes": True}))
    draft.add(_slice("shared", "shared", 1, {**reach, "devices": devices}))


def _device(dice: Dice, number: int) -> Object:
    attributes: dict[str, Any] = {"index": {"int": number}, "mig": {"bool": dice.chance(50)}}
    if dice.chance(90):
        attributes[dice.one("model", MODEL)] = {"string": dice.one(*MODELS)}
    if dice.chance(30):
        attributes["firmware"] = {"version": dice.one("1.2.0", "1.10.0", "2.0.0-rc.1")}
    device: Object = {"name": f"gpu-{number}", "attributes": attributes}
    device["capacity"] = {"memory": {"value": dice.one("40Gi", "16Gi", "80Gi")}}
    if dice.chance(12):
        device["taints"] = [_taint(dice)]
    if dice.chance(12):
        device["allowMultipleAllocations"] = True
        if dice.chance(60):
            policy = {"default": "8Gi", "validRange": {"min": "4Gi", "step": "4Gi"}}
            device["capacity"]["memory"]["requestPolicy"] = dice.one(
                policy, {"default": "8Gi", "validValues": ["8Gi", "16Gi"]}
            )
    if dice.chance(4):
        device |= {"bindsToNode": True, "bindingConditions": ["ready"], "bindingFailureConditions": ["failed"]}
    return device


def _taint(dice: Dice) -> Object:
    effect = dice.one("NoSchedule", "NoExecute", "None")
    return {"key": "broken", "value": "yes", "effect": effect, "timeAdded": "2026-11-21T09:00:00Z"}

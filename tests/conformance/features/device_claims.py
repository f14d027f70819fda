"""DynamicResources: claims for devices, new ones and ones that have theirs."""

from __future__ import annotations

from typing import Any

from tests.builders import Builder, Object, PodBuilder, expression, node_term
from tests.conformance.draft import Dice, Draft

DRIVER = "gpu.example.com"
MODEL = f"{DRIVER}/model"

SELECTORS = (
    f'device.attributes["{DRIVER}"].model == "a100"',
    f'device.attributes["{DRIVER}"].model in ["h100", "t4"]',
    f'device.attributes["{DRIVER}"].model.startsWith("h")',
    f'device.attributes["{DRIVER}"].index < 2 && !device.attributes["{DRIVER}"].mig',
    f'device.attributes["{DRIVER}"].?model.orValue("none") != "none"',
    f'"model" in device.attributes["{DRIVER}"]',
    f'device.attributes["{DRIVER}"].firmware.compareTo(semver("1.9.0")) > 0',
    f'device.capacity["{DRIVER}"].memory.compareTo(quantity("40Gi")) >= 0',
    f'device.capacity["{DRIVER}"].memory.isGreaterThan(quantity("20Gi"))',
    'device.attributes["other.example.com"].model == "a100"',
    "device.allowMultipleAllocations == true",
    "true",
)


def claim_devices(dice: Dice, draft: Draft) -> None:
    for number, pod in enumerate(draft.pods):
        if dice.chance(35):
            _hold(dice, draft, pod, f"held-{number}")
    target = draft.target
    for number in range(dice.one(1, 1, 1, 2)):
        _claim(dice, draft, f"wanted-{number}")
    if dice.chance(15):
        target.req({"example.com/gpu": dice.one("1", "2")}).limit({"example.com/gpu": "2"})


def _claim(dice: Dice, draft: Draft, name: str) -> None:
    target = draft.target
    if dice.chance(12):  # made of a template, under a name that the pod's status has
        target.resource_claim(name, template=True)
        status = [{"name": name, "resourceClaimName": f"target-{name}"}]
        target.status(resourceClaimStatuses=status if dice.chance(80) else [])
        name = f"target-{name}"
    else:
        target.resource_claim(name)
    metadata = target.obj()["metadata"]
    claim = _empty_claim(name, metadata["namespace"])
    claim["spec"] = {"devices": _wanted(dice)}
    if name.startswith("target-"):
        owner = {"apiVersion": "v1", "kind": "Pod", "name": "target", "controller": True}
        claim["metadata"]["ownerReferences"] = [{**owner, "uid": dice.one(metadata["uid"], metadata["uid"], "another")}]
    if dice.chance(4):
        claim["metadata"]["deletionTimestamp"] = "2026-11-21T09:00:00Z"
    if dice.chance(15):
        node = dice.one(*draft.node_names)
        claim["status"] = {"allocation": _allocation(dice, node)}
        if dice.chance(50):
            claim["status"]["reservedFor"] = [{"resource": "pods", "name": "another", "uid": "another"}]
    if dice.chance(93):
        draft.add(claim)


def _empty_claim(name: str, namespace: str) -> Object:
    return Builder("resource.k8s.io/v1", "ResourceClaim", name, namespace).obj()


def _wanted(dice: Dice) -> Object:
    requests = [_request(dice, f"r{number}") for number in range(dice.one(1, 1, 1, 2))]
    names = [request["name"] for request in requests]
    wanted: Object = {"requests": requests}
    if dice.chance(20):
        kind = dice.one("matchAttribute", "matchAttribute", "distinctAttribute")
        attribute = dice.one(MODEL, MODEL, f"{DRIVER}/index")
        wanted["constraints"] = [{kind: attribute} | ({"requests": names} if dice.chance(50) else {})]
    return wanted


def _request(dice: Dice, name: str) -> Object:
    if dice.chance(20):
        return {"name": name, "firstAvailable": [_choice(dice, kind) for kind in ("large", "gpu")]}
    classes = ("gpu", "gpu", "gpu", "any", "any", "large", *(("none",) if dice.chance(10) else ()))
    exactly = _choice(dice, dice.one(*classes))
    del exactly["name"]
    if dice.chance(8):
        exactly["adminAccess"] = True
    return {"name": name, "exactly": exactly}


def _choice(dice: Dice, device_class: str) -> Object:
    choice: Object = {"name": device_class, "deviceClassName": device_class, "allocationMode": "ExactCount"}
    if dice.chance(15):
        choice["allocationMode"] = "All"
    else:
        choice["count"] = dice.one(1, 1, 1, 2, 3)
    if dice.chance(35):
        choice["selectors"] = [{"cel": {"expression": text}} for text in dice.some(SELECTORS, 1, dice.one(1, 1, 2))]
    if dice.chance(15):
        choice["tolerations"] = [
            dice.one({"operator": "Exists"}, {"key": "broken", "operator": "Equal", "value": "no"})
        ]
    if dice.chance(10):
        choice["capacity"] = {"requests": {"memory": dice.one("8Gi", "10Gi", "64Gi")}}
    return choice


def _hold(dice: Dice, draft: Draft, pod: PodBuilder, name: str) -> None:
    """The pod on its node has a device of that node."""
    obj = pod.obj()
    node, metadata = obj["spec"].get("nodeName"), obj["metadata"]
    if node is None:
        return
    claim = _empty_claim(name, metadata["namespace"])
    claim["spec"] = {"devices": {"requests": [_request(dice, "r0")]}}
    reserved = {"resource": "pods", "name": metadata["name"], "uid": metadata["uid"]}
    claim["status"] = {"allocation": _allocation(dice, node), "reservedFor": [reserved]}
    pod.resource_claim(name)
    draft.add(claim)


def _allocation(dice: Dice, node: str) -> Object:
    device: dict[str, Any] = {"request": "r0", "driver": DRIVER, "pool": node, "device": dice.one("gpu-0", "gpu-1")}
    if dice.chance(8):
        device["adminAccess"] = True
    if dice.chance(10):
        share = {"shareID": "00000000-0000-4000-8000-000000000001", "consumedCapacity": {"memory": "8Gi"}}
        device |= share
    terms = [node_term(fields=[expression("metadata.name", "In", node)])]
    return {"devices": {"results": [device]}, "nodeSelector": {"nodeSelectorTerms": terms}}

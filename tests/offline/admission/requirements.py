"""Requests and limits for the generator."""

from __future__ import annotations

from typing import Any

from extender.model.quantity import nano
from tests.offline.admission.dice import Dice

_AMOUNTS = {
    "cpu": ("0", "100m", "0.5", "1", "1500m", "2", "0.0001"),
    "memory": ("16Mi", "64Mi", "1Gi", "1500M", "2Gi", "1e9"),
    "ephemeral-storage": ("1Gi", "5Gi"),
}
_EXTENDED = "example.com/gpu"


def of_container(dice: Dice) -> dict[str, Any]:
    resources = _drawn(dice, 60)
    if dice.chance(12):
        amount = dice.one("1", "2")
        resources.setdefault("limits", {})[_EXTENDED] = amount
        resources.setdefault("requests", {}).update(dice.maybe(50, **{_EXTENDED: amount}))
    if dice.chance(15):
        resources.setdefault("limits", {})["hugepages-2Mi"] = dice.one("2Mi", "4Mi")
    resources.setdefault("requests", {}).update(dice.maybe(2, **{"kubernetes.io/anything": "1"}))
    dice.spoil(
        resources,
        9,
        plural_cpus,
        capital_memory,
        unknown_name,
        request_above_limit,
        part_of_a_device,
        device_without_limit,
        fewer_devices_than_limit,
        odd_huge_pages,
        only_huge_pages,
        huge_page_of_no_size,
        negative,
        no_quantity,
        bad_resource_name,
        quota_name,
        pods_resource,
    )
    return resources


def whole(dice: Dice) -> dict[str, Any]:
    """Returns resources of a pod as a whole."""
    resources = _drawn(dice, 50, "cpu", "memory")
    for amounts in resources.values():
        if dice.chance(60):
            amounts.update({name: dice.one("4", "8") if name == "cpu" else "8Gi" for name in amounts})
    resources.get("limits", {}).update(dice.maybe(15, **{"hugepages-2Mi": dice.one("2Mi", "8Mi")}))
    dice.spoil(resources, 12, storage_of_the_whole, plural_cpus, request_above_limit, claims_of_the_whole)
    return resources


def _drawn(dice: Dice, percent: float, *names: str) -> dict[str, Any]:
    resources: dict[str, Any] = {}
    for name in names or _AMOUNTS:
        amounts = sorted((dice.one(*_AMOUNTS[name]) for _ in range(2)), key=nano)
        if dice.chance(3):
            amounts.reverse()
        for field, amount in zip(("requests", "limits"), amounts, strict=True):
            if dice.chance(percent if name != "ephemeral-storage" else 10):
                resources.setdefault(field, {})[name] = amount
    return resources


def plural_cpus(resources: Any) -> None:
    resources["requests"] = {"cpus": "500m"}


def capital_memory(resources: Any) -> None:
    resources["requests"] = {"Memory": "1Gi"}


def unknown_name(resources: Any) -> None:
    resources["limits"] = {"gpu": "1"}


def request_above_limit(resources: Any) -> None:
    resources["requests"], resources["limits"] = {"cpu": "2"}, {"cpu": "1"}


def part_of_a_device(resources: Any) -> None:
    resources["limits"] = {_EXTENDED: "0.5"}


def device_without_limit(resources: Any) -> None:
    resources["requests"] = {_EXTENDED: "3"}
    resources.get("limits", {}).pop(_EXTENDED, None)


def fewer_devices_than_limit(resources: Any) -> None:
    resources["requests"], resources["limits"] = {_EXTENDED: "1"}, {_EXTENDED: "2"}


def odd_huge_pages(resources: Any) -> None:
    resources["limits"] = {"hugepages-2Mi": "3Mi", "cpu": "1"}
    resources.pop("requests", None)


def only_huge_pages(resources: Any) -> None:
    resources["limits"] = {"hugepages-2Mi": "4Mi"}
    resources.pop("requests", None)


def huge_page_of_no_size(resources: Any) -> None:
    resources["limits"] = {"hugepages-big": "4Mi", "cpu": "1"}


def negative(resources: Any) -> None:
    resources["requests"] = {"cpu": "-1"}


def no_quantity(resources: Any) -> None:
    resources["requests"] = {"cpu": "one"}


def bad_resource_name(resources: Any) -> None:
    resources["limits"] = {"example.com/a b": "1"}


def quota_name(resources: Any) -> None:
    resources["limits"] = {"requests.example.com/gpu": "1"}


def pods_resource(resources: Any) -> None:
    resources["requests"] = {"pods": "1"}


def storage_of_the_whole(resources: Any) -> None:
    resources["requests"] = {"ephemeral-storage": "1Gi"}


def claims_of_the_whole(resources: Any) -> None:
    resources["claims"] = [{"name": "gpu"}]

"""PodTopologySpread: constraints, system defaults, and pods that are unevenly placed."""

from __future__ import annotations

from typing import Any

from tests.builders import TIMESTAMP, Builder, Object, make_service
from tests.conformance.draft import TOPOLOGY_KEYS, Dice, Draft, label_selector


def add(dice: Dice, draft: Draft) -> None:
    _crowd(dice, draft)
    if dice.chance(75):
        for _ in range(dice.count(1, 3)):
            constrain(dice, draft)
    if dice.chance(45):
        _belong(dice, draft)


def _crowd(dice: Dice, draft: Draft) -> None:
    """Most pods are such as the target's constraints count."""
    like = draft.target.obj()["metadata"]
    for pod in draft.pods:
        if dice.chance(60):
            pod.namespace(like["namespace"]).label(like.get("labels"))


def constrain(dice: Dice, draft: Draft) -> None:
    """One more constraint on the target, unless it has one of the same key and strength (the API allows no two)."""
    key, soft = dice.one(*TOPOLOGY_KEYS), dice.chance(35)
    more: dict[str, Any] = {}
    if not soft and dice.chance(30):
        more["minDomains"] = dice.count(1, 4)
    if dice.chance(30):
        more["nodeAffinityPolicy"] = dice.one("Honor", "Ignore")
    if dice.chance(30):
        more["nodeTaintsPolicy"] = dice.one("Honor", "Ignore")
    if dice.chance(25):
        more["matchLabelKeys"] = dice.some(("tier", "hash", "absent"), 1, 2)
    if dice.chance(90):
        more["labelSelector"] = label_selector(dice) if dice.chance(50) else {"matchLabels": {"app": "web"}}
    constraints = draft.target.obj()["spec"].get("topologySpreadConstraints", [])
    known = {(known["topologyKey"], known["whenUnsatisfiable"]) for known in constraints}
    if (key, "ScheduleAnyway" if soft else "DoNotSchedule") not in known:
        draft.target.spread(key, max_skew=dice.one(1, 1, 2, 5), soft=soft, **more)


def _belong(dice: Dice, draft: Draft) -> None:
    """A service or a controller selects the target, which the system's default constraints go by."""
    metadata = draft.target.obj()["metadata"]
    namespace, labels = metadata["namespace"], metadata.get("labels", {})
    selector = {"app": labels.get("app", "web")}
    for number in range(dice.count(0, 2)):
        draft.add(make_service(f"svc-{number}", dice.one(selector, {"tier": "front"}, {}), namespace=namespace))
    if dice.chance(50):
        kind, api_version = dice.one(
            ("ReplicaSet", "apps/v1"), ("StatefulSet", "apps/v1"), ("ReplicationController", "v1"), ("Job", "batch/v1")
        )
        draft.target.owner(kind, "owner", api_version=api_version)
        if kind != "Job" and dice.chance(90):
            draft.add(_controller(kind, api_version, namespace, selector))


def _controller(kind: str, api_version: str, namespace: str, labels: dict[str, str]) -> Object:
    obj = Builder(api_version, kind, "owner", namespace).created(TIMESTAMP).obj()
    return {**obj, "spec": {"selector": labels if kind == "ReplicationController" else {"matchLabels": labels}}}

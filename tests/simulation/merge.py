"""Strategic merge patches, as far as schedulers send them."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]


def merged_status(status: Json, patch: Json) -> Json:
    """A pod's status: conditions by their type, null takes away."""
    conditions: dict[str, Json] = {}
    for each in (*status.get("conditions", []), *patch.get("conditions", [])):
        conditions[each["type"]] = {**conditions.get(each["type"], {}), **each}
    return _merged(status, {**patch, "conditions": list(conditions.values())})


def merged_claim(claim: Json, patch: Json, *, status: bool) -> Json:
    """A ResourceClaim, or only its status: users by their UID, finalizers by themselves."""
    if status:
        before, change = claim.get("status", {}), patch["status"]
        if change.get("reservedFor"):
            change = {**change, "reservedFor": _users(before.get("reservedFor") or [], change["reservedFor"])}
        return {**claim, "status": _merged(before, change)}
    metadata, sent = claim["metadata"], patch["metadata"]
    away = sent.get("$deleteFromPrimitiveList/finalizers", [])
    finalizers = {*metadata.get("finalizers", []), *sent.get("finalizers", [])} - {*away}
    return {**claim, "metadata": {**metadata, "finalizers": sorted(finalizers)}}


def _users(before: list[Json], patch: list[Json]) -> list[Json]:
    users = {each["uid"]: each for each in (*before, *patch)}
    return [each for each in users.values() if each.get("$patch") != "delete"]


def _merged(before: Json, patch: Json) -> Json:
    return {name: value for name, value in {**before, **patch}.items() if value is not None}

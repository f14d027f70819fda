"""Gives members claims for devices: each its own, or one that members share by its name."""

from __future__ import annotations

import copy

from tests.builders import Object
from tests.conformance.draft import Dice, Draft
from tests.conformance.features import devices

_OWN_PERCENT = 70


def add(dice: Dice, drafted: Draft) -> None:
    devices.add(dice, drafted)


def share_out(dice: Dice, drafted: Draft, members: list[Object]) -> list[Object]:
    """Returns the claims of the members; most of the target's claims become one claim for each member.

    Members share only a claim beside which they need no other devices: stock mixes them up; see docs/differences.md.
    """
    copies: list[Object] = []
    claims = {each["metadata"]["name"]: each for each in drafted.objects if each["kind"] == "ResourceClaim"}
    spec = drafted.target.obj()["spec"]
    entries = spec.get("resourceClaims", [])
    may_share = len(entries) == 1 and "example.com/gpu" not in spec["containers"][0]["resources"].get("requests", {})
    for entry in entries:
        by_template = "resourceClaimTemplateName" in entry
        claim = claims.get(f"target-{entry['name']}" if by_template else entry["name"])
        if claim is not None and (by_template or not may_share or dice.chance(_OWN_PERCENT)):
            copies += [_own(entry["name"], claim, member) for member in members]
    return copies


def _own(entry_name: str, claim: Object, member: Object) -> Object:
    """Points the member's entry to a copy of the claim, which is returned."""
    name = f"{claim['metadata']['name']}-{member['metadata']['name']}"
    own = copy.deepcopy(claim)
    own["metadata"] |= {"name": name, "uid": name}
    for owner in own["metadata"].get("ownerReferences", ()):
        owner |= {"name": member["metadata"]["name"], "uid": member["metadata"]["uid"]}
    for entry in member["spec"]["resourceClaims"]:
        if entry["name"] == entry_name and "resourceClaimName" in entry:
            entry["resourceClaimName"] = name
    for status in member.get("status", {}).get("resourceClaimStatuses", ()):
        if status["name"] == entry_name:
            status["resourceClaimName"] = name
    return own

"""Gives members claims for devices: each its own, or one that members share by its name."""

from __future__ import annotations

import copy

from tests.builders import Object
from tests.conformance.draft import Dice, Draft
from tests.conformance.features import devices

_OWN_PERCENT = 70
_OWN_PERCENT_IN_GROUP = 20


def add(dice: Dice, drafted: Draft) -> None:
    devices.add(dice, drafted)


def share_out(dice: Dice, drafted: Draft, members: list[Object], group: Object | None = None) -> list[Object]:
    """Returns the claims of the members; most of the target's claims become one claim for each member.

    A claim that stays is shared by its name or, if there is a group, mostly through the group.

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
        is_own = by_template or not may_share or dice.chance(_OWN_PERCENT_IN_GROUP if group else _OWN_PERCENT)
        if claim is not None and is_own:
            copies += [_own(entry["name"], claim, member) for member in members]
        elif group is not None and dice.chance(85):
            _give(dice, group, entry, claim, members)
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


def _give(dice: Dice, group: Object, entry: Object, claim: Object | None, members: list[Object]) -> None:
    """Makes the claim one of the group: named by it, or made of its template, and perhaps reserved for it already."""
    metadata = group["metadata"]
    if claim is not None and dice.chance(30):
        entry = {"name": entry["name"], "resourceClaimTemplateName": "template"}
        _make_of_template(group, entry, claim, members, is_made=dice.chance(90))
    group["spec"]["resourceClaims"] = [dict(entry)]
    if claim is not None and claim.get("status", {}).get("reservedFor") and dice.chance(70):
        reference = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": metadata["name"]}
        claim["status"]["reservedFor"] = [{**reference, "uid": metadata["uid"]}]


def _make_of_template(group: Object, entry: Object, claim: Object, members: list[Object], *, is_made: bool) -> None:
    """Lets the group own the claim, whose name the group and its members have in their status once it is made."""
    owner = {"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "name": group["metadata"]["name"]}
    claim["metadata"]["ownerReferences"] = [{**owner, "uid": group["metadata"]["uid"], "controller": True}]
    status = {"name": entry["name"], "resourceClaimName": claim["metadata"]["name"]}
    for member in members:
        member["spec"]["resourceClaims"] = [dict(entry)]
    for each in (group, *members) if is_made else ():
        each["status"] = {**each.get("status", {}), "resourceClaimStatuses": [dict(status)]}

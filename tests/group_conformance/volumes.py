"""Keeps groups of a tree from using volume claims that are not bound yet one after the other."""

from __future__ import annotations

from tests.builders import Object
from tests.conformance.draft import Draft


def leave_to_first(drafted: Draft, groups: list[Object]) -> None:
    """Removes the target's unbound claims from the members of all groups but the first.

    Stock forgets, while it decides about a later group, which volume or node a claim gets; see docs/differences.md.
    """
    claims = [each for each in drafted.objects if each["kind"] == "PersistentVolumeClaim"]
    unbound = {each["metadata"]["name"] for each in claims if "volumeName" not in each["spec"]}
    members = [each for each in groups if each["kind"] == "Pod"]
    first = members[0]["spec"]["schedulingGroup"] if members else None
    for member in members:
        spec = member["spec"]
        if spec["schedulingGroup"] != first and "volumes" in spec:
            spec["volumes"] = [each for each in spec["volumes"] if _claim_of(each) not in unbound]


def _claim_of(volume: Object) -> str | None:
    name: str | None = volume.get("persistentVolumeClaim", {}).get("claimName")
    return name

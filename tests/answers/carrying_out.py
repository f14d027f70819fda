"""Carries out a suggested change for a group on the objects of a cluster, as a reader of its JSON would."""

from __future__ import annotations

from collections.abc import Sequence

from tests.builders import Object

_VERSIONS = {
    "PodGroup": "scheduling.k8s.io/v1beta1",
    "CompositePodGroup": "scheduling.k8s.io/v1alpha3",
    "ResourceClaim": "resource.k8s.io/v1",
    "ResourceSlice": "resource.k8s.io/v1",
    "CSINode": "storage.k8s.io/v1",
}


def carried_out(objects: Sequence[Object], change: Object) -> list[Object]:
    """Returns the objects after the change (SuggestedChange.to_dict of a change to a group)."""
    removed = set(change.get("removed", ()))
    specs = {key: each["spec"] for each in change.get("members", ()) for key in each["pods"]}
    written = {
        _identity(obj): {"apiVersion": _VERSIONS.get(obj["kind"], "v1"), **obj} for obj in change.get("objects", ())
    }
    after = []
    for obj in objects:
        key = f"{obj['metadata'].get('namespace', 'default')}/{obj['metadata']['name']}"
        if obj["kind"] == "Pod" and key in removed:
            continue
        obj = written.pop(_identity(obj), obj)
        after.append({**obj, "spec": specs[key]} if obj["kind"] == "Pod" and key in specs else obj)
    return [*after, *written.values()]


def _identity(obj: Object) -> tuple[str, str, str]:
    metadata = obj["metadata"]
    return obj["kind"], metadata.get("namespace", ""), metadata["name"]

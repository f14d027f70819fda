"""Metadata, which the builders of all kinds share."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Self

Object = dict[str, Any]

HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
REGION = "topology.kubernetes.io/region"
TIMESTAMP = "2026-11-21T09:00:00Z"


def stored(obj: Object) -> Object:
    """Returns the object as if an API server had stored it: then answers neither complete it nor refuse it."""
    return {**obj, "metadata": {"creationTimestamp": TIMESTAMP, **obj["metadata"]}}


class Builder:
    """Metadata, which every kind has. The UID is made of namespace and name (the API server replaces it)."""

    def __init__(self, api_version: str, kind: str, name: str, namespace: str | None = None) -> None:
        self._metadata: Object = {"name": name}
        if namespace is not None:
            self._metadata["namespace"] = namespace
        self._metadata["uid"] = "-".join(part for part in (kind.lower(), namespace, name) if part)
        self._object: Object = {"apiVersion": api_version, "kind": kind, "metadata": self._metadata}

    def namespace(self, namespace: str) -> Self:
        self._metadata["namespace"] = namespace
        return self

    def label(self, labels: Mapping[str, str] | None = None, /, **more: str) -> Self:
        """Keys that are no Python names come as a mapping: `.label({ZONE: "z1"}, app="web")`."""
        self._metadata.setdefault("labels", {}).update({**(labels or {}), **more})
        return self

    def annotation(self, annotations: Mapping[str, str]) -> Self:
        self._metadata.setdefault("annotations", {}).update(annotations)
        return self

    def uid(self, uid: str) -> Self:
        self._metadata["uid"] = uid
        return self

    def resource_version(self, version: int | str) -> Self:
        """Not for objects to be created: the API server refuses them with a resourceVersion."""
        self._metadata["resourceVersion"] = str(version)
        return self

    def created(self, timestamp: str) -> Self:
        self._metadata["creationTimestamp"] = timestamp
        return self

    def deleted(self, timestamp: str = TIMESTAMP) -> Self:
        """Terminating."""
        self._metadata["deletionTimestamp"] = timestamp
        return self

    def owner(self, kind: str, name: str, *, api_version: str = "apps/v1", uid: str | None = None) -> Self:
        """Adds a controlling owner reference."""
        reference = {"apiVersion": api_version, "kind": kind, "name": name, "uid": uid or f"{kind.lower()}-{name}"}
        self._metadata.setdefault("ownerReferences", []).append({**reference, "controller": True})
        return self

    def obj(self) -> Object:
        return copy.deepcopy(self._object)

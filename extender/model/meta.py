"""Defines the metadata of all Kubernetes objects, and the selectors that several kinds use.

Only fields that are used are declared; msgspec skips the others. Go writes `null` for empty maps, slices and pointers,
so every field may be None.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any

import msgspec

Labels = dict[str, str]
Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
NO_LABELS: Mapping[str, str] = {}


class Value(msgspec.Struct, frozen=True, gc=False, rename="camel", kw_only=True, omit_defaults=True):
    """The base of all API types. The garbage collector skips its instances, because immutable values form no cycles."""


class OwnerReference(Value, frozen=True):
    kind: str = ""
    name: str = ""
    uid: str = ""
    api_version: str = ""
    controller: bool | None = None


class ObjectMeta(Value, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    labels: Labels | None = None
    annotations: dict[str, str] | None = None
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    owner_references: list[OwnerReference] | None = None

    @property
    def created_seconds(self) -> float:
        """The time of creation in seconds since the epoch; 0 if it is unknown."""
        return self.creation_timestamp.timestamp() if self.creation_timestamp else 0.0


class Object(Value, frozen=True):
    """The base of all kinds of Kubernetes objects."""

    metadata: ObjectMeta = ObjectMeta()

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def namespace(self) -> str:
        return self.metadata.namespace

    @property
    def uid(self) -> str:
        return self.metadata.uid

    @property
    def labels(self) -> Mapping[str, str]:
        return self.metadata.labels or NO_LABELS

    @property
    def annotations(self) -> Mapping[str, str]:
        return self.metadata.annotations or NO_LABELS

    @property
    def terminating(self) -> bool:
        return self.metadata.deletion_timestamp is not None

    @property
    def key(self) -> str:
        """`namespace/name`, or `name` if the object has no namespace."""
        return f"{self.metadata.namespace}/{self.metadata.name}" if self.metadata.namespace else self.metadata.name

    @property
    def controller(self) -> OwnerReference | None:
        """The owner that controls this object, if any (upstream metav1.GetControllerOf)."""
        return next((owner for owner in self.metadata.owner_references or () if owner.controller), None)


class CustomObject(Object, frozen=True):
    """An object of a kind that a policy lists under `watch`. Only users' rules read it.

    Attributes:
        content: the whole object, as the API server sends it. A rule must not change it.
    """

    content: Mapping[str, Any] = {}


def custom_type(kind: str) -> type[CustomObject]:
    """Creates a type for the objects of a custom kind. The type has the name of the kind."""
    return msgspec.defstruct(kind, (), bases=(CustomObject,), frozen=True, gc=False)  # type: ignore[return-value]


class LabelSelectorRequirement(Value, frozen=True):
    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class LabelSelector(Value, frozen=True):
    match_labels: Labels | None = None
    match_expressions: list[LabelSelectorRequirement] | None = None


class NodeSelectorRequirement(LabelSelectorRequirement, frozen=True):
    """A requirement on a label or a field of a node; it has the operators Gt and Lt, too."""


class NodeSelectorTerm(Value, frozen=True):
    match_expressions: list[NodeSelectorRequirement] | None = None
    match_fields: list[NodeSelectorRequirement] | None = None


class NodeSelector(Value, frozen=True):
    node_selector_terms: list[NodeSelectorTerm] | None = None


class Condition(Value, frozen=True):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""

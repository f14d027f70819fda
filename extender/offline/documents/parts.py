"""The parts that models of several kinds of document share."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from extender.offline.documents.codes import CauseCode

_CHANGES = (
    "requests|tolerations|node-selection|spread|pod-affinity|host-ports|node-name|volume-claim|device-claim|uncordon|"
    "label-node|remove-pods|free-devices|add-node|min-count|topology|scheduling-gates|create-pods|create-group|"
    "member-fields"
)
ChangeKind = Annotated[str, Field(pattern=rf"^({_CHANGES})(\+({_CHANGES}))*$")]
Code = Annotated[CauseCode, Field(strict=False)]


class DocumentPart(BaseModel):
    model_config = ConfigDict(
        strict=True, extra="allow", alias_generator=to_camel, use_attribute_docstrings=True, use_enum_values=True
    )


class Document(DocumentPart):
    api_version: Literal["podseat/v1alpha1"]


class _ChangedMembers(DocumentPart):
    pods: list[str]
    spec: dict[str, Any]


class ChangePart(DocumentPart):
    kind: ChangeKind
    text: str
    size: float
    nodes: list[str]
    spec: dict[str, Any] | None = None
    removed: list[str] | None = None
    objects: list[dict[str, Any]] | None = None
    members: list[_ChangedMembers] | None = None
    """The changed members of a pod group."""

"""Pods and nodes with the JSON that they were read from, for extenders that get whole objects.

The model has only the fields that are used here; an extender may need others.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from extender.model.meta import Object
from extender.model.node import Node
from extender.model.pod import Pod

_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ENCODE = msgspec.json.Encoder().encode


class WholePod(Pod, frozen=True):
    """A pod with the JSON that `document` made of it."""

    document: bytes = b""


class WholeNode(Node, frozen=True):
    """A node with the JSON that `document` made of it."""

    document: bytes = b""


WHOLE: Mapping[type[Object], type[Object]] = {Pod: WholePod, Node: WholeNode}


def document(raw: bytes | msgspec.Raw, *, managed: bool) -> bytes:
    """Returns an object's JSON as kube-scheduler sends it: without kind and apiVersion.

    kube-scheduler's informers drop managedFields of pods only. `managed` is True if they stay.

    Raises:
        msgspec.DecodeError: `raw` is not a JSON object.
    """
    fields = {name: value for name, value in _FIELDS.decode(raw).items() if name not in ("kind", "apiVersion")}
    if managed:
        return _ENCODE(fields)
    metadata = _FIELDS.decode(fields.get("metadata", b"{}"))
    metadata.pop("managedFields", None)
    return _ENCODE({**fields, "metadata": metadata})


def document_of(obj: Object) -> bytes:
    """Returns the JSON that the object was read from, or else that of its known fields."""
    original: bytes = getattr(obj, "document", b"")
    return original or _ENCODE(obj)

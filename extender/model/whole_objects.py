"""Stores the JSON of pods and nodes, because other extenders receive whole objects.

The structs of the model have only the fields that this package uses; another extender may need more.
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
    """A pod with its whole JSON, as `document` returns it."""

    document: bytes = b""


class WholeNode(Node, frozen=True):
    """A node with its whole JSON, as `document` returns it."""

    document: bytes = b""


WHOLE: Mapping[type[Object], type[Object]] = {Pod: WholePod, Node: WholeNode}


def document(raw: bytes | msgspec.Raw, *, managed: bool) -> bytes:
    """Returns an object's JSON as kube-scheduler sends it: without kind and apiVersion.

    `managed` is True to keep metadata.managedFields. kube-scheduler drops this field from pods, but not from nodes.

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
    """Returns the JSON that the object was read from. If this JSON was not stored, encodes the struct's fields."""
    original: bytes = getattr(obj, "document", b"")
    return original or _ENCODE(obj)

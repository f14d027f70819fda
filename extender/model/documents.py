"""Objects that keep the JSON that they were read from, for those who are to get them whole.

The model has only the fields that something here reads; an extender may read others.
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
    """A pod, and its JSON as `document` makes it."""

    document: bytes = b""


class WholeNode(Node, frozen=True):
    """A node, and its JSON as `document` makes it."""

    document: bytes = b""


WHOLE: Mapping[type[Object], type[Object]] = {Pod: WholePod, Node: WholeNode}


def document(raw: bytes | msgspec.Raw, *, managed: bool) -> bytes:
    """The JSON of an object as the stock scheduler sends it, without kind and apiVersion.

    Its informers take managedFields off pods and off nothing else: hence `managed`.

    Raises:
        msgspec.DecodeError: it is no object.
    """
    fields = {name: value for name, value in _FIELDS.decode(raw).items() if name not in ("kind", "apiVersion")}
    if managed:
        return _ENCODE(fields)
    metadata = _FIELDS.decode(fields.get("metadata", b"{}"))
    metadata.pop("managedFields", None)
    return _ENCODE({**fields, "metadata": metadata})


def document_of(obj: Object) -> bytes:
    """The object's JSON as it was read, or of what is known of it."""
    kept: bytes = getattr(obj, "document", b"")
    return kept or _ENCODE(obj)

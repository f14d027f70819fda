"""Decodes one field of a payload, and says where it stood if it is not what it should be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from extender.errors import MalformedRequest
from extender.model.node import Node
from extender.model.pod import Pod

T = TypeVar("T")
RawObject = dict[str, msgspec.Raw]
NULL = msgspec.Raw(b"null")
UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

_STORED = (Pod, Node)
# The API server takes requests of up to 3 MiB, and etcd values of up to 1.5. Empty structures are a hundred times as
# large in memory as in JSON.
_LARGEST_OBJECT_BYTES = 3 * 1024 * 1024
# A map of so many takes a second, and no other thread works meanwhile: msgspec holds the interpreter.
_MOST_VALUES = 1_000_000
_FORMS: tuple[Any, ...] = (Pod, Node, str, int, list[str], list[msgspec.Raw], RawObject)
# Built here, on import: two threads at once in a type that is not built yet crash in msgspec.
_DECODERS: dict[Any, msgspec.json.Decoder[Any]] = {form: msgspec.json.Decoder(form) for form in _FORMS}


def decode_as(raw: msgspec.Raw, form: type[T], where: str) -> T:
    """Returns the value; `where` names it in errors. Raises MalformedRequest."""
    if form in _STORED and (size := len(memoryview(raw))) > _LARGEST_OBJECT_BYTES:
        raise MalformedRequest(f"{where}: {size} bytes, and no API server keeps an object of that size")
    if form is RawObject:
        check_values(bytes(raw), where)
    try:
        value: T = _DECODERS[form].decode(raw)
    except UNDECODABLE as error:
        raise MalformedRequest(f"{where}: {error}") from None
    return value


def check_values(data: bytes, where: str) -> None:
    """Raises MalformedRequest where a map may be so large that nobody else is answered meanwhile."""
    if (commas := data.count(b",")) > _MOST_VALUES:
        raise MalformedRequest(f"{where} holds {commas} values, more than {_MOST_VALUES}")


def optional_as(raw: msgspec.Raw | None, form: type[T], where: str) -> T | None:
    """Returns None for a field that is missing or null, else what `decode_as` returns."""
    if raw is None or raw == NULL:
        return None
    return decode_as(raw, form, where)


def lower_keys(fields: Mapping[str, msgspec.Raw]) -> RawObject:
    """Returns the fields with their keys in lower case: schedulers of old wrote no capitals."""
    return {key.lower(): value for key, value in fields.items()}

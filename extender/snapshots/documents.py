"""Splits a text into documents, and documents into objects, as kubectl does.

A text holds JSON values, YAML documents, or first JSON values and then YAML. A list may hold lists.

Source: upstream apimachinery pkg/util/yaml/decoder.go, pkg/apis/meta/v1/unstructured/helpers.go.
"""

from __future__ import annotations

import json
import re
from codecs import BOM_UTF8
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from extender.errors import MalformedCluster, MalformedInput
from extender.runtime import strict_yaml

NO_OBJECT = "expected an object with kind, apiVersion and metadata"
_BLANK = re.compile(r"\s*")
_OBJECT_FIELDS = frozenset(("kind", "apiVersion", "metadata", "items"))


def is_object(document: object) -> bool:
    """Returns True if the document is an object, perhaps a faulty one. A chart's values may have a `kind` too."""
    return isinstance(document, Mapping) and len(_OBJECT_FIELDS & document.keys()) > 1


def leading_json(data: bytes) -> tuple[Sequence[bytes], bytes, str]:
    """Returns the JSON objects at the beginning, the rest of the text, and what is wrong with the rest as JSON.

    The rest is YAML, or empty; the lines of the objects are blank in it, so that it keeps its line numbers.
    """
    if data.lstrip()[:1] != b"{":
        return [], data, ""
    try:
        msgspec.json.decode(data, type=msgspec.Raw)
    except (msgspec.DecodeError, RecursionError) as error:
        decoder, text, begin = json.JSONDecoder(), data.decode("utf-8", "surrogateescape"), 0
        values = []
        while text.startswith("{", begin := _BLANK.match(text, begin).end()):  # type: ignore[union-attr]  # always matches
            try:
                end = decoder.raw_decode(text, begin)[1]
            except (ValueError, RecursionError):
                break
            values.append(text[begin:end].encode("utf-8", "surrogateescape"))
            begin = end
        rest = text[begin:] and "\n" * text.count("\n", 0, begin) + text[begin:]
        return values, rest.encode("utf-8", "surrogateescape"), str(error)
    return [data], b"", ""


def documents(data: bytes, source: str, notes: list[str]) -> list[object]:
    """Returns the documents in the text; None for an empty one.

    Args:
        source: the file, for the error and the notes.
        notes: gets a note on keys that occur twice.

    Raises:
        MalformedCluster: the text is neither JSON nor YAML; the message has the line.
    """
    values, rest, _ = leading_json(data)
    try:
        return [*map(msgspec.json.decode, values), *yaml_documents(rest, source, notes)]
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise MalformedCluster(f"{source}: {error}") from None


def yaml_documents(data: bytes, source: str, notes: list[str]) -> list[object]:
    """Returns the YAML documents in the text. Arguments and errors are those of `documents`."""
    repeated: list[str] = []
    try:
        # Go accepts a byte order mark at the beginning of each document, as `cat a.yaml b.yaml` may leave one there.
        found = list(strict_yaml.load_all(data.replace(b"\n" + BOM_UTF8, b"\n"), repeated=repeated))
    except MalformedInput as error:
        raise MalformedCluster(f"{source}: {error}") from None
    if repeated:
        notes.append(f"{source}: a key occurs twice, so the last value counts, as for kubectl: {', '.join(repeated)}")
    return found


def objects_in(place: str, document: object) -> Iterator[tuple[str, Mapping[str, object]]]:
    """Yields each object in the document, with its place. Items of a PodList need not say that they are Pods.

    Raises:
        MalformedCluster: the document, or an item of a list, is not a mapping.
    """
    if not isinstance(document, Mapping):
        raise MalformedCluster(f"{place}: {NO_OBJECT}")
    kind, items = document.get("kind"), document.get("items")
    if not (isinstance(kind, str) and kind.endswith("List") and isinstance(items, list | None)):
        yield place, document
        return
    of_items = common_fields(kind, document.get("apiVersion"))
    for number, item in enumerate(items or ()):
        yield from objects_in(f"{place}: items[{number}]", {**of_items, **item} if isinstance(item, Mapping) else item)


def common_fields(list_kind: str, api_version: object) -> Mapping[str, object]:
    """Returns the fields that items of a list may leave out, such as a PodList; items of a v1 List may not."""
    return {} if list_kind == "List" else {"kind": list_kind.removesuffix("List"), "apiVersion": api_version}

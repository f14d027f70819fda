"""Snapshot files: a cluster's objects as YAML or JSON, as written by hand or printed by kubectl."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import msgspec

from extender.errors import MalformedCluster, MalformedInput
from extender.model.kinds import KINDS, Kind
from extender.model.meta import Object
from extender.offline.defaults import with_defaults
from extender.offline.objects import to_object
from extender.runtime import strict_yaml

MOST_JSON_BYTES = 1024 * 1024 * 1024
MOST_YAML_BYTES = 128 * 1024 * 1024
_SUFFIXES = (".json", ".yaml", ".yml")

logger = logging.getLogger(__name__)

Found = tuple[str, Object]
"""Where an object was found (file, document, item), and the object."""


def load(path: Path) -> list[Object]:
    """The objects in a file, or in the .yaml, .yml and .json files of a directory, defaults filled in.

    A file holds documents; a document is an object or a list of objects. Kinds that scheduling does not look at are
    left out with one line in the log. In YAML a key that is there twice is a fault; in JSON the last one counts.

    Raises:
        MalformedCluster: with file, document and path of the fault, in one line.
        OSError: a file cannot be read.
    """
    left_out: Counter[str] = Counter()
    found = [item for file in _files(path) for item in _objects(file, left_out)]
    for kind, count in left_out.items():
        logger.info("%s: %s %s left out: no rule looks at them", path, count, kind)
    _check_unique(found)
    return with_defaults([obj for _, obj in found])


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    files = sorted(file for file in path.iterdir() if file.suffix in _SUFFIXES and file.is_file())
    if not files:
        raise MalformedCluster(f"{path}: no file in this directory ends in {', '.join(_SUFFIXES)}")
    return files


def _objects(file: Path, left_out: Counter[str]) -> Iterator[Found]:
    size = file.stat().st_size
    if size > MOST_JSON_BYTES:
        raise MalformedCluster(f"{file}: {size} bytes are more than {MOST_JSON_BYTES}")
    data = file.read_bytes()
    if data.lstrip()[:1] == b"{":
        try:
            yield from _from_json(file, data, left_out)
            return
        except msgspec.DecodeError as error:
            if file.suffix == ".json":
                raise MalformedCluster(f"{file}: {error}") from None
    if size > MOST_YAML_BYTES:
        raise MalformedCluster(f"{file}: {size} bytes of YAML are more than {MOST_YAML_BYTES}; JSON may be larger")
    yield from _from_yaml(file, data, left_out)


# ---- JSON, decoded straight into the model: a snapshot of 10,000 pods takes a fraction of a second


class _Head(msgspec.Struct, rename="camel", gc=False):
    kind: str = ""
    api_version: str = ""
    items: list[msgspec.Raw] | None = None


def _from_json(file: Path, data: bytes, left_out: Counter[str]) -> Iterator[Found]:
    try:
        head = msgspec.json.decode(data, type=_Head)
        items = head.items if head.items is not None and head.kind.endswith("List") else None
        if items is None:
            yield from _one_from_json(str(file), data, head, left_out)
        for number, item in enumerate(items or ()):
            place = f"{file}: items[{number}]"
            own = msgspec.json.decode(item, type=_Head)
            kind = own.kind or head.kind.removesuffix("List")
            yield from _one_from_json(place, item, _Head(kind, own.api_version or head.api_version), left_out)
    except msgspec.ValidationError as error:
        raise MalformedCluster(f"{file}: {error}") from None
    except (RecursionError, UnicodeDecodeError) as error:
        raise MalformedCluster(f"{file}: {error}") from None


def _one_from_json(place: str, data: bytes | msgspec.Raw, head: _Head, left_out: Counter[str]) -> Iterator[Found]:
    if not head.kind:
        raise MalformedCluster(f"{place}: want an object with a kind, apiVersion and metadata")
    kind = KINDS.get(head.kind)
    if kind is None or not _same_group(head.api_version, kind):
        left_out[head.kind] += 1
        return
    try:
        obj = _decoder(kind.name).decode(data)
    except msgspec.ValidationError as error:
        raise MalformedCluster(f"{place}: {error}") from None
    if not obj.name:
        raise MalformedCluster(f"{place}: metadata.name is missing")
    yield place, obj


@cache
def _decoder(kind: str) -> msgspec.json.Decoder[Object]:
    return msgspec.json.Decoder(KINDS[kind].type)


def _same_group(api_version: str, kind: Kind) -> bool:
    return api_version.rpartition("/")[0] == kind.api_version.rpartition("/")[0]


# ---- YAML


def _from_yaml(file: Path, data: bytes, left_out: Counter[str]) -> Iterator[Found]:
    try:
        for number, document in enumerate(strict_yaml.load_all(data), 1):
            place = f"{file}: document {number}"
            for item_place, item in _items(place, document):
                obj = to_object(item, item_place)
                if obj is None:
                    left_out[str(item["kind"])] += 1
                else:
                    yield item_place, obj
    except MalformedCluster:
        raise
    except MalformedInput as error:
        raise MalformedCluster(f"{file}: {error}") from None


def _items(place: str, document: object) -> Iterator[tuple[str, Mapping[str, object]]]:
    if document is None:  # nothing between two separators
        return
    if not isinstance(document, dict):
        raise MalformedCluster(f"{place}: want an object with a kind, apiVersion and metadata")
    kind, items = document.get("kind"), document.get("items")
    if not (isinstance(kind, str) and kind.endswith("List") and isinstance(items, list | None)):
        yield place, document
        return
    of_items = {} if kind == "List" else {"kind": kind.removesuffix("List"), "apiVersion": document.get("apiVersion")}
    for number, item in enumerate(items or ()):
        yield f"{place}: items[{number}]", {**of_items, **item} if isinstance(item, dict) else item


def _check_unique(found: list[Found]) -> None:
    places: dict[tuple[str, str], str] = {}
    for place, obj in found:
        kind = type(obj).__name__
        for identity in (obj.key, f"UID {obj.uid}") if obj.uid else (obj.key,):
            first = places.setdefault((kind, identity), place)
            if first is not place:
                raise MalformedCluster(f"{place}: {kind} {identity} stands in {first} already")

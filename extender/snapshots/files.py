"""Reads a cluster's objects from YAML or JSON files, written by hand or printed by kubectl.

A text is split into documents, and documents into objects, as kubectl does: a text holds JSON values, YAML documents,
or first JSON values and then YAML, and a list may hold lists. A cluster is written as one JSON list, with all kinds and
fields that scheduling reads, redacted if asked.

Source: upstream apimachinery pkg/util/yaml/decoder.go, pkg/apis/meta/v1/unstructured/helpers.go.
"""

from __future__ import annotations

import gzip
import json
import logging
import re
import sys
import zlib
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE, getincrementaldecoder
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import msgspec

from extender.errors import MalformedCluster, MalformedInput
from extender.model.kinds import ADMISSION_KINDS, DECODERS, KINDS, OFFLINE_KINDS, Kind, read_custom
from extender.model.meta import CustomObject, Object
from extender.model.redaction import Redaction, without_manifests
from extender.runtime import strict_yaml
from extender.snapshots.objects import READ_KINDS, plain, to_object, with_defaults

MOST_JSON_BYTES = 1024 * 1024 * 1024
MOST_YAML_BYTES = 128 * 1024 * 1024
_PIECE_BYTES = 16 * 1024 * 1024
_BEGINNING_BYTES = 4096
STDIN = Path("-")
_EMPTY = "the file is empty; expected YAML or JSON, as `kubectl get -o yaml` prints it"
_EXPECTED = "expected the output of `kubectl get nodes,pods -A -o yaml`"
_ALONE_USELESS = OFFLINE_KINDS.keys() - KINDS.keys() - ADMISSION_KINDS.keys()  # workloads, in a file for -f
_SUFFIXES = (".json", ".yaml", ".yml")

logger = logging.getLogger(__name__)

PlacedObject = tuple[str, Object]
"""An object's place as text (file, document, item), and the object."""


class StoredCluster(NamedTuple):
    """The objects of a snapshot, and the version that its API server reported; "" if the files do not say it."""

    objects: list[Object]
    kubernetes_version: str


class Text(NamedTuple):
    """The content of a file. If it was found in a folder, it may hold no objects, and is then left out."""

    source: str
    data: bytes
    in_folder: bool = False


@dataclass(slots=True)
class _Selection:
    """The kinds to read, what was remarkable or left out, and the version that a list records."""

    kinds: Mapping[str, Kind]
    kubernetes_version: str = ""
    remarks: list[str] = field(default_factory=list)
    left_out: Counter[tuple[str, str]] = field(default_factory=Counter)  # (kind, apiVersion) -> how many

    def notes(self) -> Iterator[str]:
        """Yields the remarks, and a note on each kind that has the name of a kind that is read, but another version."""
        yield from self.remarks
        for (kind, api_version), count in self.left_out.items():
            if kind in self.kinds:
                expected = self.kinds[kind].api_version
                yield f"{count} {kind} of {api_version} left out: only {expected} and what converts to it is read"


def load(path: Path, watch: Sequence[Kind] = ()) -> list[Object]:
    """Returns the objects of `read_snapshot`, except kinds that only offline commands read, such as LimitRanges.

    Arguments and errors are those of `read_snapshot`.
    """
    watched = {*KINDS, *(kind.name for kind in watch)}
    return [obj for obj in read_snapshot(path, watch).objects if type(obj).__name__ in watched]


def read_snapshot(path: Path, watch: Sequence[Kind] = (), notes: list[str] | None = None) -> StoredCluster:
    """Returns the objects in a file, on standard input (`-`) or in a directory tree, with defaults filled in.

    A file, which may be gzipped, holds one or more documents; a document is an object or a list of objects. In a
    directory, as `kubectl cluster-info dump` writes one, .yaml, .yml and .json files are read, also with .gz appended.
    Files there that hold no objects, such as Chart.yaml, and a chart's templates are left out. Kinds that scheduling
    does not read are left out and logged. If a key occurs twice, the last value counts; for YAML, a note says so.

    Args:
        watch: further kinds to read, for users' rules.
        notes: gets remarks on what was left out, although it may matter.

    Raises:
        MalformedCluster: a file is not valid; the message has file, document and path of the fault in one line.
        OSError: a file cannot be read.
    """
    selection = _Selection({**READ_KINDS, **{kind.name: kind for kind in watch}})
    left_out = selection.left_out
    placed_objects: list[PlacedObject] = []
    without_objects: list[str] = []
    chart_templates: list[str] = []
    for file in _files(path):
        if path.is_dir() and _is_chart_template(file):
            chart_templates.append(str(file.relative_to(path)))
            continue
        try:
            placed_objects += _objects(file, selection)
        except _NoObjects as error:
            if not path.is_dir():
                raise MalformedCluster(str(error)) from None
            without_objects.append(str(file.relative_to(path)))
    useless = Counter(type(obj).__name__ for _, obj in placed_objects if type(obj).__name__ in _ALONE_USELESS)
    if useless.total() == len(placed_objects) and (useless or left_out or without_objects or chart_templates):
        useless.update({kind: count for (kind, _), count in left_out.items()})
        kinds = ", ".join(f"{count} {kind}" for kind, count in useless.items())
        content = f"the file has {kinds}, but" if kinds else "there is"
        raise MalformedCluster(f"{path}: {content} no node or pod; {_EXPECTED}")
    for (kind, api_version), count in left_out.items():
        logger.info(
            "objects left out, because no rule reads them file=%s kind=%s version=%s count=%s",
            path, kind, api_version, count,
        )  # fmt: skip
    if notes is not None:
        notes += selection.notes()
        if without_objects:
            notes.append(f"left out, because they hold no objects: {', '.join(without_objects)}")
        if chart_templates:
            notes.append(f"left out, because `helm template` must render them first: {', '.join(chart_templates)}")
    _check_unique(placed_objects)
    return StoredCluster(with_defaults([obj for _, obj in placed_objects]), selection.kubernetes_version)


class _NoObjects(MalformedCluster):
    """The file is empty, or none of its documents looks like an object: it may be a chart's values.yaml."""


def _is_chart_template(file: Path) -> bool:
    """Returns True if the file is below `templates` of a Helm chart."""
    folders = (folder for folder in file.absolute().parents if folder.name == "templates")
    return any((folder.parent / "Chart.yaml").is_file() for folder in folders)


def _files(path: Path, pattern: str = "**/*") -> list[Path]:
    if not path.is_dir():
        return [path]
    files = sorted(file for file in path.glob(pattern) if _plain_suffix(file) in _SUFFIXES and file.is_file())
    if not files:
        raise MalformedCluster(f"{path}: no file in this directory ends in {', '.join(_SUFFIXES)} (or .gz)")
    return files


def _plain_suffix(file: Path) -> str:
    return file.with_suffix("").suffix if file.suffix == ".gz" else file.suffix


def _objects(file: Path, selection: _Selection) -> Iterator[PlacedObject]:
    data = read(file)
    values, rest, fault = leading_json(data)
    try:
        for value in values:
            if not is_object(_FIELDS.decode(value)):
                raise _NoObjects(f"{file}: {NO_OBJECT}")
            yield from _from_json(str(file), value, _Head(), selection)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise MalformedCluster(f"{file}: {error}") from None
    if rest and fault and _plain_suffix(file) == ".json" and not rest.lstrip().startswith(b"---"):
        raise MalformedCluster(
            f"{file}: {'the file is cut off; create or copy it again' if 'truncated' in fault else fault}"
        )
    if len(rest) > MOST_YAML_BYTES:
        raise MalformedCluster(
            f"{file}: {len(rest)} bytes of YAML are more than the limit of {MOST_YAML_BYTES}; JSON files may be larger"
        )
    if not _is_text(rest):
        raise MalformedCluster(f"{file}: not a text file; expected YAML or JSON, which may be gzipped")
    if rest:
        yield from _from_yaml(file, rest, selection, is_first=not values)


def read_texts(path: Path) -> list[Text]:
    """Returns the text of a file or of standard input, or those of the files in a folder, but not of folders in it.

    Raises MalformedCluster, OSError.
    """
    in_folder = path.is_dir()
    texts = []
    for file in _files(path, "*"):
        try:
            texts.append(Text(str(file), read(file), in_folder))
        except _NoObjects:
            if not in_folder:
                raise
            texts.append(Text(str(file), b"", in_folder))
    return texts


def _is_text(data: bytes) -> bool:
    decoder = getincrementaldecoder("utf-8")()
    try:
        decoder.decode(data[:_BEGINNING_BYTES])
    except UnicodeDecodeError:
        return False
    return b"\0" not in data


def read(file: Path) -> bytes:
    """Returns the content of a file or of standard input (`-`), uncompressed, and in UTF-8 without a byte order mark.

    Raises MalformedCluster, OSError.
    """
    if file == STDIN and sys.stdin is None:
        raise MalformedCluster(f"{file}: standard input is closed")
    if file != STDIN and file.stat().st_size > MOST_JSON_BYTES:
        raise MalformedCluster(f"{file}: {file.stat().st_size} bytes are more than the limit of {MOST_JSON_BYTES}")
    with naming_file(file), sys.stdin.buffer if file == STDIN else file.open("rb") as stream:
        data = _read_at_most(stream, MOST_JSON_BYTES + 1)
    if data[:2] == b"\x1f\x8b":
        try:
            with gzip.open(BytesIO(data)) as unpacked:
                data = _read_at_most(unpacked, MOST_JSON_BYTES + 1)
        except (EOFError, OSError, zlib.error) as error:
            raise MalformedCluster(
                f"{file}: the file is cut off or damaged; create or copy it again ({error})"
            ) from None
    if len(data) > MOST_JSON_BYTES:
        raise MalformedCluster(f"{file}: more than the limit of {MOST_JSON_BYTES} bytes")
    if data[:2] in (BOM_UTF16_LE, BOM_UTF16_BE):  # as PowerShell writes it
        data = data.decode("utf-16", "replace").encode()
    if not data.strip():
        raise _NoObjects(f"{file}: {_EMPTY}")
    return data.removeprefix(BOM_UTF8)


@contextmanager
def naming_file(file: Path) -> Iterator[None]:
    """Adds the file's name to an OSError.

    Python adds the name if the file cannot be opened, but not if reading it fails.
    """
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(file)) from None


def _read_at_most(stream: BinaryIO | gzip.GzipFile, size: int) -> bytes:
    """Returns at most `size` bytes; reads in pieces, because `read(size)` allocates `size` bytes first."""
    pieces = []
    while size > 0 and (piece := stream.read(min(size, _PIECE_BYTES))):
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


# ---- JSON, decoded directly into the model: 10,000 pods take a fraction of a second


class _Head(msgspec.Struct, rename="camel", gc=False):
    kind: str = ""
    api_version: str = ""
    items: msgspec.Raw = msgspec.Raw(b"")
    kubernetes_version: str = ""


_HEAD = msgspec.json.Decoder(_Head)
_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ITEMS = msgspec.json.Decoder(list[msgspec.Raw] | None)


def _from_json(place: str, data: bytes | msgspec.Raw, common: _Head, selection: _Selection) -> Iterator[PlacedObject]:
    """Reads an object, or the objects of a list; an object may leave out what is in `common`."""
    try:
        head = _HEAD.decode(data)
    except msgspec.ValidationError as error:
        raise MalformedCluster(f"{place}: {plain(error, msgspec.json.decode(data))}") from None
    kind, api_version = head.kind or common.kind, head.api_version or common.api_version
    if not (kind.endswith("List") and bytes(memoryview(head.items)[:1]) in (b"[", b"n")):
        yield from _one_from_json(place, data, _Head(kind, api_version), selection)
        return
    if kind == "List" and head.kubernetes_version:
        selection.kubernetes_version = head.kubernetes_version
    of_items = msgspec.convert(common_fields(kind, api_version), _Head)
    for number, item in enumerate(_ITEMS.decode(head.items) or ()):
        yield from _from_json(f"{place}: items[{number}]", item, of_items, selection)


def _one_from_json(place: str, data: bytes | msgspec.Raw, head: _Head, selection: _Selection) -> Iterator[PlacedObject]:
    if not head.kind:
        raise MalformedCluster(f"{place}: {NO_OBJECT}")
    kind = selection.kinds.get(head.kind)
    if kind is None:
        selection.left_out[head.kind, head.api_version] += 1
        return
    if head.api_version == kind.api_version:
        try:
            if issubclass(kind.type, CustomObject):
                obj: Object = read_custom(kind.type, data)
            else:
                obj = DECODERS[kind.type].decode(data)
        except msgspec.ValidationError:
            pass  # perhaps a null; `to_object` reads it, or says what is wrong
        else:
            if not obj.name:
                raise MalformedCluster(f"{place}: metadata.name is missing")
            yield place, obj
            return
    item = {**msgspec.json.decode(data), "kind": head.kind, "apiVersion": head.api_version}
    yield from _one(place, item, selection)


def _one(place: str, item: Mapping[str, object], selection: _Selection) -> Iterator[PlacedObject]:
    if isinstance(item, dict) and item.get("kind") in selection.kinds and not item.get("apiVersion"):
        expected = selection.kinds[str(item["kind"])].api_version
        raise MalformedCluster(f"{place}: apiVersion is missing; expected {expected} for a {item['kind']}")
    obj = to_object(item, place, selection.kinds)
    if obj is None:
        selection.left_out[str(item["kind"]), str(item.get("apiVersion"))] += 1
    else:
        yield place, obj


# ---- YAML


def _from_yaml(file: Path, data: bytes, selection: _Selection, *, is_first: bool) -> Iterator[PlacedObject]:
    documents = yaml_documents(data, str(file), selection.remarks)
    if is_first and all(document is None for document in documents):
        raise _NoObjects(f"{file}: {_EMPTY}")
    if is_first and not any(map(is_object, documents)):
        raise _NoObjects(f"{file}: document 1: {NO_OBJECT}")
    for number, document in enumerate(documents, 1):
        if isinstance(document, dict) and document.get("kind") == "List" and "kubernetesVersion" in document:
            selection.kubernetes_version = str(document["kubernetesVersion"])
        for place, item in objects_in(f"{file}: document {number}", document) if document is not None else ():
            yield from _one(place, item, selection)


def _check_unique(objects: list[PlacedObject]) -> None:
    places: dict[tuple[str, str], str] = {}
    for place, obj in objects:
        kind = type(obj).__name__
        for identity in (obj.key, f"UID {obj.uid}") if obj.uid else (obj.key,):
            first = places.setdefault((kind, identity), place)
            if first is not place:
                raise MalformedCluster(f"{place}: {kind} {identity} is already defined in {first}")


def write_snapshot(
    objects: Iterable[Object],
    *,
    redaction: Redaction | None = None,
    compress: bool = False,
    kubernetes_version: str = "",
) -> bytes:
    """Returns the objects as JSON: a v1 List.

    Leaves out fields that no scheduling rule reads, and annotations in which tools keep a whole manifest. A redacted
    snapshot has only those annotations that kube-scheduler reads, because others may contain any text.

    Args:
        redaction: replaces names, label values, images and similar texts by hashes that sort as these texts do.
        compress: compresses the JSON with gzip.
        kubernetes_version: the version of the API server, which answers about the snapshot follow; "" if it is unknown.
    """
    written = [obj for obj in objects if type(obj).__name__ in READ_KINDS]
    if redaction is not None:
        redaction.keep_order(written)
    items = [_item(obj, redaction) for obj in written]
    version = {"kubernetesVersion": kubernetes_version} if kubernetes_version else {}
    data = msgspec.json.encode({"apiVersion": "v1", "kind": "List", **version, "items": items})
    return gzip.compress(data, mtime=0) if compress else data


def _item(obj: Object, redaction: Redaction | None) -> dict[str, Any]:
    kind = READ_KINDS[type(obj).__name__]
    item = msgspec.to_builtins(without_manifests(obj)) if redaction is None else redaction.redact(obj)
    return {"apiVersion": kind.api_version, "kind": kind.name, **item}


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

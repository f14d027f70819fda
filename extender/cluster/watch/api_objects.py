"""Lists all objects of a kind, page by page, and decodes the API server's lists and events into objects.

Each list is a quorum read, so it shows every earlier write. If another extender needs whole objects of a kind, these
objects also keep their JSON. Pods share equal parts: replicas of one template have many equal fields, and each value is
in memory only once. Without sharing, 200,000 pods take five times the memory. msgspec, which decodes the JSON, cannot
share parts.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from functools import partial
from sys import getrefcount
from typing import Any, Final, Generic, TypeVar

import msgspec
from msgspec import msgpack
from msgspec.structs import force_setattr

from extender.cluster.kube_client import KubeClient, error_of
from extender.cluster.watch.list_watch_state import PAGE_SIZE, List
from extender.errors import OutcomeUnknown
from extender.model.extender_config import WHOLE, document
from extender.model.kinds import Kind, read_custom
from extender.model.meta import CustomObject, Object
from extender.model.pod import Pod

_PARTS: Final[dict[str, tuple[str, ...]]] = {
    "metadata": ("labels", "annotations", "owner_references"),
    "spec": (
        "containers",
        "init_containers",
        "tolerations",
        "affinity",
        "node_selector",
        "topology_spread_constraints",
    ),
    "status": ("conditions", "container_statuses", "init_container_statuses"),
}
_TEXTS: Final = (("metadata", "namespace"), ("spec", "node_name"), ("spec", "scheduler_name"), ("status", "phase"))
_MOST_BYTES = 32 * 1024 * 1024
_FEWEST_BYTES = 1024 * 1024
_BYTES_PER_PART = 300  # about how much memory a stored part takes in addition to its encoded bytes
_Key = tuple[str, bytes | str]
_UNUSED_PART: Final[_Key] = ("", b"")
_DEEPEST = 200
"""How deep values may be nested: Kubernetes' own fields take 30 levels, and msgspec reads about 900."""
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[{}\[\]]', re.DOTALL)
_encode = msgpack.Encoder().encode
LIST_SILENCE_SECONDS = 30.0

# Finished pods use no resources; kube-scheduler excludes them in the same way.
_FIELD_SELECTORS = {"Pod": "status.phase!=Succeeded,status.phase!=Failed"}
_JSON = "application/json"
_EXPIRED = 410
T = TypeVar("T")


class SharedParts:
    """Makes pods share equal parts, such as labels or containers. Only one thread may use an instance.

    A clean-up drops the parts that no pod uses any longer. It runs when new parts take as many bytes as the last
    clean-up kept, so unused parts never take more memory than used parts. If a clean-up keeps more than half of
    `_MOST_BYTES`, the pods differ too much for sharing to help, and all parts are dropped.
    """

    def __init__(self) -> None:
        self._parts: dict[_Key, Any] = {_UNUSED_PART: []}
        self._added_bytes = 0
        self._most_added_bytes = _FEWEST_BYTES

    def share(self, pod: Pod) -> Pod:
        """Replaces the pod's parts with equal parts of earlier pods, in place; returns the pod.

        Call this before other code uses the pod.
        """
        if self._added_bytes > self._most_added_bytes:
            self._drop_unused()
        parts, added_bytes = self._parts, 0
        for name, fields in _PARTS.items():
            part = getattr(pod, name)
            for field in fields:
                if value := getattr(part, field):
                    key = field, _encode(value)
                    shared = parts.setdefault(key, value)
                    if shared is value:
                        added_bytes += len(key[1]) + _BYTES_PER_PART
                    else:
                        force_setattr(part, field, shared)
        for name, field in _TEXTS:
            part = getattr(pod, name)
            text = getattr(part, field)
            shared = parts.setdefault(("", text), text)
            if shared is text:
                added_bytes += len(text) + _BYTES_PER_PART
            else:
                force_setattr(part, field, shared)
        self._added_bytes += added_bytes
        return pod

    def _drop_unused(self) -> None:
        # Lists and dicts allow no weak references, so reference counts show which parts no pod uses.
        references = {key: getrefcount(part) - (part is key[1]) for key, part in self._parts.items()}
        unused = references[_UNUSED_PART]
        parts = {key: part for key, part in self._parts.items() if key == _UNUSED_PART or references[key] > unused}
        used_bytes = sum(len(key[1]) + _BYTES_PER_PART for key in parts)
        if used_bytes > _MOST_BYTES // 2:
            parts, used_bytes = {_UNUSED_PART: []}, 0
        self._parts = parts
        self._added_bytes = 0
        self._most_added_bytes = max(used_bytes, _FEWEST_BYTES)


class ListMeta(
    msgspec.Struct,
    frozen=True,
    gc=False,
    rename={"resource_version": "resourceVersion", "continue_token": "continue"},
):
    resource_version: str = ""
    continue_token: str = ""


class Page(msgspec.Struct, Generic[T], gc=False):
    metadata: ListMeta = ListMeta()
    items: list[T] | None = None


class Malformed(OutcomeUnknown):
    """The API server's response is neither a page of a list nor an event."""


DecodeObject = Callable[[msgspec.Raw], Object]
DecodePage = Callable[[bytes], Page[Object]]


def decoders(kind: Kind) -> tuple[DecodePage, DecodeObject]:
    """Returns functions to decode a page of a list, and to decode one object. Both raise msgspec's errors."""
    if issubclass(kind.type, Pod) and not kind.whole:
        return _pod_decoders(kind.type)
    if issubclass(kind.type, CustomObject):
        return _raw_decoders(partial(read_custom, kind.type))
    if not kind.whole:
        return msgspec.json.Decoder(page_type(kind.type)).decode, msgspec.json.Decoder(kind.type).decode
    decode = msgspec.json.Decoder(WHOLE[kind.type]).decode

    def decode_object(raw: msgspec.Raw) -> Object:
        obj = decode(raw)
        msgspec.structs.force_setattr(obj, "document", document(raw, managed=kind.type is not Pod))
        return obj

    return _raw_decoders(decode_object)


def _raw_decoders(decode_object: DecodeObject) -> tuple[DecodePage, DecodeObject]:
    """Returns the two functions of `decoders`; the first decodes a page by calling `decode_object` for each object."""
    decode_raw = msgspec.json.Decoder(page_type(msgspec.Raw)).decode

    def decode_page(body: bytes) -> Page[Object]:
        page = decode_raw(body)
        return Page(page.metadata, [decode_object(raw) for raw in page.items or ()])

    return decode_page, decode_object


def _pod_decoders(pod_type: type[Pod]) -> tuple[DecodePage, DecodeObject]:
    parts = SharedParts()
    decode_pods = msgspec.json.Decoder(page_type(pod_type)).decode
    decode_pod = msgspec.json.Decoder(pod_type).decode

    def decode_page(body: bytes) -> Page[Object]:
        page: Page[Pod] = decode_pods(body)
        return Page(page.metadata, [parts.share(pod) for pod in page.items or ()])

    return decode_page, lambda raw: parts.share(decode_pod(raw))


def decode_deep(decode: Callable[[Any], T], body: bytes | msgspec.Raw) -> T:
    """Decodes JSON; if it is nested too deep for msgspec, decodes it without its deepest values.

    A tenant's ResourceClaim may hold a driver's parameters that are 1,700 levels deep. The whole list of claims could
    not be read because of one such claim.
    """
    try:
        return decode(body)
    except RecursionError:
        return decode(shallow(bytes(body)))


def shallow(body: bytes) -> bytes:
    """Returns the JSON with null in place of each value that is nested deeper than `_DEEPEST` levels."""
    pieces: list[bytes] = []
    depth = kept_from = 0
    for token in _TOKEN.finditer(body):
        character = body[token.start() : token.start() + 1]
        if character in (b"{", b"["):
            depth += 1
            if depth == _DEEPEST + 1:
                pieces += (body[kept_from : token.start()], b"null")
        elif character in (b"}", b"]"):
            if depth == _DEEPEST + 1:
                kept_from = token.end()
            depth -= 1
    return b"".join((*pieces, body[kept_from:]))


def read_page(decode: Callable[[bytes], Page[T]], body: bytes) -> Page[T]:
    """Decodes a page of a list.

    Raises:
        Malformed: the body is not a page. If it passed as an empty page, the cache would lose every object.
    """
    try:
        page = decode_deep(decode, body)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise Malformed(f"the list cannot be read: {error}") from None
    if not version_number(page.metadata.resource_version):
        raise Malformed("the response is not a list")
    return page


def version_number(version: str) -> int:
    """Returns a resource version as a number; 0 for "". Raises Malformed if it is not a number."""
    if not version:
        return 0
    if not (version.isascii() and version.isdigit()):
        raise Malformed(f"resource version {version!r} is not a number")
    return int(version)


def page_type(item: type) -> Any:  # mypy cannot express a type that is computed at run time
    return operator.getitem(Page, item)  # type: ignore[call-overload]


def query_of(kind: Kind, **fields: str) -> dict[str, str]:
    """Returns the query of a list or watch of the kind, with a selector that excludes finished pods."""
    selector = _FIELD_SELECTORS.get(kind.name)
    return {**fields, "fieldSelector": selector} if selector else fields


def list_query(kind: Kind, step: List) -> dict[str, str]:
    fields = {"limit": str(step.limit)} if step.limit else {}
    return query_of(kind, **fields, **({"continue": step.continue_token} if step.continue_token else {}))


def list_all(
    client: KubeClient,
    kind: Kind,
    decode: Callable[[bytes], Page[T]],
    page_size: int = PAGE_SIZE,
    accept: str = _JSON,
    namespace: str = "",
) -> tuple[str, list[T]]:
    """Lists all objects of the kind; returns the version of the list, and the objects.

    If a continue token has expired, this lists everything again in a single page, as the reflector does.

    Args:
        namespace: the namespace to list; "" for all.

    Raises:
        Refused, OutcomeUnknown: the API server does not answer with the list.
    """
    step, items = List("", page_size), list[T]()
    while True:
        with client.get_all(kind, list_query(kind, step), LIST_SILENCE_SECONDS, accept, namespace) as response:
            body = response.read()
        if response.status == _EXPIRED and step.continue_token:
            step, items = List("", 0), []
            continue
        if response.status != 200:
            raise error_of(response.status, body)
        page = read_page(decode, body)
        items += page.items or ()
        if not page.metadata.continue_token:
            return page.metadata.resource_version, items
        step = List(page.metadata.continue_token, step.limit)

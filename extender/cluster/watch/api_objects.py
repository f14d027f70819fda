"""JSON of the API server -> objects, which keep that JSON where an extender is to get them whole.

Pods share the parts in which they are equal: what a template gave them is kept once, not once a pod. Of 200,000 pods as
the API server sends them that is four fifths of the memory.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from sys import getrefcount
from typing import Any, Final, Generic, TypeVar

import msgspec
from msgspec import msgpack
from msgspec.structs import force_setattr

from extender.errors import OutcomeUnknown
from extender.model.documents import WHOLE, document
from extender.model.kinds import Kind
from extender.model.meta import Object
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
_MOST_BYTES, _FEWEST_BYTES, _BYTES_A_PART = 32 * 1024 * 1024, 1024 * 1024, 300  # a part's: beside its JSON
_Key = tuple[str, bytes | str]
_UNHELD: Final[_Key] = ("", b"")
_encode = msgpack.Encoder().encode


class SharedParts:
    """The parts that pods have, by field and value; for one thread.

    Those that no pod has any more go when as many bytes have come as were kept the last time, so there are never more
    of them than of the others. Of parts that each pod has for itself no more than so many bytes are kept.
    """

    def __init__(self) -> None:
        self._parts: dict[_Key, Any] = {_UNHELD: []}
        self._added_bytes, self._most_added_bytes = 0, _FEWEST_BYTES

    def share(self, pod: Pod) -> Pod:
        """Returns the pod, which nobody else has yet, with equal parts replaced by those of other pods."""
        if self._added_bytes > self._most_added_bytes:
            self._drop_unheld()
        parts, added_bytes = self._parts, 0
        for name, fields in _PARTS.items():
            part = getattr(pod, name)
            for field in fields:
                if value := getattr(part, field):
                    key = field, _encode(value)
                    known = parts.setdefault(key, value)
                    if known is value:
                        added_bytes += len(key[1]) + _BYTES_A_PART
                    else:
                        force_setattr(part, field, known)
        for name, field in _TEXTS:
            part = getattr(pod, name)
            text = getattr(part, field)
            known = parts.setdefault(("", text), text)
            if known is text:
                added_bytes += len(text) + _BYTES_A_PART
            else:
                force_setattr(part, field, known)
        self._added_bytes += added_bytes
        return pod

    def _drop_unheld(self) -> None:
        # No list or dict can be referred to weakly. One part is held by nobody else for sure.
        references = {key: getrefcount(part) - (part is key[1]) for key, part in self._parts.items()}
        unheld = references[_UNHELD]
        kept = {key: part for key, part in self._parts.items() if key == _UNHELD or references[key] > unheld}
        kept_bytes = sum(len(key[1]) + _BYTES_A_PART for key in kept)
        if kept_bytes > _MOST_BYTES // 2:
            kept, kept_bytes = {_UNHELD: []}, 0
        self._parts, self._added_bytes, self._most_added_bytes = kept, 0, max(kept_bytes, _FEWEST_BYTES)


T = TypeVar("T")


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
    """Bytes that are no page or no event."""


DecodeObject = Callable[[msgspec.Raw], Object]
DecodePage = Callable[[bytes], Page[Object]]


def decoders(kind: Kind) -> tuple[DecodePage, DecodeObject]:
    """Returns what reads a page of the kind, and what reads one object. They raise what msgspec raises."""
    if kind.type is Pod and not kind.whole:
        return _pod_decoders()
    if not kind.whole:
        return msgspec.json.Decoder(page_type(kind.type)).decode, msgspec.json.Decoder(kind.type).decode
    decode_raw = msgspec.json.Decoder(page_type(msgspec.Raw)).decode
    decode = msgspec.json.Decoder(WHOLE[kind.type]).decode

    def decode_object(raw: msgspec.Raw) -> Object:
        obj = decode(raw)
        msgspec.structs.force_setattr(obj, "document", document(raw, managed=kind.type is not Pod))
        return obj

    def decode_page(body: bytes) -> Page[Object]:
        page = decode_raw(body)
        return Page(page.metadata, [decode_object(raw) for raw in page.items or ()])

    return decode_page, decode_object


def _pod_decoders() -> tuple[DecodePage, DecodeObject]:
    shared, decode_pods = SharedParts(), msgspec.json.Decoder(page_type(Pod)).decode
    decode_pod = msgspec.json.Decoder(Pod).decode

    def decode_page(body: bytes) -> Page[Object]:
        page: Page[Pod] = decode_pods(body)
        return Page(page.metadata, [shared.share(pod) for pod in page.items or ()])

    return decode_page, lambda raw: shared.share(decode_pod(raw))


def read_page(decode: Callable[[bytes], Page[T]], body: bytes) -> Page[T]:
    """Returns the page. Raises Malformed where it is none: an empty one would make everything vanish."""
    try:
        page = decode(body)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise Malformed(f"the list cannot be read: {error}") from None
    if not version_number(page.metadata.resource_version):
        raise Malformed("what came is no list")
    return page


def version_number(version: str) -> int:
    """Returns a resource version as a number, 0 for none. Raises Malformed where it is no number."""
    if not version:
        return 0
    if not (version.isascii() and version.isdigit()):
        raise Malformed(f"resource version {version!r} is no number")
    return int(version)


def page_type(item: type) -> Any:  # a type made at run time, which mypy cannot name
    return operator.getitem(Page, item)  # type: ignore[call-overload]  # Page is generic, not a container

"""JSON of the API server -> objects, which keep that JSON where an extender is to get them whole."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from extender.cluster.watch.sharing import SharedParts
from extender.errors import OutcomeUnknown
from extender.model.documents import WHOLE, document
from extender.model.kinds import Kind
from extender.model.meta import Object
from extender.model.pod import Pod

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
    """One page of a list."""

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

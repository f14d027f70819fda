"""Whether a reflector has seen all that the API server holds at one moment.

The moment's list is asked for without a resource version, which makes it a quorum read, and only for metadata. Its
newest object counts, not the version of the list: that one moves with every write to any kind, while a reflector of a
quiet kind hears of it by bookmarks only, a minute later or (etcd before 3.5.13) ten. Events of a kind come in the
order of their versions, which are comparable (KEP-5504), so a reflector that is at the newest object's version has told
the sink of every object in the list. It may still have to hear of deletions: till then the cache takes a node for
fuller than it is, which is the safe side.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from extender.cluster.http.connection import Connection, refusal
from extender.cluster.watch.decoding import Page
from extender.cluster.watch.source import FIELD_SELECTORS
from extender.errors import OutcomeUnknown
from extender.model.kinds import Kind

_METADATA_ONLY = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
_PAGE_SIZE = 2000
_SILENCE_SECONDS = 10.0


class _Metadata(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    resource_version: str = ""


class _Versioned(msgspec.Struct, gc=False):
    metadata: _Metadata = _Metadata()


_DECODE = msgspec.json.Decoder(Page[_Versioned]).decode


def caught_up(connection: Connection, kind: Kind, seen: Callable[[], str]) -> Callable[[], bool]:
    """Asks for the objects of `kind` as they are now; the probe tells whether `seen`, a reflector's version, is as far.

    Raises:
        Refused, OutcomeUnknown: the list cannot be had.
    """
    newest = newest_version(connection, kind)
    return lambda: version_number(seen()) >= newest


def newest_version(connection: Connection, kind: Kind) -> int:
    """The highest version among the objects that a reflector of `kind` follows; 0 where there are none.

    Raises:
        Refused, OutcomeUnknown: the list cannot be had.
    """
    newest, token = 0, ""
    while True:
        page = _page(connection, kind, token)
        versions = (version_number(item.metadata.resource_version) for item in page.items or ())
        newest = max(newest, max(versions, default=0))
        token = page.metadata.continue_token
        if not token:
            return newest


def version_number(version: str) -> int:
    """A resource version as a number, 0 for none. Raises OutcomeUnknown where it is no number."""
    if not version:
        return 0
    if not (version.isascii() and version.isdigit()):
        raise OutcomeUnknown(f"resource version {version!r} is no number")
    return int(version)


def _page(connection: Connection, kind: Kind, token: str) -> Page[_Versioned]:
    query = {"limit": str(_PAGE_SIZE)} | ({"continue": token} if token else {})
    if selector := FIELD_SELECTORS.get(kind.name):
        query["fieldSelector"] = selector
    with connection.get(kind.path, query, _SILENCE_SECONDS, _METADATA_ONLY) as answer:
        body = answer.read()
    if answer.status != 200:
        raise refusal(answer.status, body)
    try:
        page = _DECODE(body)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise OutcomeUnknown(f"the list of {kind.path} cannot be read: {error}") from None
    if not page.metadata.resource_version:
        raise OutcomeUnknown(f"what came for {kind.path} is no list")
    return page

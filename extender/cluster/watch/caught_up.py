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

from extender.cluster.http.kube_client import KubeClient
from extender.cluster.watch.decoding import Page
from extender.cluster.watch.paging import list_all
from extender.errors import OutcomeUnknown
from extender.model.kinds import Kind

_METADATA_ONLY = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
_PAGE_SIZE = 2000


class _Metadata(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    resource_version: str = ""


class _Versioned(msgspec.Struct, gc=False):
    metadata: _Metadata = _Metadata()


_DECODE = msgspec.json.Decoder(Page[_Versioned]).decode


def caught_up(client: KubeClient, kind: Kind, seen: Callable[[], str]) -> Callable[[], bool]:
    """Asks for the objects of `kind` as they are now; the probe tells whether `seen`, a reflector's version, is as far.

    Raises:
        Refused, OutcomeUnknown: the list cannot be had.
    """
    newest = newest_version(client, kind)
    return lambda: version_number(seen()) >= newest


def newest_version(client: KubeClient, kind: Kind) -> int:
    """The highest version among the objects that a reflector of `kind` follows; 0 where there are none.

    Raises:
        Refused, OutcomeUnknown: the list cannot be had.
    """
    _, items = list_all(client, kind, _DECODE, _PAGE_SIZE, _METADATA_ONLY)
    return max((version_number(item.metadata.resource_version) for item in items), default=0)


def version_number(version: str) -> int:
    """A resource version as a number, 0 for none. Raises OutcomeUnknown where it is no number."""
    if not version:
        return 0
    if not (version.isascii() and version.isdigit()):
        raise OutcomeUnknown(f"resource version {version!r} is no number")
    return int(version)

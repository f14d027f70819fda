"""Fresh lists from the API server, for a comparison with what the watches have told."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from extender.cluster.http.connection import Connection, refusal
from extender.cluster.watch.caught_up import version_number
from extender.cluster.watch.decoding import Page, decoders
from extender.cluster.watch.list_watch_state import PAGE_SIZE
from extender.cluster.watch.source import FIELD_SELECTORS, LIST_SILENCE_SECONDS, ClusterSource
from extender.errors import OutcomeUnknown
from extender.model.kinds import KINDS, Kind
from extender.model.meta import Object


class ClusterLister:
    """A ports.Lister. The lists are quorum reads: they have everything that was written before they were asked for."""

    def __init__(self, connection: Connection, source: ClusterSource) -> None:
        self._connection, self._source = connection, source

    def kinds(self) -> Sequence[str]:
        """See ports.Lister."""
        return self._source.synced()

    def list(self, kind: str) -> tuple[str, Sequence[Object]]:
        """See ports.Lister."""
        objects: list[Object] = []
        token = ""
        while True:
            page = self._page(KINDS[kind], token)
            objects += page.items or ()
            token = page.metadata.continue_token
            if not token:
                return page.metadata.resource_version, objects

    def has_told(self, kind: str, version: str) -> bool:
        """See ports.Lister."""
        seen = self._source.version(kind)
        try:
            return bool(seen) and version_number(seen) >= version_number(version)
        except OutcomeUnknown:
            return False

    def _page(self, kind: Kind, token: str) -> Page[Object]:
        query = {"limit": str(PAGE_SIZE)} | ({"continue": token} if token else {})
        if selector := FIELD_SELECTORS.get(kind.name):
            query["fieldSelector"] = selector
        with self._connection.get(kind.path, query, LIST_SILENCE_SECONDS) as answer:
            body = answer.read()
        if answer.status != 200:
            raise refusal(answer.status, body)
        try:
            page = decoders(kind)[0](body)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            raise OutcomeUnknown(f"the list of {kind.path} cannot be read: {error}") from None
        if not page.metadata.resource_version:
            raise OutcomeUnknown(f"what came for {kind.path} is no list")
        return page

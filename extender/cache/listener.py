"""The listener of a cache, which is the scheduling queue, and the reports that wait for it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from msgspec import structs

from extender.cache.placements import PodPlacement
from extender.cache.pod_states import PodEvent
from extender.model.meta import Object
from extender.table import PodInfo


class Listener(Protocol):
    """Receives every change of the cache, in order for each kind; called without the cache's lock."""

    def changed(self, kind: str, before: Any, after: Any) -> None:
        """An object was added (`before` is None), modified or deleted (`after` is None).

        Pods are given as PodInfo.
        """

    def displaced(self, placement: PodPlacement, event: PodEvent) -> None:
        """A pod no longer has its place on a node, because it was removed or forgotten or has expired."""

    def missed(self) -> None:
        """Some changes may not have been reported, because an error interrupted them."""


class Notifications:
    """Collects changes while the cache's lock is held; `take` them to call them without it."""

    def __init__(self) -> None:
        self.listener: Listener | None = None
        self._pending: list[Callable[[], None]] = []

    def take(self) -> list[Callable[[], None]]:
        """Returns the waiting reports; none wait from now on."""
        pending = self._pending
        self._pending = []
        return pending

    def changed(self, kind: str, before: Object | PodInfo | None, after: Object | PodInfo | None) -> None:
        if self.listener is not None:
            self._pending.append(partial(self.listener.changed, kind, before, after))

    def discarded(self, assumed: Object, effective: Object | None) -> None:
        """Reports an assumed object as changed back to the one that readers see now.

        The report shows it without a version: the API server never had it, and the listener must not take it for
        observed.
        """
        metadata = structs.replace(assumed.metadata, resource_version="")
        self.changed(type(assumed).__name__, structs.replace(assumed, metadata=metadata), effective)

    def displaced(self, placement: PodPlacement, event: PodEvent) -> None:
        if self.listener is not None:
            self._pending.append(partial(self.listener.displaced, placement, event))

    def missed(self) -> None:
        if self.listener is not None:
            self._pending.append(self.listener.missed)


def deliver(notifications: list[Callable[[], None]]) -> None:
    """Calls them all, even after one has raised; then raises the first error."""
    errors: list[Exception] = []
    for notify in notifications:
        try:
            notify()
        except Exception as error:
            errors.append(error)
    if errors:
        raise errors[0]

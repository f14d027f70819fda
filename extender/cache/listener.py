"""Reports changes of the cache to its listener, the scheduling queue."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Protocol

from msgspec import structs

from extender.cache.placements import PodPlacement
from extender.cache.pod_states import PodEvent
from extender.model.meta import Object
from extender.runtime.going_on import SetAside
from extender.table import PodInfo


class Listener(Protocol):
    """Receives every change of the cache. Called without the cache's lock; changes of one kind arrive in order."""

    def changed(self, kind: str, before: Any, after: Any) -> None:
        """Handles an object that was added (`before` is None), modified, or deleted (`after` is None).

        A pod is passed as a PodInfo.
        """

    def displaced(self, placement: PodPlacement, event: PodEvent) -> None:
        """Handles a pod that lost its node: the pod was removed or forgotten, or has expired."""

    def missed(self) -> None:
        """Handles an error that may have lost some reports of changes."""


class Notifications:
    """Collects reports of changes while the cache's lock is held, so that they can be delivered without the lock."""

    def __init__(self) -> None:
        self.listener: Listener | None = None
        self._pending: list[partial[None]] = []

    def take(self) -> list[partial[None]]:
        """Returns the collected reports, and clears them."""
        pending = self._pending
        self._pending = []
        return pending

    def changed(self, kind: str, before: Object | PodInfo | None, after: Object | PodInfo | None) -> None:
        if self.listener is not None:
            self._pending.append(partial(self.listener.changed, kind, before, after))

    def discarded(self, assumed: Object, effective: Object | None) -> None:
        """Reports that an assumed object was discarded, and that readers now see `effective` (None: no object).

        The reported object has no resource version, because the API server never had it. With a version, the listener
        could mistake it for an observed object.
        """
        metadata = structs.replace(assumed.metadata, resource_version="")
        self.changed(type(assumed).__name__, structs.replace(assumed, metadata=metadata), effective)

    def displaced(self, placement: PodPlacement, event: PodEvent) -> None:
        if self.listener is not None:
            self._pending.append(partial(self.listener.displaced, placement, event))

    def missed(self) -> None:
        if self.listener is not None:
            self._pending.append(partial(self.listener.missed))


def deliver(notifications: Sequence[partial[None]], set_aside: SetAside) -> bool:
    """Calls all of `notifications`, even after one has raised; returns False if the listener has missed one.

    Raises MemoryError, after the other notifications.
    """
    complete, out_of_memory = True, None
    for notify in notifications:
        try:
            notify()
        except MemoryError as error:
            out_of_memory = error
        except Exception as error:  # the listener must not miss the changes of other objects
            complete = False
            set_aside("queue", _subject(*notify.args), error)
    if out_of_memory is not None:
        raise out_of_memory
    return complete


def _subject(*args: Any) -> str:
    """Returns the name of the object that a notification with these arguments is about."""
    described = next((arg for arg in args if isinstance(arg, (PodPlacement, PodInfo, Object))), None)
    if isinstance(described, PodPlacement):
        described = described.info
    return described.pod.key if isinstance(described, PodInfo) else described.key if described else ""

"""Keeps the journal of the cache: the current value of every object, and the order of their changes.

It also reports the changes to the cache's listener, the scheduling queue.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

from msgspec import structs

from extender.cache.pod_states import PodEvent, PodPlacement
from extender.model.meta import Object
from extender.model.node import Node
from extender.model.pod import Pod
from extender.runtime.threads import SetAside
from extender.table import PodInfo, Table
from extender.table.journal import Journal

NODE, POD = Node.__name__, Pod.__name__

Reference = tuple[str, str]
"""The kind and id of an object: a pod's UID, any other object's key."""

Current = Object | PodPlacement | PodInfo | None
"""The current value of an object as tables see it.

A `PodPlacement` for a pod on a node, a `PodInfo` for any other pod, and None for a deleted object.
"""

_LISTED = "listed"


class Update(NamedTuple):
    """One changed object and its current value, to be set in a table."""

    kind: str
    key: str
    current: Current

    @property
    def node_name(self) -> str:
        """The node that changed, or that the changed pod is on; "" if neither."""
        if self.kind == NODE:
            return self.key
        return self.current.node_name if isinstance(self.current, PodPlacement) else ""


class Updates:
    """The current values of some objects, by kind and key, copied at one moment.

    Whole dicts are copied, because the cache's lock is held during the copy. Copying 250,000 values one by one would
    take 150 ms.
    """

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, Mapping[str, Current]]) -> None:
        self._values = values

    def __len__(self) -> int:
        return sum(map(len, self._values.values()))

    def __iter__(self) -> Iterator[Update]:
        for kind, values in self._values.items():
            for key, current in values.items():
                yield Update(kind, key, current)


class Changes:
    """The current value of every object, and a journal of the changes from which tables are updated.

    A cursor is a position in the journal. Callers hold the cache's lock.
    """

    def __init__(self) -> None:
        self._journal = Journal()
        self._current: dict[str, dict[str, Current]] = {}

    @property
    def now(self) -> int:
        """The cursor at the end of the journal. A reader with this cursor has read everything."""
        return self._journal.now

    def note(self, kind: str, key: str, current: Current) -> None:
        """Records the new value of an object; None records its deletion."""
        values = self._current.setdefault(kind, {})
        if current is None:
            values.pop(key, None)
            self._journal.note_removed(kind, key)
        else:
            values[key] = current
            self._journal.note(kind, key)

    def current(self, kind: str, key: str) -> Current:
        """Returns the value of an object that was recorded last."""
        return self._current.get(kind, {}).get(key)

    def restart(self, kind: str, current: Mapping[str, Current]) -> None:
        """Replaces all values of a kind by `current`, which maps keys to values. Every table must then start over."""
        self._current[kind] = {key: value for key, value in current.items() if value is not None}
        self._journal.begin(kind)

    def note_listed(self, kind: str) -> None:
        """Records that a list has delivered all objects of the kind, even the unchanged objects."""
        self._journal.note(_LISTED, kind)

    def all(self) -> Updates:
        """Returns the current values of all objects."""
        return Updates({kind: values.copy() for kind, values in self._current.items()})

    def since(self, cursor: int) -> Updates | None:
        """Returns the objects that changed after `cursor`; None if the journal no longer holds all these changes."""
        updates: dict[str, dict[str, Current]] = {}
        for kind in self._journal.changed_topics(cursor):
            if kind == _LISTED:
                continue
            keys = self._journal.since(cursor, kind)
            if keys is None:
                return None
            values = self._current[kind]
            updates[kind] = {key: values.get(key) for key in keys}
        return Updates(updates)

    def may_affect(self, node_name: str, cursor: int) -> bool:
        """Returns True if a change after `cursor` may alter the result of checking a pod on the node.

        Changes of other nodes do not count, because node statuses change all the time, and no scheduler checks other
        nodes again before a bind.
        """
        updates = self.since(cursor)
        return updates is None or any(_may_affect(update, node_name) for update in updates)

    def reported_since(self, cursor: int, reference: Reference) -> bool:
        """Returns True if the object was recorded, or its kind was listed, after `cursor`."""
        return self._journal.has_changed(cursor, *reference) or self._journal.has_changed(cursor, _LISTED, reference[0])


def _may_affect(update: Update, node_name: str) -> bool:
    if update.kind == NODE:
        return update.key == node_name
    waiting_pod = update.current if isinstance(update.current, PodInfo) else None
    return waiting_pod is None or bool(waiting_pod.pod.status.nominated_node_name)


def apply(updates: Iterable[Update], table: Table) -> None:
    """Sets each updated object in the table to its current value."""
    for kind, key, current in updates:
        if kind == POD:
            _apply_pod(table, key, current)
        elif kind == NODE:
            table.set_node(current) if isinstance(current, Node) else table.remove_node(key)
        elif isinstance(current, Object):
            table.set_object(kind, current)
        else:
            table.remove_object(kind, key)


def _apply_pod(table: Table, uid: str, current: Current) -> None:
    if isinstance(current, PodPlacement):
        table.place(current.info, current.node_name)
    else:
        table.take_away(uid)
    if isinstance(current, PodInfo) and current.pod.status.nominated_node_name:
        table.nominate(current, current.pod.status.nominated_node_name)
    else:
        table.withdraw(uid)


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

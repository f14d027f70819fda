"""The journal of the cache: the present value of every object, and the order in which they have changed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from extender.cache.placements import PodPlacement
from extender.model.meta import Object
from extender.model.node import Node
from extender.model.pod import Pod
from extender.table import PodInfo, Table
from extender.table.journal import Journal

NODE, POD = Node.__name__, Pod.__name__

Reference = tuple[str, str]
"""(kind, key) of an object; pods go by UID."""

Present = Object | PodPlacement | PodInfo | None
"""An object as tables are to have it; a pod is its placement, or if it has none what is known of it. None: gone."""

_LISTED = "listed"


class Update(NamedTuple):
    """The present value of one object."""

    kind: str
    key: str
    present: Present


class Updates:
    """The present values of some objects, as of one moment.

    They are copied as whole dicts, since the cache's lock is held meanwhile: one by one, 250,000 take 150 ms.
    """

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, Mapping[str, Present]]) -> None:
        """`values`: by kind and key."""
        self._values = values

    def __len__(self) -> int:
        return sum(map(len, self._values.values()))

    def __iter__(self) -> Iterator[Update]:
        for kind, values in self._values.items():
            for key, present in values.items():
                yield Update(kind, key, present)


class Changes:
    """The present value of every object, with a journal over them: all that a table has to be told."""

    def __init__(self) -> None:
        self._journal = Journal()
        self._present: dict[str, dict[str, Present]] = {}

    @property
    def now(self) -> int:
        """The cursor of a reader that has taken in everything."""
        return self._journal.now

    def note(self, kind: str, key: str, present: Present) -> None:
        """Notes the present value of the object."""
        values = self._present.setdefault(kind, {})
        if present is None:
            values.pop(key, None)
            self._journal.note_removed(kind, key)
        else:
            values[key] = present
            self._journal.note(kind, key)

    def restart(self, kind: str, present: Mapping[str, Present]) -> None:
        """Replaces the present values of a kind, by key; every table is rebuilt."""
        self._present[kind] = {key: value for key, value in present.items() if value is not None}
        self._journal.begin(kind)

    def note_listed(self, kind: str) -> None:
        """Notes that the kind was listed, which tells of every object, though most have not changed."""
        self._journal.note(_LISTED, kind)

    def all(self) -> Updates:
        """Returns every object, as for a table that is made anew."""
        return Updates({kind: values.copy() for kind, values in self._present.items()})

    def since(self, cursor: int) -> Updates | None:
        """Returns each object that has changed after `cursor` once; None: that is too long ago to tell."""
        updates: dict[str, dict[str, Present]] = {}
        for kind in self._journal.changed_topics(cursor):
            if kind == _LISTED:
                continue
            keys = self._journal.since(cursor, kind)
            if keys is None:
                return None
            values = self._present[kind]
            updates[kind] = {key: values.get(key) for key in keys}
        return Updates(updates)

    def concern(self, node_name: str, cursor: int) -> bool:
        """Returns whether a check of the node may come out otherwise by what has changed after `cursor`.

        Other nodes are left out: their status changes all the time, and no scheduler looks at them again before a bind.
        """
        updates = self.since(cursor)
        return updates is None or any(_concerns(update, node_name) for update in updates)

    def reported_since(self, cursor: int, reference: Reference) -> bool:
        """Returns whether anything was told of the object after `cursor`, if only that it is as it was."""
        return self._journal.has_changed(cursor, *reference) or self._journal.has_changed(cursor, _LISTED, reference[0])


def _concerns(update: Update, node_name: str) -> bool:
    if update.kind == NODE:
        return update.key == node_name
    waiting = update.present if isinstance(update.present, PodInfo) else None
    return waiting is None or bool(waiting.pod.status.nominated_node_name)


def apply(updates: Iterable[Update], table: Table) -> None:
    """Brings the objects in the table to their present values."""
    for kind, key, present in updates:
        if kind == POD:
            _apply_pod(table, key, present)
        elif kind == NODE:
            table.set_node(present) if isinstance(present, Node) else table.remove_node(key)
        elif isinstance(present, Object):
            table.set_object(kind, present)
        else:
            table.remove_object(kind, key)


def _apply_pod(table: Table, uid: str, present: Present) -> None:
    if isinstance(present, PodPlacement):
        table.place(present.info, present.node_name)
    else:
        table.take_away(uid)
    if isinstance(present, PodInfo) and present.pod.status.nominated_node_name:
        table.nominate(present, present.pod.status.nominated_node_name)
    else:
        table.withdraw(uid)

"""Finds the differences between a table and one that was built from scratch for the same cluster.

Events change a table in place, so an error in its counts would never go away. Rows, slots and ids of the two tables are
unrelated, so nodes are compared by name and pods by UID. For every query whose counts the old table has stored, the new
table computes the counts too, and the two are compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from extender.table.table import Table

Column = NDArray[Any]
Columns = Mapping[str, Column]
Entries = Mapping[Any, object]

_LONGEST_TEXT = 200


class TableDifference(NamedTuple):
    """A value that differs between a table and one that was built from scratch.

    Attributes:
        what: the field.
        where: the node, pod or other object that has the field.
        actual: the value in the table, as text.
        expected: the value in the table that was built from scratch, as text.
    """

    what: str
    where: str
    actual: str
    expected: str


def differences(actual: Table, fresh: Table) -> Iterator[TableDifference]:
    """Yields all differences; may raise any exception if the parts of a table are inconsistent."""
    yield from _by_row(actual, fresh)
    yield from _by_slot(actual, fresh)
    mine, other = _entries(actual, actual), _entries(fresh, actual)
    for what in mine:
        yield from _entry_differences(what, mine[what], other[what])


# ---- columns


def _by_row(actual: Table, fresh: Table) -> Iterator[TableDifference]:
    nodes, others = actual.nodes.row_of, fresh.nodes.row_of
    yield from _entry_differences("row", dict.fromkeys(nodes, "there"), dict.fromkeys(others, "there"))
    names = [name for name in nodes if name in others]
    mine = _gathered(_node_columns(actual, actual), [nodes[name] for name in names])
    other = _gathered(_node_columns(fresh, actual), [others[name] for name in names])
    yield from _column_differences("node", names, mine, other)


def _by_slot(actual: Table, fresh: Table) -> Iterator[TableDifference]:
    pods, others = actual.pods.slot_of, fresh.pods.slot_of
    yield from _entry_differences("pod", dict.fromkeys(pods, "there"), dict.fromkeys(others, "there"))
    uids = [uid for uid in pods if uid in others]
    mine = _gathered(_pod_columns(actual), [pods[uid] for uid in uids])
    other = _gathered(_pod_columns(fresh), [others[uid] for uid in uids])
    yield from _column_differences("pod", uids, mine, other)


def _node_columns(table: Table, queried: Table) -> Columns:
    """Returns the data of `table` that has one value for each node, by the name of the column.

    `queried` decides which labels, drivers and queries get a column. Both compared tables are read with the same
    `queried`, so they get the same ones. Resources and effects of terms have columns only in a table that has them.
    """
    nodes, csi = table.nodes, table.storage.csi_nodes
    columns: dict[str, Column] = {
        "name": _objects(nodes.names),
        "object": _objects(nodes.objects),
        "presence": nodes.present,
        "unschedulable": nodes.unschedulable,
        "taints": _objects(nodes.taint_sets)[nodes.taint_set],
        "CSINode": csi.known(),
    }
    for resource, index in nodes.resources.items():
        columns[f"allocatable {resource}"] = nodes.allocatable[index]
        columns[f"requested {resource}"] = nodes.requested[index]
    for key in queried.nodes.labels:
        columns[f"label {key}"] = _objects(nodes.labels[key].values)[nodes.labels[key].ids]
    for driver in queried.storage.attachments.drivers():
        columns[f"volumes of {driver}"] = table.storage.attachments.counted(driver)
        columns[f"limit for volumes of {driver}"] = csi.limit(driver)
    return {**columns, **_stored_counts(table, queried)}


def _stored_counts(table: Table, queried: Table) -> Columns:
    answers: dict[str, Column] = {}
    for query in queried.matches.queries():
        answers[f"pods found by {query}"] = table.matches.count(query).by_node
    for incoming in queried.terms.incoming_pods():
        for effect, count in table.terms.effects_on(incoming).effects.items():
            answers[f"{effect} on {incoming}"] = count.by_node
    return answers


def _pod_columns(table: Table) -> Columns:
    """Returns the data of `table` that has one value for each pod slot, by the name of the column."""
    pods = table.pods
    taken = len(pods.infos)
    groups = {entry.slot: group for group, entry in table.matches.groups().items()}
    terms = {entry.slot: actual for actual, entry in table.terms.pods_by_terms().items()}
    columns: dict[str, Column] = {
        "object": _objects(pods.infos),
        "node": _objects(table.nodes.names)[pods.row[:taken]],
        "priority": pods.priority[:taken],
        "start": pods.started[:taken],
        "terminating": pods.terminating[:taken],
        "group": _objects([groups.get(slot) for slot in pods.group[:taken].tolist()]),
        "terms": _objects([terms.get(slot, ()) for slot in pods.terms[:taken].tolist()]),
    }
    for resource, index in table.nodes.resources.items():
        columns[f"requested {resource}"] = pods.requested[index, :taken]
    return columns


def _objects(values: Sequence[object]) -> Column:
    return np.fromiter(values, np.object_, len(values))


def _gathered(columns: Columns, indices: Sequence[int]) -> Columns:
    return {what: column[np.asarray(indices, np.intp)] for what, column in columns.items()}


def _column_differences(item: str, names: Sequence[str], actual: Columns, fresh: Columns) -> Iterator[TableDifference]:
    for what in actual.keys() | fresh.keys():
        # A table has no column for a resource that it does not contain, which is the same as a column of zeros.
        mine = actual.get(what, np.zeros(len(names), np.int64))
        other = fresh.get(what, np.zeros(len(names), np.int64))
        for i in np.flatnonzero(mine != other).tolist():
            yield TableDifference(what, f"{item} {names[i]}", _text(mine[i]), _text(other[i]))


# ---- everything else


def _entries(table: Table, queried: Table) -> Mapping[str, Entries]:
    """Returns the data of `table` that is not in columns, by the names of nodes and the UIDs of pods.

    Rows and slots cannot be compared, because they differ between two tables of the same cluster.
    """
    names, uids = table.nodes.names, [info.uid if info else "" for info in table.pods.infos]
    usage, unbound = table.storage.usage, table.storage.unbound
    return {
        "port": {port: _named(rows, names) for port, rows in table.ports.in_use().items()},
        "image": {image: {names[row] for row in stored.rows} for image, stored in table.nodes.images.items()},
        "group": {
            group: (_named(entry.standing, names), _named(entry.terminating, names))
            for group, entry in table.matches.groups().items()
        },
        "terms": {actual: _named(entry.rows, names) for actual, entry in table.terms.pods_by_terms().items()},
        "total": {query: table.matches.count(query).total for query in queried.matches.queries()},
        "nominated pods": {node: set(infos) for node, infos in table.nominated.items()},
        "claim": {claim: {uids[slot] for slot in slots} for claim, slots in usage.claims().items()},
        "disk": {disk: {uids[slot]: reads for slot, reads in users.items()} for disk, users in usage.disks().items()},
        "object": {(kind, key): obj for kind, objects in table.objects.kinds() for key, obj in objects.items()},
        "volume": unbound.names(),
    }


def _named(amounts: Mapping[int, int], names: Sequence[str]) -> dict[str, int]:
    return {names[row]: amount for row, amount in amounts.items()}


def _entry_differences(what: str, actual: Entries, fresh: Entries) -> Iterator[TableDifference]:
    for key in actual.keys() | fresh.keys():
        if actual.get(key) != fresh.get(key):
            yield TableDifference(what, _text(key), _text(actual.get(key)), _text(fresh.get(key)))


def _text(value: object) -> str:
    text = str(value)
    return text if len(text) <= _LONGEST_TEXT else text[:_LONGEST_TEXT] + "..."

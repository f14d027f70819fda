"""Compares the cache with the API server, corrects it, and dumps it (upstream backend/cache/debugger).

`Comparer` compares the cache with a fresh list of every kind, and compares each table with a new table. It corrects the
differences. `dump` returns all nodes and pods of the cache. Upstream's comparer compares only the names of nodes and
pods.

A change that the watch is about to deliver is not a difference. Resource versions of a kind can be compared (KEP-5504),
and a watch delivers changes in the order of their versions. So an object that differs from the list counts as a
difference only if both of these are true:

- The watch has delivered a version at least as new as the listed object, so it should have delivered that object too.
- The API server has not reported the object since the comparison began.

A list does not show when an object was deleted. So an object that is cached but not listed counts as a difference once
the watch has reached the version of the list. If few objects of a kind change, only bookmarks take the watch to that
version, which may take minutes. So the object also counts if the watch has not reported it within 20 s.

An object that is listed but not delivered within 20 s is undecided. The watch may be broken, so the kind is listed
again. A pod that is being bound (ASSUMED) is not compared. If the bind of a pod has finished (FINISHED), it is
no difference that the list shows the pod without a node.

A table is compared with one that is built from scratch: events change a table in place, so an error in its counts would
never go away. Rows, slots and ids of the two are unrelated, so nodes are compared by name and pods by UID. For every
query whose counts the old table has stored, the new table computes the counts too, and the two are compared.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import compress, islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from extender.cache.cache import Cache
from extender.cache.changes import POD, Reference
from extender.cache.observed import CachedPod
from extender.cache.pod_states import PodState
from extender.errors import ClusterError, MalformedInput
from extender.model.meta import Object
from extender.model.pod import Pod
from extender.runtime.ports import Lister, Telemetry
from extender.runtime.threads import going_on
from extender.table import Table

Column = NDArray[Any]
Columns = Mapping[str, Column]
Entries = Mapping[Any, object]

_LONGEST_TEXT = 200
TABLE = Table.__name__
_POLL_SECONDS, _POLLS = 0.1, 200  # the watch has 20 s to deliver the listed objects
_BREATH_SECONDS = 0.002
_MOST_PER_TABLE = 100


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
    taken = pods.slots
    groups = {entry.slot: group for group, entry in table.matches.groups.items()}
    terms = {entry.slot: actual for actual, entry in table.terms.pods_by_terms.items()}
    columns: dict[str, Column] = {
        "object": pods.infos[:taken],
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
            for group, entry in table.matches.groups.items()
        },
        "terms": {actual: _named(entry.rows, names) for actual, entry in table.terms.pods_by_terms.items()},
        "total": {query: table.matches.count(query).total for query in queried.matches.queries()},
        "nominated pods": {node: set(infos) for node, infos in table.nominated.items()},
        "claim": {claim: {uids[slot] for slot in slots} for claim, slots in usage.claims.items()},
        "disk": {disk: {uids[slot]: reads for slot, reads in users.items()} for disk, users in usage.disks.items()},
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


@dataclass(frozen=True, slots=True)
class CacheDifference:
    """One difference between the cache and the API server, or between a table and a new table (kind Table).

    The cached object is then corrected, or the table is discarded.
    """

    kind: str
    key: str
    how: str


@dataclass(slots=True)
class Report:
    """The result of one comparison.

    Attributes:
        compared: the number of compared objects by kind; the key "Table" counts tables.
        undecided: listed objects that the watch had not delivered after 20 s; their kind is listed again.
        unlisted: for each kind that could not be listed, the reason.
    """

    compared: dict[str, int] = field(default_factory=dict)
    differences: list[CacheDifference] = field(default_factory=list)
    undecided: list[CacheDifference] = field(default_factory=list)
    unlisted: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Suspect:
    """An object that is not the same in the cache and in the list. The watch may be about to deliver the change.

    Attributes:
        version: after the watch has delivered this version, the suspect counts as a difference.
    """

    reference: Reference
    key: str
    listed: Object | None
    version: str
    how: str

    @property
    def difference(self) -> CacheDifference:
        return CacheDifference(self.reference[0], self.key, self.how)


class Comparer:
    """Compares the cache with the API server and corrects the cache. Only one comparison runs at a time.

    Args:
        pause: sleeps for a number of seconds, but returns True at once if the process is ending.
    """

    def __init__(
        self, cache: Cache, lister: Lister[Object], telemetry: Telemetry, pause: Callable[[float], object]
    ) -> None:
        self._cache = cache
        self._lister = lister
        self._telemetry = telemetry
        self._pause = pause
        self._one_at_a_time = threading.Lock()

    def compare(self) -> Report:
        """Compares all kinds and all tables, corrects the differences, and returns a report."""
        report = Report()
        with self._one_at_a_time:
            for kind in self._lister.kinds():
                self._compare_kind(kind, report)
            self._compare_tables(report)
        for difference in report.differences:
            self._telemetry.cache_differed(difference.kind, difference.key, difference.how)
        return report

    # ---- objects

    def _compare_kind(self, kind: str, report: Report) -> None:
        begin = self._cache.cursor()
        try:
            version, objects = self._lister.list(kind)
        except ClusterError as error:
            report.unlisted[kind] = str(error)
            return
        report.compared[kind] = len(objects)
        differing, undecided = self._judge(list(self._suspects(kind, version, objects)), begin)
        corrected = [suspect.difference for suspect in differing if self._correct(suspect, begin)]
        if number := len(corrected) + len(undecided):
            self._lister.relist(kind, f"the cache differs from a list in {number} objects")
        report.differences += corrected
        report.undecided += [suspect.difference for suspect in undecided]

    def _suspects(self, kind: str, version: str, objects: Sequence[Object]) -> Iterator[_Suspect]:
        if kind == POD:
            return _suspect_pods(self._cache.pods(), version, [obj for obj in objects if isinstance(obj, Pod)])
        return _suspect_objects(kind, self._cache.objects(kind), version, objects)

    def _judge(self, suspects: list[_Suspect], begin: int) -> tuple[list[_Suspect], list[_Suspect]]:
        """Waits up to 20 s for the watch; returns the suspects that are differences, and the undecided suspects."""
        differing: list[_Suspect] = []
        for _ in range(_POLLS):
            # The watch is read before the cache, so that the cache contains everything that the watch has delivered.
            delivered = [self._lister.has_delivered(suspect.reference[0], suspect.version) for suspect in suspects]
            differing += compress(suspects, delivered)
            suspects = [suspect for suspect, done in zip(suspects, delivered, strict=True) if not done]
            suspects = [suspect for suspect in suspects if not self._cache.reported_since(begin, suspect.reference)]
            if not suspects or self._pause(_POLL_SECONDS):
                return differing, []  # no object is left to check, or the process is ending
        gone = [suspect for suspect in suspects if suspect.listed is None]
        return differing + gone, [suspect for suspect in suspects if suspect.listed is not None]

    def _correct(self, suspect: _Suspect, begin: int) -> bool:
        with going_on(self._telemetry.set_aside, "comparison", suspect.key), suppress(MalformedInput):
            listed = None if suspect.listed is None else self._cache.reader.read(suspect.listed)
            return self._cache.correct(suspect.reference, listed, begin)
        return False  # the cache leaves out unreadable objects, so there is nothing to correct

    # ---- tables

    def _compare_tables(self, report: Report) -> None:
        def is_right(table: Table, fresh: Table) -> bool:
            table_differences = list(_table_differences(table, fresh))
            report.differences += table_differences
            return not table_differences

        report.compared[TABLE] = self._cache.check_tables(is_right, lambda: self._pause(_BREATH_SECONDS))


def _suspect_objects(
    kind: str, cached: Mapping[str, Object], version: str, objects: Sequence[Object]
) -> Iterator[_Suspect]:
    listed = {obj.key: obj for obj in objects}
    for key in cached.keys() - listed.keys():
        yield _Suspect((kind, key), key, None, version, "is cached, but not listed")
    for key, obj in listed.items():
        if cached.get(key) != obj:
            yield _Suspect((kind, key), key, obj, obj.metadata.resource_version, _difference(cached.get(key), obj))


def _suspect_pods(cached: Mapping[str, CachedPod], version: str, pods: Sequence[Pod]) -> Iterator[_Suspect]:
    listed = {pod.uid: pod for pod in pods if not pod.finished}
    for uid, entry in cached.items():
        if uid not in listed and entry.state is not PodState.ASSUMED:
            yield _Suspect((POD, uid), entry.pod.key if entry.pod else uid, None, version, "is cached, but not listed")
    for uid, pod in listed.items():
        how = _pod_difference(cached.get(uid), pod)
        if how is not None:
            yield _Suspect((POD, uid), pod.key, pod, pod.metadata.resource_version, how)


def _pod_difference(entry: CachedPod | None, pod: Pod) -> str | None:
    """Returns how the cached pod differs from the listed pod; None if they are equal, or the pod is being bound."""
    if entry is not None and entry.state is PodState.ASSUMED:
        return None
    if entry is None or entry.pod != pod:
        return _difference(entry.pod if entry else None, pod)
    if not entry.findable:
        return "is cached, but not found by its name"
    if entry.node_name != pod.node_name and (pod.node_name or entry.state is PodState.ADDED):
        return f"is placed on node {entry.node_name or '(none)'}, but listed on {pod.node_name or '(none)'}"
    return None


def _difference(cached: Object | None, listed: Object) -> str:
    if cached is None:
        return "is listed, but not cached"
    if cached.uid != listed.uid:
        return f"is cached with UID {cached.uid}, but listed with {listed.uid}"
    cached_version, listed_version = cached.metadata.resource_version, listed.metadata.resource_version
    if cached_version == listed_version:
        return f"is cached and listed at version {listed_version}, with different contents"
    return f"is cached at version {cached_version}, but listed at {listed_version}"


def _table_differences(table: Table, fresh: Table) -> Iterator[CacheDifference]:
    try:
        for difference in islice(differences(table, fresh), _MOST_PER_TABLE):
            how = f"{difference.what} is {difference.actual}, expected {difference.expected}"
            yield CacheDifference(TABLE, difference.where, how)
    except Exception as error:  # reading an inconsistent table may raise anything
        yield CacheDifference(TABLE, "", f"cannot be read: {error!r}")


@dataclass(frozen=True, slots=True)
class DumpedNode:
    """A node as a table shows it: cpu in millicores, memory and storage in bytes, other resources as counts.

    Attributes:
        known: False if the cache has pods on the node, but not the node.
    """

    name: str
    known: bool
    allocatable: Mapping[str, int]
    requested: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class DumpedPod:
    """A pod without its spec: its name, its node ("" for none), and its state in the cache."""

    key: str
    uid: str
    node: str
    state: str


@dataclass(frozen=True, slots=True)
class Dump:
    """The contents of the cache. The pods may be a moment newer than the nodes."""

    nodes: list[DumpedNode]
    pods: list[DumpedPod]
    nominated: Mapping[str, list[str]]


def dump(cache: Cache) -> Dump:
    """Returns the nodes with their total requests, the pods with their nodes, and the nominated pods by node."""
    with cache.snapshot("dump") as table:
        nodes = [_node(table, name) for name in sorted(table.nodes.row_of)]
        nominated = {node: sorted(info.pod.key for info in infos.values()) for node, infos in table.nominated.items()}
    pods = [
        DumpedPod(entry.pod.key if entry.pod else "", uid, entry.node_name, _state(entry.state))
        for uid, entry in cache.pods().items()
    ]
    return Dump(nodes, sorted(pods, key=lambda pod: (pod.key, pod.uid)), nominated)


def _node(table: Table, name: str) -> DumpedNode:
    nodes, row = table.nodes, table.nodes.row_of[name]
    allocatable = {resource: int(nodes.allocatable[index, row]) for resource, index in nodes.resources.items()}
    requested = {resource: int(nodes.requested[index, row]) for resource, index in nodes.resources.items()}
    return DumpedNode(name, bool(nodes.present[row]), allocatable, requested)


def _state(state: PodState) -> str:
    return "waiting" if state is PodState.INITIAL else state.name.lower()

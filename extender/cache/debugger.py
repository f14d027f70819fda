"""Looks at the cache from outside (upstream backend/cache/debugger).

`Comparer` holds the cache against a fresh list and every table against one made anew, and puts right what differs;
`dump` writes down all that the cache counts.

kube-scheduler has such a comparer for nodes and pods; this one looks at every kind and at every number.

What is merely under way is no difference. Resource versions of a kind are comparable (KEP-5504) and a watch tells of
changes in their order. So an object that the cache has otherwise than the list counts only
- once the watch has told of something as new as the listed object, for then it should have told of that too, and
- if the cache has not been told of the object since the comparison began.
A list does not say when an object was deleted. One that is held but not listed counts once the watch is as far as the
list itself; as a quiet kind gets there by bookmarks alone, which come once a minute or more rarely, it counts too when
the watch has not told of it within 20 s. An object that is listed and that the watch has not delivered by then is
undecided: the watch is distrusted, and the kind is listed again.
A pod whose bind is under way (ASSUMED) is not looked at, and one whose bind has ended (FINISHED) may still be listed
without a node.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress, islice

from extender.cache.cache import Cache
from extender.cache.changes import POD, Reference
from extender.cache.contents import CachedPod
from extender.cache.pod_states import PodState
from extender.errors import ClusterError, MalformedInput
from extender.model.meta import Object
from extender.model.pod import Pod
from extender.runtime.ports import Lister, Telemetry
from extender.table import Table
from extender.table.comparison import differences

TABLE = Table.__name__
_POLL_SECONDS, _POLLS = 0.1, 200  # the watch has 20 s to deliver what is listed, as after every survey
_BREATH_SECONDS = 0.002
_MOST_PER_TABLE = 100


@dataclass(frozen=True, slots=True)
class CacheDifference:
    """A difference that was found, and is put right. `kind` Table: a count in a table, which is no longer used."""

    kind: str
    key: str
    how: str


@dataclass(slots=True)
class Report:
    """The result of one comparison.

    Attributes:
        compared: how many objects of each kind are listed; under Table: how many tables.
        undecided: listed objects that the watch had not delivered after 20 s; their kind is listed again.
        unlisted: why a kind could not be listed, by kind.
    """

    compared: dict[str, int] = field(default_factory=dict)
    differences: list[CacheDifference] = field(default_factory=list)
    undecided: list[CacheDifference] = field(default_factory=list)
    unlisted: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Suspect:
    """An object that is not as listed, unless something is under way. `version`: where the watch must be to tell."""

    reference: Reference
    key: str
    listed: Object | None
    version: str
    how: str

    @property
    def difference(self) -> CacheDifference:
        return CacheDifference(self.reference[0], self.key, self.how)


class Comparer:
    """Compares, and puts right; one comparison at a time.

    Args:
        pause: sleeps for so many seconds; returns True, perhaps sooner, when the process is to end.
    """

    def __init__(
        self, cache: Cache, lister: Lister[Object], telemetry: Telemetry, pause: Callable[[float], object]
    ) -> None:
        self._cache, self._lister, self._telemetry, self._pause = cache, lister, telemetry, pause
        self._one_at_a_time = threading.Lock()

    def compare(self) -> Report:
        """Compares everything. Never raises what a list or a broken table may raise."""
        report = Report()
        with self._one_at_a_time:
            for kind in self._lister.kinds():
                self._compare_kind(kind, report)
            self._compare_tables(report)
        for found in report.differences:
            self._telemetry.cache_differed(found.kind, found.key, found.how)
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
        decided, undecided = self._decided(list(self._suspects(kind, version, objects)), begin)
        found = [suspect.difference for suspect in decided if self._put_right(suspect, begin)]
        if wrong := len(found) + len(undecided):
            self._lister.relist(kind, f"a list shows {wrong} objects otherwise than the cache has them")
        report.differences += found
        report.undecided += [suspect.difference for suspect in undecided]

    def _suspects(self, kind: str, version: str, objects: Sequence[Object]) -> Iterator[_Suspect]:
        if kind == POD:
            return _suspect_pods(self._cache.pods(), version, [obj for obj in objects if isinstance(obj, Pod)])
        return _suspect_objects(kind, self._cache.objects(kind), version, objects)

    def _decided(self, suspects: list[_Suspect], begin: int) -> tuple[list[_Suspect], list[_Suspect]]:
        """Returns the suspects that the watch should have told of, and those that are undecided."""
        decided: list[_Suspect] = []
        for _ in range(_POLLS):
            # The watch first: what it tells between the two questions is known to the cache then.
            told = [self._lister.has_delivered(suspect.reference[0], suspect.version) for suspect in suspects]
            decided += compress(suspects, told)
            suspects = [one for one, is_told in zip(suspects, told, strict=True) if not is_told]
            suspects = [one for one in suspects if not self._cache.reported_since(begin, one.reference)]
            if not suspects or self._pause(_POLL_SECONDS):
                return decided, []  # nothing is left, or the process is about to end
        gone = [suspect for suspect in suspects if suspect.listed is None]
        return decided + gone, [suspect for suspect in suspects if suspect.listed is not None]

    def _put_right(self, suspect: _Suspect, begin: int) -> bool:
        try:
            listed = None if suspect.listed is None else self._cache.reader.read(suspect.listed)
            return self._cache.correct(suspect.reference, listed, begin)
        except MalformedInput:
            return False  # The watch has told of it, and the cache does without it, on purpose.

    # ---- tables

    def _compare_tables(self, report: Report) -> None:
        def is_right(held: Table, fresh: Table) -> bool:
            found = list(_table_differences(held, fresh))
            report.differences += found
            return not found

        report.compared[TABLE] = self._cache.check_tables(is_right, lambda: self._pause(_BREATH_SECONDS))


def _suspect_objects(
    kind: str, held: Mapping[str, Object], version: str, objects: Sequence[Object]
) -> Iterator[_Suspect]:
    listed = {obj.key: obj for obj in objects}
    for key in held.keys() - listed.keys():
        yield _Suspect((kind, key), key, None, version, "is held, but not listed")
    for key, obj in listed.items():
        if held.get(key) != obj:
            yield _Suspect((kind, key), key, obj, obj.metadata.resource_version, _how(held.get(key), obj))


def _suspect_pods(held: Mapping[str, CachedPod], version: str, pods: Sequence[Pod]) -> Iterator[_Suspect]:
    listed = {pod.uid: pod for pod in pods if not pod.finished}
    for uid, has in held.items():
        if uid not in listed and has.state is not PodState.ASSUMED:
            yield _Suspect((POD, uid), has.pod.key if has.pod else uid, None, version, "is held, but not listed")
    for uid, pod in listed.items():
        how = _pod_differs(held.get(uid), pod)
        if how:
            yield _Suspect((POD, uid), pod.key, pod, pod.metadata.resource_version, how)


def _pod_differs(has: CachedPod | None, pod: Pod) -> str:
    """Returns the difference between the held pod and the listed one; "" for none, or while nobody can tell."""
    if has is not None and has.state is PodState.ASSUMED:
        return ""
    if has is None or has.pod != pod:
        return _how(has.pod if has else None, pod)
    if not has.findable:
        return "is held, but not found by its name"
    if has.node_name != pod.node_name and (pod.node_name or has.state is PodState.ADDED):
        return f"counts on node {has.node_name or '(none)'}, but is listed on {pod.node_name or '(none)'}"
    return ""


def _how(held: Object | None, listed: Object) -> str:
    if held is None:
        return "is listed, but not held"
    if held.uid != listed.uid:
        return f"is held with UID {held.uid}, but listed with {listed.uid}"
    mine, other = held.metadata.resource_version, listed.metadata.resource_version
    if mine == other:
        return f"is held with other contents than listed at version {other}"
    return f"is held at version {mine}, but listed at {other}"


def _table_differences(held: Table, fresh: Table) -> Iterator[CacheDifference]:
    try:
        for found in islice(differences(held, fresh), _MOST_PER_TABLE):
            yield CacheDifference(TABLE, found.where, f"{found.what} is {found.actual}, not {found.expected}")
    except Exception as error:  # whatever a table raises whose parts do not fit together
        yield CacheDifference(TABLE, "", f"cannot be read: {error!r}")


@dataclass(frozen=True, slots=True)
class DumpedNode:
    """A node as a table has it: cpu in milli, memory and storage in bytes, everything else in units.

    Attributes:
        known: False where only pods on it are.
    """

    name: str
    known: bool
    allocatable: Mapping[str, int]
    requested: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class DumpedPod:
    """A pod: where it counts ("" nowhere), and how sure that is; nothing of what it contains."""

    key: str
    uid: str
    node: str
    state: str


@dataclass(frozen=True, slots=True)
class Dump:
    """The cache at one moment, save that pods may be a moment newer than nodes."""

    nodes: list[DumpedNode]
    pods: list[DumpedPod]
    nominated: Mapping[str, list[str]]


def dump(cache: Cache) -> Dump:
    """The nodes with their sums, the pods with their places, the nominated pods by node."""
    with cache.snapshot("dump") as table:
        nodes = [_node(table, name) for name in sorted(table.nodes.row_of)]
        nominated = {node: sorted(info.pod.key for info in infos.values()) for node, infos in table.nominated.items()}
    pods = [
        DumpedPod(held.pod.key if held.pod else "", uid, held.node_name, _state(held.state))
        for uid, held in cache.pods().items()
    ]
    return Dump(nodes, sorted(pods, key=lambda pod: (pod.key, pod.uid)), nominated)


def _node(table: Table, name: str) -> DumpedNode:
    nodes, row = table.nodes, table.nodes.row_of[name]
    allocatable = {resource: int(nodes.allocatable[index, row]) for resource, index in nodes.resources.items()}
    requested = {resource: int(nodes.requested[index, row]) for resource, index in nodes.resources.items()}
    return DumpedNode(name, bool(nodes.present[row]), allocatable, requested)


def _state(state: PodState) -> str:
    return "waiting" if state is PodState.INITIAL else state.name.lower()

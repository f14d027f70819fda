"""Defines the forms in which the cache stores objects, and the views of them for the debugger and status pages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple, TypeVar

from extender.cache.changes import POD
from extender.cache.observed import PodStore
from extender.cache.placements import Placements, PodPlacement
from extender.cache.pod_states import PodState
from extender.errors import MalformedInput
from extender.model.meta import Object
from extender.model.node import Node
from extender.model.pod import Pod, PodSpec
from extender.model.quantity import amounts
from extender.runtime.going_on import going_on
from extender.runtime.ports import Telemetry
from extender.table import PodInfo
from extender.table.podinfo import Templates

_BATCH = 50  # how many listed objects are stored before the lock is released; this takes 1 or 2 ms

T = TypeVar("T")


def batches(items: Iterable[T]) -> Iterator[tuple[T, ...]]:
    remaining = iter(items)
    while batch := tuple(islice(remaining, _BATCH)):
        yield batch


def id_of(kind: str, obj: Object) -> str:
    """Returns the id of an object in the cache: the UID for a pod, the key for any other object."""
    return obj.uid if kind == POD else obj.key


class ObjectReader:
    """Converts objects into the form in which the cache stores them. Thread-safe.

    Args:
        watched: UID -> the pod in the cache, read without the cache's lock. A new version of a pod shares all unchanged
            parts with the cached version.
    """

    def __init__(self, telemetry: Telemetry, watched: Mapping[str, PodInfo]) -> None:
        self._telemetry = telemetry
        self._watched = watched
        self._templates = Templates()

    def read(self, obj: Object) -> Object | PodInfo:
        """Returns the object as the cache stores it; a pod becomes a PodInfo. Raises MalformedInput."""
        if isinstance(obj, Pod):
            return self._templates.info(obj, self._watched.get(obj.uid))
        if isinstance(obj, Node):
            amounts(obj.allocatable)
        return obj

    def read_or_report(self, kind: str, obj: Object) -> Object | PodInfo | None:
        """Returns the object as the cache stores it; reports an object that cannot be read, and returns its rest.

        That is the `occupant` for a pod on a node, and None for any other object.
        """
        try:
            return self.read(obj)
        except MalformedInput as error:
            self._telemetry.unreadable(kind, obj.key, str(error))
        except MemoryError:
            raise
        except Exception as error:  # one object must not keep the others out of the cache
            self._telemetry.set_aside("cache", f"{kind} {obj.key}", error)
        if isinstance(obj, Pod) and obj.node_name:
            with going_on(self._telemetry.set_aside, "cache", f"{kind} {obj.key}"), suppress(MalformedInput):
                return occupant(obj)
        return None


def occupant(pod: Pod) -> PodInfo:
    """Returns the pod with only those fields that say what it takes of its node, so that others do not get that too.

    Such a pod replaces one that meets an error in the cache or in a table. The cause is probably in another field.

    Raises:
        MalformedQuantity: a request is not a quantity.
    """
    spec = pod.spec
    kept = PodSpec(
        node_name=spec.node_name,
        scheduler_name=spec.scheduler_name,
        priority=spec.priority,
        containers=spec.containers,
        init_containers=spec.init_containers,
        overhead=spec.overhead,
        resources=spec.resources,
        scheduling_group=spec.scheduling_group,
    )
    info = PodInfo(Pod(metadata=pod.metadata, spec=kept, status=pod.status))
    info.precompute()
    return info


@dataclass(frozen=True, slots=True)
class CacheSize:
    nodes: int
    pods: int
    assumed_pods: int


class PodOverview(NamedTuple):
    """All pods of a cache, grouped by whether they have a node.

    Attributes:
        assumed: the assumed pods, which the watch has not confirmed on their nodes yet.
        unplaced: the pods without a node.
        scheduled: the number of pods that the watch shows on a node.
    """

    assumed: list[PodPlacement]
    unplaced: list[PodInfo]
    scheduled: int


def overview_of(pods: PodStore, placements: Placements) -> PodOverview:
    assumed = placements.unconfirmed()
    waiting = [pods.effective(uid) for uid in pods.watched if uid not in placements]
    return PodOverview(assumed, [info for info in waiting if info is not None], len(placements) - len(assumed))


class CachedPod(NamedTuple):
    """One pod in the cache, for the Comparer, the dump and status pages.

    Attributes:
        pod: the pod as the watch shows it; None if the watch has not shown it yet.
        node_name: the node where the pod is counted; "" if it has no node.
        state: the pod's state in the cache, see pod_states.
        findable: True if a lookup by `namespace/name` finds this pod.
    """

    pod: Pod | None
    node_name: str
    state: PodState
    findable: bool


def cached_pods(
    watched: Mapping[str, PodInfo], placements: Mapping[str, PodPlacement], uid_of: Mapping[str, str]
) -> dict[str, CachedPod]:
    """Returns all pods that the watch shows or that have a node, by UID.

    Args:
        watched: UID -> the pod as the watch shows it.
        placements: UID -> the pod's placement on a node.
        uid_of: `namespace/name` -> the UID of the pod that has this name now.
    """
    uids = watched.keys() | placements.keys()
    return {uid: _cached_pod(watched.get(uid), placements.get(uid), uid_of) for uid in uids}


def _cached_pod(info: PodInfo | None, placement: PodPlacement | None, uid_of: Mapping[str, str]) -> CachedPod:
    return CachedPod(
        info.pod if info else None,
        placement.node_name if placement else "",
        placement.state if placement else PodState.INITIAL,
        info is not None and uid_of.get(info.pod.key) == info.uid,
    )

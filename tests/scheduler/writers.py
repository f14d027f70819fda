"""Writers of volumes and claims, on the objects of a world: with versions as preconditions, as the API server does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Protocol, TypeVar

import msgspec

from extender.errors import ClusterError, Conflict, NotFound, Refused
from extender.model.devices import (
    AllocationResult,
    ConsumerReference,
    RequestMapping,
    ResourceClaim,
    ResourceClaimStatus,
)
from extender.model.meta import Object
from extender.model.pod import Pod
from extender.model.storage import BIND_COMPLETED_ANNOTATION, PersistentVolume, PersistentVolumeClaim
from extender.plugins.volume_binding import bound, selected

replace = msgspec.structs.replace
T = TypeVar("T", bound=Object)


class Store(Protocol):
    """Holds the objects; `put_object` gives the object its next version and returns it."""

    objects: dict[tuple[str, str], Object]

    def put_object(self, obj: Object) -> Object: ...

    def delete(self, kind: str, key: str) -> None: ...


class Writer:
    """`faults`: what the next call of a method raises, by its name; `calls`: what was called, and did its work."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.faults: dict[str, ClusterError] = {}
        self.calls: list[tuple[str, str]] = []

    def _begin(self, method: str, obj: Object) -> None:
        if method in self.faults:
            raise self.faults.pop(method)
        self.calls.append((method, obj.name))

    def _current(self, obj: T) -> T:
        current = self._store.objects.get((type(obj).__name__, obj.key))
        if current is None or current.uid != obj.uid:
            raise NotFound(f"{obj.key} not found", 404)
        assert isinstance(current, type(obj))
        return current

    def _unchanged(self, obj: T) -> T:
        current = self._current(obj)
        if current.metadata.resource_version != obj.metadata.resource_version:
            raise Conflict(f"{obj.key}: the object has been modified", 409)
        return current

    def _put(self, obj: T) -> T:
        put = self._store.put_object(obj)
        assert isinstance(put, type(obj))
        return put


class VolumeWrites(Writer):
    """A scheduler.scheduler_ports.VolumeWriter, and the controllers that act on what it writes."""

    def bind(self, volume: PersistentVolume, claim: PersistentVolumeClaim) -> PersistentVolume:
        self._begin("bind", volume)
        return self._put(bound(self._unchanged(volume), claim))

    def select_node(self, claim: PersistentVolumeClaim, node_name: str) -> PersistentVolumeClaim:
        self._begin("select_node", claim)
        return self._put(selected(self._unchanged(claim), node_name))

    def complete(self) -> None:
        """The controller binds the claims that volumes name."""
        for volume in [each for each in self._store.objects.values() if isinstance(each, PersistentVolume)]:
            reference = volume.spec.claim_ref
            key = ("PersistentVolumeClaim", f"{reference.namespace}/{reference.name}") if reference else ("", "")
            claim = self._store.objects.get(key)
            if isinstance(claim, PersistentVolumeClaim) and not claim.spec.volume_name:
                done = {**claim.annotations, BIND_COMPLETED_ANNOTATION: "yes"}
                spec = replace(claim.spec, volume_name=volume.name)
                self._put(replace(claim, spec=spec, metadata=replace(claim.metadata, annotations=done)))

    def give_up(self, key: str) -> None:
        """The provisioner cannot make a volume for the claim on that node."""
        claim = self._store.objects["PersistentVolumeClaim", key]
        assert isinstance(claim, PersistentVolumeClaim)
        self._put(replace(claim, metadata=replace(claim.metadata, annotations=None)))


class ClaimWrites(Writer):
    """A scheduler.scheduler_ports.ClaimWriter.

    Attributes:
        mappings: what the statuses of pods tell, by pod.
        while_binding: what happens while the first of all binds is under way.
    """

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.mappings: dict[str, Sequence[RequestMapping]] = {}
        self.while_binding: Callable[[], object] | None = None
        self._created = 0

    def create(self, claim: ResourceClaim, pod: Pod) -> ResourceClaim:
        self._begin("create", claim)
        self._created += 1
        name = f"{pod.name}-extended-resources-{self._created}"
        return self._put(replace(claim, metadata=replace(claim.metadata, name=name, uid=f"uid-of-{name}")))

    def bind(
        self, claim: ResourceClaim, consumer: ConsumerReference, allocation: AllocationResult | None
    ) -> ResourceClaim:
        happens, self.while_binding = self.while_binding, None
        if happens is not None:
            happens()
        self._begin("bind", claim)
        current = self._current(claim)
        if current.allocation and allocation and current.allocation.devices == allocation.devices:
            allocation = None
        if current.allocation and allocation is None and current.is_reserved_for(consumer.uid):
            return current
        if (allocation is None) is (current.allocation is None):
            raise Refused(f"claim {claim.key} got allocated, or deallocated, elsewhere in the meantime", 409)
        if allocation is not None:
            allocation = replace(allocation, allocation_timestamp=datetime.fromtimestamp(1000, UTC))
        reserved = [*(current.status.reserved_for or ()), consumer]
        status = replace(current.status, allocation=allocation or current.allocation, reserved_for=reserved)
        return self._put(replace(current, status=status))

    def release(self, claim: ResourceClaim, uid: str, *, deallocate: bool) -> ResourceClaim | None:
        self._begin("release", claim)
        current = self._current(claim)
        if not current.is_reserved_for(uid):
            return current
        if deallocate and current.is_only_for(uid):
            return self._put(replace(current, status=ResourceClaimStatus()))
        others = [each for each in current.status.reserved_for or () if each.uid != uid]
        return self._put(replace(current, status=replace(current.status, reserved_for=others)))

    def deallocate(self, claim: ResourceClaim) -> ResourceClaim:
        self._begin("deallocate", claim)
        return self._put(replace(self._unchanged(claim), status=ResourceClaimStatus()))

    def delete(self, claim: ResourceClaim) -> None:
        self._begin("delete", claim)
        if ("ResourceClaim", claim.key) in self._store.objects:
            self._store.delete("ResourceClaim", claim.key)

    def describe(self, pod: Pod, claim: ResourceClaim, mappings: Sequence[RequestMapping]) -> None:
        self._begin("describe", claim)
        self.mappings[pod.name] = mappings

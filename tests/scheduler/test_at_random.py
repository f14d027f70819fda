"""Volumes and devices under faults in any order: nothing is given twice, and nothing stays taken without an owner."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from extender.devices.allocations import devices_of
from extender.errors import ClusterError, Conflict, OutcomeUnknown, Refused
from extender.model.devices import PendingClaim, ResourceClaim
from extender.model.pod import Pod
from extender.model.storage import PersistentVolume, PersistentVolumeClaim
from tests.builders import (
    expression,
    make_claim,
    make_device_class,
    make_node,
    make_pod,
    make_pv,
    make_pvc,
    make_request,
    make_resource_slice,
    make_storage_class,
    node_term,
)
from tests.scheduler.world import NAME, World

pytestmark = pytest.mark.thorough

GPU, HOST = "gpu.example.com", "kubernetes.io/hostname"
NODES, PODS, STEPS = 3, 9, 150
DEVICES = 9  # of each node: as many as all pods ask for, should they end up together
ROOM = {"cpu": "8", "memory": "8Gi", "pods": "20"}
METHODS = ["bind", "select_node", "create", "release", "deallocate", "delete", "describe"]


def objects() -> list[Any]:
    """Devices and volumes for all pods, though on few nodes."""
    built: list[Any] = [make_device_class("gpu", extended_resource="example.com/gpu")]
    built.append(make_storage_class("late", provisioner="kubernetes.io/no-provisioner"))
    for i in range(NODES):
        name = f"n{i}"
        built.append(make_node(name).label({HOST: name}).capacity(ROOM).allocatable(ROOM))
        built.append(make_resource_slice(name, GPU, *(f"{name}-gpu-{j}" for j in range(DEVICES))))
    for i in range(PODS):
        here = [node_term(expression(HOST, "In", f"n{i % NODES}"))]
        built.append(make_pv(f"v{i}", storage_class="late", node_terms=here))
        built.append(make_pvc(f"pvc{i}", storage_class="late"))
        built.append(make_claim(f"c{i}", make_request("device", "gpu")))
    return built


def pod(i: int, uid: str) -> Any:
    """Every third with a volume, a claim and both; every fourth with an extended resource."""
    built = make_pod(f"p{i}").uid(uid).scheduler(NAME).req(cpu="100m")
    if i % 3 != 1:
        built = built.pvc(f"pvc{i}")
    if i % 3 != 0:
        built = built.resource_claim(f"c{i}")
    return built.req({"example.com/gpu": "1"}, cpu="100m") if i % 4 == 0 else built


class Story:
    """One seed's: what happens in which order."""

    def __init__(self, seed: int, record: Path | None = None) -> None:
        self.random = Random(seed)
        self.world = World(*objects(), *(pod(i, f"p{i}-0") for i in range(PODS)), seed=seed, record=record)
        self._made = 0

    def step(self) -> None:
        world, random = self.world, self.random
        may_happen: list[Callable[[], object]] = [
            world.attempt,
            lambda: world.untold and world.untold.pop(0)(),
            lambda: world.binders.tasks and world.binders.tasks.pop(0)(),
            lambda: world.preemptors.work(),
            world.waiting.poll,
            world.volumes.complete,
            self._fault,
            lambda: world.pass_time(1) if random.random() < 0.1 else None,
            lambda: self._remake() if random.random() < 0.2 else None,
        ]
        random.choice(may_happen)()

    def _fault(self) -> None:
        error: ClusterError = self.random.choice(
            [Refused("no", 403), Conflict("changed", 409), OutcomeUnknown("silence")]
        )
        if self.random.random() < 0.3:
            self.world.faults = [Refused("no", 403)]
        else:
            writer = self.random.choice([self.world.volumes, self.world.claims])
            writer.faults[self.random.choice(METHODS)] = error

    def _remake(self) -> None:
        """A pod is deleted, with what the controllers delete and release for it, and recreated."""
        i = self.random.randrange(PODS)
        gone = self.world.pod(f"p{i}")
        self._made += 1
        self.world.delete("Pod", gone.key)
        self._release(gone)
        self.world.put(pod(i, f"p{i}-{self._made}"))

    def _release(self, gone: Pod) -> None:
        for claim in self._claims():
            if claim.controller is not None and claim.controller.uid == gone.uid:
                self.world.delete("ResourceClaim", claim.key)
            elif claim.is_reserved_for(gone.uid):
                status = msgspec.structs.replace(claim.status, allocation=None, reserved_for=None)
                self.world.put_object(msgspec.structs.replace(claim, status=status))

    def _claims(self) -> list[ResourceClaim]:
        return [each for each in self.world.objects.values() if isinstance(each, ResourceClaim)]

    def given(self) -> Counter[str]:
        """Counts the claims that have each device."""
        allocated = (claim.allocation for claim in self._claims() if claim.allocation is not None)
        return Counter(result.device for allocation in allocated for result in allocation.results)

    def come_to_rest(self) -> None:
        """No more faults; the controllers do their part, and delete what was made for pods that are gone.

        It takes more than five minutes until a pod is tried again whose claim could not be given up.
        """
        self.world.faults = []
        self.world.volumes.faults.clear()
        self.world.claims.faults.clear()
        for _ in range(40):
            living = {obj.uid for obj in self.world.objects.values() if isinstance(obj, Pod)}
            for claim in self._claims():
                if claim.controller is not None and claim.controller.uid not in living:
                    self.world.delete("ResourceClaim", claim.key)
            self.world.volumes.complete()
            self.world.pass_time(10)


@pytest.mark.parametrize("seed", range(30))
def test_any_order_of_events_and_faults(seed: int) -> None:
    story = Story(seed)
    world = story.world
    for _ in range(STEPS):
        story.step()
        assert not [device for device, times in story.given().items() if times > 1]
    story.come_to_rest()
    assert [name for i in range(PODS) if not world.node_of(name := f"p{i}")] == []
    assert (world.cache.overview().assumed, world.waiting.uids(), world.queue.pods_in_flight()) == ([], [], [])
    for i in range(PODS):
        check_claims(world, world.pod(f"p{i}"))
    for kind, key in world.objects:
        if kind in {"PersistentVolume", "PersistentVolumeClaim", "ResourceClaim"}:
            assert world.cache.effective(kind, key) == world.cache.observed(kind, key) == world.objects[kind, key]
    with world.cache.snapshot("test") as table:
        devices = devices_of(table)
        devices.refresh()
        assert {device.device: 1 for device in devices.allocated.devices} == story.given()
        assert list(table.objects.all(PendingClaim)) == []


def check_claims(world: World, pod: Pod) -> None:
    """The pod stands where its volumes are reached and its devices are, and these are its own."""
    for use in pod.spec.resource_claims or ():
        claim = world.objects["ResourceClaim", f"default/{use.resource_claim_name}"]
        assert isinstance(claim, ResourceClaim)
        assert claim.allocation is not None
        assert claim.is_reserved_for(pod.uid)
        assert [result.pool for result in claim.allocation.results] == [pod.node_name]
    for volume in pod.spec.volumes or ():
        assert volume.persistent_volume_claim is not None
        bound = world.objects["PersistentVolumeClaim", f"default/{volume.persistent_volume_claim.claim_name}"]
        assert isinstance(bound, PersistentVolumeClaim)
        kept = world.objects["PersistentVolume", bound.spec.volume_name]
        assert isinstance(kept, PersistentVolume)
        assert kept.node_selector is not None
        [term] = kept.node_selector.node_selector_terms or []
        assert [each.values for each in term.match_expressions or ()] == [[pod.node_name]]

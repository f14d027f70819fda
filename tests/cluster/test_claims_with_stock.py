"""Writes for volumes and claims, as the real API server takes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from extender.cluster.binder import ApiClaims, ApiVolumes
from extender.cluster.credentials import Kubeconfig
from extender.cluster.kube_client import KubeClient
from extender.errors import Conflict, NotFound, Refused
from extender.model.devices import (
    AllocationResult,
    ConsumerReference,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaim,
)
from extender.model.pod import Pod
from extender.model.storage import PersistentVolume, PersistentVolumeClaim
from extender.runtime.clock import SystemClock
from tests.builders import make_claim, make_pod, make_pv, make_pvc, make_request, make_storage_class
from tests.end_to_end.controllers import release_claims
from tests.stock.api_client import ApiClient
from tests.stock.control_plane import ControlPlane

pytestmark = pytest.mark.stock

GPU = "gpu.example.com"
FINALIZER = "resource.kubernetes.io/delete-protection"
RESULT = DeviceRequestAllocationResult(request="device", driver=GPU, pool="n1", device="gpu-0")
ALLOCATION = AllocationResult(devices=DeviceAllocationResult(results=[RESULT]))
ELSEWHERE = AllocationResult(devices=DeviceAllocationResult(results=[replace(RESULT, pool="n2")]))


@pytest.fixture
def client(control_plane: ControlPlane) -> Iterator[ApiClient]:
    release_claims(control_plane.client)
    yield control_plane.client
    release_claims(control_plane.client)


@pytest.fixture
def connection(control_plane: ControlPlane) -> Iterator[KubeClient]:
    connection = KubeClient(Kubeconfig(control_plane.kubeconfig))
    yield connection
    connection.close()


@pytest.fixture
def claims(connection: KubeClient) -> ApiClaims:
    return ApiClaims(connection, SystemClock())


def make(client: ApiClient, name: str = "p") -> Pod:
    [made] = client.create(make_pod(name).gate("held").obj())
    return msgspec.convert(made, Pod)


def make_one(client: ApiClient) -> ResourceClaim:
    [made] = client.create(make_claim("c", make_request("device", "gpu")))
    return msgspec.convert(made, ResourceClaim)


def read(client: ApiClient) -> ResourceClaim:
    return msgspec.convert(client.get("ResourceClaim", "c"), ResourceClaim)


def state(client: ApiClient) -> tuple[list[str], list[str], list[str]]:
    """The claim's devices, the pods it is reserved for, and its finalizers."""
    claim = read(client)
    devices = [each.device for each in (claim.allocation.results if claim.allocation else ())]
    pods = sorted(each.name for each in claim.status.reserved_for or ())
    return devices, pods, client.get("ResourceClaim", "c")["metadata"].get("finalizers", [])


def touch(client: ApiClient) -> None:
    client.patch("ResourceClaim", "c", {"metadata": {"labels": {"touched": "yes"}}})


# ---- claims


@pytest.mark.parametrize("happens", [lambda _: None, touch], ids=["untouched", "changed in what does not matter"])
def test_allocation_and_reservation(client: ApiClient, claims: ApiClaims, happens: Callable[[ApiClient], None]) -> None:
    first, second, claim = make(client, "first"), make(client, "second"), make_one(client)
    happens(client)
    written = claims.bind(claim, ConsumerReference.of_pod(first), ALLOCATION)
    assert state(client) == (["gpu-0"], ["first"], [FINALIZER])
    assert written == read(client)
    assert written.allocation is not None
    assert written.allocation.allocation_timestamp is not None
    happens(client)
    claims.bind(written, ConsumerReference.of_pod(second), None)
    assert state(client) == (["gpu-0"], ["first", "second"], [FINALIZER])


def test_members_of_a_group_may_write_the_same_allocation(client: ApiClient, claims: ApiClaims) -> None:
    first, second, claim = make(client, "first"), make(client, "second"), make_one(client)
    claims.bind(claim, ConsumerReference.of_pod(first), ALLOCATION)
    claims.bind(claim, ConsumerReference.of_pod(second), ALLOCATION)
    assert state(client) == (["gpu-0"], ["first", "second"], [FINALIZER])


def test_what_was_written_already_is_as_good_as_written(client: ApiClient, claims: ApiClaims) -> None:
    pod, claim = make(client), make_one(client)
    claims.bind(claim, ConsumerReference.of_pod(pod), ALLOCATION)
    claims.bind(claim, ConsumerReference.of_pod(pod), ALLOCATION)
    assert state(client) == (["gpu-0"], ["p"], [FINALIZER])


def allocate(client: ApiClient, claims: ApiClaims) -> None:
    claims.bind(read(client), ConsumerReference.of_pod(make(client, "other")), ELSEWHERE)


def remake(client: ApiClient, claims: ApiClaims) -> None:
    client.delete("ResourceClaim", "c")
    make_one(client)


@pytest.mark.parametrize(
    ("happens", "error", "recorded"),
    [
        pytest.param(allocate, Refused, "allocated elsewhere", id="allocated for another"),
        pytest.param(lambda client, _: client.delete("ResourceClaim", "c"), NotFound, "not found", id="deleted"),
        pytest.param(remake, NotFound, "was deleted and created again", id="recreated"),
    ],
)
def test_a_claim_that_is_no_longer_to_be_had(
    client: ApiClient, claims: ApiClaims, happens: Callable[[ApiClient, ApiClaims], None], error: Any, recorded: str
) -> None:
    pod, claim = make(client), make_one(client)
    happens(client, claims)
    with pytest.raises(error, match=recorded):
        claims.bind(claim, ConsumerReference.of_pod(pod), ALLOCATION)


def test_a_claim_that_was_allocated_elsewhere_cannot_be_reserved(client: ApiClient, claims: ApiClaims) -> None:
    first, second = make(client, "first"), make(client, "second")
    allocated = claims.bind(make_one(client), ConsumerReference.of_pod(first), ALLOCATION)
    claims.release(allocated, first.uid, deallocate=True)
    claims.bind(read(client), ConsumerReference.of_pod(first), ELSEWHERE)
    with pytest.raises(Refused, match="allocated elsewhere"):
        claims.bind(allocated, ConsumerReference.of_pod(second), None)


def test_a_claim_that_was_deallocated_cannot_be_reserved(client: ApiClient, claims: ApiClaims) -> None:
    first, second = make(client, "first"), make(client, "second")
    allocated = claims.bind(make_one(client), ConsumerReference.of_pod(first), ALLOCATION)
    claims.release(allocated, first.uid, deallocate=True)
    with pytest.raises(Refused, match="deallocated elsewhere"):
        claims.bind(allocated, ConsumerReference.of_pod(second), None)


@pytest.mark.parametrize(
    ("others", "deallocate", "left"),
    [
        pytest.param([], True, ([], [], []), id="the last one"),
        pytest.param([], False, (["gpu-0"], [], [FINALIZER]), id="the last one of an allocation that stays"),
        pytest.param(["q"], True, (["gpu-0"], ["q"], [FINALIZER]), id="one of two"),
    ],
)
def test_release(
    client: ApiClient, claims: ApiClaims, others: list[str], deallocate: bool, left: tuple[list[str], ...]
) -> None:
    pod = make(client)
    claim = claims.bind(make_one(client), ConsumerReference.of_pod(pod), ALLOCATION)
    for name in others:
        claims.bind(claim, ConsumerReference.of_pod(make(client, name)), None)
    assert claims.release(claim, pod.uid, deallocate=deallocate) == read(client)
    assert state(client) == left
    claims.release(claim, pod.uid, deallocate=True)  # of a pod that it is not reserved for
    assert state(client) == left


def test_an_allocation_that_arrives_after_its_release_comes_too_late(client: ApiClient, claims: ApiClaims) -> None:
    pod = make(client)
    client.patch("ResourceClaim", make_one(client).name, {"metadata": {"finalizers": [FINALIZER]}})
    known = read(client)  # as the status that is on its way knows it
    claims.release(known, pod.uid, deallocate=True)
    assert read(client).metadata.resource_version != known.metadata.resource_version
    assert state(client) == ([], [], [])


def test_there_is_nothing_to_release_of_a_claim_that_is_gone(client: ApiClient, claims: ApiClaims) -> None:
    pod, claim = make(client), make_one(client)
    client.delete("ResourceClaim", "c")
    assert claims.release(claim, pod.uid, deallocate=True) is None
    claims.delete(claim)


def test_deallocation_of_what_has_changed_is_a_conflict(client: ApiClient, claims: ApiClaims) -> None:
    pod = make(client)
    claim = claims.bind(make_one(client), ConsumerReference.of_pod(pod), ALLOCATION)
    touch(client)
    with pytest.raises(Conflict):
        claims.deallocate(claim)
    claims.deallocate(read(client))
    assert state(client)[:2] == ([], [])


def test_an_allocated_claim_can_be_deleted(client: ApiClient, claims: ApiClaims) -> None:
    claim = claims.bind(make_one(client), ConsumerReference.of_pod(make(client)), ALLOCATION)
    claims.delete(claim)
    assert client.list("ResourceClaim", "default") == []


# ---- volumes


@pytest.fixture
def volumes(connection: KubeClient) -> ApiVolumes:
    return ApiVolumes(connection)


def make_volume(client: ApiClient, reference: dict[str, str] | None = None) -> PersistentVolume:
    volume = make_pv("v", storage_class="late")
    if reference:
        volume["spec"]["claimRef"] = reference
    [made] = client.create(volume)
    return msgspec.convert(made, PersistentVolume)


def make_claim_for_volume(client: ApiClient) -> PersistentVolumeClaim:
    _, made = client.create(make_storage_class("late"), make_pvc("c", storage_class="late"))
    return msgspec.convert(made, PersistentVolumeClaim)


@pytest.mark.parametrize(
    ("kept", "annotations"),
    [
        pytest.param(None, {"pv.kubernetes.io/bound-by-controller": "yes"}, id="free"),
        pytest.param({"namespace": "default", "name": "c"}, None, id="kept for the claim by a user"),
    ],
)
def test_a_volume_is_bound(
    client: ApiClient, volumes: ApiVolumes, kept: dict[str, str] | None, annotations: dict[str, str] | None
) -> None:
    claim, volume = make_claim_for_volume(client), make_volume(client, kept)
    written = volumes.bind(volume, claim)
    found = client.get("PersistentVolume", "v")
    assert written == msgspec.convert(found, PersistentVolume)
    assert written.is_bound_to(claim)
    assert (found["spec"]["claimRef"]["uid"], found["metadata"].get("annotations")) == (claim.uid, annotations)
    assert volumes.bind(written, claim) == written  # nothing to do


def test_a_node_is_selected(client: ApiClient, volumes: ApiVolumes) -> None:
    written = volumes.select_node(make_claim_for_volume(client), "n1")
    assert written.selected_node == "n1"
    assert written == msgspec.convert(client.get("PersistentVolumeClaim", "c"), PersistentVolumeClaim)


def test_a_claim_that_has_changed_since_is_a_conflict(client: ApiClient, volumes: ApiVolumes) -> None:
    claim, volume = make_claim_for_volume(client), make_volume(client)
    client.patch("PersistentVolume", "v", {"metadata": {"labels": {"touched": "yes"}}})
    client.patch("PersistentVolumeClaim", "c", {"metadata": {"labels": {"touched": "yes"}}})
    with pytest.raises(Conflict):
        volumes.bind(volume, claim)
    with pytest.raises(Conflict):
        volumes.select_node(claim, "n1")

"""Volumes from the decision to the Binding: reserved, written, awaited, and undone where that fails."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from extender.engine.decide import timeouts_of
from extender.engine.decision import Timeouts
from extender.errors import ClusterError, Conflict, OutcomeUnknown, Refused
from extender.model.storage import SELECTED_NODE_ANNOTATION, PersistentVolume, PersistentVolumeClaim
from extender.plugins.registry import default_profile
from extender.policy.library import Library
from extender.policy.loading import load
from extender.queue.entries import Tier
from tests.builders import ZONE, expression, make_node, make_pod, make_pv, make_pvc, make_storage_class, node_term
from tests.scheduler.world import NAME, World

replace = msgspec.structs.replace
CLASS = make_storage_class("late", provisioner="kubernetes.io/no-provisioner")
MAKING = make_storage_class("made")
NODE = (
    make_node("n1").zone("z1").capacity(cpu="4", memory="8Gi", pods="10").allocatable(cpu="4", memory="8Gi", pods="10")
)
PRE_BIND = 'running PreBind plugin "VolumeBinding": '
IN_Z1 = [node_term(expression(ZONE, "In", "z1"))]


def pod(name: str, claim: str) -> Any:
    return make_pod(name).uid(name).scheduler(NAME).req(cpu="1").pvc(claim)


def static(*pods: str) -> World:
    """One volume, and a claim for each pod that would like it."""
    claims = [make_pvc(f"claim-of-{name}", storage_class="late") for name in pods]
    volume = make_pv("v", storage_class="late", node_terms=IN_Z1)
    return World(NODE, CLASS, volume, *claims, *(pod(name, f"claim-of-{name}") for name in pods))


def provisioned() -> World:
    return World(NODE, MAKING, make_pvc("c", storage_class="made"), pod("p", "c"))


def volume(world: World) -> PersistentVolume:
    found = world.objects["PersistentVolume", "v"]
    assert isinstance(found, PersistentVolume)
    return found


def claim(world: World, name: str = "c") -> PersistentVolumeClaim:
    found = world.objects["PersistentVolumeClaim", f"default/{name}"]
    assert isinstance(found, PersistentVolumeClaim)
    return found


def deliver(world: World, labels: dict[str, str] | None = None) -> None:
    """The provisioner makes the volume, and the controller binds the claim to it."""
    zone = [node_term(expression(ZONE, "In", "z1"))] if labels is None else [node_term(expression(ZONE, "In", "z2"))]
    made = make_pv("v", storage_class="made", node_terms=zone, claim="default/c")
    world.put(made)
    world.volumes.complete()


def assumed(world: World) -> list[str]:
    return [placed.info.pod.name for placed in world.cache.overview().assumed]


def test_a_volume_is_kept_for_the_claim_and_the_pod_bound_once_the_claim_is() -> None:
    world = static("p")
    world.settle()
    reference = volume(world).spec.claim_ref
    assert reference is not None
    assert (reference.name, reference.uid) == ("claim-of-p", claim(world, "claim-of-p").uid)
    assert (world.node_of("p"), assumed(world)) == ("", ["p"])
    assert world.pod("p").status.nominated_node_name == "n1"
    world.volumes.complete()
    world.settle()
    assert (world.node_of("p"), assumed(world), world.waiting.uids()) == ("n1", [], [])


def test_a_volume_is_made_on_the_node() -> None:
    world = provisioned()
    world.settle()
    assert claim(world).annotations[SELECTED_NODE_ANNOTATION] == "n1"
    assert (world.node_of("p"), assumed(world)) == ("", ["p"])
    deliver(world)
    world.settle()
    assert (world.node_of("p"), world.waiting.uids()) == ("n1", [])


def test_many_pods_wait_without_a_thread_among_them() -> None:
    claims = [make_pvc(f"c{i}", storage_class="made") for i in range(5)]
    world = World(
        NODE,
        MAKING,
        *claims,
        *(pod(f"p{i}", f"c{i}").req(cpu="100m") for i in range(5)),
        make_pod("free").uid("free").scheduler(NAME),
    )
    world.settle()
    assert len(world.waiting.uids()) == 5
    assert (world.binders.tasks, world.node_of("free")) == ([], "n1")


def test_of_two_pods_one_gets_the_only_volume_and_the_other_is_refused() -> None:
    world = static("first", "second")
    assert world.attempt()
    assert world.attempt()  # before anything is written
    assert assumed(world) == ["first"]
    assert world.queue.pods()[Tier.UNSCHEDULABLE][0].pod.name == "second"
    assert "didn't find available persistent volumes to bind" in world.conditions[-1][2]
    world.settle()
    world.volumes.complete()
    world.settle()
    assert (world.node_of("first"), world.node_of("second")) == ("n1", "")


def test_a_volume_that_is_given_up_wakes_those_who_would_like_it() -> None:
    world = static("first", "second")
    world.attempt()
    world.attempt()
    world.volumes.faults["bind"] = Refused("no", 403)
    world.delete("Pod", "default/first")
    world.pass_time(3)
    world.volumes.complete()
    world.pass_time(1)
    assert world.node_of("second") == "n1"


def reset(world: World) -> None:
    world.put_object(replace(volume(world), spec=replace(volume(world).spec, claim_ref=None)))


def elsewhere(world: World) -> None:
    """The volume turns out to be out of the node's reach."""
    away = msgspec.convert(
        make_pv("v", storage_class="late", node_terms=[node_term(expression(ZONE, "In", "z2"))]), PersistentVolume
    )
    world.put_object(replace(volume(world), spec=replace(volume(world).spec, node_affinity=away.spec.node_affinity)))
    world.volumes.complete()


@pytest.mark.parametrize(
    ("world", "happens", "recorded"),
    [
        pytest.param(static("p"), reset, 'ClaimRef got reset for pv "v"', id="the controller takes the volume back"),
        pytest.param(
            static("p"),
            lambda world: world.delete("PersistentVolume", "v"),
            'pv "v" no longer exists',
            id="the volume goes",
        ),
        pytest.param(
            static("p"),
            lambda world: world.delete("PersistentVolumeClaim", "default/claim-of-p"),
            'persistentvolumeclaim "claim-of-p" no longer exists',
            id="the claim goes",
        ),
        pytest.param(
            static("p"), elsewhere, "node(s) didn't match PersistentVolume's node affinity", id="the volume moves away"
        ),
        pytest.param(
            static("p"),
            lambda world: world.delete("Node", "n1"),
            'node "n1" no longer exists',
            id="the node goes",
        ),
        pytest.param(
            provisioned(),
            lambda world: world.volumes.give_up("default/c"),
            'provisioning failed for PVC "c"',
            id="the provisioner gives up",
        ),
        pytest.param(
            provisioned(),
            lambda world: deliver(world, {"zone": "z2"}),
            "node(s) didn't match PersistentVolume's node affinity",
            id="the volume is made elsewhere",
        ),
        pytest.param(
            static("p"),
            lambda world: world.clock.advance(600),
            "claim-of-p not bound after 600 s",
            id="it takes too long",
        ),
    ],
)
def test_a_pod_that_waits_in_vain_is_given_back(world: World, happens: Callable[[World], None], recorded: str) -> None:
    world.settle()
    happens(world)
    if recorded.startswith("node"):
        world.volumes.complete()
    world.watch()
    world.waiting.poll()
    world.binders.work()
    world.preemptors.work()
    assert [message for _, _, message, _ in world.conditions if recorded in message] == [
        f"{PRE_BIND}binding volumes: {recorded}"
    ]
    assert (assumed(world), world.waiting.uids(), world.node_of("p")) == ([], [], "")
    assert [pod.pod.name for pod in world.queue.pods()[Tier.BACKOFF]] == ["p"]
    assert world.telemetry.results == ["error"]


@pytest.mark.parametrize("recorded", [False, True], ids=["before the watch delivers it", "after that"])
@pytest.mark.parametrize("world_of", [lambda: static("p"), provisioned], ids=["bound", "provisioned"])
def test_a_pod_does_not_wait_for_what_a_restored_server_has_lost(
    world_of: Callable[[], World], *, recorded: bool
) -> None:
    world = world_of()
    copy = world.objects.copy()
    world.attempt()
    world.binders.work()
    if recorded:
        world.watch()
    world.restore(copy)
    world.waiting.poll()
    world.binders.work()
    world.preemptors.work()
    assert (assumed(world), world.waiting.uids(), world.node_of("p")) == ([], [], "")
    world.pass_time(2)
    deliver(world) if ("PersistentVolume", "v") not in copy else world.volumes.complete()
    world.pass_time(1)
    assert world.node_of("p") == "n1"


def test_a_pod_that_is_deleted_while_it_waits_is_let_go() -> None:
    world = static("p")
    world.settle()
    world.delete("Pod", "default/p")
    world.settle()
    assert (assumed(world), world.waiting.uids(), world.queue.pods_in_flight()) == ([], [], [])
    assert sum(world.queue.pending().values()) == 0


@pytest.mark.parametrize("error", [Conflict("changed", 409), Refused("no", 403), OutcomeUnknown("silence")], ids=str)
@pytest.mark.parametrize("step", ["bind", "select_node"])
def test_a_write_that_fails_frees_everything_and_is_tried_again(step: str, error: ClusterError) -> None:
    world = static("p") if step == "bind" else provisioned()
    world.volumes.faults[step] = error
    world.attempt()
    world.binders.work()
    assert (assumed(world), world.waiting.uids()) == ([], [])
    with world.cache.snapshot("test") as table:
        assert all(each.spec.claim_ref is None for each in table.objects.all(PersistentVolume).values())
        assert all(each.selected_node is None for each in table.objects.all(PersistentVolumeClaim).values())
    assert world.conditions[-1][:3] == ("p", "SchedulerError", f"{PRE_BIND}{error}")
    world.pass_time(2)
    world.volumes.complete() if step == "bind" else deliver(world)
    world.pass_time(1)
    assert world.node_of("p") == "n1"


def test_a_volume_that_has_changed_since_the_decision_is_a_conflict() -> None:
    world = static("p")
    world.attempt()
    world.put_object(replace(volume(world), status=replace(volume(world).status, phase="Failed")))
    world.binders.work()
    assert "modified" in world.conditions[-1][2]
    assert volume(world).spec.claim_ref is None


def test_what_was_written_stays_when_the_pod_is_not_bound() -> None:
    world = static("p")
    world.settle()
    world.volumes.complete()
    world.faults = [Refused("no", 403)]
    world.settle()
    assert world.conditions[-1][2] == 'running Bind plugin "DefaultBinder": no'
    assert volume(world).spec.claim_ref is not None
    world.pass_time(3)
    assert world.node_of("p") == "n1"
    assert [method for method, _ in world.volumes.calls] == ["bind"]


def test_the_volume_stays_taken_until_the_watch_delivers_it() -> None:
    world = static("first", "second")
    world.attempt()
    world.binders.work()  # written, but not delivered
    world.attempt()
    assert world.queue.pods()[Tier.UNSCHEDULABLE][0].pod.name == "second"


@pytest.mark.parametrize("storage_class", ["late", "made"])
def test_pods_that_share_a_claim_are_all_bound(storage_class: str) -> None:
    claim = make_pvc("c", storage_class=storage_class)
    world = World(NODE, CLASS, MAKING, claim, pod("first", "c"), pod("second", "c"))
    if storage_class == "late":
        world.put(make_pv("v", storage_class="late", node_terms=IN_Z1))
    world.settle()
    world.volumes.complete() if storage_class == "late" else deliver(world)
    world.pass_time(5)
    assert (world.node_of("first"), world.node_of("second")) == ("n1", "n1")
    assert world.waiting.uids() == []


def test_how_long_a_pod_waits_is_configured() -> None:
    header = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    arguments = [
        {"name": "VolumeBinding", "args": {"bindTimeoutSeconds": 30}},
        {"name": "DynamicResources", "args": {"bindingTimeout": "2m"}},
    ]
    policy = load(json.dumps({**header, "profiles": [{"pluginConfig": arguments}]}).encode(), Library())
    assert timeouts_of(policy.profiles[0]) == Timeouts(30, 120)
    assert timeouts_of(default_profile()) == Timeouts(600, 600)
    world = World(NODE, MAKING, make_pvc("c", storage_class="made"), pod("p", "c"), profile=policy.profiles[0])
    world.settle()
    world.pass_time(29)
    assert (assumed(world), world.conditions) == (["p"], [])
    world.pass_time(1)
    assert [message for _, _, message, _ in world.conditions] == [f"{PRE_BIND}binding volumes: c not bound after 30 s"]


def test_pods_that_share_a_claim_go_to_the_node_that_is_selected_for_it() -> None:
    claim, nodes = (
        make_pvc("c", storage_class="made"),
        [make_node(f"n{i}").capacity(cpu="4").zone("z1") for i in range(9)],
    )
    world = World(NODE, *nodes, MAKING, claim, pod("first", "c"), pod("second", "c"))
    world.attempt()
    world.attempt()  # before anything is written
    chosen = {placed.info.pod.name: placed.node_name for placed in world.cache.overview().assumed}
    assert len(chosen) == 2
    assert chosen["first"] == chosen["second"]


def test_the_pod_waits_until_the_watch_shows_the_volume_as_it_was_written() -> None:
    world = static("p")
    world.attempt()
    world.binders.work()
    world.volumes.complete()
    late = [event for event in world.untold if event.args[0] == "PersistentVolume"]
    world.untold = [event for event in world.untold if event not in late]
    world.settle()
    assert (world.node_of("p"), world.waiting.uids()) == ("", ["p"])
    world.untold = late
    world.settle()
    assert world.node_of("p") == "n1"


def test_the_pod_waits_for_the_watch_of_volumes_too() -> None:
    world = provisioned()
    world.settle()
    bound = {**claim(world).annotations, "pv.kubernetes.io/bind-completed": "yes"}
    spec = replace(claim(world).spec, volume_name="v")
    world.put_object(replace(claim(world), spec=spec, metadata=replace(claim(world).metadata, annotations=bound)))
    world.settle()
    assert (world.node_of("p"), world.waiting.uids()) == ("", ["p"])
    world.put(make_pv("v", storage_class="made", node_terms=IN_Z1, claim="default/c"))
    world.settle()
    assert world.node_of("p") == "n1"


def test_the_pod_waits_until_the_controller_has_completed_the_binding_of_its_claim() -> None:
    world = provisioned()
    world.settle()
    world.put(make_pv("v", storage_class="made", node_terms=IN_Z1, claim="default/c"))
    world.put_object(replace(claim(world), spec=replace(claim(world).spec, volume_name="v")))
    world.settle()
    assert (world.node_of("p"), world.waiting.uids()) == ("", ["p"])
    bound = {**claim(world).annotations, "pv.kubernetes.io/bind-completed": "yes"}
    world.put_object(replace(claim(world), metadata=replace(claim(world).metadata, annotations=bound)))
    world.settle()
    assert world.node_of("p") == "n1"

"""NodeVolumeLimits: the volumes that count for a driver, the limits of nodes, and missing drivers."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from extender.framework.cluster_events import Action, Resource
from extender.framework.rules import Check
from extender.framework.status import failed, unresolvable, unschedulable
from extender.model.storage import (
    CSIDriver,
    CSINode,
    PersistentVolumeClaim,
    VolumeAttachment,
)
from extender.plugins.node_volume_limits import REFUSAL, NodeVolumeLimits
from extender.table import HypotheticalRemovals
from tests.builders import (
    Object,
    PodBuilder,
    make_csi_driver,
    make_csi_node,
    make_node,
    make_pod,
    make_pv,
    make_pvc,
    make_storage_class,
    make_volume_attachment,
)
from tests.framework.cluster import pod_info, refusals, table_of
from tests.plugins.hint_case import claim, helped, read
from tests.queue.queueing import info
from tests.scheduler.world import NAME, World

CSI, EBS, GCE = "csi.example.com", "ebs.csi.aws.com", "pd.csi.storage.gke.io"
INLINE_EBS = {"awsElasticBlockStore": {"volumeID": "vol-1"}}


def bound(name: str, *, source: Object | None = None) -> list[Object]:
    """Returns a claim and the volume that it is bound to."""
    volume = f"pv-{name}"
    return [make_pvc(name, volume=volume), make_pv(volume, claim=f"default/{name}", source=source)]


def on_node(name: str, *claims: str) -> Object:
    pod = make_pod(name).node("a")
    for each in claims:
        pod.pvc(each)
    return pod.obj()


def handle(driver: str, volume_handle: str) -> Object:
    return {"csi": {"driver": driver, "volumeHandle": volume_handle}}


CLAIMS = [each for name in "cdef" for each in bound(name)]
WAITING = [make_pvc("w", storage_class="s"), make_storage_class("s")]


@pytest.mark.parametrize(
    ("objects", "limit", "refused"),
    [
        pytest.param([], 1, False, id="room for one"),
        pytest.param([], 0, True, id="room for none"),
        pytest.param([on_node("q", "d")], 1, True, id="another pod's volume"),
        pytest.param([on_node("q", "c")], 1, False, id="a volume shared counts once"),
        pytest.param([on_node("q", "d"), on_node("r", "d")], 2, False, id="two pods with one volume"),
        pytest.param([on_node("q", "d", "e")], 2, True, id="a pod with two"),
        pytest.param([on_node("q", "missing")], 1, False, id="a claim that is gone does not count"),
        pytest.param([make_volume_attachment("x", "a", "pv-d")], 1, True, id="attached, but used by no pod"),
        pytest.param([make_volume_attachment("x", "a", "pv-d"), on_node("q", "d")], 2, False, id="attached and used"),
        pytest.param([make_volume_attachment("x", "b", "pv-d")], 1, False, id="attached to another node"),
        pytest.param([make_volume_attachment("x", "a", "pv-d", attacher="other")], 1, False, id="by another driver"),
        pytest.param([make_volume_attachment("x", "a", "gone")], 1, False, id="attached, but the volume is gone"),
        pytest.param([make_volume_attachment("x", "a", "pv-c")], 1, True, id="the pod's own, attached already"),
        pytest.param([on_node("q", "w"), *WAITING], 1, True, id="a claim to be provisioned"),
        pytest.param([on_node("q", "w"), WAITING[0]], 1, False, id="a claim without a class"),
    ],
)
def test_counting(objects: list[Object], limit: int, refused: bool) -> None:
    nodes = [make_node("a").obj(), make_node("b").obj(), make_csi_node("a", {CSI: limit}), make_csi_node("b", {})]
    found = refusals(NodeVolumeLimits(), make_pod("p").pvc("c").obj(), *nodes, *CLAIMS, *objects)
    assert found == ({"a": REFUSAL} if refused else {})


@pytest.mark.parametrize(
    ("pod", "limits", "refused"),
    [
        pytest.param(make_pod("p").pvc("c").pvc("d"), {CSI: 1}, True, id="two at once"),
        pytest.param(make_pod("p").pvc("c").pvc("c"), {CSI: 1}, False, id="one, named twice"),
        pytest.param(make_pod("p").pvc("c"), {"other": 0}, False, id="another driver's limit"),
        pytest.param(make_pod("p").volume("v", INLINE_EBS), {EBS: 0}, True, id="an inline volume that is migrated"),
        pytest.param(make_pod("p").volume("v", {"emptyDir": {}}), {CSI: 0}, False, id="nothing to attach"),
        pytest.param(
            make_pod("p").volume("v", {"csi": {"driver": CSI}}), {CSI: 0}, False, id="the pod's own CSI volume"
        ),
        pytest.param(make_pod("p").pvc("g"), {GCE: 0}, True, id="an in-tree volume by its claim"),
        pytest.param(make_pod("p").pvc("n"), {CSI: 0, EBS: 0}, False, id="a volume that no driver attaches"),
    ],
)
def test_volumes_that_count(pod: PodBuilder, limits: dict[str, int], refused: bool) -> None:
    in_tree = bound("g", source={"gcePersistentDisk": {"pdName": "d"}}) + bound("n", source={"nfs": {"server": "s"}})
    found = refusals(NodeVolumeLimits(), pod.obj(), make_node("a").obj(), make_csi_node("a", limits), *CLAIMS, *in_tree)
    assert found == ({"a": REFUSAL} if refused else {})


def test_equal_handles_are_one_volume() -> None:
    objects = [*bound("c", source=handle(CSI, "h")), *bound("d", source=handle(CSI, "h")), on_node("q", "d")]
    nodes = [make_node("a").obj(), make_csi_node("a", {CSI: 1})]
    assert refusals(NodeVolumeLimits(), make_pod("p").pvc("c").obj(), *nodes, *objects) == {}


@pytest.mark.parametrize(
    ("prevent", "refused"),
    [
        pytest.param(True, {"without", "unknown"}, id="the driver insists"),
        pytest.param(False, set(), id="the driver does not mind"),
    ],
)
def test_a_driver_that_is_not_installed(prevent: bool, refused: set[str]) -> None:
    nodes = [make_node(name).obj() for name in ("with", "without", "unknown")]
    known = [make_csi_node("with", {CSI: 9}), make_csi_node("without", {"other": 9})]
    driver = make_csi_driver(CSI, preventPodSchedulingIfMissing=prevent)
    refusal = unschedulable("NodeVolumeLimits", f"{CSI} CSI driver is not installed on the node")
    pod = make_pod("p").pvc("c").obj()
    assert refusals(NodeVolumeLimits(), pod, *nodes, *known, driver, *CLAIMS) == dict.fromkeys(refused, refusal)


def test_an_in_tree_volume_needs_its_driver_only_where_there_is_a_csi_node() -> None:
    nodes = [make_node("known").obj(), make_node("unknown").obj(), make_csi_node("known", {})]
    driver = make_csi_driver(EBS, preventPodSchedulingIfMissing=True)
    refusal = unschedulable("NodeVolumeLimits", f"{EBS} CSI driver is not installed on the node")
    assert refusals(NodeVolumeLimits(), make_pod("p").volume("v", INLINE_EBS).obj(), *nodes, driver) == {
        "known": refusal
    }


def ephemeral_pod(name: str) -> PodBuilder:
    return make_pod(name).volume("v", {"ephemeral": {"volumeClaimTemplate": {"spec": {}}}})


def test_claims_whose_volume_is_unknown() -> None:
    nodes = [make_node("a").obj(), make_csi_node("a", {CSI: 9})]
    missing = 'looking up PVC default/c: persistentvolumeclaim "c" not found'
    assert refusals(NodeVolumeLimits(), make_pod("p").pvc("c").obj(), *nodes) == {
        "a": unresolvable("NodeVolumeLimits", missing)
    }
    foreign = "PVC default/p-v was not created for pod default/p (pod is not owner)"
    assert refusals(NodeVolumeLimits(), ephemeral_pod("p").obj(), *nodes, make_pvc("p-v")) == {
        "a": failed("NodeVolumeLimits", f'running "NodeVolumeLimits" filter plugin: {foreign}')
    }


def test_an_ephemeral_volume_of_the_pod_counts() -> None:
    pod = ephemeral_pod("p").obj()
    claim, volume = bound("p-v")
    owner = {"kind": "Pod", "name": "p", "uid": pod["metadata"]["uid"], "controller": True}
    claim["metadata"]["ownerReferences"] = [owner]
    nodes = [make_node("a").obj(), make_csi_node("a", {CSI: 0})]
    assert refusals(NodeVolumeLimits(), pod, *nodes, claim, volume) == {"a": REFUSAL}


@pytest.mark.parametrize(
    ("gone", "refused"),
    [
        pytest.param([], True, id="full"),
        pytest.param(["q"], True, id="its volume is used by another still"),
        pytest.param(["q", "r"], False, id="its volume has left too"),
        pytest.param(["s"], True, id="its volume stays attached"),
    ],
)
def test_limits_once_pods_are_removed(gone: list[str], refused: bool) -> None:
    nodes = [make_node("a").obj(), make_csi_node("a", {CSI: 2}), make_volume_attachment("x", "a", "pv-e")]
    pods = [on_node("q", "d"), on_node("r", "d"), on_node("s", "e")]
    table = table_of(*nodes, *CLAIMS, *pods)
    check = NodeVolumeLimits().prepare(pod_info(make_pod("p").pvc("c").obj()), table)
    assert isinstance(check, Check)
    slots = [slot for slot, info in enumerate(table.pods.infos) if info and info.pod.name in gone]
    verdict = check.filter_with_pods_removed(table.nodes.rows, HypotheticalRemovals(table, np.array(slots, np.intp)))
    assert any(mask.any() for mask, _ in verdict or ()) == refused


DISK = {"gcePersistentDisk": {"pdName": "d"}}


def csi_node(**limits: int) -> CSINode:
    return read(CSINode, make_csi_node("n", limits))


UNLIMITED = read(CSINode, {**make_csi_node("n", {}), "spec": {"drivers": [{"name": "d", "nodeID": "n"}]}})


@pytest.mark.parametrize(
    ("pod", "came", "expected"),
    [
        pytest.param(make_pod("p").pvc("data"), claim("data"), True, id="its claim"),
        pytest.param(make_pod("p").pvc("data"), claim("other"), False, id="another"),
    ],
)
def test_a_new_claim_wakes_the_pods_that_use_it(pod: PodBuilder, came: PersistentVolumeClaim, expected: bool) -> None:
    assert helped("NodeVolumeLimits", info(pod), Resource.PERSISTENT_VOLUME_CLAIM, Action.ADD, None, came) is expected


@pytest.mark.parametrize(
    ("pod", "left", "expected"),
    [
        pytest.param(make_pod("p").pvc("c"), make_pod("o").pvc("d"), True, id="a volume less"),
        pytest.param(make_pod("p").pvc("c"), make_pod("o"), False, id="nothing attached"),
    ],
)
def test_a_deleted_pod_wakes_pods_that_waited_for_its_volumes(
    pod: PodBuilder, left: PodBuilder, expected: bool
) -> None:
    gone = info(left.node("n"))
    assert helped("NodeVolumeLimits", info(pod), Resource.ASSIGNED_POD, Action.DELETE, gone) is expected


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param(csi_node(d=1), csi_node(d=2), True, id="grows"),
        pytest.param(csi_node(d=2), csi_node(d=1), False, id="shrinks"),
        pytest.param(csi_node(), csi_node(d=1), True, id="driver comes"),
        pytest.param(csi_node(d=1), csi_node(d=1), False, id="unchanged"),
        pytest.param(csi_node(d=1), csi_node(), True, id="driver goes, and its limit"),
        pytest.param(csi_node(), UNLIMITED, True, id="driver comes without a limit"),
        pytest.param(csi_node(d=1), UNLIMITED, True, id="limit goes"),
        pytest.param(UNLIMITED, csi_node(d=1), False, id="limit comes"),
        pytest.param(UNLIMITED, UNLIMITED, False, id="none as before"),
    ],
)
def test_node_volume_limits_and_a_csi_node(old: CSINode, new: CSINode, expected: bool) -> None:
    assert helped("NodeVolumeLimits", info("p"), Resource.CSI_NODE, Action.UPDATE, old, new) is expected


def test_a_new_node_wakes_pods_even_if_its_csi_node_came_first() -> None:
    """Each kind has its own watch, so their order is not known."""
    volumes = (each for name in "cd" for each in bound(name, source=handle(CSI, name)))
    full = make_pod("o").uid("o").node("a").pvc("d")
    old = (make_node("a").capacity(cpu="4", pods="9"), make_csi_node("a", {CSI: 1}), full)
    world = World(*old, *volumes, make_pod("p").uid("p").scheduler(NAME).pvc("c"))
    world.settle()
    world.put(make_csi_node("b", {CSI: 1}))
    world.settle()
    world.put(make_node("b").capacity(cpu="4", pods="9"))
    world.settle()
    assert world.node_of("p") == "b"


def csi_driver(*, prevents: bool) -> CSIDriver:
    return read(CSIDriver, make_csi_driver("d", preventPodSchedulingIfMissing=prevents))


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param(csi_driver(prevents=True), csi_driver(prevents=False), True, id="need not be installed"),
        pytest.param(csi_driver(prevents=True), None, True, id="goes"),
        pytest.param(csi_driver(prevents=True), csi_driver(prevents=True), False, id="as before"),
        pytest.param(csi_driver(prevents=False), None, False, id="did not mind"),
    ],
)
def test_node_volume_limits_and_a_csi_driver(old: CSIDriver, new: CSIDriver | None, expected: bool) -> None:
    action = Action.UPDATE if new else Action.DELETE
    assert helped("NodeVolumeLimits", info("p"), Resource.CSI_DRIVER, action, old, new) is expected


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        pytest.param(make_pod("p").pvc("c"), True, id="a claim may be of any driver"),
        pytest.param(make_pod("p").volume("v", DISK), True, id="inline, of this driver"),
        pytest.param(make_pod("p").volume("v", {"cinder": {"volumeID": "x"}}), False, id="inline, of another driver"),
        pytest.param(make_pod("p"), False, id="no volumes"),
    ],
)
def test_node_volume_limits_and_an_attachment(pod: PodBuilder, expected: bool) -> None:
    gone = msgspec.convert({"metadata": {"name": "a"}, "spec": {"attacher": "pd.csi.storage.gke.io"}}, VolumeAttachment)
    assert helped("NodeVolumeLimits", info(pod), Resource.VOLUME_ATTACHMENT, Action.DELETE, gone) is expected

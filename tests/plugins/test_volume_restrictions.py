"""VolumeRestrictions: pods that can share a disk, and claims for a single pod."""

from __future__ import annotations

import numpy as np
import pytest

from extender.framework.cluster_events import Action, Resource
from extender.framework.rules import Check
from extender.framework.status import unresolvable
from extender.model.storage import (
    PersistentVolumeClaim,
)
from extender.plugins.volume_restrictions import CLAIM_CONFLICT, DISK_CONFLICT, VolumeRestrictions
from extender.table import HypotheticalRemovals
from tests.builders import (
    Object,
    PodBuilder,
    make_node,
    make_pod,
    make_pvc,
)
from tests.framework.cluster import pod_info, refusals, table_of
from tests.plugins.hint_case import claim, helped
from tests.queue.queueing import info

NODES = [make_node("a").obj(), make_node("b").obj()]


def gce(name: str, *, read_only: bool = False) -> Object:
    return {"gcePersistentDisk": {"pdName": name, "readOnly": read_only}}


def aws(volume_id: str, *, read_only: bool = False) -> Object:
    return {"awsElasticBlockStore": {"volumeID": volume_id, "readOnly": read_only}}


def iscsi(iqn: str, *, portal: str = "10.0.0.1", read_only: bool = False) -> Object:
    return {"iscsi": {"targetPortal": portal, "iqn": iqn, "lun": 0, "readOnly": read_only}}


def rbd(*monitors: str, image: str = "i", pool: str = "p", read_only: bool = False) -> Object:
    return {"rbd": {"monitors": [*monitors], "image": image, "pool": pool, "readOnly": read_only}}


@pytest.mark.parametrize(
    ("wanted", "there", "clashes"),
    [
        pytest.param(gce("d"), gce("d"), True, id="gce: the same disk"),
        pytest.param(gce("d"), gce("e"), False, id="gce: another disk"),
        pytest.param(gce("d", read_only=True), gce("d"), True, id="gce: one writes"),
        pytest.param(gce("d", read_only=True), gce("d", read_only=True), False, id="gce: both only read"),
        pytest.param(aws("v", read_only=True), aws("v", read_only=True), True, id="aws: readers clash too"),
        pytest.param(aws("v"), aws("w"), False, id="aws: another volume"),
        pytest.param(iscsi("q", portal="1.1.1.1"), iscsi("q"), True, id="iscsi: the same name by another portal"),
        pytest.param(iscsi("q", read_only=True), iscsi("q", read_only=True), False, id="iscsi: both only read"),
        pytest.param(rbd("m1", "m2"), rbd("m2", "m3"), True, id="rbd: one monitor in common"),
        pytest.param(rbd("m1"), rbd("m2"), False, id="rbd: no monitor in common"),
        pytest.param(rbd("m1", pool="x"), rbd("m1"), False, id="rbd: another pool"),
        pytest.param(rbd("m1", image="x"), rbd("m1"), False, id="rbd: another image"),
        pytest.param(rbd("m1", read_only=True), rbd("m1", read_only=True), False, id="rbd: both only read"),
        pytest.param(gce("x"), aws("x"), False, id="different kinds"),
    ],
)
def test_disks(wanted: Object, there: Object, clashes: bool) -> None:
    pod, other = make_pod("p").volume("v", wanted), make_pod("q").volume("v", there).node("a")
    assert refusals(VolumeRestrictions(), pod.obj(), *NODES, other.obj()) == ({"a": DISK_CONFLICT} if clashes else {})


def test_a_disk_with_a_writable_mount_is_not_shared() -> None:
    other = make_pod("q").volume("v", gce("d", read_only=True)).volume("w", gce("d")).node("a")
    pod = make_pod("p").volume("v", gce("d", read_only=True))
    assert refusals(VolumeRestrictions(), pod.obj(), *NODES, other.obj()) == {"a": DISK_CONFLICT}


@pytest.mark.parametrize(
    ("mode", "user", "taken"),
    [
        pytest.param("ReadWriteOncePod", make_pod("q").pvc("c").node("a"), True, id="used by another pod"),
        pytest.param("ReadWriteOncePod", make_pod("q", "other").pvc("c").node("a"), False, id="another namespace's"),
        pytest.param("ReadWriteOncePod", make_pod("q").pvc("d").node("a"), False, id="another claim is used"),
        pytest.param("ReadWriteOncePod", make_pod("q").pvc("c").node("ghost"), False, id="used on a node unknown"),
        pytest.param("ReadWriteOnce", make_pod("q").pvc("c").node("a"), False, id="a claim for many"),
    ],
)
def test_claims_for_one_pod(mode: str, user: PodBuilder, taken: bool) -> None:
    claim = make_pvc("c", access_mode=mode)
    found = refusals(VolumeRestrictions(), make_pod("p").pvc("c").obj(), *NODES, claim, user.obj())
    assert found == ({"a": CLAIM_CONFLICT, "b": CLAIM_CONFLICT} if taken else {})


def test_a_missing_claim() -> None:
    missing = unresolvable("VolumeRestrictions", 'persistentvolumeclaim "c" not found')
    assert refusals(VolumeRestrictions(), make_pod("p").pvc("c").obj(), *NODES) == {"a": missing, "b": missing}


def test_it_does_not_apply_to_pods_without_such_volumes() -> None:
    pod = make_pod("p").volume("v", {"emptyDir": {}}).pvc("c").obj()
    assert VolumeRestrictions().prepare(pod_info(pod), table_of(*NODES, make_pvc("c"))) is None


def refused_without(pod: Object, gone: list[str], *objects: Object) -> set[str]:
    table = table_of(*NODES, *objects)
    check = VolumeRestrictions().prepare(pod_info(pod), table)
    assert isinstance(check, Check)
    slots = [slot for slot, info in enumerate(table.pods.infos) if info and info.pod.name in gone]
    verdict = check.filter_with_pods_removed(table.nodes.rows, HypotheticalRemovals(table, np.array(slots, np.intp)))
    assert verdict is not None
    return {table.nodes.names[row] for mask, _ in verdict for row in table.nodes.rows[mask]}


@pytest.mark.parametrize(
    ("gone", "refused"),
    [
        pytest.param([], {"a", "b"}, id="no pod left"),
        pytest.param(["q"], {"a", "b"}, id="one of two left"),
        pytest.param(["q", "r"], {"b"}, id="both left"),
        pytest.param(["q", "r", "s"], set(), id="all left"),
    ],
)
def test_disks_are_free_once_their_users_are_removed(gone: list[str], refused: set[str]) -> None:
    others = [make_pod(name).volume("v", gce("d")).node(node).obj() for name, node in ("qa", "ra", "sb")]
    assert refused_without(make_pod("p").volume("v", gce("d")).obj(), gone, *others) == refused


def test_a_disk_is_not_free_while_a_nominated_pod_will_use_it() -> None:
    table = table_of(*NODES, make_pod("q").volume("v", gce("d")).node("a").obj())
    for name, disk in (("first", "other"), ("next", "d"), ("last", "other")):
        table.nominate(pod_info(make_pod(name).uid(name).volume("v", gce(disk)).obj()), "a")
    preemptor = pod_info(make_pod("p").volume("v", gce("d")).obj())
    check = VolumeRestrictions().prepare(preemptor, table)
    assert isinstance(check, Check)
    nominated = table.nominated.awaited_by(preemptor, lambda _: True)
    gone = HypotheticalRemovals(table, np.array([0], np.intp), nominated)
    answers = check.filter_with_pods_removed(table.nodes.rows, gone)
    assert answers is not None
    refused = [(mask.tolist(), refusal) for mask, refusal in answers]
    assert refused[0] == ([True, False], DISK_CONFLICT)


def test_a_claim_is_free_once_its_user_is_removed() -> None:
    objects = [make_pvc("c", access_mode="ReadWriteOncePod"), make_pod("q").pvc("c").node("a").obj()]
    assert refused_without(make_pod("p").pvc("c").obj(), [], *objects) == {"a", "b"}
    assert refused_without(make_pod("p").pvc("c").obj(), ["q"], *objects) == {"b"}


def test_a_removed_pod_frees_only_the_exclusive_claims_that_it_used() -> None:
    claims = [make_pvc(name, access_mode="ReadWriteOncePod") for name in ("c", "d")] + [make_pvc("shared")]
    users = [make_pod("q").pvc("c").pvc("shared").node("a").obj(), make_pod("r").pvc("d").node("b").obj()]
    preemptor = make_pod("p").pvc("c").pvc("d").pvc("shared").obj()
    assert refused_without(preemptor, ["q"], *claims, *users) == {"a", "b"}


DISK = {"gcePersistentDisk": {"pdName": "d"}}


DISK_READ_ONLY = {"gcePersistentDisk": {"pdName": "d", "readOnly": True}}


@pytest.mark.parametrize(
    ("pod", "came", "expected"),
    [
        pytest.param(make_pod("p").pvc("data"), claim("data"), True, id="restrictions"),
    ],
)
def test_a_new_claim_wakes_the_pods_that_use_it(pod: PodBuilder, came: PersistentVolumeClaim, expected: bool) -> None:
    assert helped("VolumeRestrictions", info(pod), Resource.PERSISTENT_VOLUME_CLAIM, Action.ADD, None, came) is expected


@pytest.mark.parametrize(
    ("pod", "left", "expected"),
    [
        pytest.param(make_pod("p").pvc("c"), make_pod("o").pvc("c"), True, id="shared claim"),
        pytest.param(make_pod("p").pvc("c"), make_pod("o").pvc("d"), False, id="another claim"),
        pytest.param(make_pod("p").pvc("c"), make_pod("o", "x").pvc("c"), False, id="another namespace"),
        pytest.param(make_pod("p").volume("v", DISK), make_pod("o").volume("v", DISK), True, id="same disk"),
        pytest.param(
            make_pod("p").volume("v", DISK_READ_ONLY),
            make_pod("o").volume("v", DISK_READ_ONLY),
            False,
            id="both only read",
        ),
    ],
)
def test_a_deleted_pod_wakes_pods_that_waited_for_its_volumes(
    pod: PodBuilder, left: PodBuilder, expected: bool
) -> None:
    gone = info(left.node("n"))
    assert helped("VolumeRestrictions", info(pod), Resource.ASSIGNED_POD, Action.DELETE, gone) is expected

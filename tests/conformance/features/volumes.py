"""VolumeBinding, VolumeZone, VolumeRestrictions: claims in every state, and disks that tolerate no company."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.builders import (
    HOSTNAME,
    REGION,
    ZONE,
    Object,
    PodBuilder,
    expression,
    make_csi_driver,
    make_pv,
    make_pvc,
    make_storage_capacity,
    make_storage_class,
    node_term,
)
from tests.conformance.draft import Dice, Draft

CSI, CAPACITY_CSI, NOBODY = "csi.example.com", "capacity.example.com", "kubernetes.io/no-provisioner"
BETA_ZONE = "failure-domain.beta.kubernetes.io/zone"

How = Callable[[Dice, Draft, str], None]


def add(dice: Dice, draft: Draft) -> None:
    _add_classes(dice, draft)
    for number in range(dice.one(1, 1, 2, 3)):
        way = dice.one(*_USUAL) if dice.chance(92) else dice.one(*_FAULTY)
        way(dice, draft, f"claim-{number}")
    for pod in draft.pods:
        if dice.chance(30):
            _share(dice, draft, pod)


def _share(dice: Dice, draft: Draft, pod: PodBuilder) -> None:
    """The pod uses one of the target's volumes too."""
    target = draft.target.obj()
    volumes = target["spec"].get("volumes", [])
    if volumes:
        pod.namespace(target["metadata"]["namespace"]).spec(volumes=[dice.one(*volumes)])


def _add_classes(dice: Dice, draft: Draft) -> None:
    topologies: Object = {}
    if dice.chance(45):
        topologies = {"allowedTopologies": [_topology(dice) for _ in range(dice.count(1, 2))]}
    draft.add(
        make_storage_class("immediate", wait=False),
        make_storage_class("wait", **topologies),
        make_storage_class("static", provisioner=NOBODY),
        make_storage_class("capacity", provisioner=CAPACITY_CSI),
        make_csi_driver(CAPACITY_CSI, storageCapacity=dice.chance(85)),
    )
    for zone in ("z0", "z1"):
        if dice.chance(80):
            # A maximum without a capacity makes kube-scheduler v1.37 crash when it scores (VolumeBinding.Score).
            more = {"capacity": dice.one("500Mi", "2Gi", "10Gi")} if dice.chance(85) else {}
            more |= {"maximumVolumeSize": dice.one("1Gi", "4Gi")} if more and dice.chance(25) else {}
            draft.add(make_storage_capacity(f"capacity-{zone}", "capacity", labels={ZONE: zone}, **more))


def _topology(dice: Dice) -> Object:
    keys = dice.some((ZONE, "disktype"), 1, 2)
    values = {ZONE: dice.some(("z0", "z1", "z2"), 1, 2), "disktype": [dice.one("ssd", "hdd")]}
    return {"matchLabelExpressions": [{"key": key, "values": values[key]} for key in keys]}


def _claim(draft: Draft, dice: Dice, name: str, storage_class: str | None, **more: Any) -> Object:
    """A claim of the target's, mounted by it; added as it is, so it can still be changed."""
    namespace = draft.target.obj()["metadata"]["namespace"]
    claim = make_pvc(name, namespace=namespace, storage_class=storage_class, storage=dice.one("1Gi", "5Gi"), **more)
    draft.target.pvc(name, read_only=dice.chance(10))
    if dice.chance(6):
        claim["metadata"]["deletionTimestamp"] = "2026-11-21T09:00:00Z"
    draft.add(claim)
    return claim


def _key(claim: Object) -> str:
    return f"{claim['metadata']['namespace']}/{claim['metadata']['name']}"


def _bound(dice: Dice, draft: Draft, name: str) -> None:
    access_mode = dice.one("ReadWriteOnce", "ReadWriteOnce", "ReadWriteMany", "ReadWriteOncePod")
    claim = _claim(draft, dice, name, "immediate", access_mode=access_mode, volume=f"pv-{name}")
    if dice.chance(6):
        del claim["metadata"]["annotations"]  # the binder has not finished
    if dice.chance(5):
        claim["status"]["phase"] = "Lost"
    if dice.chance(92):
        draft.add(_volume(dice, f"pv-{name}", "immediate", access_mode=access_mode, claim=_key(claim)))


def _volume(dice: Dice, name: str, storage_class: str, **more: Any) -> Object:
    labels: dict[str, str] = {}
    if dice.chance(55):
        labels[dice.one(ZONE, ZONE, BETA_ZONE)] = dice.one("z0", "z1", "z0__z2")
    if dice.chance(20):
        labels[REGION] = dice.one("r0", "r1")
    terms = []
    if dice.chance(50):
        key, values = dice.one((ZONE, ["z0"]), (ZONE, ["z1", "z2"]), (HOSTNAME, ["n0", "n1"]))
        terms.append(node_term(expression(key, "In", *values)))
    source = {"gcePersistentDisk": {"pdName": name}} if dice.chance(8) else None
    storage = dice.one("2Gi", "5Gi", "10Gi")
    return make_pv(
        name, storage_class=storage_class, storage=storage, labels=labels, node_terms=terms, source=source, **more
    )


def _unbound_immediate(dice: Dice, draft: Draft, name: str) -> None:
    _claim(draft, dice, name, "immediate")


def _provisioned(dice: Dice, draft: Draft, name: str) -> None:
    claim = _claim(draft, dice, name, "wait")
    if dice.chance(12):
        selected = {"volume.kubernetes.io/selected-node": dice.one("n0", "n1", "elsewhere")}
        claim["metadata"]["annotations"] = selected


def _by_capacity(dice: Dice, draft: Draft, name: str) -> None:
    _claim(draft, dice, name, "capacity")


def _static(dice: Dice, draft: Draft, name: str) -> None:
    claim = _claim(draft, dice, name, dice.one("static", "static", "wait"))
    if dice.chance(20):
        claim["spec"]["selector"] = {"matchLabels": {ZONE: "z0"}}
    if dice.chance(15):
        claim["spec"]["volumeMode"] = dice.one("Block", "Filesystem")
    for number in range(dice.count(0, 3)):
        volume = _volume(dice, f"free-{name}-{number}", dice.one("static", "static", "wait", "immediate"))
        if dice.chance(15):
            volume["spec"]["volumeMode"] = dice.one("Block", "Filesystem")
        if dice.chance(15):  # reserved by the user, for this claim or another one
            metadata = claim["metadata"]
            volume["spec"]["claimRef"] = {
                "namespace": metadata["namespace"],
                "name": dice.one(name, "another"),
                "uid": dice.one("", metadata["uid"], "another"),
            }
        if dice.chance(6):
            volume["metadata"]["deletionTimestamp"] = "2026-11-21T09:00:00Z"
        draft.add(volume)


def _without_class(dice: Dice, draft: Draft, name: str) -> None:
    _claim(draft, dice, name, dice.one("nonesuch", None, ""))


def _missing(dice: Dice, draft: Draft, name: str) -> None:
    draft.target.pvc(name)


def _ephemeral(dice: Dice, draft: Draft, name: str) -> None:
    """The claim has the pod's name before its own, and must belong to the pod."""
    storage_class = dice.one("wait", "immediate", "capacity")
    template = make_pvc(name, storage_class=storage_class)["spec"]
    draft.target.volume(name, {"ephemeral": {"volumeClaimTemplate": {"spec": template}}})
    metadata = draft.target.obj()["metadata"]
    claim = make_pvc(f"target-{name}", namespace=metadata["namespace"], storage_class=storage_class)
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "target", "controller": True}
    claim["metadata"]["ownerReferences"] = [{**owner, "uid": dice.one(metadata["uid"], metadata["uid"], "another")}]
    if dice.chance(85):
        draft.add(claim)


def _disk(dice: Dice, draft: Draft, name: str) -> None:
    sources: tuple[tuple[str, Object], ...] = (
        ("gcePersistentDisk", {"pdName": dice.one("d1", "d2")}),
        ("awsElasticBlockStore", {"volumeID": dice.one("vol-1", "aws://us-east-1a/vol-1")}),
        ("iscsi", {"targetPortal": "10.0.0.9", "iqn": dice.one("a", "b"), "lun": 0}),
        ("rbd", {"monitors": dice.some(("m1", "m2"), 1, 2), "image": "i", "pool": "p"}),
        ("azureDisk", {"diskName": "d", "diskURI": "/d"}),
    )
    kind, disk = dice.one(*sources)
    draft.target.volume(name, {kind: {**disk, "readOnly": dice.chance(40)}})
    for pod in draft.pods:
        if dice.chance(25):
            pod.volume("disk", {kind: {**disk, "readOnly": dice.chance(40)}})


_USUAL: tuple[How, ...] = (_bound, _bound, _provisioned, _static, _static, _by_capacity, _disk, _ephemeral)
_FAULTY: tuple[How, ...] = (_unbound_immediate, _without_class, _missing)

"""NodeVolumeLimits: how many volumes of a CSI driver a node can attach, and which are attached."""

from __future__ import annotations

from tests.builders import (
    Builder,
    Object,
    PodBuilder,
    make_csi_driver,
    make_pv,
    make_pvc,
    make_storage_class,
    make_volume_attachment,
)
from tests.conformance.draft import Dice, Draft

CSI, GCE_CSI = "csi.example.com", "pd.csi.storage.gke.io"


def add(dice: Dice, draft: Draft) -> None:
    draft.add(make_storage_class("limited", wait=dice.chance(50)))
    if dice.chance(40):
        draft.add(make_csi_driver(CSI, preventPodSchedulingIfMissing=dice.chance(60)))
    for name in draft.node_names:
        if dice.chance(90):
            draft.add(_csi_node(dice, name))
        if dice.chance(25):
            volume = f"pv-{dice.count(0, 4)}"
            draft.add(make_volume_attachment(f"{name}-{volume}", name, volume, attacher=dice.one(CSI, CSI, GCE_CSI)))
    for number, pod in enumerate(draft.everyone):
        if pod is draft.target or dice.chance(60):
            for _ in range(dice.count(1, 2)):
                _attach(dice, draft, pod, dice.one(number, number, dice.count(0, 4)))


def _csi_node(dice: Dice, name: str) -> Object:
    node = Builder("storage.k8s.io/v1", "CSINode", name)
    if dice.chance(30):
        node.annotation({"storage.alpha.kubernetes.io/migrated-plugins": "kubernetes.io/gce-pd"})
    drivers = []
    for driver in dice.some((CSI, GCE_CSI), 0 if dice.chance(12) else 1, 2):
        limit = {"allocatable": {"count": dice.one(1, 0, 2, 3)} if dice.chance(90) else {}} if dice.chance(80) else {}
        drivers.append({"name": driver, "nodeID": name, "topologyKeys": [], **limit})
    return {**node.obj(), "spec": {"drivers": drivers}}


def _attach(dice: Dice, draft: Draft, pod: PodBuilder, number: int) -> None:
    metadata = pod.obj()["metadata"]
    namespace, claim, volume = metadata["namespace"], f"data-{number}", f"pv-{number}"
    mounted = {volume["name"] for volume in pod.obj()["spec"].get("volumes", [])}
    if claim in mounted:
        return
    if dice.chance(12):
        pod.volume(f"disk-{len(mounted)}", {"gcePersistentDisk": {"pdName": dice.one("d1", "d2")}})
        return
    if dice.chance(8):
        pod.volume(f"inline-{len(mounted)}", {"csi": {"driver": CSI}})
        return
    pod.pvc(claim)
    if dice.chance(15):
        draft.add(make_pvc(claim, namespace=namespace, storage_class=dice.one("limited", "nonesuch")))
    elif dice.chance(95):
        draft.add(make_pvc(claim, namespace=namespace, storage_class="limited", volume=volume))
    source = {"gcePersistentDisk": {"pdName": "d1"}} if dice.chance(15) else None
    if dice.chance(92):
        draft.add(make_pv(volume, storage_class="limited", source=source, claim=f"{namespace}/{claim}"))

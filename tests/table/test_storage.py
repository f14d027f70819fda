"""The table's volumes always equal those of a new table with the same objects."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from extender.model.kinds import KINDS
from extender.model.pod import Pod
from extender.model.pod_volumes import CSIVolume
from extender.table import PodInfo, Table
from extender.table.csi import NO_LIMIT
from tests.builders import (
    Object,
    PodBuilder,
    make_csi_node,
    make_node,
    make_pod,
    make_pv,
    make_pvc,
    make_storage_class,
    make_volume_attachment,
)

NODES = [f"n{i}" for i in range(20)]  # more than the first capacity, so that columns grow
FEW_NODES = st.sampled_from(NODES[:3]) | st.sampled_from(NODES)
CLAIMS = [f"c{i}" for i in range(4)]
VOLUMES = [f"v{i}" for i in range(3)]
DRIVERS = ["one", "two"]
GCE = "kubernetes.io/gce-pd"

SOURCES = [{"csi": {"driver": driver, "volumeHandle": handle}} for driver in DRIVERS for handle in "xy"]
SOURCES += [{"gcePersistentDisk": {"pdName": "d"}}, {"nfs": {}}]


def with_volumes(pod: PodBuilder, claims: set[str], inline: bool, ephemeral: bool) -> PodBuilder:
    for claim in sorted(claims):
        pod.pvc(claim)
    if inline:
        pod.volume("inline", {"gcePersistentDisk": {"pdName": "d"}})
    if ephemeral:  # the claim of pod c would be c-0; there may be one, but it was not made for the pod
        pod.volume("0", {"ephemeral": {}})
    return pod


class StorageMachine(RuleBasedStateMachine):
    """Makes random changes to one table; the invariants build another from the objects that remain."""

    def __init__(self) -> None:
        super().__init__()
        self.table = Table()
        self.objects: dict[tuple[str, str], Object] = {}
        self.pods: dict[str, tuple[Object, str]] = {}

    def put(self, obj: Object) -> None:
        known = msgspec.convert(obj, KINDS[obj["kind"]].type)
        self.objects[obj["kind"], known.key] = obj
        _put(self.table, obj)

    @rule(name=FEW_NODES, present=st.booleans())
    def node(self, name: str, present: bool) -> None:
        if present:
            self.put(make_node(name).obj())
        elif self.objects.pop(("Node", name), None):
            self.table.remove_node(name)

    @rule(name=FEW_NODES, limits=st.dictionaries(st.sampled_from(DRIVERS), st.integers(0, 3)), migrated=st.booleans())
    def csi_node(self, name: str, limits: dict[str, int], migrated: bool) -> None:
        node = make_csi_node(name, limits)
        if migrated:
            node["metadata"]["annotations"] = {"storage.alpha.kubernetes.io/migrated-plugins": GCE}
        self.put(node)

    @rule(
        name=st.sampled_from(["p", "q", "c"]),
        node=FEW_NODES,
        claims=st.sets(st.sampled_from(CLAIMS)),
        inline=st.booleans(),
        ephemeral=st.booleans(),
    )
    def place(self, name: str, node: str, claims: set[str], inline: bool, ephemeral: bool) -> None:
        pod = with_volumes(make_pod(name), claims, inline, ephemeral).obj()
        self.pods[pod["metadata"]["uid"]] = pod, node
        self.table.place(PodInfo(msgspec.convert(pod, Pod)), node)

    @rule(data=st.data())
    def take_away(self, data: st.DataObject) -> None:
        if self.pods:
            uid = data.draw(st.sampled_from(sorted(self.pods)))
            del self.pods[uid]
            self.table.take_away(uid)

    @rule(name=st.sampled_from([*CLAIMS, "c-0"]), volume=st.sampled_from([None, *VOLUMES]), classed=st.booleans())
    def claim(self, name: str, volume: str | None, classed: bool) -> None:
        self.put(make_pvc(name, volume=volume, storage_class="s" if classed else None))

    @rule(name=st.sampled_from(VOLUMES), source=st.sampled_from(SOURCES))
    def volume(self, name: str, source: Object) -> None:
        self.put(make_pv(name, source=source))

    @rule(provisioner=st.sampled_from([*DRIVERS, GCE, "kubernetes.io/vsphere-volume"]))
    def storage_class(self, provisioner: str) -> None:
        self.put(make_storage_class("s", provisioner=provisioner))

    @rule(name=st.sampled_from("ab"), node=FEW_NODES, volume=st.sampled_from(VOLUMES), driver=st.sampled_from(DRIVERS))
    def attachment(self, name: str, node: str, volume: str, driver: str) -> None:
        self.put(make_volume_attachment(name, node, volume, attacher=driver))

    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        known = sorted(key for key in self.objects if key[0] != "Node")
        if known:
            kind, key = data.draw(st.sampled_from(known))
            del self.objects[kind, key]
            self.table.remove_object(kind, key)

    @rule()
    def look(self) -> None:
        """Reads the table at random moments, so that some changes are applied late."""
        assert picture(self.table) == picture(self.rebuilt())

    @invariant()
    def usage_is_kept(self) -> None:
        assert usage(self.table) == usage(self.rebuilt())

    def teardown(self) -> None:
        self.look()

    def rebuilt(self) -> Table:
        table = Table()
        for obj in self.objects.values():
            _put(table, obj)
        for pod, node in self.pods.values():
            table.place(PodInfo(msgspec.convert(pod, Pod)), node)
        return table


def _put(table: Table, obj: Object) -> None:
    known: Any = msgspec.convert(obj, KINDS[obj["kind"]].type)
    if obj["kind"] == "Node":
        table.set_node(known)
    else:
        table.set_object(obj["kind"], known)


def by_name(table: Table, column: np.ndarray[Any, Any], blank: object) -> dict[str, object]:
    """Returns the cells of the known nodes that are not empty."""
    rows = [row for row in table.nodes.rows.tolist() if column[row] != blank]
    return {table.nodes.names[row]: column[row].item() for row in rows}


def picture(table: Table) -> dict[str, object]:
    """Returns everything that can be read about attachments and CSINodes."""
    attachments, csi_nodes = table.storage.attachments, table.storage.csi_nodes
    drivers = [*DRIVERS, "pd.csi.storage.gke.io"]
    volumes = [CSIVolume(driver, handle) for driver in drivers for handle in ("x", "y")]
    everybody = np.ones(len(table.pods.row), np.bool_)
    found: dict[str, object] = {"known": by_name(table, csi_nodes.known(), False)}
    for driver in drivers:
        found[f"counted {driver}"] = by_name(table, attachments.counted(driver), 0)
        found[f"limit {driver}"] = by_name(table, csi_nodes.limit(driver), NO_LIMIT)
        found[f"installed {driver}"] = by_name(table, csi_nodes.has_driver(driver), False)
        found[f"attached {driver}"] = by_name(table, attachments.counted(driver, gone=everybody), 0)
    for volume in volumes:
        found[f"used {volume}"] = by_name(table, attachments.used(volume), False)
    found["migrated"] = by_name(table, csi_nodes.migrated(GCE), False)
    found["faults"] = {
        fault: sorted(table.nodes.names[row] for row in rows)
        for fault, rows in attachments.faults().items()
        if len(rows)
    }
    return found


def usage(table: Table) -> dict[str, set[str]]:
    """Returns the users of each claim."""
    return {
        claim: {table.pods.info(slot).uid for slot in table.storage.usage.users(f"default/{claim}")} for claim in CLAIMS
    }


TestStorage = StorageMachine.TestCase
TestStorage.settings = settings(max_examples=30, stateful_step_count=40)


def test_hypothetically_removed_pods_free_their_volumes() -> None:
    table = Table()
    for obj in (
        make_node("n").obj(),
        *(make_pvc(name, volume=f"v-{name}") for name in CLAIMS),
        *(make_pv(f"v-{name}", source={"csi": {"driver": "one", "volumeHandle": name}}) for name in CLAIMS),
        make_volume_attachment("a", "n", "v-c3", attacher="one"),
    ):
        _put(table, obj)
    for name, claims in {"p": {"c0", "c1"}, "q": {"c1", "c2"}, "r": {"c3"}}.items():
        table.place(PodInfo(msgspec.convert(with_volumes(make_pod(name), claims, False, False).obj(), Pod)), "n")

    def counted(*gone: str) -> int:
        mask = np.zeros(len(table.pods.row), np.bool_)
        mask[[table.pods.slot_of[make_pod(name).obj()["metadata"]["uid"]] for name in gone]] = True
        return int(table.storage.attachments.counted("one", mask)[table.nodes.row_of["n"]])

    assert counted() == 4
    assert counted("p") == 3  # c1 is used by q
    assert counted("p", "q") == 1
    assert counted("p", "q", "r") == 1  # c3 stays attached

"""VolumeBinding, Filter: bound volumes must be accessible; delayed claims need a free volume or provisioning."""

from __future__ import annotations

from typing import Any

import pytest

from extender.framework.status import failed, unresolvable
from extender.plugins.volume_binding import (
    BIND_CONFLICT,
    NODE_CONFLICT,
    NOT_ENOUGH_SPACE,
    VOLUME_MISSING,
    VolumeBindingFilter,
)
from tests.builders import (
    HOSTNAME,
    ZONE,
    Object,
    expression,
    make_csi_driver,
    make_csi_node,
    make_node,
    make_pod,
    make_pv,
    make_pvc,
    make_storage_capacity,
    make_storage_class,
    node_term,
)
from tests.framework.cluster import refusals

NOBODY = "kubernetes.io/no-provisioner"
NODES = [make_node(f"n{i}").zone(f"z{i}").obj() for i in range(3)]
EVERYWHERE = ["n0", "n1", "n2"]
POD = make_pod("p").pvc("c").obj()
STATIC = make_storage_class("s", provisioner=NOBODY)


def in_zone(*zones: str) -> list[Object]:
    return [node_term(expression(ZONE, "In", *zones))]


def changed(obj: Object, part: str, **fields: Any) -> Object:
    return {**obj, part: {**obj[part], **fields}}


def reasons(pod: Object, *objects: Object) -> dict[str, list[str]]:
    """Returns node name -> reasons, and checks that all refusals are final."""
    found = refusals(VolumeBindingFilter(), pod, *NODES, *objects)
    assert all(refusal == unresolvable("VolumeBinding", *refusal.reasons) for refusal in found.values())
    return {node: list(refusal.reasons) for node, refusal in found.items()}


def claim(**spec: Any) -> Object:
    return changed(make_pvc("c", storage_class="s"), "spec", **spec)


@pytest.mark.parametrize(
    ("objects", "reason"),
    [
        pytest.param([], 'persistentvolumeclaim "c" not found', id="missing"),
        pytest.param(
            [{**make_pvc("c", volume="v"), "status": {"phase": "Lost"}}],
            'persistentvolumeclaim "c" bound to non-existent persistentvolume "v"',
            id="lost",
        ),
        pytest.param(
            [changed(make_pvc("c"), "metadata", deletionTimestamp="2026-11-21T09:00:00Z")],
            'persistentvolumeclaim "c" is being deleted',
            id="terminating",
        ),
        *(
            pytest.param(objects, "pod has unbound immediate PersistentVolumeClaims", id=state)
            for state, objects in {
                "no class": [make_pvc("c")],
                "a class that is missing": [make_pvc("c", storage_class="s")],
                "immediate": [make_pvc("c", storage_class="s"), make_storage_class("s", wait=False)],
                "half bound": [claim(volumeName="v"), STATIC],
            }.items()
        ),
    ],
)
def test_unusable_claims_refuse_every_node(objects: list[Object], reason: str) -> None:
    assert reasons(POD, *objects) == {node: [reason] for node in EVERYWHERE}


def test_a_class_without_a_mode_is_an_error() -> None:
    message = 'running PreFilter plugin "VolumeBinding": VolumeBindingMode not set for StorageClass "s"'
    found = refusals(VolumeBindingFilter(), POD, *NODES, claim(), {**STATIC, "volumeBindingMode": None})
    assert set(found.values()) == {failed("VolumeBinding", message)}


@pytest.mark.parametrize(
    ("owner", "reason"),
    [
        pytest.param("the pod", None, id="made for the pod"),
        pytest.param(
            "another", "PVC default/p-v was not created for pod default/p (pod is not owner)", id="for another"
        ),
        pytest.param(
            None,
            'waiting for ephemeral volume controller to create the persistentvolumeclaim "p-v"',
            id="not made yet",
        ),
    ],
)
def test_ephemeral_volumes(owner: str | None, reason: str | None) -> None:
    pod = make_pod("p").volume("v", {"ephemeral": {"volumeClaimTemplate": {}}}).uid("the pod").obj()
    made = make_pvc("p-v", volume="v")
    made["metadata"]["ownerReferences"] = [{"kind": "Pod", "name": "p", "uid": owner, "controller": True}]
    objects = [made, make_pv("v", claim="default/p-v")] if owner else []
    assert reasons(pod, *objects) == ({node: [reason] for node in EVERYWHERE} if reason else {})


@pytest.mark.parametrize(
    ("terms", "refused"),
    [
        pytest.param([], set(), id="no affinity"),
        pytest.param(in_zone("z0", "z1"), {"n2"}, id="a zone"),
        pytest.param([*in_zone("z0"), *in_zone("z2")], {"n1"}, id="either of two terms"),
        pytest.param([{"matchExpressions": []}], set(EVERYWHERE), id="an empty term"),
        pytest.param(
            [node_term(fields=[expression("metadata.name", "In", "n1")])], set(), id="a name: it sees labels alone"
        ),
    ],
)
def test_bound_volumes(terms: list[Object], refused: set[str]) -> None:
    volume = make_pv("v", node_terms=terms, claim="default/c")
    assert reasons(POD, make_pvc("c", volume="v"), volume) == {node: [NODE_CONFLICT] for node in refused}


def test_a_bound_volume_that_does_not_exist() -> None:
    pod = make_pod("p").pvc("d").pvc("c").obj()
    objects = [make_pvc("c", volume="gone"), make_pvc("d", volume="v"), make_pv("v", node_terms=in_zone("z0"))]
    assert reasons(pod, *objects) == {"n0": [VOLUME_MISSING], "n1": [NODE_CONFLICT], "n2": [NODE_CONFLICT]}


def test_a_migrated_volume_is_where_its_driver_says() -> None:
    volume = make_pv("v", source={"gcePersistentDisk": {"pdName": "d"}}, node_terms=in_zone("z0"), claim="default/c")
    migrated = make_csi_node("n1", {})
    migrated["metadata"]["annotations"] = {"storage.alpha.kubernetes.io/migrated-plugins": "kubernetes.io/gce-pd,x"}
    there = make_node("n1").zone("z1").label({"topology.gke.io/zone": "z0"}).obj()
    assert reasons(POD, make_pvc("c", volume="v"), volume, migrated, there) == {"n2": [NODE_CONFLICT]}


@pytest.mark.parametrize(
    ("wanted", "volume", "refused"),
    [
        pytest.param(claim(), make_pv("v", storage_class="s"), set(), id="it fits"),
        pytest.param(claim(), None, set(EVERYWHERE), id="there is none"),
        pytest.param(claim(), make_pv("v", storage_class="s", node_terms=in_zone("z1")), {"n0", "n2"}, id="elsewhere"),
        pytest.param(claim(), make_pv("v", storage_class="t"), set(EVERYWHERE), id="another class"),
        pytest.param(claim(), make_pv("v", storage_class="s", storage="1023Mi"), set(EVERYWHERE), id="too small"),
        pytest.param(
            claim(accessModes=["ReadWriteOnce", "ReadOnlyMany"]),
            make_pv("v", storage_class="s"),
            set(EVERYWHERE),
            id="an access mode is missing",
        ),
        pytest.param(claim(volumeMode="Block"), make_pv("v", storage_class="s"), set(EVERYWHERE), id="another mode"),
        pytest.param(
            claim(volumeAttributesClassName="fast"), make_pv("v", storage_class="s"), set(EVERYWHERE), id="attributes"
        ),
        pytest.param(
            claim(selector={"matchLabels": {"tier": "gold"}}),
            make_pv("v", storage_class="s", labels={"tier": "tin"}),
            set(EVERYWHERE),
            id="other labels",
        ),
        pytest.param(
            claim(selector={"matchLabels": {"tier": "gold"}}),
            make_pv("v", storage_class="s", labels={"tier": "gold"}),
            set(),
            id="the labels asked for",
        ),
        pytest.param(
            claim(),
            {**make_pv("v", storage_class="s"), "status": {"phase": "Released"}},
            set(EVERYWHERE),
            id="released",
        ),
        pytest.param(
            claim(),
            changed(make_pv("v", storage_class="s"), "metadata", deletionTimestamp="2026-11-21T09:00:00Z"),
            set(EVERYWHERE),
            id="terminating",
        ),
        pytest.param(
            claim(), make_pv("v", storage_class="s", claim="default/other"), set(EVERYWHERE), id="kept for another"
        ),
        pytest.param(
            claim(accessModes=["ReadWriteMany"]),
            make_pv("v", storage_class="s", claim="default/c", node_terms=in_zone("z2")),
            {"n0", "n1"},
            id="kept for the claim, whatever its phase and modes",
        ),
    ],
)
def test_free_volumes(wanted: Object, volume: Object | None, refused: set[str]) -> None:
    objects = [wanted, STATIC, *([volume] if volume else [])]
    assert reasons(POD, *objects) == {node: [BIND_CONFLICT] for node in refused}


def test_two_claims_need_two_volumes() -> None:
    pod = make_pod("p").pvc("c").pvc("d").obj()
    claims = [make_pvc(name, storage_class="s") for name in "cd"]
    volumes = [make_pv("v", storage_class="s", node_terms=in_zone("z0", "z1")), make_pv("w", storage_class="s")]
    assert reasons(pod, STATIC, *claims, *volumes) == {"n2": [BIND_CONFLICT]}


def test_the_smaller_claim_takes_the_smaller_volume() -> None:
    pod = make_pod("p").pvc("big").pvc("small").obj()
    claims = [make_pvc("big", storage_class="s", storage="5Gi"), make_pvc("small", storage_class="s", storage="1Gi")]
    volumes = [make_pv("w", storage_class="s", storage="6Gi"), make_pv("v", storage_class="s", storage="2Gi")]
    assert reasons(pod, STATIC, *claims, *volumes) == {}


@pytest.mark.parametrize(
    ("storage_class", "refused"),
    [
        pytest.param(make_storage_class("s"), set(), id="anywhere"),
        pytest.param(make_storage_class("s", provisioner=NOBODY), set(EVERYWHERE), id="nowhere"),
        pytest.param(
            make_storage_class(
                "s", allowedTopologies=[{"matchLabelExpressions": [{"key": ZONE, "values": ["z0", "z1"]}]}]
            ),
            {"n2"},
            id="in some zones",
        ),
        pytest.param(
            make_storage_class(
                "s",
                allowedTopologies=[
                    {"matchLabelExpressions": [{"key": ZONE, "values": ["z0"]}, {"key": HOSTNAME, "values": ["n1"]}]},
                    {"matchLabelExpressions": [{"key": ZONE, "values": ["z2"]}]},
                    {},
                ],
            ),
            {"n0", "n1"},
            id="all of one of the terms",
        ),
    ],
)
def test_provisioning(storage_class: Object, refused: set[str]) -> None:
    assert reasons(POD, claim(), storage_class) == {node: [BIND_CONFLICT] for node in refused}


@pytest.mark.parametrize(
    ("selected", "refused"),
    [pytest.param("n1", {"n0", "n2"}, id="a node"), pytest.param("ghost", set(EVERYWHERE), id="a node that is gone")],
)
def test_a_node_selected_before(selected: str, refused: set[str]) -> None:
    chosen = changed(claim(), "metadata", annotations={"volume.kubernetes.io/selected-node": selected})
    objects = [chosen, make_storage_class("s"), make_pv("v", storage_class="s")]
    assert reasons(POD, *objects) == {node: [BIND_CONFLICT] for node in refused}


@pytest.mark.parametrize(
    ("reports", "capacities", "refused"),
    [
        pytest.param(True, [("z0", {"capacity": "1Gi"}), ("z1", {"capacity": "1023Mi"})], {"n1", "n2"}, id="by size"),
        pytest.param(True, [], set(EVERYWHERE), id="none left"),
        pytest.param(False, [], set(), id="the driver does not tell"),
        pytest.param(
            True, [("z0", {"capacity": "9Gi", "maximumVolumeSize": "512Mi"})], set(EVERYWHERE), id="the largest volume"
        ),
        pytest.param(True, [("z0", {})], set(EVERYWHERE), id="unknown"),
        pytest.param(True, [(None, {"capacity": "9Gi"})], set(EVERYWHERE), id="on no node"),
        pytest.param(True, [("z0", {"capacity": "1Mi"}), ("z0", {"capacity": "2Gi"})], {"n1", "n2"}, id="another pool"),
    ],
)
def test_capacity(reports: bool, capacities: list[tuple[str | None, Object]], refused: set[str]) -> None:
    pools = [
        make_storage_capacity(f"pool-{i}", "s", labels={ZONE: zone} if zone else None, **fields)
        for i, (zone, fields) in enumerate(capacities)
    ]
    objects = [claim(), make_storage_class("s"), make_csi_driver("csi.example.com", storageCapacity=reports), *pools]
    assert reasons(POD, *objects) == {node: [NOT_ENOUGH_SPACE] for node in refused}


def test_all_conflicts_of_a_node_are_reported() -> None:
    pod = make_pod("p").pvc("b").pvc("c").obj()
    far = [make_pvc("b", volume="v"), make_pv("v", node_terms=in_zone("z0"), claim="default/b")]
    assert reasons(pod, *far, claim(), STATIC) == {
        "n0": [BIND_CONFLICT],
        "n1": [NODE_CONFLICT, BIND_CONFLICT],
        "n2": [NODE_CONFLICT, BIND_CONFLICT],
    }


def test_a_volume_that_cannot_be_translated_is_an_error_only_on_nodes_that_migrated_its_plugin() -> None:
    disk = {"awsElasticBlockStore": {"volumeID": "aws://zone/disk"}}
    broken = [make_pv(name, source=disk, claim=f"default/{claim}") for name, claim in (("v", "c"), ("w", "d"))]
    claims = [make_pvc("c", volume="v"), make_pvc("d", volume="w"), make_pvc("e", volume="gone")]
    migrated = make_csi_node("n1", {})
    migrated["metadata"]["annotations"] = {"storage.alpha.kubernetes.io/migrated-plugins": "kubernetes.io/aws-ebs"}
    pod = make_pod("p").pvc("c").pvc("d").pvc("e").obj()
    missing = unresolvable("VolumeBinding", VOLUME_MISSING)
    found = refusals(VolumeBindingFilter(), pod, *NODES, migrated, *claims, *broken)
    error = found.pop("n1")
    assert found == {"n0": missing, "n2": missing}
    assert error == failed(
        "VolumeBinding",
        'running "VolumeBinding" filter plugin: could not translate pv: failed to translate Kubernetes ID to EBS Volume'
        " ID Invalid format for AWS volume (aws://zone/disk)",
    )

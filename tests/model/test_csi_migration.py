"""In-tree volumes are translated to the handles and topologies of their CSI drivers."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from extender.model.meta import NodeSelector
from extender.model.pod_volumes import (
    CSIVolume,
    Fault,
    in_tree_plugin,
    migrated_node_selector,
    migrated_volume,
)
from extender.model.storage import PersistentVolume
from tests.builders import REGION, ZONE, Object, expression, make_pv, node_term

BETA_ZONE = "failure-domain.beta.kubernetes.io/zone"
BETA_REGION = "failure-domain.beta.kubernetes.io/region"
GKE = "topology.gke.io/zone"
GCE_DISK = {"gcePersistentDisk": {"pdName": "d"}}


def volume(source: Object, labels: dict[str, str] | None = None, *terms: Object) -> PersistentVolume:
    return msgspec.convert(make_pv("v", source=source, labels=labels, node_terms=terms), PersistentVolume)


@pytest.mark.parametrize(
    ("source", "labels", "expected"),
    [
        pytest.param(
            {"awsElasticBlockStore": {"volumeID": "vol-1"}}, {}, CSIVolume("ebs.csi.aws.com", "vol-1"), id="aws"
        ),
        pytest.param(
            {"awsElasticBlockStore": {"volumeID": "aws://us-east-1a/vol-1"}},
            {},
            CSIVolume("ebs.csi.aws.com", "vol-1"),
            id="aws: by its zone",
        ),
        pytest.param(
            {"awsElasticBlockStore": {"volumeID": "aws:///vol-1"}},
            {},
            CSIVolume("ebs.csi.aws.com", "vol-1"),
            id="aws: URL",
        ),
        pytest.param(
            {"awsElasticBlockStore": {"volumeID": "aws://x/y"}},
            {},
            Fault("failed to translate Kubernetes ID to EBS Volume ID Invalid format for AWS volume (aws://x/y)"),
            id="aws: no volume",
        ),
        pytest.param(
            GCE_DISK,
            {},
            CSIVolume("pd.csi.storage.gke.io", "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d"),
            id="gce: anywhere",
        ),
        pytest.param(
            GCE_DISK,
            {ZONE: "us-east1-a"},
            CSIVolume("pd.csi.storage.gke.io", "projects/UNSPECIFIED/zones/us-east1-a/disks/d"),
            id="gce: in a zone",
        ),
        pytest.param(
            GCE_DISK,
            {BETA_ZONE: "us-east1-a__us-east1-b"},
            CSIVolume("pd.csi.storage.gke.io", "projects/UNSPECIFIED/regions/us-east1/disks/d"),
            id="gce: in a region",
        ),
        pytest.param(
            GCE_DISK,
            {ZONE: "us-east1-a__eu-west1-b"},
            Fault(
                "failed to get region from zones: multiple or no regions gotten from zones, got: "
                "map[eu-west1:{} us-east1:{}]"
            ),
            id="gce: in two regions",
        ),
        pytest.param(
            {"azureDisk": {"diskName": "d", "diskURI": "/uri"}}, {}, CSIVolume("disk.csi.azure.com", "/uri"), id="azure"
        ),
        pytest.param(
            {"azureDisk": {"diskName": "d", "diskURI": "/uri", "kind": "Dedicated"}},
            {},
            Fault("kind(Dedicated) is not supported in csi migration"),
            id="azure: unmanaged",
        ),
        pytest.param({"cinder": {"volumeID": "c"}}, {}, CSIVolume("cinder.csi.openstack.org", "c"), id="cinder"),
        pytest.param({"portworxVolume": {"volumeID": "p"}}, {}, CSIVolume("pxd.portworx.com", "p"), id="portworx"),
        pytest.param({"nfs": {}}, {}, None, id="another plugin's"),
    ],
)
def test_names(source: Object, labels: dict[str, str], expected: CSIVolume | Fault | None) -> None:
    pv = volume(source, labels)
    assert migrated_volume(pv.spec, pv.labels) == expected
    assert (in_tree_plugin(pv.spec) is None) == (expected is None)


def selector(*terms: Object) -> NodeSelector:
    return msgspec.convert({"nodeSelectorTerms": terms}, NodeSelector)


@pytest.mark.parametrize(
    ("labels", "terms", "expected"),
    [
        pytest.param({}, [], None, id="anywhere"),
        pytest.param(
            {},
            [node_term(expression(ZONE, "In", "a"))],
            selector(node_term(expression(GKE, "In", "a"))),
            id="by affinity",
        ),
        pytest.param(
            {},
            [node_term(expression(BETA_ZONE, "In", "a"), expression(BETA_REGION, "In", "r"))],
            selector(node_term(expression(GKE, "In", "a"), expression(REGION, "In", "r"))),
            id="by the old labels",
        ),
        pytest.param(
            {ZONE: "us-x1-b__us-x1-a"},
            [],
            selector(node_term(expression(GKE, "In", "us-x1-a", "us-x1-b"))),
            id="by the volume's own label",
        ),
        pytest.param(
            {ZONE: "a"},
            [node_term(expression("disk", "Exists")), node_term(expression("rack", "Exists"))],
            selector(
                node_term(expression("disk", "Exists"), expression(GKE, "In", "a")),
                node_term(expression("rack", "Exists"), expression(GKE, "In", "a")),
            ),
            id="by the label, added to each term",
        ),
        pytest.param(
            {ZONE: "b"},
            [node_term(expression(ZONE, "In", "a"))],
            selector(node_term(expression(GKE, "In", "a"))),
            id="affinity goes before the label",
        ),
    ],
)
def test_places(labels: dict[str, str], terms: list[Any], expected: NodeSelector | None) -> None:
    found = migrated_node_selector(volume(GCE_DISK, labels, *terms), "kubernetes.io/gce-pd")
    assert normal(found) == normal(expected)


def normal(found: NodeSelector | Fault | None) -> object:
    """Treats absent and empty lists as equal."""
    return [
        [(e.key, e.operator, e.values or []) for e in term.match_expressions or ()]
        for term in (found.node_selector_terms if isinstance(found, NodeSelector) else None) or ()
    ]


def test_a_volume_that_cannot_be_translated_is_a_fault() -> None:
    found = migrated_node_selector(volume({"awsElasticBlockStore": {"volumeID": "aws://x/y"}}), "kubernetes.io/aws-ebs")
    assert isinstance(found, Fault)

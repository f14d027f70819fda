"""Builders of API objects for tests: `make_pod("p").req(cpu="1", memory="1Gi").label(app="web").node("n1").obj()`.

They give plain dicts, as JSON off the wire does: good for decoding into the model and for the real API server alike.
Every method changes the builder and returns it; `obj()` returns a fresh copy, so a builder may serve as a template.
Quantities are the API's strings ("100m", "1Gi"); timestamps are RFC 3339.
"""

from __future__ import annotations

from tests.builders.builder import HOSTNAME, REGION, TIMESTAMP, ZONE, Builder, Object, stored
from tests.builders.devices import (
    make_alternative,
    make_claim,
    make_device,
    make_device_class,
    make_device_taint_rule,
    make_prioritized_list,
    make_request,
    make_resource_claim,
    make_resource_slice,
    make_result,
    make_slice,
    version,
    with_allocation,
)
from tests.builders.node import NodeBuilder, make_node
from tests.builders.pod import PAUSE_IMAGE, PodBuilder, make_pod
from tests.builders.storage import (
    make_csi_driver,
    make_csi_node,
    make_pv,
    make_pvc,
    make_storage_capacity,
    make_storage_class,
    make_volume_attachment,
)
from tests.builders.terms import expression, node_term, pod_term
from tests.builders.workloads import (
    make_composite_pod_group,
    make_namespace,
    make_pdb,
    make_pod_group,
    make_priority_class,
    make_service,
)

__all__ = [
    "HOSTNAME",
    "PAUSE_IMAGE",
    "REGION",
    "TIMESTAMP",
    "ZONE",
    "Builder",
    "NodeBuilder",
    "Object",
    "PodBuilder",
    "expression",
    "make_alternative",
    "make_claim",
    "make_composite_pod_group",
    "make_csi_driver",
    "make_csi_node",
    "make_device",
    "make_device_class",
    "make_device_taint_rule",
    "make_namespace",
    "make_node",
    "make_pdb",
    "make_pod",
    "make_pod_group",
    "make_prioritized_list",
    "make_priority_class",
    "make_pv",
    "make_pvc",
    "make_request",
    "make_resource_claim",
    "make_resource_slice",
    "make_result",
    "make_service",
    "make_slice",
    "make_storage_capacity",
    "make_storage_class",
    "make_volume_attachment",
    "node_term",
    "pod_term",
    "stored",
    "version",
    "with_allocation",
]

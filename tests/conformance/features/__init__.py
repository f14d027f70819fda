"""The subjects of cases: each feature adds to a draft what its plugins look at."""

from __future__ import annotations

from collections.abc import Mapping

from tests.conformance.draft import Feature
from tests.conformance.features import (
    declared_features,
    devices,
    images,
    inter_pod_affinity,
    node_affinity,
    node_name,
    ports,
    preemption,
    resources,
    taints,
    topology_spread,
    volume_limits,
    volumes,
)

FEATURES: Mapping[str, Feature] = {
    "resources": resources.add,
    "node-name": node_name.add,
    "node-affinity": node_affinity.add,
    "taints": taints.add,
    "ports": ports.add,
    "images": images.add,
    "topology-spread": topology_spread.add,
    "inter-pod-affinity": inter_pod_affinity.add,
    "volumes": volumes.add,
    "volume-limits": volume_limits.add,
    "devices": devices.add,
    "declared-features": declared_features.add,
    "preemption": preemption.add,
}

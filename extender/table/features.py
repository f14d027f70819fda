"""The feature gates of kube-scheduler that matter to decisions."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FeatureGates:
    """The gates by their names in Python, with the defaults of kube-scheduler v1.37.1; `BY_NAME` has stock's names."""

    dra_fractional_capacity_range: bool = False
    node_declared_features: bool = True
    storage_capacity_scoring: bool = True
    volume_limit_scaling: bool = True


BY_NAME = {
    "DRAFractionalCapacityRange": "dra_fractional_capacity_range",
    "NodeDeclaredFeatures": "node_declared_features",
    "StorageCapacityScoring": "storage_capacity_scoring",
    "VolumeLimitScaling": "volume_limit_scaling",
}
"""The fields by the names that --feature-gates of kube-scheduler has for them."""
DEFAULT_FEATURES = FeatureGates()

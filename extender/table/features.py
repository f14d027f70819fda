"""The feature gates of kube-scheduler that affect decisions."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FeatureGates:
    """The gates by their Python names, with the defaults of kube-scheduler v1.37.1; see `BY_NAME` for stock's names."""

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
"""The fields by their names in kube-scheduler's --feature-gates."""
DEFAULT_FEATURES = FeatureGates()

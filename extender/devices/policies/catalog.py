"""Lists the policies by the names that a configuration gives them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np

from extender.devices.policies.best_fit import BestFit
from extender.devices.policies.cpu_balance import CpuBalance
from extender.devices.policies.dot_prod import DotProd
from extender.devices.policies.fgd import FGD
from extender.devices.policies.first_fit import FirstFit
from extender.devices.policies.gpu_clustering import GpuClustering
from extender.devices.policies.gpu_packing import GpuPacking
from extender.devices.policies.least_allocated import LeastAllocated
from extender.devices.policies.policy import DevicePolicy
from extender.devices.policies.pwr import PWR
from extender.devices.policies.random_fit import Random
from extender.devices.policies.typical_pods import TypicalPods

Build = Callable[[TypicalPods, int], DevicePolicy]
POLICIES: Mapping[str, Build] = MappingProxyType(
    {
        "FirstFit": lambda _typical, _seed: FirstFit(),
        "BestFit": lambda _typical, _seed: BestFit(),
        "DotProd": lambda _typical, _seed: DotProd(),
        "GpuClustering": lambda _typical, _seed: GpuClustering(),
        "GpuPacking": lambda _typical, _seed: GpuPacking(),
        "LeastAllocated": lambda _typical, _seed: LeastAllocated(),
        "FGD": lambda typical, _seed: FGD(typical),
        "CpuBalance": lambda typical, _seed: CpuBalance(typical),
        "PWR": lambda _typical, _seed: PWR(),
        "Random": lambda _typical, seed: Random(np.random.default_rng(seed)),
    }
)
"""Name -> builds the policy from the typical pods and a seed."""

USERS_OF_TYPICAL_PODS = frozenset({"FGD", "CpuBalance"})
"""The policies that learn them from the cluster if the configuration names none."""

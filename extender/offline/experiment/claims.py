"""Places the pods of a trace by the engine of `extender schedule`, with ResourceSlices and ResourceClaims.

Every node has a ResourceSlice whose devices can be shared by thousandths, and every pod with devices has a claim.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import NamedTuple

import msgspec

from extender.devices.device_nodes import DeviceAsk, DeviceNodes
from extender.devices.policies import Choice
from extender.devices.typical_pods import TypicalPods
from extender.engine.decide import SchedulingCycle
from extender.engine.decision import Chosen
from extender.framework.profile import Profile, WeightedPriority
from extender.model.devices import DeviceClass, ResourceClaim, ResourceSlice
from extender.model.node import Node
from extender.model.pod import Pod
from extender.plugins.device_scoring import DeviceScoring
from extender.plugins.registry import default_profile
from extender.plugins.users.priority import CustomDevicePriority
from extender.table import PodInfo, Table

KUBE_SCHEDULER = "kube-scheduler"
"""The name of the policy that scores nodes, and takes devices, as kube-scheduler does by default."""
_DRIVER = "gpu.example.com"
_CAPACITY = "thousandths"


class _Placed(NamedTuple):
    pod: PodInfo
    claim: ResourceClaim | None


class ClaimChooser:
    """Chooses as `DeviceChooser` does, but by the engine; keeps `nodes` equal to the table for measurements."""

    def __init__(
        self,
        nodes: DeviceNodes,
        policies: Sequence[tuple[str, int]],
        typical: TypicalPods,
        users_rules: tuple[CustomDevicePriority, ...] = (),
    ) -> None:
        """Sets the nodes and the policies with their weights; `users_rules` are those that are users' functions."""
        self.nodes = nodes
        self._table = Table()
        self._cycle = SchedulingCycle(_profile(policies, typical, users_rules))
        self._numbers = count()
        self._chosen: _Placed | None = None
        self._placed: defaultdict[tuple[Choice, DeviceAsk], list[_Placed]] = defaultdict(list)
        self._table.set_object(DeviceClass.__name__, msgspec.convert(_CLASS, DeviceClass))
        for row in range(len(nodes.devices)):
            self._table.set_node(msgspec.convert(_node(nodes, row), Node))
            if nodes.devices[row]:
                self._table.set_object(ResourceSlice.__name__, msgspec.convert(_slice(nodes, row), ResourceSlice))

    def choose(self, ask: DeviceAsk) -> Choice | None:
        """Returns the node and devices for a new pod, or None if it fits nowhere. Places nothing."""
        number = next(self._numbers)
        pod = PodInfo(msgspec.convert(_pod(ask, number), Pod))
        claim = msgspec.convert(_claim(ask, number), ResourceClaim) if ask.count else None
        if claim is not None:
            self._table.set_object(ResourceClaim.__name__, claim)
        outcome = self._cycle.decide(pod, self._table).outcome
        if claim is not None:
            self._table.remove_object(ResourceClaim.__name__, claim.key)
        if not isinstance(outcome, Chosen):
            return None
        devices: tuple[int, ...] = ()
        for own, allocation in outcome.devices.allocate:
            claim = own.with_allocation(allocation)
            devices = tuple(int(result.device.removeprefix("gpu-")) for result in allocation.results)
        self._chosen = _Placed(pod, claim)
        return Choice(self._table.nodes.row_of[outcome.node_name], devices)

    def change(self, choice: Choice, ask: DeviceAsk, sign: int = -1) -> None:
        """Places the pod that was chosen for last, or removes one like it again if `sign` is 1."""
        self.nodes.change(choice.row, ask, choice.devices, sign)
        if sign < 0:
            assert self._chosen is not None
            placed = self._chosen
            self._placed[choice, ask].append(placed)
            if placed.claim is not None:
                self._table.set_object(ResourceClaim.__name__, placed.claim)
            self._table.place(placed.pod, self._table.nodes.names[choice.row])
            return
        placed = self._placed[choice, ask].pop()
        self._table.take_away(placed.pod.uid)
        if placed.claim is not None:
            self._table.remove_object(ResourceClaim.__name__, placed.claim.key)


def _profile(
    policies: Sequence[tuple[str, int]], typical: TypicalPods, users_rules: tuple[CustomDevicePriority, ...]
) -> Profile:
    """Returns the default profile, in which only the policies score, and without preemption."""
    profile = replace(default_profile(), preemption=None)
    if [name for name, _ in policies] == [KUBE_SCHEDULER]:
        return profile
    scoring = DeviceScoring(tuple(policies), typical_pods=tuple(typical.kinds.items()), users_rules=users_rules)
    return replace(profile, priorities=[WeightedPriority(scoring)])


_CLASS = {
    "metadata": {"name": "gpu"},
    "spec": {"selectors": [{"cel": {"expression": f'device.driver == "{_DRIVER}"'}}]},
}


def _node(nodes: DeviceNodes, row: int) -> object:
    amounts = {"cpu": f"{nodes.cpu[row]}m", "memory": f"{nodes.memory[row]}Mi", "pods": "10000"}
    return {"metadata": {"name": _name(row)}, "status": {"allocatable": amounts, "capacity": amounts}}


def _slice(nodes: DeviceNodes, row: int) -> object:
    devices = [
        {
            "name": f"gpu-{number}",
            "attributes": {"model": {"string": str(nodes.models[row])}},
            "capacity": {_CAPACITY: {"value": "1000"}},
            "allowMultipleAllocations": True,
        }
        for number in range(int(nodes.devices[row]))
    ]
    pool = {"name": _name(row), "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": _DRIVER, "pool": pool, "nodeName": _name(row), "devices": devices}
    return {"metadata": {"name": _name(row)}, "spec": spec}


def _name(row: int) -> str:
    return f"node-{row:05}"


def _pod(ask: DeviceAsk, number: int) -> object:
    requests = {"cpu": f"{ask.cpu}m", "memory": f"{ask.memory}Mi"}
    spec: dict[str, object] = {"containers": [{"name": "c", "image": "c", "resources": {"requests": requests}}]}
    if ask.count:
        spec["resourceClaims"] = [{"name": "devices", "resourceClaimName": f"pod-{number}"}]
    metadata = {"namespace": "default", "name": f"pod-{number}", "uid": f"pod-{number}"}
    return {"metadata": metadata, "spec": spec}


def _claim(ask: DeviceAsk, number: int) -> object:
    exactly: dict[str, object] = {
        "deviceClassName": "gpu",
        "count": ask.count,
        "capacity": {"requests": {_CAPACITY: str(ask.milli)}},
    }
    if ask.models:
        models = ", ".join(f'"{model}"' for model in sorted(ask.models))
        expression = f'device.attributes["{_DRIVER}"].model in [{models}]'
        exactly["selectors"] = [{"cel": {"expression": expression}}]
    metadata = {"namespace": "default", "name": f"pod-{number}", "uid": f"claim-{number}"}
    return {"metadata": metadata, "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}}

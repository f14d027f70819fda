"""What a decision with DeviceScoring costs beyond the plain one, where no two pods ask for the same.

Both decide about the same pods on the same table, alternately. Each pod is then placed as DeviceScoring has chosen.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from statistics import median
from time import process_time

from extender.engine.decide import SchedulingCycle
from extender.engine.decision import Chosen
from extender.framework.profile import Profile
from extender.policy.library import Library
from extender.policy.loading import load
from extender.runtime.process import GC_THRESHOLDS, limit
from extender.table import PodInfo, Table
from tests.bench.workloads import node_name
from tests.builders import (
    Object,
    make_claim,
    make_device,
    make_device_class,
    make_node,
    make_pod,
    make_request,
    make_resource_slice,
    make_result,
    with_allocation,
)
from tests.framework.cluster import pod_info, table_of

DRIVER = "gpu.example.com"
NODES = 1213, 5000
POLICIES = "FGD", "BestFit"
_DEVICES, _MODELS, _USED, _WARM_UP = 8, ("T4", "G2", "V100"), 0.25, 20
_PACKING = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins: {score: {enabled: [{name: DeviceScoring, weight: 100}]}}
  pluginConfig: [{name: DeviceScoring, args: {policies: [{name: %s}]}}]
"""
_PLAIN = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


@dataclass(frozen=True)
class DeviceScoringCost:
    """Medians in CPU milliseconds.

    Attributes:
        plain: a decision by the default profile.
        scored: one with the policy, which chooses the devices, too.
        beyond: the median difference for one pod.
    """

    policy: str
    nodes: int
    plain: float
    scored: float
    beyond: float


def measured(nodes: int, pods: int = 200, policies: Sequence[str] = POLICIES) -> Iterator[DeviceScoringCost]:
    """Yields the cost of each policy on nodes with eight devices, a quarter of which has a share in use."""
    gc.set_threshold(*GC_THRESHOLDS)
    limit(nodes)  # as the processes do
    for policy in policies:
        random = Random(nodes)
        table = table_of(*_cluster(nodes, random))
        plain, scored = SchedulingCycle(_profile(_PLAIN)), SchedulingCycle(_profile(_PACKING % policy))
        gc.collect()
        gc.freeze()
        times = [_times(table, plain, scored, number, random) for number in range(_WARM_UP + pods)][_WARM_UP:]
        yield DeviceScoringCost(
            policy,
            nodes,
            median(each[0] for each in times) * 1000,
            median(each[1] for each in times) * 1000,
            median(each[1] - each[0] for each in times) * 1000,
        )


def _profile(text: str) -> Profile:
    return load(text, Library()).profiles[0]


def _times(
    table: Table, plain: SchedulingCycle, scored: SchedulingCycle, number: int, random: Random
) -> tuple[float, float]:
    """Returns the CPU seconds of both decisions about a new pod, and places it by the second."""
    name = f"new-{number}"
    _set(table, make_claim(name, _share(random.randrange(50, 1000))))
    cpu, memory = f"{random.randrange(100, 16_000)}m", f"{random.randrange(100, 16_000)}Mi"
    pod = pod_info(make_pod(name).uid(name).req(cpu=cpu, memory=memory).resource_claim(name).obj())
    if number % 2:
        last, outcome = _timed(scored, pod, table)
        first, _ = _timed(plain, pod, table)
    else:
        first, _ = _timed(plain, pod, table)
        last, outcome = _timed(scored, pod, table)
    for claim, allocation in outcome.devices.allocate:
        table.set_object("ResourceClaim", claim.with_allocation(allocation))
    table.place(pod, outcome.node_name)
    return first, last


def _timed(cycle: SchedulingCycle, pod: PodInfo, table: Table) -> tuple[float, Chosen]:
    begin = process_time()
    outcome = cycle.decide(pod, table).outcome
    seconds = process_time() - begin
    assert isinstance(outcome, Chosen)
    return seconds, outcome


def _cluster(nodes: int, random: Random) -> Iterator[Object]:
    yield make_device_class("gpu", f'device.driver == "{DRIVER}"')
    for number in range(nodes):
        node = node_name(number)
        room = {"cpu": "96", "memory": "512Gi", "pods": "110"}
        yield make_node(node).capacity(room).allocatable(room).obj()
        model = {"model": _MODELS[number % len(_MODELS)]}
        fields: Object = {"allowMultipleAllocations": True}
        devices = [make_device(f"gpu-{index}", model, {"thousandths": "1000"}, **fields) for index in range(_DEVICES)]
        yield make_resource_slice(node, DRIVER, *devices)
        for index in range(_DEVICES):
            if random.random() < _USED:
                yield from _running(f"{node}-{index}", node, f"gpu-{index}", random)


def _running(name: str, node: str, device: str, random: Random) -> Iterator[Object]:
    milli = random.randrange(100, 900)
    result = make_result(node, device, shareID=f"share-{name}", consumedCapacity={"thousandths": str(milli)})
    yield with_allocation(make_claim(name, _share(milli)), result)
    yield make_pod(name).uid(name).req(cpu=f"{random.randrange(100, 12_000)}m").node(node).resource_claim(name).obj()


def _share(milli: int) -> Object:
    return make_request("device", "gpu", capacity={"requests": {"thousandths": str(milli)}})


def _set(table: Table, claim: Object) -> None:
    [read] = table_of(claim).objects.of_kind("ResourceClaim").values()
    table.set_object("ResourceClaim", read)

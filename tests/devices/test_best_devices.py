"""The devices that policies choose on a node, for random claims on random pools."""

from __future__ import annotations

from itertools import count

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from extender.devices.plan import DevicePlan, plan_devices
from extender.framework.rules import Check
from extender.framework.status import Refusal
from extender.model.devices import ResourceClaim
from extender.plugins.device_scoring import DeviceScoring
from extender.plugins.dynamic_resources import DynamicResourcesFilter
from extender.table import Table
from tests.builders import Object, make_claim, make_device, make_node, make_pod, make_request, make_resource_slice
from tests.devices.strategies import CLASSES, NODES, claims, rules, slices, taken
from tests.framework.cluster import pod_info, table_of

POD = make_pod("p").req(cpu="1").resource_claim("c0").resource_claim("c1").obj()
CLAIMED = st.tuples(claims("c0"), claims("c1"))
OTHERS = st.lists(
    st.one_of(taken(), taken(), rules()), max_size=3, unique_by=lambda each: (each["kind"], each["metadata"]["name"])
)


def cluster(claimed: tuple[Object, ...], offered: list[Object], others: list[Object]) -> Table:
    nodes = [make_node(name).zone(f"z{number % 2 + 1}").obj() for number, name in enumerate(NODES)]
    return table_of(*CLASSES, *nodes, *claimed, *offered, *others)


def planned(table: Table, row: int, *policies: tuple[str, int]) -> DevicePlan | Refusal:
    pod, ids = pod_info(POD), count()
    find_best = DeviceScoring(policies).find_best(pod, table, row) if policies else None
    return plan_devices(pod, table, row, lambda: f"share-{next(ids)}", find_best)


@settings(max_examples=25)
@given(claimed=CLAIMED, offered=st.lists(slices(), min_size=1, max_size=4), others=OTHERS)
def test_first_fit_chooses_what_kube_scheduler_chooses(
    claimed: tuple[Object, ...], offered: list[Object], others: list[Object]
) -> None:
    table = cluster(claimed, offered, others)
    for row in range(len(NODES)):
        assert planned(table, row, ("FirstFit", 1)) == planned(table, row)


@settings(max_examples=25)
@given(
    claimed=CLAIMED,
    offered=st.lists(slices(), min_size=1, max_size=4),
    others=OTHERS,
    policy=st.sampled_from(["BestFit", "GpuPacking", "FGD", "PWR"]),
)
def test_a_policy_chooses_devices_that_the_claims_can_have(
    claimed: tuple[Object, ...], offered: list[Object], others: list[Object], policy: str
) -> None:
    """A node has a plan if kube-scheduler finds one, and nothing refuses the node once the claims have the devices."""
    table = cluster(claimed, offered, others)
    for row in range(len(NODES)):
        first, best = planned(table, row), planned(table, row, (policy, 1))
        assert type(first) is type(best)
        if not isinstance(best, DevicePlan):
            continue
        for claim, allocation in best.allocate:
            table.set_object(
                ResourceClaim.__name__, replace(claim, status=replace(claim.status, allocation=allocation))
            )
        check = DynamicResourcesFilter().prepare(pod_info(POD), table)
        assert check is None or (isinstance(check, Check) and not check.refuse(np.array([row]))[0][0].any())
        for claim, _ in best.allocate:
            table.set_object(ResourceClaim.__name__, claim)


@pytest.mark.parametrize("policies", [[("FGD", 1)], [("BestFit", 3), ("PWR", 1)]])
def test_a_search_that_takes_too_long_takes_the_first_devices(policies: list[tuple[str, int]]) -> None:
    devices = [make_device(f"gpu-{i}", {"numa": i % 8}) for i in range(64)]
    constraint = [{"matchAttribute": "gpu.example.com/numa"}]
    claimed = [
        make_claim("c0", make_request("r", "gpu", count=6), constraints=constraint),
        make_claim("c1", make_request("r", "gpu", count=6), constraints=constraint),
    ]
    table = table_of(*CLASSES, make_node("a").obj(), *claimed, make_resource_slice("a", "gpu.example.com", *devices))
    assert isinstance(planned(table, 0, *policies), DevicePlan)

"""Random pools of devices and claims to them, small enough that claims often match devices."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.builders import (
    ZONE,
    Object,
    expression,
    make_alternative,
    make_claim,
    make_device,
    make_device_class,
    make_device_taint_rule,
    make_node,
    make_prioritized_list,
    make_request,
    make_result,
    make_slice,
    node_term,
    version,
    with_allocation,
)

GPU = "gpu.example.com"
NODES = ["a", "b", "c"]
POOLS = ["p0", "p1"]
# The slices of a generation state how many there are. If they disagree, kube-scheduler uses any of the numbers.
SLICE_COUNTS = {("p0", 1): 1, ("p0", 2): 2, ("p1", 1): 2, ("p1", 2): 1}
ATTRIBUTES = f'device.attributes["{GPU}"]'
CAPACITY = f'device.capacity["{GPU}"]'
CLASSES = [
    make_device_class("gpu", f'device.driver == "{GPU}"'),
    make_device_class("big", f'{CAPACITY}.?memory.orValue(quantity("0")).compareTo(quantity("40Gi")) >= 0'),
    make_device_class("any"),
]
SELECTORS = [
    f'{ATTRIBUTES}.model == "a100"',
    f"{ATTRIBUTES}.?numa.orValue(9) == 0",
    f'{ATTRIBUTES}.driver.isGreaterThan(semver("1.5.0"))',
    f'"model" in {ATTRIBUTES}',
    f"cel.bind(own, {ATTRIBUTES}, has(own.numa) && own.numa == 1)",
    "device.allowMultipleAllocations",
]
IN_Z1 = {"nodeSelectorTerms": [node_term(expression(ZONE, "In", "z1"))]}
POLICIES = [
    {"default": "4Gi", "validValues": ["4Gi", "40Gi"]},
    {"default": "1Gi", "validRange": {"min": "1Gi", "max": "64Gi", "step": "2Gi"}},
]
COUNTERS = [{"name": "chip", "counters": {"slots": {"value": "4"}}}]
TAINT = {"key": "broken", "value": "fan", "effect": "NoSchedule"}


def nodes() -> st.SearchStrategy[Object]:
    return st.builds(lambda name, zone: make_node(name).zone(zone).obj(), _one(NODES), _one(["z1", "z2"]))


def devices() -> st.SearchStrategy[Object]:
    """Some devices select nodes themselves, for slices that leave the choice to their devices."""
    return st.builds(
        lambda number, attributes, capacity, fields, node: make_device(
            f"gpu-{number}", attributes, capacity, nodeName=node, **fields
        ),
        st.integers(0, 3),
        _some(model=["a100", "t4"], numa=[0, 1], driver=[version("1.4.0"), version("1.10.0")]),
        _some(memory=["16Gi", "40Gi", *({"value": "80Gi", "requestPolicy": policy} for policy in POLICIES)]),
        _some(
            allowMultipleAllocations=[True],
            taints=[[TAINT]],
            consumesCounters=[[{"counterSet": "chip", "counters": {"slots": {"value": n}}}] for n in "123"],
            bindingConditions=[["Attached"]],
        ),
        _one(NODES),
    )


def slices() -> st.SearchStrategy[Object]:
    """Returns up to three slices of two pools, which may be complete, incomplete, outdated or invalid."""
    reach: list[Object] = [
        *({"nodeName": name} for name in NODES),
        {"allNodes": True},
        {"nodeSelector": IN_Z1},
        {"perDeviceNodeSelection": True},
    ]
    offering = st.builds(
        lambda name, pool, offered, generation, reached: make_slice(
            name, GPU, pool, *offered, generation=generation, slices=SLICE_COUNTS[pool, generation], **reached
        ),
        _one(["s0", "s1", "s2"]),
        _one(POOLS),
        st.lists(devices(), max_size=4, unique_by=lambda device: device["name"]),
        _one([1, 1, 1, 2]),
        _one(reach),
    )
    counting = st.builds(
        lambda pool, reached: make_slice(
            "counters", GPU, pool, slices=SLICE_COUNTS[pool, 1], sharedCounters=COUNTERS, **reached
        ),
        _one(POOLS),
        _one(reach[:-1]),
    )
    return st.one_of(offering, offering, counting)


def rules() -> st.SearchStrategy[Object]:
    return st.builds(lambda n: make_device_taint_rule("rule", TAINT, device=f"gpu-{n}"), st.integers(0, 3))


def taken() -> st.SearchStrategy[Object]:
    """Returns claims that have a device, or a share of one."""
    shares: list[Object] = [{}, {}, {"shareID": "s", "consumedCapacity": {"memory": "30Gi"}}, {"adminAccess": True}]
    return st.builds(
        lambda name, pool, number, share: with_allocation(
            make_claim(name, make_request("device", "gpu")), make_result(pool, f"gpu-{number}", **share)
        ),
        _one(["o0", "o1"]),
        _one(POOLS),
        st.integers(0, 3),
        _one(shares),
    )


def claims(name: str) -> st.SearchStrategy[Object]:
    constraints = st.builds(
        lambda kind, attribute, requests: {kind: f"{GPU}/{attribute}"} | ({"requests": requests} if requests else {}),
        _one(["matchAttribute", "distinctAttribute"]),
        _one(["model", "numa", "driver"]),
        st.lists(_one(["r0", "r1", "r0/first"]), max_size=2, unique=True),
    )
    return st.builds(
        lambda requests, limits: make_claim(name, *requests, constraints=limits),
        st.integers(1, 2).flatmap(lambda count: st.tuples(*(_requests(f"r{index}") for index in range(count)))),
        st.lists(constraints, max_size=2),
    )


def _requests(name: str) -> st.SearchStrategy[Object]:
    exactly = st.builds(
        lambda wanted, fields: make_request(name, *wanted, **fields), _wanted(), _fields(adminAccess=[True])
    )
    alternatives = st.lists(st.tuples(_wanted(), _fields()), min_size=1, max_size=2)
    listed = st.builds(
        lambda chosen: make_prioritized_list(
            name, *(make_alternative(n, *w, **f) for n, (w, f) in zip(("first", "second"), chosen, strict=False))
        ),
        alternatives,
    )
    return st.one_of(exactly, exactly, listed)


def _wanted() -> st.SearchStrategy[tuple[str, ...]]:
    """Returns a class and at most one selector."""
    return st.builds(
        lambda of_class, cel: (of_class, *cel),
        _one([each["metadata"]["name"] for each in CLASSES]),
        st.lists(_one(SELECTORS), max_size=1),
    )


def _fields(**more: list[Any]) -> st.SearchStrategy[Object]:
    count: st.SearchStrategy[Object] = st.one_of(st.just({}), st.just({"count": 2}), st.just({"allocationMode": "All"}))
    others = _some(
        tolerations=[[{"operator": "Exists"}]],
        capacity=[{"requests": {"memory": amount}} for amount in ("3Gi", "20Gi", "50Gi")],
        **more,
    )
    return st.builds(lambda one, two: one | two, count, others)


def _some(**choices: list[Any]) -> st.SearchStrategy[Object]:
    """Returns some of the fields, each with one of its choices."""
    return st.fixed_dictionaries({}, optional={name: st.sampled_from(values) for name, values in choices.items()})


def _one(choices: list[Any]) -> st.SearchStrategy[Any]:
    return st.sampled_from(choices)

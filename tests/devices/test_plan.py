"""The writes to claims once a node is chosen."""

from __future__ import annotations

from itertools import count
from typing import Any

import msgspec
import pytest

from extender.devices.plan import DevicePlan, plan_devices
from extender.devices.pod_claims import CLAIM_NAME
from extender.framework.status import Refusal
from extender.model.devices import RequestMapping
from tests.builders import (
    ZONE,
    Object,
    expression,
    make_alternative,
    make_claim,
    make_device,
    make_device_class,
    make_node,
    make_pod,
    make_prioritized_list,
    make_request,
    make_resource_slice,
    make_result,
    make_slice,
    node_term,
    with_allocation,
)
from tests.framework.cluster import pod_info, table_of

GPU = "gpu.example.com"
CLASS = make_device_class("gpu", f'device.driver == "{GPU}"')
NODE = make_node("a").zone("z1").obj()
POD = make_pod("p").resource_claim("c").obj()
HERE = {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}]}
IN_Z1 = {"nodeSelectorTerms": [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["z1"]}]}]}


def planned(*objects: Object, pod: Object = POD) -> DevicePlan | Refusal:
    table, ids = table_of(NODE, *objects), count()
    return plan_devices(pod_info(pod), table, 0, lambda: f"share-{next(ids)}")


def allocation(*objects: Object, pod: Object = POD) -> Any:
    """Returns the allocation of the only claim as JSON."""
    plan = planned(*objects, pod=pod)
    assert isinstance(plan, DevicePlan)
    [(_, allocated)] = plan.allocate
    return msgspec.to_builtins(allocated)


def result(device: str, **fields: Any) -> Object:
    return {"request": "r", "driver": GPU, "pool": "a", "device": device, **fields}


def test_the_plan_has_the_first_devices_that_fit() -> None:
    tolerations = [{"key": "k", "operator": "Exists"}]
    claim = make_claim("c", make_request("r", "gpu", count=2, tolerations=tolerations))
    taken = with_allocation(make_claim("o", make_request("device", "gpu")), make_result("a", "gpu-1"))
    slices = make_resource_slice("a", GPU, "gpu-0", "gpu-1", "gpu-2", "gpu-3")
    found = allocation(CLASS, claim, taken, slices)
    results = [result(device, tolerations=tolerations) for device in ("gpu-0", "gpu-2")]
    assert found == {"devices": {"results": results}, "nodeSelector": HERE}


@pytest.mark.parametrize(("claims", "count"), [(200, 1), (12, 32)])
def test_a_pod_may_have_as_many_devices_as_it_requests(claims: int, count: int) -> None:
    """A search by calls inside calls ended in a RecursionError beyond 140 claims."""
    pod = make_pod("p").obj()
    pod["spec"]["resourceClaims"] = [{"name": f"r{n}", "resourceClaimName": f"c{n}"} for n in range(claims)]
    requests = [make_claim(f"c{n}", make_request("r", "gpu", count=count)) for n in range(claims)]
    names = [f"gpu-{n}" for n in range(claims * count)]
    plan = planned(CLASS, *requests, make_resource_slice("a", GPU, *names), pod=pod)
    assert isinstance(plan, DevicePlan)
    results = [result.device for _, allocated in plan.allocate for result in allocated.devices.results or ()]
    assert results == names
    assert isinstance(planned(CLASS, *requests, make_resource_slice("a", GPU, *names[1:]), pod=pod), Refusal)


def test_requests_for_less_than_no_device_are_satisfied() -> None:
    none = [make_request(f"r{n}", "gpu", count=-1) for n in range(600)]
    claim = make_claim("c", *none, make_request("r", "gpu"))
    assert allocation(CLASS, claim, make_resource_slice("a", GPU, "x"))["devices"]["results"] == [result("x")]


@pytest.mark.parametrize(
    ("selecting", "node_selector"),
    [
        pytest.param({"nodeName": "a"}, HERE, id="one node"),
        pytest.param({"allNodes": True}, None, id="all nodes"),
        pytest.param(
            {"nodeSelector": {"nodeSelectorTerms": [node_term(expression(ZONE, "In", "z1"))]}}, IN_Z1, id="some nodes"
        ),
    ],
)
def test_the_allocation_selects_the_nodes_with_access(selecting: Object, node_selector: Object | None) -> None:
    claim = make_claim("c", make_request("r", "gpu", count=2))
    found = allocation(CLASS, claim, make_slice("s", GPU, "a", "x", "y", **selecting))
    assert found.get("nodeSelector") == node_selector


LISTS = [{"strings": ["x", "y"]}, {"ints": [1, 2]}, {"bools": [True]}, {"versions": ["1.2.3"]}, {"strings": []}]


@pytest.mark.parametrize("listed", LISTS, ids=str)
@pytest.mark.parametrize(
    "cel",
    [
        pytest.param((), id="no selector"),
        pytest.param((f'device.driver == "{GPU}"',), id="the driver alone"),
        pytest.param((f'device.attributes["{GPU}"].model == "big"',), id="another attribute"),
    ],
)
def test_a_list_attribute_is_nothing_to_a_claim_that_does_not_read_it(listed: Object, cel: tuple[str, ...]) -> None:
    attributes = {"roots": listed, "model": {"string": "big"}}
    found = allocation(
        CLASS,
        make_claim("c", make_request("r", "gpu", *cel)),
        make_resource_slice("a", GPU, {"name": "x", "attributes": attributes}),
    )
    assert [each["device"] for each in found["devices"]["results"]] == ["x"]


def test_a_device_that_binds_to_its_node_selects_this_node() -> None:
    attached = make_device("x", bindsToNode=True, bindingConditions=["Attached"], bindingFailureConditions=["Failed"])
    found = allocation(
        CLASS, make_claim("c", make_request("r", "gpu")), make_slice("s", GPU, "a", attached, allNodes=True)
    )
    conditions = {"bindingConditions": ["Attached"], "bindingFailureConditions": ["Failed"]}
    assert found == {"devices": {"results": [result("x", **conditions)]}, "nodeSelector": HERE}


def test_a_shared_device_gets_a_share_id_and_the_consumed_capacity() -> None:
    shared = make_device("x", {}, {"memory": "80Gi", "cores": "8"}, allowMultipleAllocations=True)
    claim = make_claim("c", make_request("r", "gpu", count=1, capacity={"requests": {"memory": "1500m"}}))
    found = allocation(CLASS, claim, make_resource_slice("a", GPU, shared))
    consumed = {"memory": "1500m", "cores": "8"}
    assert found["devices"]["results"] == [result("x", shareID="share-0", consumedCapacity=consumed)]


def opaque(name: str) -> Object:
    return {"opaque": {"driver": GPU, "parameters": {"name": name}}}


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        pytest.param({}, None, id="for all"),
        pytest.param({"requests": ["one"]}, ["one"], id="for one"),
        pytest.param({"requests": ["one", "list"]}, None, id="for each of all"),
        pytest.param({"requests": ["list/second"]}, ["list/second"], id="for what was chosen"),
        pytest.param({"requests": ["list/first"]}, "left out", id="for what was not"),
    ],
)
def test_the_allocation_has_the_configuration_of_class_and_claim(own: Object, expected: object) -> None:
    small = {**CLASS, "spec": {**CLASS["spec"], "config": [opaque("class")]}}
    big = make_device_class("big", f'device.driver == "{GPU}" && device.attributes["{GPU}"].?big.orValue(false)')
    chosen = make_prioritized_list("list", make_alternative("first", "big"), make_alternative("second", "gpu"))
    claim = make_claim("c", make_request("one", "gpu"), chosen)
    claim["spec"]["devices"]["config"] = [{**opaque("claim"), **own}]
    [of_class, *of_claim] = allocation(small, big, claim, make_resource_slice("a", GPU, "x", "y"))["devices"]["config"]
    assert of_class == {"source": "FromClass", **opaque("class")}
    wanted = {"source": "FromClaim", **opaque("claim")} | ({} if expected is None else {"requests": expected})
    assert of_claim == ([] if expected == "left out" else [wanted])


def test_claims_that_are_allocated_are_reserved() -> None:
    pod = make_pod("p").resource_claim("had").resource_claim("c").obj()
    had = with_allocation(make_claim("had", make_request("device", "gpu")), make_result("a", "x"))
    plan = planned(
        CLASS, had, make_claim("c", make_request("r", "gpu")), make_resource_slice("a", GPU, "x", "y"), pod=pod
    )
    assert isinstance(plan, DevicePlan)
    assert [claim.name for claim in plan.reserve] == ["had"]
    assert [(claim.name, allocated.results[0].device) for claim, allocated in plan.allocate] == [("c", "y")]


def test_extended_resources_become_a_claim() -> None:
    backed = make_device_class("gpu", f'device.driver == "{GPU}"', extended_resource="example.com/gpu")
    pod = make_pod("p").req({"example.com/gpu": "1"}, cpu="1").container(cpu="1").obj()
    pod["spec"]["initContainers"] = [{"name": "init", "resources": {"requests": {"example.com/gpu": "2"}}}]
    plan = planned(backed, make_resource_slice("a", GPU, "x", "y", "z"), pod=pod)
    assert isinstance(plan, DevicePlan)
    [(claim, allocated)] = plan.allocate
    requests = [(r.name, r.exactly.device_class_name, r.exactly.count) for r in claim.requests if r.exactly]
    assert requests == [("container-0-request-0", "gpu", 1), ("container-1-request-1", "gpu", 1)]
    assert claim.name == CLAIM_NAME
    assert claim.controller is not None
    assert claim.controller.uid == "pod-default-p"
    assert [(each.request, each.device) for each in allocated.results] == [
        ("container-0-request-0", "x"),
        ("container-1-request-1", "y"),
    ]
    main = pod["spec"]["containers"][0]["name"]
    assert plan.mappings == (
        RequestMapping(main, "example.com/gpu", "container-1-request-1"),
        RequestMapping("init", "example.com/gpu", "container-1-request-1"),
        RequestMapping("init", "example.com/gpu", "container-0-request-0"),
    )


def test_a_node_without_the_devices_is_refused() -> None:
    refusal = planned(CLASS, make_claim("c", make_request("r", "gpu")))
    assert isinstance(refusal, Refusal)
    assert refusal.reasons == ("cannot allocate all claims",)


def test_a_pod_without_claims_needs_nothing() -> None:
    assert planned(CLASS, pod=make_pod("p").obj()) == DevicePlan()

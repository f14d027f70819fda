"""DynamicResources, Filter: nodes must have the devices that a pod claims; reasons in upstream's words."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import pytest

from extender.framework.rules import Predicate
from extender.framework.status import Code, Refusal, failed, unresolvable
from extender.plugins.dynamic_resources import DynamicResourcesFilter
from extender.plugins.node_resources_fit import NodeResourcesFitFilter
from extender.runtime.clock import ManualClock
from extender.table.features import VersionChoices, features_of
from tests.builders import (
    TIMESTAMP,
    ZONE,
    Object,
    expression,
    make_alternative,
    make_claim,
    make_device,
    make_device_class,
    make_device_taint_rule,
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
from tests.framework.cluster import refusals

GPU = "gpu.example.com"
CLASS = make_device_class("gpu", f'device.driver == "{GPU}"')
NODES = [make_node("a").zone("z1").obj(), make_node("b").zone("z2").obj()]
POD = make_pod("p").resource_claim("c").obj()
TAINT = {"key": "broken", "value": "fan", "effect": "NoSchedule"}
IN_Z1 = {"nodeSelectorTerms": [node_term(expression(ZONE, "In", "z1"))]}


def refused(reason: str) -> Refusal:
    return unresolvable("DynamicResources", reason)


NOT_ALL = refused("cannot allocate all claims")
AWAY = refused("resourceclaim not available on the node")


def error(text: str) -> Refusal:
    return failed("DynamicResources", f'running "DynamicResources" filter plugin: {text}')


def gpus(*models: str, **fields: Any) -> list[Object]:
    return [
        make_device(f"gpu-{i}", {"model": model, "index": i}, {"memory": "80Gi"}, **fields)
        for i, model in enumerate(models)
    ]


def on_a(*devices: Object) -> Object:
    return make_resource_slice("a", GPU, *devices)


def cel(text: str) -> str:
    return text.replace("$", f'device.attributes["{GPU}"]').replace("%", f'device.capacity["{GPU}"]')


def verdict(claims: Sequence[Object], *objects: Object, pod: Object = POD) -> dict[str, Refusal]:
    return refusals(DynamicResourcesFilter(), pod, *NODES, CLASS, *claims, *objects)


ONE = make_claim("c", make_request("device", "gpu"))


@pytest.mark.parametrize(
    ("request_", "devices", "fits"),
    [
        pytest.param(make_request("r", "gpu"), gpus("a100"), True, id="one of one"),
        pytest.param(make_request("r", "gpu", count=2), gpus("a100"), False, id="two of one"),
        pytest.param(make_request("r", "gpu", count=2), gpus("a100", "t4"), True, id="two of two"),
        pytest.param(make_request("r", "gpu", cel('$.model == "a100"')), gpus("t4", "a100"), True, id="selected"),
        pytest.param(make_request("r", "gpu", cel('$.model == "a100"')), gpus("t4"), False, id="none selected"),
        pytest.param(
            make_request("r", "gpu", cel('$.model == "a100"'), cel("$.index == 1")),
            gpus("a100", "t4"),
            False,
            id="both",
        ),
        pytest.param(
            make_request("r", "gpu", cel('%.memory.compareTo(quantity("79Gi")) > 0')), gpus("t4"), True, id="capacity"
        ),
        pytest.param(make_request("r", "gpu", cel("has($.nonesuch) && $.nonesuch == 1")), gpus("t4"), False, id="has"),
        pytest.param(make_request("r", "gpu", allocationMode="All"), gpus("a100", "t4"), True, id="all"),
        pytest.param(make_request("r", "gpu", allocationMode="All"), [], False, id="all of none"),
        pytest.param(make_request("r", "gpu"), gpus("t4", taints=[TAINT]), False, id="tainted"),
        pytest.param(
            make_request("r", "gpu", tolerations=[{"key": "broken", "operator": "Exists"}]),
            gpus("t4", taints=[TAINT]),
            True,
            id="tolerated",
        ),
        pytest.param(
            make_request("r", "gpu", tolerations=[{"key": "broken", "value": "other"}]),
            gpus("t4", taints=[TAINT]),
            False,
            id="another value tolerated",
        ),
        pytest.param(
            make_request("r", "gpu"), gpus("t4", taints=[{**TAINT, "effect": "None"}]), True, id="taint without effect"
        ),
        pytest.param(
            make_request("r", "gpu", capacity={"requests": {"memory": "81Gi"}}), gpus("t4"), False, id="too small"
        ),
        pytest.param(
            make_request("r", "gpu", capacity={"requests": {"cores": "1"}}), gpus("t4"), False, id="no such capacity"
        ),
        pytest.param(
            make_prioritized_list(
                "r", make_alternative("x", "gpu", cel('$.model == "h100"')), make_alternative("y", "gpu")
            ),
            gpus("t4"),
            True,
            id="second choice",
        ),
    ],
)
def test_one_request(request_: Object, devices: list[Object], fits: bool) -> None:
    expected = {"b": NOT_ALL} if fits else {"a": NOT_ALL, "b": NOT_ALL}
    assert verdict([make_claim("c", request_)], on_a(*devices)) == expected


@pytest.mark.parametrize(
    ("constraint", "models", "fits"),
    [
        pytest.param({"matchAttribute": f"{GPU}/model"}, ("a100", "t4", "a100"), True, id="same"),
        pytest.param({"matchAttribute": f"{GPU}/model"}, ("a100", "t4"), False, id="none the same"),
        pytest.param(
            {"matchAttribute": f"{GPU}/model", "requests": ["other"]}, ("a100", "t4"), True, id="not concerned"
        ),
        pytest.param({"matchAttribute": f"{GPU}/nonesuch"}, ("a100", "a100"), False, id="absent"),
        pytest.param({"matchAttribute": "other.example.com/model"}, ("a100", "a100"), False, id="another's domain"),
        pytest.param({"distinctAttribute": f"{GPU}/model"}, ("a100", "a100", "t4"), True, id="distinct"),
        pytest.param({"distinctAttribute": f"{GPU}/model"}, ("a100", "a100"), False, id="none distinct"),
    ],
)
def test_constraints(constraint: Object, models: Sequence[str], fits: bool) -> None:
    claim = make_claim("c", make_request("r", "gpu", count=2), constraints=[constraint])
    assert ("a" not in verdict([claim], on_a(*gpus(*models)))) == fits


def test_the_allocator_backtracks_if_later_requests_fail() -> None:
    greedy = make_request("any", "gpu")
    picky = make_request("first", "gpu", cel("$.index == 0"))
    assert verdict([make_claim("c", greedy, picky)], on_a(*gpus("a100", "t4"))) == {"b": NOT_ALL}
    assert verdict([make_claim("c", greedy, picky)], on_a(*gpus("a100"))) == {"a": NOT_ALL, "b": NOT_ALL}


def test_claims_of_one_pod_do_not_share() -> None:
    pod = make_pod("p").resource_claim("c").resource_claim("d").obj()
    claims = [ONE, make_claim("d", make_request("device", "gpu"))]
    assert "a" in verdict(claims, on_a(*gpus("t4")), pod=pod)
    assert "a" not in verdict(claims, on_a(*gpus("t4", "t4")), pod=pod)


@pytest.mark.parametrize(
    ("other", "fits"),
    [
        pytest.param(make_result("a", "gpu-0"), False, id="taken"),
        pytest.param(make_result("a", "gpu-9"), True, id="another device"),
        pytest.param(make_result("b", "gpu-0"), True, id="another pool"),
        pytest.param(make_result("a", "gpu-0", adminAccess=True), True, id="with admin access"),
    ],
)
def test_devices_of_other_claims(other: Object, fits: bool) -> None:
    taken = with_allocation(make_claim("other", make_request("device", "gpu"), namespace="elsewhere"), other)
    assert ("a" not in verdict([ONE, taken], on_a(*gpus("t4")))) == fits


def test_admin_access_may_use_allocated_devices() -> None:
    taken = with_allocation(make_claim("other", make_request("device", "gpu")), make_result("a", "gpu-0"))
    monitor = make_claim("c", make_request("r", "gpu", adminAccess=True, allocationMode="All"))
    assert verdict([monitor, taken], on_a(*gpus("t4", "t4"))) == {"b": NOT_ALL}


SHAREABLE = make_device("gpu-0", {}, {"memory": "80Gi"}, allowMultipleAllocations=True)


@pytest.mark.parametrize(
    ("wanted", "fits"),
    [pytest.param("20Gi", True, id="the rest"), pytest.param("21Gi", False, id="too much")],
)
def test_claims_share_a_devices_capacity(wanted: str, fits: bool) -> None:
    share = make_result("a", "gpu-0", shareID="s", consumedCapacity={"memory": "60Gi"})
    taken = with_allocation(make_claim("other", make_request("device", "gpu")), share)
    claim = make_claim("c", make_request("r", "gpu", capacity={"requests": {"memory": wanted}}))
    assert ("a" not in verdict([claim, taken], on_a(SHAREABLE))) == fits


def test_since_1_38_a_share_keeps_whole_claims_away_after_the_selectors_were_asked() -> None:
    share = make_result("a", "gpu-0", shareID="s", consumedCapacity={"memory": "1Gi"})
    taken = with_allocation(make_claim("other", make_request("device", "gpu")), share)
    failing = make_claim("c", make_request("r", "gpu", cel("$.firmware == 1")))
    objects, features = (*NODES, CLASS, taken, on_a(*gpus("t4"))), features_of(VersionChoices("1.38"))
    assert refusals(DynamicResourcesFilter(), POD, *objects, ONE, features=features)["a"] == NOT_ALL
    refused = refusals(DynamicResourcesFilter(), POD, *objects, failing, features=features)["a"]
    assert (refused.code, "no such key: firmware" in str(refused.reasons)) == (Code.ERROR, True)


def test_counters_are_shared_by_a_pool() -> None:
    counters = make_slice(
        "counters",
        GPU,
        "a",
        slices=2,
        nodeName="a",
        sharedCounters=[{"name": "chip", "counters": {"slots": {"value": "3"}}}],
    )
    half = [{"counterSet": "chip", "counters": {"slots": {"value": "2"}}}]
    devices = make_slice("devices", GPU, "a", *gpus("h", "h", consumesCounters=half), slices=2, nodeName="a")
    assert "a" not in verdict([ONE], counters, devices)
    assert "a" in verdict([make_claim("c", make_request("r", "gpu", count=2))], counters, devices)
    taken = with_allocation(make_claim("other", make_request("device", "gpu")), make_result("a", "gpu-0"))
    assert "a" in verdict([ONE, taken], counters, devices)


@pytest.mark.parametrize(
    ("selecting", "refused_nodes"),
    [
        pytest.param({"allNodes": True}, set(), id="all nodes"),
        pytest.param({"nodeSelector": IN_Z1}, {"b"}, id="node selector"),
        pytest.param({"nodeName": "b"}, {"a"}, id="one node"),
        pytest.param({}, {"a", "b"}, id="no selection known"),
    ],
)
def test_nodes_that_can_use_a_slice(selecting: Object, refused_nodes: set[str]) -> None:
    assert verdict([ONE], make_slice("s", GPU, "pool", *gpus("t4"), **selecting)).keys() == refused_nodes


def test_devices_may_select_their_own_nodes() -> None:
    devices = [
        make_device("for-a", nodeName="a"),
        make_device("for-b", nodeSelector={"nodeSelectorTerms": [node_term(expression(ZONE, "In", "z2"))]}),
    ]
    offered = make_slice("s", GPU, "pool", *devices, perDeviceNodeSelection=True)
    two = make_claim("c", make_request("r", "gpu", count=2))
    assert verdict([ONE], offered) == {}
    assert verdict([two], offered) == {"a": NOT_ALL, "b": NOT_ALL}
    assert (
        verdict(
            [two],
            make_slice("s", GPU, "pool", *devices, make_device("all", allNodes=True), perDeviceNodeSelection=True),
        )
        == {}
    )


def test_pools_that_are_being_replaced() -> None:
    old = make_slice("old", GPU, "a", *gpus("t4"), nodeName="a", generation=1)
    half = make_slice("half", GPU, "a", *gpus("t4"), nodeName="a", generation=2, slices=2)
    everything = make_claim("c", make_request("r", "gpu", allocationMode="All"))
    assert "a" in verdict([ONE], old, half)
    updated = error(
        f"claim default/c, request r: asks for all devices, but resource pool {GPU}/a is currently being updated"
    )
    assert verdict([everything], old, half)["a"] == updated
    assert "a" not in verdict([ONE], old, make_slice("new", GPU, "a", *gpus("t4"), nodeName="a", generation=2))
    rest_gone = make_slice("rest", GPU, "a", *gpus("t4"), nodeName="a", slices=2)
    moved = make_slice("moved", GPU, "a", *gpus("t4"), nodeName="b", generation=2)
    assert verdict([everything], rest_gone, moved)["a"] == NOT_ALL


def test_pools_that_contradict_themselves() -> None:
    twice = make_slice("s", GPU, "a", *gpus("t4"), *gpus("t4"), nodeName="a")
    assert verdict([ONE], twice)["a"] == refused("invalid resource pools were encountered")
    unknown = gpus("t4", consumesCounters=[{"counterSet": "nonesuch", "counters": {"x": {"value": "1"}}}])
    assert verdict([ONE], on_a(*unknown))["a"] == refused("invalid resource pools were encountered")


def test_an_error_names_the_slice_without_its_content() -> None:
    malformed = {"nodeSelectorTerms": [node_term(expression(ZONE, "Gt", "a"))]}
    told = error("gather pool information: failed to perform node selection for slice s")
    assert verdict([ONE], make_slice("s", GPU, "pool", *gpus("t4"), nodeSelector=malformed)) == {"a": told, "b": told}


def test_taint_rules() -> None:
    rule = make_device_taint_rule("rule", TAINT, driver=GPU, device="gpu-0")
    assert "a" in verdict([ONE], on_a(*gpus("t4")), rule)
    assert "a" not in verdict([ONE], on_a(*gpus("t4", "t4")), rule)


@pytest.mark.parametrize(
    ("claim", "message"),
    [
        pytest.param(
            make_claim("c", make_request("r", "gpu", cel("$.nonesuch == 1"))),
            "claim default/c: selector #0 on device gpu.example.com/a/gpu-0: CEL runtime error: no such key: nonesuch. "
            "consider using CEL optional chaining (.? followed by orValue()) "
            "or guarding the check with has() for optional fields",
            id="no such attribute",
        ),
        pytest.param(
            make_claim("c", make_request("r", "gpu", cel("$.model"))),
            "claim default/c: selector #0 on device gpu.example.com/a/gpu-0: CEL runtime error: "
            "CEL result of type string could not be converted to bool: "
            "unsupported native conversion from string to 'bool'",
            id="no boolean",
        ),
        pytest.param(
            make_claim("c", make_request("r", "gpu", count=33)),
            "claim default/c, request r: adding 33 devices exceeds the claim limit of 32, with 0 already accounted for",
            id="more than a claim holds",
        ),
        pytest.param(
            make_claim(
                "c", make_request("r", "gpu", allocationMode="All"), constraints=[{"matchAttribute": f"{GPU}/model"}]
            ),
            "claim default/c, request r: cannot add device gpu.example.com/a/gpu-1 "
            "because a claim constraint would not be satisfied",
            id="all, against a constraint",
        ),
        pytest.param(
            make_claim("c", make_request("r", "gpu"), constraints=[{}]),
            "claim default/c, constraint #0: empty constraint (unsupported constraint type?)",
            id="unknown constraint",
        ),
    ],
)
def test_a_malformed_claim_is_refused_with_the_reason(claim: Object, message: str) -> None:
    assert verdict([claim], on_a(*gpus("t4", "a100")))["a"] == error(message)


def test_an_expression_that_does_not_compile_is_refused() -> None:
    [refusal] = {verdict([make_claim("c", make_request("r", "gpu", "1 +"))], on_a(*gpus("t4")))["a"]}
    assert refusal.code.title == "Error"
    start = (
        'running "DynamicResources" filter plugin: claim default/c: selector #0: CEL compile error: compilation failed:'
    )
    assert refusal.reasons[0].startswith(start)


TEMPLATED = make_pod("p").resource_claim("t", template=True)
MADE = {"resourceClaimStatuses": [{"name": "t", "resourceClaimName": "c"}]}


@pytest.mark.parametrize(
    ("pod", "objects", "reason"),
    [
        pytest.param(POD, [], 'could not find ResourceClaim "default/c"', id="no claim"),
        pytest.param(
            POD, [{**ONE, "metadata": {**ONE["metadata"], "deletionTimestamp": TIMESTAMP}}],
            'resourceclaim "c" is being deleted', id="being deleted",
        ),
        pytest.param(
            POD, [make_claim("c", make_request("r", "nonesuch"))],
            "request r: device class nonesuch does not exist", id="no class",
        ),
        pytest.param(
            POD, [make_claim("c", make_prioritized_list("r", make_alternative("x", "nonesuch")))],
            "request r/x: device class nonesuch does not exist", id="no class in a list",
        ),
        pytest.param(
            POD, [make_claim("c", {"name": "r"})],
            "resource claim default/c, request r: unknown request type", id="unknown request",
        ),
        pytest.param(
            TEMPLATED.obj(), [], 'pod "default/p": ResourceClaim not created yet', id="template, no claim yet",
        ),
        pytest.param(
            TEMPLATED.obj() | {"status": MADE}, [ONE],
            "ResourceClaim default/c was not created for Pod default/p (Pod is not owner)", id="another's claim",
        ),
        pytest.param(
            {**POD, "spec": {**POD["spec"], "resourceClaims": [{"name": "x"}]}}, [],
            'pod "default/p", spec.resourceClaim "x": none of the supported fields are set', id="no source",
        ),
    ],
)  # fmt: skip  # a case a line
def test_claims_that_are_not_ready_refuse_every_node(pod: Object, objects: list[Object], reason: str) -> None:
    assert verdict(objects, on_a(*gpus("t4")), pod=pod) == {"a": refused(reason), "b": refused(reason)}


def test_a_claim_made_from_a_template() -> None:
    pod = make_pod("p").status(resourceClaimStatuses=[{"name": "t", "resourceClaimName": "c"}])
    owner = [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "pod-default-p", "controller": True}]
    claim = {**ONE, "metadata": {**ONE["metadata"], "ownerReferences": owner}}
    assert verdict([claim], on_a(*gpus("t4")), pod=pod.resource_claim("t", template=True).obj()) == {"b": NOT_ALL}
    not_needed = make_pod("p").status(resourceClaimStatuses=[{"name": "t"}]).resource_claim("t", template=True).obj()
    assert verdict([], pod=not_needed) == {}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param({}, {}, id="everywhere"),
        pytest.param({"nodeSelector": IN_Z1}, {"b": AWAY}, id="where it was allocated"),
    ],
)
def test_a_claim_that_is_allocated(fields: Object, expected: dict[str, Refusal]) -> None:
    had = with_allocation(ONE, make_result("gone", "gpu-0"), **fields)
    assert verdict([had]) == expected


CONDITIONED = make_result("a", "gpu-0", bindingConditions=["Attached"], bindingFailureConditions=["Failed"])


@pytest.mark.parametrize(
    ("conditions", "usable"),
    [
        pytest.param([("Attached", "True")], True, id="ready"),
        pytest.param([("Attached", "False")], True, id="to be waited for"),
        pytest.param([("Attached", "True"), ("Failed", "True")], False, id="failed"),
        pytest.param([("Failed", "False")], True, id="not failed"),
    ],
)
def test_binding_conditions(conditions: list[tuple[str, str]], usable: bool) -> None:
    had = with_allocation(ONE, CONDITIONED)
    status = [{"type": kind, "status": value} for kind, value in conditions]
    had["status"]["devices"] = [{"driver": GPU, "pool": "a", "device": "gpu-0", "conditions": status}]
    assert (verdict([had]) == {}) == usable


@pytest.mark.parametrize(
    ("seconds", "overdue"), [pytest.param(599, False, id="early"), pytest.param(601, True, id="late")]
)
def test_binding_conditions_time_out(seconds: float, overdue: bool) -> None:
    had = with_allocation(ONE, CONDITIONED, allocationTimestamp=TIMESTAMP)
    clock = ManualClock(datetime.fromisoformat(TIMESTAMP).timestamp() + seconds)
    found = refusals(DynamicResourcesFilter(clock=clock), POD, *NODES, CLASS, had)
    assert found == ({"a": AWAY, "b": AWAY} if overdue else {})


BACKED = make_device_class("gpu", f'device.driver == "{GPU}"', extended_resource="example.com/gpu")
RULES: list[Predicate] = [NodeResourcesFitFilter(), DynamicResourcesFilter()]


def extended(amount: str, *objects: Object, pod: Object | None = None) -> dict[str, Refusal]:
    asking = pod or make_pod("p").req({"example.com/gpu": amount}).obj()
    plugin = make_node("plugin").allocatable({"example.com/gpu": "1"}, cpu="4", pods="10").obj()
    return refusals(RULES, asking, *NODES, plugin, BACKED, on_a(*gpus("t4", "t4")), *objects)


def test_a_device_class_may_provide_an_extended_resource() -> None:
    assert extended("1") == {"b": NOT_ALL}
    insufficient = unresolvable("NodeResourcesFit", "Insufficient example.com/gpu")
    assert extended("2") == {"b": NOT_ALL, "plugin": insufficient}
    assert extended("3") == {"a": NOT_ALL, "b": NOT_ALL, "plugin": insufficient}


def test_a_class_has_an_implicit_resource() -> None:
    implicit = make_pod("p").req({"deviceclass.resource.kubernetes.io/gpu": "2"}).obj()
    assert extended("", pod=implicit) == {"b": NOT_ALL, "plugin": NOT_ALL}


def test_init_containers_use_the_devices_of_those_that_come_later() -> None:
    pod = make_pod("p").req({"example.com/gpu": "1"})
    pod.init_container().obj()
    spec = pod.obj()
    spec["spec"]["initContainers"][0]["resources"] = {"requests": {"example.com/gpu": "2"}}
    assert "a" not in extended("", pod=spec)
    spec["spec"]["initContainers"][0]["resources"] = {"requests": {"example.com/gpu": "3"}}
    assert extended("", pod=spec)["a"] == NOT_ALL


def test_a_claim_for_extended_resources_from_an_earlier_attempt_blocks_the_pod() -> None:
    stale = make_claim("p-extended", make_request("container-0-request-0", "gpu"))
    stale["metadata"] |= {
        "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"},
        "ownerReferences": [
            {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "pod-default-p", "controller": True}
        ],
    }
    assert set(extended("1", stale).values()) == {refused("cannot schedule extended resource claim")}


def test_a_pod_whose_claim_is_not_observed_at_bind_needs_free_devices() -> None:
    pod = make_pod("p").req({"example.com/gpu": "1"}).obj()
    assert refusals(DynamicResourcesFilter(at_bind=True), pod, *NODES, BACKED, on_a(*gpus("t4"))) == {"b": NOT_ALL}


def test_pods_without_claims_pass() -> None:
    assert refusals(DynamicResourcesFilter(), make_pod("p").req(cpu="1").obj(), *NODES, BACKED) == {}

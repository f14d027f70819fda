"""The smallest change: on generated cases each makes the pod fit, and no smaller step of its kind does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace as replaced
from itertools import combinations
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from extender.model.meta import Object as Model
from extender.model.pod import Pod, Toleration
from extender.model.requests import pod_requests
from extender.offline.cluster import Cluster
from extender.offline.explain.explanation import Explanation
from extender.offline.explain.pod_terms import lowered
from extender.offline.explain.suggestion import SuggestedChange
from extender.policy.loading import read
from extender.snapshots.objects import to_object, with_defaults
from tests.builders import (
    Object,
    expression,
    make_device,
    make_device_class,
    make_node,
    make_pod,
    make_resource_claim,
    make_resource_slice,
    node_term,
    stored,
)
from tests.builders.pod import PodBuilder


def models(*objects: Object) -> list[Model]:
    made = [to_object(obj, "object") for obj in objects]
    return with_defaults([obj for obj in made if obj is not None])


def explanation(pod: Object, *objects: Object) -> Explanation:
    return Cluster.from_objects(objects).explain(stored(pod))


def changes(pod: Object, *objects: Object) -> dict[str, SuggestedChange]:
    """The smallest change of each kind."""
    return {change.kind: change for change in reversed(explanation(pod, *objects).changes)}


# ---- one kind after another

ROOMY = make_node("roomy").capacity(cpu="4", memory="8Gi").obj()


@pytest.mark.parametrize(
    ("pod", "objects", "kind", "expected"),
    [
        pytest.param(
            make_pod("p").req(cpu="6", memory="1Gi").obj(),
            [ROOMY, make_pod("f").req(cpu="1500m").node("roomy").obj()],
            "requests",
            "request 2500m cpu instead of 6",
            id="less cpu",
        ),
        pytest.param(
            make_pod("p").req(cpu="6", memory="9Gi").obj(),
            [ROOMY],
            "requests",
            "request 4 cpu instead of 6 and 8Gi memory instead of 9Gi",
            id="less of both",
        ),
        pytest.param(
            make_pod("p").req({"example.com/gpu": "1"}).obj(),
            [ROOMY],
            "requests",
            "request no example.com/gpu",
            id="none of what no node has",
        ),
        pytest.param(
            make_pod("p").obj(),
            [make_node("n").taint("a").taint("b", "c").obj(), make_node("m").taint("z").obj()],
            "tolerations",
            "tolerate z:NoSchedule",
            id="the fewest tolerations",
        ),
        pytest.param(
            make_pod("p").node_selector(disk="ssd", rack="7").obj(),
            [make_node("n").label(disk="ssd").obj(), make_node("m").obj()],
            "node-selection",
            "drop nodeSelector rack=7",
            id="the fewest labels",
        ),
        pytest.param(
            make_pod("p").label(app="x").node_selector(disk="ssd", zone="a").spread("zone", labels={"app": "x"}).obj(),
            [
                make_node("full").label(zone="a").unschedulable().obj(),
                make_node("a").label(zone="a").obj(),
                make_node("b").label(zone="b").obj(),
                *(make_pod(f"r{n}").label(app="x").node("full").obj() for n in range(3)),
            ],
            "node-selection",
            "drop nodeSelector disk=ssd",
            id="fewer labels than would bring another zone in",
        ),
        pytest.param(
            make_pod("p").node_selector(disk="ssd").obj(),
            [make_node("m").obj()],
            "label-node",
            "label node m disk=ssd",
            id="a label for a node",
        ),
        pytest.param(
            make_pod("p").node_selector(rank="9").require_node(node_term(expression("rank", "Gt", "4"))).obj(),
            [make_node("n").obj()],
            "label-node",
            "label node n rank=9",
            id="a label that two demands are about",
        ),
        pytest.param(
            make_pod("p").require_node(node_term(expression("rank", "Gt", "4"), expression("rank", "Lt", "7"))).obj(),
            [make_node("n").label(rank="2").obj()],
            "label-node",
            "label node n rank=5",
            id="a number for a label",
        ),
        pytest.param(
            make_pod("p").host_port(80).host_port(81).obj(),
            [ROOMY, make_pod("w").host_port(80).node("roomy").obj()],
            "host-ports",
            "give up host port 80/TCP",
            id="a port",
        ),
        pytest.param(
            make_pod("p").label(app="x").spread("zone", labels={"app": "x"}).obj(),
            [
                make_node("a").label(zone="a").obj(),
                make_node("b").label(zone="b").capacity(pods="0").obj(),
                *(make_pod(f"r{n}").label(app="x").node("a").obj() for n in range(3)),
            ],
            "spread",
            "allow maxSkew 4 instead of 1 in the spread constraint over zone",
            id="more skew",
        ),
        pytest.param(
            make_pod("p").label(app="x").anti_affinity("kubernetes.io/hostname", labels={"app": "x"}).obj(),
            [ROOMY, make_pod("q").label(app="x").node("roomy").obj()],
            "pod-affinity",
            "drop podAntiAffinity to pods with app=x within kubernetes.io/hostname",
            id="a term of anti-affinity",
        ),
        pytest.param(
            make_pod("p").obj(), [make_node("n").unschedulable().obj()], "uncordon", "uncordon n", id="cordon"
        ),
        pytest.param(
            make_pod("p").req(cpu="3").obj(),
            [ROOMY, make_pod("q").req(cpu="2").priority(9).node("roomy").obj()],
            "remove-pods",
            "remove default/q from roomy",
            id="a pod to remove",
        ),
        pytest.param(
            make_pod("p").req(cpu="3").obj(),
            [ROOMY, make_pod("q").req(cpu="2").node("roomy").obj()],
            "add-node",
            "add a node like roomy",
            id="a node to add",
        ),
        pytest.param(
            make_pod("p").req(cpu="6").obj(),
            [make_node("n").capacity(cpu="4").taint("a").obj()],
            "requests+tolerations",
            "request 4 cpu instead of 6, and tolerate a:NoSchedule",
            id="two kinds together",
        ),
    ],
)
def test_the_smallest_change_of_each_kind_is_found(
    pod: Object, objects: list[Object], kind: str, expected: str
) -> None:
    assert changes(pod, *objects)[kind].text == expected


@pytest.mark.parametrize("kind", ["DaemonSet", "Node"])
def test_no_change_removes_a_pod_that_its_controller_recreates_on_the_node(kind: str) -> None:
    node = make_node("n").capacity(cpu="4").obj()
    agent = make_pod("agent").req(cpu="1").owner(kind, "agent").node("n")
    if kind == "Node":
        agent.annotation({"kubernetes.io/config.mirror": "hash"})
    daemon = agent.obj()
    web = make_pod("web").req(cpu="2").priority(9).owner("ReplicaSet", "web").node("n").obj()
    assert changes(make_pod("p").req(cpu="3").obj(), node, daemon, web)["remove-pods"].removed == ("default/web",)
    # The pod of the lower priority would do, but for its owner.
    assert changes(make_pod("p").req(cpu="2").obj(), node, daemon, web)["remove-pods"].removed == ("default/web",)
    assert "remove-pods" not in changes(make_pod("p").req(cpu="4").obj(), node, daemon)


def test_a_new_node_has_the_daemons_of_the_one_that_it_is_like() -> None:
    node = make_node("n").capacity(cpu="4").obj()
    daemon = make_pod("agent").req(cpu="1").owner("DaemonSet", "agent").node("n").obj()
    web = make_pod("web").req(cpu="2").node("n").obj()
    added = changes(make_pod("p").req(cpu="3").obj(), node, daemon, web)["add-node"]
    assert [type(each).__name__ for each in added.set_objects] == ["Node"]
    assert "add-node" not in changes(make_pod("p").req(cpu="3500m").obj(), node, daemon, web)


def test_a_pod_that_fits_needs_no_change() -> None:
    assert explanation(make_pod("p").obj(), ROOMY).changes == []


def test_no_change_tolerates_the_taint_of_an_unhealthy_node() -> None:
    unwell = (
        make_node("n")
        .taint("node.kubernetes.io/unreachable", effect="NoExecute")
        .taint("node.kubernetes.io/not-ready")
        .obj()
    )
    assert "tolerations" not in changes(make_pod("p").obj(), unwell)


def test_the_cluster_is_as_it_was_after_the_search() -> None:
    objects = [ROOMY, make_node("c").unschedulable().obj(), make_pod("q").req(cpu="2").node("roomy").obj()]
    cluster = Cluster.from_objects(objects)
    pod = make_pod("p").req(cpu="3").obj()
    before = cluster.decide(pod).refusals
    assert cluster.explain(pod).changes
    assert cluster.decide(pod).refusals == before
    assert cluster.nodes == ["roomy", "c"]


# ---- any case

LABELS = {"disk": ("ssd", "hdd"), "rack": ("1", "2")}
TAINTS = ("dedicated", "spot", "lab")
SPREAD_KEY = "rack"


FOCUSES = ("requests", "tolerations", "node-selection", "spread", "pod-affinity", "host-ports", "anything")


@st.composite
def cases(draw: Any, focus: str) -> tuple[Object, list[Object]]:
    """A pod that, as a rule, one kind of demand keeps from the nodes: where many do, no change is of one kind."""
    objects: list[Object] = []
    for number in range(draw(st.integers(1, 5))):
        node = make_node(f"n{number}").capacity(cpu=str(draw(st.integers(1, 4))), memory=f"{draw(st.integers(1, 4))}Gi")
        for key, values in LABELS.items():
            if draw(st.integers(0, 3)):
                node.label({key: draw(st.sampled_from(values))})
        if focus in ("tolerations", "anything"):
            for taint in draw(st.lists(st.sampled_from(TAINTS), unique=True, max_size=2)):
                node.taint(taint)
        if draw(st.integers(0, 7)) == 0:
            node.unschedulable()
        objects.append(node.obj())
        for pod in range(draw(st.integers(0, 3))):
            placed = make_pod(f"p{number}-{pod}").node(f"n{number}").priority(draw(st.integers(0, 20)))
            placed.req(
                cpu=draw(st.sampled_from(("100m", "500m", "1", "1300m"))), memory=draw(st.sampled_from(("1Mi", "1Gi")))
            )
            placed.label(app=draw(st.sampled_from("xxy")))
            if focus == "host-ports":
                placed.host_port(80 + pod)
            objects.append(placed.obj())
    return waiting(draw, focus).obj(), objects


def waiting(draw: Any, focus: str) -> PodBuilder:
    pod = make_pod("p").label(app="x").priority(10).req(cpu="10m", memory="1Ki")
    for kind in FOCUSES[:-1]:
        if focus == kind or (focus == "anything" and draw(st.integers(0, 2)) == 0):
            demand(draw, kind, pod)
    return pod


def demand(draw: Any, kind: str, pod: PodBuilder) -> None:
    """Has the pod demand something of this kind."""
    match kind:
        case "requests":
            pod.req(cpu=draw(st.sampled_from(("1", "2500m", "6"))), memory=draw(st.sampled_from(("1Mi", "2Gi", "6Gi"))))
        case "tolerations":
            pod.toleration(draw(st.sampled_from((*TAINTS, "none"))))
        case "node-selection":
            pod.node_selector({key: draw(st.sampled_from((*values, "none"))) for key, values in LABELS.items()})
        case "spread":
            pod.spread(SPREAD_KEY, labels={"app": "x"})
        case "pod-affinity":
            pod.anti_affinity("disk", labels={"app": draw(st.sampled_from("xy"))})
            pod.affinity("rack", labels={"app": draw(st.sampled_from("xyz"))})
        case "host-ports":
            pod.host_port(80).host_port(81)


@pytest.mark.parametrize("focus", FOCUSES)
@settings(suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_each_change_lets_the_pod_run_and_no_smaller_one_of_its_kind_does(focus: str, data: st.DataObject) -> None:
    manifest, objects = data.draw(cases(focus))
    check_changes(manifest, objects, less_of)


def check_changes(
    manifest: Object, objects: list[Object], less_of: Callable[[SuggestedChange, Pod], Iterable[SuggestedChange]]
) -> None:
    """Each change really opens its nodes, and nothing that is less than it does."""
    found = explanation(manifest, *objects)
    for change in found.changes:
        assert set(fitting(found.pod, change, objects)) >= set(change.nodes), change
        for smaller in less_of(change, found.pod):
            assert not fitting(found.pod, smaller, objects), (change, smaller)


def fitting(pod: Pod, change: SuggestedChange, objects: list[Object]) -> list[str]:
    """The nodes that take the pod in a new cluster, in which the change is done."""
    made = {(type(obj), obj.key): obj for obj in (*models(*objects), *change.set_objects)}
    left = [obj for (kind, key), obj in made.items() if not issubclass(kind, Pod) or key not in change.removed]
    return Cluster(left).decide(change.pod or pod).feasible


def less_of(change: SuggestedChange, pod: Pod) -> Iterator[SuggestedChange]:
    """Every smaller change of the same kind, found by trying all there are; kinds of one step have none."""
    smaller = _LESS.get(change.kind)
    return smaller(change, pod) if smaller else iter(())


def _more_requested(change: SuggestedChange, pod: Pod) -> Iterator[SuggestedChange]:
    assert change.pod is not None
    asked, left = pod_requests(pod), pod_requests(change.pod)
    reduced = [name for name in asked if left.get(name, 0) < asked[name]]
    for name in reduced:
        targets = {each: left[each] + (each == name) for each in reduced}
        yield replaced(change, pod=lowered(pod, targets))


def _fewer_tolerations(change: SuggestedChange, pod: Pod) -> Iterator[SuggestedChange]:
    for chosen in _fewer(TAINTS, change.size):
        added = [Toleration(key=key, operator="Exists") for key in chosen]
        yield replaced(change, pod=pod.with_spec(tolerations=[*(pod.spec.tolerations or ()), *added]))


def _fewer_drops(change: SuggestedChange, pod: Pod) -> Iterator[SuggestedChange]:
    selector = pod.spec.node_selector or {}
    for chosen in _fewer(tuple(selector), change.size):
        left = {key: value for key, value in selector.items() if key not in chosen}
        yield replaced(change, pod=pod.with_spec(node_selector=left or None))


def _less_skew(change: SuggestedChange, pod: Pod) -> Iterator[SuggestedChange]:
    assert change.pod is not None
    (before,) = pod.spec.topology_spread_constraints or []
    (after,) = change.pod.spec.topology_spread_constraints or []
    hard = after.when_unsatisfiable == before.when_unsatisfiable
    less = replace(before, max_skew=after.max_skew - 1 if hard else 1000)
    yield replaced(change, pod=pod.with_spec(topology_spread_constraints=[less]))


def _fewer_removals(change: SuggestedChange, _pod: Pod) -> Iterator[SuggestedChange]:
    for size in range(len(change.removed)):
        yield from (replaced(change, removed=kept) for kept in combinations(change.removed, size))


def _fewer_terms(change: SuggestedChange, pod: Pod) -> Iterator[SuggestedChange]:
    affinity = pod.spec.affinity
    if affinity is not None and change.size > 1:
        yield replaced(change, pod=pod.with_spec(affinity=replace(affinity, pod_affinity=None)))
        yield replaced(change, pod=pod.with_spec(affinity=replace(affinity, pod_anti_affinity=None)))


_LESS = {
    "requests": _more_requested,
    "tolerations": _fewer_tolerations,
    "node-selection": _fewer_drops,
    "spread": _less_skew,
    "remove-pods": _fewer_removals,
    "pod-affinity": _fewer_terms,
}


def _fewer(elements: tuple[str, ...], size: float) -> Iterator[tuple[str, ...]]:
    for fewer in range(int(size)):
        yield from combinations(elements, fewer)


# ---- found by `make fuzz-answers`, and by other fuzzers

GPU = "example.com/gpu"
IGNORES_GPU = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "profiles": [{"pluginConfig": [{"name": "NodeResourcesFit", "args": {"ignoredResources": [GPU]}}]}],
}


def spec_of(change: SuggestedChange) -> Any:
    return change.to_dict()["spec"]


def test_the_overhead_of_a_runtime_class_is_not_to_be_lowered() -> None:
    pod = make_pod("p").req(cpu="6").overhead(cpu="500m").obj()
    assert changes(pod, ROOMY)["requests"].text == "request 3500m cpu instead of 6"


def test_the_limit_of_an_extended_resource_goes_down_with_its_request() -> None:
    node = make_node("n").capacity({GPU: "2"}).obj()
    change = changes(make_pod("p").req({GPU: "4"}).limit({GPU: "4"}).obj(), node)["requests"]
    assert change.text == "request 2 example.com/gpu instead of 4"
    resources = spec_of(change)["containers"][0]["resources"]
    assert resources["requests"][GPU] == resources["limits"][GPU] == "2"


def test_a_request_of_the_whole_pod_is_not_below_that_of_its_containers() -> None:
    change = changes(make_pod("p").req(cpu="5").pod_level_req(cpu="6").obj(), ROOMY)["requests"]
    spec = spec_of(change)
    assert spec["resources"]["requests"]["cpu"] == spec["containers"][0]["resources"]["requests"]["cpu"] == "4"


def test_fewer_devices_are_asked_for_through_an_extended_resource() -> None:
    devices = [
        make_device_class("gpu", extended_resource=GPU),
        make_resource_slice("roomy", "gpu.example.com", "a", "b", "c"),
    ]
    change = changes(make_pod("p").req({GPU: "8"}).limit({GPU: "8"}).obj(), ROOMY, *devices)["requests"]
    assert change.text == "request 3 example.com/gpu instead of 8"


def test_a_resource_that_the_policy_ignores_need_not_be_lowered() -> None:
    pod = make_pod("p").req({GPU: "1"}, cpu="6").limit({GPU: "1"}).obj()
    explained = Cluster.from_objects([ROOMY], read(IGNORES_GPU).scheduler_profiles()).explain(pod)
    assert [change.text for change in explained.changes if change.kind == "requests"] == ["request 4 cpu instead of 6"]


def test_a_resource_that_the_policy_ignores_does_not_choose_the_node() -> None:
    nodes = [make_node("a").capacity({GPU: "2"}, memory="1Gi").obj(), make_node("b").capacity(memory="2Gi").obj()]
    pod = make_pod("p").req({GPU: "3"}, memory="20Gi").limit({GPU: "3"}).obj()
    explained = Cluster.from_objects(nodes, read(IGNORES_GPU).scheduler_profiles()).explain(pod)
    assert [each.text for each in explained.changes if each.kind == "requests"] == [
        "request 2Gi memory instead of 20Gi"
    ]


def test_the_node_of_a_daemon_sets_pod_is_not_dropped() -> None:
    own = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["roomy"]}]}
    pod = make_pod("p").owner("DaemonSet", "agent").require_node(own).req(cpu="9").obj()
    other = make_node("larger").capacity(cpu="16").obj()
    assert [change.kind for change in explanation(pod, ROOMY, other).changes] == ["requests"]


def test_host_network_that_goes_with_a_port_is_named() -> None:
    pod = make_pod("p").host_port(80).spec(hostNetwork=True).obj()
    change = changes(pod, ROOMY, make_pod("w").host_port(80).node("roomy").obj())["host-ports"]
    assert change.text.startswith("give up host port 80/TCP and hostNetwork, ")
    assert "hostNetwork" not in spec_of(change)


ONE_ZONE = [make_node(name).label(zone="z").capacity(cpu="4").obj() for name in ("n1", "n2")]


@pytest.mark.parametrize(
    ("pod", "objects", "removed"),
    [
        pytest.param(
            make_pod("p").req(cpu="3").obj(),
            [ROOMY, make_pod("w").req(cpu="2").priority(9).nominated("roomy").obj()],
            "remove default/w nominated to roomy",
            id="a nominated pod",
        ),
        pytest.param(
            make_pod("p").label(app="x").anti_affinity("zone", labels={"app": "x"}).req(cpu="3").obj(),
            [
                *ONE_ZONE,
                make_pod("far").label(app="x").node("n1").obj(),
                make_pod("full").req(cpu="4").priority(5).node("n1").obj(),
            ],
            "remove default/far from n1",
            id="a pod on a neighbour",
        ),
        pytest.param(
            make_pod("p").label(app="x").affinity("zone", labels={"app": "x"}).obj(),
            [
                make_node("n1").label(zone="z").capacity(pods="1").obj(),
                make_node("n2").label(zone="y").obj(),
                make_pod("first").label(app="x").node("n1").obj(),
            ],
            "remove default/first from n1",
            id="the only pod that it must be near",
        ),
        pytest.param(
            make_pod("p").req(cpu="4").obj(),
            [
                ROOMY,
                make_pod("more-important").req(cpu="3").priority(10).node("roomy").obj(),
                make_pod("a").req(cpu="500m").node("roomy").obj(),
                make_pod("b").req(cpu="500m").node("roomy").obj(),
                make_node("n2").capacity(cpu="4").obj(),
                make_pod("c").req(cpu="3").priority(9).node("n2").obj(),
            ],
            "remove default/c from n2",
            id="the fewest over all nodes",
        ),
        pytest.param(
            make_pod("p").req(cpu="2").obj(),
            [
                ROOMY,
                make_pod("a").req(cpu="2").priority(10).node("roomy").obj(),
                make_pod("b").req(cpu="1").node("roomy").obj(),
                make_pod("c").req(cpu="1").node("roomy").obj(),
            ],
            "remove default/a from roomy",
            id="one important pod instead of two",
        ),
    ],
)
def test_the_fewest_pods_are_removed_wherever_they_are(pod: Object, objects: list[Object], removed: str) -> None:
    assert changes(pod, *objects)["remove-pods"].text == removed


def test_one_label_is_dropped_although_dropping_all_would_not_do() -> None:
    """Without any selector there would be a third zone, in which no pod of the service is yet."""
    pod = make_pod("p").label(app="x").node_selector(pool="a", disk="ssd").spread("zone", labels={"app": "x"}).obj()
    objects = [
        make_node("n1").label(zone="a", pool="a").obj(),
        make_node("n2").label(zone="b").unschedulable().obj(),
        make_pod("q").label(app="x").node("n1").obj(),
    ]
    assert changes(pod, *objects)["node-selection"].text == "drop nodeSelector disk=ssd"


def test_no_change_is_suggested_that_leaves_an_error_on_another_node() -> None:
    """The claim cannot be decided for a device without a model."""
    objects = [
        make_node("good").obj(),
        make_node("odd").obj(),
        make_device_class("gpu", 'device.attributes["gpu.example.com"].model == "a"'),
        make_resource_claim("wanted", "gpu"),
        make_resource_slice("good", "gpu.example.com", make_device("d", {"model": "a"})),
        make_resource_slice("odd", "gpu.example.com", make_device("d")),
    ]
    explained = explanation(make_pod("p").resource_claim("wanted").obj(), *objects)
    assert all("add a node" not in change.text for change in explained.changes)


def test_a_request_that_a_limit_range_refuses_is_not_suggested() -> None:
    least = {"type": "Container", "min": {"cpu": "5"}}
    limits = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "l", "namespace": "default"}}
    pod = make_pod("p").req(cpu="6").obj()
    kinds = [change.kind for change in explanation(pod, ROOMY, {**limits, "spec": {"limits": [least]}}).changes]
    assert "requests" not in kinds
    assert "requests" in [change.kind for change in explanation(pod, ROOMY).changes]


def limit_range(**item: Any) -> Object:
    metadata = {"name": "l", "namespace": "default"}
    limits = [{"type": "Container", **item}]
    return {"apiVersion": "v1", "kind": "LimitRange", "metadata": metadata, "spec": {"limits": limits}}


def test_each_container_keeps_what_a_limit_range_demands() -> None:
    pod = make_pod("p").req(cpu="2").container("second", cpu="2").obj()
    node = make_node("n").capacity(cpu="2500m").obj()
    change = changes(pod, node, limit_range(min={"cpu": "1"}))["requests"]
    assert change.text == "request 2500m cpu instead of 4"
    amounts = [container["resources"]["requests"]["cpu"] for container in spec_of(change)["containers"]]
    assert sorted(amounts) == ["1", "1500m"]


def test_a_larger_change_is_suggested_if_a_limit_range_refuses_the_smallest() -> None:
    pod = make_pod("p").req(cpu="2", memory="2Gi").obj()
    small = make_node("small").capacity(cpu="900m", memory="4Gi").obj()
    other = make_node("other").capacity(cpu="1", memory="1Mi").obj()
    change = changes(pod, small, other, limit_range(min={"cpu": "1"}))["requests"]
    assert (change.text, change.nodes) == ("request 1 cpu instead of 2 and 1Mi memory instead of 2Gi", ["other"])


@pytest.mark.parametrize(
    "item",
    [
        pytest.param({"min": {"memory": "2Gi"}}, id="the least of a container"),
        pytest.param({"type": "Pod", "min": {"memory": "2Gi"}}, id="the least of a pod"),
        pytest.param({"maxLimitRequestRatio": {"memory": "1500m"}}, id="a ratio of limit and request"),
    ],
)
def test_a_change_is_found_behind_many_smaller_ones_that_a_limit_range_refuses(item: Object) -> None:
    pod = make_pod("p").req(cpu="4", memory="3Gi").limit(memory="3Gi").obj()
    refused = [make_node(f"n{number}").capacity(cpu="4", memory=f"{1900 + number}Mi").obj() for number in range(70)]
    allowed = make_node("allowed").capacity(cpu="100m", memory="2Gi").obj()
    change = changes(pod, *refused, allowed, limit_range(**item))["requests"]
    assert (change.text, change.nodes) == ("request 2Gi memory instead of 3Gi and 100m cpu instead of 4", ["allowed"])


def test_a_limit_range_that_does_not_allow_the_pod_itself_limits_no_change() -> None:
    pod = make_pod("p").req(cpu="2", memory="1Mi").obj()
    node = make_node("n").capacity(cpu="500m").obj()
    change = changes(pod, node, limit_range(min={"cpu": "1", "memory": "1Gi"}))["requests"]
    assert change.text == "request 500m cpu instead of 2"


def test_a_suggested_spec_has_every_field_that_the_api_requires() -> None:
    pod = make_pod("p").label(app="x").spread("zone", labels={"app": "x"}).req(cpu="6").obj()
    change = changes(pod, make_node("n").label(zone="z").capacity(cpu="4").obj())["requests"]
    (constraint,) = spec_of(change)["topologySpreadConstraints"]
    assert (constraint["maxSkew"], constraint["whenUnsatisfiable"]) == (1, "DoNotSchedule")


def test_a_label_is_suggested_that_the_policy_demands_too() -> None:
    ssd = {"key": "disk", "operator": "In", "values": ["ssd"]}
    added = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [ssd]}]}}
    policy = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"pluginConfig": [{"name": "NodeAffinity", "args": {"addedAffinity": added}}]}],
    }
    pod = make_pod("p").node_selector(disk="ssd").obj()
    explained = Cluster.from_objects([ROOMY], read(policy).scheduler_profiles()).explain(pod)
    assert "label node roomy disk=ssd" in [change.text for change in explained.changes]

"""The handle: what a rule may read of the cluster, and what it may tell its process."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import UTC, datetime
from typing import Any

import pytest

from extender import Handle, Namespace, Node, Pod, ReplicaSet, Service, predicate, priority
from extender.framework.find_fit import find_fit
from extender.framework.permit import NO_PERMITS, offline_permits
from extender.framework.profile import Profile
from extender.plugins.users.function import put_in_force
from extender.plugins.users.handle import RunningProcess, nothing_waits
from extender.plugins.users.rule_calls import LiveHost, OfflineHost
from extender.plugins.volume_binding import VolumeBindingFilter
from extender.runtime.clock import NO_LIMIT, ManualClock
from extender.runtime.ports import Telemetry
from tests.builders import (
    Builder,
    Object,
    expression,
    make_namespace,
    make_node,
    make_pod,
    make_pv,
    make_pvc,
    make_service,
    make_storage_class,
    node_term,
)
from tests.framework.cluster import pod_info, refusals, scores, table_of


def in_zone(zone: str) -> Object:
    return node_term(expression("zone", "In", zone))


def topology(zone: str) -> Object:
    return {"matchLabelExpressions": [{"key": "zone", "values": [zone]}]}


WEB = Builder("apps/v1", "ReplicaSet", "web", "shop").uid("uid-web")
DATABASE = Builder("v1", "Service", "db", "shop").label(tier="data")
OBJECTS = [
    make_node("n").label(zone="a").obj(),
    make_namespace("shop", team="red"),
    make_service("web", {}, namespace="shop"),
    DATABASE.obj(),
    WEB.obj(),
    make_pod("web-1", namespace="shop").owner("ReplicaSet", "web", uid="uid-web").label(app="web").node("n").obj(),
]
POD = make_pod("web-2", namespace="shop").owner("ReplicaSet", "web", uid="uid-web").obj()


def handed(host: Any = None, *more: Object) -> Handle:
    """Returns the handle that a predicate gets."""
    handles: list[Handle] = []

    @predicate
    def keep(pod: Pod, node: Node, *, handle: Handle) -> None:
        handles.append(handle)

    table = table_of(*OBJECTS, *more)
    profile = Profile("p", [keep.rule("keep", {}, host or OfflineHost())], ())
    find_fit(profile, pod_info(POD), table, table.nodes.rows)
    return handles[0]


def names(objects: Any) -> list[str]:
    return sorted(obj.name for obj in objects)


def test_a_rule_lists_objects_by_kind_namespace_and_labels() -> None:
    objects = handed().objects
    assert names(objects.list(Service)) == ["db", "web"]
    assert names(objects.list(Service, labels={"tier": "data"})) == ["db"]
    assert objects.list(Service, "lab") == []
    assert names(objects.list(Node)) == ["n"]
    assert names(objects.list(Pod, "shop", {"app": "web"})) == ["web-1"]


def test_a_rule_gets_one_object_by_its_key() -> None:
    objects = handed().objects
    found = objects.get(Namespace, "shop")
    assert found is not None
    assert found.labels["team"] == "red"
    assert [objects.get(Service, "shop/none"), objects.get(Node, "none"), objects.get(Pod, "shop/web-2")] == [None] * 3
    node, pod = objects.get(Node, "n"), objects.get(Pod, "shop/web-1")
    assert node is not None
    assert pod is not None
    assert (node.name, pod.name) == ("n", "web-1")


def test_the_controller_of_a_pod_is_found_by_name_and_uid() -> None:
    objects = handed().objects
    controller = objects.controller_of(pod_info(POD).pod)
    assert isinstance(controller, ReplicaSet)
    assert controller.name == "web"
    recreated = make_pod("old", namespace="shop").owner("ReplicaSet", "web", uid="uid-of-an-earlier-one").obj()
    assert objects.controller_of(pod_info(recreated).pod) is None
    assert objects.controller_of(pod_info(make_pod("alone").obj()).pod) is None
    orphan = make_pod("orphan", namespace="shop").owner("ReplicaSet", "deleted").obj()
    assert objects.controller_of(pod_info(orphan).pod) is None


def test_a_priority_may_use_the_handle_too() -> None:
    @priority
    def by_team(pod: Pod, node: Node, *, handle: Handle, team: str) -> int:
        namespace = handle.objects.get(Namespace, pod.namespace)
        return 100 if namespace is not None and namespace.labels.get("team") == team else 0

    assert scores(by_team.rule("r", {"team": "red"}, OfflineHost()), POD, *OBJECTS) == {"n": 100}


def test_the_handle_is_not_an_argument_of_the_policy() -> None:
    @predicate
    def rule(pod: Pod, node: Node, *, handle: Handle, most: int = 1) -> None: ...

    assert list(rule.arguments.model_fields) == ["most"]


class Noted(Telemetry):
    def __init__(self) -> None:
        self.series: list[tuple[str, str, float]] = []

    def rule_counted(self, rule: str, name: str, amount: float) -> None:
        self.series.append((rule, name, amount))

    def rule_observed(self, rule: str, name: str, value: float) -> None:
        self.series.append((rule, name, value))


def test_a_rule_reads_the_clock_counts_and_logs_through_its_process() -> None:
    telemetry, messages = Noted(), list[tuple[str, ...]]()
    clock = ManualClock(1_000.0)
    host = LiveHost(
        telemetry, clock, NO_LIMIT, lambda *_: None, lambda *message: messages.append(message), lambda *_: nullcontext()
    )
    handle = handed(host)
    assert handle.now == datetime(1970, 1, 1, 0, 16, 40, tzinfo=UTC)
    handle.count("asked")
    handle.count("bytes", 7)
    handle.observe("seconds", 0.5)
    handle.log("hello")
    assert telemetry.series == [("keep", "asked", 1), ("keep", "bytes", 7), ("keep", "seconds", 0.5)]
    assert messages == [("keep", "shop/web-2", "hello")]


def test_a_handle_of_a_rule_in_force_wakes_the_pods_it_selects() -> None:
    handles, heard = list[Handle](), list[tuple[object, ...]]()

    @predicate
    def keep(pod: Pod, node: Node, *, handle: Handle) -> None:
        handles.append(handle)

    profile = Profile("p", [keep.rule("keep", {}, OfflineHost())], ())
    put_in_force([profile], RunningProcess(lambda *asked: heard.append(asked), NO_PERMITS))
    table = table_of(*OBJECTS)
    find_fit(profile, pod_info(POD), table, table.nodes.rows)
    handles[0].wake()
    handles[0].wake("shop", {"app": "web"})
    assert heard == [("keep", None, {}), ("keep", "shop", {"app": "web"})]


def test_offline_a_handle_wakes_no_pod_and_no_pod_waits() -> None:
    handle = handed()
    handle.wake()
    handle.activate("shop", {})
    handle.log("dropped")
    handle.count("dropped")
    assert handle.waiting == []
    assert handle.count_placed("shop", {"app": "web"}) == 1


def test_pods_that_are_being_deleted_are_not_counted() -> None:
    leaving = make_pod("web-0", namespace="shop").label(app="web").node("n").deleted().obj()
    assert handed(None, leaving).count_placed("shop", {"app": "web"}) == 1


def test_a_claim_is_refused_where_volume_binding_would_refuse_it() -> None:
    """Nothing is reserved: the answers stay the same, however often and in which order a rule asks."""
    storage = [
        *(make_node(name).label(zone=name).obj() for name in ("a", "b", "c")),
        make_storage_class("local", provisioner="kubernetes.io/no-provisioner"),
        make_storage_class("cloud", allowedTopologies=[topology("b")]),
        make_storage_class("at-once", wait=False),
        make_pv("disk", storage_class="local", node_terms=[in_zone("a")]),
        make_pv("held", claim="default/bound", node_terms=[in_zone("c")]),
        *(make_pvc(name, storage_class="local") for name in ("small", "another")),
        make_pvc("large", storage_class="local", storage="9Gi"),
        make_pvc("new", storage_class="cloud"),
        make_pvc("immediate", storage_class="at-once"),
        make_pvc("bound", volume="held"),
        make_pvc("astray", volume="none"),
    ]
    claims = ("small", "large", "new", "immediate", "bound", "astray", "missing")
    groups = [*((claim,) for claim in claims), ("small", "another"), ("new", "bound"), ("small", "small")]
    asked: list[tuple[Handle, str, tuple[str, ...], str | None]] = []

    @predicate
    def ask(pod: Pod, node: Node, *, handle: Handle) -> None:
        for group in groups:
            refusal = handle.claim_refusal(node.name, *(f"default/{claim}" for claim in group))
            asked.append((handle, node.name, group, refusal))

    table = table_of(*storage)
    for _ in range(2):
        find_fit(Profile("p", [ask.rule("ask", {}, OfflineHost())], ()), pod_info(POD), table, table.nodes.rows)
    for handle, node_name, group, refusal in asked:
        using = make_pod("using")
        for claim in group:
            using = using.pvc(claim)
        expected = refusals(VolumeBindingFilter(), using.obj(), *storage).get(node_name)
        assert refusal == (expected and ", ".join(expected.reasons)), (node_name, group)
        kept = Handle("ask", handle._pod, OfflineHost(), RunningProcess(nothing_waits, offline_permits(table)))
        assert kept.claim_refusal(node_name, *(f"default/{claim}" for claim in group)) == refusal
    fitting = {(node_name, group) for _, node_name, group, refusal in asked if refusal is None}
    assert fitting == {("a", ("small",)), ("b", ("new",)), ("c", ("bound",))}


def test_a_claim_without_namespace_or_of_an_unknown_node_is_not_found() -> None:
    handle = handed()
    assert handle.claim_refusal("n", "data") == 'persistentvolumeclaim "data" not found'
    assert handle.claim_refusal("none", "shop/data") == 'node "none" not found'
    assert handle.claim_refusal("n") is None


@pytest.mark.parametrize("form", [lambda pod, node, *, handle: True, lambda pod, table, rows, *, handle: rows >= 0])
def test_both_forms_may_have_a_handle(form: Any) -> None:
    table = table_of(*OBJECTS)
    profile = Profile("p", [predicate(form).rule("r", {}, OfflineHost())], ())
    assert len(find_fit(profile, pod_info(POD), table, table.nodes.rows).feasible) == 1

"""Counting what fits: all pods at once if nodes are independent, else one by one; both give the same numbers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender import Cluster
from extender.errors import ConfigurationError, UnknownPod
from extender.framework.profile import Profiles
from extender.model.storage import CSIStorageCapacity
from extender.offline.state import ClusterState
from extender.offline.what_if.capacity import as_text
from extender.offline.what_if.simulation import Simulation
from extender.policy.loading import read
from extender.runtime.questions import in_child
from extender.snapshots.objects import to_objects, to_pod
from extender.table import PodInfo
from tests.builders import (
    Object,
    expression,
    make_csi_driver,
    make_node,
    make_pod,
    make_pvc,
    make_storage_capacity,
    make_storage_class,
    node_term,
)

MIB = 1 << 20


def template(cpu: str = "1") -> Any:
    return make_pod("t").label(app="t").req(cpu=cpu)


@st.composite
def clusters(draw: Any) -> list[Object]:
    objects = []
    for number in range(draw(st.integers(1, 4))):
        node = make_node(f"n{number}").capacity(
            cpu=str(draw(st.integers(0, 5))), memory=f"{draw(st.integers(1, 4))}Gi", pods=str(draw(st.integers(0, 6)))
        )
        if draw(st.integers(0, 3)) == 0:
            node.taint("dedicated")
        objects.append(node.obj())
        if draw(st.booleans()):
            objects.append(make_pod(f"p{number}").req(cpu="700m", memory="1Gi").node(f"n{number}").obj())
    return objects


def profiles(**profile: Any) -> Profiles:
    kind = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    return Profiles(read({**kind, "profiles": [{"schedulerName": "default-scheduler", **profile}]}).profiles)


def fit_arguments(**arguments: Any) -> Profiles:
    return profiles(pluginConfig=[{"name": "NodeResourcesFit", "args": arguments}])


WITHOUT_FIT = profiles(plugins={"multiPoint": {"disabled": [{"name": "NodeResourcesFit"}]}})
POLICIES = [
    None,
    WITHOUT_FIT,
    fit_arguments(ignoredResources=["example.com/licence"]),
    fit_arguments(ignoredResourceGroups=["example.com"]),
]


@given(
    clusters(),
    st.sampled_from(("0", "300m", "1")),
    st.sampled_from(("0", "600Mi", "1Gi")),
    st.sampled_from(("0", "1")),
    st.sampled_from(POLICIES),
)
def test_counting_pods_at_once_gives_the_same_capacity_as_placing_them(
    objects: list[Object], cpu: str, memory: str, licences: str, policy: Profiles | None
) -> None:
    pod = make_pod("t").limit({"example.com/licence": licences}).req(cpu=cpu, memory=memory)
    plain = pod.obj()
    # A preference for pods that do not exist changes no score, but makes pods depend on each other.
    tried = pod.anti_affinity("kubernetes.io/hostname", labels={"no": "pod"}).obj()
    cluster = Cluster.from_objects(objects, policy)
    at_once, one_by_one = cluster.capacity([plain], most=30), cluster.capacity([tried], most=30)
    assert (at_once.total, at_once.limited) == (one_by_one.total, one_by_one.limited)
    if not at_once.limited:
        assert at_once.by_node == one_by_one.by_node
        assert [each.reason for reasons in at_once.exhausted.values() for each in reasons] == [
            each.reason for reasons in one_by_one.exhausted.values() for each in reasons
        ]


@pytest.mark.parametrize("offered", ["0", "2"])
def test_a_resource_that_the_policy_ignores_limits_nothing(offered: str) -> None:
    node = make_node("n").capacity({"example.com/licence": offered}, cpu="4").obj()
    pod = make_pod("t").limit({"example.com/licence": "1"}).req(cpu="1").obj()
    cluster = Cluster.from_objects([node], fit_arguments(ignoredResources=["example.com/licence"]))
    assert cluster.capacity([pod]).total == 4


def test_without_the_filter_for_resources_only_the_limit_ends_the_search() -> None:
    capacity = Cluster.from_objects([make_node("n").capacity(cpu="1").obj()], WITHOUT_FIT).capacity(
        [template().obj()], most=40_000
    )
    assert (capacity.total, capacity.limited) == (40_000, True)


def test_a_pod_that_cannot_be_scored_fits_nowhere_if_there_is_a_choice() -> None:
    pod = make_pod("t").req(cpu="1").prefer_node(1, node_term(expression("rank", "Gt", "many"))).obj()
    nodes = [make_node(name).capacity(cpu="4").obj() for name in ("a", "b")]
    message = 'running PreScore plugin "NodeAffinity": preferred term [0] is malformed'
    none = Cluster.from_objects(nodes).capacity([pod])
    assert (none.total, [each.reason for each in none.exhausted["Pod default/t"]]) == (0, [message])
    assert Cluster.from_objects(nodes[:1]).capacity([pod]).total == 4


def storage(driver_reports: bool = True) -> list[Object]:
    hosts = [
        make_node(name).label({"kubernetes.io/hostname": name}).capacity(cpu="8").obj() for name in ("large", "small")
    ]
    return [
        *hosts,
        make_storage_class("local", provisioner="local.csi.example.com"),
        make_csi_driver("local.csi.example.com", storageCapacity=driver_reports),
        make_storage_capacity("one", "local", labels={"kubernetes.io/hostname": "large"}, capacity="10Gi"),
        make_storage_capacity("other", "local", labels={"kubernetes.io/hostname": "small"}, capacity="3Gi"),
    ]


def with_storage(size: str) -> Object:
    spec: Object = {"storageClassName": "local", "accessModes": ["ReadWriteOnce"]}
    spec |= {"resources": {"requests": {"storage": size}}}
    return make_pod("t").volume("v", {"ephemeral": {"volumeClaimTemplate": {"spec": spec}}}).obj()


def test_replicas_use_up_the_storage_that_a_driver_reports() -> None:
    capacity = Cluster.from_objects(storage()).capacity([with_storage("3Gi")])
    assert capacity.by_node == {"Pod default/t": {"large": 3, "small": 1}}
    (reasons,) = capacity.exhausted.values()
    assert [each.reason for each in reasons] == ["node(s) did not have enough free storage"]


def test_the_largest_volume_that_a_driver_allows_is_allowed_again_after_a_pod_left() -> None:
    objects = [each | {"maximumVolumeSize": "2Gi"} if "storageClassName" in each else each for each in storage()]
    state = ClusterState(to_objects(objects[1:]))
    simulation = Simulation(state)
    pod = PodInfo(to_pod(with_storage("2Gi")))
    simulation.add([pod])
    simulation.run()
    (pool,) = [each for each in state.objects.all(CSIStorageCapacity).values() if each.name == "other"]
    assert (pool.capacity, pool.maximum_volume_size) == (2**30, 2**30)
    simulation.remove(pod)
    (pool,) = [each for each in state.objects.all(CSIStorageCapacity).values() if each.name == "other"]
    assert (pool.capacity, pool.maximum_volume_size) == (3 * 2**30, 2 * 2**30)


def test_storage_is_unlimited_if_the_driver_does_not_report_it() -> None:
    capacity = Cluster.from_objects(storage(driver_reports=False)).capacity([with_storage("3Gi")], most=20)
    assert (capacity.total, capacity.limited) == (20, True)


def test_a_deleted_pod_gives_its_storage_back() -> None:
    objects = [each for each in storage() if each["metadata"]["name"] not in ("large", "one")]
    simulation = Simulation(ClusterState(to_objects(objects)))
    first, second = (PodInfo(to_pod(with_storage("2Gi") | {"metadata": {"name": name}})) for name in ("a", "b"))
    simulation.add([first, second])
    simulation.run()
    assert simulation.log.placements.keys() == {"default/a"}
    simulation.remove(first)
    simulation.run()
    assert simulation.log.placements.keys() == {"default/a", "default/b"}


def test_capacity_names_the_resource_that_runs_out_first() -> None:
    found = Cluster.from_objects(
        [make_node("n").capacity(cpu="4").label({"topology.kubernetes.io/zone": "a"}).obj()]
    ).capacity([template().obj()])
    assert (found.total, dict(found.by_zone)) == (4, {"a": 4})
    (reasons,) = found.exhausted.values()
    assert [(each.reason, each.detail) for each in reasons] == [
        ("Insufficient cpu", "requests 1; the most free is 0 on n")
    ]
    assert "4 more pods would fit" in "\n".join(as_text(found))


def test_pods_that_keep_off_each_other_are_counted_one_a_node() -> None:
    keeping_off = template().anti_affinity("kubernetes.io/hostname", labels={"app": "t"}).obj()
    nodes = [make_node(f"n{n}").capacity(cpu="4").label({"kubernetes.io/hostname": f"n{n}"}).obj() for n in range(3)]
    assert Cluster.from_objects(nodes).capacity([keeping_off]).total == 3


def test_the_values_that_are_computed_for_a_template_take_the_memory_of_one_pod() -> None:
    """The sets of 5,000 namespaces would exceed the limit if each copy of the pod had its own."""
    node = make_node("n").label(host="n").capacity(cpu="8", memory="16Gi", pods="100").obj()
    pod = make_pod("t").obj()
    term = {"topologyKey": "none", "labelSelector": {}, "namespaces": [f"ns-{number}" for number in range(5_000)]}
    pod["spec"]["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    assert in_child(lambda: Cluster.from_objects([node]).capacity([pod]).total, memory_bytes=32 * MIB) == 100


def test_several_templates_take_turns_by_weight() -> None:
    other = make_pod("o").req(cpu="1").obj()
    found = Cluster.from_objects([make_node("n").capacity(cpu="8").obj()]).capacity([template().obj(), other], [3, 1])
    assert sorted(found.pods.values()) == [2, 6]


def test_the_search_has_a_limit() -> None:
    found = Cluster.from_objects([make_node("n").capacity(cpu="8").obj()]).capacity([template().obj()], most=3)
    assert (found.total, found.limited) == (3, True)


def test_the_limit_counts_pods_that_fit_and_no_others() -> None:
    cluster = Cluster.from_objects([make_node("n").capacity(cpu="50").obj()])
    huge = make_pod("huge").req(cpu="99").obj()
    found = cluster.capacity([template().obj(), huge], most=10)
    assert (sorted(found.pods.values()), found.limited) == ([0, 10], True)
    assert found.exhausted.keys() == {"Pod default/huge"}
    assert "one more of Pod default/t " not in "\n".join(as_text(found))


def test_capacity_stops_at_the_limit_of_pods() -> None:
    cluster = Cluster.from_objects([make_node("n").capacity(cpu="50").obj()])
    found = cluster.capacity([template().obj(), make_pod("o").req(cpu="1").obj()], [30, 1], most=10)
    assert (sorted(found.pods.values()), found.limited) == ([0, 10], True)


def test_a_search_that_ends_at_its_limit_with_no_room_left_is_no_limited_one() -> None:
    cluster = Cluster.from_objects([make_node("n").capacity(cpu="2").obj(), make_node("m").capacity(cpu="2").obj()])
    both = [template("2").obj(), make_pod("o").req(cpu="3").obj()]
    assert not cluster.capacity(both, most=3).limited


def test_two_templates_of_one_name_are_refused() -> None:
    cluster = Cluster.from_objects([make_node("n").capacity(cpu="8").obj()])
    with pytest.raises(ConfigurationError, match="Pod default/t is given twice"):
        cluster.capacity([template().obj(), template("2").obj()])


@pytest.mark.parametrize("waiting", [template().obj() | {"metadata": {"name": "w"}}])
def test_pods_that_wait_take_no_room(waiting: Object) -> None:
    assert (
        Cluster.from_objects([make_node("n").capacity(cpu="2").obj(), waiting]).capacity([template().obj()]).total == 2
    )


def test_a_workload_of_the_cluster_is_a_template() -> None:
    web = make_pod("web-6d5f8-a").req(cpu="1").label({"pod-template-hash": "6d5f8"}).owner("ReplicaSet", "web-6d5f8")
    cluster = Cluster.from_objects([make_node("n").capacity(cpu="4").obj(), web.node("n").obj()])
    capacity = cluster.capacity(["default/deploy/web", make_pod("o").req(cpu="1").obj()], [2, 1])
    assert dict(capacity.pods) == {"default/deploy/web": 2, "Pod default/o": 1}
    with pytest.raises(UnknownPod, match="no Deployment default/db in this cluster"):
        cluster.capacity(["default/deploy/db"])


def test_a_workload_whose_pods_are_all_pending_is_a_template() -> None:
    waiting = make_pod("web-6d5f8-a").req(cpu="1").owner("ReplicaSet", "web-6d5f8").obj()
    cluster = Cluster.from_objects([make_node("n").capacity(cpu="4").obj(), waiting])
    assert cluster.capacity(["default/rs/web-6d5f8"]).total == 4


def test_more_replicas_of_a_stateful_set_get_claims_like_the_others() -> None:
    """The cluster lacks the StatefulSet itself, which has the template of the claims."""
    spec = {"persistentVolumeClaim": {"claimName": "data-db-0"}}
    pod = make_pod("db-0").req(cpu="1").owner("StatefulSet", "db").volume("data", spec).node("large").obj()
    claim = make_pvc("data-db-0", storage_class="local", storage="3Gi")
    capacity = Cluster.from_objects([*storage(), pod, claim]).capacity(["default/sts/db"])
    assert capacity.by_node == {"default/sts/db": {"large": 3, "small": 1}}
    (reason,) = capacity.exhausted["default/sts/db"]
    most = "the largest volume possible on these nodes is 1Gi"
    assert reason.detail == f"claim data-db-5 requests 3Gi of StorageClass local; {most}"


def daemon_set(cpu: str = "1") -> Object:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": make_pod("x").req(cpu=cpu).obj()["spec"]}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "agent"}, "spec": spec}


def test_a_daemon_set_has_one_pod_on_each_node_that_can_take_it() -> None:
    nodes = [make_node("large").capacity(cpu="8").obj(), make_node("small").capacity(cpu="500m").obj()]
    answer = Cluster.from_objects(nodes).capacity([daemon_set()])
    assert answer.by_node == {"DaemonSet default/agent": {"large": 1}}
    assert [(each.reason, each.nodes) for each in answer.exhausted["DaemonSet default/agent"]] == [
        ("Insufficient cpu", 1)
    ]


@pytest.mark.parametrize("daemons_first", [True, False])
def test_a_daemon_set_among_other_templates_still_has_one_pod_on_each_node(daemons_first: bool) -> None:
    nodes = [make_node("large").capacity(cpu="8").obj(), make_node("small").capacity(cpu="2").obj()]
    others = [template("2").obj(), make_pod("u").req(cpu="1").obj()]
    templates = [daemon_set(), *others] if daemons_first else [*others, daemon_set()]
    answer = Cluster.from_objects(nodes).capacity(templates)
    assert answer.pods == {"DaemonSet default/agent": 2, "Pod default/t": 2, "Pod default/u": 4}
    assert answer.by_node["DaemonSet default/agent"] == {"large": 1, "small": 1}
    assert list(answer.pods) == [*answer.by_node]


def test_a_daemon_set_and_one_template_are_counted_at_once() -> None:
    nodes = [make_node("large").capacity(cpu="8").obj(), make_node("small").capacity(cpu="2").obj()]
    answer = Cluster.from_objects(nodes).capacity([template("1").obj(), daemon_set("500m")])
    assert answer.by_node == {
        "Pod default/t": {"large": 7, "small": 1},
        "DaemonSet default/agent": {"large": 1, "small": 1},
    }

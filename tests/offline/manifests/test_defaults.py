"""Objects as an API server would have stored them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from extender.errors import MalformedCluster
from extender.model.kinds import KINDS
from extender.model.meta import Object
from extender.model.pod import Pod
from extender.snapshots.objects import CLUSTER_SCOPED, with_defaults
from tests.builders import make_namespace, make_node, make_pod, make_priority_class, make_service

NAMESPACED = {
    "Pod",
    "Service",
    "ReplicationController",
    "ReplicaSet",
    "StatefulSet",
    "PodDisruptionBudget",
    "PodGroup",
    "CompositePodGroup",
    "PersistentVolumeClaim",
    "CSIStorageCapacity",
    "ResourceClaim",
    "ResourceClaimTemplate",
}


def model(*objects: dict[str, Any]) -> list[Object]:
    return [msgspec.convert(obj, KINDS[obj["kind"]].type) for obj in objects]


def bare(obj: dict[str, Any]) -> dict[str, Any]:
    """As written by hand: no UID, no namespace."""
    return {
        **obj,
        "metadata": {key: obj["metadata"][key] for key in obj["metadata"] if key not in ("uid", "namespace")},
    }


def pod(*objects: dict[str, Any]) -> Pod:
    return next(obj for obj in with_defaults(model(*objects)) if isinstance(obj, Pod))


def test_every_kind_is_known_to_have_a_namespace_or_none() -> None:
    assert set(KINDS) <= CLUSTER_SCOPED | NAMESPACED
    assert not CLUSTER_SCOPED & NAMESPACED


def test_namespace_and_uid_get_defaults() -> None:
    node, web, *_ = with_defaults(model(bare(make_node("n").obj()), bare(make_pod("web").obj())))
    assert (node.namespace, node.uid, node.key) == ("", "n", "n")
    assert (web.namespace, web.uid, web.key) == ("default", "default/web", "default/web")


def test_defaults_do_not_replace_stated_values() -> None:
    given = make_pod("web", "shop").uid("u").priority(7).obj()
    web = pod(given, make_priority_class("high", 1000, globalDefault=True))
    assert (web.namespace, web.uid, web.priority) == ("shop", "u", 7)


def test_namespaces_that_objects_stand_in_exist() -> None:
    objects = with_defaults(
        model(make_pod("a", "shop").obj(), make_service("s", {"a": "b"}), make_namespace("shop", t="1"))
    )
    namespaces = {obj.name: dict(obj.labels) for obj in objects if type(obj).__name__ == "Namespace"}
    assert namespaces == {
        "shop": {"t": "1", "kubernetes.io/metadata.name": "shop"},
        "default": {"kubernetes.io/metadata.name": "default"},
    }


HIGH, LOW = make_priority_class("high", 1000, preemptionPolicy="Never"), make_priority_class("low", -5)
DEFAULT, OTHER_DEFAULT = (make_priority_class(f"d{v}", v, globalDefault=True) for v in (40, 50))


@pytest.mark.parametrize(
    ("named", "classes", "expected"),
    [
        pytest.param("high", [HIGH, LOW], (1000, "high", "Never"), id="by name"),
        pytest.param("low", [HIGH, LOW, DEFAULT], (-5, "low", None), id="by name, whatever the default"),
        pytest.param("", [HIGH, LOW], (0, "", None), id="no default"),
        pytest.param("", [HIGH, OTHER_DEFAULT, DEFAULT], (40, "d40", None), id="the lowest of several defaults"),
        pytest.param("system-node-critical", [], (2_000_001_000, "system-node-critical", None), id="built in"),
    ],
)
def test_priority(named: str, classes: list[dict[str, Any]], expected: tuple[int, str, str | None]) -> None:
    builder = make_pod("p").priority_class(named) if named else make_pod("p")
    spec = pod(builder.obj(), *classes).spec
    assert (spec.priority, spec.priority_class_name, spec.preemption_policy) == expected


def test_a_missing_priority_class_is_refused() -> None:
    with pytest.raises(MalformedCluster, match="pod default/p: no PriorityClass urgent"):
        pod(make_pod("p").priority_class("urgent").obj(), HIGH)


def test_limits_stand_in_for_requests() -> None:
    builder = make_pod("p").req(cpu="1").limit(cpu="2", memory="1Gi").init_container(cpu="3")
    container = pod(builder.obj()).containers[0]
    assert container.resources is not None
    assert container.resources.requests == {"cpu": "1", "memory": "1Gi"}


@pytest.mark.parametrize(("host_network", "expected"), [(True, [80, 9000]), (False, [0, 9000])])
def test_ports_on_the_nodes_network(host_network: bool, expected: list[int]) -> None:
    given = make_pod("p").obj()
    given["spec"]["hostNetwork"] = host_network
    given["spec"]["containers"][0]["ports"] = [{"containerPort": 80}, {"containerPort": 90, "hostPort": 9000}]
    assert [port.host_port for port in pod(given).containers[0].ports or ()] == expected

"""A redacted cluster is decided as the original, and with the key an answer can be translated back."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender import Cluster, Scenario
from extender.offline.manifests import files
from extender.offline.manifests.redaction import Redaction
from extender.offline.what_if.result import SimulationResult
from tests.builders import (
    Object,
    make_alternative,
    make_claim,
    make_device_class,
    make_node,
    make_pdb,
    make_pod,
    make_prioritized_list,
    make_pvc,
    make_resource_slice,
    make_result,
    make_storage_class,
    with_allocation,
)
from tests.conformance.answered import answered

EXAMPLE = Path(files.__file__).parents[1] / "example.yaml"
KEY = b"a key of more than 16 bytes"
OF_A_KIND = 3


def redacted(cluster: Cluster) -> Cluster:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "cluster.json"
        path.write_bytes(cluster.snapshot(redact=True, key=KEY))
        return Cluster.load(path)


def keys(cluster: Cluster) -> list[tuple[str, str]]:
    """The key of every pod, and the key that it has in the redacted cluster."""
    objects = list(cluster._state.every_object())
    redaction = Redaction(KEY)
    redaction.learn(objects)
    return [(key, redaction.text(key)) for key in cluster._state.infos]


def essence(answer: Object) -> Any:
    """The answer without what depends on the order of names: the choice among equals, and orders in texts."""
    changes = [(change["kind"], change["size"]) for change in answer.pop("changes")]
    del answer["waterfall"]
    return in_any_order({**answer, "changes": changes})


def in_any_order(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: in_any_order(inner) for key, inner in sorted(value.items())}
    if isinstance(value, list | tuple):
        return sorted((in_any_order(inner) for inner in value), key=json.dumps)
    return sorted(re.split("[ ,;]+", value)) if isinstance(value, str) else value


def assert_explained_alike(cluster: Cluster) -> None:
    other = redacted(cluster)
    for key, other_key in keys(cluster):
        answer = json.loads(cluster.translate(json.dumps(other.explain(other_key).to_dict()), KEY))
        assert essence(answer) == essence(json.loads(json.dumps(cluster.explain(key).to_dict()))), key


def placements(result: SimulationResult) -> dict[str, str]:
    return {each.pod: each.node for each in result.placements}


def test_every_pod_of_the_example_is_explained_as_before() -> None:
    assert_explained_alike(Cluster.load(EXAMPLE))


def clusters_of_every_kind() -> Iterator[tuple[str, Cluster]]:
    by_kind = itertools.groupby(answered(), key=lambda case: case["name"].rpartition("-")[0])
    for _, cases in by_kind:
        for case in itertools.islice(cases, OF_A_KIND):
            pod = {**case["pod"], "kind": "Pod", "apiVersion": "v1"}
            others = [each for each in case["cluster"]["items"] if identity(each) != identity(pod)]
            yield case["name"], Cluster.from_objects([*others, pod])


def identity(obj: Object) -> tuple[str, str]:
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


@pytest.mark.parametrize(("name", "cluster"), list(clusters_of_every_kind()), ids=lambda value: str(value)[:30])
def test_every_pod_of_a_cluster_of_every_kind_is_explained_as_before(name: str, cluster: Cluster) -> None:
    del name
    assert_explained_alike(cluster)


NODES = [make_node(name).zone(zone).capacity(cpu="4").obj() for name, zone in (("n-1", "a"), ("n-2", "b"))]
NAMES = ("a", "a-b", "b", "db-0", "0")


@st.composite
def clusters_with_composed_names(draw: Any) -> list[Object]:
    """Pods of StatefulSets and others, with claims that are named after them, some of which exist."""
    objects = [*NODES, make_storage_class("local")]
    for name, volume in sorted(draw(st.sets(st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES)), max_size=4))):
        pod_name = f"{name}-{draw(st.integers(0, 2))}"
        pod = make_pod(pod_name, volume)  # in a namespace of its own, so that no two claims have one name
        kind = draw(st.sampled_from(("StatefulSet", "ReplicaSet", "none")))
        if kind != "none":
            pod.owner(kind, name)
        if draw(st.booleans()):
            claim = f"{pod_name}-{volume}"
            spec = {"storageClassName": "local", "resources": {"requests": {"storage": "1Gi"}}}
            pod.volume(volume, {"ephemeral": {"volumeClaimTemplate": {"spec": spec}}})
        else:
            claim = f"{volume}-{pod_name}"
            pod.volume(volume, {"persistentVolumeClaim": {"claimName": claim}})
        if draw(st.booleans()):
            pvc = make_pvc(claim, namespace=volume, storage_class="local")
            if draw(st.booleans()):
                owner = {"apiVersion": "v1", "kind": "Pod", "name": pod_name, "uid": f"pod-{volume}-{pod_name}"}
                pvc["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
            objects.append(pvc)
        if draw(st.booleans()):
            pod.node(draw(st.sampled_from(("n-1", "n-2"))))
        objects.append(pod.obj())
    return objects


@settings(max_examples=60, deadline=None)
@given(clusters_with_composed_names())
def test_pods_with_claims_that_are_named_after_them_are_explained_and_placed_as_before(objects: list[Object]) -> None:
    cluster = Cluster.from_objects(objects)
    assert_explained_alike(cluster)
    before, after = cluster.simulate(), redacted(cluster).simulate()
    assert sorted(json.loads(cluster.translate(json.dumps(list(placements(after))), KEY))) == sorted(placements(before))


def test_the_replicas_of_a_stateful_set_are_scaled_as_before() -> None:
    template = make_pvc("data", storage_class="local")
    spec = {"volumeClaimTemplates": [template]}
    workload = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db", "namespace": "default"}}
    pod = make_pod("db-0").owner("StatefulSet", "db").label({"statefulset.kubernetes.io/pod-name": "db-0"}).node("n-1")
    pod.volume("data", {"persistentVolumeClaim": {"claimName": "data-db-0"}})
    claims = [make_pvc(f"data-db-{ordinal}", storage_class="local") for ordinal in (0, 2)]
    objects = [*NODES, make_storage_class("local"), {**workload, "spec": spec}, *claims, pod.obj()]
    cluster = Cluster.from_objects(objects)
    redaction = Redaction(KEY)
    redaction.learn(cluster._state.every_object())
    target = f"{redaction.text('default')}/sts/{redaction.text('db')}"
    result = redacted(cluster).simulate(Scenario(scale=[(target, 4)]))
    assert json.loads(cluster.translate(json.dumps(sorted(placements(result))), KEY)) == [
        "default/db-1",
        "default/db-2",
        "default/db-3",
    ]


def test_a_deployment_is_found_by_its_name() -> None:
    pod = make_pod("web-6d5f8-a").owner("ReplicaSet", "web-6d5f8").label({"pod-template-hash": "6d5f8"}).node("n-1")
    cluster = Cluster.from_objects([*NODES, pod.obj()])
    redaction = Redaction(KEY)
    target = f"{redaction.text('default')}/deploy/{redaction.text('web')}"
    assert len(redacted(cluster).simulate(Scenario(scale=[(target, 3)])).placements) == 2


def test_a_chosen_alternative_of_a_claim_is_named_by_two_parts() -> None:
    request = make_prioritized_list("gpu", make_alternative("large", "gpu"), make_alternative("small", "gpu"))
    constraint = {"requests": ["gpu/large"], "matchAttribute": "gpu.example.com/model"}
    claim = make_claim("c", request, constraints=[constraint])
    objects = [*NODES, make_device_class("gpu"), make_resource_slice("n-1", "gpu.example.com", "d0"), claim]
    assert_explained_alike(Cluster.from_objects([*objects, make_pod("p").resource_claim("c").obj()]))
    text = Cluster.from_objects(objects).snapshot(redact=True, key=KEY).decode()
    redaction = Redaction(KEY)
    assert f"{redaction.text('gpu')}/{redaction.text('large')}" in text
    taken = with_allocation(claim, make_result("n-1", "d0", request="gpu/large"))
    assert_explained_alike(Cluster.from_objects([*objects[:-1], taken, make_pod("p").resource_claim("c").obj()]))


def test_pods_that_a_budget_counts_as_disrupted_are_found_again() -> None:
    budget = make_pdb("b", {"app": "web"})
    budget["status"] = {"disruptionsAllowed": 0, "disruptedPods": {"web": "2026-01-01T00:00:00Z"}}
    victim = make_pod("web").label(app="web").req(cpu="4").priority(0).node("n-1").obj()
    urgent = make_pod("urgent").req(cpu="4").priority(10).obj()
    cluster = Cluster.from_objects([NODES[0], budget, victim, urgent])
    assert "web" not in cluster.snapshot(redact=True).decode()
    assert_explained_alike(cluster)


def test_a_limit_range_keeps_its_quantities() -> None:
    limits = [{"type": "Container", "max": {"cpu": "1500m"}, "min": {"cpu": "100m"}, "default": {"cpu": "1500m"}}]
    limit_range = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "l", "namespace": "default"}}
    cluster = Cluster.from_objects([*NODES, {**limit_range, "spec": {"limits": limits}}])
    other = redacted(cluster)
    pod = make_pod("p").req(cpu="1").obj()
    assert cluster.capacity([pod]).total == 8
    pod["metadata"]["namespace"] = Redaction(KEY).text("default")
    assert other.capacity([pod]).total == 8


def test_one_key_gives_the_same_hashes_each_time_and_another_key_others() -> None:
    cluster = Cluster.load(EXAMPLE)
    assert cluster.snapshot(redact=True, key=KEY) == cluster.snapshot(redact=True, key=KEY)
    assert cluster.snapshot(redact=True, key=KEY) != cluster.snapshot(redact=True, key=KEY + b"2")


def test_a_translated_table_stays_aligned_unless_a_name_is_longer_than_its_column() -> None:
    cluster, redaction = Cluster.load(EXAMPLE), Redaction(KEY)
    shop, node, long = (redaction.text(each) for each in ("shop", "gpu-a1", "registry.example.com/web:1.14.2"))
    answer = f"NAMESPACE      NODE           CPU\n{shop}  {node}  1\nother          {long}  2\n"
    assert cluster.translate(answer, KEY).splitlines()[:2] == [
        "NAMESPACE      NODE           CPU",
        "shop           gpu-a1         1",
    ]


def test_without_the_right_key_nothing_is_translated() -> None:
    cluster = Cluster.load(EXAMPLE)
    answer = cluster.snapshot(redact=True, key=KEY).decode()
    assert cluster.translate(answer, KEY + b"2") == answer
    assert "general-a1" in cluster.translate(answer, KEY)

"""A redacted cluster is decided as the original, and with the key an answer can be translated back."""

from __future__ import annotations

import itertools
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import inspect

from extender import Cluster, Scenario
from extender.model.redaction import Redaction
from extender.offline.what_if.result import SimulationResult
from extender.snapshots import files
from extender.snapshots.objects import READ_KINDS
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
from tests.conformance.cases import KINDS, named

EXAMPLE = Path(files.__file__).parents[1] / "offline/example.yaml"
KEY = b"a key of more than 16 bytes"
OF_A_KIND = 2
SEED = int(os.environ.get("SEED", "1"))
CASES = int(os.environ.get("REDACTED_CASES", "12"))


def redacted(cluster: Cluster) -> Cluster:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "cluster.json"
        path.write_bytes(cluster.snapshot(redact=True, key=KEY))
        return Cluster.load(path)


def redaction_of(cluster: Cluster) -> Redaction:
    """The redaction that `redacted` uses."""
    redaction = Redaction(KEY)
    redaction.keep_order([obj for obj in cluster._state.every_object() if type(obj).__name__ in READ_KINDS])
    return redaction


def keys(cluster: Cluster) -> list[tuple[str, str]]:
    """The key of every pod, and the key that it has in the redacted cluster."""
    redaction = redaction_of(cluster)
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


def decision(answer: Object) -> Object:
    """What is decided, with all orders and the choice among equals; only the prose of suggestions is left out."""
    return {key: answer[key] for key in ("fits", "message", "feasible", "best", "nodes", "total", "preemption")}


def assert_decided_alike(cluster: Cluster) -> None:
    other = redacted(cluster)
    for key, other_key in keys(cluster):
        answer = json.loads(cluster.translate(json.dumps(other.explain(other_key).to_dict(changes=False)), KEY))
        expected = json.loads(json.dumps(cluster.explain(key).to_dict(changes=False)))
        assert decision(answer) == decision(expected), key


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


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(CASES))
def test_decisions_about_generated_clusters_are_equal_with_all_orders(seed: int) -> None:
    case = named(KINDS[seed % len(KINDS)], 1, SEED + seed)[0]
    pod = {**case["pod"], "kind": "Pod", "apiVersion": "v1"}
    others = [each for each in case["cluster"]["items"] if identity(each) != identity(pod)]
    cluster = Cluster.from_objects([*others, pod])
    assert_decided_alike(cluster)


@pytest.mark.thorough
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


@settings(max_examples=25)
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
    redaction = redaction_of(cluster)
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
    redaction = redaction_of(cluster)
    target = f"{redaction.text('default')}/deploy/{redaction.text('web')}"
    assert len(redacted(cluster).simulate(Scenario(scale=[(target, 3)])).placements) == 2


def test_a_chosen_alternative_of_a_claim_is_named_by_two_parts() -> None:
    request = make_prioritized_list("gpu", make_alternative("large", "gpu"), make_alternative("small", "gpu"))
    constraint = {"requests": ["gpu/large"], "matchAttribute": "gpu.example.com/model"}
    claim = make_claim("c", request, constraints=[constraint])
    objects = [*NODES, make_device_class("gpu"), make_resource_slice("n-1", "gpu.example.com", "d0"), claim]
    assert_explained_alike(Cluster.from_objects([*objects, make_pod("p").resource_claim("c").obj()]))
    cluster = Cluster.from_objects(objects)
    text = cluster.snapshot(redact=True, key=KEY).decode()
    redaction = redaction_of(cluster)
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
    pod["metadata"]["namespace"] = redaction_of(cluster).text("default")
    assert other.capacity([pod]).total == 8


def test_one_key_gives_the_same_hashes_each_time_and_another_key_others() -> None:
    cluster = Cluster.load(EXAMPLE)
    assert cluster.snapshot(redact=True, key=KEY) == cluster.snapshot(redact=True, key=KEY)
    assert cluster.snapshot(redact=True, key=KEY) != cluster.snapshot(redact=True, key=KEY + b"2")


def test_a_translated_table_stays_aligned_unless_a_name_is_longer_than_its_column() -> None:
    cluster = Cluster.load(EXAMPLE)
    redaction = redaction_of(cluster)
    shop, node, long = (redaction.text(each) for each in ("shop", "gpu-a1", "registry.example.com/web:1.14.2"))
    heading = f"{'NAMESPACE':{len(shop)}}  {'NODE':{len(node)}}  CPU"
    answer = f"{heading}\n{shop}  {node}  1\n{'other':{len(shop)}}  {long}  2\n"
    assert cluster.translate(answer, KEY).splitlines()[:2] == [
        heading,
        f"{'shop':{len(shop)}}  {'gpu-a1':{len(node)}}  1",
    ]


def test_without_the_right_key_nothing_is_translated() -> None:
    cluster = Cluster.load(EXAMPLE)
    answer = cluster.snapshot(redact=True, key=KEY).decode()
    assert cluster.translate(answer, KEY + b"2") == answer
    assert "general-a1" in cluster.translate(answer, KEY)


def test_names_inside_keys_are_hashed_and_still_meet() -> None:
    """A pod that asks for a class through a key, and nodes whose domain is a company's, are decided as before."""
    node = make_node("n-1").label({"acme.corp/tier": "gold"}).capacity({"cpu": "4", "acme.corp/fpga": "2"}).obj()
    node["spec"]["taints"] = [{"key": "acme.corp/lab", "value": "secret-lab", "effect": "NoSchedule"}]
    device_class = make_device_class("acme-gpu")
    pod = make_pod("p").req({"acme.corp/fpga": "1", "deviceclass.resource.kubernetes.io/acme-gpu": "1"})
    pod.node_selector({"acme.corp/tier": "gold"}).toleration("acme.corp/lab")
    slices = make_resource_slice("n-1", "gpu.example.com", "d0")
    cluster = Cluster.from_objects([node, device_class, slices, pod.obj()])
    text = cluster.snapshot(redact=True, key=KEY).decode()
    assert "acme" not in text
    assert "secret-lab" not in text
    assert f"deviceclass.resource.kubernetes.io/{redaction_of(cluster).text('acme-gpu')}" in text
    assert_explained_alike(cluster)


def test_decisions_that_depend_on_the_order_of_names_stay_the_same() -> None:
    """Of two equal victims, and of two equal pools, the name decides; random hashes would change half of them."""
    for number in range(8):
        names = [f"{letter}{number}" for letter in "dacb"]
        nodes = [make_node(name).zone(f"z-{name}").capacity(cpu="4").obj() for name in names]
        victims = [make_pod(f"{letter}-{name}").req(cpu="2").node(name).obj() for name in names for letter in "wv"]
        urgent = make_pod("urgent").req(cpu="2").priority(10).obj()
        cluster = Cluster.from_objects([*nodes, *victims, urgent])
        assert cluster.explain("default/urgent").to_dict()["preemption"]["nominatedNode"]
        assert_decided_alike(cluster)


MARKER = "marker"
SURVIVORS = {
    "words of the API, which the code compares": """
        azureDisk.kind conditions.reason conditions.status containers.restartPolicy ephemeralContainers.restartPolicy
        initContainers.restartPolicy restartPolicyRules.action exactly.allocationMode firstAvailable.allocationMode
        matchExpressions.operator matchFields.operator ports.protocol preemptionPolicy spec.preemptionPolicy
        onPodConditions.status reservedFor.apiGroup reservedFor.resource rules.action spec.accessModes
        spec.completionMode spec.podReplacementPolicy
        spec.unhealthyPodEvictionPolicy spec.volumeMode status.declaredFeatures status.phase taint.effect taints.effect
        tolerations.effect tolerations.operator topologySpreadConstraints.nodeAffinityPolicy
        topologySpreadConstraints.nodeTaintsPolicy topologySpreadConstraints.whenUnsatisfiable volumeBindingMode
        volumeMounts.bindMountOptions podCertificate.keyType waiting.reason""",
    "numbers, quantities, times and versions": """
        metadata.resourceVersion allocatable.KEY allocatedResources.KEY capacity capacity.KEY default.KEY
        defaultRequest.KEY limits.KEY max.KEY maxLimitRequestRatio.KEY maximumVolumeSize min.KEY overhead.KEY
        podFixed.KEY requests.KEY disruptedPods.KEY status.failedIndexes""",
    "names of drivers and provisioners, which are products": """
        csi.driver deviceSelector.driver devices.driver drivers.name metadata.name provisioner results.driver
        spec.attacher spec.driver""",
    "what selectors of devices compare, and CEL is not rewritten": """
        KEY.string KEY.value KEY.version attributes.KEY_itself capacity.KEY_itself cel.expression
        constraints.distinctAttribute constraints.matchAttribute consumedCapacity.KEY consumedCapacity.KEY_itself
        consumesCounters.compatibilityGroups consumesCounters.counterSet counters.KEY_itself requestPolicy.default
        requestPolicy.validValues requests.KEY_itself sharedCounters.name validRange.max validRange.min
        validRange.step""",
    "a policy chooses its profile by it": "spec.schedulerName",
    "a field of a claim template, which the marker test writes as if it were a map": "ephemeral.KEY_itself",
}


def filled(type_: inspect.Type) -> Any:
    """A JSON value of this type in which every string and every key of a map is a marker with a company's domain."""
    match type_:
        case inspect.StructType() | inspect.TypedDictType():
            return {each.encode_name: filled(each.type) for each in type_.fields}
        case inspect.UnionType():
            return filled(next(each for each in type_.types if not isinstance(each, inspect.NoneType)))
        case inspect.ListType() | inspect.VarTupleType():
            return [filled(type_.item_type)]
        case inspect.DictType():
            return {f"{MARKER}.corp/{MARKER}": filled(type_.value_type)}
        case inspect.StrType() | inspect.AnyType():
            return f"{MARKER}.corp/{MARKER}"
        case inspect.DateTimeType():
            return "2026-01-01T00:00:00Z"
        case inspect.BoolType():
            return True
    assert isinstance(type_, inspect.IntType), type_
    return 1


def survivors(value: Any, path: tuple[str, ...] = ()) -> Iterator[str]:
    """The last two fields of the path to each marker, where KEY is a key of a map."""
    if isinstance(value, dict):
        for key, inner in value.items():
            own = (*path, "KEY" if "/" in key else key)
            if MARKER in key:
                yield ".".join(own[-2:]) + "_itself"
            yield from survivors(inner, own)
    elif isinstance(value, list):
        for inner in value:
            yield from survivors(inner, path)
    elif isinstance(value, str) and MARKER in value:
        yield ".".join(path[-2:])


def test_of_every_string_and_key_of_every_kind_only_the_listed_ones_survive() -> None:
    found: set[str] = set()
    for kind in READ_KINDS.values():
        obj = msgspec.convert(filled(inspect.type_info(kind.type)), kind.type)
        found.update(survivors(Redaction(KEY).redact(obj)))
    assert found == {path for paths in SURVIVORS.values() for path in paths.split()}

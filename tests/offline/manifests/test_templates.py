"""Objects that have a pod template."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from extender import Cluster
from extender.errors import MalformedCluster
from extender.offline.manifests.templates import read_workloads
from tests.builders import make_namespace, make_node, make_pod

SPEC = make_pod("p").req(cpu="1").obj()["spec"]
TEMPLATE = {"metadata": {"labels": {"app": "web"}}, "spec": SPEC}


JOB_TEMPLATE = {**TEMPLATE, "spec": {**SPEC, "restartPolicy": "Never"}}
SELECTOR = {"matchLabels": {"app": "web"}}


def workload(kind: str, **spec: Any) -> dict[str, Any]:
    if kind in ("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet"):
        spec = {"selector": SELECTOR, **spec}
    versions = {
        "ReplicationController": "v1",
        "Job": "batch/v1",
        "CronJob": "batch/v1",
        "Rollout": "argoproj.io/v1alpha1",
    }
    api_version = versions.get(kind, "apps/v1")
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": "web", "namespace": "shop"}, "spec": spec}


def read(*objects: Any) -> Any:
    return read_workloads(yaml.safe_dump_all(objects).encode(), "app.yaml", "default")


def test_a_generated_name_is_as_the_api_server_makes_it() -> None:
    def names(*prefixes: str) -> list[str]:
        pods = [make_pod("").obj() | {"metadata": {"generateName": prefix}} for prefix in prefixes]
        return [found.manifest["metadata"]["name"] for found in read(*pods)]

    first, second, long = names("web-", "web-", "a" * 253)
    assert [first, second, long] == names("web-", "web-", "a" * 253)
    assert first != second
    assert re.fullmatch("web-[bcdfghjklmnpqrstvwxz2456789]{5}", first)
    assert re.fullmatch("a{58}[bcdfghjklmnpqrstvwxz2456789]{5}", long)


def test_a_job_with_a_generated_name_passes_it_to_its_pods() -> None:
    job = workload("Job", template=JOB_TEMPLATE) | {"metadata": {"generateName": "web-", "namespace": "shop"}}
    (found,) = read(job)
    name = found.manifest["metadata"]["name"]
    assert found.source == f"Job shop/{name}"
    assert found.manifest["metadata"]["labels"]["job-name"] == name


@pytest.mark.parametrize(
    ("obj", "replicas"),
    [
        pytest.param(workload("Deployment", replicas=3, template=TEMPLATE), 3, id="Deployment"),
        pytest.param(workload("ReplicaSet", replicas=2, template=TEMPLATE), 2, id="ReplicaSet"),
        pytest.param(workload("StatefulSet", template=TEMPLATE), 1, id="StatefulSet"),
        pytest.param(workload("ReplicationController", replicas=4, template=TEMPLATE), 4, id="ReplicationController"),
        pytest.param(workload("DaemonSet", template=TEMPLATE), None, id="DaemonSet"),
        pytest.param(workload("Job", parallelism=5, template=JOB_TEMPLATE), 5, id="Job"),
        pytest.param(
            workload("CronJob", schedule="@daily", jobTemplate={"spec": {"template": JOB_TEMPLATE}}), 1, id="CronJob"
        ),
        pytest.param(workload("Rollout", replicas=6, template=TEMPLATE), 6, id="an unknown kind"),
    ],
)
def test_every_kind_with_a_template_gives_its_pod(obj: dict[str, Any], replicas: int | None) -> None:
    (found,) = read(obj)
    assert found.source == f"{obj['kind']} shop/web"
    assert found.replicas == replicas
    assert found.manifest["metadata"]["labels"]["app"] == "web"
    assert Cluster.from_objects([make_node("n").obj()]).explain(found.manifest).fits


def test_replicas_have_names_of_their_own() -> None:
    (found,) = read(workload("Deployment", template=TEMPLATE))
    assert found.names(3) == ["web-0", "web-1", "web-2"]


def test_daemon_pods_get_the_tolerations_of_their_controller() -> None:
    cluster = Cluster.from_objects([make_node("n").unschedulable().taint("node.kubernetes.io/unschedulable").obj()])
    (found,) = read(workload("DaemonSet", template=TEMPLATE))
    assert cluster.explain(found.manifest).fits


def test_objects_without_pods_are_passed_over() -> None:
    documents = [
        make_namespace("shop"),
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}},
        make_pod("p").obj(),
    ]
    (found,) = read(*documents)
    assert found.source == "Pod default/p"
    assert found.notes == ["app.yaml: left out, because they are neither pods nor what pods need: 1 ConfigMap"]


@pytest.mark.parametrize(
    ("objects", "fault"),
    [
        pytest.param(
            [make_namespace("n")], "app.yaml: expected a Pod or an object with a pod template, got Namespace", id="none"
        ),
        pytest.param([], "got nothing", id="nothing"),
        pytest.param([3], "app.yaml: expected an object", id="a number"),
        pytest.param(
            [workload("Deployment", template={"spec": {"nodeselector": {}}})],
            "spec.template.spec.nodeselector",
            id="fault",
        ),
        pytest.param(
            [workload("Deployment", template={"spec": 7})],
            "spec.template.spec: expected a mapping, got 7",
            id="a spec of 7",
        ),
        pytest.param(
            [workload("Rollout", template={"spec": 7})], "expected a Pod or an object", id="of another kind, 7"
        ),
        pytest.param(
            [workload("Rollout", template={"spec": {"containers": {}}})],
            "spec.template.spec.containers: expected a list",
            id="of another kind",
        ),
        pytest.param(
            [make_pod("a").obj(), {"apiVersion": "v1", "kind": "Pod", "spec": {}}],
            "document 2: metadata.name is missing",
            id="no name",
        ),
        pytest.param(
            [workload("Deployment", template="text")],
            "spec.template: expected a mapping, got 'text'",
            id="text as template",
        ),
        pytest.param(
            [{"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "metadata": "text"}, make_pod("p").obj()],
            "document 1: metadata: expected a mapping, got 'text'",
            id="text as metadata of a group",
        ),
    ],
)
def test_faults_are_named(objects: list[Any], fault: str) -> None:
    with pytest.raises(MalformedCluster) as caught:
        read(*objects)
    assert fault in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_storage_of_a_claim_may_be_a_number() -> None:
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": 2**30}}}
    templates = [{"metadata": {"name": "data"}, "spec": claim}]
    (found,) = read(workload("StatefulSet", template=TEMPLATE, volumeClaimTemplates=templates))
    assert found.source == "StatefulSet shop/web"

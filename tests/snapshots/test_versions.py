"""Objects are read by group, version and kind: older versions are converted, others are left out or refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from extender import Cluster
from extender.errors import MalformedCluster
from extender.model.storage import PersistentVolumeClaim
from extender.model.workloads import PodDisruptionBudget
from extender.offline.claims import admit_new
from extender.offline.manifests.templates import read_workloads
from extender.offline.what_if.scenario import Scenario
from extender.snapshots.files import read_snapshot
from tests.builders import make_node, make_pod

Object = dict[str, Any]
NODE = make_node("n").capacity(cpu="4", memory="8Gi", pods="9").obj()


def obj(api_version: str, kind: str, name: str = "x", **fields: Any) -> Object:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, **fields}


def written(folder: Path, *documents: Any, form: str = "yaml") -> Path:
    path = folder / f"cluster.{form}"
    listed = {"apiVersion": "v1", "kind": "List", "items": [*documents]}
    path.write_text(yaml.safe_dump_all(documents) if form == "yaml" else json.dumps(listed))
    return path


def read_one(folder: Path, document: Object, form: str) -> Any:
    objects = read_snapshot(written(folder, document, form=form)).objects
    return next((each for each in objects if type(each).__name__ == document["kind"]), None)


SLICE = {"driver": "d", "nodeName": "n", "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1}}
BASIC = {"name": "gpu", "basic": {"attributes": {"model": {"string": "big"}}, "capacity": {"memory": {"value": "1Gi"}}}}
REQUEST = {"name": "r", "deviceClassName": "c", "count": 2, "selectors": [{"cel": {"expression": "true"}}]}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
EITHER = {"name": "e", "firstAvailable": [{"name": "a", "deviceClassName": "c"}]}


@pytest.mark.parametrize("form", ["yaml", "json"])
@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param(
            obj("resource.k8s.io/v1beta1", "ResourceSlice", spec={**SLICE, "devices": [BASIC]}),
            obj("resource.k8s.io/v1", "ResourceSlice", spec={**SLICE, "devices": [{"name": "gpu", **BASIC["basic"]}]}),  # type: ignore[dict-item]  # the value is a dict
            id="slice of v1beta1",
        ),
        pytest.param(
            obj("resource.k8s.io/v1beta1", "ResourceClaim", spec={"devices": {"requests": [REQUEST, EITHER]}}),
            obj(
                "resource.k8s.io/v1",
                "ResourceClaim",
                spec={
                    "devices": {
                        "requests": [
                            {"name": "r", "exactly": {key: REQUEST[key] for key in REQUEST if key != "name"}},
                            EITHER,
                        ]
                    }
                },
            ),
            id="claim of v1beta1",
        ),
        pytest.param(
            obj("resource.k8s.io/v1beta2", "DeviceClass", spec={"extendedResourceName": "example.com/gpu"}),
            obj("resource.k8s.io/v1", "DeviceClass", spec={"extendedResourceName": "example.com/gpu"}),
            id="class of v1beta2",
        ),
        pytest.param(
            obj("scheduling.k8s.io/v1alpha3", "PodGroup", spec={"schedulingPolicy": {"gang": {"minCount": 3}}}),
            obj("scheduling.k8s.io/v1beta1", "PodGroup", spec={"schedulingPolicy": {"gang": {"minCount": 3}}}),
            id="group of v1alpha3",
        ),
        pytest.param(
            obj("scheduling.k8s.io/v1alpha3", "CompositePodGroup", spec={"schedulingPolicy": {"basic": {}}}),
            obj("scheduling.k8s.io/v1beta1", "CompositePodGroup", spec={"schedulingPolicy": {"basic": {}}}),
            id="composite group of v1alpha3",
        ),
        pytest.param(
            obj("storage.k8s.io/v1beta1", "CSIStorageCapacity", storageClassName="s", capacity="1Gi"),
            obj("storage.k8s.io/v1", "CSIStorageCapacity", storageClassName="s", capacity="1Gi"),
            id="capacity of v1beta1",
        ),
        pytest.param(
            obj("node.k8s.io/v1alpha1", "RuntimeClass", spec={"overhead": {"podFixed": {"cpu": "1"}}}),
            obj("node.k8s.io/v1", "RuntimeClass", overhead={"podFixed": {"cpu": "1"}}),
            id="runtime of v1alpha1",
        ),
        pytest.param(
            obj(
                "v1", "Pod", spec={"containers": None, "schedulerName": None, "nodeSelector": {"a": None}}, status=None
            ),
            obj("v1", "Pod", spec={"nodeSelector": {"a": ""}}),
            id="nulls",
        ),
        pytest.param(
            obj("v1", "Node", spec=None, status={"allocatable": {"cpu": None}, "images": None}),
            obj("v1", "Node", status={"allocatable": {"cpu": 0}}),
            id="nulls in a node",
        ),
        pytest.param(
            obj("v1", "Node", status={"conditions": [None], "images": [None, {"names": [None], "sizeBytes": 1}]}),
            obj("v1", "Node", status={"conditions": [{}], "images": [{}, {"names": [""], "sizeBytes": 1}]}),
            id="nulls in lists of a node",
        ),
        pytest.param(
            obj("v1", "Pod", spec={"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [None]}}}}),
            obj("v1", "Pod", spec={"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{}]}}}}),
            id="null among the terms of a node affinity",
        ),
    ],
)
def test_an_older_version_is_read_as_the_new_one(tmp_path: Path, old: Object, new: Object, form: str) -> None:
    assert read_one(tmp_path, old, form) == read_one(tmp_path, new, form)
    assert read_one(tmp_path, new, form) is not None


@pytest.mark.parametrize(
    ("selector", "matches"),
    [({}, False), ({"matchLabels": {"app": "web"}}, True), (None, False)],
    ids=["an empty one", "a label", "none"],
)
def test_an_empty_selector_of_an_old_budget_selects_no_pod(
    tmp_path: Path, selector: Object | None, matches: bool
) -> None:
    budget = obj("policy/v1beta1", "PodDisruptionBudget", spec={"selector": selector, "minAvailable": 1})
    pod = make_pod("p").label(app="web").node("n").obj()
    cluster = Cluster.load(written(tmp_path, NODE, pod, budget))
    state = cluster._state
    assert len(state.objects.all(PodDisruptionBudget)) == 1
    assert bool(state.budgets_of(state.info("default/p"))) is matches


@pytest.mark.parametrize("form", ["yaml", "json"])
def test_what_has_another_version_or_group_is_left_out_with_one_note_per_kind(tmp_path: Path, form: str) -> None:
    others = [
        obj("resource.k8s.io/v1alpha3", "ResourceSlice", "a"),
        obj("resource.k8s.io/v1alpha3", "ResourceSlice", "b"),
        obj("scheduling.volcano.sh/v1beta1", "PodGroup", spec={"minMember": 3}),
        obj("scheduling.k8s.io/v1alpha2", "PodGroup"),
        obj("v1", "ConfigMap"),
    ]
    notes: list[str] = []
    objects = read_snapshot(written(tmp_path, NODE, *others, form=form), notes=notes).objects
    assert [each.name for each in objects] == ["n"]
    assert notes == [
        "2 ResourceSlice of resource.k8s.io/v1alpha3 left out: only resource.k8s.io/v1 and what converts to it is read",
        "1 PodGroup of scheduling.volcano.sh/v1beta1 left out: only scheduling.k8s.io/v1beta1 and what converts to it "
        "is read",
        "1 PodGroup of scheduling.k8s.io/v1alpha2 left out: only scheduling.k8s.io/v1beta1 and what converts to it is "
        "read",
    ]


@pytest.mark.parametrize("form", ["yaml", "json"])
def test_an_object_without_a_version_is_refused(tmp_path: Path, form: str) -> None:
    document = {"kind": "Pod", "metadata": {"name": "p"}}
    with pytest.raises(MalformedCluster, match="apiVersion is missing; expected v1 for a Pod"):
        read_snapshot(written(tmp_path, NODE, document, form=form))


def test_files_of_a_folder_that_hold_no_objects_are_left_out_with_one_note(tmp_path: Path) -> None:
    (tmp_path / "Chart.yaml").write_text("apiVersion: v2\nname: shop\nversion: 1.0.0\n")
    (tmp_path / "values.yaml").write_text("replicas: 3\n")
    (tmp_path / "empty.yaml").write_text("# nothing\n")
    (tmp_path / "kustomization.yaml").write_text("resources: [cluster.yaml]\n")
    (tmp_path / "dashboard.json").write_text('{"panels": [{"kind": "graph"}]}')
    (tmp_path / "patch.json").write_text('[{"op": "remove", "path": "/spec"}]')
    written(tmp_path, NODE)
    notes: list[str] = []
    assert [each.name for each in read_snapshot(tmp_path, notes=notes).objects] == ["n"]
    named = "Chart.yaml, dashboard.json, empty.yaml, kustomization.yaml, patch.json, values.yaml"
    assert notes == [f"left out, because they hold no objects: {named}"]


def test_templates_of_a_chart_are_left_out_with_one_note(tmp_path: Path) -> None:
    (tmp_path / "Chart.yaml").write_text("apiVersion: v2\nname: shop\nversion: 1.0.0\n")
    (tmp_path / "templates" / "tests").mkdir(parents=True)
    (tmp_path / "templates" / "web.yaml").write_text("{{ if .Values.web }}\nkind: Pod\nname: {{ .Release.Name }}: x\n")
    (tmp_path / "templates" / "tests" / "ready.yaml").write_text('{{ include "shop" . }}\n')
    written(tmp_path, NODE)
    notes: list[str] = []
    assert [each.name for each in read_snapshot(tmp_path, notes=notes).objects] == ["n"]
    assert notes[-1] == (
        "left out, because `helm template` must render them first: templates/tests/ready.yaml, templates/web.yaml"
    )


def manifest(*documents: Object) -> bytes:
    return yaml.safe_dump_all(documents).encode()


TEMPLATE = {"spec": {"containers": [{"name": "c", "image": "i"}]}}


@pytest.mark.parametrize(
    ("document", "fault"),
    [
        pytest.param(
            obj("apps/v1beta1", "Deployment"), 'no matches for kind "Deployment" in version "apps/v1beta1"', id="old"
        ),
        pytest.param(
            obj("extensions/v1beta1", "DaemonSet"), 'kind "DaemonSet" in version "extensions/v1beta1"', id="old group"
        ),
        pytest.param(obj("v1", "Deployment"), 'kind "Deployment" in version "v1"', id="wrong group"),
        pytest.param(obj("apps/v2", "StatefulSet"), 'kind "StatefulSet" in version "apps/v2"', id="unborn"),
        pytest.param(
            obj("policy/v1beta1", "PodDisruptionBudget"),
            'in version "policy/v1beta1"',
            id="a companion that is retired",
        ),
        pytest.param(obj("", "Pod"), "apiVersion is missing", id="none"),
        pytest.param(obj("v1", ""), "kind is missing, so kubectl would refuse the file", id="no kind"),
        pytest.param(
            obj("v1", "pod"), 'no matches for kind "pod" in version "v1" (did you mean Pod?)', id="a kind in lower case"
        ),
        pytest.param(
            obj("apps/v1", "Deploymnet", spec={"template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}),
            'no matches for kind "Deploymnet" in version "apps/v1" (did you mean Deployment?)',
            id="a misspelt kind",
        ),
    ],
)
def test_a_version_that_kubectl_refuses_is_refused_in_its_words(document: Object, fault: str) -> None:
    with pytest.raises(MalformedCluster) as caught:
        read_workloads(manifest(document), "app.yaml")
    assert fault in str(caught.value)


def test_a_kind_of_another_group_is_not_kubernetes_own() -> None:
    job = obj("batch.volcano.sh/v1alpha1", "Job", spec={"tasks": [{"template": TEMPLATE}]})
    kruise = obj("apps.kruise.io/v1beta1", "StatefulSet", spec={"replicas": 2, "template": TEMPLATE})
    (workload,) = read_workloads(manifest(job, kruise), "app.yaml")
    assert (workload.source, workload.replicas, workload.owner) == ("StatefulSet.apps.kruise.io default/x", 2, None)
    assert workload.notes == [
        "app.yaml: left out, because they are neither pods nor what pods need: 1 Job.batch.volcano.sh"
    ]


def test_a_group_below_k8s_io_may_be_foreign_too() -> None:
    groups = [obj(f"scheduling.{project}.k8s.io/v1alpha1", "PodGroup") for project in ("sigs", "incubator")]
    (workload,) = read_workloads(manifest(*groups, obj("v1", "Pod", spec=TEMPLATE["spec"])), "app.yaml")
    assert workload.companions == []
    assert workload.notes == [
        "app.yaml: left out, because they are neither pods nor what pods need: "
        "1 PodGroup.scheduling.sigs.k8s.io, 1 PodGroup.scheduling.incubator.k8s.io"
    ]


def test_a_custom_kind_may_add_fields_to_its_template_and_name_the_containers() -> None:
    spec = {"containerConcurrency": 3, "nodeSelector": {"a": "b"}, "containers": [{"image": "i"}]}
    service = obj("serving.knative.dev/v1", "Service", spec={"template": {"spec": spec}})
    (workload,) = read_workloads(manifest(service), "app.yaml")
    assert workload.source == "Service.serving.knative.dev default/x"
    assert workload.manifest["spec"] == {
        "nodeSelector": {"a": "b"}, "containers": [{"name": "container-0", "image": "i"}]
    }  # fmt: skip
    assert workload.notes == [
        "app.yaml: spec.template.spec: left out, because pods have no such fields: containerConcurrency"
    ]


STORAGE = [
    obj("v1", "PersistentVolumeClaim", "claim", spec={
        "storageClassName": "manual", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "3Gi"}},
    }),
    obj("v1", "PersistentVolume", "large", spec={
        "storageClassName": "manual", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "50Gi"},
    }),
    obj("v1", "PersistentVolume", "small", spec={
        "storageClassName": "manual", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "10Gi"},
    }),
]  # fmt: skip


def test_a_pod_is_placed_with_what_its_file_brings(tmp_path: Path) -> None:
    pod = obj("v1", "Pod", "p", spec={
        "priorityClassName": "high",
        "containers": [{"name": "c", "image": "i", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}],
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "claim"}}],
    })  # fmt: skip
    brought = [obj("scheduling.k8s.io/v1", "PriorityClass", "high", value=7), *STORAGE]
    cluster = Cluster.load(written(tmp_path, NODE))
    (workload,) = read_workloads(manifest(pod, *brought), "app.yaml")
    result = cluster.simulate(Scenario(create=[(workload, None)]))
    assert [(each.pod, each.node) for each in result.placements] == [("default/p", "n")]
    state, new = admit_new(cluster._state, workload)
    claim = state.objects.get(PersistentVolumeClaim, "default/claim")
    assert claim is not None
    assert (claim.spec.volume_name, new.pod.spec.priority) == ("small", 7)
    assert cluster._state.objects.get(PersistentVolumeClaim, "default/claim") is None

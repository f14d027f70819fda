"""Classic predicates that no plugin has now: labels, service affinity, node conditions, volume counts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from extender.framework.rules import Check
from extender.framework.status import unresolvable, unschedulable
from extender.model.pod_volumes import AWS_EBS
from extender.plugins.classic import CheckNodeCondition, MaxVolumeCount, NodeLabelFilter, NodePressure, ServiceAffinity
from extender.table import HypotheticalRemovals
from tests.builders import NodeBuilder, Object, PodBuilder, make_node, make_pod, make_service
from tests.framework.cluster import pod_info, refusals, table_of

POD = make_pod("p").obj()


@pytest.mark.parametrize(
    ("labels", "presence", "refused"),
    [
        pytest.param(("rack",), True, {"bare", "retiring"}, id="must be there"),
        pytest.param(("retiring",), False, {"retiring", "both"}, id="must not be there"),
        pytest.param(("rack", "retiring"), True, {"bare", "rack", "retiring"}, id="all must be there"),
        pytest.param(("rack", "retiring"), False, {"rack", "retiring", "both"}, id="none may be there"),
        pytest.param(("unheard-of",), True, {"bare", "rack", "retiring", "both"}, id="no node has it"),
    ],
)
def test_node_label(labels: tuple[str, ...], presence: bool, refused: set[str]) -> None:
    nodes = [
        make_node("bare").obj(),
        make_node("rack").label(rack="1").obj(),
        make_node("retiring").label(retiring="").obj(),
        make_node("both").label(rack="2", retiring="soon").obj(),
    ]
    found = refusals(NodeLabelFilter(labels, presence, "mine"), POD, *nodes)
    assert found == dict.fromkeys(refused, unresolvable("mine", "node(s) didn't have the requested labels"))


REGIONS = [
    make_node("a1").label(region="a", zone="1").obj(),
    make_node("a2").label(region="a", zone="2").obj(),
    make_node("b1").label(region="b", zone="1").obj(),
    make_node("nowhere").obj(),
]
WEB = make_service("web", {"app": "web"})


def web(name: str) -> PodBuilder:
    return make_pod(name).label(app="web")


@pytest.mark.parametrize(
    ("labels", "pod", "others", "feasible"),
    [
        pytest.param(("region",), web("p"), [], {"a1", "a2", "b1", "nowhere"}, id="the first pod goes anywhere"),
        pytest.param(("region",), web("p"), [web("o").node("a1")], {"a1", "a2"}, id="the next one to the same region"),
        pytest.param(("region", "zone"), web("p"), [web("o").node("a1")], {"a1"}, id="the same in all labels"),
        pytest.param(
            ("region",),
            web("p").node_selector(region="b"),
            [web("o").node("a1")],
            {"b1"},
            id="its own selector counts first",
        ),
        pytest.param(
            ("region", "zone"),
            web("p").node_selector(zone="1"),
            [web("o").node("a2")],
            {"a1"},
            id="and the rest is taken from the others",
        ),
        pytest.param(("region",), web("p"), [web("o").node("nowhere")], {"a1", "a2", "b1", "nowhere"}, id="unlabelled"),
        pytest.param(
            ("region",),
            web("p"),
            [make_pod("o", "other").label(app="web").node("a1")],
            {"a1", "a2", "b1", "nowhere"},
            id="another namespace",
        ),
        pytest.param(
            ("region",),
            make_pod("p").label(app="db"),
            [make_pod("o").label(app="db").node("a1")],
            {"a1", "a2", "b1", "nowhere"},
            id="of no service",
        ),
        pytest.param(
            ("region",),
            web("p").label(tier="x"),
            [web("o").node("a1")],
            {"a1", "a2", "b1", "nowhere"},
            id="like it in all labels",
        ),
    ],
)
def test_service_affinity(
    labels: tuple[str, ...], pod: PodBuilder, others: list[PodBuilder], feasible: set[str]
) -> None:
    objects = [*REGIONS, WEB, *(other.obj() for other in others)]
    found = refusals(ServiceAffinity(labels, "mine"), pod.obj(), *objects)
    assert found == dict.fromkeys(
        {"a1", "a2", "b1", "nowhere"} - feasible, unschedulable("mine", "node(s) didn't match service affinity")
    )


@pytest.mark.parametrize(
    ("node", "reasons"),
    [
        pytest.param(make_node("n"), (), id="ready"),
        pytest.param(make_node("n").condition("Ready", "Unknown"), ("node(s) were not ready",), id="not ready"),
        pytest.param(
            make_node("n").condition("NetworkUnavailable", "True"), ("node(s) had unavailable network",), id="network"
        ),
        pytest.param(make_node("n").condition("OutOfDisk", "Unknown"), ("node(s) were out of disk space",), id="disk"),
        pytest.param(make_node("n").condition("NetworkUnavailable", "False"), (), id="network up"),
        pytest.param(
            make_node("n").condition("Ready", "False").unschedulable(),
            ("node(s) were not ready", "node(s) were unschedulable"),
            id="several",
        ),
    ],
)
def test_node_condition(node: NodeBuilder, reasons: tuple[str, ...]) -> None:
    found = refusals(CheckNodeCondition(), POD, node.obj(), make_node("other").obj())
    assert found == ({"n": unresolvable("CheckNodeCondition", *reasons)} if reasons else {})


@pytest.mark.parametrize(
    ("condition", "reason"),
    [
        pytest.param("MemoryPressure", "node(s) had memory pressure", id="memory"),
        pytest.param("DiskPressure", "node(s) had disk pressure", id="disk"),
        pytest.param("PIDPressure", "node(s) had pid pressure", id="pid"),
    ],
)
def test_node_pressure(condition: str, reason: str) -> None:
    nodes = [
        make_node("fine").condition(condition, "False").obj(),
        make_node("unknown").condition(condition, "Unknown").obj(),
        make_node("pressed").condition(condition, "True").obj(),
    ]
    assert refusals(NodePressure(condition, "mine"), POD, *nodes) == {"pressed": unresolvable("mine", reason)}


@pytest.mark.parametrize(
    ("pod", "refused"),
    [
        pytest.param(make_pod("p"), True, id="asks for nothing"),
        pytest.param(make_pod("p").req(cpu="0"), True, id="asks for no cpu"),
        pytest.param(make_pod("p").req({"example.com/gpu": "1"}), True, id="asks for something else"),
        pytest.param(make_pod("p").req(cpu="1m"), False, id="asks for cpu"),
        pytest.param(make_pod("p").limit(memory="1Gi"), False, id="is limited"),
        pytest.param(make_pod("p").init_container(memory="1Mi"), False, id="asks at first"),
    ],
)
def test_memory_pressure_refuses_best_effort_pods_only(pod: PodBuilder, refused: bool) -> None:
    rule = NodePressure("MemoryPressure", "mine", best_effort_only=True)
    found = refusals(rule, pod.obj(), make_node("n").condition("MemoryPressure", "True").obj())
    assert bool(found) is refused


EBS = MaxVolumeCount(AWS_EBS, "attachable-volumes-aws-ebs", 39, "EBSLimits")
TOO_MANY = unschedulable("EBSLimits", "node(s) exceed max volume count")


def ebs(*volumes: str, name: str = "p") -> PodBuilder:
    pod = make_pod(name)
    for volume in volumes:
        pod.volume(volume, {"awsElasticBlockStore": {"volumeID": volume}})
    return pod


def limited(limit: int, **labels: Any) -> NodeBuilder:
    return make_node("n").label(labels).allocatable({"attachable-volumes-aws-ebs": str(limit)} if limit else {})


def standing(*volumes: str) -> Object:
    return ebs(*volumes, name="there").node("n").obj()


@pytest.mark.parametrize(
    ("pod", "objects", "refused"),
    [
        pytest.param(ebs("a"), [limited(2).obj(), standing("b")], False, id="room for one more"),
        pytest.param(ebs("a"), [limited(1).obj(), standing("b")], True, id="one too many"),
        pytest.param(ebs("b"), [limited(1).obj(), standing("b")], False, id="attached already"),
        pytest.param(ebs("a", "b"), [limited(1).obj()], True, id="the pod alone has too many"),
        pytest.param(make_pod("p"), [limited(0).obj(), standing("b")], False, id="no volumes"),
        pytest.param(ebs("x"), [limited(0).obj(), standing(*map(str, range(38)))], False, id="39 by default"),
        pytest.param(ebs("x"), [limited(0).obj(), standing(*map(str, range(39)))], True, id="and no more"),
        pytest.param(
            ebs("x"),
            [
                make_node("n").label({"node.kubernetes.io/instance-type": "m5.large"}).obj(),
                standing(*map(str, range(25))),
            ],
            True,
            id="25 on instances of the newer kind",
        ),
        pytest.param(
            ebs("a"),
            [
                limited(1).obj(),
                standing("b"),
                {
                    "apiVersion": "storage.k8s.io/v1",
                    "kind": "CSINode",
                    "metadata": {
                        "name": "n",
                        "annotations": {"storage.alpha.kubernetes.io/migrated-plugins": "kubernetes.io/aws-ebs"},
                    },
                    "spec": {"drivers": [{"name": "ebs.csi.aws.com"}]},
                },
            ],
            False,
            id="left to the driver",
        ),
    ],
)
def test_max_volume_count(pod: PodBuilder, objects: list[Object], refused: bool) -> None:
    assert refusals(EBS, pod.obj(), *objects) == ({"n": TOO_MANY} if refused else {})


@pytest.mark.parametrize(
    ("gone", "refused"),
    [
        pytest.param([], {"n", "full"}, id="nothing leaves"),
        pytest.param(["there"], {"full"}, id="the volume leaves with its only pod"),
        pytest.param(["one"], {"n", "full"}, id="another pod uses the volume too"),
        pytest.param(["one", "two"], {"n"}, id="both pods of the volume leave"),
    ],
)
def test_volumes_of_removed_pods_do_not_count(gone: list[str], refused: set[str]) -> None:
    full = make_node("full").allocatable({"attachable-volumes-aws-ebs": "1"}).obj()
    sharing = [ebs("c", name=name).node("full").obj() for name in ("one", "two")]
    table = table_of(limited(1).obj(), full, standing("b"), *sharing)
    check = EBS.prepare(pod_info(ebs("a").obj()), table)
    assert isinstance(check, Check)
    slots = [slot for slot, info in enumerate(table.pods.infos) if info and info.pod.name in gone]
    removals = HypotheticalRemovals(table, np.array(slots, np.intp))
    rows = np.array([table.nodes.row_of["full"], table.nodes.row_of["n"]])
    [(mask, refusal)] = check.filter_with_pods_removed(rows, removals) or ()
    assert (set(table.nodes.names_of(rows[mask])), refusal) == (refused, TOO_MANY)

"""Random cases: a small cluster and one root group, whose members differ in their names and now and then in size."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import strategies as st

from tests.builders import ZONE, Object, make_composite_pod_group, make_pod_group
from tests.conformance.draft import Dice, Draft, draft
from tests.conformance.features import FEATURES
from tests.conformance.stock import for_next_server
from tests.conformance.uniform import examples
from tests.group_conformance import claims, victims, volumes

PLAIN = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "profiles": [
        {"schedulerName": "default-scheduler", "plugins": {"podGroupPostFilter": {"disabled": [{"name": "*"}]}}}
    ],
}
"""The default profile, without preemption by groups."""
ROOT = "root"
FEATURED = (
    "resources",
    "node-affinity",
    "taints",
    "ports",
    "images",
    "topology-spread",
    "inter-pod-affinity",
    "volumes",
    "volume-limits",
)
MIXED, TOPOLOGY, COMPOSITE, LARGE, PREEMPTION = "mixed", "topology", "composite", "large", "preemption"
CLAIMS, GROUP_CLAIMS = "claims", "group-claims"
LOW_PREEMPTION, PREEMPTION_TOPOLOGY, PREEMPTION_TREES = "low-preemption", "preemption-topology", "preemption-trees"
PREEMPTION_CLAIMS, PREEMPTION_GROUP_CLAIMS = "preemption-claims", "preemption-group-claims"
PREEMPTING = (
    PREEMPTION,
    LOW_PREEMPTION,
    PREEMPTION_TOPOLOGY,
    PREEMPTION_TREES,
    PREEMPTION_CLAIMS,
    PREEMPTION_GROUP_CLAIMS,
)
CLAIMING = (CLAIMS, GROUP_CLAIMS, PREEMPTION_CLAIMS, PREEMPTION_GROUP_CLAIMS)
SHARING = (GROUP_CLAIMS, PREEMPTION_GROUP_CLAIMS)
"""The kinds in which groups have claims."""
TREES = (COMPOSITE, PREEMPTION_TREES)
CONSTRAINED = (TOPOLOGY, PREEMPTION_TOPOLOGY, *TREES)
KINDS = (*FEATURED, MIXED, TOPOLOGY, COMPOSITE, LARGE, CLAIMS, GROUP_CLAIMS, *PREEMPTING)
_SIZES = {LARGE: (9, 64), PREEMPTION: (2, 64)}
"""The least and the most members that wait."""
_KEYS = (ZONE, "disktype", "rack", "absent")


def gates_of(kind: str) -> tuple[str, ...]:
    """Returns the gates that cases of this kind need besides GenericWorkload."""
    topology = ("TopologyAwareWorkloadScheduling",) if kind in CONSTRAINED else ()
    trees = ("CompositePodGroup",) if kind in TREES else ()
    return (*topology, *trees, *(("DRAWorkloadResourceClaims",) if kind in SHARING else ()))


def with_valid_priorities(case: Object) -> Object:
    """Returns the case with the priority of its group for each pod, without which 1.38 schedules no group.

    Of a group that goes as a whole, kube-scheduler 1.38 takes the priority of any pod.
    """
    items = case["cluster"]["items"]
    of = {
        (item["metadata"]["namespace"], item["metadata"]["name"]): item["spec"].get("priority", 0)
        for item in items
        if item["kind"] == "PodGroup"
    }

    def changed(item: Object) -> Object:
        group = item["spec"].get("schedulingGroup", {}).get("podGroupName") if item["kind"] == "Pod" else None
        priority = of.get((item["metadata"].get("namespace"), group))
        return item if priority is None else {**item, "spec": {**item["spec"], "priority": priority}}

    return {**case, "cluster": {"items": list(map(changed, items))}}


def for_next_version(case: Object) -> Object:
    """Returns the case as kube-scheduler 1.38 can read it, with all topology domains compared."""
    items = [for_next_server(item) for item in case["cluster"]["items"]]
    if kind_of(case) not in CONSTRAINED:
        return {**case, "cluster": {"items": items}}
    profile = {"schedulerName": "default-scheduler", **case.get("config", PLAIN | {"profiles": [{}]})["profiles"][0]}
    config = {**PLAIN, "profiles": [{**profile, "percentageOfPlacementsToScore": 100}]}
    return {**case, "cluster": {"items": items}, "config": config}


def kind_of(case: Object) -> str:
    kind: str = case["name"].rpartition("-")[0]
    return kind


@st.composite
def cases(draw: st.DrawFn, kind: str) -> Object:
    """A case whose members have one feature or, if the kind is no feature, one or two of them."""
    dice = Dice(draw)
    drafted = draft(dice)
    preempts, claiming = kind in PREEMPTING, kind in CLAIMING
    least, most = 0 if preempts or kind == CLAIMS else 1, 1 if kind == CLAIMS else 2
    features = [kind] if kind in FEATURED else dice.some(FEATURED, least, most)
    for name in sorted(features, key=list(FEATURES).index):
        FEATURES[name](dice, drafted)
    for node in drafted.nodes:
        node.label(rack=dice.one("r0", "r1", "r2"))
    drafted.target.priority(0)
    if preempts:
        victims.add(dice, drafted, is_low=kind == LOW_PREEMPTION)
    if claiming:
        claims.add(dice, drafted)
    if not (preempts or claiming) and dice.chance(70):  # so little room that some gangs do not fit
        for node in drafted.nodes:
            node.capacity(cpu=dice.one("4", "8", "16") if kind == LARGE else dice.one("1", "2", "4"))
    groups = _Groups(dice, drafted, kind).root()
    waiting = [obj for obj in groups if obj["kind"] == "Pod" and not _is_placed(obj)]
    if preempts:
        victims.nominate(dice, drafted, waiting)
    if claiming:
        groups += claims.share_out(dice, drafted, waiting, groups[0] if kind in SHARING else None)
    if kind in TREES:
        volumes.leave_to_first(drafted, groups)
    items = [*drafted.case(kind)["cluster"]["items"], *groups]
    return {"cluster": {"items": items}} | ({} if preempts else {"config": PLAIN})


class _Groups:
    """Draws groups and their members."""

    def __init__(self, dice: Dice, drafted: Draft, kind: str) -> None:
        self._dice = dice
        self._target = drafted.target.obj()
        self._nodes = drafted.node_names
        self._constrained = kind in CONSTRAINED
        self._is_tree = kind in TREES
        self._sizes = _SIZES.get(kind, (1, 8))
        self._members = 0
        self._groups = 0

    def root(self) -> list[Object]:
        return self._composite(ROOT, 2) if self._is_tree else self._leaf(ROOT, *self._sizes)

    def _composite(self, name: str, depth: int, **spec: Any) -> list[Object]:
        children: list[list[Object]] = []
        for _ in range(self._dice.count(1, 3)):
            self._groups += 1
            child = f"group-{self._groups}"
            parent = {"parentCompositePodGroupName": name}
            deeper = depth > 1 and self._dice.chance(25)
            children.append(
                self._composite(child, depth - 1, **parent) if deeper else self._leaf(child, 1, 3, **parent)
            )
        minimum = self._dice.count(1, len(children)) if self._dice.chance(70) else None
        spec |= self._constraint() | {"priority": self._target["spec"]["priority"]}
        group = make_composite_pod_group(name, minimum, namespace=self._namespace, **spec)
        return [group, *(obj for child in children for obj in child)]

    def _leaf(self, name: str, least: int, most: int, **spec: Any) -> list[Object]:
        waiting, running = self._dice.count(least, most), self._dice.count(0, 2) if self._dice.chance(20) else 0
        members = [self._member(name) for _ in range(waiting)]
        members += [_placed(self._member(name), self._dice.one(*self._nodes)) for _ in range(running)]
        minimum = self._dice.count(1, waiting + running) if self._dice.chance(80) else None
        spec |= self._constraint() | {"priority": self._target["spec"]["priority"]}
        return [make_pod_group(name, minimum, namespace=self._namespace, **spec), *members]

    @property
    def _namespace(self) -> str:
        namespace: str = self._target["metadata"]["namespace"]
        return namespace

    def _constraint(self) -> Object:
        if not self._constrained or self._dice.chance(25):
            return {}
        return {"schedulingConstraints": {"topology": [{"key": self._dice.one(*_KEYS)}]}}

    def _member(self, group: str) -> Object:
        member = copy.deepcopy(self._target)
        name = f"member-{self._members}"
        self._members += 1
        member["metadata"] |= {"name": name, "uid": name}
        member["spec"] |= {"schedulingGroup": {"podGroupName": group}, "schedulerName": "default-scheduler"}
        if self._dice.chance(20):
            container = member["spec"]["containers"][0]
            container.setdefault("resources", {}).setdefault("requests", {})["cpu"] = self._dice.one("200m", "1", "2")
        return member


def _placed(member: Object, node: str) -> Object:
    member["spec"]["nodeName"] = node
    member["status"] = {"phase": "Running"}
    return member


def _is_placed(pod: Object) -> bool:
    return "nodeName" in pod["spec"]


def named(kind: str, number: int, first_seed: int) -> list[Object]:
    """That many cases, the same for the same seed, named by kind and number."""
    drawn = examples(cases(kind), number, f"group {kind} {first_seed}")
    return [{**case, "name": f"{kind}-{index:03}"} for index, case in enumerate(drawn)]

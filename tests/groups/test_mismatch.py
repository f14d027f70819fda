"""Which trees of groups kube-scheduler refuses for their structure, and in which words."""

from __future__ import annotations

from typing import Any

import pytest

from extender.groups.group_tree import Leaf, Tree, leaves, mismatch
from extender.table import PodInfo
from extender.table.features import VERSIONS
from tests.builders import Object, PodBuilder, make_composite_pod_group, make_pod, make_pod_group
from tests.framework.cluster import pod_info
from tests.groups.deciding import tree

WORKLOAD = {"workloadRef": {"workloadName": "w1", "templateName": "t"}}


def root(name: str = "root", minimum: int | None = 1, **spec: Any) -> Object:
    return make_composite_pod_group(name, minimum, **{**WORKLOAD, **spec})


def group(name: str = "g", minimum: int | None = 1, parent: str | None = "root", **spec: Any) -> Object:
    return make_pod_group(name, minimum, **{**WORKLOAD, "parentCompositePodGroupName": parent, **spec})


def pod(name: str = "p", of: str = "g") -> PodBuilder:
    return make_pod(name).group(of)


def fault(*objects: Object | PodBuilder, version: str = "1.38") -> str | None:
    built = [each.obj() if isinstance(each, PodBuilder) else each for each in objects]
    infos = [pod_info(each) for each in built if each["kind"] == "Pod" and each["spec"].get("nodeName")]

    def placed(leaf: Leaf) -> list[PodInfo]:
        return [info for info in infos if info.pod.group_key == leaf.group.key]

    return mismatch(tree(*built), placed, VERSIONS[version].features)


PODS = "all pods in a pod group hierarchy should have the same"
GROUPS = "all pod groups in a hierarchy should have the same"


@pytest.mark.parametrize(
    ("objects", "message"),
    [
        pytest.param(
            [
                root(),
                root("second", parentCompositePodGroupName="root"),
                root("third", parentCompositePodGroupName="second"),
                root("fourth", parentCompositePodGroupName="third"),
                group(parent="third"),
                pod(),
            ],
            'hierarchy depth exceeds maximum allowed depth 4 at "compositepodgroup/default/fourth"',
            id="a composite at the last level",
        ),
        pytest.param(
            [root(), group(workloadRef={"workloadName": "w2", "templateName": "t"}), pod()],
            'pod group workload does not match root workload, got: "w2" ("podgroup/default/g") and '
            '"w1" ("compositepodgroup/default/root")',
            id="workload",
        ),
        pytest.param(
            [root(priority=5), group(priority=7), pod().priority(5)],
            f"{GROUPS} priority as the root pod group's priority, got "
            '7 ("podgroup/default/g") and 5 ("compositepodgroup/default/root")',
            id="priority of a child",
        ),
        pytest.param(
            [root(preemptionPolicy="PreemptLowerPriority"), group(preemptionPolicy="Never"), pod()],
            f'{GROUPS} preemption policy, got Never ("podgroup/default/g") and PreemptLowerPriority',
            id="policy of a child",
        ),
        pytest.param(
            [root(), group(preemptionPolicy="Never"), pod()],
            f'{GROUPS} preemption policy, got Never ("podgroup/default/g") and PreemptLowerPriority',
            id="policy of a child and of the first pod",
        ),
        pytest.param(
            [root(), group(minimum=None), pod()],
            'gang parent "compositepodgroup/default/root" cannot have basic child "podgroup/default/g"',
            id="a basic group in a gang",
        ),
        pytest.param(
            [root(disruptionMode={"all": {}}), group(disruptionMode={"single": {}}), pod()],
            'parent "compositepodgroup/default/root" with All disruption mode cannot have child "podgroup/default/g" '
            "with Single disruption mode",
            id="disruption mode",
        ),
        pytest.param(
            [group(parent=None), pod("a").scheduler("s2"), pod("b").scheduler("s1")],
            f'{PODS} .spec.schedulerName set, got: "s1" ("b") and "s2" ("a")',
            id="scheduler",
        ),
        pytest.param(
            [group(parent=None), pod("mix-1").priority(1000)],
            f'{PODS} priority as the root pod group\'s priority, got 1000 ("mix-1") and 0 ("podgroup/default/g")',
            id="priority of a pod",
        ),
        pytest.param(
            [group(parent=None), pod("a"), pod("b").priority(3).node("n1")],
            f'{PODS} priority as the root pod group\'s priority, got 3 ("b") and 0 ("podgroup/default/g")',
            id="priority of a placed pod",
        ),
        pytest.param(
            [group(parent=None, preemptionPolicy="Never"), pod("a")],
            f'{PODS} preemption policy, got PreemptLowerPriority ("a") and Never',
            id="policy of a pod",
        ),
        pytest.param(
            [root(), group("g"), group("h", priority=1), pod("a", "g").priority(2), pod("b", "h")],
            f'{PODS} priority as the root pod group\'s priority, got 2 ("a") and 0 ("compositepodgroup/default/root")',
            id="the pods of a group come before the next group",
        ),
    ],
)
def test_a_tree_is_refused_for_its_first_fault(objects: list[Object | PodBuilder], message: str) -> None:
    assert fault(*objects) == message


def test_pods_without_a_policy_of_their_group_need_one_policy_among_them() -> None:
    never = [pod(name).preemption_policy("Never") for name in "ab"]
    assert fault(group(parent=None), *never) is None
    assert fault(group(parent=None), *never, pod("c")) == (
        f'{PODS} preemption policy, got PreemptLowerPriority ("c") and Never'
    )


def test_before_1_38_only_pods_are_compared_with_the_root() -> None:
    objects: list[Object | PodBuilder] = [root(), group(minimum=None, priority=7), pod()]
    assert fault(*objects, version="1.37") is None
    assert fault(*objects, pod("b").priority(7), version="1.37") == (
        "all pods in a single pod group should have the same priority as the pod group's priority, got 7 and 0"
    )


def test_a_tree_without_waiting_pods_has_no_fault() -> None:
    below: Tree = tree(root(), group(minimum=None))
    assert not any(leaf.waiting for leaf in leaves(below))
    assert mismatch(below, lambda _: (), VERSIONS["1.38"].features) is None

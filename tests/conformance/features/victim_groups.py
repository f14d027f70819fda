"""DefaultPreemption among pods of groups, which count with the priority of their group and may be evicted together."""

from __future__ import annotations

from collections import defaultdict

from tests.builders import Object, PodBuilder, make_composite_pod_group, make_pod_group
from tests.conformance.draft import Dice, Draft
from tests.conformance.features import preemption


def add(dice: Dice, draft: Draft) -> None:
    """Fills the nodes with pods, some of them in groups. The order of the victims is certain: no two are equal."""
    preemption.add(dice, draft)
    for second, pod in enumerate(dice.some(draft.pods, len(draft.pods), len(draft.pods))):
        pod.start_time(f"2026-11-21T09:{second // 60:02}:{second % 60:02}Z")
    put_into_groups(dice, draft)
    for pod in draft.pods:
        if "schedulingGroup" in pod.obj()["spec"] and dice.chance(30):
            pod.priority(dice.one(0, 100, 2000))  # another priority than its group's
    _put_into_trees(dice, draft)
    for group in draft.objects:
        if group["kind"] in ("PodGroup", "CompositePodGroup") and "all" in group["spec"]["disruptionMode"]:
            _level(draft, group)


def _put_into_trees(dice: Dice, draft: Draft) -> None:
    """Puts some of the groups below another, whose priority counts."""
    for group in [each for each in draft.objects if each["kind"] == "PodGroup"]:
        if dice.chance(40):
            name, mode = dice.one("tree-0", "tree-1"), dice.one("all", "single")
            priority, namespace = dice.one(0, 100, 2000), group["metadata"]["namespace"]
            group["spec"]["parentCompositePodGroupName"] = name
            draft.add(
                make_composite_pod_group(name, 1, namespace=namespace, priority=priority, disruptionMode={mode: {}})
            )


def _level(draft: Draft, group: Object) -> None:
    """Gives all pods below the group one priority: stock names them in any order, and takes that of the first."""
    below = [each for each in draft.objects if each["kind"] == "PodGroup" and _parent(each) == _parent_key(group)]
    members = [pod for pod in draft.pods if any(_is_in(pod.obj(), each) for each in (group, *below))]
    for pod in members:
        pod.priority(members[0].obj()["spec"]["priority"])


def _parent(group: Object) -> tuple[str, str, str]:
    return "CompositePodGroup", group["metadata"]["namespace"], group["spec"].get("parentCompositePodGroupName", "")


def _parent_key(group: Object) -> tuple[str, str, str]:
    return group["kind"], group["metadata"]["namespace"], group["metadata"]["name"]


def _is_in(pod: Object, group: Object) -> bool:
    name = pod["spec"].get("schedulingGroup", {}).get("podGroupName")
    return (pod["metadata"]["namespace"], name) == (group["metadata"]["namespace"], group["metadata"]["name"])


def put_into_groups(dice: Dice, drafted: Draft) -> None:
    """Puts some of the running pods into groups, whose priority is mostly that of their first pod."""
    by_namespace: dict[str, list[PodBuilder]] = defaultdict(list)
    for pod in drafted.pods:
        if "nodeName" in pod.obj()["spec"]:
            by_namespace[pod.obj()["metadata"]["namespace"]].append(pod)
    for number in range(dice.count(0, 3) if by_namespace else 0):
        namespace = dice.one(*by_namespace)
        members = dice.some(by_namespace[namespace], 1, 5)
        if members:
            drafted.add(_group(dice, f"victims-{number}", namespace, members))
        by_namespace[namespace] = [pod for pod in by_namespace[namespace] if pod not in members] or members


def _group(dice: Dice, name: str, namespace: str, members: list[PodBuilder]) -> Object:
    priority = members[0].obj()["spec"]["priority"] if dice.chance(80) else dice.one(-5, 0, 100, 2000)
    for pod in members:
        pod.priority(priority if dice.chance(90) else 0).spec(schedulingGroup={"podGroupName": name})
    mode: Object = {"all": {}} if dice.chance(60) else {"single": {}}
    minimum = dice.count(1, len(members)) if dice.chance(50) else None
    return make_pod_group(name, minimum, namespace=namespace, priority=priority, disruptionMode=mode)

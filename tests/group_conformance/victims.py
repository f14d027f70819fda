"""Adds what a group of higher priority can evict: full nodes, groups that are disrupted as a whole, budgets."""

from __future__ import annotations

from collections import defaultdict

from tests.builders import Object, PodBuilder, make_pod_group
from tests.conformance.draft import Dice, Draft
from tests.conformance.features import preemption

_NOMINATED_PERCENT = 10


def add(dice: Dice, drafted: Draft, *, is_low: bool = False) -> None:
    """Fills the nodes with pods that can be evicted; the requests of the target count for each member.

    With `is_low`, the group has no positive priority.
    """
    preemption.add(dice, drafted)
    if is_low:
        drafted.target.priority(dice.one(0, -1, -10))
        for pod in drafted.pods:
            pod.priority(dice.one(-5, -10, -20, 0, 10))
    drafted.target.req(cpu=dice.one("500m", "1", "2"), memory="1Gi")
    _hold_waiting_pods(drafted)
    _start_one_after_another(dice, drafted)
    _add_groups(dice, drafted)
    _count_exactly(drafted)
    for pod in drafted.pods:
        _loosen(pod)


def _loosen(pod: PodBuilder) -> None:
    """Removes what stock ignores while it chooses the pods that stay; see docs/differences.md."""
    spec = pod.obj()["spec"]
    if "affinity" in spec:
        pod.spec(affinity={kind: terms for kind, terms in spec["affinity"].items() if kind != "podAntiAffinity"})
    if "volumes" in spec:
        pod.spec(volumes=[each for each in spec["volumes"] if "persistentVolumeClaim" not in each])


def _count_exactly(drafted: Draft) -> None:
    """Leaves spread constraints that stock counts exactly while it puts victims back; see docs/differences.md."""
    kept: dict[tuple[str, str], Object] = {}
    for constraint in drafted.target.obj()["spec"].get("topologySpreadConstraints", []):
        if constraint["whenUnsatisfiable"] == "DoNotSchedule":
            constraint["topologyKey"] = "disktype"  # it has two domains
        if constraint.get("labelSelector") == {}:
            constraint["labelSelector"] = {"matchLabels": {"app": "web"}}
        kept.setdefault((constraint["topologyKey"], constraint["whenUnsatisfiable"]), constraint)
    drafted.target.spec(topologySpreadConstraints=list(kept.values()))


def _hold_waiting_pods(drafted: Draft) -> None:
    """Keeps nominated pods out of the active queue, because the cycle under test has to be the group's."""
    for pod in drafted.pods:
        if "nodeName" not in pod.obj()["spec"]:
            pod.spec(schedulingGates=[{"name": "example.com/held"}])


def _start_one_after_another(dice: Dice, drafted: Draft) -> None:
    """Gives no two pods the same start, because stock takes equal units in the order of its own lists."""
    started = [pod for pod in drafted.pods if pod.obj()["status"].get("startTime")]
    for second, pod in enumerate(dice.some(started, len(started), len(started))):
        pod.start_time(f"2026-11-21T09:{second // 60:02}:{second % 60:02}Z")


def _add_groups(dice: Dice, drafted: Draft) -> None:
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


def nominate(dice: Dice, drafted: Draft, members: list[Object]) -> None:
    """Nominates some of the members, as an earlier preemption may have done, and perhaps has it still under way."""
    if dice.chance(_NOMINATED_PERCENT):
        _nominate(dice, drafted, members)
    if any(member["spec"]["priority"] <= 0 and member.get("status", {}).get("nominatedNodeName") for member in members):
        for node in drafted.nodes:  # stock counts nominated siblings as pods without requests; see docs/differences.md
            node.capacity(pods="110")


def _nominate(dice: Dice, drafted: Draft, members: list[Object]) -> None:
    node = dice.one(*drafted.node_names)
    for member in members:
        if dice.chance(70):
            member.setdefault("status", {})["nominatedNodeName"] = node if dice.chance(60) else "n0"
    on_node = [pod for pod in drafted.pods if pod.obj()["spec"].get("nodeName") == node]
    if on_node and dice.chance(50):
        _leave(dice.one(*on_node))


def _leave(pod: PodBuilder) -> None:
    condition = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
    pod.deleted().status(conditions=[condition])

"""Adds what a group of higher priority can evict: full nodes, groups that are disrupted as a whole, budgets."""

from __future__ import annotations

from tests.builders import Object, PodBuilder
from tests.conformance.draft import Dice, Draft
from tests.conformance.features import preemption, victim_groups

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
    victim_groups.put_into_groups(dice, drafted)
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

"""Plans: the moves that make room for pods, the pods that stay where they are, and the proofs that no moves help."""

from __future__ import annotations

from copy import deepcopy
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from extender import Cluster, Move, MovePlan
from extender.errors import ConfigurationError, UnknownPod
from extender.offline.explain.terminal import summary
from extender.offline.plan import solver
from extender.offline.plan.goals import Room
from extender.offline.plan.plan import as_text
from extender.offline.plan.plan import plan as find_plan
from extender.offline.plan.trial import KARPENTER_ANNOTATION, MoveRefused, PlanTrial
from extender.offline.what_if.simulation import Placement
from extender.runtime.clock import ManualClock
from tests.builders import (
    ZONE,
    Object,
    make_node,
    make_pdb,
    make_pod,
    make_pod_group,
    make_pv,
    make_pvc,
    node_term,
)
from tests.builders.pod import PodBuilder
from tests.builders.terms import expression

GPU = "example.com/gpu"
NODES = [make_node(name).capacity(cpu="4", pods="10").label({ZONE: name}).obj() for name in "abc"]
BIG = make_pod("big").req(cpu="4").obj()
POLICY = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "featureGates": {"GenericWorkload": True},
}


def web(name: str, node: str, cpu: str = "2") -> PodBuilder:
    return make_pod(name).label(app="web").req(cpu=cpu).owner("ReplicaSet", "web-5d8f").node(node)


def daemon(name: str, node: str) -> PodBuilder:
    return make_pod(name).req(cpu="2").owner("DaemonSet", "agent").node(node)


def planned(*objects: Object, pods: tuple[Any, ...] = ("default/big",), **options: Any) -> MovePlan:
    return Cluster.from_objects(objects, POLICY).plan(*pods, **options)


def moves(plan: MovePlan) -> list[tuple[str, str, str]]:
    return [(move.pod, move.source, move.target) for move in plan.moves]


@pytest.fixture(params=["solver", "heuristic"])
def _either(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs a test with the solver and without it."""
    if request.param == "solver":
        pytest.importorskip("highspy")
    else:
        monkeypatch.setattr(solver, "is_installed", lambda: False)


@pytest.mark.usefixtures("_either")
def test_a_plan_moves_the_pods_of_one_node_away() -> None:
    plan = planned(*NODES, web("w1", "a").obj(), web("w2", "b").obj(), web("w3", "c", "3").obj(), BIG)
    assert moves(plan) == [("default/w1", "a", "b")]
    assert [(each.pod, each.node) for each in plan.placements] == [("default/big", "a")]
    assert (plan.outcome, plan.succeeds) == ("moves", True)


@pytest.mark.usefixtures("_either")
def test_a_pod_that_fits_needs_no_move() -> None:
    plan = planned(*NODES, web("w1", "a").obj(), BIG)
    assert (plan.outcome, plan.moves, plan.smallest) == ("fits", [], True)
    assert [each.pod for each in plan.placements] == ["default/big"]


@pytest.mark.usefixtures("_either")
def test_pods_that_do_not_exist_yet_are_placed_when_the_moves_are_done() -> None:
    plan = planned(*NODES, web("w1", "a").obj(), web("w2", "b").obj(), web("w3", "c").obj(), pods=(BIG,))
    assert len(plan.moves) == 1
    assert plan.placements[0].node == plan.moves[0].source


def test_all_members_of_a_group_are_placed() -> None:
    pytest.importorskip("highspy")
    members = [make_pod(f"m{number}").req(cpu="4").group("gang").obj() for number in range(2)]
    running = [web("w1", "a", "1").obj(), web("w2", "b", "1").obj()]
    wide = make_node("wide").capacity(cpu="3", pods="10").obj()
    plan = planned(*NODES[:2], wide, make_pod_group("gang", 2), *running, *members, pods=("default/m0", "default/m1"))
    assert len(plan.moves) == 2
    assert sorted(each.pod for each in plan.placements) == ["default/m0", "default/m1"]
    assert len({each.node for each in plan.placements}) == 2


def test_of_several_pods_the_most_of_the_highest_priority_are_placed() -> None:
    """Each of three pods would have room after the only possible move, but only one of them."""
    pytest.importorskip("highspy")
    running = [web("w1", "a", "2").obj(), web("w2", "b", "2").priority(5).obj()]
    low = [make_pod(f"low{number}").req(cpu="3").priority(1).preemption_policy("Never").obj() for number in range(2)]
    high = make_pod("high").req(cpu="4").priority(9).preemption_policy("Never").obj()
    names = ("default/low0", "default/low1", "default/high")
    plan = planned(*NODES[:2], *running, *low, high, pods=names)
    assert (plan.outcome, plan.succeeds, plan.smallest) == ("partial", False, True)
    assert moves(plan) == [("default/w1", "a", "b")]
    assert [each.pod for each in plan.placements] == ["default/high"]
    assert list(plan.unplaced) == ["default/low0", "default/low1"]
    assert plan.to_dict()["priorities"] == [
        {"priority": 9, "pods": 1, "unmoved": 0, "placed": 1, "atMost": 1},
        {"priority": 1, "pods": 2, "unmoved": 0, "placed": 0, "atMost": 0},
    ]
    assert plan.reason is not None and "the cluster is short of" in plan.reason


KEPT = {
    "a DaemonSet": (
        lambda _: make_pod("w1").req(cpu="2").owner("DaemonSet", "agent").node("a"),
        "belongs to a DaemonSet, or is static",
    ),
    "a static pod": (
        lambda pod: pod.annotation({"kubernetes.io/config.mirror": "x"}),
        "belongs to a DaemonSet, or is static",
    ),
    "the autoscaler's annotation": (
        lambda pod: pod.annotation({"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}),
        "has the annotation cluster-autoscaler.kubernetes.io/safe-to-evict=false",
    ),
    "Karpenter's annotation": (
        lambda pod: pod.annotation({"karpenter.sh/do-not-disrupt": "true"}),
        "has the annotation karpenter.sh/do-not-disrupt=true",
    ),
    "a local volume": (lambda pod: pod.pvc("local"), "uses a volume that only its node has"),
    "a group disrupted as a whole": (
        lambda pod: pod.group("whole"),
        "belongs to a group that is disrupted only as a whole",
    ),
    "two budgets": (lambda pod: pod.label(tier="x"), "is covered by more than one PodDisruptionBudget"),
}


@pytest.mark.parametrize(("change", "reason"), KEPT.values(), ids=KEPT)
def test_a_pod_that_may_not_be_evicted_stays(change: Any, reason: str) -> None:
    others = [
        make_pv("disk", claim="default/local", node_terms=[node_term(expression("kubernetes.io/hostname", "In", "a"))]),
        make_pvc("local", volume="disk"),
        make_pod_group("whole", 1, disruptionMode={"all": {}}),
        make_pdb("one", {"tier": "x"}, maxUnavailable=1),
        make_pdb("two", {"tier": "x"}, maxUnavailable=1),
    ]
    kept = change(web("w1", "a")).obj()
    plan = planned(NODES[0], NODES[1], *others, kept, web("w2", "b", "1").obj(), web("w3", "b", "1").obj(), BIG)
    assert plan.kept[reason] == 1
    assert "default/w1" not in {move.pod for move in plan.moves}


def test_a_pod_without_a_controller_is_moved_only_if_asked() -> None:
    objects = [*NODES[:2], make_pod("bare").req(cpu="2").node("a").obj(), make_pod("b").req(cpu="2").node("b").obj()]
    refused = planned(*objects, BIG)
    assert refused.outcome == "impossible"
    assert refused.kept == {"has no controller that would recreate it": 2}
    allowed = planned(*objects, BIG, bare_pods=True)
    assert moves(allowed) in ([("default/bare", "a", "b")], [("default/b", "b", "a")])
    assert commands(allowed)[0].endswith(f"'' {allowed.moves[0].pod.replace('/', '.')}.yaml")


@pytest.mark.parametrize(
    "options",
    [{"keep": ["default"]}, {"keep": ["app=web"]}, {"keep": ["app in (web)"]}, {"most_priority": -1}],
    ids=["namespace", "label", "set", "priority"],
)
def test_users_can_keep_pods(options: dict[str, Any]) -> None:
    running = [web("w1", "a").obj(), web("w2", "b").obj()]
    assert planned(*NODES[:2], *running, BIG).outcome == "moves"
    assert planned(*NODES[:2], *running, BIG, **options).outcome == "impossible"


def test_a_budget_that_allows_nothing_refuses_every_order() -> None:
    blocked = {"disruptionsAllowed": 0, "currentHealthy": 2, "desiredHealthy": 2, "observedGeneration": 1}
    budget = {**make_pdb("web", {"app": "web"}, minAvailable=2), "status": blocked}
    pytest.importorskip("highspy")
    plan = planned(*NODES[:2], budget, web("w1", "a").obj(), web("w2", "b").obj(), BIG)
    assert plan.outcome == "unknown"
    assert plan.reason is not None and "all orders were tried" in plan.reason
    assert plan.reason.endswith("for example, pod default/w1: a PodDisruptionBudget does not allow its eviction")


def test_a_pod_of_lower_priority_is_moved_first() -> None:
    pytest.importorskip("highspy")
    running = [web("w1", "a").priority(10).obj(), web("w2", "b").priority(1).obj(), web("w3", "c").priority(5).obj()]
    plan = planned(*NODES, *running, make_pod("big").req(cpu="4").priority(0).obj())
    assert [move.pod for move in plan.moves] == ["default/w2"]


def test_a_chain_of_moves_is_found_and_ordered() -> None:
    """The pod on a can only go to b, where there is room only once the pod on b has gone to c."""
    pytest.importorskip("highspy")
    on_a = make_pod("x").req(cpu="3").owner("ReplicaSet", "x-5d8f").node("a").node_selector({ZONE: "b"}).obj()
    on_b = make_pod("y").req(cpu="3").owner("ReplicaSet", "y-5d8f").node("b").obj()
    target = make_pod("big").req(cpu="3").node_selector({ZONE: "a"}).obj()
    plan = planned(*NODES, on_a, on_b, target)
    assert moves(plan) == [("default/y", "b", "c"), ("default/x", "a", "b")]
    assert plan.smallest


IMPOSSIBLE = {
    "a request larger than any node": (
        make_pod("big").req(cpu="5"),
        "requests 5 cpu, but the largest node that accepts it, a, has only 4",
    ),
    "a resource that no node has": (make_pod("big").req({GPU: "1"}), f"no node offers {GPU}"),
    "a selector that no node matches": (make_pod("big").node_selector(disk="ssd"), "no node accepts pod default/big"),
    "a zone that is too small": (
        make_pod("big").req(cpu="3").node_selector({ZONE: "a"}),
        "zone a is short of 1 cpu even if every movable pod goes",
    ),
    "a gate": (make_pod("big").gate("example.com/quota"), "has scheduling gates"),
}


@pytest.mark.usefixtures("_either")
@pytest.mark.parametrize(("pod", "reason"), IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_impossible_is_proved_in_words(pod: PodBuilder, reason: str) -> None:
    tied = make_pod("tied").req(cpu="2").owner("ReplicaSet", "tied-5d8f").node("a").node_selector({ZONE: "a"}).obj()
    plan = planned(*NODES, tied, web("w2", "b", "3").obj(), web("w3", "c", "3").obj(), pod.obj())
    assert (plan.outcome, plan.succeeds) == ("impossible", False)
    assert plan.reason is not None and reason in plan.reason


def test_a_cluster_without_room_is_short_of_an_amount() -> None:
    plan = planned(*NODES, *(web(f"w{name}", name, "3").obj() for name in "abc"), BIG)
    assert plan.reason == "the cluster is short of 1 cpu even if every movable pod goes"


def test_the_solver_proves_that_two_pods_do_not_fit_at_once() -> None:
    """Sums leave room for both, but only node a can take one."""
    pytest.importorskip("highspy")
    small = make_node("small").capacity(cpu="2", pods="10").obj()
    pods = [make_pod(name).req(cpu="3").obj() for name in ("p0", "p1")]
    running = [web("w1", "a").obj(), daemon("d", "b").obj()]
    plan = planned(*NODES[:2], small, *running, *pods, pods=("default/p0", "default/p1"))
    assert (plan.outcome, len(plan.moves), plan.smallest) == ("partial", 1, True)
    assert plan.reason is not None and "the solver has proved it" in plan.reason


def test_too_few_moves_are_allowed() -> None:
    pytest.importorskip("highspy")
    running = [web(f"{node}{number}", node, "1").obj() for node in "abc" for number in range(2)]
    plan = planned(*NODES, *running, BIG, most_moves=1)
    assert (plan.outcome, plan.bound) == ("unknown", 2)
    assert plan.reason == "2 moves would be needed at least, and no more than 1 may be made"


TIED = make_pod("tied").req(cpu="2").owner("ReplicaSet", "tied-5d8f").node("a")
BESIDE_TIED = [
    *(make_node(name).capacity(cpu="4", pods="10").label({ZONE: name}).obj() for name in "abc"),
    *(web(f"b{number}", "b", "1").obj() for number in range(2)),
    *(make_pod(f"d{number}").label(app="web").req(cpu="1").owner("DaemonSet", "d").node("c").obj() for number in "01"),
    BIG,
]
"""One move seems to be enough on node a, but its pod cannot go elsewhere; node b needs two."""
DECEIVED = [*BESIDE_TIED, deepcopy(TIED).anti_affinity("kubernetes.io/hostname", labels={"app": "web"}).obj()]


def test_sums_show_without_a_solver_that_a_plan_is_the_smallest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solver, "is_installed", lambda: False)
    proved = planned(*NODES, web("w1", "a").obj(), web("w2", "b").obj(), web("w3", "c", "3").obj(), BIG)
    assert (proved.outcome, proved.smallest, proved.notes) == ("moves", True, [])
    stuck = planned(*BESIDE_TIED, deepcopy(TIED).node_selector({ZONE: "a"}).obj())
    assert (stuck.outcome, len(stuck.moves), stuck.smallest) == ("moves", 2, True)
    deceived = planned(*DECEIVED)
    assert (deceived.outcome, len(deceived.moves), deceived.smallest, deceived.bound) == ("moves", 2, False, 1)
    assert solver.MISSING in deceived.notes


@pytest.mark.usefixtures("_either")
def test_sums_show_how_many_of_several_pods_fit_at_most() -> None:
    running = [web(f"w-{node}", node, "1").obj() for node in "ab"] + [daemon(f"d-{node}", node).obj() for node in "ab"]
    pods = [make_pod(name).req(cpu="2").obj() for name in ("p0", "p1")]
    plan = planned(*NODES[:2], *running, *pods, pods=("default/p0", "default/p1"))
    assert (plan.outcome, len(plan.moves), plan.reason) == (
        "partial",
        1,
        "the cluster is short of 2 cpu even if every movable pod goes",
    )
    assert [(each.placed, each.at_most) for each in plan.priorities] == [(1, 1)]


def test_a_search_without_time_finds_nothing_and_says_so() -> None:
    plan = planned(*NODES, web("w1", "a").obj(), web("w2", "b").obj(), web("w3", "c", "3").obj(), BIG, seconds=0)
    assert plan.outcome == "unknown"
    assert plan.reason is not None and "none was found within 0 s" in plan.reason


class InterruptedClock(ManualClock):
    """A clock that is read `readings` times, and then interrupts its reader as Ctrl-C does."""

    def __init__(self, readings: int) -> None:
        super().__init__()
        self._readings = readings

    def monotonic(self) -> float:
        self._readings -= 1
        if self._readings < 0:
            raise KeyboardInterrupt
        return super().monotonic()


def test_an_interrupted_search_answers_with_the_best_plan_so_far() -> None:
    pytest.importorskip("highspy")
    state = Cluster.from_objects(DECEIVED)._state
    plan = find_plan(state, ["default/big"], clock=InterruptedClock(5))  # the heuristic has ended, the solver begins
    assert (plan.outcome, len(plan.moves), plan.smallest) == ("moves", 2, False)
    assert "interrupted: this is the best plan so far" in plan.notes
    with pytest.raises(KeyboardInterrupt):
        find_plan(state, ["default/big"], clock=InterruptedClock(1))


def test_each_plan_that_is_the_best_so_far_is_reported() -> None:
    reports: list[str] = []
    find_plan(Cluster.from_objects(DECEIVED)._state, ["default/big"], progress=reports.append)
    assert reports == ["best plan so far: 2 moves for 1 of 1 pod"]


def test_rules_that_the_solver_does_not_know_are_decided_by_the_scheduler() -> None:
    """Node a would need one move, but the pod that waits may not be beside a pod that stays there."""
    pytest.importorskip("highspy")
    shy = make_pod("big").req(cpu="2").anti_affinity("kubernetes.io/hostname", labels={"app": "db"}).obj()
    stays = make_pod("db").label(app="db").req(cpu="1").owner("DaemonSet", "db").node("a").obj()
    running = [web("w1", "a", "2").obj(), *(web(f"b{number}", "b", "1").obj() for number in range(3))]
    full = [web("c1", "c", "1").obj(), make_pod("d").req(cpu="2").owner("DaemonSet", "d").node("c").obj()]
    plan = planned(*NODES, stays, *running, *full, shy)
    assert plan.outcome == "moves"
    assert plan.placements[0].node != "a"


@pytest.mark.parametrize(
    ("pods", "options", "message"),
    [
        (("default/w1",), {}, "is on node a already"),
        (("default/big",), {"keep": ["a=b=c"]}, "expected KEY=VALUE"),
        ((make_pod("new").node("a").obj(),), {}, "binds it to a node without a scheduler"),
        ((), {"room_for": "2x banana"}, "^2x banana: unknown resource: expected cpu, memory"),
        ((), {"room_for": "0x cpu"}, "^0x cpu: expected more than 0 x cpu"),
        ((), {"room_for": "2Q x memory, 1x cpu"}, "'2Q' is not a quantity"),
    ],
    ids=["placed", "selector", "bound", "resource", "nothing", "quantity"],
)
def test_what_cannot_be_planned_is_an_error(pods: tuple[Any, ...], options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        planned(*NODES, web("w1", "a").obj(), BIG, pods=pods, **options)
    with pytest.raises(UnknownPod):
        planned(*NODES, BIG, pods=("default/nobody",))


def test_the_cluster_is_not_changed() -> None:
    cluster = Cluster.from_objects([*NODES, web("w1", "a").obj(), web("w2", "b").obj(), web("w3", "c", "3").obj(), BIG])
    before = cluster.snapshot()
    first = cluster.plan("default/big")
    assert cluster.plan("default/big") == first
    assert cluster.snapshot() == before


def commands(plan: MovePlan) -> list[str]:
    """Returns what the script does, without its functions."""
    lines = plan.to_script().splitlines()
    return [line for line in lines if line.startswith(("cordon ", "move ", "uncordon ", "expect ", "# Create"))]


def test_the_script_moves_in_order_and_then_waits_for_the_pods_to_place() -> None:
    running = [web("w1", "a", "1").obj(), web("w2", "a", "1").obj(), web("w3", "b").obj(), web("w4", "c").obj()]
    busy = [make_pod(f"d{node}").req(cpu="1").owner("DaemonSet", "d").node(node).obj() for node in "bc"]
    plan = planned(*NODES, *running, *busy, BIG)
    moved = [f"move default {move.pod.split('/')[1]} a {move.target} '' ''" for move in plan.moves]
    assert commands(plan) == [*moved, "uncordon $cordoned", "expect default big a"]
    created = planned(*NODES, *running, *busy, pods=(BIG,))
    assert commands(created)[-1] == "# Create pod default/big now; planned: on a."


def test_the_script_uses_the_cluster_that_it_is_given() -> None:
    plan = planned(*NODES, web("w1", "a").obj(), web("w2", "b").obj(), web("w3", "c", "3").obj(), BIG)
    script = plan.to_script(["--context=my test"])
    assert "kubectl() { command kubectl '--context=my test' \"$@\"; }" in script.splitlines()


def test_a_move_is_named_in_the_document() -> None:
    plan = planned(*NODES, web("w1", "a").obj(), web("w2", "b").obj(), web("w3", "c", "3").obj(), BIG)
    rest: dict[str, list[str]] = {"uncordoned": [], "cordoned": [], "released": [], "placements": []}
    assert plan.to_dict()["moves"] == [{"pod": "default/w1", "source": "a", "target": "b", **rest}]
    assert plan.moves == [Move("default/w1", "a", "b")]


def test_a_pod_is_directed_to_a_node_that_the_scheduler_would_not_choose() -> None:
    """The node that it leaves is cordoned until it is released, and the other nodes only during the step."""
    state = Cluster.from_objects([*NODES, web("w1", "a").obj(), web("w2", "b", "1").obj()])._state.copy()
    trial = PlanTrial(state, 0, datetime(2026, 11, 30, tzinfo=UTC))
    trial.evict("default/w1", "b")
    assert trial.moves == [Move("default/w1", "a", "b", cordoned=("c",))]
    assert [node.name for node in state.nodes() if node.spec.unschedulable] == ["a"]
    trial.release(["a"])
    assert trial.moves == [Move("default/w1", "a", "b", cordoned=("c",), released=("a",))]
    assert not any(node.spec.unschedulable for node in state.nodes())


def test_a_pod_cannot_be_directed_to_a_node_without_room() -> None:
    state = Cluster.from_objects([*NODES, web("w1", "a").obj(), web("w2", "b", "3").obj()])._state.copy()
    trial = PlanTrial(state, 0, datetime(2026, 11, 30, tzinfo=UTC))
    with pytest.raises(MoveRefused, match="b cannot take pod default/w1"):
        trial.evict("default/w1", "b")


def test_the_nodes_that_are_cordoned_for_a_step_are_shown_and_in_the_script() -> None:
    plan = planned(*NODES, web("w1", "a").obj(), web("w2", "b").obj(), web("w3", "c", "3").obj(), BIG)
    move = Move("default/w1", "a", "b", cordoned=("c",), released=("a",), placements=plan.placements)
    directed = replace(plan, moves=[move])
    title, row = [line for line in as_text(directed) if line.startswith(("STEP", "1  "))]
    assert title.split("  ")[-3:] == ["CORDONED FOR THIS STEP", "THEN UNCORDON", "THEN PLACED"]
    assert row.endswith("default/big on a")
    assert commands(directed) == [
        "cordon c",
        "move default w1 a b '' ''",
        "uncordon c a",
        "expect default big a",
        "uncordon $cordoned",
    ]


def test_waiting_pods_that_a_step_places_are_part_of_it() -> None:
    """The first pod would take node a, the only one for the second, if both nodes were free at the end."""
    pytest.importorskip("highspy")
    wide = make_node("a").capacity(cpu="5", pods="10").label({ZONE: "a"}).obj()
    full = [daemon(f"d{node}", node).obj() for node in "cd"]
    homes = [make_node(name).capacity(cpu="4", pods="10").label({ZONE: name}).obj() for name in "bcd"]
    movers = [web("w1", "a").node_selector({ZONE: "c"}).obj(), web("w2", "b").node_selector({ZONE: "d"}).obj()]
    waiting = [make_pod("first").req(cpu="4").obj(), make_pod("second").req(cpu="4").node_selector({ZONE: "a"}).obj()]
    plan = planned(wide, *homes, *full, *movers, *waiting, pods=("default/first", "default/second"))
    assert plan.moves == [
        Move("default/w2", "b", "d", released=("b",), placements=(Placement("default/first", "b"),)),
        Move("default/w1", "a", "c"),
    ]
    assert commands(plan)[1:3] == ["uncordon b", "expect default first b"]


def test_a_node_is_emptied_and_stays_cordoned() -> None:
    objects = [*NODES, web("w1", "a").obj(), web("w2", "b").obj(), daemon("agent", "a").obj()]
    plan = planned(*objects, pods=(), empty_nodes=["a"])
    assert (plan.outcome, plan.smallest, plan.emptied, moves(plan)) == (
        "moves",
        True,
        ["a"],
        [("default/w1", "a", "c")],
    )
    assert commands(plan) == ["cordon a stays", "move default w1 a c '' ''", "uncordon $cordoned"]


def test_pods_of_other_nodes_move_if_the_pods_of_an_emptied_node_need_their_room() -> None:
    """The pod on a needs zone b, where there is room only once the pod on b has gone to c."""
    pytest.importorskip("highspy")
    on_a = make_pod("x").req(cpu="3").owner("ReplicaSet", "x-5d8f").node("a").node_selector({ZONE: "b"}).obj()
    on_b = make_pod("y").req(cpu="3").owner("ReplicaSet", "y-5d8f").node("b").obj()
    plan = planned(*NODES, on_a, on_b, pods=(), empty_nodes=["a"])
    assert (moves(plan), plan.smallest) == ([("default/y", "b", "c"), ("default/x", "a", "b")], True)


def test_a_node_with_a_pod_that_stays_cannot_be_emptied() -> None:
    plan = planned(*NODES, make_pod("bare").req(cpu="1").node("a").obj(), pods=(), empty_nodes=["a", "b"])
    assert (plan.outcome, plan.reason) == (
        "impossible",
        "pod default/bare stays on a because it has no controller that would recreate it",
    )


@pytest.mark.usefixtures("_either")
def test_the_nodes_with_the_fewest_moves_are_chosen_outside_the_control_plane() -> None:
    control = make_node("control").capacity(cpu="4").label({"node-role.kubernetes.io/control-plane": ""}).obj()
    fourth = make_node("d").capacity(cpu="4", pods="10").obj()
    bare = [make_pod(f"bare-{node}").req(cpu="1").node(node).obj() for node in "cd"]
    running = [fourth, web("w1", "a", "1").obj(), web("w2", "a", "1").obj(), web("w3", "b", "3").obj(), *bare]
    plan = planned(*NODES, control, *running, pods=(), empty_count=1)
    assert (plan.emptied, [move.pod for move in plan.moves], plan.smallest) == (["b"], ["default/w3"], True)
    too_many = planned(*NODES, control, *running, pods=(), empty_count=3)
    assert too_many.reason is not None
    assert too_many.reason.startswith("only 2 of 4 nodes can be emptied; for example, pod default/bare-c stays on c")


def test_moves_make_room_for_more_of_a_shape() -> None:
    pytest.importorskip("highspy")
    running = [web(f"w{node}", node, "1").obj() for node in "abc"]
    plan = planned(*NODES, *running, pods=(), room_for="4x cpu on one node")
    assert plan.room == Room("4x cpu on one node", 1, before=0, after=2, most=2, allowed_moves=20)
    assert (len(plan.moves), plan.smallest, {each.node for each in plan.placements}) == (
        2,
        True,
        {move.source for move in plan.moves},
    )
    fewer = planned(*NODES, *running, pods=(), room_for=BIG, most_moves=1)
    assert fewer.room == Room("Pod default/big", 1, before=0, after=1, most=1, allowed_moves=1)
    none = planned(*NODES, *running, pods=(), room_for="4x cpu", most_moves=0)
    assert (none.outcome, none.reason) == ("unknown", "1 move would be needed at least, and no more than 0 may be made")


def test_room_is_made_for_whole_groups() -> None:
    pytest.importorskip("highspy")
    members = [make_pod(f"m{number}").req(cpu="4").group("gang").obj() for number in range(2)]
    running = [web("w1", "a", "1").obj(), web("w2", "b", "1").obj()]
    wide = make_node("wide").capacity(cpu="3", pods="10").obj()
    objects = [*NODES[:2], wide, make_pod_group("gang", 2), *running]
    plan = planned(*objects, *members, pods=(), room_for="default/podgroup/gang", keep=["app=db"])
    assert plan.room is not None
    assert (plan.room.size, plan.room.before, plan.room.after) == (2, 0, 0)  # its own pods get the freed room
    gang = make_pod("n").req(cpu="4").group("gang").obj()
    plan = planned(*objects, pods=(), room_for=gang)
    assert plan.room is not None
    assert (plan.room.size, plan.room.before, plan.room.after, len(plan.moves)) == (2, 0, 1, 2)


def test_one_thing_is_planned_at_a_time() -> None:
    with pytest.raises(ConfigurationError, match="give one of"):
        planned(*NODES, BIG, empty_nodes=["a"])
    with pytest.raises(ConfigurationError, match="give one of"):
        planned(*NODES, pods=())


def pointer(*objects: Object) -> str | None:
    """Returns the line with which `explain` points to a plan."""
    explanation = Cluster.from_objects(objects).explain("default/big")
    lines = [line for line in summary(explanation) if line.endswith(": extender plan default/big")]
    assert (explanation.plan is not None) == bool(lines)
    return lines[0].removesuffix(": extender plan default/big") if lines else None


PATIENT = make_pod("big").req(cpu="4").preemption_policy("Never").obj()
FULL = [web("w1", "a").obj(), web("w2", "b").obj(), web("w3", "c", "3").obj()]


def test_explain_says_how_many_moves_would_let_a_pod_run() -> None:
    assert pointer(*NODES, *FULL, PATIENT) == "1 move of other pods would let it run"
    small = [web(f"{node}{number}", node, "1").obj() for node in "abc" for number in range(2)]
    assert pointer(*NODES, *small, PATIENT) == "2 moves of other pods would let it run"
    document = Cluster.from_objects([*NODES, *small, PATIENT]).explain("default/big").to_dict()
    assert (document["plan"], document["moves"], document["leastMoves"]) == ("extender plan default/big", 2, 2)


def test_explain_points_to_no_plan_if_none_helps() -> None:
    no_room = [web("w4", "a").obj(), web("w5", "b").obj(), web("w6", "c", "1").obj()]
    assert pointer(*NODES, *FULL, *no_room, PATIENT) is None
    bare = [make_pod(f"w{node}").req(cpu="2").node(node).obj() for node in "abc"]
    assert pointer(*NODES, *bare, PATIENT) is None
    assert pointer(*NODES, PATIENT) is None
    kept = [web(f"w{node}", node).annotation({KARPENTER_ANNOTATION: "true"}).obj() for node in "abc"]
    assert pointer(*NODES, *kept, PATIENT) is None


def chained(name: str, node: str, zone: str) -> Object:
    return make_pod(name).req(cpu="3").owner("ReplicaSet", name).node(node).node_selector({ZONE: zone}).obj()


def test_explain_gives_no_number_if_a_short_search_finds_no_plan() -> None:
    """It finds a chain of two moves, but none of three: x needs the room of y, and y that of z."""
    nodes = [make_node(name).capacity(cpu="4", pods="10").label({ZONE: name}).obj() for name in "abcd"]
    target = make_pod("big").req(cpu="3").node_selector({ZONE: "a"}).preemption_policy("Never").obj()
    two = [chained("x", "a", "b"), chained("y", "b", "d")]
    assert pointer(*nodes, *two, target) == "2 moves of other pods would let it run"
    three = [chained("x", "a", "b"), chained("y", "b", "c"), chained("z", "c", "d")]
    assert pointer(*nodes, *three, target) == "2 or more moves of other pods may let it run too"
    waiting = [make_pod(f"p{number}").req(cpu="5").preemption_policy("Never").obj() for number in range(200)]
    assert pointer(*NODES, *FULL, *waiting, PATIENT) == "moves of other pods may let it run too"


def test_the_page_has_the_moves() -> None:
    plan = planned(*NODES, web("w1", "a").obj(), web("w2", "b").obj(), web("w3", "c", "3").obj(), BIG)
    assert "1 move places default/big" in plan.to_html()
    assert "default/w1" in plan._repr_html_()

"""The loop's preemption: upstream's end-to-end tests of preemption, on the real API server.

Source: test/e2e/scheduling/preemption.go. No kubelet runs: a pod without grace is gone when it is deleted, one with
some stays until the test deletes it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import pytest

from tests.builders import HOSTNAME, Builder, NodeBuilder, Object, PodBuilder, make_pdb, make_pod, make_priority_class
from tests.end_to_end.scheduling import Scene, asking, condition, events, sized
from tests.stock.waiting import wait_until

pytestmark = pytest.mark.stock

WEB, DB = {"app": "web"}, {"app": "db"}
CRITICAL = "system-cluster-critical"


@pytest.fixture
def scene(scene: Scene) -> Scene:
    scene.create(*(make_priority_class(name, value) for name, value in (("high", 1000), ("medium", 100), ("low", 1))))
    scene.create(make_priority_class("polite", 1000, preemptionPolicy="Never"))
    return scene


def node(name: str) -> NodeBuilder:
    return sized(name, "4")


def of(priority: str, name: str, cpu: str) -> PodBuilder:
    return asking(name, cpu).priority_class(priority)


def low(name: str, node: str, cpu: str = "4") -> PodBuilder:
    return of("low", name, cpu).node(node)


def medium(name: str, node: str, cpu: str = "4") -> PodBuilder:
    return of("medium", name, cpu).node(node)


def high(name: str = "p", cpu: str = "4") -> PodBuilder:
    return of("high", name, cpu)


def uses(pod: PodBuilder, units: int) -> PodBuilder:
    """The resource that only these tests use."""
    amount = {"example.com/units": str(units)}
    return pod.req(amount).limit(amount)


def guarded(labels: dict[str, str]) -> Object:
    """A budget that allows no disruption: no controller is there to find that it allows any."""
    return make_pdb("guard", labels, minAvailable=1)


SPREAD_NODES = [node(name).capacity({"example.com/units": "10"}) for name in ("n1", "n2")]


@pytest.mark.parametrize(
    ("given", "preemptor", "place", "victims"),
    [
        pytest.param(
            [node("n1"), node("n2"), medium("medium", "n1"), low("low", "n2")], high(), "n2", {"low"}, id="basic"
        ),
        pytest.param(
            [node("n1"), node("n2"), of("high", "high", "4").node("n1"), low("low", "n2")],
            of(CRITICAL, "p", "4"),
            "n2",
            {"low"},
            id="a critical pod takes the place of the lowest",
        ),
        pytest.param(
            [node("n"), of("high", "high", "4").node("n")], of(CRITICAL, "p", "4"), "n", {"high"}, id="critical on high"
        ),
        pytest.param(
            [node("n"), low("a", "n", "1"), medium("b", "n", "1"), low("c", "n", "1"), medium("d", "n", "1")],
            high(cpu="2"),
            "n",
            {"a", "c"},
            id="no more than are needed, the least important ones",
        ),
        pytest.param(
            [
                node("n").capacity({"example.com/units": "1000"}),
                *(
                    uses(make_pod(name).priority_class(priority).node("n"), units)
                    for name, priority, units in (("p1", "low", 200), ("p2", "medium", 300), ("p3", "high", 450))
                ),
            ],
            uses(make_pod("p").priority_class(CRITICAL), 500),
            "n",
            {"p1", "p2"},
            id="execution path: the lowest two of three",
        ),
        pytest.param(
            [guarded(DB), node("n1"), node("n2"), low("guarded", "n1").label(DB), low("free", "n2").label(WEB)],
            high(),
            "n2",
            {"free"},
            id="a budget is respected where another node can do",
        ),
        pytest.param(
            [guarded(DB), node("n1"), node("n2"), low("guarded", "n1").label(DB), medium("free", "n2").label(WEB)],
            high(),
            "n2",
            {"free"},
            id="a budget weighs more than priority",
        ),
        pytest.param(
            [guarded(DB), node("n"), low("guarded", "n", "2").label(DB), medium("free", "n", "2").label(WEB)],
            high(cpu="2"),
            "n",
            {"free"},
            id="a budget is respected on one node",
        ),
        pytest.param(
            [guarded(DB), node("n"), low("guarded", "n").label(DB)],
            high(),
            "n",
            {"guarded"},
            id="a budget gives way where nothing else can do",
        ),
        pytest.param(
            [
                *SPREAD_NODES,
                uses(make_pod("large").label(WEB).priority_class("high").node("n1"), 9),
                *(uses(make_pod(f"low-{i}").label(WEB).priority_class("low").node("n2"), 3) for i in range(2)),
                uses(make_pod("kept").label(WEB).priority_class("medium").node("n2"), 3),
            ],
            uses(make_pod("p").priority_class("medium").label(WEB).spread(HOSTNAME, labels=WEB), 3),
            "n2",
            {"low-0", "low-1"},
            id="so many that the pods stay spread, though one would make room",
        ),
        pytest.param(
            [node("n"), low("web", "n", "1").label(WEB), low("other", "n", "1")],
            high(cpu="1").anti_affinity(HOSTNAME, labels=WEB),
            "n",
            {"web"},
            id="one that it must not be near",
        ),
        pytest.param(
            [node("n"), low("hermit", "n", "1").anti_affinity(HOSTNAME, labels=WEB), low("other", "n", "1")],
            high(cpu="1").label(WEB),
            "n",
            {"hermit"},
            id="one that must not be near it",
        ),
        pytest.param(
            [node("n"), low("holder", "n", "1").host_port(80), low("other", "n", "1")],
            high(cpu="1").host_port(80),
            "n",
            {"holder"},
            id="the holder of its host port",
        ),
    ],
)
def test_room_is_made(
    scene: Scene, given: Sequence[Builder | Object], preemptor: PodBuilder, place: str, victims: Collection[str]
) -> None:
    scene.given(*given)
    before = scene.pods()
    scene.create(preemptor)
    assert scene.place_of("p") == place
    assert before - scene.pods() == victims
    assert wait_until(
        lambda: {event["involvedObject"]["name"] for event in events(scene.control_plane, "Preempted")} == victims
    )


@pytest.mark.parametrize(
    ("given", "preemptor", "reason"),
    [
        pytest.param(
            [node("n"), of("high", "equal", "4").node("n")],
            high(),
            "No preemption victims found for incoming pod",
            id="those of the same priority stay",
        ),
        pytest.param(
            [node("n"), low("low", "n")],
            of("polite", "p", "4"),
            "not eligible due to preemptionPolicy=Never",
            id="a pod that is not to preempt",
        ),
        pytest.param(
            [node("n"), low("low", "n")], high(cpu="5"), "Preemption is not helpful for scheduling", id="too small"
        ),
        pytest.param(
            [node("n").taint("team", "a"), low("low", "n")],
            high(),
            "Preemption is not helpful for scheduling",
            id="a taint stays, whichever pod goes",
        ),
        pytest.param(
            [node("n"), low("low", "n", "1"), of("high", "equal", "3").node("n")],
            high(cpu="2"),
            "1 Insufficient cpu",
            id="the victims would not be enough",
        ),
    ],
)
def test_no_pod_is_evicted(scene: Scene, given: Sequence[Builder | Object], preemptor: PodBuilder, reason: str) -> None:
    scene.given(*given)
    there = scene.pods()
    scene.create(preemptor)
    assert reason in scene.refusal_of("p")
    assert (scene.pods(), scene.terminating(), scene.nomination_of("p")) == ({*there, "p"}, set(), "")


def test_a_victim_is_marked_and_waited_for(scene: Scene) -> None:
    scene.given(node("n1"), node("n2"), *(low(f"low-{i}", f"n{i}").grace(60) for i in (1, 2)))
    scene.create(high())
    (victim,) = wait_until(scene.terminating)
    assert condition(scene.control_plane, victim, "DisruptionTarget")["reason"] == "PreemptionByScheduler"
    place = scene.placed()[victim]
    assert wait_until(lambda: scene.nomination_of("p")) == place
    scene.client.patch("Node", "n1", {"metadata": {"labels": {"wake": "up"}}})
    scene.create(asking("tiny", "0"))  # when it is placed, the wake-up is known
    assert scene.place_of("tiny")
    assert scene.terminating() == {victim}
    scene.delete_pods([victim])
    assert scene.place_of("p") == place
    assert scene.pods() == {"p", "tiny", *{"low-1", "low-2"} - {victim}}


def test_what_is_made_room_for_one_is_not_taken_by_a_lesser_one(scene: Scene) -> None:
    scene.given(node("n"), low("low", "n").grace(60))
    scene.create(high())
    assert wait_until(lambda: scene.nomination_of("p")) == "n"
    scene.create(of("medium", "lesser", "1"))
    assert "1 Insufficient cpu" in scene.refusal_of("lesser")
    scene.delete_pods(["low"])
    assert scene.place_of("p") == "n"
    assert "lesser" not in scene.placed()


def test_a_greater_one_takes_the_room_and_the_nomination(scene: Scene) -> None:
    scene.given(node("n"), low("low", "n").grace(60))
    scene.create(of("medium", "lesser", "4"))
    assert wait_until(lambda: scene.nomination_of("lesser")) == "n"
    scene.create(high())
    scene.delete_pods(["low"])
    assert scene.place_of("p") == "n"
    assert wait_until(lambda: scene.nomination_of("lesser") == "")
    assert "lesser" not in scene.placed()


def test_room_made_for_a_pod_that_is_deleted_is_free_for_others(scene: Scene) -> None:
    scene.given(node("n"), low("low", "n").grace(60))
    scene.create(high())
    assert wait_until(lambda: scene.nomination_of("p")) == "n"
    scene.create(of("low", "waiting", "4"))
    assert scene.refusal_of("waiting")
    scene.delete_pods(["low"])
    scene.delete_pods(["p"])
    assert scene.place_of("waiting") == "n"


def test_pods_that_are_recreated_after_preemption_do_not_cause_more_of_it(scene: Scene) -> None:
    """Upstream's PreemptionExecutionPath: what a ReplicaSet makes in the place of the victims has to wait."""
    scene.given(node("n"), *(low(f"low-{i}", "n", "1") for i in range(4)))
    preemptions = scene.scheduler.metric("scheduler_preemption_victims_count")
    scene.create(high(cpu="3"))
    assert scene.place_of("p") == "n"
    scene.create(*(of("low", f"again-{i}", "1") for i in range(3)))
    assert all(scene.refusal_of(f"again-{i}") for i in range(3))
    assert len(scene.placed()) == 2
    assert scene.scheduler.metric("scheduler_preemption_victims_count") == preemptions + 1


def test_of_many_preemptors_the_greater_come_first_though_the_lesser_have_preempted_already(scene: Scene) -> None:
    """Upstream: "various priority Pods preempt expectedly with the async preemption"."""
    lows = {f"low-{i}-{j}" for i in range(2) for j in range(10)}
    nodes = [sized(f"n{i}", "10") for i in range(2)]
    scene.given(*nodes, *(low(name, f"n{name.split('-')[1]}", "1").grace(80) for name in sorted(lows)))
    scene.create(*(of("medium", f"medium-{i}", "1") for i in range(20)))
    assert wait_until(lambda: scene.terminating() == lows)
    highs = {f"high-{i}" for i in range(10)}
    scene.create(*(high(name, "1") for name in sorted(highs)))
    assert wait_until(lambda: all(scene.nomination_of(name) for name in highs))
    scene.delete_pods(lows)
    assert wait_until(lambda: len(scene.placed()) == 20)
    assert highs <= scene.placed().keys()

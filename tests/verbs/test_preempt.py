"""preempt: the scheduler's candidates, each with victims that are needed and suffice, or left out."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from extender.errors import InvalidAnswer
from extender.extender_v1.messages import ExtenderPreemptionResult, MetaPod, MetaVictims
from extender.framework.profile import Profiles
from extender.model.pod import Pod
from extender.table import PodInfo
from extender.table.features import VERSIONS, FeatureGates
from extender.verbs.preempt import Preempt
from tests.builders import Object, make_node, make_pdb, make_pod, make_pod_group
from tests.recordings import Call, Mode
from tests.verbs.cluster import PROFILES, answer, cache_of, preemption_args, tell
from tests.verbs.test_recordings import Replay, in_order_of_cause

NODES = [make_node(name).allocatable(cpu="4", memory="16Gi", pods="110").obj() for name in ("n", "m")]


def standing(name: str, minute: int, cpu: str = "1", priority: int = 0, on: str = "n") -> Object:
    pod = make_pod(name).uid(name).node(on).req(cpu=cpu).priority(priority).label(app="web")
    return pod.start_time(f"2026-11-21T09:{minute:02}:00Z").obj()


PODS = [standing(name, minute) for minute, name in enumerate("abcd")]
PREEMPTOR = make_pod("p").req(cpu="2").priority(100).obj()
UNSEEN = make_pod("unseen").uid("unseen").node("n").priority(0).obj()
PEER = standing("peer", 0, priority=100)
FULL_OF_PEERS = [standing("peer", 0, "4", 100)]


def preempt_of(*objects: Object) -> Preempt:
    return Preempt(cache_of(*NODES, *objects), PROFILES)


def meta(**victims: list[str]) -> bytes:
    """A request with UIDs, as Go writes it."""
    return preemption_args(PREEMPTOR, victims)


def whole(**victims: list[Object]) -> bytes:
    """A request with whole pods, as Go writes it."""
    by_node = {node: {"Pods": pods, "NumPDBViolations": 0} for node, pods in victims.items()}
    return json.dumps({"Pod": PREEMPTOR, "NodeNameToVictims": by_node, "NodeNameToMetaVictims": None}).encode()


def chosen(verb: Preempt, body: bytes) -> dict[str, list[str]]:
    """Node -> UIDs of the victims."""
    victims: dict[str, Any] = answer(verb, body)["NodeNameToMetaVictims"]
    return {node: [pod["UID"] for pod in given["Pods"]] for node, given in victims.items()}


@pytest.mark.parametrize(
    ("objects", "given", "expected"),
    [
        pytest.param(PODS, ["c", "d"], ["c", "d"], id="what suffices stays"),
        pytest.param(PODS, ["d", "c"], ["c", "d"], id="the most important first"),
        pytest.param(PODS, ["a", "b"], ["a", "b"], id="the scheduler's choice goes before one's own"),
        pytest.param(PODS, ["a", "b", "c"], ["b", "c"], id="no more than needed"),
        pytest.param(PODS, ["a", "a", "b"], ["a", "b"], id="named twice"),
        pytest.param(PODS, ["d"], ["c", "d"], id="too few: chosen again"),
        pytest.param(PODS, [], ["c", "d"], id="none: you choose"),
        pytest.param([PEER, *PODS[1:]], ["peer", "d"], ["c", "d"], id="a peer is no victim"),
        pytest.param(FULL_OF_PEERS, ["peer"], None, id="nothing but peers"),
        pytest.param([*PODS[:2], *FULL_OF_PEERS], ["a", "b"], None, id="hopeless"),
        pytest.param(PODS, ["unseen", "c", "d"], ["c", "d", "unseen"], id="one that the cache has not seen stays in"),
        pytest.param(PODS, ["unseen"], ["c", "d", "unseen"], id="one that the cache has not seen does not suffice"),
        pytest.param(PODS[:1], ["unseen"], ["unseen"], id="it fits already, says the cache: as given"),
        pytest.param(PODS[:1], ["a"], ["a"], id="none of them is needed: as given"),
        pytest.param(PODS[:1], [], None, id="it fits already and no victim was given"),
        pytest.param([PEER], ["peer"], None, id="it fits already and a peer was given"),
    ],
)
def test_victims_of_one_candidate(objects: list[Object], given: list[str], expected: list[str] | None) -> None:
    verb = preempt_of(*objects)
    wanted = {} if expected is None else {"n": expected}
    assert chosen(verb, meta(n=given)) == wanted
    known = {obj["metadata"]["uid"]: obj for obj in (*objects, UNSEEN)}
    assert chosen(verb, whole(n=[known[uid] for uid in given])) == wanted


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param(["a"], None, id="which does not suffice without it"),
        pytest.param([], None, id="which leaves the choice"),
        pytest.param(["assumed"], ["assumed"], id="which names it"),
    ],
)
def test_a_pod_whose_bind_no_watch_has_confirmed_is_a_victim_only_in_the_schedulers_choice(
    given: list[str], expected: list[str] | None
) -> None:
    assumed = make_pod("assumed").uid("assumed").req(cpu="2").obj()
    cache = cache_of(*NODES, assumed, PEER, standing("a", 1), standing("other", 0, "4", on="m"))
    cache.assume(PodInfo(msgspec.convert(assumed, Pod)), "n")
    wanted = {"m": ["other"]} if expected is None else {"n": expected, "m": ["other"]}
    assert chosen(Preempt(cache, PROFILES), meta(n=given, m=["other"])) == wanted


def test_candidates_are_judged_together_each_by_itself() -> None:
    elsewhere = [standing(f"m{i}", i, on="m") for i in range(4)]
    verb = preempt_of(*PODS, *elsewhere)
    assert chosen(verb, meta(n=["a"], m=["m0", "m1"], ghost=["x"])) == {"n": ["c", "d"], "m": ["m0", "m1"]}
    assert chosen(verb, meta(n=["m0", "m1"], m=[])) == {"n": ["c", "d", "m0", "m1"], "m": ["m2", "m3"]}


def test_unknown_whole_pods_of_a_peers_priority_are_left_out() -> None:
    peer = make_pod("other").uid("other").priority(100).obj()
    assert chosen(preempt_of(*PODS), whole(n=[peer, PODS[2], PODS[3]])) == {"n": ["c", "d"]}


def test_violations_are_counted_again() -> None:
    pdb = {**make_pdb("pdb", {"app": "web"}), "status": {"disruptionsAllowed": 0}}
    result = answer(preempt_of(*PODS, pdb), meta(n=["c", "d"]))
    assert result == {"NodeNameToMetaVictims": {"n": {"Pods": [{"UID": "c"}, {"UID": "d"}], "NumPDBViolations": 2}}}


def test_no_candidates_is_an_empty_map_and_never_null() -> None:
    assert answer(preempt_of(*FULL_OF_PEERS), meta(n=["peer"])) == {"NodeNameToMetaVictims": {}}
    assert answer(preempt_of(), meta()) == {"NodeNameToMetaVictims": {}}


def test_passing_changes_nothing_but_leaves_out_what_would_fail_the_preemption() -> None:
    verb = preempt_of()
    request = verb.decode(meta(n=["x", "y"], m=[]))
    result = verb.allow_all(request)
    assert result == ExtenderPreemptionResult({"n": MetaVictims([MetaPod("x"), MetaPod("y")], 0)})
    assert verb.encode(request, result)


def test_since_1_38_an_empty_list_is_answered_exactly_where_the_request_has_one() -> None:
    features = VERSIONS["1.38"].features
    small = make_pod("small").req(cpu="0").priority(100).obj()
    verb = Preempt(cache_of(*NODES, *PODS, features=features), Profiles(PROFILES.all, features))
    request = preemption_args(small, {"n": [], "m": ["gone"], "ghost": []})
    assert answer(verb, request) == {
        "NodeNameToMetaVictims": {
            "n": {"Pods": [], "NumPDBViolations": 0},
            "m": {"Pods": [{"UID": "gone"}], "NumPDBViolations": 0},
        }
    }
    passed = verb.allow_all(verb.decode(meta(n=["x"], m=[])))
    assert passed == ExtenderPreemptionResult({"n": MetaVictims([MetaPod("x")], 0), "m": MetaVictims([], 0)})


def test_what_would_hurt_the_scheduler_does_not_leave() -> None:
    verb = preempt_of()
    request = verb.decode(meta(n=["x"]))
    for victims in ({"stranger": MetaVictims([MetaPod("x")], 0)}, {"n": MetaVictims([], 0)}):
        with pytest.raises(InvalidAnswer):
            verb.encode(request, ExtenderPreemptionResult(victims))


def test_the_summary_counts_candidates() -> None:
    verb = preempt_of(*PODS)
    request = verb.decode(meta(n=["c", "d"], ghost=["x"]))
    summary = verb.summary(request, verb.decide(request))
    assert (summary.nodes_in, summary.nodes_out) == (2, 1)


@pytest.mark.parametrize("mode", ["names", "full"])
def test_what_the_recorded_scheduler_chose_is_what_is_answered(mode: Mode) -> None:
    replay = Replay()
    for entry in in_order_of_cause(mode):
        replay.take(entry)
    calls = [(call, answered) for call, answered in replay.answers if call.verb == "preempt"]
    assert calls
    for call, answered in calls:
        assert answered["NodeNameToMetaVictims"] == offered(call)


def offered(call: Call) -> dict[str, Any]:
    whole_pods = call.request["NodeNameToVictims"] or {}
    return call.request["NodeNameToMetaVictims"] or {
        node: {**victims, "Pods": [{"UID": pod["metadata"]["uid"]} for pod in victims["Pods"]]}
        for node, victims in whole_pods.items()
    }


@pytest.mark.parametrize("domains", [0, -1, -(2**31)])
def test_a_spread_over_fewer_domains_than_one_is_over_one(domains: int) -> None:
    """The API server lets no such pod in, but a request may hold it; no node has the topology key."""
    pod = make_pod("p").req(cpu="2").priority(100).obj()
    pod["spec"]["topologySpreadConstraints"] = [
        {"maxSkew": 1, "minDomains": domains, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    ]
    assert chosen(preempt_of(*PODS), preemption_args(pod, {"n": ["c", "d"]})) == {}


def test_a_unit_with_a_pod_in_mid_bind_on_another_node_is_no_victim() -> None:
    unit = make_pod_group("unit", 1, disruptionMode={"all": {}})
    placed = make_pod("a").uid("a").node("n").req(cpu="4").priority(0).group("unit").obj()
    unbound = make_pod("b").uid("b").req(cpu="4").priority(0).group("unit").obj()
    cache = cache_of(*NODES, unit, placed, unbound, features=FeatureGates(generic_workload=True))
    cache.assume(PodInfo(msgspec.convert(unbound, Pod)), "m")
    assert chosen(Preempt(cache, PROFILES), meta(n=["unseen"])) == {}
    cache.finish_binding("b")
    tell(cache, [make_pod("b").uid("b").node("m").req(cpu="4").priority(0).group("unit").obj()])
    assert chosen(Preempt(cache, PROFILES), meta(n=["unseen"])) == {"n": ["a", "b", "unseen"]}


@pytest.mark.parametrize(
    ("priority", "of_group", "expected"),
    [(100, 0, {"n": ["v", "unseen"]}), (0, 100, {})],
    ids=["a lower group", "a peer"],
)
def test_the_priority_of_the_group_says_if_a_pod_is_a_victim(
    priority: int, of_group: int, expected: dict[str, list[str]]
) -> None:
    pod = make_pod("v").uid("v").node("n").req(cpu="4").priority(priority).group("g").obj()
    group = make_pod_group("g", 1, priority=of_group)
    cache = cache_of(*NODES, group, pod, features=FeatureGates(generic_workload=True))
    assert chosen(Preempt(cache, PROFILES), meta(n=["v", "unseen"])) == expected


def test_victims_of_groups_come_in_the_order_of_their_groups() -> None:
    group = make_pod_group("g", 1, priority=50)
    member = make_pod("member").uid("member").node("n").req(cpu="3").priority(1).group("g").obj()
    cache = cache_of(
        *NODES, group, member, standing("single", 0, "1", 9), features=FeatureGates(generic_workload=True)
    )  # fmt: skip
    preemptor = make_pod("p").req(cpu="4").priority(100).obj()
    body = preemption_args(preemptor, {"n": ["single", "member"]})
    assert chosen(Preempt(cache, PROFILES), body) == {"n": ["member", "single"]}

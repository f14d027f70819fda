"""The rules in examples/: each decides what its file says."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from extender import Cluster, Decision
from extender.framework.permit import NO_PERMITS
from extender.framework.profile import Profile, Profiles, WeightedPriority
from extender.model.kinds import custom_kind
from extender.model.meta import CustomObject, ObjectMeta
from extender.offline.rule_trial import rules_in
from extender.plugins.registry import default_profile
from extender.plugins.users.function import put_in_force
from extender.plugins.users.handle import RunningProcess
from extender.plugins.users.rule_calls import OfflineHost
from extender.policy.library import Library
from extender.policy.loading import read
from extender.queue.entries import Entity
from extender.runtime.clock import ManualClock
from tests.builders import ZONE, Object, PodBuilder, make_node, make_pod
from tests.policy.configurations import profile
from tests.scheduler.world import NAME, World

FOLDER = Path(__file__).parents[2] / "examples" / "rules"
FILES = sorted(FOLDER.glob("*.py"))
GANG, SIZE = "example.com/gang", "example.com/gang-size"
TEAM, RACK, GPU, DATA = "example.com/team", "example.com/rack", "example.com/gpu-model", "example.com/data"


def decided(file: str, arguments: Mapping[str, Mapping[str, Any]], pod: Object, *objects: Object) -> Decision:
    """Decides about the pod by the rules of one file alone."""
    rules = {f"{file}:{name}": type(rule).__name__ for name, rule in rules_in(FOLDER / f"{file}.py").items()}
    point = {name: "filter" if kind == "PredicateFunction" else "score" for name, kind in rules.items()}
    plugins: dict[str, Any] = {"multiPoint": {"disabled": [{"name": "*"}], "enabled": [{"name": "PrioritySort"}]}}
    for name, where in point.items():
        plugins.setdefault(where, {"enabled": []})["enabled"].append({"name": name})
    document = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [
            {
                "plugins": plugins,
                "pluginConfig": [{"name": f"{file}:{name}", "args": dict(args)} for name, args in arguments.items()],
            }
        ],
    }
    profiles = Profiles(read(document, Library(folder=str(FOLDER))).profiles)
    return Cluster.from_objects(objects, profiles).decide(pod)


def totals(decision: Decision) -> dict[str, int]:
    return dict(zip(decision.feasible, decision.total.tolist(), strict=True))


LICENCE = "example.com/licence"


def test_bin_packing() -> None:
    nodes = [
        make_node(name).allocatable(cpu="10").label({TEAM: team}).obj()
        for name, team in (("a1", "a"), ("a2", "a"), ("b1", "b"))
    ]
    bound = [make_pod("used").req(cpu="5").node("a2").obj(), make_pod("free").req(cpu="5").node("none").obj()]
    decision = decided(
        "bin_packing",
        {},
        make_pod("p").label({TEAM: "a"}).obj(),
        *nodes,
        make_node("none").allocatable(cpu="10").obj(),
        *bound,
    )
    scores = totals(decision)
    assert scores["a2"] > scores["none"] > scores["a1"] == scores["b1"] == 0


def test_gpu_model() -> None:
    nodes = [make_node(model).label({GPU: model}).obj() for model in ("h100", "a100", "t4")]
    pod = make_pod("p").annotation({"example.com/gpu-models": "h100, a100"}).obj()
    decision = decided("gpu_model", {}, pod, *nodes, make_node("none").obj())
    assert totals(decision) == {"h100": 100, "a100": 50}
    assert set(decision.reasons) == {"node(s) had another GPU model"}


def test_rack_power() -> None:
    nodes = [
        make_node(name).allocatable(cpu="100").label({RACK: rack}).obj()
        for name, rack in (("n1", "r1"), ("n2", "r1"), ("n3", "r2"))
    ]
    taken = make_pod("taken").req(cpu="60").node("n1").obj()
    arguments = {"within_feed": {"feed_watts": 1000.0}}
    decision = decided(
        "rack_power",
        arguments,
        make_pod("p").req(cpu="50").obj(),
        *nodes,
        make_node("alone").allocatable(cpu="100").obj(),
        taken,
    )
    assert sorted(decision.feasible) == ["alone", "n3"]
    fits = decided("rack_power", arguments, make_pod("p").req(cpu="30").obj(), *nodes, taken)
    assert totals(fits) == {"n1": 0, "n2": 0, "n3": 100}


@pytest.mark.parametrize(("running", "fits"), [(1, True), (2, False)])
def test_licences(running: int, fits: bool, tmp_path: Path) -> None:
    (tmp_path / "count").write_text("2")
    nodes = [make_node(name).allocatable({LICENCE: "100"}).obj() for name in ("n1", "n2")]
    pods = [make_pod(f"p{number}").req({LICENCE: "1"}).node("n1").obj() for number in range(running)]
    arguments = {"licence_left": {"resource": LICENCE, "file": str(tmp_path / "count")}}
    wanting = make_pod("p").limit({LICENCE: "1"}).obj()
    assert bool(decided("licences", arguments, wanting, *nodes, *pods).feasible) is fits
    assert decided("licences", arguments, make_pod("other").obj(), *nodes, *pods).feasible


def test_licences_wake_the_pods_that_wait_for_one(tmp_path: Path) -> None:
    file, woken = tmp_path / "count", threading.Event()
    file.write_text("0")
    rules = rules_in(FOLDER / "licences.py")
    arguments = {"resource": LICENCE, "file": str(file), "look_every_seconds": 0.01}
    profile = Profile("p", [rules["licence_left"].rule("licences", arguments, OfflineHost())], [])
    put_in_force([profile], RunningProcess(lambda *_: woken.set(), NO_PERMITS))
    try:
        cluster = Cluster.from_objects([make_node("n").allocatable({LICENCE: "100"}).obj()], Profiles([profile]))
        pod = make_pod("p").limit({LICENCE: "1"}).obj()
        assert not cluster.decide(pod).feasible
        assert not woken.is_set()
        file.write_text("1")
        assert woken.wait(60)
        assert cluster.decide(pod).feasible
    finally:
        put_in_force([], RunningProcess(lambda *_: None, NO_PERMITS), before=[profile])


def test_data_locality() -> None:
    nodes = [
        make_node("has").annotation({DATA: "orders,clicks"}).label({ZONE: "a"}).obj(),
        make_node("near").label({ZONE: "b"}).obj(),
        make_node("far").label({ZONE: "c"}).obj(),
    ]
    pod = make_pod("p").annotation({DATA: "orders"}).obj()
    decision = decided("data_locality", {"near_data": {"zones": {"orders": "b"}}}, pod, *nodes)
    assert totals(decision) == {"has": 100, "near": 50, "far": 0}


def test_gang() -> None:
    """tests/scheduler/binding/test_permit.py has what becomes of gangs."""
    document = profile(plugins={"permit": {"enabled": [{"name": "gang:whole_gang"}]}})
    first, last = (
        make_pod(name).uid(name).scheduler(NAME).label({GANG: "g"}).annotation({SIZE: "2"})
        for name in ("first", "last")
    )
    node = make_node("n").capacity(cpu="2", pods="9").allocatable(cpu="2", pods="9")
    world = World(node, first, profile=read(document, Library(folder=str(FOLDER))).profiles[0])
    world.settle()
    assert world.node_of("first") == ""
    world.put(last)
    world.settle()
    assert (world.node_of("first"), world.node_of("last")) == ("n", "n")


def test_owner_limit() -> None:
    nodes = [make_node(name).obj() for name in ("full", "free")]
    owned = [make_pod(f"web-{i}").owner("ReplicaSet", "web", uid="web").node("full").obj() for i in range(2)]
    others = make_pod("db-0").owner("StatefulSet", "db", uid="db").obj()
    mine = make_pod("web-9").owner("ReplicaSet", "web", uid="web").obj()
    assert decided("owner_limit", {}, mine, *nodes, *owned).feasible == ["free"]
    assert sorted(decided("owner_limit", {}, others, *nodes, *owned).feasible) == ["free", "full"]
    more = {"at_most_of_one_owner": {"most": 3}}
    assert sorted(decided("owner_limit", more, mine, *nodes, *owned).feasible) == ["free", "full"]


@pytest.mark.parametrize(
    ("hours", "hour", "fits"),
    [("8-18", 8, True), ("8-18", 18, False), ("20-6", 23, True), ("20-6", 5, True), ("20-6", 6, False)],
)
def test_time_of_day(hours: str, hour: int, fits: bool) -> None:
    made = rules_in(FOLDER / "time_of_day.py")["at_its_hours"].rule("hours", {}, OfflineHost(ManualClock(hour * 3600)))
    nodes = [make_node("always").obj(), make_node("sometimes").label({"example.com/hours": hours}).obj()]
    cluster = Cluster.from_objects(nodes, Profiles([Profile("p", [made], [])]))
    assert ("sometimes" in cluster.decide(make_pod("p").obj()).feasible) is fits


def loop_with(file: str, rule: str, point: str, **arguments: Any) -> World:
    """Returns a loop with one rule of a file, which is in force."""
    made = rules_in(FOLDER / f"{file}.py")[rule].rule(rule, arguments, OfflineHost())
    points: dict[str, Any] = {point: made if point == "queue_sort" else (made,)}
    changed = replace(default_profile(), **points)
    world = World(make_node("n").capacity(cpu="9", pods="9").allocatable(cpu="9", pods="9"), profile=changed)
    put_in_force([changed], RunningProcess(world.queue.wake, world.permits))
    return world


def waiting(name: str, **labels: str) -> PodBuilder:
    return (
        make_pod(name).uid(name).scheduler(NAME).label({f"example.com/{key}": value for key, value in labels.items()})
    )


def test_floating_licences() -> None:
    world = loop_with("floating_licences", "floating_licence", "permit", licences={"solver": 1})
    for pod in (waiting("first", licence="solver"), waiting("second", licence="solver"), waiting("other")):
        world.put(pod)
        world.settle()
    assert [world.node_of(name) for name in ("first", "second", "other")] == ["n", "", "n"]
    assert world.conditions[-1][2] == "0/1 nodes are available: 1 no licence of solver was left."
    world.delete("Pod", "default/first")
    world.clock.advance(10)
    world.settle()
    assert world.node_of("second") == "n"


def test_watched_rack_power() -> None:
    racks = {name: {"spec": {"wattsLeft": watts}} for name, watts in (("r1", 100), ("r2", 500))}
    kind = {"apiVersion": "example.com/v1", "kind": "RackPower"}
    objects = [{**kind, "metadata": {"name": name}, **rack} for name, rack in racks.items()]
    nodes = [
        make_node(name).label({"example.com/rack": rack}).obj()
        for name, rack in (("a", "r1"), ("b", "r2"), ("c", "r2"))
    ]
    taken = make_pod("taken").req(cpu="20").node("c").obj()
    rule = rules_in(FOLDER / "watched_rack_power.py")["most_watts_left"].rule("power", {}, OfflineHost())
    profiles = Profiles(
        [Profile("p", [], [WeightedPriority(rule)])], watch=[custom_kind("example.com/v1", "RackPower", "")]
    )
    scores = totals(Cluster.from_objects([*objects, *nodes, taken], profiles).decide(make_pod("p").obj()))
    assert scores["b"] == 100
    assert scores["a"] == 0 < scores["c"] < 100


def test_gold_first() -> None:
    world = loop_with("gold_first", "gold_first", "queue_sort")
    for pod in (waiting("plain").priority(9), waiting("silver", tier="silver"), waiting("gold", tier="gold")):
        world.put(pod)
    world.watch()
    popped: Iterator[Entity] = iter(lambda: world.queue.pop(0), None)
    assert [queued.info.pod.name for queued in popped] == ["gold", "silver", "plain"]


def test_quota_gate() -> None:
    world = loop_with("quota_gate", "after_its_quota", "pre_enqueue")
    quota = custom_kind("example.com/v1", "TeamQuota", "teamquotas").type
    assert issubclass(quota, CustomObject)
    world.put(waiting("p"))
    reasons = []
    for spec in (None, {}, {"approved": True}):
        if spec is not None:
            content = {"spec": spec}
            world.put_object(quota(metadata=ObjectMeta(name="default", namespace="default"), content=content))
        world.settle()
        reasons += [queued.gate.reasons[0] for _, queued in world.queue.queued() if queued.gate]
    assert reasons == ["waiting for a TeamQuota in the namespace", "waiting until the TeamQuota is approved"]
    assert world.node_of("p") == "n"


def test_every_example_has_a_test() -> None:
    tested = {name.removeprefix("test_") for name in globals() if name.startswith("test_")}
    tested |= {path.stem.removeprefix("test_") for path in Path(__file__).parent.glob("test_*.py")}
    assert {path.stem for path in FILES} <= tested

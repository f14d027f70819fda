"""Plans of filter for pod groups, and the calls answered from them: a replay decides the members as the webhook did."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from extender.cache.cache import Cache
from extender.engine.group_members import MemberJudge
from extender.errors import ExtenderError
from extender.model.pod import Pod
from extender.offline.recording.reading import Recording
from extender.offline.recording.replay import PLANNED, replay
from extender.recording.lines import CallLine, PlanLine, RecordedSettings
from extender.recording.recorder import (
    LIMIT_BYTES,
    RecordedChanges,
    RecordedRandom,
    Recorder,
    RecordingObserver,
    RotatingFiles,
)
from extender.runtime.clock import ManualClock
from extender.runtime.ports import Telemetry
from extender.verbs.filter import Filter
from extender.verbs.group_plans import GroupPlans
from extender.web.app import Calls
from tests.builders import Object, make_composite_pod_group, make_node, make_pod, make_pod_group
from tests.offline.recording.test_hostile import mutated, uses
from tests.verbs.cluster import PROFILES, TREES, args, tell

pytestmark = pytest.mark.slow

NODES = [f"n{number}" for number in range(6)]
IN_A_ZONE = {"topology": [{"key": "topology.kubernetes.io/zone"}]}
GATES = "GenericWorkload=true,TopologyAwareWorkloadScheduling=true,CompositePodGroup=true"
POLICY = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles: [{plugins: {filter: {disabled: [{name: NodeResourcesFit}]}}}]
"""


class RecordedPlans:
    """filter with plans for pod groups, recorded; it can be asked as kube-scheduler asks."""

    def __init__(self, path: Path, *objects: Object, seed: int = 0, scheduler_filters: bool = True) -> None:
        self.clock = ManualClock()
        settings = RecordedSettings(mode="serve", feature_gates=GATES, scheduler_filters=scheduler_filters)
        files = RotatingFiles(path, 1 << 30)
        self.recorder = Recorder(files, settings, "0.1.0", self.clock, lambda *_: None, limit_bytes=LIMIT_BYTES)
        changes, random = RecordedChanges(self.recorder), RecordedRandom()
        random.seed(seed)
        observer = RecordingObserver(self.recorder, changes, random)
        self.cache = Cache(
            self.clock, Telemetry(), features=TREES, changes=changes
        )  # fmt: skip
        plans = GroupPlans(
            self.cache, MemberJudge(random), Telemetry(), self.clock,
            scheduler_filters=scheduler_filters, observer=observer, pause=self.clock.advance,
        )  # fmt: skip
        self.filter = Filter(
            self.cache, PROFILES, Telemetry(), scheduler_filters=scheduler_filters, plans=plans
        )  # fmt: skip
        self.calls = Calls(dict, lambda _: None, observers=[observer])
        tell(self.cache, objects)

    def ask(self, pod: Object, names: Sequence[str] = NODES) -> list[str]:
        answer = self.calls.answer(self.filter, args(pod, names=list(names)))
        answered: list[str] = json.loads(answer.body)["NodeNames"]
        return answered

    def delete(self, pod: Object) -> None:
        info = self.cache.find_pod(pod["metadata"]["uid"], f"default/{pod['metadata']['name']}")
        assert info is not None
        self.cache.deleted(Pod.__name__, info.pod)


def node(name: str, cpu: str = "4") -> Object:
    zone = "abc"[int(name[1:]) % 3]
    return make_node(name).zone(zone).allocatable(cpu=cpu, memory="64Gi", pods="110").obj()


def member(name: str, group: str, cpu: str = "1", priority: int = 0, **fields: Any) -> Object:
    return make_pod(name).uid(name).req(cpu=cpu).priority(priority).group(group).status(**fields).obj()


def bound(pod: Object, name: str) -> Object:
    return {**pod, "spec": {**pod["spec"], "nodeName": name}}


def churn(webhook: RecordedPlans, random: Random) -> None:
    """Gangs come and go, some in a zone, some in need of preemption, and some below a parent; other pods take nodes in
    between."""
    tell(webhook.cache, [node(name) for name in NODES])
    placed: list[Object] = []
    for number in range(60):
        gang = (added_tree if random.random() < 0.4 else added_gang)(webhook, random, f"g{number}")
        if random.random() < 0.5:
            gang.append(make_pod(f"single{number}").uid(f"single{number}").req(cpu="1").obj())
        for pod in gang:
            zone = NODES[random.randrange(3) :: 3]
            some = random.choice((zone, random.sample(NODES, random.randint(3, 6))))
            nodes = some if random.random() < 0.3 else NODES
            nominated = pod["status"].get("nominatedNodeName")
            remaining = (nominated and webhook.ask(pod, [nominated])) or webhook.ask(
                pod, random.sample(nodes, len(nodes))
            )
            if remaining and random.random() < 0.8:
                placed.append(bound(pod, random.choice(remaining)))
                tell(webhook.cache, placed[-1:])
        for pod in random.sample(placed, min(len(placed), random.randrange(5))):
            webhook.delete(pod)
            placed.remove(pod)
        webhook.clock.advance(random.choice((1, 1, 40)))
        webhook.recorder.write()
    webhook.recorder.stop()


def added_tree(webhook: RecordedPlans, random: Random, name: str) -> list[Object]:
    """Two or three gangs below a parent, which may be below another."""
    priority, parents = random.choice((0, 10, 100)), [f"{name}-tree", f"{name}-inner"]
    inner = make_composite_pod_group(parents[1], priority=priority, parentCompositePodGroupName=parents[0])
    constraint = constrained(random)
    tree = make_composite_pod_group(parents[0], random.choice((None, 1, 2)), priority=priority, **constraint)
    tell(webhook.cache, [tree, inner])
    gangs = [
        added_gang(webhook, random, f"{name}-{index}", priority, parentCompositePodGroupName=random.choice(parents))
        for index in range(random.randint(2, 3))
    ]
    return [pod for gang in gangs for pod in gang]


def constrained(random: Random) -> dict[str, Any]:
    return {"schedulingConstraints": IN_A_ZONE} if random.random() < 0.3 else {}


def added_gang(
    webhook: RecordedPlans, random: Random, name: str, priority: int | None = None, **spec: Any
) -> list[Object]:
    size = random.randint(1, 5)
    priority = random.choice((0, 10, 100)) if priority is None else priority
    constraint = constrained(random)
    gang = [
        member(
            f"{name}-{index}", name, random.choice(("1", "2")), priority,
            **({"nominatedNodeName": random.choice(NODES)} if random.random() < 0.1 else {}),
        )
        for index in range(size)
    ]  # fmt: skip
    tell(webhook.cache, [make_pod_group(name, random.randint(1, size), priority=priority, **constraint, **spec), *gang])
    return gang


def plans(path: Path) -> list[PlanLine]:
    return [line for line in Recording.load(path).lines if isinstance(line, PlanLine)]


def calls(path: Path) -> list[CallLine]:
    return [line for line in Recording.load(path).lines if isinstance(line, CallLine)]


@pytest.mark.parametrize("scheduler_filters", [True, False], ids=["behind its filters", "alone"])
@pytest.mark.parametrize("seed", range(4))
def test_members_are_decided_again_as_they_were(seed: int, scheduler_filters: bool, tmp_path: Path) -> None:
    path = tmp_path / "recording.jsonl"
    churn(RecordedPlans(path, seed=seed, scheduler_filters=scheduler_filters), Random(seed))
    recorded = plans(path)
    assert any(plan.message for plan in recorded)
    assert any(plan.placed for plan in recorded)
    assert any(plan.before for plan in recorded)
    assert any(plan.emptied for plan in recorded) == scheduler_filters
    assert any(plan.draws for plan in recorded)
    trees = [plan for plan in recorded if plan.group.startswith("CompositePodGroup")]
    assert {bool(plan.before) for plan in trees if plan.placed} == {False, True}
    assert any(plan.message for plan in trees)
    result = replay(path)
    assert [each.to_dict() for each in result.changed] == []
    assert result.left_out == {}
    assert result.decided == {"filter": len(calls(path)), "plan": len(recorded)}


def test_a_plan_and_its_answers_are_steps(tmp_path: Path) -> None:
    path = tmp_path / "recording.jsonl"
    gang = [member(name, "g", "3") for name in "ab"]
    webhook = RecordedPlans(path, node("n1"), node("n2"), make_pod_group("g", 2), *gang)
    answered = [webhook.ask(pod, ["n1", "n2"])[0] for pod in gang]
    tell(webhook.cache, [make_pod_group("g", 3), member("c", "g", "3")])
    webhook.ask(gang[0], ["n1", "n2"])
    webhook.recorder.stop()
    steps = [(step.kind, step.subject, step.text) for step in Recording.load(path).steps if step.kind != "change"]
    assert steps[:3] == [
        ("plan", "PodGroup default/g", "plans nodes for 2 members"),
        ("call", "default/a", f"filter: {answered[0]} remains, as planned for the pod group"),
        ("call", "default/b", f"filter: {answered[1]} remains, as planned for the pod group"),
    ]
    assert steps[3][2].startswith("minCount (3) cannot be satisfied: 2 scheduled, 0 remaining (c: ")
    assert steps[4] == ("call", "default/a", "filter: 0 of 2 nodes remain")


def test_other_rules_plan_the_group_otherwise(tmp_path: Path) -> None:
    path, policy = tmp_path / "recording.jsonl", tmp_path / "policy.yaml"
    policy.write_text(POLICY)
    gang = [member(name, "g", "3") for name in "ab"]
    webhook = RecordedPlans(path, node("n1"), make_pod_group("g", 2), *gang)
    assert webhook.ask(gang[0], ["n1"]) == []
    webhook.recorder.stop()
    refusal = (
        "minCount (2) cannot be satisfied: 1 scheduled, 0 remaining (b: 0/1 nodes are available: 1 Insufficient cpu.)"
    )
    changed = [(each.what, each.differences[0].recorded, each.differences[0].replayed)
               for each in replay(path, policy).changed]  # fmt: skip
    assert changed == [("plan", refusal, "planned"), ("filter", refusal, "passes")]


def test_calls_whose_plan_is_in_an_earlier_file_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "recording.jsonl"
    gang = [member(name, "g", "3") for name in "ab"]
    webhook = RecordedPlans(path, node("n1"), node("n2"), make_pod_group("g", 2), *gang)
    answers = [webhook.ask(pod, ["n1", "n2"]) for pod in gang]
    webhook.recorder.stop()
    assert Counter(map(len, answers)) == {1: 2}
    lines = [line for line in path.read_text().splitlines() if json.loads(line)["line"] != "plan"]
    path.write_text("\n".join(lines) + "\n")
    result = replay(path)
    assert (result.decided, result.left_out, result.changed) == ({}, {PLANNED: 2}, [])


def test_a_member_that_is_judged_alone_is_decided_again(tmp_path: Path) -> None:
    path = tmp_path / "recording.jsonl"
    webhook = RecordedPlans(path, node("n1"), pod := member("a", "unknown"))
    assert webhook.ask(pod, ["n1"]) == ["n1"]
    webhook.recorder.stop()
    result = replay(path)
    assert (result.decided, result.left_out, result.changed) == ({"filter": 1}, {}, [])


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """The lines up to the call after the first plan of the rest of a gang."""
    path = tmp_path_factory.mktemp("plans") / "recording.jsonl"
    churn(RecordedPlans(path, seed=1), Random(1))
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return lines[: next(number for number, line in enumerate(lines) if line.get("before")) + 2]


@pytest.mark.parametrize("line", [-1, -2], ids=["call", "plan"])
@pytest.mark.parametrize("seed", range(15))
def test_a_mutated_plan_is_decided_or_refused_in_one_line(
    seed: int, line: int, short: list[Any], tmp_path: Path
) -> None:
    path, lines = tmp_path / "r", list(short)
    lines[line] = mutated(lines[line], Random(seed))
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    try:
        for use in uses(path):
            assert use is not None
    except ExtenderError as error:
        assert len(str(error).splitlines()) == 1, error

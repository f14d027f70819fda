"""Attempts of the loop to place pod groups, decided again: nodes, domains and victims come out as they were."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from extender.errors import DeadlineExceeded, ExtenderError
from extender.model.pod import Pod
from extender.offline.recording.reading import Recording
from extender.offline.recording.replay import FAILED, PLANNED, UNDECIDED, replay
from extender.recording.lines import GroupLine
from extender.runtime.clock import LATE
from extender.table.features import FeatureGates
from tests.builders import Object, make_composite_pod_group, make_pod, make_pod_group
from tests.offline.recording.test_hostile import CALL, CHANGE, HEADER, NODES, mutated, uses, written
from tests.scheduler.test_pod_groups import member, node
from tests.scheduler.world import NAME, World

GATES = FeatureGates(generic_workload=True, topology_aware_workload_scheduling=True, composite_pod_group=True)
CHECKPOINT = {"line": "checkpoint", "at": 1, "moment": 1, "objects": 1}
IN_A_ZONE = {"topology": [{"key": "topology.kubernetes.io/zone"}]}


def churn(path: Path, seed: int) -> None:
    """Gangs, some of them within a zone or below a tree, come and go, with pods of lower priority in their way."""
    random, world = Random(seed), World(seed=seed, record=path, features=GATES)
    for number in range(6):
        world.put(node(f"n{number}").zone("abc"[number % 3]))
    for number in range(25):
        add_group(world, random, f"g{number}")
        world.put(member(f"single{number}", "").priority(random.choice((0, 10))))
        world.settle()
        bound = [key for (_, key), obj in world.objects.items() if isinstance(obj, Pod) and obj.node_name]
        leaving = [key for key in bound if world.pod(key.partition("/")[2]).terminating]
        for key in leaving or random.sample(bound, min(len(bound), random.randrange(4))):
            world.delete("Pod", key)
        world.pass_time(3)
    world.observed.stop()


def add_group(world: World, random: Random, name: str) -> None:
    size, priority = random.randint(1, 5), random.choice((0, 10, 100))
    constraint: Object = {"schedulingConstraints": IN_A_ZONE} if random.random() < 0.5 else {}
    parent: Object = {"parentCompositePodGroupName": f"tree-{name}"} if random.random() < 0.3 else {}
    if parent:
        world.put(make_composite_pod_group(f"tree-{name}", 1, priority=priority))
    world.put(make_pod_group(name, size, priority=priority, **constraint, **parent))
    for index in range(size):
        world.put(member(f"{name}-{index}", name, random.choice(("1", "2"))).priority(priority))


def attempts(path: Path) -> list[GroupLine]:
    return [line for line in Recording.load(path).lines if isinstance(line, GroupLine)]


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(3))
def test_no_attempt_of_a_group_differs_under_the_rules_of_the_recording(seed: int, tmp_path: Path) -> None:
    path = tmp_path / "recording.jsonl"
    churn(path, seed)
    recorded = attempts(path)
    assert any(attempt.victims for attempt in recorded)
    assert any(attempt.placed for attempt in recorded)
    assert any(attempt.message for attempt in recorded)
    assert any(attempt.group.startswith("CompositePodGroup") for attempt in recorded)
    result = replay(path)
    assert [each.to_dict() for each in result.changed] == []
    assert result.decided["group"] == len(recorded)
    assert result.left_out == {}


@pytest.mark.parametrize(
    ("error", "text", "left_out"),
    [(DeadlineExceeded(LATE), LATE, UNDECIDED), (ValueError("oops"), "ValueError: oops", FAILED)],
    ids=["too late", "failed"],
)
def test_an_attempt_that_ends_in_an_error_is_recorded_and_left_out_of_a_replay(
    error: Exception, text: str, left_out: str, tmp_path: Path
) -> None:
    path = tmp_path / "recording.jsonl"
    nodes = [node(name) for name in ("n1", "n2", "n3")]
    world = World(make_pod_group("g", 2), *nodes, *(member(name, "g") for name in "ab"), features=GATES, record=path)
    decide_member, calls = world.cycles[NAME].decide_member, iter([1, 2])

    def fails_at_second(*arguments: Any, **named: Any) -> Any:
        if next(calls, 0) == 2:
            raise error
        return decide_member(*arguments, **named)

    world.cycles[NAME].decide_member = fails_at_second  # type: ignore[method-assign]  # for this world alone
    world.settle()
    world.pass_time(5)
    world.observed.stop()
    failed, *others = attempts(path)
    assert (failed.message, failed.failed, bool(failed.draws), failed.placed) == (text, True, True, {})
    assert [line.placed.keys() for line in others] == [{"default/a", "default/b"}]
    result = replay(path)
    assert (result.left_out, result.changed) == ({left_out: 1}, [])


def test_an_attempt_of_a_group_is_a_step_about_the_group(tmp_path: Path) -> None:
    path = tmp_path / "recording.jsonl"
    world = World(
        make_pod_group("g", 2), node("n1", "1"), *(member(name, "g") for name in "ab"), features=GATES, record=path
    )
    world.settle()
    world.put(node("n2"))
    world.pass_time(5)
    world.observed.stop()
    steps = [(step.subject, step.text) for step in Recording.load(path).steps if step.kind == "group"]
    assert steps[0][0] == steps[-1][0] == "PodGroup default/g"
    assert "minCount (2) cannot be satisfied: 1 scheduled, 0 remaining" in steps[0][1]
    assert steps[-1][1] == "places 2 members"


def test_without_the_gate_for_domains_groups_are_placed_elsewhere(tmp_path: Path) -> None:
    path = tmp_path / "recording.jsonl"
    gang = make_pod_group("g", 2, schedulingConstraints=IN_A_ZONE)
    nodes = [node("n1", "1").zone("a"), node("n2", "1").zone("b")]
    world = World(gang, *nodes, *(member(name, "g") for name in "ab"), features=GATES, record=path)
    world.settle()
    world.observed.stop()
    changed = replay(path, gates="TopologyAwareWorkloadScheduling=false,CompositePodGroup=false").changed
    assert {each.what for each in changed} == {"group"}
    assert changed[0].differences[0].replayed == "scheduled"


@pytest.mark.parametrize(("gates", "left_out"), [("GenericWorkload=true", {PLANNED: 1}), ("", {})])
def test_calls_about_members_are_left_out_if_filter_plans_groups(
    gates: str, left_out: dict[str, int], tmp_path: Path
) -> None:
    header = {**HEADER, "settings": {"mode": "serve", "featureGates": gates}}
    call = {**CALL, "moment": 2, "pod": make_pod("p").uid("u").group("g").obj()}
    result = replay(written(tmp_path / "r", NODES, CHECKPOINT, CHANGE, call, header=header))
    assert result.left_out == left_out
    assert sum(result.decided.values()) == 1 - len(left_out)


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """The lines up to the fifth attempt of a group."""
    path = tmp_path_factory.mktemp("groups") / "recording.jsonl"
    churn(path, 1)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return lines[: [number for number, line in enumerate(lines) if line["line"] == "group"][4] + 1]


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(20))
def test_a_mutated_attempt_is_decided_or_refused_in_one_line(seed: int, short: list[Any], tmp_path: Path) -> None:
    random = Random(seed)
    path = tmp_path / "r"
    path.write_text("".join(json.dumps(line) + "\n" for line in [*short[:-1], mutated(short[-1], random)]))
    try:
        for use in uses(path):
            assert use is not None
    except ExtenderError as error:
        assert len(str(error).splitlines()) == 1, error


def test_room_kept_for_a_split_gang_leaves_the_attempts_as_they_were(tmp_path: Path) -> None:
    """The nodes of the gang's waiting members are chosen at random, but not with the recorded numbers."""
    path = tmp_path / "split.jsonl"
    world = World(*(node(f"n{i}", "40") for i in range(8)), make_pod_group("g", 6), seed=0, record=path, features=GATES)
    for index in range(3):
        world.put(member(f"m{index}", "g").node(f"n{index}"))
    world.watch()
    for index in range(3, 6):
        world.put(member(f"m{index}", "g"))
        world.put(make_pod(f"s{index}").uid(f"s{index}").scheduler(NAME).priority(100).req(cpu="1"))
    world.settle()
    world.observed.stop()
    result = replay(path)
    assert sum(result.decided.values()) > 0
    assert result.changed == []

"""Attempts of the loop to place pod groups, decided again: nodes, domains and victims come out as they were."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from extender.offline.recording.lines import GroupLine
from extender.offline.recording.reading import Recording
from extender.offline.recording.replay import replay
from extender.table.features import FeatureGates
from tests.builders import make_composite_pod_group, make_pod_group
from tests.scheduler.test_pod_groups import member, node
from tests.scheduler.world import World

GATES = FeatureGates(generic_workload=True, topology_aware_workload_scheduling=True, composite_pod_group=True)
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
        bound = [key for (kind, key), obj in world.objects.items() if kind == "Pod" and getattr(obj, "node_name", "")]
        leaving = [key for key in bound if world.pod(key.partition("/")[2]).terminating]
        for key in leaving or random.sample(bound, min(len(bound), random.randrange(4))):
            world.delete("Pod", key)
        world.pass_time(3)
    world.observed.stop()


def add_group(world: World, random: Random, name: str) -> None:
    size, priority = random.randint(1, 5), random.choice((0, 10, 100))
    constraint = {"schedulingConstraints": IN_A_ZONE} if random.random() < 0.5 else {}
    parent = {"parentCompositePodGroupName": f"tree-{name}"} if random.random() < 0.3 else {}
    if parent:
        world.put(make_composite_pod_group(f"tree-{name}", 1, priority=priority))
    world.put(make_pod_group(name, size, priority=priority, **constraint, **parent))
    for index in range(size):
        world.put(member(f"{name}-{index}", name, random.choice(("1", "2"))).priority(priority))


def attempts(path: Path) -> list[GroupLine]:
    return [line for line in Recording.load(path).lines if isinstance(line, GroupLine)]


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

"""Attempts of the loop, decided again: ties and preemption come out as they were, for their numbers are recorded."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from extender.model.pod import Pod
from extender.offline.recording.reading import Recording
from extender.offline.recording.replay import ReplayResult, replay
from extender.recording.lines import AttemptLine
from tests.builders import make_node, make_pod
from tests.offline.recording.test_replay import FULL_FIRST, policy
from tests.scheduler.test_at_random import STEPS, Story
from tests.scheduler.world import NAME, World

ROOM = {"cpu": "4", "memory": "8Gi", "pods": "20"}


def churn(path: Path, seed: int, steps: int = 120) -> World:
    """Pods of three priorities come and go, on nodes that come and go too, more than there is room for."""
    random, world = Random(seed), World(seed=seed, record=path)
    nodes: list[str] = []
    for number in range(steps):
        if number < 6 or random.random() < 0.1:
            nodes.append(f"n{number}")
            world.put(make_node(nodes[-1]).zone("ab"[number % 2]).allocatable(ROOM).capacity(ROOM))
        elif random.random() < 0.08:
            world.delete("Node", nodes.pop(random.randrange(len(nodes))))
        name = f"p{number}"
        made = make_pod(name).scheduler(NAME).req(cpu=random.choice(("500m", "1", "2"))).label(app="x")
        world.put(made.priority(random.choice((0, 10, 100))))
        world.settle()
        bound = [key for (_, key), obj in world.objects.items() if isinstance(obj, Pod) and obj.node_name]
        leaving = [key for key in bound if world.pod(key.partition("/")[2]).terminating]
        for key in leaving or random.sample(bound, min(len(bound), random.randrange(2))):
            world.delete("Pod", key)
        world.pass_time(3)
    world.observed.stop()
    return world


def attempts(path: Path) -> list[AttemptLine]:
    return [line for line in Recording.load(path).lines if isinstance(line, AttemptLine)]


def differing(result: ReplayResult) -> list[object]:
    return [each.to_dict() for each in result.changed]


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(3))
def test_no_attempt_differs_under_the_rules_of_the_recording(seed: int, tmp_path: Path) -> None:
    churn(tmp_path / "recording.jsonl", seed)
    made = attempts(tmp_path / "recording.jsonl")
    assert any(attempt.victims for attempt in made)
    assert any(attempt.draws for attempt in made)
    assert sum(bool(attempt.order) for attempt in made) > 3
    result = replay(tmp_path / "recording.jsonl")
    assert differing(result) == []
    assert result.decided == {"attempt": len(made)}


@pytest.mark.parametrize("seed", range(2))
def test_volumes_and_devices_under_faults_are_decided_as_they_were(seed: int, tmp_path: Path) -> None:
    story = Story(seed, tmp_path / "recording.jsonl")
    for _ in range(STEPS):
        story.step()
    story.world.observed.stop()
    result = replay(tmp_path / "recording.jsonl")
    assert differing(result) == []
    assert result.decided["attempt"] > 10


def test_every_attempt_is_recorded_with_its_outcome(tmp_path: Path) -> None:
    churn(tmp_path / "recording.jsonl", 0)
    steps = Recording.load(tmp_path / "recording.jsonl").steps
    made = [step for step in steps if step.kind == "attempt"]
    failed = [step for step in made if not step.text.startswith("chose")]
    assert failed
    assert all(step.text.startswith("0/") for step in failed)
    bound = {step.subject for step in steps if step.kind == "event" and step.text.startswith("Scheduled: ")}
    assert bound == {step.subject for step in made if step.text.startswith("chose")}


def test_another_policy_chooses_other_nodes_and_says_by_which_plugin(tmp_path: Path) -> None:
    churn(tmp_path / "recording.jsonl", 0, steps=40)
    result = replay(tmp_path / "recording.jsonl", policy(tmp_path / "next.yaml", FULL_FIRST))
    differences = [one for each in result.changed for one in each.differences]
    assert differences
    assert all(one.recorded != one.replayed for one in differences)
    assert any((one.cause or "").startswith("NodeResourcesFit +") for one in differences)

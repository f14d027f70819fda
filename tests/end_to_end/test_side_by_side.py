"""The same backlog, once for the stock scheduler and once for ours: who finds a place, and whether it is lawful."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import AbstractContextManager
from random import Random
from typing import NamedTuple

import pytest

from tests.builders import Object, make_priority_class
from tests.end_to_end.backlogs import SHAPES, Backlog
from tests.end_to_end.conftest import StartScheduler
from tests.end_to_end.scheduling import asking, sized
from tests.stock.cleaning import clean
from tests.stock.control_plane import ControlPlane
from tests.stock.oracle import Oracle
from tests.stock.waiting import wait_until

pytestmark = [pytest.mark.stock, pytest.mark.slow]

PREEMPTION: list[Object] = [
    *(
        make_priority_class("low", -5),
        make_priority_class("high", 1000),
        make_priority_class("polite", 1000, preemptionPolicy="Never"),
    ),
    *(node.obj() for node in (sized("full", "4"), sized("equal", "4"), sized("tainted", "4").taint("team", "a"))),
    asking("low", "2").node("full").grace(600).obj(),
    asking("lower", "2").node("full").priority_class("low").grace(600).obj(),
    asking("other", "4").node("equal").priority_class("high").obj(),
    asking("evicts", "3").priority_class("high").obj(),
    asking("outranked", "4").priority_class("low").obj(),
    asking("polite", "4").priority_class("polite").obj(),
    asking("huge", "9").priority_class("high").obj(),
]
"""Preemptors whose PodScheduled conditions have each of the sentences that follow a preemption."""

SEEDS = range(10 if os.environ.get("SOAK") else 1)


class Outcome(NamedTuple):
    """The outcome of a backlog under one scheduler.

    Attributes:
        places: pod -> node, of the backlog's pods that are bound.
        recorded: the pods whose condition says that they fit nowhere.
        gone: the pods that stood there before, and were evicted.
    """

    places: Mapping[str, str]
    recorded: frozenset[str]
    gone: frozenset[str]


def scheduled(control_plane: ControlPlane, backlog: Backlog, scheduler: AbstractContextManager[object]) -> Outcome:
    clean(control_plane)
    control_plane.client.create(*backlog.objects)
    with scheduler:
        wait_until(lambda: settled(backlog, seen(control_plane, backlog)))
        return seen(control_plane, backlog)


def settled(backlog: Backlog, outcome: Outcome) -> bool:
    """Returns whether each pod is where it should be; a pod may be refused before it is placed."""
    waiting = {name_of(pod) for pod in backlog.pods} - outcome.places.keys()
    return outcome.places.keys() == backlog.fits and waiting == outcome.recorded and outcome.gone == backlog.victims


def seen(control_plane: ControlPlane, backlog: Backlog) -> Outcome:
    pods = {name_of(pod): pod for pod in control_plane.client.list("Pod", "default")}
    standing = {name_of(pod) for pod in backlog.standing}
    places = {
        name: pod["spec"]["nodeName"]
        for name, pod in pods.items()
        if pod["spec"].get("nodeName") and name not in standing
    }
    recorded = {name for name, pod in pods.items() if name not in places and was_told(pod)}
    return Outcome(places, frozenset(recorded), frozenset(standing - pods.keys()))


def was_told(pod: Object) -> bool:
    return any(each.get("reason") == "Unschedulable" for each in pod["status"].get("conditions", []))


def name_of(obj: Object) -> str:
    name: str = obj["metadata"]["name"]
    return name


def unlawful(oracle: Oracle, backlog: Backlog, outcome: Outcome) -> list[str]:
    """Replays the placements in the order of the decisions, and asks the stock filters before each.

    Decisions come by priority; their bindings, which are made side by side, may come in another order.
    """
    found = []
    there = [*backlog.nodes, *(pod for pod in backlog.standing if name_of(pod) not in outcome.gone)]
    for pod in backlog.pods:
        if node := outcome.places.get(name_of(pod)):
            answer = oracle.answer(there, pod)
            if node not in (answer["feasible"] or ()):
                found.append(f"{name_of(pod)} on {node}: {answer}")
            there.append({**pod, "spec": {**pod["spec"], "nodeName": node}})
    return found


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_the_same_pods_are_placed_and_lawfully(
    control_plane: ControlPlane, start_scheduler: StartScheduler, oracle: Oracle, shape: str, seed: int
) -> None:
    backlog = SHAPES[shape](Random(seed))
    theirs = scheduled(control_plane, backlog, control_plane.scheduler())
    assert theirs.places.keys() == backlog.fits
    assert theirs.gone == backlog.victims
    ours = scheduled(control_plane, backlog, start_scheduler())
    assert ours.places.keys() == theirs.places.keys()
    assert (ours.recorded, ours.gone) == (theirs.recorded, theirs.gone)
    assert unlawful(oracle, backlog, ours) == []


def test_what_preemption_did_is_said_in_the_same_words(
    control_plane: ControlPlane, start_scheduler: StartScheduler
) -> None:
    theirs = verdicts(control_plane, control_plane.scheduler())
    assert theirs["evicts"].endswith("found a potential placement for pod on node full, preempting 2 victims")
    assert verdicts(control_plane, start_scheduler()) == theirs


COSTLY = re.compile(r" \(its last attempt took .* s, so others go first\)$")
"""On a busy machine an attempt may take longer than a cheap one; kube-scheduler does not say so."""


def verdicts(control_plane: ControlPlane, scheduler: AbstractContextManager[object]) -> dict[str, str]:
    """Pod name -> the first message of its PodScheduled condition, which its event has too."""
    clean(control_plane)
    control_plane.client.create(*PREEMPTION)
    waiting = {name_of(pod) for pod in PREEMPTION if pod["kind"] == "Pod" and "nodeName" not in pod["spec"]}
    with scheduler:
        return wait_until(lambda: said if (said := _first_events(control_plane)).keys() == waiting else {})


def _first_events(control_plane: ControlPlane) -> dict[str, str]:
    failed = [event for event in control_plane.client.list("Event", "default") if event["reason"] == "FailedScheduling"]
    failed.sort(key=lambda event: str(event["eventTime"]), reverse=True)
    return {
        event["regarding"]["name"] if "regarding" in event else event["involvedObject"]["name"]: COSTLY.sub(
            "", str(event.get("note", event.get("message", "")))
        )
        for event in failed
    }

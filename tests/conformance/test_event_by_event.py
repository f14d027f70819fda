"""A cluster that arrives event by event, with decisions in between, decides as its snapshot does.

EVENT_SEED=N draws other cases and events; EVENT_CASES=N as many of each kind.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from random import Random
from typing import Any

import pytest
from msgspec import structs

from extender.cache.cache import Cache
from extender.engine import Decision
from extender.errors import ExtenderError, IllegalTransition, MalformedCluster, UnknownNode
from extender.framework.profile import Profiles
from extender.model.meta import Object as Known
from extender.model.pod import Pod
from extender.offline.state import ClusterState
from extender.policy.loading import read as policy
from extender.runtime.clock import ManualClock
from extender.runtime.ports import Telemetry
from extender.snapshots.objects import to_object, with_defaults
from extender.table import PodInfo, Table
from tests.builders import Object
from tests.conformance.cases import KINDS, named

pytestmark = pytest.mark.thorough

SEED = int(os.environ.get("EVENT_SEED") or 1)
OF_A_KIND = int(os.environ.get("EVENT_CASES") or 4)

Event = Callable[[], object]


class Arriving:
    """A cache that gets the objects of a case: earlier versions of them, removals, and at last what they are."""

    def __init__(self, objects: Sequence[Known], random: Random) -> None:
        self.cache = Cache(ManualClock(), Telemetry())
        self._objects, self._random = objects, random

    def events(self) -> Iterator[Event]:
        """Yields the events, those of one object in their order."""
        histories = [list(self._history(obj)) for obj in self._objects]
        while histories:
            history = self._random.choice(histories)
            yield history.pop(0)
            histories = [each for each in histories if each]

    def _history(self, obj: Known) -> Iterator[Event]:
        kind = type(obj).__name__
        for _ in range(self._random.randrange(3)):
            yield partial(self.cache.changed, kind, self._earlier(obj))
            if self._random.random() < 0.3:
                yield partial(self.cache.deleted, kind, obj)
        if isinstance(obj, Pod) and obj.node_name and self._random.random() < 0.5:
            yield partial(self._assume, obj)
        yield partial(self.cache.changed, kind, obj)

    def _earlier(self, obj: Known) -> Known:
        """The object with the contents of another of its kind; a pod, before it was placed."""
        alike = [each for each in self._objects if type(each) is type(obj)]
        metadata = structs.replace(obj.metadata, resource_version="")
        earlier: Known = structs.replace(self._random.choice(alike), metadata=metadata)
        if isinstance(earlier, Pod):
            earlier = structs.replace(earlier, spec=structs.replace(earlier.spec, node_name=""))
        return earlier

    def _assume(self, pod: Pod) -> None:
        waiting = structs.replace(pod, spec=structs.replace(pod.spec, node_name=""))
        with suppress(IllegalTransition, UnknownNode):
            self.cache.assume(PodInfo(waiting), pod.node_name)


def read(case: Object) -> tuple[list[Known], Profiles | None]:
    found = (to_object(item, "item") for item in case["cluster"]["items"])
    config = case.get("config")
    profiles = None if config is None else Profiles(policy(config).profiles)
    return with_defaults([obj for obj in found if obj is not None]), profiles


def decide(state: ClusterState, table: Table, pod: Pod) -> object:
    """Returns what is decided, by the names of nodes and pods; an error as its text."""
    state.engine.table = table
    try:
        return outcome_of(state.engine.decide(pod))
    except ExtenderError as error:
        return str(error)


def outcome_of(decision: Decision) -> dict[str, Any]:
    scores = {plugin: score.weighted.tolist() for plugin, score in decision.scores.items()}
    candidates = decision.preemption.candidates if decision.preemption else {}
    return {
        "refusals": {node: (r.plugin, r.code, sorted(r.reasons)) for node, r in decision.refusals.items()},
        "scores": {
            node: {plugin: values[i] for plugin, values in scores.items()} for i, node in enumerate(decision.feasible)
        },
        "victims": {node: sorted(each.pod.key for each in found.victims) for node, found in candidates.items()},
    }


@pytest.mark.parametrize("kind", KINDS)
def test_decisions_event_by_event(kind: str) -> None:
    print(f"EVENT_SEED={SEED} EVENT_CASES={OF_A_KIND}")
    for number, case in enumerate(named(kind, OF_A_KIND, SEED)):
        try:
            objects, profiles = read(case)
            snapshot = ClusterState(objects, profiles)
        except MalformedCluster:  # the watch would leave the object out
            continue
        pod = snapshot.stored(case["pod"])
        expected = decide(snapshot, snapshot.table, pod)
        arriving = Arriving(objects, Random(SEED + number))
        state = ClusterState(objects, profiles)
        for happens in arriving.events():
            happens()
            if arriving._random.random() < 0.3:
                with arriving.cache.snapshot("test") as table:
                    decide(state, table, pod)
        for _ in range(2):
            with arriving.cache.snapshot("test") as table:
                assert decide(state, table, pod) == expected, f"EVENT_SEED={SEED} EVENT_CASES={OF_A_KIND}"

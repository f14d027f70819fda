"""The life of an extender: every recorded event into the cache, every recorded call answered in between."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from extender.model.kinds import KINDS
from extender.runtime.ports import Telemetry
from extender.verbs.bind import Bind
from extender.verbs.filter import Filter
from extender.verbs.preempt import Preempt
from extender.verbs.prioritize import Prioritize
from tests.recordings import Call, Mode, WatchEvent, calls_and_events
from tests.verbs.cluster import PROFILES, FakeBinder, cache_of

QUESTIONS = ("filter", "prioritize")
KIND_OF = {kind.plural: kind for kind in KINDS.values()}


def in_order_of_cause(mode: Mode) -> Iterator[WatchEvent | Call]:
    """The timeline with each bind where the scheduler sent it, after its last question, not where it was answered."""
    timeline = list(calls_and_events(mode))
    binds = {e.request["PodUID"]: e for e in timeline if isinstance(e, Call) and e.verb == "bind"}
    last = {uid_of(entry): entry for entry in timeline if isinstance(entry, Call) and entry.verb in QUESTIONS}
    for entry in timeline:
        if not (isinstance(entry, Call) and entry.verb == "bind"):
            yield entry
            uid = uid_of(entry)
            if last.get(uid) is entry and uid in binds:
                yield binds[uid]


def uid_of(entry: WatchEvent | Call) -> str:
    return str((entry.request["Pod"] if isinstance(entry, Call) else entry.object)["metadata"]["uid"])


class Replay:
    """A cache and the four verbs, led through a timeline."""

    def __init__(self) -> None:
        self.cache = cache_of()
        self.binder = FakeBinder()
        everything = (
            Filter(self.cache, PROFILES, Telemetry()),
            Prioritize(self.cache, PROFILES),
            Preempt(self.cache, PROFILES),
            Bind(self.cache, PROFILES, self.binder, Telemetry()),
        )
        self.verbs: dict[str, Any] = {verb.name: verb for verb in everything}
        self.answers: list[tuple[Call, Any]] = []

    def take(self, entry: WatchEvent | Call) -> None:
        if isinstance(entry, Call):
            verb = self.verbs[entry.verb]
            request = verb.decode(json.dumps(entry.request).encode())
            self.answers.append((entry, json.loads(verb.encode(request, verb.decide(request)))))
            return
        kind = KIND_OF[entry.resource]
        obj = msgspec.convert(entry.object, kind.type)
        self.cache.deleted(kind.name, obj) if entry.type == "DELETED" else self.cache.changed(kind.name, obj)


@pytest.fixture(scope="module", params=["names", "full"])
def replay(request: pytest.FixtureRequest) -> Replay:
    replayed = Replay()
    for entry in in_order_of_cause(request.param):
        replayed.take(entry)
    return replayed


def answers(replay: Replay, verb: str) -> list[tuple[Call, Any]]:
    found = [(call, answer) for call, answer in replay.answers if call.verb == verb]
    assert found
    return found


def names_asked(call: Call) -> list[str]:
    if call.request["NodeNames"] is not None:
        return list(call.request["NodeNames"])
    return [node["metadata"]["name"] for node in call.request["Nodes"]["items"]]


def test_every_placement_of_the_recording_is_accepted_by_bind(replay: Replay) -> None:
    assert [answer for _, answer in answers(replay, "bind") if answer["Error"]] == []
    assert len(replay.binder.bound) == len(answers(replay, "bind"))


def test_every_filter_answer_accounts_for_every_node(replay: Replay) -> None:
    for call, answer in answers(replay, "filter"):
        passed = answer["NodeNames"] or [node["metadata"]["name"] for node in (answer["Nodes"] or {}).get("items", [])]
        recorded = [*passed, *answer["FailedNodes"], *answer["FailedAndUnresolvableNodes"]]
        assert sorted(recorded) == sorted(names_asked(call))
        assert answer["Error"] == ""


def test_the_node_that_the_scheduler_chose_passes_the_filter(replay: Replay) -> None:
    chosen = {call.request["PodUID"]: call.request["Node"] for call, _ in answers(replay, "bind")}
    last = {call.request["Pod"]["metadata"]["uid"]: answer for call, answer in answers(replay, "filter")}
    for uid, node in chosen.items():
        assert node not in {**last[uid]["FailedNodes"], **last[uid]["FailedAndUnresolvableNodes"]}


def test_full_nodes_come_back_as_they_were_sent(replay: Replay) -> None:
    for call, answer in answers(replay, "filter"):
        assert (answer["Nodes"] is None) == (call.request["Nodes"] is None)
        if answer["Nodes"] is not None:
            sent = {node["metadata"]["name"]: node for node in call.request["Nodes"]["items"]}
            assert all(sent[node["metadata"]["name"]] == node for node in answer["Nodes"]["items"])


def test_scores_are_whole_numbers_up_to_ten_for_every_node(replay: Replay) -> None:
    for call, answer in answers(replay, "prioritize"):
        assert sorted(score["Host"] for score in answer) == sorted(names_asked(call))
        assert all(type(score["Score"]) is int and 0 <= score["Score"] <= 10 for score in answer)


def test_preemption_keeps_to_the_candidates_and_to_their_victims(replay: Replay) -> None:
    for call, answer in answers(replay, "preempt"):
        offered = {**(call.request["NodeNameToVictims"] or {}), **(call.request["NodeNameToMetaVictims"] or {})}
        kept = answer["NodeNameToMetaVictims"]
        assert kept
        for node, victims in kept.items():
            uids = [pod["UID"] for pod in victims["Pods"]]
            assert uids
            assert set(uids) <= {pod.get("UID") or pod["metadata"]["uid"] for pod in offered[node]["Pods"]}


def test_nothing_is_left_assumed(replay: Replay) -> None:
    assert replay.cache.size().assumed_pods == 0

"""The recordings hold what the replays rely on."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from tests.recordings import Call, Mode, WatchEvent, calls_and_events

MODES: list[Mode] = ["names", "full"]


@pytest.mark.parametrize("mode", MODES)
def test_every_verb_and_the_main_kinds_occur(mode: Mode) -> None:
    timeline = list(calls_and_events(mode))
    verbs = Counter(entry.verb for entry in timeline if isinstance(entry, Call))
    resources = {entry.resource for entry in timeline if isinstance(entry, WatchEvent)}
    assert set(verbs) == {"filter", "prioritize", "preempt", "bind"}
    assert resources >= {"nodes", "pods", "namespaces", "services", "priorityclasses", "poddisruptionbudgets"}


@pytest.mark.parametrize(
    ("mode", "sent", "null"),
    [
        pytest.param("names", "NodeNames", "Nodes", id="names"),
        pytest.param("full", "Nodes", "NodeNames", id="full"),
    ],
)
def test_the_mode_decides_how_nodes_travel(mode: Mode, sent: str, null: str) -> None:
    filters = [entry for entry in calls_and_events(mode) if isinstance(entry, Call) and entry.verb == "filter"]
    assert filters
    assert all(call.request[sent] and call.request[null] is None for call in filters)


@pytest.mark.parametrize("mode", MODES)
def test_a_pods_events_come_in_the_order_of_their_versions(mode: Mode) -> None:
    versions: dict[str, list[int]] = {}
    for entry in calls_and_events(mode):
        if isinstance(entry, WatchEvent) and entry.resource == "pods":
            metadata = entry.object["metadata"]
            versions.setdefault(metadata["uid"], []).append(int(metadata["resourceVersion"]))
    assert max(map(len, versions.values())) > 1
    assert all(earlier < later for history in versions.values() for earlier, later in pairwise(history))


@pytest.mark.parametrize("mode", MODES)
def test_every_bind_is_seen_by_the_watch(mode: Mode) -> None:
    timeline = list(calls_and_events(mode))
    binds = {
        (entry.request["PodUID"], entry.request["Node"])
        for entry in timeline
        if isinstance(entry, Call) and entry.verb == "bind"
    }
    watched = {
        (entry.object["metadata"]["uid"], entry.object["spec"].get("nodeName"))
        for entry in timeline
        if isinstance(entry, WatchEvent) and entry.resource == "pods"
    }
    assert binds
    assert binds <= watched

"""Standing answers: kept while they are asked for, and right again when they were not."""

from __future__ import annotations

import pytest

from extender.model.selectors import EVERYTHING, selector_from_labels
from extender.table import PodCountQuery
from extender.table.podinfo import Group
from extender.table.pods.matches import Matches

WEB = Group("default", frozenset({("app", "web")}))
DB = Group("default", frozenset({("app", "db")}))
ELSEWHERE = Group("other", frozenset({("app", "web")}))
ASKS_WEB = PodCountQuery(frozenset({"default"}), selector_from_labels({"app": "web"}))


def test_an_answer_that_nobody_asks_for_is_dropped_and_counted_anew() -> None:
    matches = Matches(4)
    matches.add(WEB, 1, terminating=False)
    first = matches.ask(ASKS_WEB)
    for app in range(1000):
        matches.ask(PodCountQuery(None, selector_from_labels({"app": f"app-{app}"})))
    matches.add(WEB, 2, terminating=False)
    assert first.total == 1, "a dropped answer is no longer told of pods"
    assert matches.ask(ASKS_WEB).by_node.tolist() == [0, 1, 1, 0]


def test_an_answer_that_is_asked_for_again_and_again_stays() -> None:
    matches = Matches(4)
    first = matches.ask(ASKS_WEB)
    for app in range(1000):
        matches.ask(PodCountQuery(None, selector_from_labels({"app": f"app-{app}"})))
        assert matches.ask(ASKS_WEB) is first


@pytest.mark.parametrize(
    ("question", "found"),
    [
        pytest.param(ASKS_WEB, {"web"}, id="by namespace and labels"),
        pytest.param(PodCountQuery(None, ASKS_WEB.selector), {"web", "elsewhere"}, id="in all namespaces"),
        pytest.param(PodCountQuery(frozenset({"default"}), EVERYTHING), {"web", "db"}, id="everything in a namespace"),
        pytest.param(PodCountQuery(frozenset(), EVERYTHING), set(), id="in no namespace"),
    ],
)
def test_found_tells_groups_by_their_slots(question: PodCountQuery, found: set[str]) -> None:
    matches = Matches(4)
    slots = {
        name: matches.add(group, 0, terminating=False)
        for name, group in [("web", WEB), ("db", DB), ("elsewhere", ELSEWHERE)]
    }
    mask = matches.found(question)
    assert {name for name, slot in slots.items() if mask[slot]} == found


def test_the_slot_of_a_group_without_pods_is_given_to_another_that_the_question_does_not_find() -> None:
    matches = Matches(4)
    freed = matches.add(WEB, 0, terminating=False)
    matches.ask(ASKS_WEB)
    matches.remove(WEB, 0, terminating=False)
    assert matches.add(DB, 0, terminating=False) == freed
    assert not matches.found(ASKS_WEB).any()
    assert matches.ask(ASKS_WEB).total == 0

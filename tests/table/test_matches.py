"""Counts of pods: kept while they are used, and correct when they are computed again."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from extender.model.selectors import EVERYTHING, Requirement, Selector, selector_from_labels
from extender.table import PodCountQuery
from extender.table.matches import Matches
from extender.table.podinfo import Group

WEB = Group("default", frozenset({("app", "web")}))
DB = Group("default", frozenset({("app", "db")}))
ELSEWHERE = Group("other", frozenset({("app", "web")}))
ASKS_WEB = PodCountQuery(frozenset({"default"}), selector_from_labels({"app": "web"}))


def test_an_unused_answer_is_dropped_and_counted_again_when_needed() -> None:
    matches = Matches(4)
    matches.add(WEB, 1, terminating=False)
    first = matches.count(ASKS_WEB)
    for app in range(1000):
        matches.count(PodCountQuery(None, selector_from_labels({"app": f"app-{app}"})))
    matches.add(WEB, 2, terminating=False)
    assert first.total == 1, "a dropped answer is not updated"
    assert matches.count(ASKS_WEB).by_node.tolist() == [0, 1, 1, 0]


def test_an_answer_in_use_is_kept() -> None:
    matches = Matches(4)
    first = matches.count(ASKS_WEB)
    for app in range(1000):
        matches.count(PodCountQuery(None, selector_from_labels({"app": f"app-{app}"})))
        assert matches.count(ASKS_WEB) is first


def test_long_queries_replace_one_another() -> None:
    """A pod may have megabytes of terms, and the next pod others."""
    matches = Matches(4)
    for number in range(20):
        matches.count(PodCountQuery(None, selector_from_labels({"app": f"{number}" + "x" * 400_000})))
    assert 1 < len(matches.queries()) < 12


def test_a_huge_query_is_answered_and_replaces_no_kept_answer() -> None:
    matches = Matches(4)
    matches.add(WEB, 1, terminating=False)
    matches.count(ASKS_WEB)
    values = frozenset((dict(WEB.labels)["app"], *(f"v{number}" for number in range(100_000))))
    huge = PodCountQuery(None, Selector((Requirement("app", "In", values),)))
    assert matches.count(huge).by_node.tolist() == [0, 1, 0, 0]
    assert matches.matching_groups(huge).tolist() == [True]
    assert matches.queries() == (ASKS_WEB,)


def test_a_large_cluster_keeps_fewer_answers_and_counts_the_others_again() -> None:
    matches = Matches(65536)
    matches.add(WEB, 1, terminating=False)
    for app in range(200):
        matches.count(ASKS_WEB if app == 0 else PodCountQuery(None, selector_from_labels({"app": f"app-{app}"})))
    kept = matches.queries()
    assert sum(matches.count(query).by_node.nbytes for query in kept) == 32 * 2**20
    assert ASKS_WEB not in kept
    assert matches.count(ASKS_WEB).total == 1


@pytest.mark.parametrize(
    ("query", "found"),
    [
        pytest.param(ASKS_WEB, {"web"}, id="by namespace and labels"),
        pytest.param(PodCountQuery(None, ASKS_WEB.selector), {"web", "elsewhere"}, id="in all namespaces"),
        pytest.param(PodCountQuery(frozenset({"default"}), EVERYTHING), {"web", "db"}, id="everything in a namespace"),
        pytest.param(PodCountQuery(frozenset(), EVERYTHING), set(), id="in no namespace"),
    ],
)
def test_matching_groups_are_returned_by_slot(query: PodCountQuery, found: set[str]) -> None:
    matches = Matches(4)
    slots = {
        name: matches.add(group, 0, terminating=False)
        for name, group in [("web", WEB), ("db", DB), ("elsewhere", ELSEWHERE)]
    }
    mask = matches.matching_groups(query)
    assert {name for name, slot in slots.items() if mask[slot]} == found


def test_a_reused_slot_does_not_match_the_query_of_its_former_group() -> None:
    matches = Matches(4)
    freed = matches.add(WEB, 0, terminating=False)
    matches.count(ASKS_WEB)
    matches.remove(WEB, 0, terminating=False)
    assert matches.add(DB, 0, terminating=False) == freed
    assert not matches.matching_groups(ASKS_WEB).any()
    assert matches.count(ASKS_WEB).total == 0


KEYS, VALUES = ("app", "tier"), ("a", "b")
GROUPS = [
    Group(namespace, frozenset(labels.items()))
    for namespace in ("default", "other")
    for labels in ({}, {"app": "a"}, {"app": "b"}, {"app": "a", "tier": "b"}, {"tier": "1"})
]
requirements = st.builds(
    Requirement,
    st.sampled_from(KEYS),
    st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Unheard"]),
    st.frozensets(st.sampled_from((*VALUES, "0"))),
)
queries = st.builds(
    PodCountQuery,
    st.none() | st.frozensets(st.sampled_from(("default", "other", "none"))),
    st.builds(Selector, st.lists(requirements, max_size=2).map(tuple), st.booleans()),
    st.booleans(),
)
pods = st.tuples(st.sampled_from(GROUPS), st.integers(0, 3), st.booleans())


class StandingAnswers(RuleBasedStateMachine):
    """Pods come and go between queries; each answer equals a new count of all pods."""

    def __init__(self) -> None:
        super().__init__()
        self.matches = Matches(4)
        self.pods: list[tuple[Group, int, bool]] = []
        self.asked: list[PodCountQuery] = []

    @rule(pod=pods, times=st.sampled_from((1, 1, 100)))
    def come(self, pod: tuple[Group, int, bool], times: int) -> None:
        """One pod comes, or a hundred groups, which are counted all at once."""
        group, row, terminating = pod
        for number in range(times):
            labels = group.labels if times == 1 else group.labels | {("number", str(number))}
            self.pods.append((Group(group.namespace, labels), row, terminating))
            self.matches.add(*self.pods[-1])

    @precondition(lambda self: self.pods)
    @rule(data=st.data())
    def go(self, data: st.DataObject) -> None:
        position = data.draw(st.integers(0, len(self.pods) - 1))
        self.matches.remove(*self.pods.pop(position))

    @rule(query=queries)
    def ask(self, query: PodCountQuery) -> None:
        self.asked.append(query)
        self.matches.count(query)

    @invariant()
    def every_answer_is_right(self) -> None:
        for query in self.asked[-4:]:
            counted = [
                row
                for group, row, terminating in self.pods
                if query.matches(group) and (query.terminating or not terminating)
            ]
            answer = self.matches.count(query)
            assert answer.by_node.tolist() == [counted.count(row) for row in range(4)]
            assert answer.total == len(counted)
            found = self.matches.matching_groups(query)
            slots = {group: entry.slot for group, entry in self.matches.groups.items()}
            assert {group for group, slot in slots.items() if found[slot]} == {
                each for each in slots if query.matches(each)
            }


StandingAnswers.TestCase.settings = settings(stateful_step_count=20)
TestStandingAnswers = StandingAnswers.TestCase


def test_exists_and_not_in_are_evaluated_over_all_groups_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """300 terms with `Exists` or `NotIn` took seconds if 20,000 pods had different labels."""
    matches = Matches(4)
    for number in range(200):
        matches.add(Group("default", frozenset({("pod", str(number))})), number % 4, terminating=False)
    tried: list[Group] = []
    monkeypatch.setattr(PodCountQuery, "matches", lambda self, group: tried.append(group))
    for operator, expected in (("Exists", 200), ("NotIn", 199), ("DoesNotExist", 0)):
        selector = Selector((Requirement("pod", operator, frozenset({"7"} if operator == "NotIn" else ())),))
        assert matches.count(PodCountQuery(None, selector)).total == expected
    assert tried == []


@pytest.mark.parametrize("others", [3, 200])
@pytest.mark.parametrize(
    ("requirement", "matches_many"),
    [
        (Requirement("app", "In", frozenset({"web"})), True),
        (Requirement("app", "In", frozenset({"db"})), False),
        (Requirement("k7", "Exists"), True),
        (Requirement("k1000", "Exists"), False),
        (Requirement("app", "NotIn", frozenset({"web"})), False),
        (Requirement("k7", "DoesNotExist"), False),
        (Requirement("k1000", "DoesNotExist"), True),
    ],
)
def test_a_group_of_many_labels_is_counted_like_any_other(
    requirement: Requirement, matches_many: bool, others: int
) -> None:
    many = Group.of("default", {"app": "web", **{f"k{number}": "v" for number in range(1000)}})
    query = PodCountQuery(frozenset({"default"}), Selector((requirement,)))
    elsewhere = query._replace(namespaces=frozenset({"other"}))
    matches = Matches(4)
    for number in range(others):
        matches.add(Group.of("default", {"app": "db", "number": str(number)}), 1, terminating=False)
    before = matches.count(query._replace(terminating=False))  # asked before the group comes
    slot = matches.add(many, 2, terminating=False)
    assert [before.by_node[2], matches.count(query).by_node[2]] == [matches_many, matches_many]
    assert matches.matching_groups(query)[slot] == matches_many
    assert matches.count(elsewhere).total == 0
    matches.remove(many, 2, terminating=False)
    assert [before.by_node[2], matches.count(query).by_node[2]] == [0, 0]

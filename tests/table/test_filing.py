"""An index finds the same items as comparing every pair."""

from __future__ import annotations

import sys

from hypothesis import given
from hypothesis import strategies as st

from extender.model.selectors import NOTHING, Requirement, Selector
from extender.table.filing import Filing
from extender.table.labels import LabelIndex, SelectorIndex

KEYS, VALUES = ["app", "tier"], ["a", "b", "c"]
requirements = st.builds(
    Requirement,
    st.sampled_from(KEYS),
    st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"]),
    st.frozensets(st.sampled_from(VALUES)),
)
selectors = st.one_of(st.builds(Selector, st.lists(requirements, max_size=3).map(tuple)), st.just(NOTHING))
label_sets = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES))


@given(filed=st.lists(st.tuples(selectors, st.booleans()), max_size=8), labels=label_sets)
def test_selectors_are_found_by_the_labels_that_they_match(
    filed: list[tuple[Selector, bool]], labels: dict[str, str]
) -> None:
    index: SelectorIndex[int] = SelectorIndex()
    for item, (selector, _) in enumerate(filed):
        index.add(selector, item)
    for item, (selector, stays) in enumerate(filed):
        if not stays:
            index.remove(selector, item)
    candidates = list(index.candidates(frozenset(labels.items())))
    standing = {item for item, (_, stays) in enumerate(filed) if stays}
    assert len(candidates) == len(set(candidates))
    assert set(candidates) <= standing
    assert set(candidates) >= {item for item in standing if filed[item][0].matches(labels)}


@given(filed=st.lists(st.tuples(label_sets, st.booleans()), max_size=8), selector=selectors)
def test_label_sets_are_found_by_the_selectors_that_match_them(
    filed: list[tuple[dict[str, str], bool]], selector: Selector
) -> None:
    index: LabelIndex[int] = LabelIndex()
    for item, (labels, _) in enumerate(filed):
        index.add(labels.items(), item)
    for item, (labels, stays) in enumerate(filed):
        if not stays:
            index.remove(labels.items(), item)
    candidates = list(index.candidates(selector))
    standing = {item for item, (_, stays) in enumerate(filed) if stays}
    assert len(candidates) == len(set(candidates))
    assert set(candidates) <= standing
    assert set(candidates) >= {item for item in standing if selector.matches(filed[item][0])}


def test_a_selector_that_requires_a_value_is_no_candidate_for_labels_without_it() -> None:
    index: SelectorIndex[str] = SelectorIndex()
    index.add(Selector((Requirement("app", "In", frozenset({"a", "b"})),)), "picky")
    index.add(Selector((Requirement("app", "Exists"),)), "broad")
    assert list(index.candidates(frozenset({("app", "c")}))) == ["broad"]
    assert set(index.candidates(frozenset({("app", "b")}))) == {"broad", "picky"}
    assert list(index.candidates(frozenset({("tier", "b")}))) == []


def test_a_single_item_takes_no_container_and_deleted_keys_give_their_memory_back() -> None:
    filing: Filing[int, int] = Filing()
    empty = deep_size(filing)
    for key in range(100_000):
        filing.add(key, 7)
    assert deep_size(filing) < 150 * 100_000
    for key in range(100_000):
        filing.remove(key, 7)
    assert deep_size(filing) < empty + 100_000


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 4), st.booleans()), max_size=40))
def test_a_filing_holds_what_was_added_and_not_removed(steps: list[tuple[int, int, bool]]) -> None:
    filing: Filing[int, int] = Filing()
    expected: set[tuple[int, int]] = set()
    for key, item, adds in steps:
        if adds:
            filing.add(key, item)
            expected.add((key, item))
        elif (key, item) in expected:
            filing.remove(key, item)
            expected.remove((key, item))
        assert {(key, item) for key in range(3) for item in filing.get(key)} == expected
        assert len(filing) == len({key for key, _ in expected})


def deep_size(filing: Filing[int, int]) -> int:
    """Returns the bytes of everything that only the filing refers to, apart from the keys."""
    items: dict[int, object] = vars(filing)["_items"]
    return sys.getsizeof(items) + sum(sys.getsizeof(filed) for filed in items.values() if isinstance(filed, dict))

"""The index finds whatever trying every pair would find."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from extender.model.selectors import NOTHING, Requirement, Selector
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
    candidates = list(index.candidates(labels.items()))
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


def test_a_selector_that_wants_a_value_is_not_tried_on_labels_without_it() -> None:
    index: SelectorIndex[str] = SelectorIndex()
    index.add(Selector((Requirement("app", "In", frozenset({"a", "b"})),)), "picky")
    index.add(Selector((Requirement("app", "Exists"),)), "broad")
    assert list(index.candidates([("app", "c")])) == ["broad"]
    assert list(index.candidates([("app", "b")])) == ["broad", "picky"]

from __future__ import annotations

import pytest

from extender.runtime.text import did_you_mean, nearest, with_suggestion

NAMES = ("Pod", "Node", "PersistentVolumeClaim", "CSINode")


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("Nodes", ["Node"]),
        ("node", ["Node"]),
        ("csinodes", ["CSINode"]),
        ("persistentvolumeclaims", ["PersistentVolumeClaim"]),
        ("Deployment", []),
        ("", []),
    ],
)
def test_the_most_similar_name_is_found_in_any_case(wrong: str, meant: list[str]) -> None:
    assert nearest(wrong, NAMES) == meant
    assert with_suggestion("unknown", wrong, NAMES) == (f"unknown (did you mean {meant[0]}?)" if meant else "unknown")


def test_names_that_are_equally_similar_are_all_found_unless_they_are_many() -> None:
    assert nearest("web-9", ["db-1", "web-2", "web-1", "web-3"]) == ["web-2", "web-1", "web-3"]
    assert nearest("web-9", ["web-1", "web-2", "web-3", "web-4"]) == []


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ([], ""),
        (["a"], " (did you mean a?)"),
        (["a", "b"], " (did you mean a or b?)"),
        (["a", "b", "c", "d", "e"], " (did you mean a, b, c or 2 more?)"),
    ],
)
def test_suggestions_are_one_question(names: list[str], text: str) -> None:
    assert did_you_mean(names) == text


def test_the_least_similarity_can_be_raised() -> None:
    assert nearest("EXTENDER_BIDE", ["EXTENDER_BIND"], similarity=0.95) == []
    assert nearest("EXTENDER_BIDE", ["EXTENDER_BIND"], similarity=0.9) == ["EXTENDER_BIND"]


def test_without_a_similar_name_nothing_is_suggested() -> None:
    assert nearest("Pod", ()) == []

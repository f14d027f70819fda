from __future__ import annotations

import pytest

from extender.runtime.near_names import nearest, with_suggestion

NAMES = ("Pod", "Node", "PersistentVolumeClaim", "CSINode")


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("Nodes", "Node"),
        ("node", "Node"),
        ("csinodes", "CSINode"),
        ("persistentvolumeclaims", "PersistentVolumeClaim"),
        ("Deployment", None),
        ("", None),
    ],
)
def test_the_most_similar_name_is_found_in_any_case(wrong: str, meant: str | None) -> None:
    assert nearest(wrong, NAMES) == meant
    assert with_suggestion("unknown", wrong, NAMES) == (f"unknown (did you mean {meant}?)" if meant else "unknown")


def test_the_least_similarity_can_be_raised() -> None:
    assert nearest("EXTENDER_BIDE", ["EXTENDER_BIND"], similarity=0.95) is None
    assert nearest("EXTENDER_BIDE", ["EXTENDER_BIND"], similarity=0.9) == "EXTENDER_BIND"


def test_without_a_similar_name_nothing_is_suggested() -> None:
    assert nearest("Pod", ()) is None

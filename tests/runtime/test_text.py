"""Amounts, ages and names as text, and which of the right names is meant by a wrong one."""

from __future__ import annotations

import pytest

from extender.runtime.text import age, did_you_mean, go_duration, nearest, printable, quantity, rounded, with_suggestion


@pytest.mark.parametrize(
    ("resource", "amount", "exact", "short"),
    [
        pytest.param("cpu", 1500, "1500m", "1.5", id="cpu"),
        pytest.param("cpu", 2000, "2", "2", id="whole cpus"),
        pytest.param("memory", 1536 * 2**20, "1536Mi", "1.5Gi", id="memory"),
        pytest.param("memory", 2**20 + 1, "1048577", "1Mi", id="an odd number of bytes"),
        pytest.param("memory", 2**70, "1024Ei", "1024Ei", id="more than the largest unit"),
        pytest.param("memory", 0, "0", "0", id="nothing"),
        pytest.param("pods", 2048, "2048", "2048", id="pods have no units"),
        pytest.param("example.com/gpu", 2048, "2048", "2048", id="nor have extended resources"),
        pytest.param("example.com/gpu", 1_234_567, "1234567", "1234567", id="a large number in full"),
    ],
)
def test_an_amount_is_written_exactly_or_rounded(resource: str, amount: int, exact: str, short: str) -> None:
    assert (quantity(resource, amount), rounded(resource, amount)) == (exact, short)


@pytest.mark.parametrize(
    ("seconds", "text"), [(119, "119s"), (120, "2m"), (7199, "119m"), (7200, "2h"), (172799, "47h"), (172800, "2d")]
)
def test_an_age_has_the_largest_unit_of_which_it_has_two(seconds: float, text: str) -> None:
    assert age(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (2e-9, "2ns"),
        (1.5e-6, "1.5µs"),
        (0.5, "500ms"),
        (1.5, "1.5s"),
        (30, "30s"),
        (90, "1m30s"),
        (300, "5m0s"),
        (3600.25, "1h0m0.25s"),
    ],
)
def test_a_duration_is_written_as_go_does(seconds: float, text: str) -> None:
    assert go_duration(seconds) == text


def test_control_characters_in_names_are_escaped() -> None:
    assert [printable(name) for name in ("web", "gr\u00fcn", "a\x1b[2J")] == ["web", "gr\u00fcn", "a\\x1b[2J"]


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

"""@priority: numbers become 0..100, and a failing rule is ignored."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from extender.plugins.users.priority import priority
from tests.builders import make_node, make_pod
from tests.framework.cluster import scores
from tests.plugins.users.failures import OfItsOwnBase, Remembered

NODES = [make_node(f"n{i}").label(i=str(i)).obj() for i in range(3)]
POD = make_pod("p").obj()


def scored(answers: list[object], *, normalise: bool = False, columns: bool = False) -> list[int]:
    by_node = {f"n{i}": answer for i, answer in enumerate(answers)}
    function: Callable[..., object] = (
        (lambda pod, table, rows: np.array(answers)) if columns else (lambda pod, node: by_node[node.name])
    )
    rule = priority(normalise=normalise)(function).rule("mine", {}, Remembered())
    nodes = [make_node(name).obj() for name in by_node]
    return list(scores(rule, POD, *nodes).values())


@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize(
    ("answers", "normalise", "expected"),
    [
        pytest.param([0, 50, 100], False, [0, 50, 100], id="as they are"),
        pytest.param([-5, 49.6, 1e9], False, [0, 50, 100], id="cut off and rounded"),
        pytest.param([True, False, True], False, [1, 0, 1], id="truth values"),
        pytest.param([10, 20, 30], True, [0, 50, 100], id="spread"),
        pytest.param([-0.1, -0.2, -0.4], True, [100, 67, 0], id="spread, negative fractions"),
        pytest.param([7, 7, 7], True, [0, 0, 0], id="no difference to spread"),
    ],
)
def test_numbers(answers: list[object], normalise: bool, expected: list[int], columns: bool) -> None:
    assert scored(answers, normalise=normalise, columns=columns) == expected


@pytest.mark.parametrize(
    "answers",
    [
        pytest.param(["a", "b", "c"], id="texts"),
        pytest.param([1, None, 2], id="nothing for one node"),
        pytest.param([1, float("nan"), 2], id="not a number"),
        pytest.param([1, float("inf"), 2], id="endless"),
    ],
)
def test_an_answer_that_is_not_a_number_is_ignored(answers: list[object]) -> None:
    assert scored(answers) == []


def _ends(pod: object, node: object) -> float:
    raise OfItsOwnBase


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(lambda pod, node: 1 / int(node.labels["i"]), id="raises on one node"),
        pytest.param(lambda pod, table, rows: table.nonesuch, id="raises on columns"),
        pytest.param(_ends, id="raises what ends a process"),
        pytest.param(lambda pod, table, rows: np.zeros(2), id="too few"),
    ],
)
def test_a_failing_priority_is_ignored_and_reported_once(function: Callable[..., object]) -> None:
    failures = Remembered()
    assert scores(priority(function).rule("mine", {}, failures), POD, *NODES) == {}
    assert len(failures.recorded) == 1


@pytest.mark.parametrize(
    ("answer", "recorded"),
    [
        pytest.param(10**30, "not 1000000000000000000000000000000", id="more than 64 bits"),
        pytest.param(None, "not None", id="nothing"),
        pytest.param("x" * 1000, "not 'xxxxxxxxxxxx...xxxxxxxxxxxxx'", id="a long text"),
    ],
)
def test_a_failure_names_the_answer(answer: object, recorded: str) -> None:
    messages: list[str] = []

    class Listening(Remembered):
        def failed(self, rule: str, error: BaseException) -> None:
            messages.append(str(error))

    scores(priority(lambda pod, node: answer).rule("mine", {}, Listening()), POD, *NODES)
    scores(priority(lambda pod, table, rows: answer).rule("mine", {}, Listening()), POD, *NODES)
    assert messages == [f"a priority must return a number for each of {len(NODES)} nodes, {recorded}"] * 2


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=5))
@example([-1.5e308, 1.5e308])
def test_normalised_scores_keep_the_order_and_use_the_whole_scale(answers: list[float]) -> None:
    found = scored(list(answers), normalise=True)
    if not found:  # the difference of two floats may be more than a float can hold
        assert max(answers) - min(answers) == float("inf")
        return
    in_order = [score for _, score in sorted(zip(answers, found, strict=True))]
    assert in_order == sorted(found)
    assert {min(found), max(found)} == ({0, 100} if len(set(answers)) > 1 else {0})

"""@pre_enqueue and @queue_sort: what the functions may answer, and what follows from a failure."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender import Handle, Node, Pod
from extender.framework.status import Refusal, unresolvable
from extender.plugins.users.queueing import pre_enqueue, queue_sort
from extender.plugins.users.rule_calls import OfflineHost
from tests.builders import make_node, make_pod
from tests.framework.cluster import pod_info, table_of
from tests.plugins.users.failures import FAILED, Remembered

POD = pod_info(make_pod("p").obj())


@pytest.mark.parametrize(
    ("answer", "refusal", "failures"),
    [
        pytest.param(True, None, [], id="True"),
        pytest.param(None, None, [], id="None"),
        pytest.param(False, unresolvable("mine", "held back by mine"), [], id="False"),
        pytest.param("no quota", unresolvable("mine", "no quota"), [], id="a reason"),
        pytest.param(5, FAILED, [("mine", "TypeError")], id="a number"),
        pytest.param(KeyError("x"), FAILED, [("mine", "KeyError")], id="raises"),
    ],
)
def test_a_rule_of_pre_enqueue_may_answer(
    answer: object, refusal: Refusal | None, failures: list[tuple[str, str]]
) -> None:
    def function(pod: object) -> object:
        if isinstance(answer, Exception):
            raise answer
        return answer

    host = Remembered()
    assert pre_enqueue(function).rule("mine", {}, host).refuse(POD) == refusal
    assert host.recorded == failures


def key_of(answer: object) -> tuple[float, ...]:
    return queue_sort(lambda pod: answer).rule("mine", {}, Remembered()).key(POD)


@pytest.mark.parametrize(
    ("answer", "key"),
    [
        pytest.param(3, (3,), id="a number"),
        pytest.param(True, (True,), id="a truth value"),
        pytest.param((1, -2.5), (1, -2.5), id="a tuple"),
        pytest.param((), (), id="an empty tuple"),
        pytest.param("a", (math.inf,), id="a text"),
        pytest.param(math.nan, (math.inf,), id="not a number"),
        pytest.param((1, None), (math.inf,), id="a tuple with None"),
        pytest.param(None, (math.inf,), id="None"),
    ],
)
def test_a_rule_of_queue_sort_may_answer(answer: object, key: tuple[float, ...]) -> None:
    assert key_of(answer) == key


ANSWERS = st.one_of(
    st.floats(), st.integers(), st.text(), st.none(), st.lists(st.one_of(st.floats(), st.text())).map(tuple)
)


@given(st.lists(ANSWERS, min_size=3, max_size=3))
def test_whatever_a_rule_answers_its_keys_are_in_a_total_order(answers: list[object]) -> None:
    a, b, c = map(key_of, answers)
    assert (a < b) + (b < a) + (a == b) == 1
    assert not (a <= b <= c) or a <= c


def test_functions_of_a_pod_take_nothing_else() -> None:
    with pytest.raises(TypeError, match=r"must take \(pod\), and its own arguments by keyword"):
        pre_enqueue(lambda pod, node: True)
    with pytest.raises(TypeError, match=r"must take \(pod\), and its own arguments by keyword"):
        queue_sort(lambda: 0)


class Listening(OfflineHost):
    """Keeps what the rules log."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[tuple[str, str, str]] = []

    def log(self, rule: str, pod: str, message: str) -> None:
        self.messages.append((rule, pod, message))


def test_the_handle_of_a_queue_rule_logs_with_the_pod_that_is_decided() -> None:
    @pre_enqueue
    def admits(pod: Pod, *, handle: Handle) -> None:
        handle.log("admitted")

    @queue_sort
    def sorts(pod: Pod, *, handle: Handle) -> int:
        handle.log("sorted")
        return 1

    host = Listening()
    assert admits.rule("a", {}, host).refuse(POD) is None
    assert sorts.rule("s", {}, host).key(POD) == (1,)
    assert host.messages == [("a", "default/p", "admitted"), ("s", "default/p", "sorted")]


def test_a_rule_of_pre_enqueue_reads_the_table_that_it_is_given() -> None:
    @pre_enqueue
    def needs_node(pod: Pod, *, handle: Handle) -> bool:
        return handle.objects.get(Node, "n") is not None

    rule = needs_node.rule("mine", {}, OfflineHost())
    assert rule.refuse(POD, table_of(make_node("n").obj())) is None
    assert rule.refuse(POD, table_of()) == unresolvable("mine", "held back by mine")


@pytest.mark.parametrize(
    ("method", "name"),
    [
        pytest.param(lambda handle: handle.wake(), "wake", id="wake of the handle"),
        pytest.param(lambda _: pre_enqueue(lambda pod: True).wake(), "wake", id="wake of a rule"),
        pytest.param(lambda handle: handle.activate("default", {}), "activate", id="activate"),
    ],
)
def test_a_queue_rule_learns_which_of_its_calls_is_forbidden(method: Callable[[Handle], None], name: str) -> None:
    @pre_enqueue
    def calls(pod: Pod, *, handle: Handle) -> None:
        method(handle)

    with pytest.raises(RuntimeError, match=f"must not call {name}, because the queue is locked"):
        calls.rule("mine", {}, OfflineHost()).refuse(POD)

"""@predicate: the answers of functions become verdicts, and a failure never lets a pod pass."""

from __future__ import annotations

import signal
from _thread import interrupt_main
from asyncio import CancelledError
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from threading import Event
from typing import Any

import numpy as np
import pytest

from extender.framework.find_fit import find_fit
from extender.framework.profile import Profile
from extender.framework.rules import Check
from extender.framework.status import Refusal, unresolvable, unschedulable
from extender.plugins.node_name import NodeName
from extender.plugins.users.predicate import MAX_REASONS, predicate
from extender.plugins.users.rule_calls import LiveHost, OfflineHost
from extender.runtime.clock import NO_LIMIT, ManualClock
from extender.runtime.ports import Telemetry
from tests.builders import make_node, make_pod
from tests.framework.cluster import pod_info, refusals, table_of
from tests.plugins.users.failures import FAILED, OfItsOwnBase, Remembered

NODES = [make_node(f"n{i}").label(i=str(i)).obj() for i in range(3)]
POD = make_pod("p").obj()
GENERAL = unresolvable("mine", "node(s) were refused by mine")


def refused(function: Callable[..., object], **options: Any) -> dict[str, Refusal]:
    rule = predicate(**options)(function).rule("mine", {}, Remembered())
    return refusals(rule, POD, *NODES)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        pytest.param(True, None, id="True"),
        pytest.param(None, None, id="None"),
        pytest.param(np.True_, None, id="NumPy's True"),
        pytest.param(False, GENERAL, id="False"),
        pytest.param("", GENERAL, id="no reason"),
        pytest.param("no power", unresolvable("mine", "no power"), id="a reason"),
        pytest.param("no p\udcf6wer", unresolvable("mine", "no p?wer"), id="a reason with half a character"),
        pytest.param(1, FAILED, id="a number"),
        pytest.param([], FAILED, id="a list"),
    ],
)
def test_a_function_of_pod_and_node_may_return(answer: object, expected: Refusal | None) -> None:
    wanted = dict.fromkeys(["n0", "n1", "n2"], expected) if expected else {}
    assert refused(lambda pod, node: answer) == wanted


def test_each_node_gets_its_own_answer() -> None:
    found = refused(lambda pod, node: {"n0": True, "n1": False, "n2": "full"}[node.name])
    assert found == {"n1": GENERAL, "n2": unresolvable("mine", "full")}


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        pytest.param(np.array([True, False, True]), {"n1": GENERAL}, id="which nodes fit"),
        pytest.param(
            {"a": np.array([False, False, True]), "b": np.array([True, False, True])},
            {"n0": unresolvable("mine", "a"), "n1": unresolvable("mine", "a")},
            id="by reason, of which the first counts",
        ),
        pytest.param(
            {"a": np.array([False, True, True]), "b": np.array([True, False, True]), "c": np.array([False] * 3)},
            {"n0": unresolvable("mine", "a"), "n1": unresolvable("mine", "b"), "n2": unresolvable("mine", "c")},
            id="each node by the first of its reasons",
        ),
        pytest.param({}, {}, id="no reason at all"),
        pytest.param(np.array([1, 0, 1]), dict.fromkeys(["n0", "n1", "n2"], FAILED), id="numbers"),
        pytest.param(np.array([True]), dict.fromkeys(["n0", "n1", "n2"], FAILED), id="too few"),
        pytest.param(None, dict.fromkeys(["n0", "n1", "n2"], FAILED), id="nothing"),
    ],
)
def test_a_function_of_columns_may_return(answer: object, expected: dict[str, Refusal]) -> None:
    assert refused(lambda pod, table, rows: answer) == expected


@pytest.mark.parametrize("form", ["of nodes", "of columns"])
def test_reasons_beyond_the_maximum_share_one(form: str) -> None:
    """Each reason costs a column of all nodes: with thousands of nodes, one reason per node would need gigabytes."""
    functions: Mapping[str, Callable[..., object]] = {
        "of nodes": lambda pod, node: f"{node.name} was too far away",
        "of columns": lambda pod, table, rows: {f"{table.nodes.names[r]} was too far away": rows != r for r in rows},
    }
    nodes = [make_node(f"n{i}").obj() for i in range(MAX_REASONS + 20)]
    rule = predicate(functions[form]).rule("mine", {}, Remembered())
    found = refusals(rule, POD, *nodes)
    assert len(found) == len(nodes)
    assert found["n3"] == unresolvable("mine", "n3 was too far away")
    others = [
        refusal for refusal in found.values() if refusal.reasons == ("node(s) were refused by mine for other reasons",)
    ]
    assert (len(others), len(set(found.values()))) == (20, MAX_REASONS + 1)


def test_an_exception_for_one_node_refuses_that_node() -> None:
    failures = Remembered()
    rule = predicate(lambda pod, node: 1 / int(node.labels["i"]) > 0).rule("mine", {}, failures)
    assert refusals(rule, POD, *NODES) == {"n0": FAILED}
    assert failures.recorded == [("mine", "ZeroDivisionError")]


@pytest.mark.parametrize(
    "error", [SystemExit(3), GeneratorExit(), CancelledError(), OfItsOwnBase()], ids=lambda error: type(error).__name__
)
def test_sys_exit_is_a_failure_of_the_rule(error: BaseException) -> None:
    def ends(pod: object, node: object) -> None:
        raise error

    assert refused(ends) == dict.fromkeys(["n0", "n1", "n2"], FAILED)
    with pytest.raises(RuntimeError, match=r"the rule (called|raised)"):
        refusals(predicate(ends).rule("mine", {}, OfflineHost()), POD, *NODES)


def test_ctrl_c_is_not_a_failure_of_the_rule() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores Ctrl-C
    is_over = Event()

    def interrupted(pod: object, node: object) -> None:
        if not is_over.is_set():  # the rule's thread goes on with the other nodes
            interrupt_main()
            is_over.wait(60)

    with pytest.raises(KeyboardInterrupt):
        refused(interrupted)
    is_over.set()


def test_a_failure_on_many_nodes_is_reported_once() -> None:
    failures = Remembered()
    rule = predicate(lambda pod, node: node.nonesuch).rule("mine", {}, failures)
    assert refusals(rule, POD, *NODES) == dict.fromkeys(["n0", "n1", "n2"], FAILED)
    assert failures.recorded == [("mine", "AttributeError")]


@pytest.mark.parametrize("columns", [False, True])
def test_evictions_help_only_if_the_rule_says_that_it_sees_pods(columns: bool) -> None:
    functions: list[Callable[..., object]] = [lambda pod, node: "full", lambda pod, table, rows: {"full": rows < 0}]
    blind, seeing = refused(functions[columns]), refused(functions[columns], sees_pods=True)
    assert blind["n0"] == unresolvable("mine", "full")
    assert seeing["n0"] == unschedulable("mine", "full")


@pytest.mark.parametrize("sees_pods", [False, True])
def test_preemption_calls_a_rule_again_if_it_sees_pods(sees_pods: bool) -> None:
    table = table_of(*NODES)
    rule = predicate(sees_pods=sees_pods)(lambda pod, node: True).rule("mine", {}, OfflineHost())
    check = rule.prepare(pod_info(POD), table)
    assert isinstance(check, Check)
    assert check.sees_pods is sees_pods


def test_a_function_is_called_only_for_nodes_that_no_earlier_rule_refused() -> None:
    seen: list[str] = []

    def watching(pod: Any, node: Any) -> bool:
        seen.append(node.name)
        return True

    table, pod = table_of(*NODES), pod_info({**POD, "spec": {"nodeName": "n1"}})
    rules = [NodeName(), predicate(watching).rule("mine", {}, OfflineHost())]
    find_fit(Profile("p", rules, ()), pod, table, table.nodes.rows)
    assert seen == ["n1"]


def test_arguments_are_passed_by_name() -> None:
    rule = predicate(lambda pod, node, *, least: int(node.labels["i"]) >= least)
    assert refusals(rule.rule("mine", {"least": 2}, OfflineHost()), POD, *NODES).keys() == {"n0", "n1"}


def test_the_function_can_still_be_called() -> None:
    @predicate
    def fits(pod: object, node: object) -> str:
        """Says yes."""
        return "called"

    assert fits(None, None) == "called"
    assert (fits.__name__, fits.__doc__) == ("fits", "Says yes.")


def test_failures_are_counted_and_the_first_of_each_kind_is_logged() -> None:
    class Counting(Telemetry):
        counted = 0

        def rule_failed(self, rule: str) -> None:
            self.counted += 1

    telemetry, logged = Counting(), list[tuple[str, BaseException]]()
    clock = ManualClock()
    failures = LiveHost(
        telemetry, clock, NO_LIMIT, lambda *failure: logged.append(failure), lambda *_: None, lambda *_: nullcontext()
    )
    errors = [KeyError("a"), KeyError("b"), ValueError("c")]
    for error in errors:
        failures.failed("mine", error)
    failures.failed("yours", errors[0])
    assert telemetry.counted == 4
    assert logged == [("mine", errors[0]), ("mine", errors[2]), ("yours", errors[0])]


def test_offline_a_failure_stops_everything_and_names_the_rule() -> None:
    rule = predicate(lambda pod, node: node.nonesuch).rule("mine", {}, OfflineHost())
    with pytest.raises(AttributeError) as caught:
        refusals(rule, POD, *NODES)
    assert caught.value.__notes__ == ["in rule mine"]

"""Who is nominated where, when what was decided and what the status says differ."""

from __future__ import annotations

import pytest

from extender.queue.nominator import Nominator
from extender.table import PodInfo
from tests.builders import make_pod
from tests.queue.queueing import info


def pod(nominated: str = "", **labels: str) -> PodInfo:
    builder = make_pod("p").label(**labels)
    return info(builder.nominated(nominated) if nominated else builder)


@pytest.mark.parametrize(
    ("decided", "before", "after", "expected"),
    [
        pytest.param("n1", "", "", "n1", id="the status has not caught up"),
        pytest.param("n1", "", "n1", "n1", id="the status catches up"),
        pytest.param("n1", "", "n2", "n2", id="the status says otherwise"),
        pytest.param("n1", "n1", "n2", "n2", id="the status is changed"),
        pytest.param("n1", "n1", "", "", id="the status is cleared"),
        pytest.param("", "", "n2", "n2", id="only the status says so"),
        pytest.param("", "", "", "", id="nobody says so"),
    ],
)
def test_an_update(decided: str, before: str, after: str, expected: str) -> None:
    nominator = Nominator()
    nominator.nominate(pod(before), decided)
    updated = pod(after, version="2")
    nominator.update(pod(before), updated)
    assert nominator.node_of(updated.uid) == expected
    if expected:
        assert nominator.on_node(expected) == [updated]
        assert nominator.nodes == {updated.uid: expected}


def test_a_pod_is_nominated_to_one_node_only() -> None:
    nominator, waiting = Nominator(), pod()
    nominator.nominate(waiting, "n1")
    nominator.nominate(waiting, "n2")
    assert nominator.on_node("n1") == []
    assert nominator.on_node("n2") == [waiting]


def test_a_nomination_to_nowhere_withdraws_it() -> None:
    nominator, waiting = Nominator(), pod()
    nominator.nominate(waiting, "n1")
    nominator.nominate(waiting, "")
    assert nominator.nodes == {}
    nominator.withdraw(waiting.uid)


def test_several_pods_wait_for_one_node() -> None:
    nominator = Nominator()
    first, second = info("a"), info("b")
    nominator.nominate(first, "n")
    nominator.nominate(second, "n")
    nominator.withdraw(first.uid)
    assert nominator.on_node("n") == [second]

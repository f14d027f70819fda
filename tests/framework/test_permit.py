"""What rules of Reserve and Permit hold for a pod, and how long the pod waits for them."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field
from threading import Lock

import pytest

from extender.errors import BindingFailed
from extender.framework.permit import Permit, Permits
from extender.model.node import Node
from extender.model.pod import Pod
from extender.runtime.clock import Deadline
from tests.builders import make_node, make_pod
from tests.framework.cluster import pod_info, table_of

POD = pod_info(make_pod("p").obj()).pod


@dataclass
class Licence:
    """A rule that takes a licence for each pod, unless it rejects the pod after that."""

    rejects: bool = False
    name: str = "Licence"
    may_wait: bool = True
    taken: list[str] = field(default_factory=list)

    def run(self, pod: Pod, node: Node, permits: Permits, deadline: Deadline) -> float:
        self.taken.append(f"{pod.name} on {node.name}")
        if self.rejects:
            raise BindingFailed("too late", self.name)
        return 0.0

    def unreserve(self, pod: Pod, node: Node, permits: Permits, deadline: Deadline) -> None:
        self.taken.remove(f"{pod.name} on {node.name}")


@pytest.fixture
def permits() -> Permits:
    table = table_of(make_node("n1").obj(), make_node("n2").obj())
    return Permits(lambda _reader: nullcontext(table))


def test_the_timeout_of_a_permit_is_the_shortest_of_the_rules_that_are_left() -> None:
    permit = Permit(POD, Node(), (), Lock(), {"slow": 9.0, "quick": 3.0})
    timeouts = [permit.timeout_seconds]
    for rule in ("quick", "slow"):
        permit.allow(rule)
        timeouts.append(permit.timeout_seconds)
    assert timeouts == [3.0, 9.0, 0.0]


def test_a_rejected_pod_holds_nothing_of_any_rule(permits: Permits) -> None:
    first, second = Licence(), Licence(rejects=True)
    with pytest.raises(BindingFailed, match="too late"):
        permits.run([first, second], POD, "n1")
    assert (first.taken, second.taken) == ([], [])


def test_a_new_attempt_gives_back_what_an_attempt_of_unknown_outcome_holds(permits: Permits) -> None:
    licence = Licence()
    permits.run([licence], POD, "n1")
    permits.finish(POD.uid, certain=False)
    permits.run([licence], POD, "n2")
    assert licence.taken == ["p on n2"]


@pytest.mark.parametrize(
    ("is_bound", "taken", "kept"),
    [
        pytest.param(True, ["p on n1"], False, id="bound"),
        pytest.param(False, [], False, id="not bound"),
        pytest.param(None, ["p on n1"], True, id="still unknown"),
    ],
)
def test_a_permit_of_unknown_outcome_is_kept_until_the_outcome_is_known(
    permits: Permits, is_bound: bool | None, taken: list[str], kept: bool
) -> None:
    licence = Licence()
    permits.run([licence], POD, "n1")
    permits.finish(POD.uid, certain=False)
    permits.settle(lambda _uid, _node: is_bound)
    assert licence.taken == taken
    permits.unreserve(POD.uid)
    assert licence.taken == ([] if kept else taken)

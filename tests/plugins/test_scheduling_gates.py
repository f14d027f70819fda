"""SchedulingGates: pods with gates are not scheduled."""

from __future__ import annotations

from extender.plugins.scheduling_gates import SchedulingGates
from tests.builders import make_pod
from tests.queue.queueing import info


def test_gates_keep_a_pod_out_of_the_active_queue() -> None:
    assert SchedulingGates().admits(info(make_pod("p")))
    assert not SchedulingGates().admits(info(make_pod("p").gate("example.com/one")))

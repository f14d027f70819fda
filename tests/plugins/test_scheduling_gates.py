"""SchedulingGates: pods with gates are not scheduled."""

from __future__ import annotations

from extender.framework.status import unresolvable
from extender.plugins.scheduling_gates import SchedulingGates
from tests.builders import make_pod
from tests.queue.queueing import info


def test_gates_keep_a_pod_out_of_the_active_queue() -> None:
    assert SchedulingGates().refuse(info(make_pod("p"))) is None
    gated = info(make_pod("p").gate("example.com/one"))
    assert SchedulingGates().refuse(gated) == unresolvable(
        "SchedulingGates", "waiting for scheduling gates: example.com/one"
    )

"""The work that waits for the threads of `extender schedule`."""

from __future__ import annotations

from extender.app.loop import Writers
from extender.cluster.election.lease import Fence
from extender.cluster.kube_client import Caller
from extender.runtime.clock import ManualClock
from extender.runtime.threads import log_error
from extender.runtime.unsettled import UnsettledWrites
from extender.web.series import SCHEDULER_SERIES


class NoServer(Caller):
    """No call is made, because no thread was started."""

    def call(self, *_: object, **__: object) -> bytes:
        raise AssertionError


def writers() -> Writers:
    """Returns writers whose threads were not started, so that everything waits."""
    fence = Fence(UnsettledWrites(0.0))
    return Writers(NoServer(), lambda kind: kind, fence, ManualClock(), lambda _kind: None, log_error)


def test_each_kind_of_work_that_waits_is_counted() -> None:
    loop = writers()
    for workers in (loop.binders, loop.pre_binders, loop.pre_binders, loop.preemptors):
        workers.submit(lambda: None)
    assert loop.waiting() == {"statuses": 0, "events": 0, "binds": 1, "prebinds": 2, "preemptions": 1}


def test_the_metric_explains_each_kind_of_work() -> None:
    explanation = SCHEDULER_SERIES["workqueue_depth"].help
    assert [kind for kind in writers().waiting() if kind not in explanation] == []

"""Pods that may not preempt others."""

from __future__ import annotations

import pytest

from extender.preemption.evaluator import NEVER, WAITS_FOR_VICTIMS
from extender.table.features import FeatureGates
from tests.builders import Object, PodBuilder, make_pod_group
from tests.preemption.clusters import node, preempted, preemptor, victim


def leaving(priority: int = 0, reason: str = "PreemptionByScheduler", status: str = "True") -> Object:
    pod = victim("leaving", "n", "2", priority).deleted().obj()
    pod["status"]["conditions"] = [{"type": "DisruptionTarget", "status": status, "reason": reason}]
    return pod


@pytest.mark.parametrize(
    ("pod", "other", "reason"),
    [
        pytest.param(preemptor().preemption_policy("Never"), leaving(), NEVER, id="by its own policy"),
        pytest.param(preemptor().preemption_policy("PreemptLowerPriority"), leaving(), None, id="policy says yes"),
        pytest.param(preemptor().nominated("n"), leaving(), WAITS_FOR_VICTIMS, id="its victims are leaving"),
        pytest.param(preemptor().nominated("m"), leaving(), None, id="victims leave another node"),
        pytest.param(preemptor().nominated("ghost"), leaving(), None, id="nominated to a node that is gone"),
        pytest.param(
            preemptor().nominated("n"), leaving(reason="EvictionByEvictionAPI"), None, id="leaving of another cause"
        ),
        pytest.param(preemptor().nominated("n"), leaving(status="False"), None, id="not evicted after all"),
        pytest.param(preemptor().nominated("n"), leaving(100), None, id="a peer is leaving"),
        pytest.param(preemptor("8").nominated("n"), leaving(), None, id="nominated to a node that can never do"),
        pytest.param(preemptor().nominated("n"), victim("stays", "n", "2").obj(), None, id="no pod is leaving"),
    ],
)
def test_eligibility(pod: PodBuilder, other: Object, reason: str | None) -> None:
    objects = [node("n").obj(), node("m", "8").obj(), victim("filler", "m", "8").obj(), other]
    preemption = preempted(pod, *objects)
    assert preemption.reason == reason
    assert bool(preemption.candidates) is not bool(reason)


@pytest.mark.parametrize(
    ("priority", "of_group", "reason"), [(100, 0, WAITS_FOR_VICTIMS), (0, 100, None)], ids=["a lower group", "a peer"]
)
def test_the_priority_of_the_group_says_if_a_leaving_pod_is_a_victim(
    priority: int, of_group: int, reason: str | None
) -> None:
    group = make_pod_group("g", priority=of_group)
    pod = leaving(priority)
    pod["spec"]["schedulingGroup"] = {"podGroupName": "g"}
    objects = [node("n").obj(), node("m", "8").obj(), victim("filler", "m", "8").obj(), pod, group]
    preemption = preempted(preemptor().nominated("n"), *objects, features=FeatureGates(generic_workload=True))
    assert preemption.reason == reason

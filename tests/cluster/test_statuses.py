"""The condition of PodGroups: written once, and True for good."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from extender.cluster.kube_client import ApiCall
from extender.cluster.outbox import TokenBucket
from extender.cluster.statuses import ApiGroupStatuses
from extender.model.kinds import Kind
from extender.model.pod_groups import CompositePodGroup, PodGroup
from extender.runtime.clock import ManualClock
from tests.builders import make_composite_pod_group, make_pod_group
from tests.stock.waiting import wait_until


class Calls:
    """A Caller that keeps the conditions that were written, and where."""

    def __init__(self) -> None:
        self.written: list[tuple[str, dict[str, Any]]] = []

    def call(self, call: ApiCall) -> None:
        assert (call.method, call.content_type) == ("PATCH", "application/strategic-merge-patch+json")
        (condition,) = json.loads(call.body)["status"]["conditions"]
        self.written.append((call.path, condition))


def group(condition: dict[str, str] | None = None, generation: int = 0) -> PodGroup:
    conditions = [{"type": "PodGroupInitiallyScheduled", **condition}] if condition else []
    made = make_pod_group("g")
    made["metadata"]["generation"] = generation
    return msgspec.convert({**made, "status": {"conditions": conditions}}, PodGroup)


def written(*steps: tuple[PodGroup, str, str]) -> list[dict[str, Any]]:
    """Writes the steps one after the other (group, reason, message), and returns the conditions that were sent."""
    calls = Calls()
    statuses = ApiGroupStatuses(calls, lambda kind: kind, TokenBucket(1e6), ManualClock())  # type: ignore[arg-type]
    statuses.start()
    for target, reason, message in steps:
        if reason == "Scheduled":
            statuses.scheduled(target)
        else:
            statuses.unscheduled(target, reason, message)
        assert wait_until(lambda: not statuses.waiting())
    statuses.stop(5)
    assert {path for path, _ in calls.written} <= {
        "/apis/scheduling.k8s.io/v1beta1/namespaces/default/podgroups/g/status"
    }
    return [condition for _, condition in calls.written]


FAILED = {"status": "False", "reason": "Unschedulable", "message": "no room"}


def test_a_condition_is_written_with_the_time_of_its_change() -> None:
    (condition,) = written((group(), "Unschedulable", "no room"))
    assert condition.pop("lastTransitionTime")
    assert condition == {"type": "PodGroupInitiallyScheduled", **FAILED}


def test_a_condition_says_which_generation_of_the_group_was_tried() -> None:
    (condition,) = written((group(generation=3), "Unschedulable", "no room"))
    assert condition["observedGeneration"] == 3


def test_an_equal_condition_is_not_written_again() -> None:
    assert written((group(FAILED), "Unschedulable", "no room")) == []
    assert len(written((group(), "Unschedulable", "no room"), (group(), "Unschedulable", "no room"))) == 1


def test_another_message_is_written_without_a_new_time() -> None:
    (condition,) = written((group(FAILED), "Unschedulable", "less room"))
    assert condition == {"type": "PodGroupInitiallyScheduled", **FAILED, "message": "less room"}


def test_true_is_final() -> None:
    true = {"status": "True", "reason": "Scheduled", "message": ""}
    assert written((group(true), "Unschedulable", "no room")) == []
    steps = (group(FAILED), "Scheduled", ""), (group(FAILED), "Unschedulable", "no room")  # the watch is late
    assert [each["status"] for each in written(*steps)] == ["True"]


@pytest.mark.parametrize("version", ["v1beta1", "v1alpha3"])
def test_the_condition_of_a_composite_group_is_written_in_the_version_that_is_served(version: str) -> None:
    calls = Calls()

    def served(kind: Kind) -> Kind:
        return next(each for each in kind.versions if each.api_version.endswith(f"/{version}"))

    statuses = ApiGroupStatuses(calls, served, TokenBucket(1e6), ManualClock())  # type: ignore[arg-type]
    statuses.start()
    statuses.scheduled(msgspec.convert(make_composite_pod_group("g"), CompositePodGroup))
    assert wait_until(lambda: not statuses.waiting())
    statuses.stop(5)
    ((path, condition),) = calls.written
    assert path == f"/apis/scheduling.k8s.io/{version}/namespaces/default/compositepodgroups/g/status"
    assert (condition["type"], condition["status"]) == ("CompositePodGroupInitiallyScheduled", "True")

"""The events that are recorded for pods that are being scheduled."""

from __future__ import annotations

from extender.framework.cluster_events import ASSIGNED_POD_DELETE, NODE_ADD, Change
from extender.queue.entries import InFlight, QueuedPod
from tests.builders import make_pod
from tests.queue.queueing import info

COMES, GOES = Change(NODE_ADD), Change(ASSIGNED_POD_DELETE)


def start(in_flight: InFlight, name: str) -> str:
    pod = QueuedPod(info(name), timestamp=0.0)
    in_flight.start(pod)
    return pod.uid


def heard(in_flight: InFlight, uid: str) -> list[Change]:
    flight = in_flight.get(uid)
    assert flight is not None
    return list(in_flight.changes_during(flight))


def test_an_attempt_has_the_changes_since_its_pod_was_popped() -> None:
    in_flight = InFlight()
    in_flight.record(COMES)
    first = start(in_flight, "first")
    in_flight.record(GOES)
    second = start(in_flight, "second")
    in_flight.record(COMES)
    assert heard(in_flight, first) == [GOES, COMES]
    assert heard(in_flight, second) == [COMES]


def test_changes_that_no_attempt_needs_are_dropped() -> None:
    in_flight = InFlight()
    first = start(in_flight, "first")
    in_flight.record(GOES)
    second = start(in_flight, "second")
    in_flight.record(COMES)
    assert in_flight.recorded == 2
    in_flight.end(first)
    assert in_flight.recorded == 1
    assert heard(in_flight, second) == [COMES]
    in_flight.end(second)
    assert in_flight.recorded == 0
    in_flight.record(COMES)
    assert in_flight.recorded == 0


def test_a_later_attempt_may_end_first() -> None:
    in_flight = InFlight()
    first, second = start(in_flight, "first"), start(in_flight, "second")
    in_flight.record(COMES)
    in_flight.end(second)
    assert heard(in_flight, first) == [COMES]
    assert in_flight.end("unknown") is None


def test_the_updates_of_a_pod_belong_to_its_attempt_alone() -> None:
    in_flight = InFlight()
    uid, other = start(in_flight, "p"), start(in_flight, "other")
    flight = in_flight.get(uid)
    assert flight is not None
    flight.update(info(make_pod("p").label(app="new")))
    assert [change.event.label for change in heard(in_flight, uid)] == ["TargetPodUpdatePodLabel"]
    assert flight.latest.pod.labels == {"app": "new"}
    assert heard(in_flight, other) == []


def test_changes_after_recording_was_stopped_are_not_recorded() -> None:
    in_flight = InFlight()
    uid = start(in_flight, "p")
    in_flight.record(COMES)
    in_flight.stop_recording_events(uid)
    in_flight.record(GOES)
    assert heard(in_flight, uid) == [COMES]
    assert (in_flight.recorded, len(in_flight), [pod.uid for pod in in_flight]) == (0, 1, [uid])
    in_flight.stop_recording_events(uid)
    assert in_flight.end(uid) is not None
    assert (len(in_flight), in_flight.get(uid)) == (0, None)
    in_flight.record_events_again(uid)  # the pod was deleted while it was bound
    assert (len(in_flight), in_flight.get(uid)) == (0, None)


def test_changes_while_recording_was_stopped_are_not_seen_after_it_begins_again() -> None:
    in_flight = InFlight()
    uid, other = start(in_flight, "p"), start(in_flight, "other")
    in_flight.stop_recording_events(uid)
    in_flight.record(COMES)
    in_flight.record_events_again(uid)
    in_flight.record(GOES)
    assert (heard(in_flight, uid), heard(in_flight, other)) == ([GOES], [COMES, GOES])

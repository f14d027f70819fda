"""The scheduler's writes beside bindings, read back from the real API server."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest

from extender.cluster.credentials import Kubeconfig
from extender.cluster.election.lease import Lease, LeaseClient, LeaseSpec
from extender.cluster.events import ApiEvents
from extender.cluster.kube_client import KubeClient
from extender.cluster.outbox import TokenBucket
from extender.cluster.statuses import ApiActivator, ApiEvictor, ApiStatuses
from extender.errors import Refused
from extender.model.pod import Pod
from extender.runtime.clock import SystemClock
from extender.runtime.ports import Nominating
from tests.builders import PodBuilder, make_pod
from tests.stock.admission_policy import denying
from tests.stock.api_client import ApiError
from tests.stock.control_plane import ControlPlane
from tests.stock.waiting import wait_until

pytestmark = pytest.mark.stock


@pytest.fixture
def connection(control_plane: ControlPlane) -> Iterator[KubeClient]:
    connection = KubeClient(Kubeconfig(control_plane.kubeconfig))
    yield connection
    connection.close()


@pytest.fixture
def statuses(connection: KubeClient) -> Iterator[ApiStatuses]:
    statuses = ApiStatuses(connection, TokenBucket(1000, 1000), SystemClock())
    statuses.start()
    yield statuses
    statuses.stop(10)


@pytest.fixture
def events(connection: KubeClient) -> Iterator[ApiEvents]:
    events = ApiEvents(connection, TokenBucket(1000, 1000), SystemClock(), "test-1")
    events.start()
    yield events
    events.stop(10)


def created(plane: ControlPlane, built: PodBuilder) -> Pod:
    return msgspec.convert(plane.client.create(built.obj())[0], Pod)


def status(plane: ControlPlane, name: str) -> dict[str, Any]:
    found: dict[str, Any] = plane.client.get("Pod", name)["status"]
    return found


def conditions(plane: ControlPlane, name: str) -> dict[str, dict[str, Any]]:
    return {each["type"]: each for each in status(plane, name).get("conditions", [])}


def test_a_condition_and_a_nomination_come_and_the_nomination_goes(
    control_plane: ControlPlane, statuses: ApiStatuses
) -> None:
    pod = created(control_plane, make_pod("p"))
    statuses.failed(pod, "Unschedulable", "0/1 nodes are available", "n1")
    assert wait_until(lambda: status(control_plane, "p").get("nominatedNodeName")) == "n1"
    written = conditions(control_plane, "p")["PodScheduled"]
    assert (written["status"], written["reason"]) == ("False", "Unschedulable")
    assert written["message"] == "0/1 nodes are available"
    assert written["lastTransitionTime"]
    assert written["observedGeneration"] == pod.metadata.generation > 0
    statuses.nominate(pod, "")
    assert wait_until(lambda: "nominatedNodeName" not in status(control_plane, "p"))
    assert conditions(control_plane, "p")["PodScheduled"] == written


def test_other_conditions_stay(control_plane: ControlPlane, statuses: ApiStatuses) -> None:
    pod = created(control_plane, make_pod("p"))
    mine = {"type": "example.com/Mine", "status": "True"}
    control_plane.client.patch("Pod", "p", {"status": {"conditions": [mine]}}, subresource="status")
    statuses.failed(pod, "Unschedulable", "full", Nominating.KEEP)
    assert wait_until(lambda: len(conditions(control_plane, "p")) == 2)


def test_a_recreated_pod_of_the_name_is_left_alone(control_plane: ControlPlane, statuses: ApiStatuses) -> None:
    old = created(control_plane, make_pod("p").grace(0))
    control_plane.client.delete("Pod", "p")
    created(control_plane, make_pod("p"))
    last = created(control_plane, make_pod("last"))
    for pod in (old, last):
        statuses.failed(pod, "Unschedulable", "full", Nominating.KEEP)
    assert wait_until(lambda: conditions(control_plane, "last"))
    assert conditions(control_plane, "p") == {}


def test_what_is_written_already_is_not_written_again(control_plane: ControlPlane, statuses: ApiStatuses) -> None:
    pod = created(control_plane, make_pod("p"))
    statuses.failed(pod, "Unschedulable", "full", Nominating.CLEAR)
    assert wait_until(lambda: conditions(control_plane, "p"))
    version = control_plane.client.get("Pod", "p")["metadata"]["resourceVersion"]
    statuses.failed(pod, "Unschedulable", "full", Nominating.CLEAR)
    statuses.failed(created(control_plane, make_pod("last")), "Unschedulable", "full", Nominating.CLEAR)
    assert wait_until(lambda: conditions(control_plane, "last"))
    assert control_plane.client.get("Pod", "p")["metadata"]["resourceVersion"] == version


def test_a_failure_is_written_unless_the_pod_is_bound_by_then(
    control_plane: ControlPlane, statuses: ApiStatuses
) -> None:
    changed, bound, deleted = (created(control_plane, make_pod(name).grace(0)) for name in ("changed", "bound", "old"))
    control_plane.client.patch("Pod", "changed", {"metadata": {"labels": {"a": "b"}}})
    target = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "bound"}, "target": {"name": "n"}}
    control_plane.client.request("POST", "/api/v1/namespaces/default/pods/bound/binding", target)
    control_plane.client.delete("Pod", "old")
    created(control_plane, make_pod("old"))
    for pod in (bound, deleted, changed):
        statuses.failed_unless_bound(pod, "SchedulerError", "no answer")
    assert wait_until(lambda: conditions(control_plane, "changed"))["PodScheduled"]["message"] == "no answer"
    assert conditions(control_plane, "bound")["PodScheduled"]["status"] == "True"
    assert conditions(control_plane, "old") == {}


def test_only_what_was_written_for_waiting_pods_is_remembered(
    control_plane: ControlPlane, statuses: ApiStatuses
) -> None:
    pods = [created(control_plane, make_pod(f"p{number}")) for number in range(3)]
    for pod in pods:
        statuses.failed(pod, "Unschedulable", "full", Nominating.CLEAR)
    assert wait_until(lambda: len(statuses._written) == 3)
    statuses.forget_others({pods[1].uid})
    assert statuses._written.keys() == {pods[1].uid}
    statuses.failed(pods[1], "Unschedulable", "", Nominating.CLEAR)
    assert wait_until(lambda: "message" not in conditions(control_plane, "p1")["PodScheduled"])  # the API omits ""


def test_a_victim_is_marked_and_deleted(control_plane: ControlPlane, connection: KubeClient) -> None:
    victim = created(control_plane, make_pod("p").node("n1").grace(60))
    victims = ApiEvictor(connection, SystemClock())
    assert victims.mark_victim(victim, "to make room")
    assert victims.delete_victim(victim)
    left = control_plane.client.get("Pod", "p")
    assert "deletionTimestamp" in left["metadata"]
    target = conditions(control_plane, "p")["DisruptionTarget"]
    assert (target["status"], target["reason"], target["message"]) == ("True", "PreemptionByScheduler", "to make room")
    assert target["observedGeneration"] == victim.metadata.generation > 0


def test_a_victim_that_is_gone_or_recreated(control_plane: ControlPlane, connection: KubeClient) -> None:
    victims = ApiEvictor(connection, SystemClock())
    old = created(control_plane, make_pod("p").grace(0))
    control_plane.client.delete("Pod", "p")
    assert not victims.mark_victim(old, "to make room")
    assert not victims.delete_victim(old)
    created(control_plane, make_pod("p"))
    assert not victims.mark_victim(old, "to make room")
    assert not victims.delete_victim(old)
    assert "deletionTimestamp" not in control_plane.client.get("Pod", "p")["metadata"]


@contextmanager
def kept_by_a_policy(plane: ControlPlane, name: str) -> Iterator[None]:
    """A ValidatingAdmissionPolicy is in force, under which the API server deletes no pod of that name."""

    def is_in_force() -> bool:
        try:
            plane.client.request("DELETE", f"/api/v1/namespaces/default/pods/{name}?dryRun=All")
        except ApiError:
            return True
        return False

    validation = {"expression": f"oldObject.metadata.name != '{name}'", "message": "it stays"}
    with denying(plane, "DELETE", "pods", validation, is_in_force):
        yield


def test_a_victim_that_may_not_be_deleted_still_exists(control_plane: ControlPlane, connection: KubeClient) -> None:
    """Its name has the letters that tell of a UID."""
    victim = created(control_plane, make_pod("druid-0").grace(60))
    with kept_by_a_policy(control_plane, "druid-0"), pytest.raises(Refused, match="it stays"):
        ApiEvictor(connection, SystemClock()).delete_victim(victim)


@pytest.mark.clients
def test_an_event_about_a_lease_is_shown_by_kubectl(control_plane: ControlPlane, connection: KubeClient) -> None:
    lease = LeaseClient(connection, "default", "extender", timeout_seconds=5)
    lease.put(Lease(LeaseSpec(holder_identity="host-1_5a", lease_duration_seconds=15)))
    lease.record("host-1_5a became leader", SystemClock().now())
    shown = control_plane.kubectl("get", "events", "--field-selector=involvedObject.kind=Lease", "--no-headers")
    assert re.split(r" {2,}", shown.strip())[1:] == [
        "Normal",
        "LeaderElection",
        "lease/extender",
        "host-1_5a became leader",
    ]


def test_a_note_is_cut_to_what_the_api_server_takes(control_plane: ControlPlane, events: ApiEvents) -> None:
    pod = created(control_plane, make_pod("p"))
    events.record(pod, "Warning", "FailedScheduling", "Scheduling", "ä" * 1000)
    path = "/apis/events.k8s.io/v1/namespaces/default/events"
    wait_until(lambda: control_plane.client.request("GET", path)["items"])
    (event,) = control_plane.client.request("GET", path)["items"]
    assert (len(event["note"].encode()), event["note"][-6:]) == (1024, "ää ...")


def test_what_happens_again_becomes_a_series(control_plane: ControlPlane, events: ApiEvents) -> None:
    def listed() -> list[Any]:
        found: list[Any] = control_plane.client.request("GET", "/apis/events.k8s.io/v1/namespaces/default/events")[
            "items"
        ]
        return found

    pod, other = created(control_plane, make_pod("p")), created(control_plane, make_pod("other"))
    events.record(pod, "Warning", "FailedScheduling", "Scheduling", "full", other)
    assert wait_until(lambda: len(listed()) == 1)
    for _ in range(3):
        events.record(pod, "Warning", "FailedScheduling", "Scheduling", "full", other)
    assert wait_until(lambda: listed()[0].get("series", {}).get("count") == 4)
    events.record(other, "Normal", "Scheduled", "Binding", "Successfully assigned")
    assert wait_until(lambda: len(listed()) == 2)
    event = next(each for each in listed() if each["reason"] == "FailedScheduling")
    assert (event["regarding"]["uid"], event["related"]["uid"]) == (pod.uid, other.uid)
    assert (event["note"], event["action"], event["type"]) == ("full", "Scheduling", "Warning")


def known(plane: ControlPlane) -> Pod:
    return msgspec.convert(plane.client.get("Pod", "p"), Pod)


@pytest.fixture
def activator(connection: KubeClient) -> ApiActivator:
    return ApiActivator(connection, SystemClock())


def test_activation_changes_the_time_of_probing_alone(
    control_plane: ControlPlane, statuses: ApiStatuses, activator: ApiActivator
) -> None:
    pod = created(control_plane, make_pod("p"))
    statuses.failed(pod, "Unschedulable", "0/1 nodes are available", Nominating.KEEP)
    before = wait_until(lambda: conditions(control_plane, "p").get("PodScheduled"))
    activator.activate(known(control_plane))
    after = conditions(control_plane, "p")["PodScheduled"]
    assert (before or {})["lastProbeTime"] is None
    assert after["lastProbeTime"]
    assert {**after, "lastProbeTime": None} == before


def test_activation_of_a_recreated_pod_does_nothing(control_plane: ControlPlane, activator: ApiActivator) -> None:
    created(control_plane, make_pod("p"))
    scheduled = {"type": "PodScheduled", "status": "False"}
    control_plane.client.patch("Pod", "p", {"status": {"conditions": [scheduled]}}, subresource="status")
    pod = known(control_plane)
    control_plane.client.delete("Pod", "p")
    control_plane.client.create(make_pod("p").obj())
    activator.activate(pod)
    assert "PodScheduled" not in conditions(control_plane, "p")

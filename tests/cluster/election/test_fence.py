"""A replica that does not lead writes nothing."""

from __future__ import annotations

from collections.abc import Callable
from threading import Semaphore

import msgspec
import pytest

from extender.cluster.binder import ApiBinder, ApiClaims, ApiVolumes
from extender.cluster.election.lease import Fence, LeaderBinder, LeaderClient
from extender.cluster.events import ApiEvents
from extender.cluster.kube_client import ApiCall, Caller
from extender.cluster.outbox import TokenBucket
from extender.cluster.statuses import ApiEvictor, ApiStatuses, patch_status
from extender.errors import OutcomeUnknown, Refused
from extender.model.devices import ResourceClaim
from extender.model.pod import Pod
from extender.model.storage import PersistentVolume, PersistentVolumeClaim
from extender.runtime.clock import ManualClock, SystemClock
from extender.runtime.ports import Binding, Check, always
from extender.runtime.unsettled import UnsettledWrites
from tests.builders import make_claim, make_pod, make_pv, make_pvc, make_request


class Recorded:
    """A binder that notes its calls, and whether a write was unsettled then."""

    def __init__(self, writes: UnsettledWrites) -> None:
        self.writes = writes
        self.calls: list[Binding] = []
        self.settled_meanwhile: list[bool] = []

    def bind(self, binding: Binding, check: Check = always) -> None:
        self.settled_meanwhile.append(self.writes.nothing_unsettled())
        check()
        self.calls.append(binding)


def fenced(leading: bool) -> tuple[LeaderBinder, Recorded]:
    inner = Recorded(settled())
    return LeaderBinder(inner, Fence(inner.writes, lambda: int(leading))), inner


def settled() -> UnsettledWrites:
    """Returns the notes of a process that has written nothing, and whose predecessors have not either."""
    writes = UnsettledWrites(10.0)
    writes.vouch()
    return writes


def test_the_leader_binds_and_the_bind_is_unsettled_until_it_is_answered() -> None:
    binder, inner = fenced(leading=True)
    binding = Binding("default", "p", "u", "n")
    binder.bind(binding)
    assert inner.calls == [binding]
    assert (inner.settled_meanwhile, inner.writes.nothing_unsettled()) == ([False], True)


def test_a_standby_binds_nothing() -> None:
    binder, inner = fenced(leading=False)
    with pytest.raises(Refused, match="not the leader"):
        binder.bind(Binding("default", "p", "u", "n"))
    assert (inner.calls, inner.writes.nothing_unsettled()) == ([], True)


class Server(Caller):
    """An API server that notes the methods of its calls."""

    def __init__(self) -> None:
        self.methods: list[str] = []
        self.timeouts: list[float] = []
        self.error: Exception | None = None

    def call(self, call: ApiCall) -> bytes:
        call.check()
        self.methods.append(call.method)
        self.timeouts.append(call.timeout_seconds)
        if self.error is not None:
            raise self.error
        return msgspec.json.encode({"metadata": {"name": "c", "namespace": "default", "uid": CLAIM.uid}})


POD = msgspec.convert(make_pod("p").uid("p").node("n").obj(), Pod)
CLAIM = msgspec.convert(make_claim("c", make_request("device", "gpu")), ResourceClaim)
VOLUME = msgspec.convert(make_pv("v"), PersistentVolume)
PVC = msgspec.convert(make_pvc("pvc"), PersistentVolumeClaim)
WRITING = {"POST", "PUT", "PATCH", "DELETE"}
CLOCK, BUCKET = ManualClock(), TokenBucket(1000.0, 1000)


Write = Callable[[Caller], object]
WRITES = pytest.mark.parametrize(
    "write",
    [
        pytest.param(lambda client: ApiEvictor(client, CLOCK).delete_victim(POD), id="an eviction"),
        pytest.param(lambda client: patch_status(client, POD, {"nominatedNodeName": "n"}), id="a nomination"),
        pytest.param(lambda client: ApiClaims(client, CLOCK).create(CLAIM, POD), id="a claim"),
        pytest.param(lambda client: ApiClaims(client, CLOCK).deallocate(CLAIM), id="a claim's devices"),
        pytest.param(lambda client: ApiClaims(client, CLOCK).delete(CLAIM), id="a claim's end"),
        pytest.param(lambda client: ApiClaims(client, CLOCK).describe(POD, CLAIM, []), id="a claim in a status"),
        pytest.param(lambda client: ApiVolumes(client).bind(VOLUME, PVC), id="a volume"),
        pytest.param(lambda client: ApiVolumes(client).select_node(PVC, "n"), id="a volume's node"),
    ],
)


@WRITES
def test_only_the_leader_writes(write: Write) -> None:
    server = Server()
    with pytest.raises(Refused, match="not the leader"):
        write(LeaderClient(server, Fence(settled(), lambda: 0)))
    assert not WRITING & set(server.methods)
    write(LeaderClient(server, Fence(settled())))
    assert WRITING & set(server.methods)


@pytest.mark.parametrize("ended", [pytest.param(0, id="it leads no more"), pytest.param(2, id="it leads again")])
def test_a_leader_that_loses_the_lease_while_it_dials_sends_nothing(ended: int) -> None:
    """The fence is asked as the write begins, and again just before it is sent."""
    server, terms = Server(), iter([1, ended])
    with pytest.raises(Refused, match="not the leader"):
        LeaderClient(server, Fence(settled(), lambda: next(terms))).call(ApiCall("POST", "/api/v1/pods", b"{}"))
    with pytest.raises(Refused, match="not the leader"):
        LeaderBinder(ApiBinder(server), Fence(settled(), lambda: 0)).bind(Binding("default", "p", "u", "n"))
    assert server.methods == []


def test_a_standby_reads() -> None:
    server = Server()
    LeaderClient(server, Fence(settled(), lambda: 0)).call(ApiCall("GET", "/api/v1/pods", b"", timeout_seconds=7.0))
    assert (server.methods, server.timeouts) == (["GET"], [7.0])


@pytest.mark.parametrize("path", ["/apis/events.k8s.io/v1/namespaces/default/events", "/api/v1/pods"])
def test_a_write_of_the_leader_is_sent_as_it_is(path: str) -> None:
    server = Server()
    LeaderClient(server, Fence(settled())).call(ApiCall("POST", path, b"{}", timeout_seconds=7.0))
    assert (server.methods, server.timeouts) == (["POST"], [7.0])


@WRITES
def test_a_write_without_an_answer_is_unsettled(write: Write) -> None:
    server, writes = Server(), settled()
    server.error = OutcomeUnknown("no answer")
    with pytest.raises(OutcomeUnknown):
        write(LeaderClient(server, Fence(writes)))
    assert writes.nothing_unsettled() is not bool(WRITING & set(server.methods))


def test_an_event_without_an_answer_is_not_waited_for() -> None:
    server, writes = Server(), settled()
    server.error = OutcomeUnknown("no answer")
    with pytest.raises(OutcomeUnknown):
        LeaderClient(server, Fence(writes)).call(
            ApiCall("POST", "/apis/events.k8s.io/v1/namespaces/default/events", b"{}")
        )
    assert writes.nothing_unsettled()


def test_what_waits_for_its_turn_is_not_written_once_the_lease_is_lost() -> None:
    server, clock, asked = Server(), SystemClock(), Semaphore(0)

    def leading() -> int:
        asked.release()
        return 0

    client = LeaderClient(server, Fence(settled(), leading))
    events, statuses = ApiEvents(client, BUCKET, clock, "test"), ApiStatuses(client, BUCKET, clock)
    events.record(POD, "Normal", "Scheduled", "Binding", "note")
    statuses.failed(POD, "Unschedulable", "message", "")
    for outbox in (events, statuses):
        outbox.start()
        assert asked.acquire(timeout=60)
        outbox.stop(5.0)
    assert server.methods == []

"""A replica that does not lead writes nothing."""

from __future__ import annotations

from collections.abc import Callable
from threading import Semaphore

import msgspec
import pytest

from extender.cluster.election.lease import Fence, LeaderBinder, LeaderClient
from extender.cluster.http.kube_client import CALL_SECONDS, JSON, Caller
from extender.cluster.writers.claims import ApiClaims
from extender.cluster.writers.events import ApiEvents
from extender.cluster.writers.pacing import TokenBucket
from extender.cluster.writers.statuses import ApiEvictor, ApiStatuses
from extender.cluster.writers.volumes import ApiVolumes
from extender.errors import OutcomeUnknown, Refused
from extender.model.devices.claims import ResourceClaim
from extender.model.pod import Pod
from extender.model.volumes.storage import PersistentVolume, PersistentVolumeClaim
from extender.runtime.clock import ManualClock, SystemClock
from extender.runtime.ports import Binding
from tests.builders import make_claim, make_pod, make_pv, make_pvc, make_request


class Recorded:
    """A binder that notes its calls, and whether writes were in flight meanwhile."""

    def __init__(self) -> None:
        self.fence = Fence()
        self.calls: list[Binding] = []
        self.idle_meanwhile: list[bool] = []
        self.error: Exception | None = None

    def bind(self, binding: Binding) -> None:
        self.calls.append(binding)
        self.idle_meanwhile.append(self.fence.idle())
        if self.error:
            raise self.error


def fenced(leading: bool) -> tuple[LeaderBinder, Recorded]:
    inner = Recorded()
    inner.fence = Fence(lambda: leading)
    return LeaderBinder(inner, inner.fence), inner


def test_the_leader_binds() -> None:
    binder, inner = fenced(leading=True)
    binding = Binding("default", "p", "u", "n")
    binder.bind(binding)
    assert inner.calls == [binding]
    assert (inner.idle_meanwhile, inner.fence.idle()) == ([False], True)


def test_a_standby_binds_nothing() -> None:
    binder, inner = fenced(leading=False)
    with pytest.raises(Refused, match="not the leader"):
        binder.bind(Binding("default", "p", "u", "n"))
    assert (inner.calls, inner.fence.idle()) == ([], True)


def test_a_bind_that_failed_is_no_longer_under_way() -> None:
    binder, inner = fenced(leading=True)
    inner.error = OutcomeUnknown("as the test wants it")
    with pytest.raises(OutcomeUnknown):
        binder.bind(Binding("default", "p", "u", "n"))
    assert inner.fence.idle()


class Server(Caller):
    """An API server that notes the methods of its calls."""

    def __init__(self) -> None:
        self.methods: list[str] = []

    def call(
        self, method: str, path: str, body: bytes, content_type: str = JSON, timeout_seconds: float = CALL_SECONDS
    ) -> bytes:
        self.methods.append(method)
        return msgspec.json.encode({"metadata": {"name": "c", "namespace": "default", "uid": CLAIM.uid}})


POD = msgspec.convert(make_pod("p").uid("p").node("n").obj(), Pod)
CLAIM = msgspec.convert(make_claim("c", make_request("device", "gpu")), ResourceClaim)
VOLUME = msgspec.convert(make_pv("v"), PersistentVolume)
PVC = msgspec.convert(make_pvc("pvc"), PersistentVolumeClaim)
WRITING = {"POST", "PUT", "PATCH", "DELETE"}
CLOCK, BUCKET = ManualClock(), TokenBucket(1000.0, 1000)


@pytest.mark.parametrize(
    "write",
    [
        pytest.param(lambda client: ApiEvictor(client, CLOCK).evict(POD, "to make room"), id="an eviction"),
        pytest.param(lambda client: ApiClaims(client, CLOCK).create(CLAIM, POD), id="a claim"),
        pytest.param(lambda client: ApiClaims(client, CLOCK).deallocate(CLAIM), id="a claim's devices"),
        pytest.param(lambda client: ApiClaims(client, CLOCK).delete(CLAIM), id="a claim's end"),
        pytest.param(lambda client: ApiClaims(client, CLOCK).describe(POD, CLAIM, []), id="a claim in a status"),
        pytest.param(lambda client: ApiVolumes(client).bind(VOLUME, PVC), id="a volume"),
        pytest.param(lambda client: ApiVolumes(client).select_node(PVC, "n"), id="a volume's node"),
    ],
)
def test_only_the_leader_writes(write: Callable[[Caller], object]) -> None:
    server = Server()
    with pytest.raises(Refused, match="not the leader"):
        write(LeaderClient(server, Fence(lambda: False)))
    assert not WRITING & set(server.methods)
    write(LeaderClient(server, Fence()))
    assert WRITING & set(server.methods)


def test_what_waits_for_its_turn_is_not_written_once_the_lease_is_lost() -> None:
    server, clock, asked = Server(), SystemClock(), Semaphore(0)

    def leading() -> bool:
        asked.release()
        return False

    client = LeaderClient(server, Fence(leading))
    events, statuses = ApiEvents(client, BUCKET, clock, "test"), ApiStatuses(client, BUCKET, clock)
    events.record(POD, "Normal", "Scheduled", "Binding", "note")
    statuses.failed(POD, "Unschedulable", "message", "")
    for outbox in (events, statuses):
        outbox.start()
        assert asked.acquire(timeout=30)
        outbox.stop(5.0)
    assert server.methods == []

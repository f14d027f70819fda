"""Runs a leader election, and points a Service at the leader.

In the election, one thread keeps the lease, and another prepares this process for a term it has won.

The Service has no selector, and one EndpointSlice with one address. Every replica is ready, because a roll-out waits
for that. So a selector would send calls to all replicas. The leader writes its own address. Before a leader ends, it
writes the address of its successor, keeps leading while the proxies update, and then releases the lease. A call that
reaches the successor too early waits there until the successor leads, so no call is refused.

While kube-scheduler calls the Service, every pod would wait for a Service that was removed. So a leader that is called
creates a Lease, and the chart refuses to delete a release while this Lease exists. Only a person deletes it, because a
quiet cluster makes no calls either.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from extender.cluster.election.election import Ask, Election, Read, Sleep, Write
from extender.cluster.election.lease import GROUP_VERSION as LEASES
from extender.cluster.election.lease import LeaseClient
from extender.cluster.kube_client import ApiCall, Caller
from extender.errors import ClusterError, Conflict, NotFound
from extender.runtime.clock import Clock
from extender.runtime.threads import LastingThread, Ticker
from extender.runtime.unsettled import Settlement

logger = logging.getLogger(__name__)

_PROBE_SECONDS = 0.05
_JOIN_SECONDS = 5.0
_RELEASES = 3
# The events of client-go use the same words.
_WON = "became leader"
_STOPPED = "stopped leading"
UPDATE_SECONDS = 1.0
PROXIES_SECONDS = 1.5  # longer than the second for which kube-proxy collects changes by default
_CALLED = "extender, which kube-scheduler calls"
CALLED_SECONDS = 30.0  # the least time between two attempts to create the Lease that says so
_GROUP_VERSION = "discovery.k8s.io/v1"


class LeaderElector:
    """Takes part in the election from `start` to `stop`. Calls of `leading` and `waiting_for` are cheap.

    This process is a candidate only while `eligible()` is True, because a process whose cache is empty or out of date
    must leave the lease to a process that can answer. A process that gives up the lease releases it only if the
    outcome of all its writes is known; otherwise, the lease must expire. It also gives up the lease if another
    candidate asks for it. A process that wins the lease leads only after `settlement` reports that the cache shows
    everything that earlier leaders wrote.
    """

    def __init__(
        self,
        lease: LeaseClient,
        election: Election,
        eligible: Callable[[], bool],
        settlement: Settlement,
        clock: Clock,
    ) -> None:
        self._lease = lease
        self._election = election
        self._clock = clock
        self._eligible = eligible
        self._settlement = settlement
        self._stopping = threading.Event()
        self._hurried = threading.Event()
        self._thread = LastingThread("leader-election", self._run)
        self.start = self._thread.start
        self.revive = self._thread.revive
        self._term = 0
        self._holder = ""
        self._to_release = False
        self._resigned = False
        self._is_announced = False  # True if the last event said that this process became the leader

    def leading(self) -> bool:
        """Returns True if this process may act as the leader now."""
        return self._election.leading(self._clock.moment())

    def leading_term(self) -> int:
        """Returns the number of the term in which this process may act as the leader; 0 if it may not."""
        return self._election.leading_term(self._clock.moment())

    def commit(self) -> None:
        """Makes the present term the last one of this process, which then ends with the term."""
        self._election.commit()

    def waiting_for(self) -> str | None:
        """Returns the reason why this process does not lead yet; None while it leads."""
        now = self._clock.moment()
        if self._election.leading(now):
            return None
        if self._election.term(now):
            return self._settlement.waiting_for() or "waiting until the cache shows what the last leader has written"
        holder = self._election.holder
        by = f" held by {holder}" if holder not in ("", self._election.identity) else ""
        return f"waiting for the lease {self._lease.key}{by}"

    def hurry(self, seconds: float) -> None:
        """Waits up to `seconds` until this process leads. In this time, the elector reads the lease without pauses."""
        ends_at = self._clock.monotonic() + seconds
        while not (self.leading() or self._resigned) and self._clock.monotonic() < ends_at:
            self._hurried.set()
            time.sleep(_PROBE_SECONDS)

    def resign(self) -> None:
        """Stops leading now. Writes that are in flight may still be carried out."""
        self._resigned = True
        self._election.resign()

    def stop(self) -> None:
        """Stops leading, and releases the lease if the outcome of every write is known."""
        self.resign()
        self._stopping.set()
        self._hurried.set()
        ended = self._thread.stop(_JOIN_SECONDS)
        if self._settlement.writes.nothing_unsettled() and ended:
            self._release()
        else:
            reason = "the outcome of a write is unknown"
            logger.warning("lease not released, it will expire lease=%s reason=%r", self._lease.key, reason)
        if self._is_announced:
            self._write_event(_STOPPED)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                if self._to_release and self._settlement.writes.nothing_unsettled():
                    self._to_release = False
                    self._release()
                if not self._eligible():
                    self._stand_back("the cache may be out of date")
                elif self._election.wanted_by and self._election.term(self._clock.moment()):
                    self._stand_back(f"{self._election.wanted_by} asks for it")
                else:
                    self._advance()
                self._observe()
            except Exception as error:  # the thread must survive any error, so that it can win the lease again
                expected = isinstance(error, ClusterError)
                logger.warning(
                    "election step failed lease=%s reason=%r",
                    self._lease.key,
                    str(error),
                    exc_info=None if expected else error,
                )
                self._election.failed(self._clock.moment())

    def _advance(self) -> None:
        asked_at = self._clock.moment()
        match self._election.next(asked_at):
            case Sleep(seconds):
                if self._hurried.wait(seconds):
                    self._hurried.clear()
                    self._election.hurry()
            case Read():
                lease = self._lease.get()
                self._election.read(lease, self._clock.moment())
            case Write(lease):
                lease = self._lease.put(lease)
                self._election.written(lease, asked_at, self._clock.moment())
            case Ask(lease):
                lease = self._lease.put(lease)
                self._election.asked(lease, self._clock.moment())

    def _stand_back(self, reason: str) -> None:
        if not self._election.term(self._clock.moment()):
            self._stopping.wait(_PROBE_SECONDS)
            return
        logger.warning("no longer the leader lease=%s reason=%r", self._lease.key, reason)
        self._election.abdicate()
        self._term = 0
        self._announce(_STOPPED)
        self._to_release = True

    def _observe(self) -> None:
        """Logs a change of the leader. If this process has become the leader, starts to prepare for its term."""
        term = self._election.term(self._clock.moment())
        holder = self._election.holder
        if self._term and term != self._term and not self._stopping.is_set():
            logger.warning("no longer the leader lease=%s reason=%r", self._lease.key, "not renewed in time")
            self._announce(_STOPPED)
        if term and term != self._term:
            logger.info("lease won lease=%s", self._lease.key)
            self._to_release = False
            self._announce(_WON)
            threading.Thread(target=self._take_over, args=(term,), name="take-over", daemon=True).start()
        elif holder != self._holder and not term:
            logger.info("another process leads lease=%s holder=%r", self._lease.key, holder)
        self._term = term
        self._holder = holder

    def _announce(self, change: str) -> None:
        """Starts a thread that writes an event about a change of the leader, so that the next renewal need not wait."""
        self._is_announced = change == _WON
        threading.Thread(target=self._write_event, args=(change,), name="lease-event", daemon=True).start()

    def _write_event(self, change: str) -> None:
        try:
            self._lease.record(f"{self._election.identity} {change}", self._clock.now())
        except ClusterError as error:
            logger.warning("event not written lease=%s reason=%r", self._lease.key, str(error))

    def _take_over(self, term: int) -> None:
        won_at = self._clock.monotonic()
        while self._holds(term):
            try:
                # Until then, the last leader may not have noticed that it has lost the lease.
                if self._settlement.caught_up(max(won_at, self._settlement.writes.predecessors_end)):
                    self._election.reconciled(term)
                    logger.info("leading lease=%s", self._lease.key)
                    return
            except Exception as error:  # the next turn of the loop tries again to lead
                logger.warning("not leading yet lease=%s reason=%r", self._lease.key, str(error))
            self._stopping.wait(_PROBE_SECONDS)

    def _holds(self, term: int) -> bool:
        return self._election.term(self._clock.moment()) == term

    def _release(self) -> None:
        for _ in range(_RELEASES):
            try:
                released = self._election.released(self._lease.get(), self._clock.moment())
                if released is not None:
                    self._election.gave_up(self._lease.put(released), self._clock.moment())
                    logger.info("lease released lease=%s", self._lease.key)
                return
            except Conflict:
                continue  # an earlier renewal arrived late and changed the lease
            except ClusterError as error:
                logger.warning("lease not released lease=%s reason=%r", self._lease.key, str(error))
                return


class LeaderService:
    """Points the Service at this process while the process leads. It runs from `start` to `stop`.

    Args:
        name: the name of the Service.
        address, port: the address of this replica.
        labels: the labels that select the pods of all replicas in the namespace.
    """

    def __init__(
        self, client: Caller, namespace: str, name: str, address: str, port: int, labels: Mapping[str, str],
        leading: Callable[[], bool],
    ) -> None:  # fmt: skip
        self._client = client
        self._leading = leading
        self._namespace = namespace
        self._name = name
        self._address = address
        self._port = port
        self._labels = labels
        self._slices = f"/apis/{_GROUP_VERSION}/namespaces/{quote(namespace, '')}/endpointslices"
        self._core = f"/api/v1/namespaces/{quote(namespace, '')}"
        self._called = False
        self._next_record = 0.0
        self._ticker = Ticker("leader-service", UPDATE_SECONDS, self._update)
        self.start = self._ticker.start
        self.revive = self._ticker.revive

    def note_call(self) -> None:
        """Notes that a verb was called. `_update` creates the Lease, because this runs in every call."""
        self._called = True

    def stop(self) -> None:
        """Stops updating the Service, which keeps its current address."""
        self._ticker.stop()

    def hand_over(self) -> None:
        """Points the Service at the successor, if there is one, and waits while the proxies update."""
        self.stop()  # an update in progress could point the Service back to this process
        if not self._leading():
            return
        try:
            if successor := self._successor():
                self._point_to(successor)
                logger.info("service points to the successor service=%s address=%s", self._name, successor)
                time.sleep(PROXIES_SECONDS)
        except ClusterError as error:
            logger.warning("service not handed over service=%s reason=%r", self._name, str(error))

    def _update(self) -> None:
        try:
            if self._leading():
                self._point_to(self._address)
                if self._called and time.monotonic() >= self._next_record:
                    self._record_calls()
        except ClusterError as error:
            logger.warning("service not updated service=%s reason=%r", self._name, str(error))

    def _point_to(self, address: str) -> None:
        """Writes the address into the Service's EndpointSlice, unless the slice has it already.

        Raises:
            ClusterError: a call has failed. A Conflict means that the slice was changed after it was read.
        """
        path = f"{self._slices}/{quote(self._name, '')}"
        try:
            slice_ = self._get(path)
        except NotFound:
            self._client.call(ApiCall("POST", self._slices, self._encoded(address, self._first_metadata())))
            return
        if [endpoint.get("addresses") for endpoint in slice_.get("endpoints") or ()] != [[address]]:
            self._client.call(ApiCall("PUT", path, self._encoded(address, slice_["metadata"])))
            logger.info("service points to the leader service=%s address=%s", self._name, address)

    def _record_calls(self) -> None:
        """Creates the Lease that says that kube-scheduler calls this Service. Raises ClusterError if a call fails."""
        self._called = False
        self._next_record = time.monotonic() + CALLED_SECONDS
        lease = {
            "apiVersion": LEASES,
            "kind": "Lease",
            "metadata": {"name": called_lease(self._name)},
            "spec": {"holderIdentity": _CALLED},
        }
        query = urlencode({"fieldManager": _CALLED})  # helm's refusal names it
        path = f"/apis/{LEASES}/namespaces/{quote(self._namespace, '')}/leases?{query}"
        with suppress(Conflict):  # it exists
            self._client.call(ApiCall("POST", path, msgspec.json.encode(lease)))

    def _encoded(self, address: str, metadata: Mapping[str, Any]) -> bytes:
        """Returns the EndpointSlice as JSON. Its port gets the name of the Service's port, because proxies need it."""
        service = self._service()
        return msgspec.json.encode(
            {
                "apiVersion": _GROUP_VERSION,
                "kind": "EndpointSlice",
                "metadata": metadata,
                "addressType": "IPv6" if ":" in address else "IPv4",
                "endpoints": [{"addresses": [address], "conditions": {"ready": True}}],
                "ports": [{"name": service["spec"]["ports"][0].get("name", ""), "port": self._port, "protocol": "TCP"}],
            }
        )

    def _first_metadata(self) -> dict[str, Any]:
        """Returns the metadata of a new EndpointSlice: the labels that proxies need, and the Service as owner."""
        name = self._name
        owner = {"apiVersion": "v1", "kind": "Service", "name": name, "uid": self._service()["metadata"]["uid"]}
        labels = {"kubernetes.io/service-name": name, "endpointslice.kubernetes.io/managed-by": "extender"}
        return {"name": name, "labels": labels, "ownerReferences": [owner]}

    def _service(self) -> Any:
        """Reads the Service from the API server. Raises ClusterError if it does not exist."""
        name = self._name
        # The account may be allowed to list services but not to get one.
        services = self._get(f"{self._core}/services?{urlencode({'fieldSelector': f'metadata.name={name}'})}")
        if not services["items"]:
            raise ClusterError(f"service {self._namespace}/{name} not found")
        return services["items"][0]

    def _successor(self) -> str | None:
        """Returns the address of the youngest other replica that is ready; None if no other replica is ready."""
        selector = ",".join(f"{key}={value}" for key, value in self._labels.items())
        pods = self._get(f"{self._core}/pods?{urlencode({'labelSelector': selector})}")["items"]
        ready = sorted((pod["metadata"]["creationTimestamp"], address) for pod in pods for address in _ready(pod))
        return next((address for _, address in reversed(ready) if address != self._address), None)

    def _get(self, path: str) -> Any:
        return self._client.call_for(msgspec.json.decode, ApiCall("GET", path))


def called_lease(service: str) -> str:
    """Returns the name of the Lease that exists once kube-scheduler has called the Service."""
    return f"{service}-called-by-kube-scheduler"


def _ready(pod: Mapping[str, Any]) -> Iterator[str]:
    """Yields the pod's address if the pod is ready and not terminating."""
    status = pod.get("status") or {}
    conditions = {condition["type"]: condition["status"] for condition in status.get("conditions") or ()}
    if conditions.get("Ready") == "True" and "deletionTimestamp" not in pod["metadata"] and status.get("podIP"):
        yield status["podIP"]

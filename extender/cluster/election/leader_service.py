"""Points a Service at the leader. The Service has no selector, and one EndpointSlice with one address.

Every replica is ready, because a roll-out waits for that. So a selector would send calls to all replicas. The leader
writes its own address. Before a leader ends, it writes the address of its successor, keeps leading while the proxies
update, and then releases the lease. A call that reaches the successor too early waits there until the successor leads,
so no call is refused.

While kube-scheduler calls the Service, every pod would wait for a Service that was removed. So a leader that is called
creates a Lease, and the chart refuses to delete a release while this Lease exists. Only a person deletes it, because a
quiet cluster makes no calls either.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from extender.cluster.election.lease import GROUP_VERSION as LEASES
from extender.cluster.kube_client import Caller
from extender.errors import ClusterError, Conflict, NotFound
from extender.runtime.threads import Ticker

UPDATE_SECONDS = 1.0
PROXIES_SECONDS = 1.5  # longer than the second for which kube-proxy collects changes by default
_CALLED = "extender, which kube-scheduler calls"
CALLED_SECONDS = 30.0  # the least time between two attempts to create the Lease that says so
_GROUP_VERSION = "discovery.k8s.io/v1"

logger = logging.getLogger(__name__)


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
            self._client.call("POST", self._slices, self._encoded(address, self._first_metadata()))
            return
        if [endpoint.get("addresses") for endpoint in slice_.get("endpoints") or ()] != [[address]]:
            self._client.call("PUT", path, self._encoded(address, slice_["metadata"]))
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
            self._client.call("POST", path, msgspec.json.encode(lease))

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
        return self._client.call_for(msgspec.json.decode, "GET", path, b"")


def called_lease(service: str) -> str:
    """Returns the name of the Lease that exists once kube-scheduler has called the Service."""
    return f"{service}-called-by-kube-scheduler"


def _ready(pod: Mapping[str, Any]) -> Iterator[str]:
    """Yields the pod's address if the pod is ready and not terminating."""
    status = pod.get("status") or {}
    conditions = {condition["type"]: condition["status"] for condition in status.get("conditions") or ()}
    if conditions.get("Ready") == "True" and "deletionTimestamp" not in pod["metadata"] and status.get("podIP"):
        yield status["podIP"]

"""A Service that leads to the leader: it has no selector, and one EndpointSlice with one address.

So every replica can be ready, and a roll-out settles, while calls reach the leader only. Whoever leads writes its own
address. Whoever is about to end writes its successor's, leads on while proxies learn of it, and gives the lease up
then; a call that reaches the successor before it leads waits there, so that none is refused.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from extender.cluster.http.kube_client import Caller
from extender.errors import ClusterError, NotFound
from extender.runtime.threads import Ticker

LOOK_SECONDS = 1.0
PROXIES_SECONDS = 1.5  # kube-proxy takes changes together for a second by default
_GROUP_VERSION = "discovery.k8s.io/v1"

logger = logging.getLogger(__name__)


class LeaderService:
    """Leads the Service here while this process is `leading`, from `start` to `stop`.

    Args:
        name: of the Service.
        address, port: of this replica.
        labels: tell the pods of all replicas in the namespace.
    """

    def __init__(
        self, client: Caller, namespace: str, name: str, address: str, port: int, labels: Mapping[str, str],
        leading: Callable[[], bool],
    ) -> None:  # fmt: skip
        self._client, self._leading, self._namespace, self._name = client, leading, namespace, name
        self._address, self._port, self._labels = address, port, labels
        self._slices = f"/apis/{_GROUP_VERSION}/namespaces/{quote(namespace, '')}/endpointslices"
        self._core = f"/api/v1/namespaces/{quote(namespace, '')}"
        self._ticker = Ticker("leader-service", LOOK_SECONDS, self._look)
        self.start, self.revive = self._ticker.start, self._ticker.revive

    def stop(self) -> None:
        """Looks no more; the Service goes on leading to where it leads."""
        self._ticker.stop()

    def hand_over(self) -> None:
        """Leads the Service to the successor, if there is one, and returns when proxies have had the time to learn."""
        self.stop()  # or a look that has begun would take the Service back
        if not self._leading():
            return
        try:
            if successor := self._successor():
                self._lead_to(successor)
                logger.info("service %s leads to %s, the successor", self._name, successor)
                time.sleep(PROXIES_SECONDS)
        except ClusterError as error:
            logger.warning("service %s still leads here: %s", self._name, error)

    def _look(self) -> None:
        try:
            if self._leading():
                self._lead_to(self._address)
        except ClusterError as error:
            logger.warning("service %s may not lead to the leader: %s", self._name, error)

    def _lead_to(self, address: str) -> None:
        """Raises ClusterError; Conflict where another has written meanwhile."""
        path = f"{self._slices}/{quote(self._name, '')}"
        try:
            found = self._get(path)
        except NotFound:
            self._client.call("POST", self._slices, self._encoded(address, self._first_metadata()))
            return
        if [each.get("addresses") for each in found.get("endpoints") or ()] != [[address]]:
            self._client.call("PUT", path, self._encoded(address, found["metadata"]))
            logger.info("service %s leads to %s", self._name, address)

    def _encoded(self, address: str, metadata: Mapping[str, Any]) -> bytes:
        """Returns the EndpointSlice; its port goes by the Service's name for it, without which no proxy takes it."""
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
        """Returns what the slice is found by, and the Service with which it goes."""
        name = self._name
        owner = {"apiVersion": "v1", "kind": "Service", "name": name, "uid": self._service()["metadata"]["uid"]}
        labels = {"kubernetes.io/service-name": name, "endpointslice.kubernetes.io/managed-by": "extender"}
        return {"name": name, "labels": labels, "ownerReferences": [owner]}

    def _service(self) -> Any:
        """Returns the Service. Raises ClusterError where there is none."""
        name = self._name
        # A list, for the account may list all services anyway.
        found = self._get(f"{self._core}/services?{urlencode({'fieldSelector': f'metadata.name={name}'})}")
        if not found["items"]:
            raise ClusterError(f"there is no service {self._namespace}/{name}")
        return found["items"][0]

    def _successor(self) -> str:
        """Returns the address of the youngest replica that is ready, but this one; "" where there is none."""
        selector = ",".join(f"{key}={value}" for key, value in self._labels.items())
        pods = self._get(f"{self._core}/pods?{urlencode({'labelSelector': selector})}")["items"]
        ready = sorted((pod["metadata"]["creationTimestamp"], address) for pod in pods for address in _ready(pod))
        return next((address for _, address in reversed(ready) if address != self._address), "")

    def _get(self, path: str) -> Any:
        return self._client.call_for(msgspec.json.decode, "GET", path, b"")


def _ready(pod: Mapping[str, Any]) -> Iterator[str]:
    """Yields the pod's address if the pod is ready and is to stay."""
    status = pod.get("status") or {}
    conditions = {each["type"]: each["status"] for each in status.get("conditions") or ()}
    if conditions.get("Ready") == "True" and "deletionTimestamp" not in pod["metadata"] and status.get("podIP"):
        yield status["podIP"]

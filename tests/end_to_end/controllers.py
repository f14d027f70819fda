"""Controllers of volumes and devices in a whole cluster, as far as the scheduler's part of it can be seen."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from extender.model.devices import RESOURCE_CLAIM_FINALIZER
from extender.model.storage import (
    BIND_COMPLETED_ANNOTATION,
    BOUND_BY_CONTROLLER_ANNOTATION,
    SELECTED_NODE_ANNOTATION,
)
from tests.builders import Object, expression, make_pv, node_term
from tests.stock.api_client import ApiClient, ApiError

HOSTNAME = "kubernetes.io/hostname"
_PAUSE_SECONDS = 0.05


class Volumes:
    """The controller that completes bindings, and a provisioner that makes volumes where claims say."""

    def __init__(self, client: ApiClient, refused_nodes: tuple[str, ...] = ()) -> None:
        self._client, self._refused_nodes = client, refused_nodes
        self.refused: list[str] = []

    def act(self) -> None:
        """Does what is to be done at this moment."""
        volumes = {volume["metadata"]["name"]: volume for volume in self._client.list("PersistentVolume")}
        for claim in self._client.list("PersistentVolumeClaim", "default"):
            if claim["spec"].get("volumeName"):
                continue
            kept = [name for name, volume in volumes.items() if _is_kept_for(volume, claim)]
            node = claim["metadata"].get("annotations", {}).get(SELECTED_NODE_ANNOTATION)
            if kept:
                self._bind(claim, kept[0])
            elif node in self._refused_nodes:
                self._give_up(claim, node)
            elif node:
                self._provision(claim, node)

    def _bind(self, claim: Object, volume: str) -> None:
        name = claim["metadata"]["name"]
        metadata = {"annotations": {BIND_COMPLETED_ANNOTATION: "yes"}}
        self._client.patch("PersistentVolumeClaim", name, {"metadata": metadata, "spec": {"volumeName": volume}})
        self._client.patch("PersistentVolumeClaim", name, {"status": {"phase": "Bound"}}, subresource="status")
        self._client.patch("PersistentVolume", volume, {"status": {"phase": "Bound"}}, subresource="status")

    def _provision(self, claim: Object, node: str) -> None:
        name = f"pvc-{claim['metadata']['uid']}"
        volume = make_pv(
            name,
            storage_class=claim["spec"]["storageClassName"],
            node_terms=[node_term(expression(HOSTNAME, "In", node))],
        )
        volume["spec"]["claimRef"] = {"kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": "default"}
        volume["spec"]["claimRef"] |= {key: claim["metadata"][key] for key in ("name", "uid")}
        volume["metadata"]["annotations"] = {BOUND_BY_CONTROLLER_ANNOTATION: "yes"}
        self._client.create(volume)

    def _give_up(self, claim: Object, node: str) -> None:
        self.refused.append(node)
        metadata = {"annotations": {SELECTED_NODE_ANNOTATION: None}}
        self._client.patch("PersistentVolumeClaim", claim["metadata"]["name"], {"metadata": metadata})


def _is_kept_for(volume: Object, claim: Object) -> bool:
    reference = volume["spec"].get("claimRef") or {}
    return bool(reference.get("uid") == claim["metadata"]["uid"])


class Claims:
    """The part of kube-controller-manager's resourceclaim controller that deallocates the claims of pods that are gone.

    It acts only when the test says so, so that a test can look at the time between a pod's end and the deallocation.
    """

    def __init__(self, client: ApiClient) -> None:
        self._client = client

    def act(self) -> None:
        """Takes away the reservations of pods that are gone, and then the allocations that nobody has reserved."""
        uids = {pod["metadata"]["uid"] for pod in self._client.list("Pod", "default")}
        for claim in self._client.list("ResourceClaim", "default"):
            users = claim.get("status", {}).get("reservedFor", [])
            kept = [user for user in users if user["uid"] in uids]
            if len(kept) < len(users):
                name, allocation = claim["metadata"]["name"], {} if kept else {"allocation": None}
                status = {"reservedFor": kept or None, **allocation}
                self._client.patch("ResourceClaim", name, {"status": status}, subresource="status")
                if not kept:
                    self._client.patch("ResourceClaim", name, {"metadata": {"finalizers": None}})


@contextmanager
def working(act: Callable[[], None]) -> Iterator[None]:
    """Has `act` called again and again, in a thread of its own, while the block runs."""
    stopping = threading.Event()

    def work() -> None:
        while not stopping.wait(_PAUSE_SECONDS):
            with suppress(ApiError):  # changed since: next time
                act()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()


def release_claims(client: ApiClient) -> None:
    """Lets claims of devices go that are being deleted, and deletes the others: no controller takes finalizers away."""
    for claim in client.list("ResourceClaim", "default"):
        name = claim["metadata"]["name"]
        if RESOURCE_CLAIM_FINALIZER in claim["metadata"].get("finalizers", []):
            client.patch("ResourceClaim", name, {"metadata": {"finalizers": None}})
    client.delete_all("ResourceClaim", "default")

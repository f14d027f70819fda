"""A watch of its own that sees where every pod has ever been."""

from __future__ import annotations

import http.client
import json
import ssl
import threading
from collections import defaultdict
from typing import Any, Self

from tests.stock.control_plane import ADMIN_TOKEN, ControlPlane


class Witness:
    """`with Witness(control_plane) as witness:` follows all pods from now on, straight from the API server.

    Attributes:
        places: UID -> the nodes that the pod has been on, in order, each as often as it came there again.
        failure: what ended the watch, if anything did: then its word is worth nothing.
    """

    def __init__(self, control_plane: ControlPlane) -> None:
        self.places: defaultdict[str, list[str]] = defaultdict(list)
        self.failure: Exception | None = None
        self._plane = control_plane
        self._context = ssl.create_default_context(cafile=str(control_plane.ca_file))
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="witness", daemon=True)

    def __enter__(self) -> Self:
        listed = self._plane.client.request("GET", "/api/v1/pods")
        for pod in listed["items"]:
            self._see(pod)
        self._version: str = listed["metadata"]["resourceVersion"]
        self._response = self._watch()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping = True
        if self._connection.sock is not None:
            self._connection.sock.shutdown(2)
        self._thread.join(60)
        self._connection.close()

    def _watch(self) -> http.client.HTTPResponse:
        address = self._plane.server.rpartition(":")[2]
        self._connection = http.client.HTTPSConnection("127.0.0.1", int(address), context=self._context)
        path = f"/api/v1/pods?watch=1&timeoutSeconds=7200&resourceVersion={self._version}"
        self._connection.request("GET", path, headers={"Authorization": f"Bearer {ADMIN_TOKEN}"})
        return self._connection.getresponse()

    def moved(self) -> dict[str, list[str]]:
        """The pods that were bound more than once."""
        return {uid: places for uid, places in self.places.copy().items() if len(places) > 1}

    def _run(self) -> None:
        try:
            while True:
                for line in self._response:
                    event: dict[str, Any] = json.loads(line)
                    if event["type"] == "ERROR":
                        raise ConnectionError(event["object"]["message"])
                    self._version = event["object"]["metadata"]["resourceVersion"]
                    self._see(event["object"])
                if self._stopping:
                    return
                # The API server ends the watch of a client that is slow; from that version on nothing is lost.
                self._connection.close()
                self._response = self._watch()
        except Exception as error:
            if not self._stopping:
                self.failure = error

    def _see(self, pod: dict[str, Any]) -> None:
        node, places = pod["spec"].get("nodeName"), self.places[pod["metadata"]["uid"]]
        if node and (not places or places[-1] != node):
            places.append(node)

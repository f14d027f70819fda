"""Binds pods by the API server, at a pace."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from urllib.parse import quote

import msgspec

from extender.cluster.http.kube_client import Caller
from extender.cluster.writers.outbox import TokenBucket
from extender.errors import Conflict, Refused
from extender.runtime.clock import Clock
from extender.runtime.fibers import in_thread
from extender.runtime.ports import Binder

_ENCODE = msgspec.json.Encoder().encode
_TOO_MANY_REQUESTS, _MOST_TRIES = 429, 11
_RETRY_AFTER_SECONDS = 1.0  # the API server never says another figure
_PLAIN = re.compile(r"[a-z0-9.-]*")  # as all names are that an API server lets in


def _quoted(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else quote(name, "")


class ApiBinder:
    """Posts Bindings with the pod's UID as precondition; a ports.Binder.

    Every post may be repeated, for the API server takes the second of two equal ones as a conflict with itself and says
    so. 429 is a refusal: the server has done nothing, and the scheduler comes again after a pause of its own, while a
    wait in here would use up the time that the scheduler gives its extender.
    """

    def __init__(self, client: Caller) -> None:
        self._client = client

    def bind(
        self, namespace: str, name: str, uid: str, node: str, annotations: Mapping[str, str] | None = None
    ) -> None:
        metadata = {"name": name, "namespace": namespace, "uid": uid}
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {**metadata, "annotations": annotations} if annotations else metadata,
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        path = f"/api/v1/namespaces/{_quoted(namespace)}/pods/{_quoted(name)}/binding"
        try:
            self._client.call("POST", path, _ENCODE(binding))
        except Conflict as error:
            # The precondition comes first: had the pod another UID, the message would be about that.
            if f'is already assigned to node "{node}"' not in str(error):
                raise


class PacedBinder:
    """A ports.Binder that waits for its turn, and binds again where the API server has too much to do (429).

    As often, and after as long, as client-go does: for a pod given back to the queue the pauses would grow.
    """

    def __init__(
        self, binder: Binder, bucket: TokenBucket, clock: Clock, sleep: Callable[[float], object] = time.sleep
    ) -> None:
        self._binder, self._bucket, self._clock, self._sleep = binder, bucket, clock, sleep

    def bind(
        self, namespace: str, name: str, uid: str, node: str, annotations: Mapping[str, str] | None = None
    ) -> None:
        """See ports.Binder."""
        for tries_left in reversed(range(_MOST_TRIES)):
            self._wait(self._bucket.reserve(self._clock.monotonic()))
            try:
                self._binder.bind(namespace, name, uid, node, annotations)
                return
            except Refused as error:
                if error.status != _TOO_MANY_REQUESTS or not tries_left:
                    raise
            self._wait(_RETRY_AFTER_SECONDS)

    def _wait(self, seconds: float) -> None:
        if seconds:
            in_thread(lambda: self._sleep(seconds))

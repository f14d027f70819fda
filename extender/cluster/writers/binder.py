"""Binds pods at the API server."""

from __future__ import annotations

import logging
import re
import threading
from dataclasses import dataclass
from urllib.parse import quote

import msgspec

from extender.cluster.http.kube_client import Caller
from extender.errors import Conflict
from extender.runtime.clock import Clock
from extender.runtime.ports import Binder, Binding

HANGING_SECONDS = 5.0
_log = logging.getLogger(__name__)
_ENCODE = msgspec.json.Encoder().encode
_PLAIN = re.compile(r"[a-z0-9.-]*")  # names that the API server accepts have only these characters


def _quoted(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else quote(name, "")


class ApiBinder:
    """A ports.Binder that posts Bindings with the pod's UID as precondition.

    A post may be repeated, because the API server answers the second of two equal ones with a conflict that names the
    node. A status 429 counts as a refusal: the server has done nothing, and the scheduler tries again later. Waiting
    here would use up the time limit of the scheduler's call.
    """

    def __init__(self, client: Caller) -> None:
        self._client = client

    def bind(self, binding: Binding) -> None:
        namespace, name, uid, node = binding
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "namespace": namespace, "uid": uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        path = f"/api/v1/namespaces/{_quoted(namespace)}/pods/{_quoted(name)}/binding"
        try:
            self._client.call("POST", path, _ENCODE(body))
        except Conflict as error:
            # The API server checks the UID before the node, so this message is about the same pod.
            if f'is already assigned to node "{node}"' not in str(error):
                raise


@dataclass(slots=True)
class _BindInFlight:
    binding: Binding
    began_at: float
    is_logged: bool = False


class WatchedBinder:
    """A ports.Binder that logs a bind which hangs while it still hangs. The owner calls `log_hanging` regularly."""

    def __init__(self, binder: Binder, clock: Clock) -> None:
        self._binder = binder
        self._clock = clock
        self._lock = threading.Lock()
        self._in_flight: dict[str, _BindInFlight] = {}

    def bind(self, binding: Binding) -> None:
        """See ports.Binder."""
        with self._lock:
            self._in_flight[binding.uid] = _BindInFlight(binding, self._clock.monotonic())
        try:
            self._binder.bind(binding)
        finally:
            with self._lock:
                self._in_flight.pop(binding.uid, None)

    def log_hanging(self) -> None:
        """Logs each bind that has had no answer for HANGING_SECONDS, once."""
        now = self._clock.monotonic()
        with self._lock:
            binds = list(self._in_flight.values())
        for bind in binds:
            seconds = now - bind.began_at
            if seconds >= HANGING_SECONDS and not bind.is_logged:
                bind.is_logged = True
                key, node = bind.binding.key, bind.binding.node
                _log.warning("bind has no answer yet pod=%s node=%s seconds=%d", key, node, seconds)

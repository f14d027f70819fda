"""Binds pods at the API server."""

from __future__ import annotations

import logging
import re
from functools import partial
from urllib.parse import quote

import msgspec

from extender.cluster.http.kube_client import Caller
from extender.errors import Conflict, OutcomeUnknown, Refused
from extender.runtime.ports import Binder, Binding, Check, always
from extender.runtime.threads import HangingCalls

_log = logging.getLogger(__name__)
_ENCODE = msgspec.json.Encoder().encode
# A Binding requires these of its pod. All other conflicts are errors of the storage.
_ABOUT_THE_POD = re.compile(
    "is already assigned to node|is being deleted, cannot be assigned|has non-empty .spec.schedulingGates"
    "|Precondition failed: "
)
_PLAIN = re.compile(r"[a-z0-9.-]*")  # the API server accepts only names of these characters


def _quoted(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else quote(name, "")


class ApiBinder:
    """A ports.Binder that posts Bindings with the pod's UID as precondition.

    The client may post a Binding twice. The API server then answers with a conflict that names the pod's node; if this
    is the right node, the bind has succeeded. After a status 429, `bind` raises Refused, and the scheduler tries again
    later. Waiting here would use up the time limit of the scheduler's call.

    kube-apiserver answers 409 to a Binding whenever the storage fails, also if etcd has not answered in time and may
    still store the pod. So a conflict is a refusal only if its message says that the pod was in the way.
    """

    def __init__(self, client: Caller) -> None:
        self._client = client

    def bind(self, binding: Binding, check: Check = always) -> None:
        namespace, name, uid, node, annotations = binding
        chosen = {"annotations": dict(annotations)} if annotations else {}
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "namespace": namespace, "uid": uid, **chosen},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        path = f"/api/v1/namespaces/{_quoted(namespace)}/pods/{_quoted(name)}/binding"
        try:
            self._client.call("POST", path, _ENCODE(body), check=check)
        except Refused as error:
            # The API server checks the UID before the node, so this conflict is about the same pod.
            if isinstance(error, Conflict) and f'is already assigned to node "{node}"' in str(error):
                return
            # The status code is removed, so that the pod's event has the same text as kube-scheduler's.
            words = str(error).removeprefix(f"{error.status}: ")
            if isinstance(error, Conflict) and not _ABOUT_THE_POD.search(words):
                raise OutcomeUnknown(words) from None
            raise type(error)(words, error.status) from None


class WatchedBinder:
    """A ports.Binder that logs a bind which has not been answered for some seconds."""

    def __init__(self, binder: Binder, hanging: HangingCalls) -> None:
        self._binder = binder
        self._hanging = hanging

    def bind(self, binding: Binding, check: Check = always) -> None:
        with self._hanging.watch(partial(_warn, binding)):
            self._binder.bind(binding, check)


def _warn(binding: Binding, seconds: float) -> None:
    _log.warning("bind has no answer yet pod=%s node=%s seconds=%d", binding.key, binding.node, seconds)

"""Evicts pods by the API server. Source: upstream preemption.Executor.PreemptPod."""

from __future__ import annotations

import msgspec

from extender.cluster.http.kube_client import Caller
from extender.cluster.writers.statuses import patch_status, pod_path, transition
from extender.errors import NotFound, Refused
from extender.model.pod import PREEMPTED_CONDITION, PREEMPTED_REASON, Pod
from extender.runtime.clock import Clock

_ENCODE = msgspec.json.Encoder().encode


class ApiEvictor:
    """A scheduler.ports.Evictor. Both calls carry the victim's UID: a pod made anew under its name is left alone."""

    def __init__(self, client: Caller, clock: Clock) -> None:
        self._client, self._clock = client, clock

    def evict(self, victim: Pod, message: str) -> bool:
        try:
            self._mark(victim, message)
            preconditions = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": victim.uid}}
            self._client.call("DELETE", pod_path(victim), _ENCODE(preconditions))
        except NotFound:
            return False
        except Refused as error:
            if not _is_about_uid(error):
                raise
            return False
        return True

    def _mark(self, victim: Pod, message: str) -> None:
        kind = PREEMPTED_CONDITION
        condition = {"type": kind, "status": "True", "reason": PREEMPTED_REASON, "message": message}
        condition |= transition(victim, kind, "True", self._clock.now())
        patch_status(self._client, victim, {"conditions": [condition]})


def _is_about_uid(error: Refused) -> bool:
    """Returns whether another pod stands under the name: a patch is called invalid then, a deletion a conflict."""
    return error.status in (409, 422) and "uid" in str(error).lower()

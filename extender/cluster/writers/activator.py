"""Has kube-scheduler try a refused pod again, which no call can ask of it: by an update of the pod."""

from __future__ import annotations

import logging
from datetime import UTC, datetime

from extender.cluster.http.kube_client import Caller
from extender.cluster.writers.statuses import patch_status
from extender.errors import ClusterError
from extender.model.pod import Pod
from extender.runtime.clock import Clock

_log = logging.getLogger(__name__)
_CONDITION = "PodScheduled"


class ApiActivator:
    """Sets `lastProbeTime` of the pod's condition PodScheduled, the least that a scheduler sees as an update."""

    def __init__(self, client: Caller, clock: Clock) -> None:
        self._client, self._clock = client, clock

    def activate(self, pod: Pod) -> None:
        """See verbs.refused_pods.Activator; a failure is logged.

        A pod without the condition is left alone: the scheduler's writing it is an update too.
        """
        if not any(each.type == _CONDITION for each in pod.status.conditions or ()):
            return
        now = datetime.fromtimestamp(self._clock.now(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        condition = {"type": _CONDITION, "lastProbeTime": now}
        try:
            patch_status(self._client, pod, {"conditions": [condition]})
        except ClusterError as error:
            _log.warning("%s fits by now, and could not be brought to the scheduler's notice: %s", pod.key, error)
        else:
            _log.info("%s was refused, fits by now, and is brought to the scheduler's notice", pod.key)

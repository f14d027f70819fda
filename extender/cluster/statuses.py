"""Patches the statuses of pods and groups, and evicts pods.

A pod's status shows why a pod waits and to which node it is nominated. A change of `lastProbeTime` in its condition
PodScheduled makes kube-scheduler try the pod again. A group's condition says whether the group has been scheduled.
"""

from __future__ import annotations

import logging
import re
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import msgspec

from extender.cluster.kube_client import ApiCall, Caller
from extender.cluster.outbox import Outbox, TokenBucket
from extender.errors import ClusterError, Conflict, NotFound, Refused
from extender.model.kinds import KINDS, Kind
from extender.model.meta import Condition
from extender.model.pod import PREEMPTED_CONDITION, PREEMPTED_REASON, Pod
from extender.model.pod_groups import SchedulingGroup
from extender.runtime.clock import Clock
from extender.runtime.ports import NominatedNode, Nominating

MERGE, STRATEGIC_MERGE = "application/merge-patch+json", "application/strategic-merge-patch+json"
_ENCODE = msgspec.json.Encoder().encode
_DECODE = msgspec.json.Decoder(Pod).decode
_TRIES = 5
_CAPACITY = 100_000
_CONDITION = "PodScheduled"
_EVICTION = "DELETE /api/v1/"
# Matches the API server's messages about a wrong UID, but no message of an admission policy.
_OF_UID = re.compile(r"UID in (the )?precondition|metadata\.uid: ")
_REMEMBERED = 10_000
_SCHEDULED = "Scheduled"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Status:
    """A status to write. If the reason or the nominated node is None, that part does not change.

    If `only_unbound` is True, the status is not written once the pod is bound.
    """

    pod: Pod
    reason: str | None = None
    message: str = ""
    nominated_node: str | None = None
    only_unbound: bool = False


class ApiStatuses:
    """A scheduler_ports.Statuses that writes in the background. A status that the pod already has is not written."""

    def __init__(
        self, client: Caller, bucket: TokenBucket, clock: Clock, dropped: Callable[[str], object] = lambda _: None
    ) -> None:
        """Creates the writer; `start` starts its thread. `dropped` is called for each write that is dropped."""
        self._client = client
        self._clock = clock
        self._outbox: Outbox[str, _Status] = Outbox("statuses", self._write, _joined, bucket, clock, _CAPACITY, dropped)
        # By UID, the last status written for each waiting pod, because the pod's own status may be older.
        self._written: dict[str, tuple[str | None, str, str | None]] = {}
        self.start = self._outbox.start
        self.stop = self._outbox.stop
        self.waiting = self._outbox.waiting

    def failed(self, pod: Pod, reason: str, message: str, nominated_node: NominatedNode) -> None:
        node_name: str | None
        match nominated_node:
            case Nominating.KEEP:
                node_name = None
            case Nominating.CLEAR:
                node_name = ""
            case str():
                node_name = nominated_node
        self._outbox.put(pod.uid, _Status(pod, reason, message, node_name))

    def failed_unless_bound(self, pod: Pod, reason: str, message: str) -> None:
        self._outbox.put(pod.uid, _Status(pod, reason, message, only_unbound=True))

    def nominate(self, pod: Pod, nominated_node: str) -> None:
        self._outbox.put(pod.uid, _Status(pod, nominated_node=nominated_node))

    def withdraw(self, pod: Pod) -> None:
        self._outbox.withdraw(pod.uid)

    def forget_others(self, uids: Collection[str]) -> None:
        """Forgets what was written for pods that are not among `uids`. Call it now and then with the waiting pods."""
        for uid in self._written.copy().keys() - uids:
            self._written.pop(uid, None)

    def _write(self, status: _Status) -> None:
        present = _content_of(status.pod)
        nominated = present[2] if status.nominated_node is None else status.nominated_node
        content = status.reason, status.message, nominated
        if self._written.get(status.pod.uid, present) == content and nominated == present[2]:
            return
        if status.only_unbound:
            self._write_to_unbound(status)
        else:
            patch_status(self._client, status.pod, self._patch(status))
        self._written[status.pod.uid] = content

    def _write_to_unbound(self, status: _Status) -> None:
        """Writes the status unless the pod is bound. A Binding that arrives later replaces the condition."""
        for tries_left in reversed(range(_TRIES)):
            pod = self._client.call_for(_DECODE, ApiCall("GET", pod_path(status.pod)))
            if pod.uid != status.pod.uid or pod.node_name:
                return
            try:
                patch_status(self._client, pod, self._patch(replace(status, pod=pod)), pod.metadata.resource_version)
                return
            except Conflict:
                if not tries_left:
                    raise

    def _patch(self, status: _Status) -> dict[str, Any]:
        patch: dict[str, Any] = {}
        if status.reason is not None:
            now = self._clock.now()
            patch["conditions"] = [_condition_of(status.pod, _CONDITION, "False", status.reason, status.message, now)]
        if status.nominated_node is not None:
            patch["nominatedNodeName"] = status.nominated_node or None
        return patch


def _condition_of(
    owner: Pod | SchedulingGroup, kind: str, status: str, reason: str, message: str, now: float
) -> dict[str, Any]:
    """Returns a condition to write. If `owner` has it with this status, the time of its last transition is left out.

    `now` is in seconds since the epoch.
    """
    condition: dict[str, Any] = {"type": kind, "status": status, "reason": reason, "message": message}
    if owner.metadata.generation:
        condition["observedGeneration"] = owner.metadata.generation
    if not any((each.type, each.status) == (kind, status) for each in owner.status.conditions or ()):
        condition["lastTransitionTime"] = _timestamp(now)
    return condition


def _timestamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def pod_path(pod: Pod) -> str:
    return f"/api/v1/namespaces/{quote(pod.namespace, '')}/pods/{quote(pod.name, '')}"


def patch_status(client: Caller, pod: Pod, patch: Mapping[str, Any], version: str = "") -> None:
    """Patches the pod's status.

    Raises Refused if another pod now has the name, Conflict if the pod is no longer in this resource version (""
    means any), and the errors of `Caller.call`.
    """
    precondition = {"uid": pod.uid} | ({"resourceVersion": version} if version else {})
    body = _ENCODE({"metadata": precondition, "status": patch})
    client.call(ApiCall("PATCH", f"{pod_path(pod)}/status", body, STRATEGIC_MERGE))


def _content_of(pod: Pod) -> tuple[str | None, str, str]:
    """Returns (reason, message, nominated node) of the pod's status.

    Reason and message are those of the condition PodScheduled=False. Without such a condition, the reason is None, and
    the message is "".
    """
    conditions = pod.status.conditions or ()
    condition = next((c for c in conditions if (c.type, c.status) == (_CONDITION, "False")), None)
    reason, message = (condition.reason, condition.message) if condition else (None, "")
    return reason, message, pod.status.nominated_node_name


def _joined(before: _Status, after: _Status) -> _Status:
    if after.reason is None:
        return replace(before, pod=after.pod, nominated_node=after.nominated_node)
    return after if after.nominated_node is not None else replace(after, nominated_node=before.nominated_node)


class ApiActivator:
    """Makes a scheduler try a pod again, by a change of `lastProbeTime` in its condition PodScheduled."""

    def __init__(self, client: Caller, clock: Clock) -> None:
        self._client = client
        self._clock = clock

    def activate(self, pod: Pod) -> None:
        """Makes the scheduler try the pod again; logs an error instead of raising it. See verbs.filter.Activator.

        Does nothing if the pod has no condition PodScheduled yet, because the scheduler is about to write it. Writing
        the condition makes the scheduler try the pod again, too.
        """
        if not any(condition.type == _CONDITION for condition in pod.status.conditions or ()):
            return
        condition = {"type": _CONDITION, "lastProbeTime": _timestamp(self._clock.now())}
        try:
            patch_status(self._client, pod, {"conditions": [condition]})
        except ClusterError as error:
            _log.warning("scheduler not woken for a pod that fits now pod=%s reason=%r", pod.key, str(error))
        else:
            _log.info("woke the scheduler for a refused pod that fits now pod=%s", pod.key)


class ApiEvictor:
    """A scheduler_ports.Evictor.

    Both calls have the victim's UID as precondition, so that a recreated pod of the same name is not affected.

    Args:
        has_unknown: returns True if the outcome of a call that begins like this is unknown. No eviction begins while
            that of an earlier one is, because the preemptor could then get another victim than the one that goes.
    """

    def __init__(self, client: Caller, clock: Clock, has_unknown: Callable[[str], bool] = lambda _: False) -> None:
        self._client = client
        self._clock = clock
        self._has_unknown = has_unknown

    def mark_victim(self, victim: Pod, message: str) -> bool:
        if self._has_unknown(_EVICTION):
            raise Refused("it is not known yet whether an earlier victim goes", 503)
        now = self._clock.now()
        condition = _condition_of(victim, PREEMPTED_CONDITION, "True", PREEMPTED_REASON, message, now)
        return _finds(lambda: patch_status(self._client, victim, {"conditions": [condition]}))

    def delete_victim(self, victim: Pod) -> bool:
        preconditions = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": victim.uid}}
        return _finds(lambda: self._client.call(ApiCall("DELETE", pod_path(victim), _ENCODE(preconditions))))


def _finds(call: Callable[[], object]) -> bool:
    """Makes a call about a pod; returns False if the pod does not exist, or if its name belongs to another pod."""
    try:
        call()
    except NotFound:
        return False
    except Refused as error:
        # If the name belongs to another pod, a patch is refused as invalid (422), and a deletion as a conflict (409).
        if error.status not in (409, 422) or not _OF_UID.search(str(error)):
            raise
        return False
    return True


# ---- groups


@dataclass(frozen=True, slots=True)
class _Condition:
    """The condition to write: its status (True or False), its reason and its message."""

    group: SchedulingGroup
    is_true: bool
    reason: str
    message: str = ""

    @property
    def status(self) -> str:
        return str(self.is_true)


class ApiGroupStatuses:
    """Writes pod groups' conditions in the background; implements scheduler_ports.GroupStatuses.

    A condition is not written if the group has it already. After True, nothing more is written, because True is final.
    """

    def __init__(
        self,
        client: Caller,
        served: Callable[[Kind], Kind],
        bucket: TokenBucket,
        clock: Clock,
        dropped: Callable[[str], object] = lambda _: None,
    ) -> None:
        """Creates the writer; `start` starts its thread.

        Args:
            served: returns the kind in the API version that the API server serves.
            dropped: called for each write that is dropped.
        """
        self._client = client
        self._served = served
        self._clock = clock
        self._outbox: Outbox[str, _Condition] = Outbox(
            "group statuses", self._write, _joined_conditions, bucket, clock, _CAPACITY, dropped
        )
        self._written: OrderedDict[str, tuple[str, str, str]] = OrderedDict()
        self.start = self._outbox.start
        self.stop = self._outbox.stop
        self.waiting = self._outbox.waiting

    def scheduled(self, group: SchedulingGroup) -> None:
        self._put(_Condition(group, True, _SCHEDULED))

    def unscheduled(self, group: SchedulingGroup, reason: str, message: str) -> None:
        self._put(_Condition(group, False, reason, message))

    def _put(self, condition: _Condition) -> None:
        present = _present(condition.group)
        if present is None or present.status != "True":
            self._outbox.put(condition.group.uid, condition)

    def _write(self, condition: _Condition) -> None:
        group = condition.group
        content, present = (condition.status, condition.reason, condition.message), _present(group)
        known = (present.status, present.reason, present.message) if present is not None else None
        written = self._written.get(group.uid, known)
        if written is not None and (written[0] == "True" or written == content):
            return
        body = _condition_of(group, group.initially_scheduled, *content, self._clock.now())
        kind = self._served(KINDS[type(group).__name__])
        path = f"{kind.path_in(quote(group.namespace, ''))}/{quote(group.name, '')}/status"
        patch = _ENCODE({"metadata": {"uid": group.uid}, "status": {"conditions": [body]}})
        self._client.call(ApiCall("PATCH", path, patch, STRATEGIC_MERGE))
        self._written[group.uid] = content
        self._written.move_to_end(group.uid)
        if len(self._written) > _REMEMBERED:
            self._written.popitem(last=False)


def _present(group: SchedulingGroup) -> Condition | None:
    conditions = group.status.conditions or ()
    return next((each for each in conditions if each.type == group.initially_scheduled), None)


def _joined_conditions(before: _Condition, after: _Condition) -> _Condition:
    """Returns `before` if its status is True, because True is final; otherwise returns `after`."""
    return before if before.is_true else after

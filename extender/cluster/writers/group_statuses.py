"""Writes the condition that says whether a PodGroup has been scheduled."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import quote

import msgspec

from extender.cluster.http.kube_client import Caller
from extender.cluster.writers.outbox import Outbox, TokenBucket
from extender.cluster.writers.statuses import STRATEGIC_MERGE, observed_generation
from extender.model.kinds import KINDS
from extender.model.meta import Condition
from extender.model.pod_groups import INITIALLY_SCHEDULED, PodGroup
from extender.runtime.clock import Clock

_CAPACITY = 100_000
_REMEMBERED = 10_000
_SCHEDULED = "Scheduled"
_ENCODE = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class _Condition:
    """The condition to write: its status (True or False), its reason and its message."""

    group: PodGroup
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
        self, client: Caller, bucket: TokenBucket, clock: Clock, dropped: Callable[[str], object] = lambda _: None
    ) -> None:
        """Creates the writer; `start` starts its thread. `dropped` is called for each write that is dropped."""
        self._client = client
        self._clock = clock
        self._outbox: Outbox[str, _Condition] = Outbox(
            "group statuses", self._write, _joined, bucket, clock, _CAPACITY, dropped
        )
        self._written: OrderedDict[str, tuple[str, str, str]] = OrderedDict()
        self.start = self._outbox.start
        self.stop = self._outbox.stop
        self.waiting = self._outbox.waiting

    def scheduled(self, group: PodGroup) -> None:
        self._put(_Condition(group, True, _SCHEDULED))

    def unscheduled(self, group: PodGroup, reason: str, message: str) -> None:
        self._put(_Condition(group, False, reason, message))

    def _put(self, condition: _Condition) -> None:
        present = _present(condition.group)
        if present is None or present.status != "True":
            self._outbox.put(condition.group.uid, condition)

    def _write(self, condition: _Condition) -> None:
        group, present = condition.group, _present(condition.group)
        written = self._written.get(group.uid) or _content(present)
        if written is not None and (
            written[0] == "True" or written == (condition.status, condition.reason, condition.message)
        ):
            return
        body: dict[str, object] = {
            "type": INITIALLY_SCHEDULED,
            "status": condition.status,
            "reason": condition.reason,
            "message": condition.message,
            **observed_generation(group),
        }
        if present is None or present.status != condition.status:
            now = datetime.fromtimestamp(self._clock.now(), UTC)
            body["lastTransitionTime"] = now.strftime("%Y-%m-%dT%H:%M:%SZ")
        patch = _ENCODE({"metadata": {"uid": group.uid}, "status": {"conditions": [body]}})
        path = KINDS[PodGroup.__name__].path_in(quote(group.namespace, ""))
        self._client.call("PATCH", f"{path}/{quote(group.name, '')}/status", patch, STRATEGIC_MERGE)
        self._written[group.uid] = condition.status, condition.reason, condition.message
        self._written.move_to_end(group.uid)
        if len(self._written) > _REMEMBERED:
            self._written.popitem(last=False)


def _content(condition: Condition | None) -> tuple[str, str, str] | None:
    return None if condition is None else (condition.status, condition.reason, condition.message)


def _present(group: PodGroup) -> Condition | None:
    conditions = group.status.conditions or ()
    return next((each for each in conditions if each.type == INITIALLY_SCHEDULED), None)


def _joined(before: _Condition, after: _Condition) -> _Condition:
    """Returns `before` if its status is True, because True is final; otherwise returns `after`."""
    return before if before.is_true else after

"""Asking one rule's hints about one pod and one change."""

from __future__ import annotations

from typing import Any

from extender.framework.events.cluster_events import Action, Change, ClusterEvent, Resource, Room
from extender.plugins.hints import INTERESTS, QueueingHints
from extender.table import PodInfo
from tests.queue.queueing import Told


def helped(
    rule: str,
    pod: PodInfo,
    resource: Resource,
    action: Action,
    old: Any = None,
    new: Any = None,
    room: Room | None = None,
) -> bool:
    """Whether the event may help the pod that `rule` refused; a hint that raises fails the test."""
    told = Told()
    change = Change(ClusterEvent(resource, action), old, new, room)
    answer = QueueingHints(INTERESTS, told.rule_failed).help_from(rule, pod, change)
    assert not told.failed
    return answer

"""Runs the queueing hints of one rule for one pod and one change."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from extender.framework.cluster_events import Action, Change, ClusterEvent, Resource, Room
from extender.framework.queueing_hints import QueueingHints
from extender.model.meta import Object
from extender.model.storage import PersistentVolumeClaim
from extender.plugins.registry import INTERESTS
from extender.queue.entries import QueuedPod
from extender.queue.priority_queue import PriorityQueue
from extender.runtime.clock import ManualClock
from extender.table import PodInfo
from tests.builders import NodeBuilder, PodBuilder, make_pvc
from tests.queue.queueing import QueueRecorder, info, node, refused

T = TypeVar("T", bound=Object)


def helped(
    rule: str,
    pod: PodInfo,
    resource: Resource,
    action: Action,
    old: Any = None,
    new: Any = None,
    room: Room | None = None,
) -> bool:
    """Returns True if the event may help the pod that `rule` refused; fails the test if a hint raises."""
    recorded = QueueRecorder()
    change = Change(ClusterEvent(resource, action), old, new, room)
    answer = QueueingHints(INTERESTS, recorded.rule_failed).help_from(rule, pod, change)
    assert not recorded.failed
    return answer


def pod_change_helps(rule: str, pod: PodBuilder, old: PodBuilder | None, new: PodBuilder | None) -> bool:
    """Returns `helped` for a placed pod that is added or deleted, or whose labels change."""
    action = Action.ADD if old is None else Action.DELETE if new is None else Action.UPDATE_POD_LABEL
    return helped(
        rule, info(pod), Resource.ASSIGNED_POD, action, info(old) if old else None, info(new) if new else None
    )


def node_change_helps(
    rule: str,
    pod: PodBuilder,
    old: NodeBuilder | None,
    new: NodeBuilder | None,
    update: Action = Action.UPDATE_NODE_LABEL,
) -> bool:
    """Returns `helped` for a node that is added, deleted or updated."""
    action = Action.ADD if old is None else Action.DELETE if new is None else update
    return helped(rule, info(pod), Resource.NODE, action, node(old) if old else None, node(new) if new else None)


def waiting_for(rule: str, pod: PodInfo, recorded: QueueRecorder) -> PriorityQueue:
    """Returns a queue in which only this pod waits, because `rule` refused it."""
    queue = PriorityQueue(recorded, ManualClock(), INTERESTS)
    queue.add(pod)
    popped = queue.pop(0)
    assert isinstance(popped, QueuedPod)
    queue.add_unschedulable(popped, refused(rule))
    return queue


def read(kind: type[T], obj: dict[str, Any]) -> T:
    """Converts the object to a struct of the model."""
    return msgspec.convert(obj, kind)


def claim(name: str, namespace: str = "default") -> PersistentVolumeClaim:
    """Returns an unbound claim."""
    return read(PersistentVolumeClaim, make_pvc(name, namespace=namespace))

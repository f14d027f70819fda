"""Compares a verdict with what the pod's own scheduler wrote into the condition PodScheduled."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from extender.model.controllers import POD_SCHEDULED, FieldManager, ManagedMeta, RestartedContainer, TimedCondition
from extender.model.meta import Condition
from extender.model.pod import Pod
from extender.offline.answers import Documented

_STARTING = frozenset(("", "ContainerCreating", "PodInitializing"))
_NO_IMAGE = frozenset(
    (
        "ErrImagePull",
        "ImagePullBackOff",
        "ErrImageNeverPull",
        "InvalidImageName",
        "ImageInspectError",
        "RegistryUnavailable",
    )
)
_NO_VERDICT = frozenset(("SchedulingGated", ""))
_NEVER = datetime.min.replace(tzinfo=UTC)
# "0/3 nodes are available: 2 Insufficient cpu." -> "Insufficient cpu"
_HEAD, _COUNT = re.compile(r"\d+/\d+ nodes are available: "), re.compile(r"\d+ ")


class SchedulerCondition(Documented, frozen=True):
    """The condition PodScheduled of a pod, if it contradicts the verdict.

    Attributes:
        author: the client that wrote the condition, as metadata.managedFields says; else the pod's schedulerName.
        since: when the author wrote it (ISO 8601). Without managedFields, as in the output of kubectl, when the
            condition became False. None if the pod's object does not say, as in a running process.
        reason: Unschedulable or SchedulerError.
        message: what the scheduler says, in its own words.
    """

    author: str
    since: str | None
    reason: str
    message: str

    def __str__(self) -> str:
        return f"{self.author} says {self.message!r}"


@dataclass(frozen=True, slots=True)
class WrittenEvent:
    """An event about a pod, as `kubectl describe pod` shows it; `at` is when it was last seen."""

    at: datetime | None
    type: str
    reason: str
    author: str
    message: str


def blocked_containers(pod: Pod) -> Iterator[str]:
    """Yields what keeps each container of a bound pod from starting, as kubelet says; no scheduler can help then."""
    images = {each.name: each.image for each in (*pod.init_containers, *pod.containers)}
    for each in (*(pod.status.init_container_statuses or ()), *(pod.status.container_statuses or ())):
        waiting = each.state.waiting if isinstance(each, RestartedContainer) and each.state else None
        if waiting is None or waiting.reason in _STARTING:
            continue
        if waiting.reason in _NO_IMAGE:
            yield f"container {each.name} cannot pull its image {images.get(each.name, '')} ({waiting.reason})"
        else:
            yield f"container {each.name} waits ({waiting.reason})"


def pod_scheduled(pod: Pod) -> Condition | None:
    """Returns the condition PodScheduled; None if no scheduler has written it."""
    return next((each for each in pod.status.conditions or () if each.type == "PodScheduled"), None)


def written(pod: Pod, scheduler: str) -> SchedulerCondition | None:
    """Returns the condition in which a scheduler refuses the pod; None if none has written one.

    Args:
        scheduler: the author, if the pod's object does not say who wrote the condition.
    """
    condition = pod_scheduled(pod)
    if pod.node_name or condition is None or condition.status != "False" or condition.reason in _NO_VERDICT:
        return None
    since = condition.last_transition_time if isinstance(condition, TimedCondition) else None
    if (writer := _writer(pod)) is not None:
        scheduler, since = writer.manager or scheduler, writer.time or since
    return SchedulerCondition(scheduler, since.isoformat() if since else None, condition.reason, condition.message)


def _writer(pod: Pod) -> FieldManager | None:
    """Returns the manager that last wrote the condition PodScheduled; None if the pod's object does not say.

    A repeated refusal changes the message, and not the condition's own time.
    """
    managers = pod.metadata.managed_fields or () if isinstance(pod.metadata, ManagedMeta) else ()
    writers = [each for each in managers if POD_SCHEDULED in (each.fields_v1.status.conditions or ())]
    return max(writers, key=lambda each: each.time or _NEVER, default=None)


def contradicting(condition: SchedulerCondition | None, message: str, *, fits: bool) -> SchedulerCondition | None:
    """Returns the condition if the scheduler refuses the pod for other reasons than `message`, or though it fits.

    Different numbers of nodes do not contradict, because the cluster has changed since the condition was written.
    """
    if condition is None or (not fits and _reasons(condition.message) == _reasons(message)):
        return None
    return condition


def _reasons(message: str) -> frozenset[str]:
    nodes, _, _ = message.partition(" preemption: ")
    texts = _HEAD.sub("", nodes.strip()).rstrip(".").split(", ")
    return frozenset(_COUNT.sub("", text, count=1) if _COUNT.match(text) else text for text in texts)

"""Writes remarks for the user if an answer may differ from the decision of a pod's own scheduler.

It also compares a verdict with what that scheduler wrote into the condition PodScheduled.

No scheduler sees a pod that names its node in the manifest, but the node's kubelet may reject it. Source: upstream
pkg/kubelet/lifecycle/predicate.go generalFilter.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from msgspec.structs import replace

from extender.engine import Engine
from extender.framework.profile import Profiles
from extender.model.controllers import POD_SCHEDULED, FieldManager, ManagedMeta, RestartedContainer, TimedCondition
from extender.model.devices import ResourceSlice
from extender.model.meta import Condition
from extender.model.pod import Pod
from extender.offline.answers import Documented
from extender.offline.state import ClusterState
from extender.plugins.registry import default_profile
from extender.plugins.users.predicate import CustomPredicate
from extender.runtime.text import counted

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


def remarks_on(state: ClusterState, pods: Sequence[Pod]) -> list[str]:
    """Returns remarks on how an answer may differ from the decision of the pods' own scheduler.

    Offline commands judge a pod with an unknown schedulerName by the first profile of the policy. They call no
    extenders, and they do not run Reserve.
    """
    schedulers = Counter(name for pod in pods if (name := other_scheduler(pod, state)))
    first = state.profiles.names[0]
    judged = [
        f"{counted(count, 'pod')} with schedulerName {name}: judged here by the rules of {first}"
        for name, count in sorted(schedulers.items())
    ]
    return [*judged, *differences(state, pods)]


def differences(state: ClusterState, pods: Sequence[Pod]) -> Iterator[str]:
    """Yields remarks on what a scheduler with this policy would do otherwise for these pods, or could not do."""
    yield from _unasked_extenders(state, pods)
    yield from unasked_plugins(state, pods)
    yield from _failing_reserve(state, pods)
    yield from _invalid_policies(state, pods)


def other_scheduler(pod: Pod, state: ClusterState) -> str | None:
    """Returns the pod's schedulerName if none of the profiles has it, else None."""
    name = pod.spec.scheduler_name
    return name if name and name not in state.profiles.names else None


def _unasked_extenders(state: ClusterState, pods: Sequence[Pod]) -> Iterator[str]:
    """Yields a remark on each extender that is not called here, although a scheduler would call it for these pods."""
    for extender in state.profiles.extenders:
        if any(map(extender.is_interested, pods)):
            yield f"the extender {extender.url_prefix} is not asked here: it may refuse or prefer nodes"


def unasked_plugins(state: ClusterState, pods: Iterable[Pod]) -> Iterator[str]:
    """Yields a remark on each profile of these pods that runs no in-tree filter, as a policy for a webhook does."""
    profiles = {profile.name: profile for profile in map(state.profiles.of, pods)}
    for name, profile in profiles.items():
        if all(isinstance(predicate, CustomPredicate) for predicate in profile.predicates):
            own = "only the policy's own rules were asked" if profile.predicates else "no filter was asked"
            yield f"profile {name} runs no in-tree filter: {own}, and room, taints and affinity were not checked"


def _invalid_policies(state: ClusterState, pods: Iterable[Pod]) -> Iterator[str]:
    """Yields a remark on each device that no claim of these pods can get, because of its capacity's faulty policy."""
    if not any(pod.spec.resource_claims for pod in pods):
        return
    for resource_slice in state.table.objects.all(ResourceSlice).values():
        for device in resource_slice.spec.devices or ():
            for name, offered in (device.capacity or {}).items():
                if (step := offered.invalid_step) is not None:
                    where = f"ResourceSlice {resource_slice.name}: device {device.name}: capacity {name}"
                    yield f"{where} has no valid policy, so no claim gets the device: validRange.step is {step}"


def _failing_reserve(state: ClusterState, pods: Iterable[Pod]) -> Iterator[str]:
    """Yields a remark if a pod has device claims, and the policy disables DynamicResources at filter only.

    Filter chooses the devices, so a scheduler with this policy would fail at Reserve. The policy is not an error,
    because a webhook may leave devices to kube-scheduler.
    """
    profiles = [state.profiles.of(pod) for pod in pods if pod.spec.resource_claims]
    for plugin in sorted({plugin for profile in profiles for plugin in profile.failing_at_reserve}):
        fault = f"the policy disables {plugin} at filter but not at reserve"
        yield f"{fault}: a scheduler with this policy fails at Reserve for a pod with a claim to allocate"


_EXAMINED = ("NodeResourcesFit", "NodePorts", "NodeAffinity", "TaintToleration")
_NO_EXECUTE = "NoExecute"


def names_its_node(pod: Pod, state: ClusterState) -> bool:
    """Returns True if the manifest sets spec.nodeName, and the cluster does not already have the pod on a node."""
    return bool(pod.node_name) and state.node_of(pod) is None


def kubelet_objection(pod: Pod, state: ClusterState) -> str | None:
    """Returns why the pod would not run on the node that it names; None if the pod would run there."""
    name = pod.node_name
    if not state.has_node(name):
        return f"there is no node {name} in this cluster"
    # Kubelets do not read the scheduling policy, so the default profile is used.
    engine = Engine(state.table, Profiles([default_profile()]))
    node = state.node(name)
    taints = [taint for taint in node.taints if taint.effect == _NO_EXECUTE]
    with engine.suppose(objects=[replace(node, spec=replace(node.spec, taints=taints or None))]):
        refusals = [engine.filter_by(plugin, pod, [name]).get(name) for plugin in _EXAMINED]
    reasons = [reason for refusal in refusals if refusal for reason in refusal.reasons]
    return f"the kubelet of {name} would reject it: {', '.join(reasons)}" if reasons else None


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

"""Says which pods a controller counts as replicas, which it deletes first, and which it recreates.

Sources: upstream pkg/controller/controller_utils.go (IsPodActive, ActivePodsWithRanks, ActivePods),
pkg/controller/replicaset/replica_set.go getPodsToDelete, pkg/controller/job/job_controller.go (activePodsForRemoval,
isPodFailed, manageJob, syncJob), pkg/controller/job/pod_failure_policy.go and indexed_job_utils.go,
pkg/controller/statefulset, pkg/controller/daemon.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from functools import cmp_to_key

from msgspec.structs import replace

from extender.model import controllers
from extender.model.controllers import Job, RestartedContainer, TimedCondition
from extender.model.meta import Condition, Object
from extender.model.node import LOST_NODE_TAINTS, Node
from extender.model.pod import ContainerStatus, Pod
from extender.offline.state import ClusterState
from extender.table import PodInfo

_MIRROR = "kubernetes.io/config.mirror"
_DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
_PHASES = {"Pending": 0, "Unknown": 1, "Running": 2}
_STATEFUL_SET, _DAEMON_SET, _JOB = "StatefulSet", "DaemonSet", "Job"
_OWNERS = frozenset(("ReplicaSet", "ReplicationController", _STATEFUL_SET, _DAEMON_SET, _JOB))
_DEFAULT_BACKOFF_LIMIT = 6
_INDEX_FAILURES = "batch.kubernetes.io/job-index-failure-count"
_COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
_INDEXES = re.compile(r"(\d+)(?:-(\d+))?", re.ASCII)  # one index, or the first and the last one
_DISRUPTED = "DisruptionTarget"  # the condition of a pod that is evicted, preempted, or on a node that is gone
_FAILURE_TARGET = "FailureTarget"
_JOB_ENDS = frozenset(("Complete", "Failed", "SuccessCriteriaMet", _FAILURE_TARGET))
_COST = re.compile(r"-\d+|[1-9]\d*|0", re.ASCII)  # a number as upstream's GetDeletionCostFromPodAnnotations reads it
_INT32 = range(-(2**31), 2**31)
_NANOS_PER_SECOND = 10**9


def is_daemon(pod: Pod) -> bool:
    """Returns True if a DaemonSet controls the pod."""
    return pod.controller is not None and pod.controller.kind == _DAEMON_SET


def is_pinned(pod: Pod) -> bool:
    """Returns True if the pod cannot move to another node, because it is a DaemonSet's pod or a static pod.

    The API server shows a static pod as a mirror pod, which has an annotation (upstream kubectl drain mirrorPodFilter).
    """
    return is_daemon(pod) or _MIRROR in pod.annotations


def is_ready(pod: Pod) -> bool:
    """Returns True if the pod is ready, or is on a node and has no conditions, as in a hand-written file."""
    if not pod.node_name or pod.status.phase == "Pending":
        return False
    ready = next((each.status for each in pod.status.conditions or () if each.type == "Ready"), None)
    return ready == "True" or not pod.status.conditions


def is_node_lost(node: Node) -> bool:
    """Returns True if no kubelet answers for the node, so its pods neither start nor end."""
    is_unknown = any(each.type == "Ready" and each.status == "Unknown" for each in node.status.conditions or ())
    return is_unknown or any(taint.key == LOST_NODE_TAINTS[1] for taint in node.taints)


def counts_terminating(pod: Pod, state: ClusterState) -> bool:
    """Returns True if the pod's controller replaces a terminating pod only when the pod is gone.

    StatefulSets and DaemonSets do, and so do Jobs with `podReplacementPolicy: Failed`. Other controllers do not count
    terminating pods, so the replacement exists already.
    """
    owner = pod.controller
    if owner is None or _is_owner_deleted(pod, state):
        return False
    if owner.kind != _JOB:
        return owner.kind in (_STATEFUL_SET, _DAEMON_SET)
    job = _job_of(pod, state)
    if job is None:
        return False
    default = "Failed" if job.spec.pod_failure_policy is not None else ""
    return (job.spec.pod_replacement_policy or default) == "Failed" and creates_pods(job)


def was_disrupted(pod: Pod) -> bool:
    """Returns True if the pod was evicted or preempted, so that a rule of a podFailurePolicy may be about it."""
    return any(each.type == _DISRUPTED and each.status == "True" for each in pod.status.conditions or ())


def recreates(pod: Pod, state: ClusterState, *, is_disrupted: bool = True) -> bool:
    """Returns True if a controller will create a new pod because this pod is deleted now, or has ended.

    A Job does so until its backoffLimit is reached; `state` gets the Job with one more failure, unless its
    podFailurePolicy says otherwise.

    Args:
        is_disrupted: False if the pod ends because a user or a controller deleted it.
    """
    if pod.terminating and not counts_terminating(pod, state):
        return False
    owner = pod.controller
    if owner is None or owner.kind == Node.__name__:  # kubelet recreates a static pod, but only on its node
        return False
    job = _job_of(pod, state)
    if job is None or job.terminating:
        return not _is_owner_deleted(pod, state)
    action = _action_on_eviction(job) if is_disrupted else "Count"
    if action == "Ignore":
        return creates_pods(job)
    conditions = [*(job.status.conditions or ())]
    if action == "FailJob":
        conditions.append(Condition(type=_FAILURE_TARGET, status="True"))
    limit = job.spec.backoff_limit_per_index
    ends_index = limit is not None and (action == "FailIndex" or _index_failures(pod) >= limit)
    indexes = job.status.failed_indexes
    if ends_index:
        indexes = f"{indexes or ''},{pod.annotations.get(_COMPLETION_INDEX, '')}"
    failures = (job.status.failed or 0) + 1
    status = replace(job.status, failed=failures, failed_indexes=indexes, conditions=conditions or None)
    failed = replace(job, status=status)
    state.add(failed)
    return creates_pods(failed) and not ends_index


def is_of_running_job(pod: Pod, state: ClusterState) -> bool:
    """Returns True if the pod's Job goes on; when a Job has failed, its controller deletes all of its pods."""
    job = _job_of(pod, state)
    return job is not None and creates_pods(job)


def creates_pods(job: Job) -> bool:
    """Returns True unless the Job is suspended, being deleted or at its end.

    A Job without a number of completions creates no pods any more once one has succeeded.
    """
    has_ended = any(each.type in _JOB_ENDS and each.status == "True" for each in job.status.conditions or ())
    has_ended |= job.spec.completions is None and bool(job.status.succeeded)
    default = _DEFAULT_BACKOFF_LIMIT if job.spec.backoff_limit_per_index is None else math.inf
    limit = default if job.spec.backoff_limit is None else job.spec.backoff_limit
    most_indexes = math.inf if job.spec.max_failed_indexes is None else job.spec.max_failed_indexes
    has_failed = (job.status.failed or 0) > limit or failed_indexes(job) > most_indexes
    return not (has_ended or has_failed or job.spec.suspend or job.terminating)


def failed_indexes(job: Job) -> int:
    """Returns how many indexes of the Job get no pods any more (upstream orderedIntervals.total)."""
    found = map(_INDEXES.fullmatch, (job.status.failed_indexes or "").split(","))
    return sum(int(each[2] or each[1]) - int(each[1]) + 1 for each in found if each)


def _job_of(pod: Pod, state: ClusterState) -> Job | None:
    owner = _owner_of(pod, state)
    return owner if isinstance(owner, Job) else None


def _owner_of(pod: Pod, state: ClusterState) -> Object | None:
    """Returns the object that controls the pod; None if the cluster lacks it."""
    owner = pod.controller
    if owner is None or owner.kind not in _OWNERS:
        return None
    return state.objects.get(getattr(controllers, owner.kind), f"{pod.namespace}/{owner.name}")


def _is_owner_deleted(pod: Pod, state: ClusterState) -> bool:
    """Returns True if the pod's controller is being deleted, as with `kubectl delete --cascade=foreground`."""
    owner = _owner_of(pod, state)
    return owner is not None and owner.terminating


def _action_on_eviction(job: Job) -> str:
    """Returns what the Job's podFailurePolicy does about an evicted pod; "Count" without a rule about it.

    The exit codes of an evicted pod's containers are not known, so rules about them are left out.
    """
    policy = job.spec.pod_failure_policy
    for rule in (policy.rules if policy is not None else None) or ():
        if any(each.type == _DISRUPTED and (each.status or "True") == "True" for each in rule.on_pod_conditions or ()):
            return rule.action
    return "Count"


def _index_failures(pod: Pod) -> int:
    text = pod.annotations.get(_INDEX_FAILURES, "")
    return int(text) if text.isdecimal() else 0


def deletion_order(infos: Iterable[PodInfo], related: Iterable[PodInfo], now: datetime) -> list[PodInfo]:
    """Returns active pods of one workload in the order in which its controller deletes surplus pods.

    Args:
        related: the active pods of the Deployment, or whatever else controls the ReplicaSet. A pod is deleted earlier
            if more of these pods are on its node. Jobs compare neither this number nor the pods' deletion costs.
        now: the time of the deletion.
    """
    colocated = Counter(info.pod.node_name for info in related)

    def compare(one: PodInfo, other: PodInfo) -> int:
        if (by_state := _difference(_state(one.pod, colocated), _state(other.pod, colocated))) != 0:
            return by_state
        if is_ready(one.pod) and (by_ready_time := _by_time(one.pod, other.pod, _ready_since, now)) != 0:
            return by_ready_time
        by_restarts = _difference(_restarts(other.pod), _restarts(one.pod))
        return by_restarts or _by_time(one.pod, other.pod, lambda pod: pod.metadata.creation_timestamp, now)

    return sorted(infos, key=cmp_to_key(compare))


def _difference(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    return (one > other) - (one < other)


def _state(pod: Pod, colocated: Counter[str]) -> tuple[int, ...]:
    """Returns a sort key: first unassigned, pending, unready and cheap pods, then pods beside most other replicas."""
    phase = pod.status.phase or ("Running" if pod.node_name else "Pending")
    state = bool(pod.node_name), _PHASES.get(phase, 0), is_ready(pod)
    return state if _is_of_job(pod) else (*state, _deletion_cost(pod), -colocated[pod.node_name])


def _is_of_job(pod: Pod) -> bool:
    return pod.controller is not None and pod.controller.kind == _JOB


def _deletion_cost(pod: Pod) -> int:
    text = pod.annotations.get(_DELETION_COST, "")
    cost = int(text) if _COST.fullmatch(text) else 0
    return cost if cost in _INT32 else 0


def _by_time(one: Pod, other: Pod, time_of: Callable[[Pod], datetime | None], now: datetime) -> int:
    """Compares two pods: one without a time comes first, and then the younger one.

    For a ReplicaSet, two ages that round down to the same power of two are equal, and the UIDs decide.
    """
    times = time_of(one), time_of(other)
    if times[0] == times[1]:
        return 0
    if times[0] is None or times[1] is None:
        return -1 if times[0] is None else 1
    if _is_of_job(one):
        return -1 if times[0] > times[1] else 1
    ages = _magnitude(now - times[0]), _magnitude(now - times[1])
    return ages[0] - ages[1] or (-1 if one.uid < other.uid else 1)


def _magnitude(age: timedelta) -> int:
    """Returns the logarithm of the age in nanoseconds, rounded down; -1 for an age that is not positive."""
    nanos = round(age.total_seconds() * _NANOS_PER_SECOND)
    return int(math.log2(nanos)) if nanos > 0 else -1


def _ready_since(pod: Pod) -> datetime | None:
    ready = (each for each in pod.status.conditions or () if each.type == "Ready" and isinstance(each, TimedCondition))
    return next((each.last_transition_time for each in ready), None)


def _restarts(pod: Pod) -> tuple[int, int]:
    """Returns the most restarts of one container, and of one sidecar."""
    sidecars = {each.name for each in pod.init_containers if each.restart_policy == "Always"}
    of_sidecars = (each for each in pod.status.init_container_statuses or () if each.name in sidecars)
    return _most_restarts(pod.status.container_statuses or ()), _most_restarts(of_sidecars)


def _most_restarts(statuses: Iterable[ContainerStatus]) -> int:
    return max((each.restart_count for each in statuses if isinstance(each, RestartedContainer)), default=0)

"""Applies PodDisruptionBudgets as the eviction API does, and updates them as the disruption controller does.

Preemption has another rule, see preemption/candidates: there, a budget with an empty selector covers no pod, nor does
any budget cover a pod without labels, and a pod that is not ready counts like any other.

Sources: upstream pkg/registry/core/pod/storage/eviction.go, pkg/controller/disruption.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from extender.model.pod import Pod
from extender.model.selectors import compile_selector
from extender.model.workloads import PodDisruptionBudget, PodDisruptionBudgetStatus
from extender.offline.replicas import is_ready
from extender.offline.state import ClusterState
from extender.offline.workloads import scale_of

NOT_ALLOWED = "a PodDisruptionBudget does not allow its eviction"
_WITHOUT_SCALE = ("Job", "DaemonSet", "Node")
SEVERAL = "more than one PodDisruptionBudget covers it, which the eviction API does not support"


def objection(pod: Pod, state: ClusterState) -> str | None:
    """Returns why the eviction API would refuse to evict the pod now; None if it would allow the eviction."""
    budgets = covering(pod, state)
    if not budgets or pod.terminating or pod.status.phase == "Pending":
        return None
    if len(budgets) > 1:
        return SEVERAL
    spec, status = budgets[0].spec, budgets[0].status
    if not is_ready(pod):
        is_enough = status.current_healthy >= status.desired_healthy > 0
        if is_enough or spec.unhealthy_pod_eviction_policy == "AlwaysAllow":
            return None
    return None if status.disruptions_allowed > 0 else NOT_ALLOWED


def covering(pod: Pod, state: ClusterState) -> list[PodDisruptionBudget]:
    """Returns the budgets that protect the pod from eviction. An empty selector covers every pod of the namespace."""
    in_namespace = (each for each in state.objects.all(PodDisruptionBudget).values() if each.namespace == pod.namespace)
    return [each for each in in_namespace if compile_selector(each.spec.selector).matches(pod.labels)]


def count_healthy(pod: Pod, change: int, state: ClusterState) -> None:
    """Adds `change` to the number of healthy pods in each budget that covers the pod."""
    for budget in covering(pod, state):
        status = budget.status
        healthy = max(status.current_healthy + change, 0)
        if status.observed_generation and not status.expected_pods:
            allowed = 0  # upstream updatePdbStatus
        elif status.desired_healthy or status.observed_generation:
            allowed = healthy - status.desired_healthy
        else:  # a budget written by hand may have only the number of allowed disruptions
            allowed = status.disruptions_allowed + change
        state.add(replace(budget, status=replace(status, current_healthy=healthy, disruptions_allowed=max(allowed, 0))))


def observe(state: ClusterState, *, every: bool) -> None:
    """Sets the status of budgets as the disruption controller would, if it has not seen their last change.

    Args:
        every: True to do so for all budgets, because workloads were scaled, created or deleted.
    """
    for budget in list(state.objects.all(PodDisruptionBudget).values()):
        spec, status = budget.spec, budget.status
        is_stale = status == PodDisruptionBudgetStatus() or status.observed_generation < budget.metadata.generation
        if (every or is_stale) and (spec.min_available is not None or spec.max_unavailable is not None):
            state.add(replace(budget, status=_status(budget, state)))


def _status(budget: PodDisruptionBudget, state: ClusterState) -> PodDisruptionBudgetStatus:
    selector = compile_selector(budget.spec.selector)
    covered = [
        info.pod
        for info in state.infos.values()
        if info.pod.namespace == budget.namespace and selector.matches(info.pod.labels)
    ]
    expected, desired = _expected(budget, covered, state)
    generation = max(budget.metadata.generation, 1)
    if expected is None:  # upstream failSafe
        return replace(budget.status, disruptions_allowed=0, expected_pods=0, observed_generation=generation)
    disrupted = budget.status.disrupted_pods or {}
    healthy = sum(is_ready(pod) and not pod.terminating and pod.name not in disrupted for pod in covered)
    return replace(
        budget.status,
        current_healthy=healthy,
        desired_healthy=desired,
        expected_pods=expected,
        disruptions_allowed=max(healthy - desired, 0) if expected else 0,
        observed_generation=generation,
    )


def _expected(budget: PodDisruptionBudget, covered: Sequence[Pod], state: ClusterState) -> tuple[int | None, int]:
    """Returns how many pods there should be, and how many of them must be healthy (upstream getExpectedPodCount).

    The first number is None if a pod's controller has no number of replicas, such as a Job.
    """
    spec = budget.spec
    if spec.max_unavailable is None and isinstance(spec.min_available, int):
        return len(covered), spec.min_available
    scales: dict[str, int] = {}
    for pod in covered:
        owner = pod.controller
        if owner is None or owner.uid in scales:
            continue
        if owner.kind in _WITHOUT_SCALE:
            return None, 0
        uid, scale = scale_of(pod, state)
        siblings = sum(other.controller == owner and not other.terminating for other in covered)
        scales[uid] = siblings if scale is None else scale
    expected = sum(scales.values())
    if spec.max_unavailable is not None:
        return expected, max(expected - _amount(spec.max_unavailable, expected), 0)
    return expected, _amount(spec.min_available or 0, expected)


def _amount(number: int | str, whole: int) -> int:
    """Returns a number of pods, or a percentage such as `50%` of `whole`, rounded up."""
    return number if isinstance(number, int) else -(-int(number.removesuffix("%") or 0) * whole // 100)

"""Says which pods a plan may evict, and why the others stay on their nodes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from extender.errors import ConfigurationError
from extender.model.node import Node
from extender.model.pod import Pod
from extender.model.pod_groups import CompositePodGroup, PodGroup, SchedulingGroup
from extender.model.selectors import Selector, parse_selector
from extender.model.storage import PersistentVolume, PersistentVolumeClaim
from extender.offline.replicas import is_pinned
from extender.offline.state import ClusterState
from extender.offline.what_if import budgets
from extender.table import PodInfo

AUTOSCALER_ANNOTATION = "cluster-autoscaler.kubernetes.io/safe-to-evict"
KARPENTER_ANNOTATION = "karpenter.sh/do-not-disrupt"
_MOST_GROUPS_ABOVE = 10  # ends the search also if groups name each other as parents
_HOSTNAME = "kubernetes.io/hostname"
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class KeepRules:
    """The user's rules about which pods may be evicted.

    Attributes:
        namespaces: the pods of these namespaces stay.
        selectors: pods whose labels match one of these selectors stay.
        most_priority: pods of a higher priority stay; None means that no priority protects a pod.
        bare_pods: True if pods without a controller may be evicted. Whoever carries out the plan recreates them.
    """

    namespaces: frozenset[str] = frozenset()
    selectors: Sequence[Selector] = ()
    most_priority: int | None = None
    bare_pods: bool = False

    def keeps(self, pod: Pod) -> bool:
        """Returns True if the pod is in one of the namespaces, or has the labels of one of the selectors."""
        return pod.namespace in self.namespaces or any(each.matches(pod.labels) for each in self.selectors)


def rules_of(keep: Iterable[str], most_priority: int | None, *, bare_pods: bool) -> KeepRules:
    """Returns the rules; each of `keep` is a namespace such as `kube-system`, or a label selector such as `app=web`.

    Raises:
        ConfigurationError: a selector cannot be parsed.
    """
    namespaces, selectors = set(), []
    for each in keep:
        if _NAMESPACE.fullmatch(each):
            namespaces.add(each)
            continue
        try:
            selectors.append(parse_selector(each))
        except ValueError as error:
            raise ConfigurationError([f"keep: expected a namespace or a label selector: {error}"]) from None
    return KeepRules(frozenset(namespaces), selectors, most_priority, bare_pods)


def keeping_nothing(keep: Iterable[str], state: ClusterState) -> list[str]:
    """Returns those of `keep`, as `rules_of` takes them, that keep no pod of the cluster; they may be misspelt."""
    rules = {each: rules_of([each], None, bare_pods=False) for each in keep}
    return [each for each, rule in rules.items() if not any(rule.keeps(info.pod) for info in state.infos.values())]


def obstacle(info: PodInfo, state: ClusterState, rules: KeepRules) -> str | None:
    """Returns why no plan may evict the pod; None if a plan may evict it.

    The answer does not depend on the moment: a budget that allows no eviction now may allow one later.
    """
    pod = info.pod
    if is_pinned(pod) or (pod.controller is not None and pod.controller.kind == Node.__name__):
        return "belongs to a DaemonSet, or is static"
    if pod.terminating:
        return "is being deleted"
    if pod.controller is None and not rules.bare_pods:
        return "has no controller that would recreate it"
    if (annotation := _protecting_annotation(pod)) is not None:
        return f"has the annotation {annotation}"
    if _has_local_volume(info, state):
        return "uses a volume that only its node has"
    if _is_disrupted_whole(pod, state):
        return "belongs to a group that is disrupted only as a whole"
    if len(budgets.covering(pod, state)) > 1:
        return "is covered by more than one PodDisruptionBudget"
    if rules.keeps(pod):
        return "is to be kept"
    if rules.most_priority is not None and pod.priority > rules.most_priority:
        return f"has a priority above {rules.most_priority}"
    return None


def _protecting_annotation(pod: Pod) -> str | None:
    if pod.annotations.get(AUTOSCALER_ANNOTATION) == "false":
        return f"{AUTOSCALER_ANNOTATION}=false"
    if pod.annotations.get(KARPENTER_ANNOTATION) == "true":
        return f"{KARPENTER_ANNOTATION}=true"
    return None


def _is_disrupted_whole(pod: Pod, state: ClusterState) -> bool:
    """Returns True if a group of the pod, its PodGroup or one above, is disrupted only as a whole."""
    group: SchedulingGroup | None = state.objects.get(PodGroup, pod.group_key) if pod.group_key else None
    for _ in range(_MOST_GROUPS_ABOVE):
        if group is None or group.is_disrupted_whole:
            return group is not None
        group = state.objects.get(CompositePodGroup, group.parent_key) if group.parent_key else None
    return False


def _has_local_volume(info: PodInfo, state: ClusterState) -> bool:
    """Returns True if a claim of the pod is bound to a volume that names its node by hostname, as local volumes do."""
    for use in info.claims:
        claim = state.objects.get(PersistentVolumeClaim, use.key)
        volume = state.objects.get(PersistentVolume, claim.spec.volume_name) if claim is not None else None
        affinity = volume.spec.node_affinity if volume is not None else None
        terms = affinity.required.node_selector_terms or () if affinity is not None and affinity.required else ()
        if any(each.key == _HOSTNAME for term in terms for each in term.match_expressions or ()):
            return True
    return False

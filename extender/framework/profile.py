"""Defines a profile: the rules that decide about a pod, and the limits of its preemption."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from extender.framework.annotations import AnnotationRule
from extender.framework.permit import BindRule, ReserveRule
from extender.framework.rules import PostFilter, Predicate, PreEnqueueRule, Priority, QueueSort
from extender.framework.status import Refusal
from extender.model.extender_config import ExtenderConfig
from extender.model.kinds import Kind
from extender.model.pod import Pod
from extender.table import PodInfo, Table
from extender.table.features import DEFAULT_FEATURES, FeatureGates, features_of


@dataclass(frozen=True, slots=True)
class CandidateLimits:
    """The number of candidate nodes at which preemption stops searching (DefaultPreemptionArgs).

    The number is the given percentage of the nodes or the absolute number, whichever is larger. The search continues
    until it has also found a candidate that violates no disruption budget.
    """

    min_nodes_percentage: int = 10
    min_nodes_absolute: int = 100

    def enough(self, nodes: int) -> int:
        return min(nodes, max(nodes * self.min_nodes_percentage // 100, self.min_nodes_absolute))


DEFAULT_LIMITS = CandidateLimits()
ALL_NODES = CandidateLimits(min_nodes_percentage=100)
RESERVING = frozenset(("DynamicResources", "VolumeBinding"))


@dataclass(frozen=True, slots=True)
class WeightedPriority:
    priority: Priority
    weight: int = 1


@dataclass(frozen=True, slots=True)
class Profile:
    """The predicates and priorities of one schedulerName, in their order.

    Attributes:
        filter_order: the names of the predicates in the order of filter; empty if filter has the order of preFilter
            (`predicates`). Upstream orders the two extension points separately.
        percentage_of_nodes_to_score: kube-scheduler's own search ends once it has found this percentage of nodes
            feasible; 0 means its default.
        preemption: the limits of preemption; None if preemption is off.
        device_preemption: True if pods may evict others for the devices of their claims.
        check_all_predicates: True if every predicate checks every node, so that all reasons are reported
            (alwaysCheckAllPredicates of a Policy).
        reserving: the plugins that reserve and bind volumes and devices for a pod (reserve and preBind).
        pre_enqueue: the rules that must admit a pod before it is tried.
        queue_sort: the user's rule that sorts ready pods; None for PrioritySort.
        post_filter: users' PostFilter rules, which run before preemption for pods that fit on no node.
        permit: users' Reserve rules, followed by users' Permit rules.
        pre_bind, post_bind: users' rules that run before and after a pod is bound.
        bind: users' Bind rules, which choose annotations that a pod gets with its Binding.
        enforces_gangs: True if the profile has GangScheduling. Without it, groups have no minimum number of members.
        disabled_filters: the filters that the configuration disables, although they are enabled by default or still
            run at preFilter.
        percentage_of_placements_to_score: since 1.38, the search for a topology domain ends once this percentage of
            the domains can take the group; 0 means the default, which depends on the number of nodes.
        unsupported: a text for each step that the configuration disables and the scheduler loop does nevertheless.
        scheduler_names: the schedulerNames of all profiles of this scheduler; may be empty if there is only one.
    """

    name: str
    predicates: Sequence[Predicate]
    priorities: Sequence[WeightedPriority]
    filter_order: Sequence[str] = ()
    percentage_of_nodes_to_score: int = 0
    preemption: CandidateLimits | None = DEFAULT_LIMITS
    check_all_predicates: bool = False
    scheduler_names: frozenset[str] = frozenset()
    reserving: frozenset[str] = RESERVING
    pre_enqueue: Sequence[PreEnqueueRule] = ()
    queue_sort: QueueSort | None = None
    post_filter: Sequence[PostFilter] = ()
    permit: Sequence[ReserveRule] = ()
    pre_bind: Sequence[BindRule] = ()
    post_bind: Sequence[BindRule] = ()
    bind: Sequence[AnnotationRule] = ()
    unsupported: tuple[str, ...] = ()
    enforces_gangs: bool = True
    disabled_filters: tuple[str, ...] = ()
    percentage_of_placements_to_score: int = 0
    device_preemption: bool = False

    @property
    def rules(self) -> Sequence[object]:
        """The rules at every extension point."""
        sort = () if self.queue_sort is None else (self.queue_sort,)
        priorities = [weighted.priority for weighted in self.priorities]
        return (
            *self.pre_enqueue, *sort, *self.predicates, *self.post_filter, *priorities, *self.bind, *self.permit,
            *self.pre_bind, *self.post_bind,
        )  # fmt: skip

    @property
    def failing_at_reserve(self) -> frozenset[str]:
        """The plugins that fail at Reserve. Their filter, which chooses what to reserve, is disabled."""
        return self.reserving.intersection(self.disabled_filters)

    def awaits(self, pod: PodInfo, nominated: PodInfo) -> bool:
        """Returns True if `pod` may have to leave room for `nominated`. Does not compare the priorities."""
        return pod.uid != nominated.uid and self.shares_scheduler(pod, nominated.pod.spec.scheduler_name)

    def shares_scheduler(self, pod: PodInfo, scheduler_name: str) -> bool:
        """Returns True if the pod and pods with this schedulerName have the same scheduler.

        A scheduler reserves room only for its own nominated pods. It may have several profiles, each with its own
        schedulerName.
        """
        names = {pod.pod.spec.scheduler_name, scheduler_name}
        return len(names) == 1 or names <= self.scheduler_names


class Profiles:
    """The profiles by schedulerName. A pod whose schedulerName has no profile gets the first profile.

    An extender receives the pods of all profiles of its scheduler. Some of these profiles may not be in the policy.

    Attributes:
        features: the feature gates, which all profiles share.
        extenders: the extenders of the scheduler. The profiles do not call them.
        watch: the kinds that are watched only because users' rules read them.
    """

    def __init__(
        self,
        profiles: Sequence[Profile],
        features: FeatureGates = DEFAULT_FEATURES,
        extenders: Sequence[ExtenderConfig] = (),
        watch: Sequence[Kind] = (),
    ) -> None:
        self.features = features
        self.extenders = extenders
        self.watch = watch
        self.replace(profiles)

    def replace(self, profiles: Sequence[Profile]) -> None:
        """Replaces all profiles at once. A decision that has begun continues with its old profile."""
        self._by_name = {profile.name: profile for profile in profiles}

    @property
    def names(self) -> Sequence[str]:
        """The schedulerNames of the profiles, in the order of the configuration."""
        return tuple(self._by_name)

    @property
    def all(self) -> Sequence[Profile]:
        """The profiles, in the order of the configuration."""
        return tuple(self._by_name.values())

    def with_each(self, change: Callable[[Profile], Profile]) -> Profiles:
        """Returns a copy in which each profile is replaced by `change(profile)`."""
        return Profiles([change(profile) for profile in self.all], self.features, self.extenders, self.watch)

    def following(self, version: str) -> Profiles:
        """Returns a copy that follows this version of Kubernetes, unless a user has chosen another one."""
        if version == self.features.version or self.features.choices.version is not None:
            return self
        return Profiles(self.all, features_of(self.features.choices, version), self.extenders, self.watch)

    def of(self, pod: Pod) -> Profile:
        """Returns the profile for the pod's schedulerName, or the first profile."""
        by_name = self._by_name  # read only once, because another thread may replace it
        return by_name.get(pod.spec.scheduler_name) or next(iter(by_name.values()))


@dataclass(frozen=True, slots=True)
class PreEnqueueRules:
    """Runs the PreEnqueue rules of each pod's profile.

    Attributes:
        profile_of: returns the profile of a pod.
        table: the cluster, if an offline command runs the rules; otherwise None.
    """

    profile_of: Callable[[Pod], Profile]
    table: Table | None = None

    def refuse(self, pod: PodInfo, /) -> Refusal | None:
        for rule in self.profile_of(pod.pod).pre_enqueue:
            if (refusal := rule.refuse(pod, self.table)) is not None:
                return refusal
        return None

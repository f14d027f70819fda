"""A profile: the rules that a decision is made by, and how far preemption looks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from extender.framework.permit import ReserveRule
from extender.framework.rules import Predicate, Priority
from extender.model.pod import Pod
from extender.table import PodInfo
from extender.table.features import DEFAULT_FEATURES, FeatureGates


@dataclass(frozen=True, slots=True)
class CandidateLimits:
    """The number of candidates that is enough, of the nodes where preemption may help (DefaultPreemptionArgs).

    The search ends at the larger of both numbers, if one of the candidates violates no PodDisruptionBudget.
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
    """The predicates and priorities that a decision is made by, in their order.

    Attributes:
        filter_order: the predicates' names in the order in which they see nodes, where that is not the order in which
            they look at the pod (upstream has one order for preFilter and one for filter).
        percentage_of_nodes_to_score: how many feasible nodes the scheduler's own search looks for; 0: it decides.
        preemption: how far preemption looks; None: there is none.
        check_all_predicates: a node that one predicate has refused is shown to the others too, for all the reasons
            (alwaysCheckAllPredicates of a Policy).
        reserving: the plugins that reserve and bind what a pod needs besides its node (reserve and preBind).
        permit: users' rules of Reserve, then those of Permit, in their order.
        unsupported: what the configuration switches off and a scheduling loop does all the same, one text each.
        scheduler_names: the schedulerNames of all profiles of the same scheduler, where there are several.
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
    permit: Sequence[ReserveRule] = ()
    unsupported: tuple[str, ...] = ()

    def awaits(self, pod: PodInfo, nominated: PodInfo) -> bool:
        """Returns True if `pod` must leave room for another that is nominated, whatever its priority."""
        return pod.uid != nominated.uid and self.awaits_those_of(pod, nominated.pod.spec.scheduler_name)

    def awaits_those_of(self, pod: PodInfo, scheduler_name: str) -> bool:
        """Returns True if `pod` is the same scheduler's: it keeps room for its own nominated pods only."""
        names = {pod.pod.spec.scheduler_name, scheduler_name}
        return len(names) == 1 or names <= self.scheduler_names


class Profiles:
    """Profiles by schedulerName; a pod of another gets the first, for an extender serves all of a scheduler's."""

    def __init__(self, profiles: Sequence[Profile], features: FeatureGates = DEFAULT_FEATURES) -> None:
        self.features = features
        self.replace(profiles)

    def replace(self, profiles: Sequence[Profile]) -> None:
        """Puts these in the place of those before, all at once; a decision goes on by the profile that it has."""
        self._by_name_and_first = {profile.name: profile for profile in profiles}, profiles[0]

    @property
    def names(self) -> Sequence[str]:
        """The schedulerNames that there are profiles for, the first of the configuration first."""
        return tuple(self._by_name_and_first[0])

    @property
    def all(self) -> Sequence[Profile]:
        """The profiles, the first of the configuration first."""
        return tuple(self._by_name_and_first[0].values())

    def with_each(self, change: Callable[[Profile], Profile]) -> Profiles:
        """Returns the same profiles, each as `change` makes it."""
        return Profiles([change(profile) for profile in self.all], self.features)

    def of(self, pod: Pod) -> Profile:
        """Returns the profile of the pod's schedulerName."""
        by_name, first = self._by_name_and_first
        return by_name.get(pod.spec.scheduler_name, first)

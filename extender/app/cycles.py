"""The rules of `extender schedule`: a scheduling cycle for each schedulerName, and the other extenders that it asks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from random import Random

from extender.app.policies import held_by, refuse_changes
from extender.cache.cache import Cache
from extender.cluster.http.http_extender import HttpExtender
from extender.errors import ConfigurationError
from extender.framework.profile import Profile, Profiles
from extender.model.extenders import ExtenderConfig
from extender.model.node import Node
from extender.model.pod import Pod
from extender.plugins.registry import interests_of
from extender.plugins.users import put_in_force
from extender.policy.extenders import ignoring
from extender.policy.policy import Policy
from extender.queue.priority_queue import PriorityQueue
from extender.runtime.clock import NO_LIMIT, TimeLimit
from extender.scheduler.extenders import Extender, Extenders, in_turn
from extender.scheduler.scheduling_cycle import AttemptObserver, SchedulingCycle
from extender.scheduler.timing import ProfileTimer
from extender.table.features import FeatureGates


class LoopRules:
    """The rules that the loop decides by.

    Attributes:
        cycles: by schedulerName; a pod is decided on by the one that it meets, from beginning to end.
        profiles: theirs.
    """

    def __init__(
        self, policy: Policy, features: FeatureGates, make_cycles: Callable[[Policy], Mapping[str, SchedulingCycle]]
    ) -> None:
        self._policy, self._make_cycles = policy, make_cycles
        self.cycles = dict(make_cycles(policy))
        self.profiles = Profiles(_profiles_of(self.cycles), features)

    def adopt(self, policy: Policy, queue: PriorityQueue) -> None:
        """Decides by this policy from the next pod on, and has all refused pods tried again.

        Raises:
            ConfigurationError: it needs a restart, or `cycles_of` refuses it.
        """
        cycles = self._make_cycles(policy)
        refuse_changes(_fixed(self._policy, self.cycles), _fixed(policy, cycles))
        before = self.profiles.all
        self.cycles.update(cycles)
        self.profiles.replace(_profiles_of(cycles))
        self._policy = policy
        put_in_force(self.profiles.all, queue.wake, before)
        queue.rules_changed(interests_of(self.profiles.all))


def cycles_of(
    policy: Policy,
    scheduler_name: str | None,
    random: Random,
    extenders: Extenders,
    observers: Sequence[AttemptObserver] = (),
    timer: ProfileTimer | None = None,
    limit: TimeLimit = NO_LIMIT,
) -> Mapping[str, SchedulingCycle]:
    """Returns the scheduling cycles by schedulerName.

    Args:
        scheduler_name: given to the only profile, or choosing one of several; None: the profiles' own names.
        limit: of decisions that users' rules are asked for.

    Raises:
        ConfigurationError: there is no such profile, or one switches off what the loop does all the same.
    """
    left_to_extenders = frozenset().union(*(each.ignored_resources for each in policy.extenders))
    profiles = [ignoring(each, left_to_extenders) for each in _chosen(policy, scheduler_name)]
    if unsupported := [text for each in profiles for text in each.unsupported]:
        raise ConfigurationError(unsupported)
    return {each.name: SchedulingCycle(each, random, extenders, timer, limit, observers) for each in profiles}


def _chosen(policy: Policy, scheduler_name: str | None) -> list[Profile]:
    if scheduler_name is None:
        return list(policy.profiles)
    if len(policy.profiles) == 1:
        return [replace(policy.profiles[0], name=scheduler_name)]
    named = [profile for profile in policy.profiles if profile.name == scheduler_name]
    if not named:
        names = ", ".join(profile.name for profile in policy.profiles)
        raise ConfigurationError([f"--scheduler-name {scheduler_name}: the policy has profiles for {names}"])
    return named


def _profiles_of(cycles: Mapping[str, SchedulingCycle]) -> list[Profile]:
    return [cycle.profile for cycle in cycles.values()]


def _fixed(policy: Policy, cycles: Mapping[str, SchedulingCycle]) -> Mapping[str, object]:
    """Returns what the queue, the cache and the connections of a loop were made for, by its path in a policy."""
    return {
        "profiles: schedulerName": sorted(cycles),
        "extenders": policy.extenders,
        "featureGates": policy.features,
        "podInitialBackoffSeconds": policy.pod_initial_backoff_seconds,
        "podMaxBackoffSeconds": policy.pod_max_backoff_seconds,
        **held_by(policy.profiles),
    }


def extenders_of(configs: Sequence[ExtenderConfig]) -> Extenders:
    """Returns the extenders, each over HTTP. Raises ConfigurationError where certificates cannot be read."""
    extenders = [Extender(config, HttpExtender(config)) for config in configs]
    asked = sum(bool(config.prioritize_verb) for config in configs)
    side_by_side = ThreadPoolExecutor(asked, "prioritize").map if asked > 1 else in_turn
    return Extenders(extenders, side_by_side)


def sent_whole(configs: Iterable[ExtenderConfig]) -> frozenset[str]:
    """Returns the kinds of objects that the extenders are sent whole, and not by name."""
    by_name = [config.node_cache_capable for config in configs]
    kinds = [Pod, Node] if not all(by_name) else [Pod] if by_name else []
    return frozenset(kind.__name__ for kind in kinds)


def assumed_pod_of(cache: Cache) -> Callable[[str], Pod | None]:
    """Returns what finds an assumed pod by its UID."""

    def pod_of(uid: str) -> Pod | None:
        placement = cache.placement(uid)
        return placement.info.pod if placement else None

    return pod_of

"""A KubeSchedulerConfiguration made profiles. Source: upstream apis/config/v1, framework/runtime NewFramework."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from pydantic import BaseModel

from extender.framework.permit import ReserveRule
from extender.framework.plugin import PERMIT, RESERVE, Plugin
from extender.framework.profile import RESERVING, CandidateLimits, Profile, WeightedPriority
from extender.framework.rules import Predicate
from extender.plugins.default_preemption import DefaultPreemptionArgs
from extender.plugins.registry import DEFAULT_SCHEDULER
from extender.policy.configuration.schema import (
    ALL,
    ConfigurationSpec,
    Enabled,
    PluginSet,
    PluginSetSpec,
    PreFilterOnly,
    ProfileSpec,
    running,
    weights,
)
from extender.policy.extenders import read_extenders
from extender.policy.faults import Faults
from extender.policy.library import Library
from extender.policy.policy import Policy, with_gates

MULTI_POINT, PREEMPTION = "multiPoint", "DefaultPreemption"
POINTS_OF_THE_LOOP = frozenset(("queueSort", "preEnqueue", "postFilter", "reserve", "preBind", "bind"))
# A scheduling loop sorts its queue, keeps gated pods out of it and binds, whatever a profile says.
ALWAYS_RUNNING = frozenset(("DefaultBinder", "PrioritySort", "SchedulingGates"))
# What once was a plugin: a configuration that disables it is right still.
REMOVED = frozenset(
    (
        "AzureDiskLimits",
        "CinderLimits",
        "EBSLimits",
        "GCEPDLimits",
        "NodeLabel",
        "NodePreferAvoidPods",
        "NodeResourceLimits",
        "NodeResourcesLeastAllocated",
        "NodeResourcesMostAllocated",
        "RequestedToCapacityRatio",
        "SelectorSpread",
        "ServiceAffinity",
    )
)


def read_configuration(document: object, library: Library, faults: Faults) -> Policy | None:
    """Returns the configuration's profiles; what is wrong with it is noted."""
    spec = faults.read(ConfigurationSpec, document)
    if spec is None:
        return None
    if spec.pod_max_backoff_seconds < spec.pod_initial_backoff_seconds:
        faults.add("podMaxBackoffSeconds", "want at least podInitialBackoffSeconds")
    profiles = spec.profiles or (ProfileSpec(),)
    names = _scheduler_names(profiles, faults)
    made = [
        _ProfileReader(profile, f"profiles[{index}]", library, faults).read(name, spec.percentage_of_nodes_to_score)
        for index, (profile, name) in enumerate(zip(profiles, names, strict=True))
    ]
    extenders = read_extenders(spec.extenders, faults)
    if len(made) > 1:
        made = [replace(profile, scheduler_names=frozenset(names)) for profile in made]
    features = with_gates(spec.feature_gates, faults, "featureGates")
    return Policy(tuple(made), spec.pod_initial_backoff_seconds, spec.pod_max_backoff_seconds, extenders, features)


def _scheduler_names(profiles: Iterable[ProfileSpec], faults: Faults) -> list[str]:
    names = [profile.scheduler_name for profile in profiles]
    if names == [""]:
        return [DEFAULT_SCHEDULER]
    for index, name in enumerate(names):
        if not name:
            faults.add(f"profiles[{index}].schedulerName", "required where there are several profiles")
        elif name in names[:index]:
            faults.add(f"profiles[{index}].schedulerName", f"{name} has a profile already")
    return names


class _ProfileReader:
    def __init__(self, spec: ProfileSpec, path: str, library: Library, faults: Faults) -> None:
        self._spec, self._path, self._library, self._faults = spec, path, library, faults
        self._plugins: dict[str, Plugin[BaseModel]] = {}
        self._sets = {point: self._checked(point, given) for point, given in spec.plugins.by_point()}
        default = [plugin for plugin in library.registry.values() if plugin.default]
        self._plugins |= {plugin.name: plugin for plugin in default}
        by_default = PluginSet(tuple(Enabled(plugin.name, plugin.weight) for plugin in default))
        self._multi_point = self._sets[MULTI_POINT].over(by_default)
        self._arguments = dict(self._configured())

    def read(self, name: str, percentage: int) -> Profile:
        self._refuse_unprepared()
        own_percentage = self._spec.percentage_of_nodes_to_score
        predicates, filter_order = self._predicates()
        return Profile(
            name,
            predicates,
            list(self._priorities()),
            filter_order,
            percentage if own_percentage is None else own_percentage,
            self._preemption(),
            reserving=RESERVING.intersection(self._running(RESERVE)),
            permit=(*self._reserve_rules(RESERVE), *self._reserve_rules(PERMIT)),
            unsupported=tuple(self._unsupported()),
        )

    # ---- what the profile says

    def _checked(self, point: str, given: PluginSetSpec) -> PluginSet:
        """Returns the set without what is wrong in it."""
        path = f"{self._path}.plugins.{point}"
        right: list[Enabled] = []
        for index, plugin in enumerate(given.enabled):
            place = f"{path}.enabled[{index}].name"
            if any(plugin.name == other.name for other in right):
                self._faults.add(place, f"{plugin.name} is enabled twice")
            elif self._may_be_enabled(plugin.name, point, place):
                right.append(Enabled(plugin.name, plugin.weight))
        for index, plugin in enumerate(given.disabled):
            if plugin.name != ALL and plugin.name not in REMOVED:
                self._library.find(plugin.name, f"{path}.disabled[{index}].name", self._faults)
        return PluginSet(tuple(right), given.as_set().disabled)

    def _may_be_enabled(self, name: str, point: str, place: str) -> bool:
        if name in REMOVED:
            self._faults.add(place, f"{name} is no plugin any more, though kind: Policy has its rules")
            return False
        plugin = self._library.find(name, place, self._faults)
        if plugin is None:
            return False
        if point != MULTI_POINT and not plugin.extends(point):
            self._faults.add(place, f"{name} has no extension point {point}")
            return False
        self._plugins[name] = plugin
        return True

    def _configured(self) -> Iterator[tuple[str, BaseModel]]:
        """Yields the arguments that the profile gives, by plugin."""
        seen: set[str] = set()
        for index, config in enumerate(self._spec.plugin_config):
            path = f"{self._path}.pluginConfig[{index}]"
            plugin = self._plugins.get(config.name) or self._library.find(config.name, f"{path}.name", self._faults)
            if config.name in seen:
                self._faults.add(f"{path}.name", f"{config.name} is configured twice")
            elif plugin is not None:
                arguments = self._faults.read(plugin.arguments, config.args, f"{path}.args")
                if arguments is not None:
                    yield plugin.name, arguments
            seen.add(config.name)

    # ---- what comes of it

    def _running(self, point: str) -> list[str]:
        return running(self._sets[point], self._multi_point, lambda name: self._plugins[name].extends(point))

    def _predicates(self) -> tuple[list[Predicate], tuple[str, ...]]:
        """Returns the predicates in the order in which they are prepared, and the order in which they see nodes."""
        looking, seeing = self._running("preFilter"), self._running("filter")
        names = looking + [name for name in seeing if name not in looking]
        made = {name: predicate for name in names if (predicate := self._predicate(name))}
        predicates = [each if name in seeing else PreFilterOnly(each) for name, each in made.items()]
        filter_order = sorted(made, key=lambda name: seeing.index(name) if name in seeing else -1)
        return predicates, () if filter_order == list(made) else tuple(filter_order)

    def _predicate(self, name: str) -> Predicate | None:
        plugin, arguments = self._plugins[name], self._arguments_of(name)
        return plugin.predicate(arguments) if plugin.predicate and arguments is not None else None

    def _priorities(self) -> Iterator[WeightedPriority]:
        by_name = weights(self._sets["score"].enabled, self._multi_point.enabled)
        filtering = self._running("filter")
        for name in self._running("score"):
            plugin, arguments = self._plugins[name], self._arguments_of(name)
            idle = plugin.scores_filtered and name not in filtering
            if plugin.priority and arguments is not None and not idle:
                yield WeightedPriority(plugin.priority(arguments), by_name[name])

    def _reserve_rules(self, point: str) -> Iterator[ReserveRule]:
        for name in self._running(point):
            plugin, arguments = self._plugins[name], self._arguments_of(name)
            if plugin.reserve and arguments is not None:
                yield plugin.reserve(arguments)

    def _refuse_unprepared(self) -> None:
        """Notes the plugins that upstream would let fail on every pod, for want of an earlier extension point."""
        for name, plugin in sorted(self._plugins.items()):
            for point, before in plugin.needs:
                if name in self._running(point) and name not in self._running(before):
                    where = f"{self._path}.plugins.{point}"
                    self._faults.add(where, f"{name} needs its {before} too, which is off; enable it by {MULTI_POINT}")

    def _unsupported(self) -> Iterator[str]:
        """Yields what is switched off at one extension point only, or not at all by a scheduling loop."""
        for name, plugin in self._plugins.items():
            points = sorted(plugin.points & POINTS_OF_THE_LOOP)
            running = [point for point in points if name in self._running(point)]
            if plugin.default and (running or name in ALWAYS_RUNNING):
                for point in points:
                    # DefaultPreemption's postFilter alone means that there is no preemption.
                    if point not in running and (name, point) != (PREEMPTION, "postFilter"):
                        yield f"{self._path}.plugins: {name} cannot be switched off at {point}" + (
                            " alone; disable it by multiPoint" if running else ""
                        )

    def _preemption(self) -> CandidateLimits | None:
        enabled = PREEMPTION in self._running("postFilter")
        arguments = self._arguments_of(PREEMPTION) if enabled else None
        return arguments.limits if isinstance(arguments, DefaultPreemptionArgs) else None

    def _arguments_of(self, name: str) -> BaseModel | None:
        if name not in self._arguments:
            configured = any(config.name == name for config in self._spec.plugin_config)
            # What was wrong with the arguments given is told already.
            path = f"{self._path}.pluginConfig: {name}: args"
            arguments = None if configured else self._faults.read(self._plugins[name].arguments, {}, path)
            if arguments is None:
                return None
            self._arguments[name] = arguments
        return self._arguments[name]

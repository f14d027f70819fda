"""Reads a KubeSchedulerConfiguration as profiles: its fields, and the plugins that run at each extension point.

A profile enables and disables plugins at a single point, or at all points by multiPoint; `running` combines the two.
Fields that the version of kube-scheduler to follow does not have are refused. Start with `read_configuration`.

Source: k8s.io/kube-scheduler/config/v1, upstream apis/config/v1/default_plugins.go mergePluginSet, framework/runtime
NewFramework, expandMultiPointPlugins and getValidScoreWeights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, Field

from extender.framework.plugin import (
    BIND,
    FILTER,
    PERMIT,
    POST_BIND,
    POST_FILTER,
    PRE_BIND,
    PRE_ENQUEUE,
    QUEUE_SORT,
    RESERVE,
    SCORE,
    Arguments,
    Plugin,
)
from extender.framework.policy_fields import NonNegative, Percentage, Positive, Strict, duration, duration_seconds
from extender.framework.profile import RESERVING, CandidateLimits, Profile, WeightedPriority
from extender.framework.rules import NO_REFUSAL, Check, Predicate, QueueSort, RowCheck
from extender.framework.status import Refusal
from extender.model.kinds import ADMISSION_KINDS, KINDS, Kind, custom_kind
from extender.plugins.device_scoring import NAME as DEVICE_SCORING
from extender.plugins.device_scoring import POLICY_NAMES, DeviceScoring, DeviceScoringArgs
from extender.plugins.dynamic_resources import DynamicResourcesFilter
from extender.plugins.gang_scheduling import NAME as GANG_SCHEDULING
from extender.plugins.node_resources_fit import NAME as FIT
from extender.plugins.registry import DEFAULT_PREEMPTION, DEFAULT_SCHEDULER, DefaultPreemptionArgs
from extender.plugins.users.priority import DEVICE_POLICY
from extender.policy.extenders import ExtenderSpec, read_extenders
from extender.policy.faults import Faults
from extender.policy.library import Library
from extender.policy.policy import Policy, with_gates
from extender.runtime.text import with_suggestion
from extender.table import PodInfo, Table
from extender.table.features import FeatureGates, VersionChoices, features_of

ALL = "*"


@dataclass(frozen=True, slots=True)
class PluginSet:
    """The plugins that a profile enables and disables at one extension point, or at all of them (multiPoint)."""

    enabled: tuple[PluginSpec, ...] = ()
    disabled: frozenset[str] = frozenset()

    def merged_into(self, default: PluginSet) -> PluginSet:
        """Returns the default set changed by this set.

        A plugin in both sets keeps its place in the default set, but gets the weight of this set.
        """
        disabled = self.disabled | default.disabled
        own = {plugin.name: plugin for plugin in self.enabled}
        defaults = [
            own.get(plugin.name, plugin)
            for plugin in default.enabled
            if ALL not in disabled and plugin.name not in disabled
        ]
        replaced = {plugin.name for plugin in defaults}
        added = (plugin for plugin in self.enabled if plugin.name not in replaced)
        return PluginSet((*defaults, *added), disabled)


def running(point: PluginSet, multi_point: PluginSet, extends: Callable[[str], bool]) -> list[str]:
    """Returns the plugins that run at an extension point, in order.

    Plugins that are enabled both at the point and at multiPoint come first, in the point's order. Then come those that
    are enabled only at multiPoint, then those enabled only at the point.

    Args:
        extends: returns True if the plugin of that name implements this extension point.
    """
    own = [plugin.name for plugin in point.enabled]
    if ALL in point.disabled:
        return own
    general = [
        plugin.name for plugin in multi_point.enabled if extends(plugin.name) and plugin.name not in point.disabled
    ]
    return [
        *(name for name in own if name in general),
        *(name for name in general if name not in own),
        *(name for name in own if name not in general),
    ]


def weights(score: Sequence[PluginSpec], multi_point: Sequence[PluginSpec]) -> dict[str, int]:
    """Returns the weight of each plugin's scores: set at score, or else at multiPoint, or else 1."""
    by_name: dict[str, int] = {}
    for plugin in (*score, *multi_point):
        by_name.setdefault(plugin.name, plugin.weight or 1)
    return by_name


@dataclass(frozen=True, slots=True)
class PreFilterOnly:
    """Runs only the pre-filter of `rule`, for a configuration that disables the rule only at filter."""

    rule: Predicate

    @property
    def name(self) -> str:
        return self.rule.name

    def prepare(self, pod: PodInfo, table: Table) -> Check | Refusal | None:
        check = self.rule.prepare(pod, table)
        if check is None or isinstance(check, Refusal) or check.only is None:
            return check if isinstance(check, Refusal) else None
        return RowCheck(lambda _: NO_REFUSAL, check.only)


Int32 = Annotated[int, Field(ge=-(2**31), lt=2**31)]
Positive64 = Annotated[int, Field(gt=0, lt=2**63)]
Duration = Annotated[str, AfterValidator(duration())]


class PluginSpec(Strict):
    name: str = ""
    """The name of the plugin; in `disabled`, * means all plugins."""
    weight: Int32 = 0
    """The weight of its score; 0 means the default weight."""


class PluginSetSpec(Strict):
    enabled: tuple[PluginSpec, ...] = ()
    """Plugins to run besides the default ones, in this order."""
    disabled: tuple[PluginSpec, ...] = ()
    """Default plugins that do not run."""


class PluginsSpec(Strict):
    """The plugins by extension point."""

    pre_enqueue: PluginSetSpec = PluginSetSpec()
    queue_sort: PluginSetSpec = PluginSetSpec()
    pre_filter: PluginSetSpec = PluginSetSpec()
    filter: PluginSetSpec = PluginSetSpec()
    post_filter: PluginSetSpec = PluginSetSpec()
    pre_score: PluginSetSpec = PluginSetSpec()
    score: PluginSetSpec = PluginSetSpec()
    reserve: PluginSetSpec = PluginSetSpec()
    permit: PluginSetSpec = PluginSetSpec()
    pre_bind: PluginSetSpec = PluginSetSpec()
    bind: PluginSetSpec = PluginSetSpec()
    post_bind: PluginSetSpec = PluginSetSpec()
    multi_point: PluginSetSpec = PluginSetSpec()
    placement_generate: PluginSetSpec = PluginSetSpec()
    placement_score: PluginSetSpec = PluginSetSpec()
    placement_feasible: PluginSetSpec | None = None
    pod_group_post_filter: PluginSetSpec = PluginSetSpec()

    def by_point(self) -> Iterator[tuple[str, PluginSetSpec]]:
        """Yields the name of each extension point, as in the configuration file, and the plugins set there."""
        for name, field in type(self).model_fields.items():
            if (plugins := getattr(self, name)) is not None:
                yield field.alias or name, plugins


class PluginConfigSpec(Strict):
    name: str = ""
    """The name of the plugin."""
    args: Any = None
    """Its arguments; see extender reference plugins."""


class ProfileSpec(Strict):
    scheduler_name: str | None = None
    """The schedulerName of this profile's pods; default for a single profile: default-scheduler."""
    percentage_of_nodes_to_score: Percentage | None = None
    """Accepted and ignored: every node is checked and scored."""
    percentage_of_placements_to_score: Percentage | None = None
    """Since Kubernetes 1.38: a pod group's topology domain is the best of this percentage; default: by the nodes."""
    plugins: PluginsSpec = PluginsSpec()
    """The plugins by extension point; multiPoint means all extension points of a plugin."""
    plugin_config: tuple[PluginConfigSpec, ...] = ()
    """The arguments of plugins."""


class WatchSpec(Strict):
    api_version: str = ""
    """The API group and version, such as example.com/v1."""
    kind: str = ""
    """The kind, such as RackPower."""
    resource: str = ""
    """The plural in the URL; default: the kind in lower case with an s."""


_LARGEST_FLOAT = 3.4028235677973366e38  # of 32 bits; Go refuses larger numbers


class ClientConnectionSpec(Strict):
    kubeconfig: str = ""
    """Accepted and ignored: use the settings instead."""
    accept_content_types: str = ""
    """Accepted and ignored."""
    content_type: str = ""
    """Accepted and ignored."""
    qps: Annotated[float, Field(ge=-_LARGEST_FLOAT, le=_LARGEST_FLOAT)] = 0
    """The most bindings a second; 0 or less: 5000."""
    burst: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """The most bindings at once after a pause; 0 or less: as many as qps."""


class LeaderElectionSpec(Strict):
    """kube-scheduler's own leader election. `extender` checks and ignores it: use the settings instead."""

    never_null: ClassVar[frozenset[str]] = frozenset(("leaseDuration", "renewDeadline", "retryPeriod"))

    leader_elect: bool = True
    """Checked and ignored."""
    lease_duration: Duration = "0"
    """Checked and ignored."""
    renew_deadline: Duration = "0"
    """Checked and ignored."""
    retry_period: Duration = "0"
    """Checked and ignored."""
    resource_lock: str = ""
    """Checked and ignored."""
    resource_name: str = ""
    """Checked and ignored."""
    resource_namespace: str = ""
    """Checked and ignored."""


class SchedulerConfigurationSpec(Strict):
    """The fields that kube-scheduler knows."""

    api_version: Literal["kubescheduler.config.k8s.io/v1"] = "kubescheduler.config.k8s.io/v1"
    """The API version; required."""
    kind: Literal["KubeSchedulerConfiguration"] = "KubeSchedulerConfiguration"
    """The kind of this document."""
    parallelism: Positive = 16
    """Accepted and ignored: rules check all nodes at once."""
    leader_election: LeaderElectionSpec = LeaderElectionSpec()
    """Checked and ignored: use the settings instead."""
    client_connection: ClientConnectionSpec = ClientConnectionSpec()
    """Limits for the calls of `extender schedule` to the API server."""
    enable_profiling: bool = True
    """Accepted and ignored."""
    enable_contention_profiling: bool = True
    """Accepted and ignored."""
    percentage_of_nodes_to_score: Percentage = 0
    """Accepted and ignored: every node is checked and scored."""
    percentage_of_placements_to_score: Percentage | None = None
    """Since Kubernetes 1.38: a pod group's topology domain is the best of this percentage; default: by the nodes."""
    pod_initial_backoff_seconds: Positive64 = 1
    """The backoff after the first failed attempt (extender schedule)."""
    pod_max_backoff_seconds: NonNegative = 10
    """The longest backoff after failed attempts (extender schedule)."""
    profiles: tuple[ProfileSpec, ...] = ()
    """The profiles, one for each schedulerName."""
    extenders: tuple[ExtenderSpec, ...] = ()
    """HTTP extenders that extender schedule calls."""
    delay_cache_until_active: bool = False
    """Accepted and ignored."""


class ConfigurationSpec(SchedulerConfigurationSpec):
    """The fields of a policy: those that kube-scheduler knows, and three of our own."""

    watch: tuple[WatchSpec, ...] = ()
    """Further kinds that the rules of this policy read; not a field of kube-scheduler's."""
    feature_gates: dict[str, bool] = {}  # noqa: RUF012  never written to: the model is frozen
    """Feature gates to match those of kube-scheduler, by name; --feature-gates takes precedence."""
    kubernetes_version: Literal["1.35", "1.36", "1.37", "1.38"] | None = None
    """The version of kube-scheduler to decide like; default: the cluster's. --kubernetes-version takes precedence."""


_WITHOUT_GATE = (
    "kube-scheduler refuses it without the feature gate TopologyAwareWorkloadScheduling; if its --feature-gates have"
    " the gate, put it into the policy's featureGates, too"
)


def refuse_other_versions(
    spec: SchedulerConfigurationSpec, features: FeatureGates, faults: Faults, *, is_for_stock: bool
) -> None:
    """Adds a fault for each field and extension point that kube-scheduler does not have with these features.

    Args:
        is_for_stock: True to refuse fields without their feature gate. A policy may have them, without effect.
    """
    is_known = features.behaviours.placement_fields
    is_refused = is_for_stock and not features.topology_aware_workload_scheduling
    if not is_known or is_refused:
        what = _WITHOUT_GATE if is_known else "unknown field before Kubernetes 1.38"
        parts: list[tuple[str, SchedulerConfigurationSpec | ProfileSpec]] = [("", spec)]
        parts += [(f"profiles[{index}].", profile) for index, profile in enumerate(spec.profiles)]
        for path, part in parts:
            if part.percentage_of_placements_to_score is not None:
                faults.add(f"{path}percentageOfPlacementsToScore", what)
    name, point, times = (GANG_SCHEDULING, PERMIT, "since") if is_known else (DEFAULT_PREEMPTION, RESERVE, "before")
    for index, profile in enumerate(spec.profiles):
        path, plugins = f"profiles[{index}].plugins", profile.plugins
        if plugins.placement_feasible is not None and not is_known:
            faults.add(f"{path}.placementFeasible", "unknown field before Kubernetes 1.38")
        for number, plugin in enumerate(getattr(plugins, point).enabled):
            if plugin.name == name:
                fault = f"{name} does not implement the extension point {point} {times} Kubernetes 1.38"
                faults.add(f"{path}.{point}.enabled[{number}].name", fault)


MULTI_POINT = "multiPoint"
POINTS_OF_THE_LOOP = frozenset((QUEUE_SORT, PRE_ENQUEUE, POST_FILTER, RESERVE, PRE_BIND, BIND))
# The loop always binds pods itself, so a profile cannot disable this plugin.
ALWAYS_RUNNING = frozenset(("DefaultBinder",))
_DEVICE_PREEMPTION = "devicePreemption"
PRIORITY_SORT = "PrioritySort"
# Plugins of earlier versions of kube-scheduler that it refuses even under pluginConfig (upstream
# invalidPluginsByVersion).
INVALID = frozenset(("AzureDiskLimits", "CinderLimits", "EBSLimits", "GCEPDLimits"))
# All plugins of earlier versions, which a configuration may still disable.
REMOVED = INVALID.union(
    (
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
    """Returns the profiles of a policy, and adds its faults to `faults`.

    A policy may have what kube-scheduler refuses: users' rules, `watch`, `featureGates` and `kubernetesVersion`, and
    profiles that neither sort the queue nor bind, because `extender serve` does neither. What kube-scheduler accepts is
    accepted, except a profile with which it would fail every pod.
    """
    _require_version(document, faults)
    spec = faults.read(ConfigurationSpec, document)
    if spec is None:
        return None
    base = features_of(VersionChoices(spec.kubernetes_version))
    # Without a version every field is accepted, because an option or the cluster chooses the version later.
    if spec.kubernetes_version is not None:
        refuse_other_versions(spec, base, faults, is_for_stock=False)
    policy = _read(spec, library, faults)
    features = with_gates(spec.feature_gates, faults, "featureGates", base)
    return replace(policy, features=features, watch=_watched(spec.watch, faults))


def read_scheduler_configuration(
    document: object, library: Library, faults: Faults, features: FeatureGates
) -> Policy | None:
    """Returns the profiles of kube-scheduler's own configuration; `faults` then has what it would refuse.

    `features` are those of kube-scheduler.

    Source: upstream ValidateKubeSchedulerConfiguration and what scheduler.New checks.
    """
    _require_version(document, faults)
    spec = faults.read(SchedulerConfigurationSpec, document)
    if spec is None:
        return None
    refuse_other_versions(spec, features, faults, is_for_stock=True)
    return _read(spec, library, faults, is_for_stock=True)


def _require_version(document: object, faults: Faults) -> None:
    if isinstance(document, Mapping) and not document.get("apiVersion"):
        faults.require("apiVersion")


def _read(
    spec: SchedulerConfigurationSpec,
    library: Library,
    faults: Faults,
    *,
    is_for_stock: bool = False,
) -> Policy:
    _check_leader_election(spec.leader_election, faults)
    if spec.pod_max_backoff_seconds < spec.pod_initial_backoff_seconds:
        faults.add("podMaxBackoffSeconds", "must not be less than podInitialBackoffSeconds")
    profiles = spec.profiles or (ProfileSpec(),)
    names = _scheduler_names(profiles, faults)
    readers = [
        _ProfileReader(profile, f"profiles[{index}]", library, faults, is_for_stock=is_for_stock)
        for index, profile in enumerate(profiles)
    ]
    read_profiles = [reader.read(name, spec) for reader, name in zip(readers, names, strict=True)]
    if is_for_stock:
        _check_common_queue_sort(profiles, faults)
    elif len({profile.queue_sort and profile.queue_sort.name for profile in read_profiles}) > 1:
        faults.add("profiles: plugins.queueSort", "all profiles share one queue, so they must name the same plugin")
    extenders = read_extenders(spec.extenders, faults)
    if any(extender.ignored_resources for extender in extenders):
        for reader in readers:
            reader.require_fit()
    if len(read_profiles) > 1:
        read_profiles = [replace(profile, scheduler_names=frozenset(names)) for profile in read_profiles]
    return Policy(
        tuple(read_profiles), spec.pod_initial_backoff_seconds, spec.pod_max_backoff_seconds, extenders,
        qps=max(0.0, spec.client_connection.qps), burst=spec.client_connection.burst, notes=tuple(faults.notes),
    )  # fmt: skip


def _check_leader_election(spec: LeaderElectionSpec, faults: Faults) -> None:
    """Source: upstream ValidateLeaderElectionConfiguration."""
    if not spec.leader_elect:
        return
    lease = duration_seconds(spec.lease_duration) or 15
    renew = duration_seconds(spec.renew_deadline) or 10
    retry = duration_seconds(spec.retry_period) or 2
    for field, seconds in (("leaseDuration", lease), ("renewDeadline", renew), ("retryPeriod", retry)):
        if seconds <= 0:
            faults.add(f"leaderElection.{field}", "must be greater than zero")
    if lease <= renew:
        faults.add("leaderElection.leaseDuration", f"must be greater than renewDeadline ({renew:g}s), got {lease:g}s")
    if spec.resource_lock not in ("", "leases"):
        faults.add("leaderElection.resourceLock", f"expected leases, got {spec.resource_lock!r}")


def _check_common_queue_sort(profiles: Sequence[ProfileSpec], faults: Faults) -> None:
    """Adds a fault for each profile whose queueSort differs from the first one's, even if its plugin is the same.

    Source: upstream validateCommonQueueSort.
    """
    first = _queue_sort_of(profiles[0])
    for index, profile in enumerate(profiles[1:], 1):
        if _queue_sort_of(profile) != first:
            faults.add(f"profiles[{index}].plugins.{QUEUE_SORT}", "must be the same as in profiles[0]")


def _queue_sort_of(profile: ProfileSpec) -> object:
    """Returns what must be equal in all profiles: the set at queueSort, and the arguments of its first plugin."""
    spec = profile.plugins.queue_sort
    enabled = [(plugin.name, plugin.weight) for plugin in spec.enabled]
    name = enabled[0][0] if enabled else PRIORITY_SORT
    args = next((config.args for config in profile.plugin_config if config.name == name), None)
    return enabled, [plugin.name for plugin in spec.disabled], args


def _watched(specs: Iterable[WatchSpec], faults: Faults) -> tuple[Kind, ...]:
    """Returns the kinds to watch for rules; adds a fault for each entry that cannot be watched."""
    kinds: dict[str, Kind] = {}
    for index, spec in enumerate(specs):
        path = f"watch[{index}]"
        if not spec.api_version:
            faults.require(f"{path}.apiVersion")
        if not spec.kind:
            faults.require(f"{path}.kind")
        elif not spec.kind.isidentifier():
            faults.add(f"{path}.kind", f"expected a kind such as RackPower, got {spec.kind!r}")
        elif spec.kind in KINDS:
            faults.add(f"{path}.kind", f"{spec.kind} is read anyway; remove the entry")
        elif spec.kind in ADMISSION_KINDS:
            faults.add(f"{path}.kind", f"rules cannot read {spec.kind}: only the offline commands read it")
        elif spec.kind in kinds:
            faults.add(f"{path}.kind", f"{spec.kind} is watched twice")
        else:
            plural = spec.resource or f"{spec.kind.lower()}s"
            kinds[spec.kind] = custom_kind(spec.api_version, spec.kind, plural)
    return tuple(kinds.values())


def _scheduler_names(profiles: Iterable[ProfileSpec], faults: Faults) -> list[str]:
    given = [profile.scheduler_name for profile in profiles]
    if given == [None]:
        return [DEFAULT_SCHEDULER]
    names = [name or "" for name in given]
    for index, name in enumerate(names):
        if not name:
            faults.add(
                f"profiles[{index}].schedulerName",
                "required" if len(names) == 1 else "required if there are several profiles",
            )
        elif name in names[:index]:
            faults.add(f"profiles[{index}].schedulerName", f"{name} already has a profile")
    return names


def _with_header(args: object) -> object:
    """Returns a plugin's arguments without an empty kind or apiVersion, for which Go takes the plugin's own."""
    if not isinstance(args, Mapping):
        return {} if args is None else args
    return {key: value for key, value in args.items() if key not in ("kind", "apiVersion") or value != ""}


class _ProfileReader:
    """Reads one profile: first which plugins run at which point, then their rules with their arguments."""

    def __init__(self, spec: ProfileSpec, path: str, library: Library, faults: Faults, *, is_for_stock: bool) -> None:
        self._spec = spec
        self._path = path
        self._is_for_stock = is_for_stock
        self._library = library
        self._faults = faults
        self._plugins: dict[str, Plugin[BaseModel]] = {}
        self._repeated: list[tuple[str, str, str]] = []  # (point, plugin, path) of each plugin that is enabled twice
        self._sets = {point: self._checked(point, given) for point, given in spec.plugins.by_point()}
        default = [plugin for plugin in library.registry.values() if plugin.default]
        self._plugins |= {plugin.name: plugin for plugin in default}
        by_default = PluginSet(tuple(PluginSpec(name=plugin.name, weight=plugin.weight) for plugin in default))
        self._multi_point = self._sets[MULTI_POINT].merged_into(by_default)
        self._arguments = dict(self._configured())

    def read(self, name: str, common: SchedulerConfigurationSpec) -> Profile:
        self._refuse_double()
        if self._is_for_stock:
            self._require_sort_and_bind()
        self._refuse_unprepared()
        of_nodes, of_placements = self._spec.percentage_of_nodes_to_score, self._spec.percentage_of_placements_to_score
        predicates, filter_order = self._predicates()
        return Profile(
            name,
            predicates,
            list(self._priorities()),
            filter_order,
            common.percentage_of_nodes_to_score if of_nodes is None else of_nodes,
            self._preemption(),
            reserving=self._reserving(),
            pre_enqueue=self._rules_at(PRE_ENQUEUE),
            queue_sort=self._queue_sort(),
            post_filter=self._rules_at(POST_FILTER),
            permit=self._rules_at(RESERVE) + self._rules_at(PERMIT),
            bind=self._rules_at(BIND),
            pre_bind=self._rules_at(PRE_BIND),
            post_bind=self._rules_at(POST_BIND),
            unsupported=tuple(self._unsupported()),
            enforces_gangs=self._enforces_gangs(),
            disabled_filters=self._disabled_filters(predicates),
            device_preemption=any(isinstance(each, DynamicResourcesFilter) and each.preempts for each in predicates),
            percentage_of_placements_to_score=(
                common.percentage_of_placements_to_score if of_placements is None else of_placements
            )
            or 0,
        )

    # ---- the plugins that a profile names

    def _checked(self, point: str, spec: PluginSetSpec) -> PluginSet:
        """Returns the plugins set at the point, except entries that have a fault; adds these faults."""
        path = f"{self._path}.plugins.{point}"
        enabled: list[PluginSpec] = []
        for index, plugin in enumerate(spec.enabled):
            place = f"{path}.enabled[{index}].name"
            if any(plugin.name == other.name for other in enabled):
                self._repeated.append((point, plugin.name, place))
            elif self._may_be_enabled(plugin.name, point, place):
                enabled.append(plugin)
        for index, plugin in enumerate(spec.disabled):
            if plugin.name != ALL and plugin.name not in REMOVED:
                self._note_unknown(plugin.name, f"{path}.disabled[{index}].name", "nothing is disabled")
        return PluginSet(tuple(enabled), frozenset(plugin.name for plugin in spec.disabled))

    def _note_unknown(self, name: str, place: str, consequence: str) -> None:
        """Adds a note if no plugin has this name; kube-scheduler accepts the entry too."""
        if name not in self._library.registry and not self._library.has_rule(name):
            text = f"{place}: no plugin {name!r} is known here, so {consequence}"
            self._faults.notes.append(with_suggestion(text, name, self._library.registry))

    def _refuse_double(self) -> None:
        """Adds a fault for each plugin that a point would run twice.

        A plugin may be twice under multiPoint, if every point that it implements names it or disables it.
        """
        for point, name, place in self._repeated:
            plugin = self._plugins.get(name)
            points = [each for each in self._sets if each != MULTI_POINT and plugin and plugin.extends(each)]
            if point != MULTI_POINT or any(self._takes_from_multi_point(each, name) for each in points):
                self._faults.add(place, f"{name} is enabled twice")

    def _takes_from_multi_point(self, point: str, name: str) -> bool:
        own = self._sets[point]
        return not {ALL, name} & own.disabled and all(plugin.name != name for plugin in own.enabled)

    def _require_sort_and_bind(self) -> None:
        """Adds faults if not exactly one plugin sorts the queue, or none binds."""
        if not self._running(QUEUE_SORT):
            self._refuse(QUEUE_SORT, f"expected one plugin, such as {PRIORITY_SORT}, got none")
        if not self._running(BIND):
            self._refuse(BIND, "expected a plugin, such as DefaultBinder, got none")

    def _refuse(self, point: str, what: str) -> None:
        self._faults.add(f"{self._path}.plugins.{point}", what)

    def require_fit(self) -> None:
        """Adds a fault if extenders manage resources alone, but the profile lacks the plugin that must ignore them."""
        enabled = {plugin.name for point in (*self._sets.values(), self._multi_point) for plugin in point.enabled}
        if FIT not in enabled and all(config.name != FIT for config in self._spec.plugin_config):
            what = f"extenders ignore resources (ignoredByScheduler), which needs {FIT} in every profile"
            self._faults.add(f"{self._path}.plugins", what)

    def _may_be_enabled(self, name: str, point: str, place: str) -> bool:
        if name in REMOVED:
            self._faults.add(place, f"{name} was removed from kube-scheduler; use it in a file with `kind: Policy`")
            return False
        plugin = self._library.find(name, place, self._faults)
        if plugin is None:
            return False
        if DEVICE_POLICY in plugin.others:
            self._faults.add(place, f"{name} is a device policy; name it in the policies of {DEVICE_SCORING}")
            return False
        if point != MULTI_POINT and not plugin.extends(point) and (name, point) != (DEFAULT_PREEMPTION, RESERVE):
            self._faults.add(place, f"{name} does not implement the extension point {point}")
            return False
        self._plugins[name] = plugin
        return True

    def _configured(self) -> Iterator[tuple[str, BaseModel]]:
        """Yields each plugin in the profile's pluginConfig with its arguments."""
        seen: set[str] = set()
        for index, config in enumerate(self._spec.plugin_config):
            path = f"{self._path}.pluginConfig[{index}]"
            plugin = self._plugins.get(config.name) or self._of_rule(config.name, path)
            if config.name in seen:
                self._faults.add(f"{path}.name", f"{config.name} is configured twice")
            elif config.name in INVALID:
                self._faults.add(f"{path}.name", f"{config.name} was removed from kube-scheduler")
            elif plugin is None:
                self._note_unknown(config.name, f"{path}.name", "its args have no effect")
            elif plugin.arguments is Arguments:
                if config.args:
                    self._faults.notes.append(f"{path}.args: {config.name} has no arguments, so they have no effect")
            else:
                if self._is_for_stock and isinstance(config.args, Mapping) and _DEVICE_PREEMPTION in config.args:
                    self._faults.add(f"{path}.args.{_DEVICE_PREEMPTION}", "kube-scheduler has no such field")
                arguments = self._faults.read(plugin.arguments, _with_header(config.args), f"{path}.args")
                if isinstance(arguments, DeviceScoringArgs):
                    self._find_device_policies(arguments, f"{path}.args.policies")
                if arguments is not None:
                    yield plugin.name, arguments
            seen.add(config.name)

    def _find_device_policies(self, arguments: DeviceScoringArgs, path: str) -> None:
        """Finds the users' policies that DeviceScoring is to call; adds a fault for each that is unknown."""
        for index, policy in enumerate(arguments.policies):
            if policy.name not in POLICY_NAMES:
                place = f"{path}[{index}].name"
                plugin = self._library.find_device_policy(policy.name, place, self._faults, POLICY_NAMES)
                if plugin is not None:
                    self._plugins[policy.name] = plugin

    def _of_rule(self, name: str, path: str) -> Plugin[BaseModel] | None:
        """Returns a plugin that the profile configures without enabling it; None if there is none of this name."""
        if name in self._library.registry or self._library.has_rule(name):
            return self._library.find(name, f"{path}.name", self._faults)
        return None

    # ---- the rules that a profile's plugins provide

    def _running(self, point: str) -> list[str]:
        return running(self._sets[point], self._multi_point, lambda name: self._plugins[name].extends(point))

    def _predicates(self) -> tuple[list[Predicate], tuple[str, ...]]:
        """Returns (predicates, names): the predicates in preFilter's order, and their names in filter's order.

        `names` is () if both orders are the same.
        """
        pre_filters = self._running("preFilter")
        filters = self._running(FILTER)
        names = pre_filters + [name for name in filters if name not in pre_filters]
        rules = {name: predicate for name in names if (predicate := self._predicate(name))}
        predicates = [rule if name in filters else PreFilterOnly(rule) for name, rule in rules.items()]
        filter_order = sorted(rules, key=lambda name: filters.index(name) if name in filters else -1)
        return predicates, () if filter_order == list(rules) else tuple(filter_order)

    def _disabled_filters(self, predicates: Iterable[Predicate]) -> tuple[str, ...]:
        by_default = [plugin.name for plugin in self._library.registry.values() if plugin.default and plugin.predicate]
        names = dict.fromkeys((*by_default, *(predicate.name for predicate in predicates)))
        filters = self._running(FILTER)
        return tuple(name for name in names if name not in filters)

    def _predicate(self, name: str) -> Predicate | None:
        plugin, arguments = self._plugins[name], self._arguments_of(name)
        return plugin.predicate(arguments) if plugin.predicate and arguments is not None else None

    def _priorities(self) -> Iterator[WeightedPriority]:
        by_name = weights(self._sets["score"].enabled, self._multi_point.enabled)
        self._check_total(by_name)
        filtering = self._running(FILTER)
        for name in self._running("score"):
            plugin, arguments = self._plugins[name], self._arguments_of(name)
            idle = plugin.scores_filtered and name not in filtering
            if plugin.priority and arguments is not None and not idle:
                priority = plugin.priority(arguments)
                if isinstance(priority, DeviceScoring):
                    of_users = [policy for policy, _ in priority.policies if policy in self._plugins]
                    priority = replace(priority, users_rules=self._rules(DEVICE_POLICY, of_users))
                yield WeightedPriority(priority, by_name[name])

    def _check_total(self, weights_by_name: Mapping[str, int]) -> None:
        """Refuses weights whose sum is negative before the last one.

        There the sum wraps around in kube-scheduler's check, which then does not start (upstream getValidScoreWeights).
        """
        total = 0
        for name, weight in weights_by_name.items():
            plugin = self._plugins.get(name)
            if plugin is None or not plugin.extends(SCORE):
                continue
            if total < 0:
                self._refuse(SCORE, f"expected weights whose sum is never negative, got {total} before {name}")
                return
            total += weight

    def _rules_at(self, point: str) -> tuple[Any, ...]:
        """Returns the rules that run at the extension point, in their order."""
        return self._rules(point, self._running(point))

    def _rules(self, place: str, names: Iterable[str]) -> tuple[Any, ...]:
        """Returns the rules that these plugins have for an extension point, or as device policies."""
        plugins = [self._plugins[name] for name in names]
        given = [(plugin, self._arguments_of(plugin.name)) for plugin in plugins if place in plugin.others]
        return tuple(plugin.others[place](arguments) for plugin, arguments in given if arguments is not None)

    def _queue_sort(self) -> QueueSort | None:
        """Returns the user's rule that sorts the queue, if any; adds a fault if several plugins sort it."""
        names = self._running(QUEUE_SORT)
        if len(names) > 1:
            self._refuse(QUEUE_SORT, f"only one plugin can sort the queue, got {', '.join(names)}; disable the others")
        rules: tuple[QueueSort, ...] = self._rules_at(QUEUE_SORT)
        return rules[0] if rules else None

    def _refuse_unprepared(self) -> None:
        """Adds a fault for each plugin that runs at a point, but is disabled at an earlier point that it depends on.

        With such a profile, kube-scheduler would fail every pod at that plugin. Points of the loop are left to
        `_unsupported`, because the webhook and the offline commands can do without them.
        """
        for point, what in self._unprepared():
            if self._is_for_stock:
                self._faults.notes.append(
                    f"{self._path}.plugins.{point}: {what}; kube-scheduler fails each pod that it concerns"
                )
            elif point not in POINTS_OF_THE_LOOP:
                self._refuse(point, what)

    def _unprepared(self) -> Iterator[tuple[str, str]]:
        """Yields (point, message) for each plugin that runs at a point, but not at an earlier point that it needs."""
        for name, plugin in sorted(self._plugins.items()):
            for point, before in plugin.needs:
                if name in self._running(point) and name not in self._running(before):
                    advice = f"enable or disable the plugin by {MULTI_POINT}"
                    yield point, f"{name} requires its {before}, which is disabled; {advice}"

    def _reserving(self) -> frozenset[str]:
        """Returns the plugins that reserve something for a pod, such as its volumes.

        A plugin reserves what its filter found. It is left out if its filter is disabled, unless it requires the
        filter: then `_unsupported` reports the profile.
        """
        filtering = self._running(FILTER)
        return frozenset(
            name
            for name in RESERVING.intersection(self._running(RESERVE))
            if name in filtering or (RESERVE, FILTER) in self._plugins[name].needs
        )

    def _unsupported(self) -> Iterator[str]:
        """Yields a message for each plugin that is disabled at a point where the loop needs it."""
        for point, what in self._unprepared():
            if point in POINTS_OF_THE_LOOP:
                yield f"{self._path}.plugins.{point}: {what}"
        for name, plugin in self._plugins.items():
            points = sorted(plugin.points & POINTS_OF_THE_LOOP)
            running = [point for point in points if name in self._running(point)]
            if name == PRIORITY_SORT and not self._running(QUEUE_SORT):
                yield f"{self._path}.plugins: {name} cannot be disabled at {QUEUE_SORT} without a rule that replaces it"
            elif plugin.default and (running or name in ALWAYS_RUNNING):
                for point in points:
                    # DefaultPreemption may be disabled at postFilter; then there is no preemption.
                    if point not in running and (name, point) != (DEFAULT_PREEMPTION, POST_FILTER):
                        yield f"{self._path}.plugins: {name} cannot be disabled at {point}" + (
                            " alone; disable it by multiPoint" if running else ""
                        )

    def _enforces_gangs(self) -> bool:
        """Returns True unless the profile disables GangScheduling; the plugin's feature gate enables it by default."""
        by_gate = PluginSet((PluginSpec(name=GANG_SCHEDULING),))
        return any(plugin.name == GANG_SCHEDULING for plugin in self._sets[MULTI_POINT].merged_into(by_gate).enabled)

    def _preemption(self) -> CandidateLimits | None:
        enabled = DEFAULT_PREEMPTION in self._running(POST_FILTER)
        arguments = self._arguments_of(DEFAULT_PREEMPTION) if enabled else None
        return arguments.limits if isinstance(arguments, DefaultPreemptionArgs) else None

    def _arguments_of(self, name: str) -> BaseModel | None:
        if name not in self._arguments:
            configured = any(config.name == name for config in self._spec.plugin_config)
            # If the profile configures the plugin, errors in its arguments are reported already.
            path = f"{self._path}.pluginConfig: {name}: args"
            arguments = None if configured else self._faults.read(self._plugins[name].arguments, {}, path)
            if arguments is None:
                return None
            self._arguments[name] = arguments
        return self._arguments[name]

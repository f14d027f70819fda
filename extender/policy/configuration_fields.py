"""Defines the fields of a KubeSchedulerConfiguration, and computes which plugins run at an extension point.

A profile enables and disables plugins at a single point, or at all points by multiPoint; `running` combines the two.
Plugin names are not checked here. Fields that the version of kube-scheduler to follow does not have are refused.

Source: k8s.io/kube-scheduler/config/v1, upstream apis/config/v1/default_plugins.go mergePluginSet, framework/runtime
expandMultiPointPlugins and getValidScoreWeights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import AfterValidator, Field

from extender.framework.plugin import PERMIT, RESERVE
from extender.framework.policy_fields import NonNegative, Percentage, Positive, Strict, duration, duration_seconds
from extender.framework.rules import NO_REFUSAL, Check, Predicate, RowCheck
from extender.framework.status import Refusal
from extender.plugins.gang_scheduling import NAME as GANG_SCHEDULING
from extender.plugins.registry import DEFAULT_PREEMPTION
from extender.policy.extenders import ExtenderSpec
from extender.policy.faults import Faults
from extender.table import PodInfo, Table
from extender.table.features import FeatureGates

ALL = "*"


class Enabled(NamedTuple):
    """A plugin, and the weight of its scores; 0 means the default weight."""

    name: str
    weight: int = 0


@dataclass(frozen=True, slots=True)
class PluginSet:
    """The plugins that a profile enables and disables at one extension point, or at all of them (multiPoint)."""

    enabled: tuple[Enabled, ...] = ()
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


def weights(score: Sequence[Enabled], multi_point: Sequence[Enabled]) -> dict[str, int]:
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

    def as_set(self) -> PluginSet:
        enabled = tuple(Enabled(plugin.name, plugin.weight) for plugin in self.enabled)
        return PluginSet(enabled, frozenset(plugin.name for plugin in self.disabled))


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

    def seconds(self) -> tuple[float, float, float]:
        """Returns (lease duration, renew deadline, retry period), with kube-scheduler's defaults for 0."""
        return (
            duration_seconds(self.lease_duration) or 15,
            duration_seconds(self.renew_deadline) or 10,
            duration_seconds(self.retry_period) or 2,
        )


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

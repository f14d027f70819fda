"""The form of a KubeSchedulerConfiguration, v1. Source: k8s.io/kube-scheduler/config/v1."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field

from extender.framework.schema import Ignored, NonNegative, Percentage, Positive, Strict
from extender.policy.configuration.plugin_sets import Enabled, PluginSet
from extender.policy.extenders import ExtenderSpec

Weight = Annotated[int, Field(ge=0, lt=2**31)]


class PluginSpec(Strict):
    name: str = ""
    """A plugin, or * for all of them in disabled."""
    weight: Weight = 0
    """The weight of its score; 0: the default one."""


class PluginSetSpec(Strict):
    enabled: tuple[PluginSpec, ...] = ()
    """Plugins beside the default ones, in this order."""
    disabled: tuple[PluginSpec, ...] = ()
    """Default plugins to be left out."""

    def as_set(self) -> PluginSet:
        enabled = tuple(Enabled(plugin.name, plugin.weight) for plugin in self.enabled)
        return PluginSet(enabled, frozenset(plugin.name for plugin in self.disabled))


class PluginsSpec(Strict):
    """By extension point."""

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
    pod_group_post_filter: PluginSetSpec = PluginSetSpec()

    def by_point(self) -> Iterator[tuple[str, PluginSetSpec]]:
        """The sets by the names that extension points have in the file."""
        for name, field in type(self).model_fields.items():
            yield field.alias or name, getattr(self, name)


class PluginConfigSpec(Strict):
    name: str = ""
    """The plugin that the arguments are for."""
    args: dict[str, Any] = {}  # noqa: RUF012  never written to: the model is frozen
    """Its arguments: see extender reference plugins."""


class ProfileSpec(Strict):
    scheduler_name: str = ""
    """The schedulerName of the pods that it is for; default-scheduler where it is the only one."""
    percentage_of_nodes_to_score: Percentage | None = None
    """Read, and of no effect, as the one for all profiles."""
    plugins: PluginsSpec = PluginsSpec()
    """By extension point; multiPoint stands for all of them."""
    plugin_config: tuple[PluginConfigSpec, ...] = ()
    """The arguments of plugins."""


class ConfigurationSpec(Strict):
    api_version: Literal["kubescheduler.config.k8s.io/v1"] = "kubescheduler.config.k8s.io/v1"
    """The version of this form."""
    kind: Literal["KubeSchedulerConfiguration"] = "KubeSchedulerConfiguration"
    """This form."""
    parallelism: Positive = 16
    """Read, and of no effect: rules look at all nodes at once."""
    leader_election: Ignored = Ignored()
    """For kube-scheduler; here it is a setting."""
    client_connection: Ignored = Ignored()
    """For kube-scheduler; here it is a setting."""
    enable_profiling: bool = True
    """For kube-scheduler."""
    enable_contention_profiling: bool = True
    """For kube-scheduler."""
    percentage_of_nodes_to_score: Percentage = 0
    """Read, and of no effect: every node is judged and scored."""
    pod_initial_backoff_seconds: Positive = 1
    """The wait after the first failure (extender schedule)."""
    pod_max_backoff_seconds: NonNegative = 10
    """The longest wait after a failure (extender schedule)."""
    profiles: tuple[ProfileSpec, ...] = ()
    """Sets of rules, one schedulerName each."""
    extenders: tuple[ExtenderSpec, ...] = ()
    """HTTP extenders that extender schedule asks."""
    feature_gates: dict[str, bool] = {}  # noqa: RUF012  never written to: the model is frozen
    """The feature gates of the kube-scheduler to match, by name; --feature-gates goes before."""
    delay_cache_until_active: bool = False
    """For kube-scheduler."""

"""The form of a KubeSchedulerConfiguration, v1. Source: k8s.io/kube-scheduler/config/v1."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field

from extender.engine.policy.plugin_sets import Enabled, PluginSet
from extender.engine.policy.schema import Ignored, NonNegative, Percentage, Positive, Strict

Weight = Annotated[int, Field(ge=0, lt=2**31)]


class PluginSpec(Strict):
    name: str = ""
    weight: Weight = 0


class PluginSetSpec(Strict):
    enabled: tuple[PluginSpec, ...] = ()
    disabled: tuple[PluginSpec, ...] = ()

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
    args: dict[str, Any] = {}  # noqa: RUF012  never written to: the model is frozen


class ProfileSpec(Strict):
    scheduler_name: str = ""
    percentage_of_nodes_to_score: Percentage | None = None
    plugins: PluginsSpec = PluginsSpec()
    plugin_config: tuple[PluginConfigSpec, ...] = ()


class ConfigurationSpec(Strict):
    api_version: Literal["kubescheduler.config.k8s.io/v1"] = "kubescheduler.config.k8s.io/v1"
    kind: Literal["KubeSchedulerConfiguration"] = "KubeSchedulerConfiguration"
    parallelism: Positive = 16
    leader_election: Ignored = Ignored()
    client_connection: Ignored = Ignored()
    enable_profiling: bool = True
    enable_contention_profiling: bool = True
    percentage_of_nodes_to_score: Percentage = 0
    pod_initial_backoff_seconds: Positive = 1
    pod_max_backoff_seconds: NonNegative = 10
    profiles: tuple[ProfileSpec, ...] = ()
    extenders: tuple[Ignored, ...] = ()
    delay_cache_until_active: bool = False

"""The form of a KubeSchedulerConfiguration, v1. Source: k8s.io/kube-scheduler/config/v1.

Which plugins run at an extension point is told by what is enabled and disabled there and by multiPoint. Source:
upstream apis/config/v1/default_plugins.go mergePluginSet, framework/runtime expandMultiPointPlugins and
getValidScoreWeights. Names are not looked up here; they are taken to be right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field

from extender.framework.rules import NO_REFUSAL, Check, Predicate, Verdict
from extender.framework.schema import Ignored, NonNegative, Percentage, Positive, Strict
from extender.framework.status import Refusal
from extender.policy.extenders import ExtenderSpec
from extender.table import PodInfo, Table
from extender.table.labels import Rows

ALL = "*"


class Enabled(NamedTuple):
    """A plugin, and the weight of its scores; 0: not said."""

    name: str
    weight: int = 0


@dataclass(frozen=True, slots=True)
class PluginSet:
    """The plugins that a profile enables and disables at one extension point, or at all of them (multiPoint)."""

    enabled: tuple[Enabled, ...] = ()
    disabled: frozenset[str] = frozenset()

    def over(self, default: PluginSet) -> PluginSet:
        """Returns this set on top of the default one: a default plugin stays in its place, with this set's weight."""
        disabled = self.disabled | default.disabled
        own = {plugin.name: plugin for plugin in self.enabled}
        kept = [
            own.get(plugin.name, plugin)
            for plugin in default.enabled
            if ALL not in disabled and plugin.name not in disabled
        ]
        replaced = {plugin.name for plugin in kept}
        return PluginSet((*kept, *(plugin for plugin in self.enabled if plugin.name not in replaced)), disabled)


def running(point: PluginSet, multi_point: PluginSet, extends: Callable[[str], bool]) -> list[str]:
    """Returns the plugins that run at an extension point, in order; `extends` tells if a plugin has this point.

    Those that both sets enable come first, in the point's own order, then those of multiPoint, then the rest.
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
    """Returns the weight of each plugin's scores: score's goes before multiPoint's; 1 where neither says."""
    found: dict[str, int] = {}
    for plugin in (*score, *multi_point):
        found.setdefault(plugin.name, plugin.weight or 1)
    return found


@dataclass(frozen=True, slots=True)
class PreFilterOnly:
    """The pre-filter of `rule`, for a configuration that disables it at the extension point filter alone."""

    rule: Predicate

    @property
    def name(self) -> str:
        return self.rule.name

    def prepare(self, pod: PodInfo, table: Table) -> Check | Refusal | None:
        made = self.rule.prepare(pod, table)
        if made is None or isinstance(made, Refusal):
            return made
        return None if made.only is None else _Named(made.only)


class _Named(Check):
    def __init__(self, only: frozenset[str]) -> None:
        self.only = only

    def refuse(self, rows: Rows) -> Verdict:  # noqa: ARG002  the form that every check has
        return NO_REFUSAL


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

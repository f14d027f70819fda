"""The plugins that run at an extension point, by what is enabled and disabled there and by multiPoint.

Source: upstream apis/config/v1/default_plugins.go mergePluginSet, framework/runtime expandMultiPointPlugins and
getValidScoreWeights. Names are not looked up here; they are taken to be right.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from extender.framework.rules import NO_REFUSAL, Check, Predicate, Verdict
from extender.framework.status import Refusal
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

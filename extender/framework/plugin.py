"""Describes plugins for the registry: their names, their arguments, and what they do at each extension point."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar

from pydantic import BaseModel

from extender.framework.policy_fields import Strict
from extender.framework.queueing_hints import EVERYTHING, Interests
from extender.framework.rules import Predicate, Priority

A = TypeVar("A", bound=BaseModel)

PRE_FILTER, FILTER, PRE_SCORE, SCORE = "preFilter", "filter", "preScore", "score"
BIND, RESERVE, PERMIT, PRE_BIND, POST_BIND = "bind", "reserve", "permit", "preBind", "postBind"
PRE_ENQUEUE, QUEUE_SORT, POST_FILTER = "preEnqueue", "queueSort", "postFilter"


def error_prefix(point: str, plugin: str) -> str:
    """Returns the prefix of a plugin's error, in the words of upstream's RunReservePluginsReserve and RunBindPlugins.

    `point`: an extension point from Reserve to Bind. A rejection by a plugin has no prefix.
    """
    return f'running {point[:1].upper()}{point[1:]} plugin "{plugin}": '


class Arguments(Strict):
    """The apiVersion and kind of any plugin's arguments; a plugin without arguments uses this class itself."""

    api_version: Literal["kubescheduler.config.k8s.io/v1"] = "kubescheduler.config.k8s.io/v1"
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Plugin(Generic[A]):
    """A plugin, in-tree or a user's rule.

    Attributes:
        arguments: the model of its arguments (pluginConfig).
        predicate, priority: build the plugin's rules from its arguments. A plugin with neither has no effect here, but
            a configuration may name it.
        others: other extension point, such as preEnqueue or reserve -> builds the plugin's rule there.
        weight: the weight of its scores in the default profile.
        points: further extension points that a configuration may name. The plugin does nothing there.
        needs: pairs (point, earlier point). At `point`, the plugin reads what it computed at `earlier point`.
        scores_filtered: True if the score needs results of the filter. All scores are 0 if the filter is disabled.
        interests: the cluster events that may help pods that the plugin refused.
        default: True if it is enabled by default.
    """

    name: str
    arguments: type[A]
    predicate: Callable[[A], Predicate] | None = None
    priority: Callable[[A], Priority] | None = None
    others: Mapping[str, Callable[[A], Any]] = field(default_factory=dict)
    weight: int = 1
    points: frozenset[str] = frozenset()
    needs: tuple[tuple[str, str], ...] = ()
    scores_filtered: bool = False
    interests: Interests = EVERYTHING
    default: bool = True

    def extends(self, point: str) -> bool:
        if point in (PRE_FILTER, FILTER) and self.predicate is not None:
            return True
        return (point == SCORE and self.priority is not None) or point in self.others or point in self.points


Registry = Mapping[str, Plugin[Any]]

"""A plugin as a registry holds it: its name, its arguments, and what it does at the extension points."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

from pydantic import BaseModel

from extender.framework.events.queueing_hints import EVERYTHING, Interests
from extender.framework.permit import ReserveRule
from extender.framework.rules import Predicate, Priority
from extender.framework.schema import Strict

A = TypeVar("A", bound=BaseModel)

PRE_FILTER, FILTER, PRE_SCORE, SCORE = "preFilter", "filter", "preScore", "score"
RESERVE, PERMIT = "reserve", "permit"


class Arguments(Strict):
    """The header that the arguments of any plugin may have; all that a plugin without arguments takes."""

    api_version: Literal["kubescheduler.config.k8s.io/v1"] = "kubescheduler.config.k8s.io/v1"
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Plugin(Generic[A]):
    """A plugin, in-tree or a user's rule.

    Attributes:
        arguments: the model of its arguments (pluginConfig).
        predicate, priority: make its rules from the arguments. A plugin with neither does nothing here, but a
            configuration may name it.
        reserve: makes its rule of Reserve or Permit from them; which of the two, `points` says.
        weight: of its scores in the default profile.
        points: its extension points other than preFilter and filter of a predicate, and score of a priority.
        needs: (point, earlier point) pairs: at the first it reads what it worked out at the second.
        scores_filtered: it scores what it found when it filtered, so that without filter all its scores are 0.
        interests: the cluster events that may help pods that it refused.
        default: it is enabled by default.
    """

    name: str
    arguments: type[A]
    predicate: Callable[[A], Predicate] | None = None
    priority: Callable[[A], Priority] | None = None
    reserve: Callable[[A], ReserveRule] | None = None
    weight: int = 1
    points: frozenset[str] = frozenset()
    needs: tuple[tuple[str, str], ...] = ()
    scores_filtered: bool = False
    interests: Interests = EVERYTHING
    default: bool = True

    def extends(self, point: str) -> bool:
        if point in (PRE_FILTER, FILTER) and self.predicate is not None:
            return True
        return (point == SCORE and self.priority is not None) or point in self.points


Registry = Mapping[str, Plugin[Any]]

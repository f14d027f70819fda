"""Defines the arguments and events of DefaultPreemption. `extender.preemption` searches for the victims.

Source: upstream plugin defaultpreemption, DefaultPreemptionArgs.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from extender.framework.cluster_events import Action, Resource
from extender.framework.plugin import Arguments, Plugin
from extender.framework.policy_fields import Percentage
from extender.framework.profile import CandidateLimits
from extender.framework.queueing_hints import Interest, Interests, never

NAME = "DefaultPreemption"


class DefaultPreemptionArgs(Arguments):
    kind: Literal["DefaultPreemptionArgs"] = "DefaultPreemptionArgs"
    min_candidate_nodes_percentage: Percentage = 10
    """Preemption considers at least this percentage of the nodes."""
    min_candidate_nodes_absolute: Annotated[int, Field(ge=0, le=2**31 - 1)] = 100
    """Preemption considers at least this number of nodes."""

    @model_validator(mode="after")
    def _not_both_zero(self) -> Self:
        if not self.min_candidate_nodes_percentage and not self.min_candidate_nodes_absolute:
            raise ValueError("minCandidateNodesPercentage and minCandidateNodesAbsolute cannot both be 0")
        return self

    @property
    def limits(self) -> CandidateLimits:
        return CandidateLimits(self.min_candidate_nodes_percentage, self.min_candidate_nodes_absolute)


PLUGIN = Plugin(
    NAME,
    DefaultPreemptionArgs,
    points=frozenset(("preEnqueue", "postFilter")),
    # `never` wakes no pod: when victims leave, the plugins that refused the pod wake it.
    interests=Interests((Interest(Resource.ASSIGNED_POD, Action.DELETE, never),)),
)

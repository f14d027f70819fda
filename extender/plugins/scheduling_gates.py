"""SchedulingGates: a pod waits until its scheduling gates are removed (KEP-3521). Source: upstream schedulinggates."""

from __future__ import annotations

from dataclasses import dataclass

from extender.framework.cluster_events import Action, Resource
from extender.framework.plugin import PRE_ENQUEUE, Arguments, Plugin
from extender.framework.queueing_hints import Interest, Interests
from extender.framework.status import Refusal, unresolvable
from extender.table import PodInfo, Table

NAME = "SchedulingGates"


@dataclass(frozen=True, slots=True)
class SchedulingGates:
    """Keeps pods with scheduling gates out of the active queue (PreEnqueue)."""

    def refuse(self, pod: PodInfo, _table: Table | None = None, /) -> Refusal | None:
        gates = pod.pod.spec.scheduling_gates
        if not gates:
            return None
        return unresolvable(NAME, f"waiting for scheduling gates: {', '.join(gate.name for gate in gates)}")


PLUGIN = Plugin(
    NAME,
    Arguments,
    others={PRE_ENQUEUE: lambda _: SchedulingGates()},
    interests=Interests((Interest(Resource.TARGET_POD, Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED),)),
)
